use keyway_base::Time;
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// After this time one more login may fail.
const EVERY: Duration = Duration::from_secs(1);

/// Number of sets, and of entries in each. Together they are the number of addresses and users that
/// are remembered, with 48 bytes each. With fewer, an attacker with many addresses would evict
/// others sooner.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// Number of wrong passwords that are remembered for each entry. With more, clients with more of
/// them in one entry could go on. Each one is hashed and kept.
const WRONG_MAX: usize = 4;

/// Failed logins, by address and user. Both are used so that someone who tries passwords of one
/// user does not lock out others at the same address. A repeated wrong password is not counted
/// again: nothing is learned from it, and a client with an old password does not lock out those
/// with the right one.
pub(crate) struct Attempts {
    /// How many may fail one after the other. 0: any number.
    max: u32,
    known: Arc<Known>,
}

/// The failed logins. Changes of users do not affect them.
#[derive(Default)]
struct Known {
    seed: RandomState,
    /// Empty until the first failure.
    places: Mutex<Vec<Place>>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    /// Identifies the address and the user.
    tag: u64,
    /// When all failures would be forgotten, in nanoseconds.
    forgotten: u64,
    /// The hashes of the last wrong passwords.
    wrong: [u64; WRONG_MAX],
}

impl Attempts {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, known: Arc::default() }
    }

    /// Returns the same limit, with the failures that `old` has counted.
    pub(crate) fn following(&self, old: &Attempts) -> Self {
        Self { max: self.max, known: Arc::clone(&old.known) }
    }

    /// Returns whether no login of this user is accepted from this address now.
    pub(crate) fn are_used_up(&self, from: &str, user: &[u8], now: Time) -> bool {
        if self.max == 0 {
            return false;
        }
        let tag = self.tag(from, user);
        let places = self.known.places.lock();
        if places.is_empty() {
            return false;
        }
        let found = set_of(tag).map(|at| &places[at]).find(|place| place.tag == tag);
        let room = EVERY.as_nanos() as u64 * u64::from(self.max - 1);
        found.is_some_and(|place| place.forgotten.saturating_sub(now.0) > room)
    }

    /// Notes a login that has failed with this password.
    pub(crate) fn note(&self, (from, user): (&str, &[u8]), password: &[u8], now: Time) {
        if self.max == 0 {
            return;
        }
        let tag = self.tag(from, user);
        let wrong = self.known.seed.hash_one((tag, password)) | 1;
        let mut places = self.known.places.lock();
        if places.is_empty() {
            places.resize(SETS * WAYS, Place::default());
        }
        let of_tag = set_of(tag).find(|&at| places[at].tag == tag);
        let place = of_tag.or_else(|| set_of(tag).min_by_key(|&at| places[at].forgotten));
        let Some(at) = place else { return };
        let place = &mut places[at];
        if place.tag != tag {
            *place = Place { tag, ..Place::default() };
        }
        if !place.wrong.contains(&wrong) {
            place.wrong.rotate_right(1);
            place.wrong[0] = wrong;
            place.forgotten = place.forgotten.max(now.0) + EVERY.as_nanos() as u64;
        }
    }

    /// Returns a hash that distinguishes addresses.
    pub(crate) fn origin(&self, from: &str) -> u64 {
        self.known.seed.hash_one(origin(from))
    }

    fn tag(&self, from: &str, user: &[u8]) -> u64 {
        self.known.seed.hash_one((origin(from), user)) | 1
    }
}

fn set_of(tag: u64) -> std::ops::Range<usize> {
    let set = (tag >> 1) as usize % SETS * WAYS;
    set..set + WAYS
}

/// Returns an address without the parts that the same machine can change for each attempt: its port
/// and, for IPv6, the lower half.
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
            if !attempts.are_used_up("10.0.0.1:5", b"a", at(millis)) {
                attempts.note(("10.0.0.1:6", b"a"), &millis.to_le_bytes(), at(millis));
                failed += 1;
            }
        }
        assert_eq!(failed, 3 + 9);
        assert!(!attempts.are_used_up("10.0.0.1:5", b"b", at(9_990)), "of another user");
        assert!(!attempts.are_used_up("10.0.0.2:5", b"a", at(9_990)), "from elsewhere");
        assert!(!attempts.are_used_up("10.0.0.1:5", b"a", at(20_000)), "forgotten");
    }

    #[test]
    fn clients_that_have_old_passwords_keep_nobody_out() {
        let attempts = Attempts::new(6);
        for millis in (0..60_000).step_by(10) {
            let old = [b"one", b"two", b"six", b"ten"][millis as usize / 10 % WRONG_MAX];
            attempts.note(("10.0.0.1:6", b"a"), old, at(millis));
            assert!(!attempts.are_used_up("10.0.0.1:5", b"a", at(millis)));
        }
        // The same password of another user, or from another address, is separate.
        attempts.note(("10.0.0.1:6", b"b"), b"one", at(0));
        let places = attempts.known.places.lock();
        let known: Vec<u64> = places.iter().flat_map(|place| place.wrong).collect();
        let distinct: std::collections::BTreeSet<u64> = known.iter().copied().collect();
        assert_eq!(distinct.len(), 1 + WRONG_MAX + 1);
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
            attempts.note((&format!("{}:1", std::net::Ipv4Addr::from(n)), b"a"), b"", at(0));
        }
        assert_eq!(attempts.known.places.lock().len(), SETS * WAYS);
        attempts.note(("99.9.9.9:1", b"a"), b"", at(1));
        assert!(attempts.are_used_up("99.9.9.9:1", b"a", at(1)));
        let is_taken = |place: &Place| place.tag != 0;
        assert!(attempts.known.places.lock().iter().all(is_taken), "every place is used");
    }

    #[test]
    fn a_login_may_fail_again_exactly_one_second_later() {
        let attempts = Attempts::new(2);
        (0..2u8).for_each(|n| attempts.note(("1.1.1.1:1", b"a"), &[n], at(0)));
        let second = at(0).0 + EVERY.as_nanos() as u64;
        assert!(attempts.are_used_up("1.1.1.1:1", b"a", Time(second - 1)));
        assert!(!attempts.are_used_up("1.1.1.1:1", b"a", Time(second)));
    }

    #[test]
    fn who_comes_after_goes_on_counting_by_its_own_bound() {
        let attempts = Attempts::new(3);
        (0..3u8).for_each(|n| attempts.note(("1.1.1.1:1", b"a"), &[n], at(0)));
        let next = Attempts::new(2).following(&attempts);
        assert!(next.are_used_up("1.1.1.1:1", b"a", at(0)));
        assert!(!Attempts::new(9).following(&next).are_used_up("1.1.1.1:1", b"a", at(0)));
        next.note(("1.1.1.1:1", b"a"), b"more", at(0));
        assert!(attempts.are_used_up("1.1.1.1:1", b"a", at(900)), "by both at once");
    }

    #[test]
    fn none_is_used_up_where_there_is_no_bound() {
        let attempts = Attempts::new(0);
        (0..100u8).for_each(|n| attempts.note(("1.1.1.1:1", b"a"), &[n], at(0)));
        assert!(!attempts.are_used_up("1.1.1.1:1", b"a", at(0)));
    }
}
