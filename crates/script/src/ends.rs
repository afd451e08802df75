//! A run of a script, as other threads see it, and how it ends.

use std::sync::atomic::{AtomicU8, Ordering};

const CLEAN: u8 = 0;
const WRITTEN: u8 = 1;
const KILLED: u8 = 2;

/// A script that runs now. One word says whether it has written or must end: both at once are
/// impossible.
#[derive(Debug)]
pub struct Run {
    state: AtomicU8,
    is_function: bool,
    /// The client that runs it.
    client: Option<u64>,
    /// The name of the script or function.
    pub name: String,
    /// The words of the request, for a function.
    pub command: Vec<Vec<u8>>,
    /// When it began.
    pub began: keyway_base::Time,
}

/// The result of a request to kill a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kill {
    /// No script runs.
    NotBusy,
    /// What runs is of the other kind: a function for SCRIPT KILL, or a script for FUNCTION KILL.
    OtherKind,
    /// The script has written.
    Unkillable,
    /// The script will end.
    Killed,
}

impl Run {
    /// Creates a run that has written nothing.
    pub fn new(
        is_function: bool,
        name: String,
        command: Vec<Vec<u8>>,
        began: keyway_base::Time,
    ) -> Self {
        Self { state: AtomicU8::new(CLEAN), is_function, client: None, name, command, began }
    }

    /// Returns the run with the id of its client, with which it may be ended.
    #[must_use]
    pub fn for_client(self, client: u64) -> Self {
        Self { client: Some(client), ..self }
    }

    pub(crate) fn client(&self) -> Option<u64> {
        self.client
    }

    /// Returns whether it is the run of a function.
    pub fn is_function(&self) -> bool {
        self.is_function
    }

    /// Notes a command that writes. Returns `false` if the script must end instead.
    pub(crate) fn note_write(&self) -> bool {
        let state = &self.state;
        let relaxed = Ordering::Relaxed;
        match state.compare_exchange(CLEAN, WRITTEN, relaxed, relaxed) {
            Ok(_) => true,
            Err(now) => now == WRITTEN,
        }
    }

    /// Returns whether it has sent a command that writes.
    pub fn has_written(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WRITTEN
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == KILLED
    }

    pub(crate) fn kill(&self, is_function: bool) -> Kill {
        if self.is_function != is_function {
            return Kill::OtherKind;
        }
        let relaxed = Ordering::Relaxed;
        match self.state.compare_exchange(CLEAN, KILLED, relaxed, relaxed) {
            Ok(_) | Err(KILLED) => Kill::Killed,
            Err(_) => Kill::Unkillable,
        }
    }
}

/// Why a script ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It has run for too long.
    Time,
    /// It needs more memory than allowed.
    Memory,
    /// The host keeps too much until the end of the script.
    Kept,
    /// It was killed by SCRIPT KILL or FUNCTION KILL.
    Killed,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(is_function: bool) -> Run {
        Run::new(is_function, String::new(), Vec::new(), keyway_base::Time(0))
    }

    #[test]
    fn what_has_written_is_not_killed_and_what_is_killed_does_not_write() {
        let written = run(false);
        assert!(written.note_write() && written.note_write() && written.has_written());
        assert_eq!(written.kill(false), Kill::Unkillable);
        let killed = run(false);
        assert_eq!(killed.kill(true), Kill::OtherKind);
        assert_eq!(killed.kill(false), Kill::Killed);
        assert_eq!(killed.kill(false), Kill::Killed);
        assert!(!killed.note_write() && killed.is_killed() && !killed.has_written());
    }
}
