//! Feeds libFuzzer's inputs to [`keyway_fuzz::config_text`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::config_text::run(data));
