//! Two connections that say they are the same node: who is there stays, if it is alive.
//!
//! It is asked, and has a short time to answer. A process that runs does, and the newcomer is refused; a host
//! that died does not, and the newcomer, mostly the same node come back, takes the place.

use super::Node;
use crate::fault::Reason;
use crate::node::Contest;
use crate::peer::{Identity, PeerKey};
use keyway_base::Time;
use std::time::Duration;

/// How long who is there has to answer. Longer keeps a node out whose old connection is dead and does not
/// know it; shorter takes a node that is slow for dead.
const ANSWER: Duration = Duration::from_secs(2);

impl Node {
    /// Asks who is there whether it is alive; the newcomer waits.
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
        // Who dials waits for less than it does for an answer. That the newcomer has taken its time is no reason to
        // give who is there less.
        let until = now + ANSWER.min(self.settings.handshake / 2);
        if let Some(newcomer) = self.peers.get_mut(newcomer) {
            newcomer.is_contested = true;
        }
        self.wake_at(until);
        self.contests.push(Contest { incumbent, newcomer, identity, asked_at: now, until });
        Ok(())
    }

    /// Decides what can be decided.
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

    /// Refuses somebody who has proved who it is.
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
