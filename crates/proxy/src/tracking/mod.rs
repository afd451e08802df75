//! Client-side caching: what a session with tracking has asked for, and the messages about it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `command` | `CLIENT TRACKING`, `CACHING`, `GETREDIR` and `TRACKINGINFO` |
//! | `way` | the links that the servers of a pool tell it on |
//! | `wire` | what a client is told when keys have changed |
//!
//! Changes are noticed elsewhere: by the servers of a sharded pool, or by the embedded store. Texts
//! and shapes are those of redis-server 7.0.

mod command;
mod tracked_links;
mod wire;

pub use command::{Change, caching, parse, write_info, write_redirection};
pub use tracked_links::{Held, TrackedLinks, announcement};
pub use wire::{
    CHANNEL, is_invalidation, write_broken, write_everything, write_invalidation, write_redirected,
};

use std::collections::BTreeSet;

/// The options of a client whose keys are tracked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// True if it is told of every key with one of `prefixes`, whether it has read it or not.
    pub bcast: bool,
    /// True if only keys read right after `CLIENT CACHING YES` are tracked.
    pub optin: bool,
    /// True if keys read right after `CLIENT CACHING NO` are not tracked.
    pub optout: bool,
    /// True if it is not told of its own changes.
    pub noloop: bool,
    /// With `bcast`, the prefixes of keys. The empty one matches every key. There is at least one
    /// with `bcast`, and none without.
    pub prefixes: BTreeSet<Vec<u8>>,
    /// The client that is told in its place.
    pub redirect: Option<u64>,
    /// True if that client has left.
    pub is_broken: bool,
    /// True if `CLIENT CACHING` was sent, and its command, or transaction, has not arrived yet.
    pub caching: bool,
    /// The links of a client of a sharded pool.
    pub links: Option<Box<TrackedLinks>>,
    /// Pushes that it gets once earlier replies have left.
    pub held: Held,
}

impl Tracking {
    /// Takes the effect of `CLIENT CACHING` for the request that begins now. It must be called for
    /// every request that is no subcommand of `CLIENT`, unless a transaction is open, to all of
    /// which it applies.
    ///
    /// Returns the word, `YES` or `NO`, if there was one.
    pub fn take_caching(&mut self) -> Option<&'static str> {
        let word = self.caching_word();
        self.caching = false;
        word
    }

    /// Returns the word of `CLIENT CACHING` for the next request.
    pub fn caching_word(&self) -> Option<&'static str> {
        match (self.caching, self.optin, self.optout) {
            (true, true, _) => Some("YES"),
            (true, _, true) => Some("NO"),
            _ => None,
        }
    }

    /// Returns whether servers are asked for the same, whichever client is told.
    pub fn is_same_mode(&self, other: &Tracking) -> bool {
        let modes = |it: &Tracking| (it.bcast, it.optin, it.optout, it.noloop);
        modes(self) == modes(other) && self.prefixes == other.prefixes
    }

    /// Returns whether the keys that the next request reads will be tracked, without `bcast`.
    pub fn tracks_next(&self) -> bool {
        !self.bcast && if self.optin { self.caching } else { !(self.optout && self.caching) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_next_request_is_said_once() {
        let mut tracking = Tracking { optin: true, ..Tracking::default() };
        assert!(!tracking.tracks_next() && tracking.take_caching().is_none());
        tracking.caching = true;
        assert!(tracking.tracks_next());
        assert_eq!(tracking.take_caching(), Some("YES"));
        assert!(!tracking.tracks_next() && tracking.take_caching().is_none());
        let mut tracking = Tracking { optout: true, caching: true, ..Tracking::default() };
        assert!(!tracking.tracks_next());
        assert_eq!(tracking.take_caching(), Some("NO"));
        assert!(tracking.tracks_next());
    }

    #[test]
    fn with_prefixes_nothing_that_is_read_is_remembered() {
        let tracking = Tracking { bcast: true, ..Tracking::default() };
        assert!(!tracking.tracks_next());
        assert!(Tracking::default().tracks_next());
    }
}
