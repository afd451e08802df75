//! The laws of rollouts, looked at from outside: at the coordinator and at the members.

use super::FleetReport;
use super::engine::Engine;
use super::people::is_sick;
use keyway_bus::NodeId;
use keyway_fleet::{Outcome, Published, Rollout, RolloutState, Share};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that was seen of rollouts.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    /// The rollout that the coordinator had last.
    seen: Option<Rollout>,
    /// The share of each document that was rolled out.
    shares: BTreeMap<String, Share>,
    /// Documents that were published for all.
    for_all: BTreeSet<String>,
}

impl Rollouts {
    pub fn note_published(&mut self, published: &Published) {
        self.for_all.insert(published.document.text.to_string());
        if let Some(rollout) = &published.rollout {
            self.shares.insert(rollout.document.text.to_string(), rollout.share);
        }
    }

    /// Returns whether a member may serve by a document: only the share may before its end.
    pub fn may_serve(&self, id: NodeId, text: &str) -> bool {
        let is_in = |share: &Share| share.includes(id);
        text.is_empty() || self.for_all.contains(text) || self.shares.get(text).is_some_and(is_in)
    }

    /// Looks at the coordinator after a transaction.
    ///
    /// # Errors
    /// Returns the law that was broken.
    pub fn look(&mut self, engine: &Engine, report: &mut FleetReport) -> Result<(), String> {
        let now = engine.value("rollout").and_then(Rollout::decode);
        let before = std::mem::replace(&mut self.seen, now.clone());
        let Some(now) = now else {
            return match before {
                Some(_) => Err("a rollout is lost".to_owned()),
                None => Ok(()),
            };
        };
        if before.as_ref() == Some(&now) {
            return Ok(());
        }
        let is_same = before.as_ref().is_some_and(|before| before.revision == now.revision);
        if before.as_ref().is_some_and(|before| before.has_ended() == is_same) {
            let law = if is_same { "an ended rollout changes" } else { "a rollout never ended" };
            return Err(law.to_owned());
        }
        report.rollouts += u64::from(!is_same);
        let RolloutState::Ended { outcome, end, why } = &now.state else { return Ok(()) };
        let (on, back) = (*outcome == Outcome::WentOn, *outcome == Outcome::WentBack);
        report.went_on += u64::from(on);
        report.went_back += u64::from(back);
        let current = engine.value("document").and_then(|it| std::str::from_utf8(it).ok());
        if current != Some(end.to_string().as_str()) || *end <= now.revision {
            return Err(format!("a rollout ended with {end}, and {current:?} is current"));
        }
        let text = |revision: u64| {
            let value = engine.value(&format!("documents/{revision:020}")).unwrap_or_default();
            let at = value.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            String::from_utf8_lossy(value.get(at..).unwrap_or_default()).into_owned()
        };
        let from = text(if on { now.revision } else { now.base });
        if text(*end) != from {
            return Err(format!("a rollout ended with another document: {:?}", text(*end)));
        }
        let harms = from.starts_with("# bad") || (is_sick(&from) && !is_sick(&text(now.base)));
        match on && harms && !why.starts_with("finished") {
            true => Err(format!("{from:?} went on by itself: {why}")),
            false => Ok(()),
        }
    }
}
