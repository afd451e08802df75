//! Feeds libFuzzer's inputs to [`keyway_fuzz::translation`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::translation::run(data));
