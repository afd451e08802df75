//! The file of a member: a line of JSON, one or two documents, and a sum.

use crate::limits::{DOCUMENT_LEN_MAX, HEAD_LEN_MAX, SAVED_LEN_MAX};
use crate::{Document, Version};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The documents that a member keeps on its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The name of the cluster.
    pub cluster: String,
    /// The newest document. The member refuses every older one, also after a restart.
    pub newest: Document,
    /// The latest one that could be applied, if it is another: the member starts with it if the
    /// newest one cannot be applied.
    pub good: Option<Document>,
}

/// The reason why bytes are no saved documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedFault;

impl fmt::Display for SavedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it is damaged, or of another program; remove it to start without a document")
    }
}

impl std::error::Error for SavedFault {}

#[derive(Serialize, Deserialize)]
struct Part {
    #[serde(flatten)]
    version: Version,
    len: usize,
}

#[derive(Serialize, Deserialize)]
struct Head {
    keyway_fleet: u32,
    cluster: String,
    newest: Part,
    good: Option<Part>,
}

/// The form of the file.
const FORM: u32 = 1;

impl Saved {
    /// Returns the bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let part = |one: &Document| Part { version: one.version, len: one.text.len() };
        let head = Head {
            keyway_fleet: FORM,
            cluster: self.cluster.clone(),
            newest: part(&self.newest),
            good: self.good.as_ref().map(part),
        };
        let mut bytes = crate::document::with_head(&head, &self.newest.text);
        if let Some(good) = &self.good {
            bytes.extend_from_slice(good.text.as_bytes());
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Reads the bytes of [`Saved::encode`].
    ///
    /// # Errors
    /// Returns a fault if they are not such bytes, whole and unchanged.
    pub fn decode(bytes: &[u8]) -> Result<Saved, SavedFault> {
        Saved::read(bytes).ok_or(SavedFault)
    }

    fn read(bytes: &[u8]) -> Option<Saved> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        if bytes.len() > SAVED_LEN_MAX || crc32c::crc32c(body) != u32::from_be_bytes(*sum) {
            return None;
        }
        let end = body.iter().take(HEAD_LEN_MAX).position(|byte| *byte == b'\n')?;
        let head: Head = serde_json::from_slice(body.get(..end)?).ok()?;
        let texts = std::str::from_utf8(body.get(end + 1..)?).ok()?;
        if head.keyway_fleet != FORM || head.newest.len > DOCUMENT_LEN_MAX {
            return None;
        }
        let (newest, good) = texts.split_at_checked(head.newest.len)?;
        let is_whole = head.good.as_ref().map_or(0, |part| part.len) == good.len();
        is_whole.then(|| Saved {
            cluster: head.cluster,
            newest: Document { version: head.newest.version, text: newest.into() },
            good: head.good.map(|part| Document { version: part.version, text: good.into() }),
        })
    }
}
