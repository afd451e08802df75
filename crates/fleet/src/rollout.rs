//! Rollouts: a document that a share of the members serves by first.
//!
//! ```text
//!   apply --share ─► Watching ◄─► Paused
//!                       │            │
//!                       └──────┬─────┘
//!                              ▼
//!                  Ended: went on or went back
//! ```
//! A rollout is one key of the coordinator, so another leader carries it on. Its document has the
//! next revision, and so has the document of its end: a member never takes an older one.

use crate::limits::{MEASURE_EVERY_MAX, MEASURE_EVERY_MIN, NAME_LEN_MAX, WHY_LEN_MAX};
use crate::report::cut;
use keyway_bus::NodeId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A share of the members. The id of a member alone decides whether the share includes it, so all
/// nodes agree without a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    salt: u64,
    bound: u64,
}

impl Share {
    /// Chooses `percent` of these members, but at least one, and not all. Returns the share and the
    /// number of chosen members; `None` if there are fewer than two.
    pub fn choose(salt: u64, percent: u8, members: &[NodeId]) -> Option<(Share, u64)> {
        let mut ranks: Vec<u64> = members.iter().map(|id| rank(*id, salt)).collect();
        ranks.sort_unstable();
        let wanted = ranks.len().saturating_mul(usize::from(percent)).div_ceil(100);
        let wanted = wanted.clamp(1, ranks.len().saturating_sub(1).max(1));
        if ranks.len() < 2 {
            return None;
        }
        let bound = *ranks.get(wanted - 1)?;
        Some((Share { salt, bound }, wanted as u64))
    }

    /// Returns whether the share includes a member.
    pub fn includes(&self, id: NodeId) -> bool {
        rank(id, self.salt) <= self.bound
    }
}

/// Returns a number that is as good as drawn for each pair: the finalizer of SplitMix64.
fn rank(id: NodeId, salt: u64) -> u64 {
    let mut z = id.0 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The way in which a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All members got its document.
    WentOn,
    /// All members got the document from before.
    WentBack,
}

/// The state of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RolloutState {
    /// The leader compares the share with the rest, and decides.
    Watching,
    /// The leader decides nothing.
    Paused,
    /// It is over.
    Ended {
        /// How.
        outcome: Outcome,
        /// The revision of the document that all members got.
        end: u64,
        /// The reason, for people.
        why: String,
    },
}

/// A rollout, as the coordinator has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The revision of its document.
    pub revision: u64,
    /// The revision of the document that all other members serve by.
    pub base: u64,
    /// The members that get the document first.
    pub share: Share,
    /// The part of the members that an operator has asked for, in percent.
    pub percent: u8,
    /// The number of members that were chosen.
    pub chosen: u64,
    /// The time for which the leader watches before it goes on, in seconds.
    pub watch_seconds: u64,
    /// When it began, in seconds since 1970.
    pub at: u64,
    /// The operator, as far as it is known.
    pub by: String,
    /// Its state.
    #[serde(flatten)]
    pub state: RolloutState,
}

impl Rollout {
    /// Reads the coordinator's value.
    pub fn decode(value: &[u8]) -> Option<Rollout> {
        let mut rollout: Rollout = serde_json::from_slice(value).ok()?;
        rollout.by = cut(&rollout.by, NAME_LEN_MAX);
        Some(rollout)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns whether it is over.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, RolloutState::Ended { .. })
    }

    /// Returns the time for which the leader watches.
    pub fn watch(&self) -> Duration {
        Duration::from_secs(self.watch_seconds)
    }

    /// Returns the time between two measures of a member.
    pub(crate) fn measure_every(&self) -> Duration {
        (self.watch() / 10).clamp(MEASURE_EVERY_MIN, MEASURE_EVERY_MAX)
    }

    /// Returns the revision that a member is to serve by.
    pub(crate) fn revision_of(&self, id: NodeId) -> u64 {
        if self.share.includes(id) { self.revision } else { self.base }
    }

    pub(crate) fn ended(&self, outcome: Outcome, end: u64, why: &str) -> Rollout {
        let why = cut(why, WHY_LEN_MAX);
        Rollout { state: RolloutState::Ended { outcome, end, why }, ..self.clone() }
    }
}

/// The requests of a member since a rollout began, or since the member serves by its document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The revision of the rollout.
    pub rollout: u64,
    /// The revision of the document that the member serves by; 0 if it has none.
    pub revision: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Requests that the member has answered with an error of its own, as when a server is away.
    pub errors: u64,
    /// The latency that 99 % of the requests did not exceed, in microseconds; 0 without requests.
    pub p99_micros: u64,
}

/// The sum of several members.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Members on the bus.
    pub members: u64,
    /// The members that serve by the document that is meant for them.
    pub serving: u64,
    /// Their requests.
    pub requests: u64,
    /// Their errors.
    pub errors: u64,
    /// Their p99 in microseconds: the mean, by their requests.
    pub p99_micros: f64,
}

impl Tally {
    /// Adds a member that serves by the right document.
    pub(crate) fn add(&mut self, measured: &Measured) {
        let (before, more) = (self.requests as f64, measured.requests as f64);
        if before + more > 0.0 {
            let sum = self.p99_micros * before + measured.p99_micros as f64 * more;
            self.p99_micros = sum / (before + more);
        }
        self.requests = self.requests.saturating_add(measured.requests);
        self.errors = self.errors.saturating_add(measured.errors);
    }

