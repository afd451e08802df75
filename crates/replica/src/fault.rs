//! Why a link ended.

use crate::target::{Recovery, TargetError};
use keyway_rdb::replication::{CommandFault, HandshakeFault};
use keyway_rdb::{Fault, What};
use std::fmt;
use std::time::Duration;

/// How far a link had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Looking up the host.
    Lookup,
    /// Connecting.
    Connect,
    /// The handshake, up to the primary's answer to PSYNC and its snapshot.
    Handshake,
    /// The snapshot.
    Snapshot,
    /// The stream of commands.
    Stream,
}

impl Stage {
    fn text(self) -> &'static str {
        match self {
            Self::Lookup => "host lookup",
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Snapshot => "snapshot",
            Self::Stream => "stream",
        }
    }
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The host has no address, or the resolver failed.
    Lookup(String),
    /// Replication does not go through such an endpoint.
    Endpoint,
    /// The system refused, or the network.
    System(String),
    /// Nothing came for so long.
    Timeout(Duration),
    /// The primary closed the connection.
    Closed,
    /// TLS failed.
    Tls(String),
    /// The handshake of TLS took longer than this.
    TlsTimeout(Duration),
    /// The primary refused, or is no primary.
    Handshake(HandshakeFault),
    /// The primary goes on with what was not asked for.
    Unasked,
    /// The snapshot is damaged, or in a form that is not supported.
    Snapshot(Fault),
    /// Bytes of the snapshot lie behind its end.
    SnapshotTail,
    /// The stream is damaged.
    Command(CommandFault),
    /// The stream has a command in the form of a line of text.
    Inline {
        /// The offset in front of it.
        offset: u64,
    },
    /// A transaction has more bytes than the follower may hold.
    TransactionLen {
        /// The offset in front of it.
        offset: u64,
        /// The bound.
        max: usize,
    },
    /// The target refused.
    Target(TargetError),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(text) => write!(f, "cannot find the host: {text}"),
            Self::Endpoint => f.write_str("replication needs a TCP address or a unix socket"),
            Self::System(text) => f.write_str(text),
            Self::Timeout(after) => {
                write!(f, "the primary sent nothing for {} s", after.as_secs_f32())
            }
            Self::Closed => f.write_str("the primary closed the connection"),
            Self::Tls(text) => write!(f, "no TLS: {text}"),
            Self::TlsTimeout(after) => write!(
                f,
                "no TLS: the handshake was not over after {} s; does this port speak TLS?",
                after.as_secs_f32()
            ),
            Self::Handshake(fault) => fault.fmt(f),
            Self::Unasked => f.write_str("the primary answers what was not asked"),
            Self::Snapshot(fault) => fault.fmt(f),
            Self::SnapshotTail => f.write_str("the snapshot has bytes behind its end"),
            Self::Command(fault) => fault.fmt(f),
            Self::Inline { offset } => {
                write!(f, "offset {offset}: the primary sent a line of text in place of a command")
            }
            Self::TransactionLen { offset, max } => {
                write!(f, "offset {offset}: a transaction is longer than the limit of {max} bytes")
            }
            Self::Target(error) => write!(f, "the replica cannot take the data: {error}"),
        }
    }
}

/// Why a link ended: the primary's address, the stage and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFault {
    address: String,
    stage: Stage,
    cause: Cause,
}

impl LinkFault {
    pub(crate) fn new(address: &str, stage: Stage, cause: Cause) -> Self {
        Self { address: address.to_owned(), stage, cause }
    }

    /// The address of the primary.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How far the link had come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What was wrong.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns whether the follower stops.
    pub(crate) fn stops(&self) -> bool {
        match &self.cause {
            Cause::Target(error) => error.recovery() == Recovery::Stop,
            // Another snapshot of the same server would have the same.
            Cause::Snapshot(fault) => {
                matches!(fault.what(), What::ModuleValue(_) | What::ModuleData(_))
            }
            _ => false,
        }
    }

    /// Returns whether the stream cannot go on from where it was: the same bytes would
    /// come again and fail again.
    pub(crate) fn loses_position(&self) -> bool {
        match &self.cause {
            Cause::Command(_) | Cause::Inline { .. } | Cause::TransactionLen { .. } => true,
            Cause::Target(error) => {
                self.stage == Stage::Stream && error.recovery() == Recovery::Resync
            }
            _ => false,
        }
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            // Their words name the stage, and the byte or the offset.
            Cause::Handshake(_) | Cause::Snapshot(_) | Cause::Command(_) => {
                write!(f, "primary {}: {}", self.address, self.cause)
            }
            cause => write!(f, "primary {}, {}: {cause}", self.address, self.stage.text()),
        }
    }
}

impl std::error::Error for LinkFault {}
