//! A document, and its form on the bus: a line of JSON, then the text. During a rollout its text
//! follows.

use crate::limits::{DOCUMENT_LEN_MAX, HEAD_LEN_MAX};
use crate::{Share, Version};
use keyway_bus::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A version of the document. The text of revision 0 is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its version.
    pub version: Version,
    /// TOML, at most [`DOCUMENT_LEN_MAX`] bytes.
    pub text: Arc<str>,
}

impl Document {
    /// Returns the refusal of a text of `len` bytes, if it is too long for a document.
    pub fn too_long(len: usize) -> Option<String> {
        let what = || format!("the document has {len} bytes, and may have {DOCUMENT_LEN_MAX}");
        (len > DOCUMENT_LEN_MAX).then(what)
    }
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
    /// The rollout that is going on.
    pub rollout: Option<PublishedRollout>,
}

/// A document that a share of the members serves by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedRollout {
    /// The document. Its revision is larger than that of the document of the rest.
    pub document: Document,
    /// The members that serve by it.
    pub share: Share,
    /// The time between two measures of a member.
    pub measure_every: Duration,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollout: Option<RolloutHead>,
}

#[derive(Serialize, Deserialize)]
struct RolloutHead {
    revision: u64,
    share: Share,
    measure_every_ms: u64,
    /// Bytes of the text of the document of the rest.
    base_len: usize,
}

impl Published {
    /// Returns the version of all of it: the newest that a member may get.
    pub fn stamp(&self) -> Version {
        self.rollout.as_ref().map_or(self.document.version, |rollout| rollout.document.version)
    }

    /// Returns the document that a member is to serve by.
    pub fn document_for(&self, id: NodeId) -> &Document {
        match &self.rollout {
            Some(rollout) if rollout.share.includes(id) => &rollout.document,
            _ => &self.document,
        }
    }

    /// Returns the bytes for the bus.
    pub fn encode(&self) -> Vec<u8> {
        let rollout = self.rollout.as_ref();
        let head = Head {
            cluster: self.cluster.clone(),
            leader: self.leader.0,
            version: self.document.version,
            rollout: rollout.map(|rollout| RolloutHead {
                revision: rollout.document.version.revision,
                share: rollout.share,
                measure_every_ms: rollout.measure_every.as_millis() as u64,
                base_len: self.document.text.len(),
            }),
        };
        let mut bytes = with_head(&head, &self.document.text);
        if let Some(rollout) = rollout {
            bytes.extend_from_slice(rollout.document.text.as_bytes());
        }
        bytes
    }

    /// Reads the bytes of [`Published::encode`]. Leaders of a later version may add names to the
    /// line; they are ignored.
    ///
    /// # Errors
    /// Returns a fault if they are not such bytes.
    pub fn decode(bytes: &[u8]) -> Result<Published, DocumentFault> {
        let (head, texts): (Head, &str) = split_head(bytes, 2 * DOCUMENT_LEN_MAX)?;
        let len = head.rollout.as_ref().map_or(texts.len(), |rollout| rollout.base_len);
        let (text, more) = texts.split_at_checked(len).ok_or(DocumentFault::Damaged)?;
        if text.len().max(more.len()) > DOCUMENT_LEN_MAX {
            return Err(DocumentFault::TooLong);
        }
        let epoch = head.version.epoch;
        let rollout = head.rollout.map(|rollout| PublishedRollout {
            document: Document {
                version: Version { epoch, revision: rollout.revision },
                text: more.into(),
            },
            share: rollout.share,
            measure_every: Duration::from_millis(rollout.measure_every_ms),
        });
        if rollout.as_ref().is_some_and(|it| it.document.version.revision <= head.version.revision)
        {
            return Err(DocumentFault::Damaged);
        }
        let (cluster, leader) = (head.cluster, NodeId(head.leader));
        let document = Document { version: head.version, text: text.into() };
        Ok(Published { cluster, leader, document, rollout })
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

/// Reads what [`with_head`] makes, if the text has at most `len_max` bytes.
pub(crate) fn split_head<'b, T: Deserialize<'b>>(
    bytes: &'b [u8],
    len_max: usize,
) -> Result<(T, &'b str), DocumentFault> {
    let end = bytes.iter().take(HEAD_LEN_MAX).position(|byte| *byte == b'\n');
    let (head, text) = bytes.split_at_checked(end.ok_or(DocumentFault::Damaged)?).unzip();
    let (head, text) = head.zip(text).ok_or(DocumentFault::Damaged)?;
    let text = text.get(1..).unwrap_or_default();
    if text.len() > len_max {
        return Err(DocumentFault::TooLong);
    }
    let head = serde_json::from_slice(head).map_err(|_| DocumentFault::Damaged)?;
    Ok((head, std::str::from_utf8(text).map_err(|_| DocumentFault::Damaged)?))
}
