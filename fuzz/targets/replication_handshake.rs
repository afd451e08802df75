//! Feeds libFuzzer's inputs to [`keyway_fuzz::replication_handshake`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::replication_handshake::run(data));
