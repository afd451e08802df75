//! Feeds libFuzzer's inputs to [`keyway_fuzz::hello`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::hello::run(data));
