//! The settings of a node.

use crate::frame::{CHANNELS, FRAME_LEN_MAX, MESSAGE_LEN_MAX, TTL_MAX};
use crate::id::{IdRange, NodeId};
use crate::labels::Labels;
use crate::token::Tokens;
use crate::url::{Place, Url};
use std::time::Duration;

/// Most addresses that a node announces.
pub const URLS_MAX: usize = 4;
/// Most upstreams of a node: the primary one and its standby.
pub const UPSTREAMS_MAX: usize = 2;

/// Least bytes of a window: two frames.
pub const WINDOW_MIN: u32 = 2 * FRAME_LEN_MAX as u32;
/// Most bytes of a window.
pub const WINDOW_MAX: u32 = 64 << 20;
/// Most topics: the versions that a node has of them are told in one frame.
const TOPICS_MAX: usize = 512;
/// Longest time for a registration.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// A node above this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its id; [`NodeId::NONE`] if it may be any node that knows the token.
    pub id: NodeId,
    /// Its addresses, tried in this order.
    pub urls: Vec<Url>,
}

/// A connection on which only heartbeats were sent for `after` rests. The acceptor pings every
/// `heartbeat`, all its connections together, and the dialler asks if that ping does not come.
/// Within a host they do so ten times less often. The first other frame ends the rest. So a
/// thousand connections at rest cost next to nothing. Meanwhile the transport must find out that a
/// host is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Time since the last frame after which a connection rests.
    pub after: Duration,
    /// Time between two pings at rest.
    pub heartbeat: Duration,
}

/// The settings of a node. [`Settings::of`] has the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its id; [`NodeId::NONE`] for a guest, which gets an id from its upstream.
    pub id: NodeId,
    /// Its labels.
    pub labels: Labels,
    /// The addresses at which others can dial it; at most [`URLS_MAX`].
    pub urls: Vec<Url>,
    /// The place of its process.
    pub place: Place,
    /// The incarnation, which grows with each start of the node: milliseconds since 1970, shifted
    /// left by 20. Sequence numbers begin here, so those of a restarted node are not taken for old
    /// ones.
    pub incarnation: u64,
    /// The primary upstream and its standby; none for the root.
    pub upstreams: Vec<Upstream>,
    /// Secrets of the bus. Without any, every node is accepted.
    pub tokens: Tokens,
    /// Ids that are accepted. A guest is checked by the id that it is given.
    pub accept: Vec<IdRange>,
    /// True if nodes may connect beside this one. Their frames may be from any node that is not
    /// below: without them, only upstreams can speak for others.
    pub has_siblings: bool,
    /// Most connections. Each takes memory up to its windows and queues.
    pub peers_max: usize,
    /// Most nodes below this one, of 512 bytes each on average. A child may have as many as it
    /// leaves free.
    pub nodes_max: usize,
    /// Most nodes that a message of this node may pass.
    pub ttl: u8,
    /// Time between two pings. A shorter time finds dead hosts sooner and costs a wake-up each.
    pub heartbeat: Duration,
    /// Heartbeats without a frame after which a connection is given up.
    pub silent_after: u32,
    /// Time for a registration, from the connection on; at most [`HANDSHAKE_MAX`]. A longer time
    /// lets silent strangers keep their places for longer.
    pub handshake: Duration,
    /// Time for which a message in parts may stand still before it is given up and its sender told.
    /// A shorter time gives up senders on slow ways.
    pub parts_idle: Duration,
    /// Pings while nothing else is sent: see [`Rest`].
    pub rest: Rest,
    /// Time for connecting to an address, and as long again for its node to accept. A longer time
    /// keeps a node from its next address; a shorter one loses distant nodes.
    pub dial: Duration,
    /// Time until an upstream is dialled again: doubled from the first to the second, with jitter.
    pub retry: (Duration, Duration),
    /// Time for which the primary upstream must be back before it is used again.
    pub prefer_after: Duration,
    /// Time for which the used upstream must report that it is cut off before the other one is
    /// used. A shorter time moves all nodes below while an upstream changes its own.
    pub cut_after: Duration,
    /// Time without frames after which a direct connection to a sibling is closed.
    pub direct_idle: Duration,
    /// Bytes that a peer may send ahead, by channel: control, config, data. More is faster over
    /// long ways, and takes more memory.
    pub windows: [u32; CHANNELS],
    /// Most bytes that wait for one peer on a channel; one message always may.
    pub queue_len_max: usize,
    /// Most bytes that wait for all peers, with what must be remembered of sent and untaken frames.
    /// The bodies of topics, which all queues share, do not count.
    pub queues_len_max: usize,
    /// Longest message, in bytes.
    pub message_len_max: usize,
    /// Most bytes of messages that are being put together, of all peers.
    pub assembly_len_max: usize,
    /// Most bytes of messages that the user has not taken. Beyond that, peers get no credit for
    /// more.
    pub inbox_len_max: usize,
    /// Most messages and commands that wait for an answer.
    pub waiting_max: usize,
    /// Most topics.
    pub topics_max: usize,
    /// Most bytes of all topics' bodies and deltas. Older versions that are being sent may take as
    /// much again.
    pub topics_len_max: usize,
    /// True if bodies of at least [`crate::COMPRESS_LEN_MIN`] are compressed.
    pub compress: bool,
    /// Time for which [`crate::Node::leave`] waits until sent frames are taken.
    pub leave: Duration,
}

