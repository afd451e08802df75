//! Feeds libFuzzer's inputs to [`keyway_fuzz::memcache_reply::run`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::memcache_reply::run(data));
