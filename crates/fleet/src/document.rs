//! A document, and its form on the bus: a line of JSON, then the text.

use crate::Version;
use crate::limits::{DOCUMENT_LEN_MAX, HEAD_LEN_MAX};
use keyway_bus::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A version of the document. The text of revision 0 is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its version.
    pub version: Version,
    /// TOML, at most [`DOCUMENT_LEN_MAX`] bytes.
    pub text: Arc<str>,
}

/// A document as a leader publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The name of the cluster.
    pub cluster: String,
    /// The leader, which reports go to.
    pub leader: NodeId,
    /// The document.
    pub document: Document,
}

/// The reason why bytes are no published document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFault {
    /// They are more than a document may have.
    TooLong,
    /// They are not in the form of this version.
    Damaged,
}

impl fmt::Display for DocumentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocumentFault::TooLong => {
                write!(f, "the document is longer than {DOCUMENT_LEN_MAX} bytes")
            }
            DocumentFault::Damaged => {
                f.write_str("the document is not in a form that this version reads")
            }
        }
    }
}

impl std::error::Error for DocumentFault {}

#[derive(Serialize, Deserialize)]
struct Head {
    cluster: String,
    leader: u64,
    #[serde(flatten)]
    version: Version,
}

impl Published {
    /// Returns the bytes for the bus.
    pub fn encode(&self) -> Vec<u8> {
        let head = Head {
            cluster: self.cluster.clone(),
            leader: self.leader.0,
            version: self.document.version,
        };
        with_head(&head, &self.document.text)
    }

    /// Reads the bytes of [`Published::encode`]. Members of a later version may add names to the
    /// line; they are ignored.
    ///
    /// # Errors
    /// Returns a fault if they are not such bytes.
    pub fn decode(bytes: &[u8]) -> Result<Published, DocumentFault> {
        let (head, text): (Head, _) = split_head(bytes)?;
        let (cluster, leader) = (head.cluster, NodeId(head.leader));
        let document = Document { version: head.version, text: text.into() };
        Ok(Published { cluster, leader, document })
    }
}

/// Returns a line of JSON and the text behind it.
pub(crate) fn with_head<T: Serialize>(head: &T, text: &str) -> Vec<u8> {
    // The heads are structures of numbers and texts, which JSON always has a form for.
    let mut bytes = serde_json::to_vec(head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Reads what [`with_head`] makes.
pub(crate) fn split_head<'b, T: Deserialize<'b>>(
    bytes: &'b [u8],
) -> Result<(T, &'b str), DocumentFault> {
    let end = bytes.iter().take(HEAD_LEN_MAX).position(|byte| *byte == b'\n');
    let (head, text) = bytes.split_at_checked(end.ok_or(DocumentFault::Damaged)?).unzip();
    let (head, text) = head.zip(text).ok_or(DocumentFault::Damaged)?;
    let text = text.get(1..).unwrap_or_default();
    if text.len() > DOCUMENT_LEN_MAX {
        return Err(DocumentFault::TooLong);
    }
    let head = serde_json::from_slice(head).map_err(|_| DocumentFault::Damaged)?;
    Ok((head, std::str::from_utf8(text).map_err(|_| DocumentFault::Damaged)?))
}
