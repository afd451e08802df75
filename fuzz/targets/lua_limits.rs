//! Feeds libFuzzer's inputs to [`keyway_fuzz::lua_limits`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| keyway_fuzz::lua_limits::run(data));
