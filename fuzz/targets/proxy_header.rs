//! Feeds libFuzzer's inputs to [`keyway_fuzz::proxy_header`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::proxy_header::run(data));
