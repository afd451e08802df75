//! The scripts and libraries that a server was given through a connection.

use keyway_command::Loaded;
use keyway_proxy::Digest;
use std::collections::BTreeSet;

/// Number of scripts that a connection is known to have. Above this number it is asked anew.
const GIVEN_MAX: usize = 16 << 10;

/// The scripts and libraries that were loaded through a connection.
#[derive(Default)]
pub(in crate::core) struct Given {
    scripts: BTreeSet<Digest>,
    /// The value of [`ScriptCache::flushes`] at that time.
    flushes: u64,
    /// The server has the libraries up to this value of [`ScriptCache::changes`].
    pub(super) libraries: u64,
}

impl Given {
    /// Returns whether requests on this connection may rely on what was loaded.
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.scripts.is_empty() && self.libraries == 0
    }

    pub(super) fn has_script(&mut self, digest: &Digest, flushes: u64) -> bool {
        if self.flushes != flushes {
            self.flushes = flushes;
            self.scripts.clear();
        }
        self.scripts.contains(digest)
    }

    /// Notes that a script was sent.
    pub(super) fn add_script(&mut self, digest: Digest) {
        if self.scripts.len() >= GIVEN_MAX {
            self.scripts.clear();
        }
        self.scripts.insert(digest);
    }

    /// Forgets the scripts.
    pub(in crate::core) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }
}

/// The scripts or libraries that a request to every server has loaded or removed.
pub(in crate::core) enum Loads {
    /// A script.
    Script(Vec<u8>),
    /// A library. The servers' reply is its name.
    Library(Vec<u8>),
    /// Libraries by name and code. If `is_flush`, they replace all others.
    Libraries { libraries: Vec<(Vec<u8>, Vec<u8>)>, is_flush: bool },
    /// All scripts, all libraries, or one library.
    Forgotten(Loaded),
}
