//! Limits on what a library creates from its arguments.

use crate::state::State;
use mlua::Lua;

/// Number of elements between two checks of the time.
const ELEMENTS_PER_LOOK: usize = 4096;

/// Checks that what a library creates stays within its limits.
pub(super) struct Bounds<'a> {
    state: &'a State,
    lua: &'a Lua,
    elements: usize,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(state: &'a State, lua: &'a Lua) -> Self {
        Self { state, lua, elements: 0 }
    }

    /// Counts one more element. `len` bytes have been created so far.
    pub(super) fn pass(&mut self, len: usize) -> mlua::Result<()> {
        self.elements += 1;
        if len > self.state.memory_max() {
            return Err(self.state.end_now(self.lua, crate::ends::End::Memory));
        }
        if self.elements.is_multiple_of(ELEMENTS_PER_LOOK) {
            self.state.check_end(self.lua)?;
        }
        Ok(())
    }
}
