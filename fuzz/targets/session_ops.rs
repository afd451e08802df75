//! Feeds libFuzzer's inputs to [`keyway_fuzz::session_ops`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::session_ops::run(data));
