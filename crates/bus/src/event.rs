//! What a node tells its user, and what it wants of who has the transports.

use crate::fault::Reason;
use crate::id::NodeId;
use crate::peer::{Body, Identity, PeerKey, Relation};
use crate::url::Url;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection is registered.
    PeerUp {
        /// Who is there.
        identity: Box<Identity>,
        /// What it is to its dialler.
        relation: Relation,
        /// Whether this node dialled.
        by_us: bool,
    },
    /// A registered connection is gone.
    PeerDown {
        /// Who was there.
        id: NodeId,
        /// Why.
        reason: Reason,
    },
    /// A connection did not come to be, at none of the addresses if it was dialled; or, with
    /// [`Reason::IdTwice`], two processes below have one id, of which the one that was attached later gets
    /// its messages, or one is told to be below that has the id of this node or of an upstream of it, and
    /// gets none.
    Refused {
        /// Who was dialled, or dialled us; nobody if that is not known.
        id: NodeId,
        /// Where who dialled us comes from, as its transport says.
        from: Option<Box<str>>,
        /// Why.
        reason: Reason,
    },
    /// So many more connections of strangers did not come to be, or ids were used twice, within a second.
    Unsaid {
        /// How many.
        count: u64,
    },
    /// An address that was dialled led nowhere.
    Unreached {
        /// Who was meant; nobody if that is anybody.
        id: NodeId,
        /// The address.
        at: Box<Url>,
        /// Why.
        reason: Reason,
    },
    /// A node is somewhere below.
    Joined(NodeId),
    /// It no longer is.
    Left(NodeId),
    /// Messages go up through that node from now on; through none.
    Upstream(Option<NodeId>),
    /// A message for this node.
    Message {
        /// Its sender.
        from: NodeId,
        /// The sender's number of it: greater than that of any before.
        seq: u64,
        /// What it says.
        body: Vec<u8>,
    },
    /// A message has arrived, which was sent with the wish to know.
    Acked {
        /// What [`crate::Node::send`] gave.
        seq: u64,
    },
    /// A message or a command did not arrive, or nobody knows.
    Failed {
        /// What [`crate::Node::send`] or [`crate::Node::command`] gave.
        seq: u64,
        /// Who it was for.
        dst: NodeId,
        /// The node that could not send it on.
        by: NodeId,
        /// Why.
        reason: Reason,
        /// Whether it may have arrived for all that. If not, it has not, and will not.
        maybe: bool,
    },
    /// A command for this node's user, to be answered by [`crate::Node::reply`].
    Command {
        /// Who asks.
        from: NodeId,
        /// The number to answer to.
        seq: u64,
        /// Name and arguments.
        args: Vec<Vec<u8>>,
    },
    /// The result of a command.
    Result {
        /// What [`crate::Node::command`] gave.
        seq: u64,
        /// Who answers.
        from: NodeId,
        /// 0 if it was done; others are the answerer's.
        status: u16,
        /// What came of it.
        items: Vec<Vec<u8>>,
    },
    /// A new version of a topic, to be applied and told by [`crate::Node::applied`].
    Push {
        /// Its name.
        topic: String,
        /// Grows when who publishes changes.
        epoch: u64,
        /// Grows with each version of an epoch.
        version: u64,
        /// All of it, however it came.
        body: Body,
    },
    /// There is no such topic any more.
    Withdrawn {
        /// Its name.
        topic: String,
        /// Its last epoch.
        epoch: u64,
        /// Its last version, by which it was withdrawn.
        version: u64,
    },
    /// A version of a topic came that there is no room for: nodes below do not get it from here. It is asked
    /// for again once another topic is withdrawn, or the node comes to an upstream.
    Unkept {
        /// The topic.
        topic: String,
        /// Its epoch.
        epoch: u64,
        /// Its version.
        version: u64,
        /// Why.
        reason: Reason,
    },
    /// Two bodies have one version: the second was not taken.
    PushConflict {
        /// The topic.
        topic: String,
        /// Its epoch.
        epoch: u64,
        /// Its version.
        version: u64,
    },
    /// A node has applied, or could not apply, what this one published.
    Applied {
        /// The topic.
        topic: String,
        /// The node.
        node: NodeId,
        /// The epoch.
        epoch: u64,
        /// The version.
        version: u64,
        /// Whether it could.
        is_good: bool,
    },
    /// All connections are closed after [`crate::Node::leave`].
    Gone,
}

impl Event {
    /// Bytes it holds, about.
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

/// Something for who has the transports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to this address, and tell [`crate::Node::handle_connected`] or
    /// [`crate::Node::handle_dial_failed`]. Who takes too long is not waited for.
    Dial {
        /// To be told with the outcome.
        dial: DialKey,
        /// Where.
        url: Url,
    },
    /// Close a connection, once `last_words` were written or could not be. Its key is no more.
    Close {
        /// Which.
        peer: PeerKey,
        /// What is to be said before, behind all other output.
        last_words: Vec<u8>,
    },
}
