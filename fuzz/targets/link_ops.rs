//! Feeds libFuzzer's inputs to [`keyway_fuzz::link_ops`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::link_ops::run(data));
