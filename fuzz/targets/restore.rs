//! Feeds libFuzzer's inputs to [`keyway_fuzz::restore`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::restore::run(data));
