//! Feeds libFuzzer's inputs to [`keyway_fuzz::tls_channel`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::tls_channel::run(data));
