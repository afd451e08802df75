//! What a server was given through a connection: scripts and libraries.

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
    /// Whether requests on this connection may rely on what was loaded.
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
