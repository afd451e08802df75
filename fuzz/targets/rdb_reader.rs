//! Feeds libFuzzer's inputs to [`keyway_fuzz::rdb_reader`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::rdb_reader::run(data));
