//! Commands that a node answers itself.

use super::Node;
use crate::peer::Identity;
use crate::wire::Writer;

impl Node {
    /// Returns the texts that answer a command; `None` if there is no such command.
    pub(super) fn builtin(&self, args: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
        let items = match args[0].as_slice() {
            b"bus.ping" => vec![b"pong".to_vec()],
            b"bus.who" => vec![self.identity_bytes()],
            b"bus.tree" => return Some(self.tree_lines()),
            b"bus.stats" => return Some(self.stats_lines()),
            b"bus.topics" => return Some(self.topic_lines()),
            _ => return None,
        };
        Some(items)
    }

    fn identity_bytes(&self) -> Vec<u8> {
        let identity = Identity {
            id: self.id,
            incarnation: self.settings.incarnation,
            place: self.settings.place,
            labels: self.settings.labels.clone(),
            urls: self.settings.urls.clone(),
        };
        let mut bytes = Vec::new();
        identity.write(&mut Writer::new(&mut bytes));
        bytes
    }

    /// Returns `id upstream labels` for this node and each below.
    fn tree_lines(&self) -> Vec<Vec<u8>> {
        let upstream = self.upstream().unwrap_or_default();
        let own = format!("{} {} {}", self.id, upstream, self.settings.labels);
        let below = self
            .below
            .iter()
            .map(|(id, known)| format!("{} {} {}", id, known.parent, known.labels()).into_bytes());
        std::iter::once(own.into_bytes()).chain(below).collect()
    }

    /// Returns `name value` for each count, then `peer id rtt_us queued bytes_in bytes_out`.
    fn stats_lines(&self) -> Vec<Vec<u8>> {
        let counts = self.counts;
        let mut lines: Vec<String> = [
            ("sent", counts.sent),
            ("delivered", counts.delivered),
            ("relayed", counts.relayed),
            ("refused", counts.refused),
            ("failed", counts.failed),
            ("untold_failures", counts.untold_failures),
            ("late_answers", counts.late_answers),
            ("nodes_below", self.below.len() as u64),
            ("nodes_over", counts.nodes_over),
            ("nodes_below_bytes", self.below.memory_len() as u64),
            ("ids_twice", counts.ids_twice),
            ("unproven", counts.unproven),
            ("stalled", counts.stalled),
            ("strangers_refused", counts.strangers_refused),
            ("upstream_changes", counts.upstream_changes),
            ("pushes_full", counts.pushes_full),
            ("pushes_delta", counts.pushes_delta),
            ("parked_failures", self.parked.len() as u64),
        ]
        .map(|(name, value)| format!("{name} {value}"))
        .to_vec();
        for view in self.peers() {
            let traffic = view.traffic;
            lines.push(format!(
                "peer {} {} {} {} {}",
                view.id,
                traffic.rtt_smooth_ns / 1000,
                view.queued_len,
                traffic.bytes_in,
                traffic.bytes_out
            ));
        }
        lines.into_iter().map(String::into_bytes).collect()
    }

    /// Returns `topic epoch version bytes publisher`, and for each topic of this node `lags node
    /// epoch version` for each node that has not applied it.
    fn topic_lines(&self) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for (name, topic) in self.topics.map.iter().filter(|(_, topic)| topic.gone.is_none()) {
            let stamp = topic.stamp;
            lines.push(format!(
                "topic {name} {} {} {} {}",
                stamp.epoch,
                stamp.version,
                topic.body.len(),
                topic.publisher
            ));
            for (id, applied) in self.laggards(name) {
                let stamp = applied.map(|applied| applied.stamp).unwrap_or_default();
                lines.push(format!("lags {id} {} {}", stamp.epoch, stamp.version));
            }
        }
        lines.into_iter().map(String::into_bytes).collect()
    }
}
