//! A received body.

use std::sync::Arc;

/// A received body, in a buffer that is read from, or put together.
#[derive(Clone)]
pub(super) enum Came<'a> {
    Slice(&'a [u8]),
    Whole(Arc<Vec<u8>>),
    /// A command for this node: everything before the bytes of its last argument, and these bytes.
    Split(Vec<u8>, Vec<u8>),
}

impl Came<'_> {
    /// Returns its bytes; for a split one, the first part.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Came::Slice(bytes) => bytes,
            Came::Whole(bytes) => bytes,
            Came::Split(front, _) => front,
        }
    }

    /// Returns its bytes to be kept. They are copied only if others have them as well.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Came::Slice(bytes) => bytes.to_vec(),
            Came::Whole(bytes) => Arc::try_unwrap(bytes).unwrap_or_else(|bytes| bytes.to_vec()),
            Came::Split(front, last) => [front, last].concat(),
        }
    }
}
