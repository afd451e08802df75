//! Feeds libFuzzer's inputs to [`keyway_fuzz::resp_reply`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::resp_reply::run(data));
