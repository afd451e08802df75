//! Names of connections.

use std::fmt;

/// Names one connection of a worker: a position, and which of the connections that were at that
/// position one after the other. The key of a connection that is gone never names its successor.
///
/// A connection keeps its key while it is made anew to the same server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionKey {
    index: u32,
    generation: u32,
}

impl ConnectionKey {
    /// A key that no worker hands out.
    pub const NONE: ConnectionKey = ConnectionKey { index: u32::MAX, generation: 0 };

    /// The key of the connection of that generation at `index`.
    #[inline]
    pub const fn new(index: u32, generation: u32) -> Self {
        ConnectionKey { index, generation }
    }

    /// The position; unique only together with the generation.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Which of the connections at this position.
    #[inline]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The key of the connection that stands `count` places behind this one in a row of
    /// connections that were added together.
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