    /// Returns the part of the requests that failed, 0 to 1.
    pub fn error_rate(&self) -> f64 {
        match self.requests {
            0 => 0.0,
            requests => self.errors.min(requests) as f64 / requests as f64,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { requests, p99_micros, .. } = self;
        let (percent, millis) = (100.0 * self.error_rate(), p99_micros / 1000.0);
        write!(f, "{percent:.2} % of {requests} requests failed, p99 {millis:.3} ms")
    }
}

/// The next step of a rollout that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn(String),
    GoBack(String),
    /// Nothing yet, for this reason.
    Wait(String),
}

pub(crate) mod judge {
    //! The decision of a rollout, from its figures alone.

    use super::{Rollout, Tally, Verdict};
    use crate::limits::{
        ERROR_RATE_FACTOR, ERROR_RATE_MORE, ERRORS_MIN, P99_FACTOR, P99_MORE_MICROS, REQUESTS_MIN,
    };

    /// Returns whether the share fails more often than the rest.
    fn fails_more(share: &Tally, rest: &Tally) -> bool {
        let bound = rest.error_rate() * ERROR_RATE_FACTOR + ERROR_RATE_MORE;
        share.errors >= ERRORS_MIN && share.error_rate() > bound
    }

    /// Returns whether the share is slower than the rest.
    fn is_slower(share: &Tally, rest: &Tally) -> bool {
        rest.requests >= REQUESTS_MIN
            && share.p99_micros > rest.p99_micros * P99_FACTOR + P99_MORE_MICROS
    }

    /// Decides. `refused` is the first refusal of a member of the share; `is_over` says whether the
    /// time of the watch has passed.
    pub fn decide(
        rollout: &Rollout,
        (share, rest): (&Tally, &Tally),
        refused: Option<String>,
        is_over: bool,
    ) -> Verdict {
        let compared = || format!("the share: {share}; the rest: {rest}");
        if let Some(refused) = refused {
            return Verdict::GoBack(refused);
        }
        if fails_more(share, rest) {
            return Verdict::GoBack(format!("more requests fail: {}", compared()));
        }
        if !is_over {
            return Verdict::Wait("the share is watched".to_owned());
        }
        if share.serving.saturating_mul(2) < rollout.chosen.max(1) {
            let (serving, chosen) = (share.serving, rollout.chosen);
            return Verdict::GoBack(format!("{serving} of {chosen} members serve by it"));
        }
        if share.requests < REQUESTS_MIN {
            return Verdict::Wait(format!(
                "the share has had {} requests; {REQUESTS_MIN} are needed to go on",
                share.requests
            ));
        }
        match is_slower(share, rest) {
            true => Verdict::GoBack(format!("requests take longer: {}", compared())),
            false => Verdict::GoOn(compared()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: u64) -> Vec<NodeId> {
        (1..=count).map(|nth| NodeId::of(1, 3, 0, nth).unwrap_or_default()).collect()
    }

    #[test]
    fn a_share_has_at_least_one_member_and_never_all() {
        assert_eq!(Share::choose(7, 10, &ids(1)), None);
        for count in 2..60 {
            for percent in [1, 10, 33, 50, 99] {
                let members = ids(count);
                let (share, chosen) = Share::choose(count * 31, percent, &members).expect("two");
                let found = members.iter().filter(|id| share.includes(**id)).count() as u64;
                assert_eq!(found, chosen);
                assert!(chosen >= 1 && chosen < count);
                let wanted = (count * u64::from(percent)).div_ceil(100);
                assert_eq!(chosen, wanted.clamp(1, count - 1));
            }
        }
    }

    fn tally(requests: u64, errors: u64, p99_micros: u64) -> Tally {
        let mut tally = Tally { members: 1, serving: 1, ..Tally::default() };
        tally.add(&Measured { requests, errors, p99_micros, ..Measured::default() });
        tally
    }

    fn verdict(share: Tally, rest: Tally, is_over: bool) -> Verdict {
        let members = ids(10);
        let (chosen_share, chosen) = Share::choose(1, 10, &members).expect("ten");
        let rollout = Rollout {
            revision: 2,
            base: 1,
            share: chosen_share,
            percent: 10,
            chosen,
            watch_seconds: 60,
            at: 0,
            by: String::new(),
            state: RolloutState::Watching,
        };
        judge::decide(&rollout, (&share, &rest), None, is_over)
    }

    #[test]
    fn errors_of_the_share_alone_go_back_at_once() {
        let failing = verdict(tally(50, 20, 900), tally(5000, 3, 900), false);
        assert!(matches!(failing, Verdict::GoBack(_)), "{failing:?}");
        let both = verdict(tally(50, 20, 900), tally(5000, 2000, 900), false);
        assert!(matches!(both, Verdict::Wait(_)), "{both:?}");
        let few = verdict(tally(5000, 9, 900), tally(5000, 0, 900), true);
        assert!(matches!(few, Verdict::GoOn(_)), "{few:?}");
    }

    #[test]
    fn a_slower_share_goes_back_at_the_end() {
        let slow = (tally(5000, 0, 20_000), tally(5000, 0, 900));
        assert!(matches!(verdict(slow.0, slow.1, false), Verdict::Wait(_)));
        assert!(matches!(verdict(slow.0, slow.1, true), Verdict::GoBack(_)));
        assert!(matches!(verdict(slow.0, Tally::default(), true), Verdict::GoOn(_)));
    }

    #[test]
    fn nothing_goes_on_without_requests_or_members() {
        let quiet = verdict(tally(99, 0, 900), tally(5000, 0, 900), true);
        assert!(matches!(quiet, Verdict::Wait(_)), "{quiet:?}");
        let gone = verdict(Tally::default(), tally(5000, 0, 900), true);
        assert!(matches!(gone, Verdict::GoBack(_)), "{gone:?}");
    }
}
