use keyway_base::Time;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// After so long one more login may fail.
const EVERY: Duration = Duration::from_secs(1);

/// Sets of places, and places in each: so many addresses are remembered at once, which
/// take 16 bytes each. Fewer let whoever has many addresses push each other out sooner.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// Logins that have failed, by address and user: both, so that a client with an old
/// password keeps nobody else at the same address out.
pub(crate) struct Attempts {
    /// How many may fail one after the other; 0 for any number.
    max: u32,
    seed: RandomState,
    /// Empty until the first that fails.
    places: Mutex<Vec<Place>>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// Whose it is.
    tag: u64,
    /// When all that failed would be forgotten, in nanoseconds.
    forgotten: u64,
}

impl Attempts {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, seed: RandomState::new(), places: Mutex::default() }
    }

    /// Whether no login of this user is looked at from this address now.
    pub(crate) fn are_used_up(&self, from: &str, user: &str, now: Time) -> bool {
        if self.max == 0 {
            return false;
        }
        let tag = self.tag(from, user);
        let places = self.places.lock();
        if places.is_empty() {
            return false;
        }
        let found = set_of(tag).map(|at| places[at]).find(|place| place.tag == tag);
        let room = EVERY.as_nanos() as u64 * u64::from(self.max - 1);
        found.is_some_and(|place| place.forgotten.saturating_sub(now.0) > room)
    }

    /// Notes one that has failed.
    pub(crate) fn note(&self, from: &str, user: &str, now: Time) {
        if self.max == 0 {
            return;
        }
        let tag = self.tag(from, user);
        let mut places = self.places.lock();
        if places.is_empty() {
            places.resize(SETS * WAYS, Place::default());
        }
        let of_tag = set_of(tag).find(|&at| places[at].tag == tag);
        let place = of_tag.or_else(|| set_of(tag).min_by_key(|&at| places[at].forgotten));
        let Some(at) = place else { return };
        let place = &mut places[at];
        let known = if place.tag == tag { place.forgotten } else { 0 };
        *place = Place { tag, forgotten: known.max(now.0) + EVERY.as_nanos() as u64 };
    }

    fn tag(&self, from: &str, user: &str) -> u64 {
        self.seed.hash_one((origin(from), user)) | 1
    }
}

fn set_of(tag: u64) -> std::ops::Range<usize> {
    let set = (tag >> 1) as usize % SETS * WAYS;
    set..set + WAYS
}

/// Where an address is, without what the same machine can choose anew for each attempt:
/// its port and, of IPv6, the lower half.
fn origin(from: &str) -> String {
    match from.parse::<SocketAddr>().map(|addr| addr.ip().to_canonical()) {
        Ok(IpAddr::V4(ip)) => ip.to_string(),
        Ok(IpAddr::V6(ip)) => format!("{:?}", &ip.segments()[..4]),
        Err(_) => from.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(1_000_000 * (millis + 1_000_000))
    }

    #[test]
    fn so_many_may_fail_at_once_and_one_a_second_after_that() {
        let attempts = Attempts::new(3);
        let mut failed = 0;
        for millis in (0..10_000).step_by(10) {
            if !attempts.are_used_up("10.0.0.1:5", "a", at(millis)) {
                attempts.note("10.0.0.1:6", "a", at(millis));
                failed += 1;
            }
        }
        assert_eq!(failed, 3 + 9);
        assert!(!attempts.are_used_up("10.0.0.1:5", "b", at(9_990)), "of another user");
        assert!(!attempts.are_used_up("10.0.0.2:5", "a", at(9_990)), "from elsewhere");
        assert!(!attempts.are_used_up("10.0.0.1:5", "a", at(20_000)), "forgotten");
    }

    #[test]
    fn neighbours_are_one() {
        assert_eq!(origin("1.2.3.4:5"), origin("[::ffff:1.2.3.4]:9"));
        assert_eq!(origin("[2001:db8::1]:5"), origin("[2001:db8::ff:2]:9"));
        assert_ne!(origin("[2001:db8::1]:5"), origin("[2001:db8:1::1]:5"));
        assert_eq!(origin("/run/k.sock:0"), "/run/k.sock:0");
    }

    #[test]
    fn many_addresses_take_bounded_room() {
        let attempts = Attempts::new(1);
        for n in 0..50_000u32 {
            attempts.note(&format!("{}:1", std::net::Ipv4Addr::from(n)), "a", at(0));
        }
        assert_eq!(attempts.places.lock().len(), SETS * WAYS);
        attempts.note("99.9.9.9:1", "a", at(1));
        assert!(attempts.are_used_up("99.9.9.9:1", "a", at(1)));
    }

    #[test]
    fn none_is_used_up_where_there_is_no_bound() {
        let attempts = Attempts::new(0);
        (0..100).for_each(|_| attempts.note("1.1.1.1:1", "a", at(0)));
        assert!(!attempts.are_used_up("1.1.1.1:1", "a", at(0)));
    }
}
