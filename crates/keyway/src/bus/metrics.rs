//! The HTTP endpoints of a node of the bus. A scrape asks the node's thread for its figures;
//! without scrapes the node does no work for them.

use keyway_bus::{LinkKind, Node, Reason};
use keyway_control::{AdminState, PoolStatus, ScriptKill};
use keyway_metrics::{BusFigures, BusLink, BusMetrics};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Longest wait of a scrape for the node's thread. The thread is busy at most for the time that a
/// message of 64 MiB takes.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const KINDS: [(LinkKind, &str); 5] = [
    (LinkKind::Upstream, "upstream"),
    (LinkKind::Standby, "standby"),
    (LinkKind::Below, "below"),
    (LinkKind::Sibling, "sibling"),
    (LinkKind::Stranger, "stranger"),
];

/// Failures counted by reason, as events report them.
#[derive(Default)]
pub struct Failures {
    /// Failures of messages.
    pub messages: BTreeMap<Reason, u64>,
    /// Connections that could not be established.
    pub refused: BTreeMap<Reason, u64>,
    /// Connections that ended.
    pub lost: BTreeMap<Reason, u64>,
}

/// Counts one failure.
pub fn note(counts: &mut BTreeMap<Reason, u64>, reason: Reason) {
    *counts.entry(reason).or_default() += 1;
}

/// Returns the metric label of a reason: `link_lost` for `LinkLost`.
fn label(reason: Reason) -> String {
    let mut label = String::new();
    for (at, letter) in format!("{reason:?}").char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            label.push('_');
        }
        label.push(letter.to_ascii_lowercase());
    }
    label
}

/// Returns the counts by reason. Every reason of the kind that `is_one` selects is included from
/// the start, also with zero.
fn by_reason(counts: &BTreeMap<Reason, u64>, is_one: impl Fn(u16) -> bool) -> Vec<(String, u64)> {
    let all =
        Reason::ALL.iter().filter(|reason| is_one(**reason as u16) || counts.contains_key(reason));
    all.map(|reason| (label(*reason), counts.get(reason).copied().unwrap_or_default())).collect()
}

/// Returns the figures of a node. Called by the node's thread.
pub fn figures(node: &Node, failures: &Failures) -> BusFigures {
    let mut links = KINDS.map(|(_, kind)| BusLink { kind, ..BusLink::default() });
    for peer in node.peers() {
        let at = KINDS.iter().position(|(kind, _)| *kind == peer.kind).unwrap_or_default();
        links[at].count += 1;
        links[at].queued_bytes += peer.queued_len as u64;
    }
    let (counts, traffic) = (node.counts(), node.traffic());
    BusFigures {
        links: links.to_vec(),
        below_nodes: node.nodes_below().count() as u64,
        is_rooted: !node.is_cut_off(),
        upstream_changes: counts.upstream_changes,
        sent_messages: counts.sent,
        delivered_messages: counts.delivered,
        relayed_frames: counts.relayed,
        full_pushes: counts.pushes_full,
        delta_pushes: counts.pushes_delta,
        received_bytes: traffic.bytes_in,
        sent_bytes: traffic.bytes_out,
        inbox_bytes: node.inbox_len() as u64,
        refused_messages: counts.refused,
        untold_failures: counts.untold_failures,
        failed_messages: by_reason(&failures.messages, |code| code < 32),
        refused_links: by_reason(&failures.refused, |code| code >= 32),
        lost_links: by_reason(&failures.lost, |code| code >= 64),
    }
}

/// The admin listener's side of the questions to the node's thread.
pub struct Asking {
    metrics: Arc<BusMetrics>,
    asked: Mutex<Sender<Sender<BusFigures>>>,
    wake: Arc<OwnedFd>,
    state: Arc<State>,
}

/// State of the node that is known without asking its thread.
pub struct State {
    /// True if it is leaving.
    pub is_leaving: AtomicBool,
    /// True if no root is above it.
    pub is_cut_off: AtomicBool,
}

impl State {
    /// Reads the state of a node.
    pub fn of(node: &Node) -> Self {
        let is_cut_off = AtomicBool::new(node.is_cut_off());
        Self { is_leaving: AtomicBool::new(false), is_cut_off }
    }
}

impl Asking {
    /// Creates it, with the channel on which the node's thread receives questions.
    pub fn new(
        metrics: Arc<BusMetrics>,
        wake: Arc<OwnedFd>,
        state: Arc<State>,
    ) -> (Self, Receiver<Sender<BusFigures>>) {
        let (asked, asks) = channel();
        (Self { metrics, asked: Mutex::new(asked), wake, state }, asks)
    }
}

impl AdminState for Asking {
    fn metrics(&self, out: &mut String) {
        let (answer, answered) = channel();
        let is_asked = self.asked.lock().send(answer).is_ok();
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        match answered.recv_timeout(ANSWER_WITHIN) {
            Ok(figures) if is_asked => self.metrics.write_prometheus(&figures, out),
            _ => out.push_str("# the node does not answer\n"),
        }
    }

    fn draining(&self) -> bool {
        self.state.is_leaving.load(Ordering::Relaxed)
    }

    fn not_ready(&self) -> Vec<String> {
        match self.state.is_cut_off.load(Ordering::Relaxed) {
            true => vec!["cut off from the root of the bus".to_owned()],
            false => Vec::new(),
        }
    }

    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    fn restore_backend(&self, _pool: &str, _backend: &str) -> Result<bool, String> {
        Err("a node of the bus has no backends".to_owned())
    }

    fn kill_script(&self, _pool: &str) -> Result<ScriptKill, String> {
        Err("a node of the bus has no store".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;
    use keyway_bus::{NodeId, Settings, Upstream};

    #[test]
    fn a_node_that_wants_an_upstream_is_not_ready_before_anything_was_tried() {
        let mut settings = Settings::of(NodeId(2));
        let is_ready = |settings: &Settings| {
            let node = Node::new(settings.clone(), 1, Time(0));
            let metrics = Arc::new(BusMetrics::new("0", 0));
            let (wake, _) = std::os::unix::net::UnixStream::pair().unwrap();
            let state = Arc::new(State::of(&node));
            Asking::new(metrics, Arc::new(wake.into()), state).0.not_ready().is_empty()
        };
        assert!(is_ready(&settings), "a root");
        settings.upstreams =
            vec![Upstream { id: NodeId(1), urls: vec!["mem://nobody".parse().unwrap()] }];
        assert!(!is_ready(&settings));
    }
}