impl Settings {
    /// Returns the settings of a node with that id, with the defaults.
    pub fn of(id: NodeId) -> Self {
        Self {
            id,
            labels: Labels::default(),
            urls: Vec::new(),
            place: Place::default(),
            incarnation: 1,
            upstreams: Vec::new(),
            tokens: Tokens::default(),
            accept: vec![IdRange::ALL],
            has_siblings: true,
            peers_max: 1024,
            nodes_max: 65_536,
            ttl: TTL_MAX,
            heartbeat: Duration::from_secs(1),
            silent_after: 3,
            handshake: Duration::from_secs(5),
            parts_idle: Duration::from_secs(30),
            rest: Rest { after: Duration::from_secs(10), heartbeat: Duration::from_secs(30) },
            dial: Duration::from_secs(3),
            retry: (Duration::from_millis(100), Duration::from_secs(3)),
            prefer_after: Duration::from_secs(5),
            cut_after: Duration::from_secs(2),
            direct_idle: Duration::from_secs(60),
            windows: [256 << 10, 256 << 10, 1 << 20],
            queue_len_max: 80 << 20,
            queues_len_max: 512 << 20,
            message_len_max: MESSAGE_LEN_MAX,
            assembly_len_max: 256 << 20,
            inbox_len_max: 64 << 20,
            waiting_max: 65_536,
            topics_max: 64,
            topics_len_max: 256 << 20,
            compress: true,
            leave: Duration::from_secs(3),
        }
    }

    /// Returns the mistakes in the settings, for their author.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |is_right: bool, what: &str| {
            if !is_right {
                faults.push(what.to_owned());
            }
        };
        check(!self.id.is_guest(), "ids of role guest are given, not chosen");
        check(self.upstreams.len() <= UPSTREAMS_MAX, "a node has at most two upstreams");
        let is_one_guest = !self.id.is_none() || self.upstreams.len() == 1;
        check(is_one_guest, "a guest, which has no id, has one upstream");
        check(self.urls.len() <= URLS_MAX, "a node announces at most four addresses");
        check((1..=TTL_MAX).contains(&self.ttl), "ttl is from 1 to 16");
        let windows_fit = self.windows.iter().all(|len| (WINDOW_MIN..=WINDOW_MAX).contains(len));
        let window =
            format!("a window has room for two frames, {WINDOW_MIN} bytes, and at most 64 MiB");
        check(windows_fit, &window);
        check(self.message_len_max <= MESSAGE_LEN_MAX, "messages have at most 64 MiB");
        check(
            self.assembly_len_max >= self.message_len_max,
            "there must be memory for one message in parts",
        );
        check(
            self.queues_len_max >= self.message_len_max,
            "there must be room for one message in all queues together",
        );
        check(self.topics_max <= TOPICS_MAX, "a node has at most 512 topics");
        check(
            !self.handshake.is_zero() && self.handshake <= HANDSHAKE_MAX,
            "a registration has up to a minute",
        );
        check(!self.parts_idle.is_zero(), "parts of a message have more than no time");
        check(!self.heartbeat.is_zero() && self.silent_after > 1, "heartbeats are more than none");
        check(self.rest.heartbeat >= self.heartbeat, "heartbeats at rest are no more often");
        check(
            !self.retry.0.is_zero() && self.retry.0 <= self.retry.1,
            "retry is from a shorter to a longer time",
        );
        let others =
            self.upstreams.iter().all(|upstream| upstream.id.is_none() || upstream.id != self.id);
        check(others, "a node is not its own upstream");
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_right_and_each_fault_is_told() {
        let good = Settings::of(NodeId(1));
        assert_eq!(good.faults(), [""; 0]);
        let mut bad = Settings::of(NodeId::NONE);
        bad.ttl = 0;
        bad.windows[1] = 1000;
        let faults = bad.faults();
        assert_eq!(faults.len(), 3);
        assert!(faults.iter().any(|fault| fault.contains(" 131424 bytes")), "{faults:?}");
    }
}
