//! Keys that identify connections.

use std::fmt;

/// Identifies one connection of a worker by an index, and a generation that distinguishes the
/// connections with the same index. The key of a closed connection never identifies its successor.
///
/// A connection keeps its key when it reconnects to the same server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionKey {
    index: u32,
    generation: u32,
}

impl ConnectionKey {
    /// A key that no worker gives out.
    pub const NONE: ConnectionKey = ConnectionKey { index: u32::MAX, generation: 0 };

    /// Returns the key of the connection with this index and generation.
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Self {
        ConnectionKey { index, generation }
    }

    /// Returns the index. It is unique only together with the generation.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Returns the generation.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Returns the key of the connection `count` indices after this one, of connections that were
    /// added together.
    #[inline]
    pub const fn behind(self, count: usize) -> Self {
        ConnectionKey { index: self.index + count as u32, generation: self.generation }
    }
}

impl fmt::Debug for ConnectionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.index, self.generation)
    }
}
