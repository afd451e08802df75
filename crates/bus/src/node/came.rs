//! A body that came.

use std::sync::Arc;

/// A body that came: in a buffer that is read from, or put together.
#[derive(Clone)]
pub(super) enum Came<'a> {
    Slice(&'a [u8]),
    Whole(Arc<Vec<u8>>),
    /// A command for this node, all before the bytes of its last argument, and these.
    Split(Vec<u8>, Vec<u8>),
}

impl Came<'_> {
    /// What it says; of one that is split, what is in front.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Came::Slice(bytes) => bytes,
            Came::Whole(bytes) => bytes,
            Came::Split(front, _) => front,
        }
    }

    /// The same to be kept: copied only where others have it as well.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Came::Slice(bytes) => bytes.to_vec(),
            Came::Whole(bytes) => Arc::try_unwrap(bytes).unwrap_or_else(|bytes| bytes.to_vec()),
            Came::Split(front, last) => [front, last].concat(),
        }
    }
}
