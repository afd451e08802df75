//! Feeds libFuzzer's inputs to [`keyway_fuzz::bus_hello`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::bus_hello::run(data));
