//! Client-side caching: what a session that is told of changes has asked for,
//! and what is said about it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `command` | `CLIENT TRACKING`, `CACHING`, `GETREDIR` and `TRACKINGINFO` |
//! | `way` | the links that the servers of a pool tell it on |
//! | `wire` | what a client is told when keys have changed |
//!
//! Who changes what is seen elsewhere: by the servers of a sharded pool, or by
//! the embedded store. Words and shapes are those of redis-server 7.0.

mod command;
mod tracked_links;
mod wire;

pub use command::{Change, caching, parse, write_info, write_redirection};
pub use tracked_links::{Held, TrackedLinks, announcement};
pub use wire::{
    CHANNEL, is_invalidation, write_broken, write_everything, write_invalidation, write_redirected,
};

use std::collections::BTreeSet;

/// What a client whose keys are tracked has asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    /// It is told of every key with one of `prefixes`, read or not.
    pub bcast: bool,
    /// Only keys read right behind `CLIENT CACHING YES` are tracked.
    pub optin: bool,
    /// Keys read right behind `CLIENT CACHING NO` are not tracked.
    pub optout: bool,
    /// It is not told of changes of its own.
    pub noloop: bool,
    /// With `bcast`, beginnings of keys; the empty one is every key's. At least
    /// one with `bcast`, none without.
    pub prefixes: BTreeSet<Vec<u8>>,
    /// The client that is told in its place.
    pub redirect: Option<u64>,
    /// That client has left.
    pub is_broken: bool,
    /// `CLIENT CACHING` was said, and its command, or transaction, has not
    /// come yet.
    pub caching: bool,
    /// The links of a client of a sharded pool.
    pub links: Option<Box<TrackedLinks>>,
    /// What it is to be told once earlier replies have left.
    pub held: Held,
}

impl Tracking {
    /// Takes what `CLIENT CACHING` said to the request that begins now. To be
    /// called for every request that is no subcommand of `CLIENT`, unless a
    /// transaction is open, to which all of it applies.
    ///
    /// Returns the word, `YES` or `NO`, if there was one.
    pub fn take_caching(&mut self) -> Option<&'static str> {
        let word = self.caching_word();
        self.caching = false;
        word
    }

    /// What `CLIENT CACHING` has said to the next request.
    pub fn caching_word(&self) -> Option<&'static str> {
        match (self.caching, self.optin, self.optout) {
            (true, true, _) => Some("YES"),
            (true, _, true) => Some("NO"),
            _ => None,
        }
    }

    /// Whether servers are asked for the same, whoever is told.
    pub fn is_same_mode(&self, other: &Tracking) -> bool {
        let modes = |it: &Tracking| (it.bcast, it.optin, it.optout, it.noloop);
        modes(self) == modes(other) && self.prefixes == other.prefixes
    }

    /// Whether the keys that the next request reads are to be tracked, without
    /// `bcast`.
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
