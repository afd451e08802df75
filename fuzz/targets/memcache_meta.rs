//! Feeds libFuzzer's inputs to [`keyway_fuzz::memcache_request::run_meta`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::memcache_request::run_meta(data));
