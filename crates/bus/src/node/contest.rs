//! Two connections that claim to be the same node: the existing one stays, if it is alive.
//!
//! It is pinged, and has a short time to answer. A running process answers, and the newcomer is
//! refused. A host that has died does not, and the newcomer, usually the same node come back, takes
//! its place.

use super::Node;
use crate::fault::Reason;
use crate::node::Contest;
use crate::peer::{Identity, PeerKey};
use keyway_base::Time;
use std::time::Duration;

/// Time for the existing peer to answer. A longer time keeps out a node whose old connection is
/// dead and not known to be. A shorter one takes a slow node for dead.
const ANSWER: Duration = Duration::from_secs(2);

impl Node {
    /// Asks the existing peer whether it is alive. The newcomer waits.
    pub(super) fn begin_contest(
        &mut self,
        incumbent: PeerKey,
        newcomer: PeerKey,
        identity: Identity,
        now: Time,
    ) -> Result<(), Reason> {
        let is_asked = self.contests.iter().any(|contest| contest.incumbent == incumbent);
        let Some(peer) = self.peers.get_mut(incumbent).filter(|_| !is_asked) else {
            return Err(Reason::IdInUse);
        };
        peer.ask_alive();
        self.mark(incumbent);
        // A dialler waits longer for an answer than this. That the newcomer was slow does not
        // shorten the existing peer's time.
        let until = now + ANSWER.min(self.settings.handshake / 2);
        if let Some(newcomer) = self.peers.get_mut(newcomer) {
            newcomer.is_contested = true;
        }
        self.wake_at(until);
        self.contests.push(Contest { incumbent, newcomer, identity, asked_at: now, until });
        Ok(())
    }

    /// Decides the contests that can be decided.
    pub(super) fn decide_contests(&mut self, now: Time) {
        for contest in std::mem::take(&mut self.contests) {
            let Contest { incumbent, newcomer, ref identity, asked_at, until } = contest;
            if self.peers.get(newcomer).is_none() {
                continue;
            }
            let has_answered = self
                .peers
                .get(incumbent)
                .filter(|peer| !peer.is_leaving)
                .map(|peer| peer.answered_at >= asked_at);
            match has_answered {
                Some(true) => self.refuse_known(newcomer, identity.id, Reason::IdInUse, now),
                Some(false) if now < until => {
                    self.wake_at(until);
                    self.contests.push(contest);
                }
                Some(false) | None => {
                    let holder = self.by_id.get(&identity.id).copied();
                    if holder.is_some_and(|holder| holder != incumbent) {
                        // A connection that was dialled from here has taken that place.
                        self.refuse_known(newcomer, identity.id, Reason::IdInUse, now);
                        continue;
                    }
                    self.close(incumbent, Reason::Replaced, now);
                    self.admit(newcomer, contest.identity, now);
                }
            }
        }
    }

    /// Refuses a peer that has proved its id.
    pub(super) fn refuse_known(
        &mut self,
        key: PeerKey,
        id: crate::NodeId,
        reason: Reason,
        now: Time,
    ) {
        if let Some(peer) = self.peers.get_mut(key) {
            peer.proved_id = id;
        }
        self.close(key, reason, now);
    }
}
