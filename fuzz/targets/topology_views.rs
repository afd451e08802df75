//! Feeds libFuzzer's inputs to [`keyway_fuzz::topology_views`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::topology_views::run(data));
