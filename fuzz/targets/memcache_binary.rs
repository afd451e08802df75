//! Feeds libFuzzer's inputs to [`keyway_fuzz::memcache_request::run_binary`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::memcache_request::run_binary(data));
