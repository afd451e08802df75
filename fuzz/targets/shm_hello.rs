//! Feeds libFuzzer's inputs to [`keyway_fuzz::shm_hello`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::shm_hello::run(data));
