//! What a node is told at its start.

use crate::frame::{CHANNELS, FRAME_LEN_MAX, MESSAGE_LEN_MAX, TTL_MAX};
use crate::id::{IdRange, NodeId};
use crate::labels::Labels;
use crate::token::Tokens;
use crate::url::{Place, Url};
use std::time::Duration;

/// Addresses that a node announces at most.
pub const URLS_MAX: usize = 4;
/// Upstreams of a node: the primary one and its standby.
pub const UPSTREAMS_MAX: usize = 2;

/// Bytes of a window at least: two frames.
pub const WINDOW_MIN: u32 = 2 * FRAME_LEN_MAX as u32;
/// At most.
pub const WINDOW_MAX: u32 = 64 << 20;
/// Topics at most: what a node has of them is told in one frame.
const TOPICS_MAX: usize = 512;
/// Longest time for a registration.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// A node above this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Who must be there; [`NodeId::NONE`] if that may be anybody who knows the token.
    pub id: NodeId,
    /// Where, tried in this order.
    pub urls: Vec<Url>,
}

/// A connection on which nothing but heartbeats was said for `after` rests: who was dialled pings every
/// `heartbeat`, all its connections together, and who dialled asks where that does not come. Within a host they
/// do so ten times less often. The first word ends that. So a thousand connections at rest cost next to nothing;
/// that a host is dead is meanwhile for the transport to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// From the last word on.
    pub after: Duration,
    /// Between two pings from then on.
    pub heartbeat: Duration,
}

/// What a node is told at its start. [`Settings::of`] has the defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who this is; [`NodeId::NONE`] for a guest, whom its upstream gives an id.
    pub id: NodeId,
    /// What it says of itself.
    pub labels: Labels,
    /// Where others can dial it; at most [`URLS_MAX`].
    pub urls: Vec<Url>,
    /// Where its process runs.
    pub place: Place,
    /// Grows with each start of the node: milliseconds since 1970, shifted left by 20. Sequence numbers
    /// begin here, so those of a node that was started again are not taken for old ones.
    pub incarnation: u64,
    /// The primary upstream and its standby; none for the root.
    pub upstreams: Vec<Upstream>,
    /// Secrets of the bus. None: anybody is let in.
    pub tokens: Tokens,
    /// Who is let in; guests by the id that they are given.
    pub accept: Vec<IdRange>,
    /// Connections at most. Each takes up to its windows and queues of memory.
    pub peers_max: usize,
    /// Nodes below this one at most, of 512 bytes each on average. A child may have as many as it leaves free.
    pub nodes_max: usize,
    /// Nodes that a message of ours may pass.
    pub ttl: u8,
    /// Between two pings. Shorter finds dead hosts sooner and costs a wake-up each.
    pub heartbeat: Duration,
    /// Heartbeats without a word after which a connection is given up.
    pub silent_after: u32,
    /// For a registration, from the connection on; at most [`HANDSHAKE_MAX`]. Longer lets those who say
    /// nothing keep their places for longer.
    pub handshake: Duration,
    /// How long a message in parts may stand still before it is given up and its sender told. Shorter
    /// gives up senders on slow ways.
    pub parts_idle: Duration,
    /// How far apart pings are where nothing else is said: see [`Rest`].
    pub rest: Rest,
    /// For an address to be connected to, and as long again for what listens there to let us in. Longer
    /// keeps a node from its next address, shorter loses far ones.
    pub dial: Duration,
    /// Until an upstream is dialled again: doubled from the first to the second, with jitter.
    pub retry: (Duration, Duration),
    /// How long the primary upstream must be there again before it is gone back to.
    pub prefer_after: Duration,
    /// How long the upstream that is used must say that it is cut off before the other one is used. Shorter
    /// moves everybody below while an upstream changes its own.
    pub cut_after: Duration,
    /// After which a direct connection to a sibling is closed if nothing is sent on it.
    pub direct_idle: Duration,
    /// Bytes that a peer may send ahead, by channel: control, config, data. More is faster over long
    /// ways, and more to be kept.
    pub windows: [u32; CHANNELS],
    /// Bytes that wait for one peer on a channel at most; one message always may.
    pub queue_len_max: usize,
    /// Bytes that wait for all peers at most, with what must be remembered of what was sent and not yet
    /// taken. The bodies of topics, which all queues share, do not count.
    pub queues_len_max: usize,
    /// Bytes of a message at most.
    pub message_len_max: usize,
    /// Bytes of messages that are being put together, of all peers.
    pub assembly_len_max: usize,
    /// Bytes of messages that the user has not taken; then peers get no credit for more.
    pub inbox_len_max: usize,
    /// Messages and commands that wait for an answer at most.
    pub waiting_max: usize,
    /// Topics at most.
    pub topics_max: usize,
    /// Bytes of all topics' bodies, and of what changed in them. Older versions that are being sent may take as
    /// much again.
    pub topics_len_max: usize,
    /// Whether bodies of at least [`crate::COMPRESS_LEN_MIN`] are compressed.
    pub compress: bool,
    /// How long [`crate::Node::leave`] waits for what was sent to be taken.
    pub leave: Duration,
}

impl Settings {
    /// Those of a node of that id, with the defaults.
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

    /// What is wrong with them, for who wrote them.
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
