//! Feeds libFuzzer's inputs to [`keyway_fuzz::memcached_ops`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::memcached_ops::run(data));
