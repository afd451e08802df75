//! What a server was given through a connection: scripts and libraries.

use keyway_command::Loaded;
use keyway_proxy::Digest;
use std::collections::BTreeSet;

/// What was loaded through a connection.
#[derive(Default)]
pub(in crate::core) struct Given {
    pub(in crate::core::pools::servers) scripts: BTreeSet<Digest>,
    /// [`ScriptCache::flushes`] at that time.
    pub(in crate::core::pools::servers) flushes: u64,
    /// It has the libraries up to this one of [`ScriptCache::changes`].
    pub(in crate::core::pools::servers) libraries: u64,
}

impl Given {
    /// Returns whether requests on this connection may rely on what was loaded.
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.scripts.is_empty() && self.libraries == 0
    }

    pub(in crate::core) fn has_script(&mut self, digest: &Digest, flushes: u64) -> bool {
        if self.flushes != flushes {
            self.flushes = flushes;
            self.scripts.clear();
        }
        self.scripts.contains(digest)
    }

    /// Forgets the scripts.
    pub(in crate::core) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }
}

/// What a request that went to every server has loaded or forgotten.
pub(in crate::core) enum Loads {
    /// A script.
    Script(Vec<u8>),
    /// A library; its name is what the servers say.
    Library(Vec<u8>),
    /// Libraries by name and code, in place of all others or not.
    Libraries { libraries: Vec<(Vec<u8>, Vec<u8>)>, is_flush: bool },
    /// All of these, or one library.
    Forgotten(Loaded),
}
