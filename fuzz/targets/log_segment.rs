//! Feeds libFuzzer's inputs to [`keyway_fuzz::log_segment`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::log_segment::run(data));
