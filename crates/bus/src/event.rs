//! Events of a node for its user, and its orders for the owner of the transports.

use crate::fault::Reason;
use crate::id::NodeId;
use crate::peer::{Body, Identity, PeerKey, Relation};
use crate::url::Url;

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection is registered.
    PeerUp {
        /// The peer.
        identity: Box<Identity>,
        /// Its relation to the dialler.
        relation: Relation,
        /// True if this node dialled.
        by_us: bool,
    },
    /// A registered connection is gone.
    PeerDown {
        /// The peer.
        id: NodeId,
        /// The reason.
        reason: Reason,
    },
    /// A connection was not made, at none of the addresses if it was dialled. With
    /// [`Reason::IdTwice`] there are two cases. Two processes below may have one id; the one that
    /// was attached later gets its messages. Or a process is announced below that has the id of
    /// this node or of one of its upstreams; it gets no messages.
    Refused {
        /// The peer that was dialled, or that dialled; [`NodeId::NONE`] if it is not known.
        id: NodeId,
        /// Address of the dialler, as its transport reports it.
        from: Option<Box<str>>,
        /// The reason.
        reason: Reason,
    },
    /// Further connections of strangers were not made, or ids were used twice, within a second.
    Unsaid {
        /// Their number.
        count: u64,
    },
    /// An address that was dialled failed.
    Unreached {
        /// The node that was dialled; [`NodeId::NONE`] if it may be any.
        id: NodeId,
        /// The address.
        at: Box<Url>,
        /// The reason.
        reason: Reason,
    },
    /// A node has joined somewhere below.
    Joined(NodeId),
    /// A node has left.
    Left(NodeId),
    /// Messages go up through that node from now on; `None`: through none.
    Upstream(Option<NodeId>),
    /// A message for this node.
    Message {
        /// Its sender.
        from: NodeId,
        /// The sender's number for it. It is greater than all earlier ones.
        seq: u64,
        /// Its content.
        body: Vec<u8>,
    },
    /// A message has arrived whose sender wanted to know.
    Acked {
        /// The number that [`crate::Node::send`] returned.
        seq: u64,
    },
    /// A message or a command did not arrive, or its fate is unknown.
    Failed {
        /// The number that [`crate::Node::send`] or [`crate::Node::command`] returned.
        seq: u64,
        /// Its destination.
        dst: NodeId,
        /// The node that could not send it on.
        by: NodeId,
        /// The reason.
        reason: Reason,
        /// True if it may have arrived all the same. If not, it has not arrived, and will not.
        maybe: bool,
    },
    /// A command for this node's user, who answers it by [`crate::Node::reply`].
    Command {
        /// The node that asks.
        from: NodeId,
        /// The number to answer to.
        seq: u64,
        /// Name and arguments.
        args: Vec<Vec<u8>>,
    },
    /// The result of a command.
    Result {
        /// The number that [`crate::Node::command`] returned.
        seq: u64,
        /// The node that answers.
        from: NodeId,
        /// 0 if the command was executed. The answering node defines other values.
        status: u16,
        /// The items of the result.
        items: Vec<Vec<u8>>,
    },
    /// A new version of a topic. The user applies it and calls [`crate::Node::applied`].
    Push {
        /// Its name.
        topic: String,
        /// The epoch, which grows when the publisher changes.
        epoch: u64,
        /// The version, which grows within an epoch.
        version: u64,
        /// The whole body, however it came.
        body: Body,
    },
    /// A topic was withdrawn.
    Withdrawn {
        /// Its name.
        topic: String,
        /// Its last epoch.
        epoch: u64,
        /// Its last version, which withdrew it.
        version: u64,
    },
    /// There is no room for a version of a topic: nodes below do not get it from here. It is asked
    /// for again once another topic is withdrawn, or the node gets another upstream.
    Unkept {
        /// The topic.
        topic: String,
        /// Its epoch.
        epoch: u64,
        /// Its version.
        version: u64,
        /// The reason.
        reason: Reason,
    },
    /// Two bodies have the same version: the second was not accepted.
    PushConflict {
        /// The topic.
        topic: String,
        /// Its epoch.
        epoch: u64,
        /// Its version.
        version: u64,
    },
    /// A node has applied, or could not apply, a version that this node published.
    Applied {
        /// The topic.
        topic: String,
        /// The node.
        node: NodeId,
        /// The epoch.
        epoch: u64,
        /// The version.
        version: u64,
        /// True if it was applied.
        is_good: bool,
    },
    /// All connections are closed after [`crate::Node::leave`].
    Gone,
}

impl Event {
    /// Returns its approximate size in bytes.
    pub(crate) fn weight(&self) -> usize {
        64 + match self {
            Event::Message { body, .. } => body.len(),
            Event::Command { args: items, .. } | Event::Result { items, .. } => {
                items.iter().map(|item| item.len() + 24).sum()
            }
            Event::Push { body, .. } => body.len(),
            Event::PeerUp { identity, .. } => identity.len(),
            _ => 0,
        }
    }
}

/// Names an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DialKey(pub u64);

/// An order for the owner of the transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to this address, and call [`crate::Node::handle_connected`] or
    /// [`crate::Node::handle_dial_failed`]. A dial that takes too long is given up.
    Dial {
        /// The key of the dial, to be passed with the outcome.
        dial: DialKey,
        /// The address.
        url: Url,
    },
    /// Close a connection, after `last_words` were written or could not be. Its key is invalid from
    /// now on.
    Close {
        /// The connection.
        peer: PeerKey,
        /// Bytes to send before closing, after all other output.
        last_words: Vec<u8>,
    },
}
