//! Feeds libFuzzer's inputs to [`keyway_fuzz::command_keys`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::command_keys::run(data));
