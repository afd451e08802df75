//! Passwords with slow hashes (Argon2id), and the logins that wait until it is known whether theirs
//! is one of them.
//!
//! ```text
//!  Users::prepare ─► Trials ─► Verifier ─► its thread ─► verdict ─► Users::log_in
//! ```
//! No worker computes such a hash. The work that others can cause is bounded: by the number of
//! waiting logins, for each address, and in time, because the thread pauses for as long as it took
//! to find a password wrong.

use argon2::password_hash::{PasswordHash, PasswordHasher, SaltString};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use keyway_base::Time;
use parking_lot::{Condvar, Mutex};
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Largest memory of one hash, in KiB. More would be in use during every login.
const MEMORY_MAX: u32 = 64 << 10;

/// Largest product of memory and passes. More takes longer than a quarter of a second.
const WORK_MAX: u32 = 256 << 10;

/// Passwords longer than this are wrong without a check.
const PASSWORD_LEN_MAX: usize = 1024;

/// Number of logins that wait, or whose result has not been read yet. With more, clients would give
/// up before their turn.
const TRIALS_MAX: usize = 64;

/// Number of waiting logins of one address, so that others come in between.
const WAITING_OF_ONE_MAX: usize = 4;

/// How long the result of a login is kept for the client that began it.
const KEPT: Duration = Duration::from_secs(30);

/// Number of successful logins that are remembered, so that clients that reconnect are accepted at
/// once.
const RIGHT_MAX: usize = 256;

/// An Argon2id hash.
#[derive(PartialEq)]
pub struct SlowHash {
    params: Params,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

impl SlowHash {
    /// Parses a hash in PHC's format.
    ///
    /// # Errors
    /// Returns what is wrong with it, in words that show nothing of it.
    pub fn parse(text: &str) -> Result<SlowHash, &'static str> {
        const FORM: &str =
            "is no hash of Argon2id in the form $argon2id$v=19$m=…,t=…,p=…$salt$hash";
        let hash = PasswordHash::new(text).map_err(|_| FORM)?;
        if hash.algorithm.as_str() != "argon2id" || hash.version != Some(0x13) {
            return Err(FORM);
        }
        let params = Params::try_from(&hash).map_err(|_| FORM)?;
        let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
        if params.m_cost() > MEMORY_MAX || work > u64::from(WORK_MAX) || params.p_cost() > 4 {
            return Err("takes too long: m at most 65536, m times t 262144, p 4");
        }
        let mut buf = [0; 64];
        let salt = hash.salt.ok_or(FORM)?.decode_b64(&mut buf).map_err(|_| FORM)?.into();
        let hash = hash.hash.ok_or(FORM)?.as_bytes().into();
        Ok(SlowHash { params, salt, hash })
    }

    fn is_of(&self, password: &[u8], memory: &mut Vec<Block>) -> bool {
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        memory.resize(self.params.block_count().max(memory.len()), Block::default());
        let mut out = vec![0; self.hash.len()];
        let done = argon.hash_password_into_with_memory(password, &self.salt, &mut out, memory);
        done.is_ok() && bool::from(out.ct_eq(&self.hash))
    }
}

impl fmt::Debug for SlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlowHash(hidden)")
    }
}

/// Returns the text for a password in a configuration, with a slow hash: 19 MiB, two passes.
/// Returns `None` if it cannot be hashed, for example because of an empty salt.
pub fn slow_text(password: &[u8], salt: &[u8; 16]) -> Option<String> {
    let salt = SaltString::encode_b64(salt).ok()?;
    Argon2::default().hash_password(password, &salt).ok().map(|hash| hash.to_string())
}

const WAITING: u8 = 0;
const WRONG: u8 = 1;
const RIGHT: u8 = 2;

/// The result of a login.
type Verdict = Arc<AtomicU8>;

/// A login whose password must be checked.
pub struct Job {
    hashes: Arc<[SlowHash]>,
    /// True if one of the hashes may be right at all. If not, it takes as long.
    may_be_right: bool,
    password: Vec<u8>,
    verdict: Verdict,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.password.fill(0);
    }
}

impl Job {
    /// Checks whether the password is right, which is slow.
    pub fn work(&self) -> bool {
        let mut memory = Vec::new();
        // All hashes are tried, whichever is right.
        let found = self
            .hashes
            .iter()
            .fold(false, |found, hash| found | hash.is_of(&self.password, &mut memory));
        let is_right = found & self.may_be_right;
        // ORDER: pairs with `Trials::verdict`. It publishes nothing else.
        self.verdict.store(if is_right { RIGHT } else { WRONG }, Ordering::Release);
        is_right
    }
}

/// Logins that must be checked, by a thread of their own.
#[derive(Default)]
pub struct Verifier {
    jobs: Mutex<VecDeque<Job>>,
    bell: Condvar,
}

impl Verifier {
    fn post(&self, job: Job) -> bool {
        let mut jobs = self.jobs.lock();
        let has_room = jobs.len() < TRIALS_MAX;
        if has_room {
            jobs.push_back(job);
            self.bell.notify_one();
        }
        has_room
    }

    /// Waits for the next login.
    pub fn next(&self) -> Job {
        let mut jobs = self.jobs.lock();
        loop {
            match jobs.pop_front() {
                Some(job) => return job,
                None => self.bell.wait(&mut jobs),
            }
        }
    }
}

/// Whether a login can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// It can.
    Ready,
    /// It cannot. The caller must ask again soon.
    Waiting,
}

/// A name and a password, hashed with a secret.
type Tag = [u8; 32];

struct Trial {
    tag: Tag,
    origin: u64,
    began: Time,
    verdict: Verdict,
}

/// Logins whose passwords are slow to check.
pub(crate) struct Trials {
    verifier: Arc<Verifier>,
    /// The hashes that are computed for users who have none.
    usual: Arc<[SlowHash]>,
    secrets: [RandomState; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    trials: Vec<Trial>,
    right: VecDeque<Tag>,
}

impl Trials {
    pub(crate) fn new(verifier: Arc<Verifier>, usual: Arc<[SlowHash]>) -> Self {
        let secrets = [RandomState::new(), RandomState::new()];
        Trials { verifier, usual, secrets, state: Mutex::default() }
    }

    /// Returns whether this password was found right, or `None` if that is unknown.
    pub(crate) fn is_right(&self, name: &[u8], password: &[u8]) -> Option<bool> {
        if password.len() > PASSWORD_LEN_MAX {
            return Some(false);
        }
        self.verdict(&mut self.state.lock(), &self.tag(name, password))
    }

    fn verdict(&self, state: &mut State, tag: &Tag) -> Option<bool> {
        let is_it = |other: &Tag| bool::from(other[..].ct_eq(&tag[..]));
        if state.right.iter().any(is_it) {
            return Some(true);
        }
        let at = state.trials.iter().position(|trial| is_it(&trial.tag))?;
        // ORDER: pairs with `Job::work`.
        match state.trials[at].verdict.load(Ordering::Acquire) {
            WAITING => None,
            RIGHT => {
                state.trials.swap_remove(at);
                if state.right.len() == RIGHT_MAX {
                    state.right.pop_front();
                }
                state.right.push_back(*tag);
                Some(true)
            }
            _ => Some(false),
        }
    }

    /// Returns the state of a login that was begun, or that need not be begun.
    pub(crate) fn known(&self, name: &[u8], password: &[u8]) -> Option<Prepared> {
        if password.len() > PASSWORD_LEN_MAX {
            return Some(Prepared::Ready);
        }
        let (tag, state) = (self.tag(name, password), &mut *self.state.lock());
        if self.verdict(state, &tag).is_some() {
            return Some(Prepared::Ready);
        }
        state.trials.iter().any(|trial| trial.tag == tag).then_some(Prepared::Waiting)
    }

    /// Begins the check. `own` are the user's hashes, if there is such a user with hashes.
    pub(crate) fn begin(
        &self,
        (name, password): (&[u8], &[u8]),
        own: Option<&Arc<[SlowHash]>>,
        origin: u64,
        now: Time,
    ) -> Prepared {
        let tag = self.tag(name, password);
        let state = &mut *self.state.lock();
        let is_waiting = |trial: &Trial| trial.verdict.load(Ordering::Relaxed) == WAITING;
        state.trials.retain(|trial| is_waiting(trial) || now.since(trial.began) < KEPT);
        if state.trials.len() == TRIALS_MAX {
            // The login whose result was known first is removed.
            match state.trials.iter().position(|trial| !is_waiting(trial)) {
                Some(at) => drop(state.trials.remove(at)),
                None => return Prepared::Ready,
            }
        }
        let of_one =
            state.trials.iter().filter(|trial| is_waiting(trial) && trial.origin == origin);
        if of_one.count() >= WAITING_OF_ONE_MAX {
            return Prepared::Ready;
        }
        let verdict = Verdict::default();
        let is_taken = self.verifier.post(Job {
            hashes: Arc::clone(own.unwrap_or(&self.usual)),
            may_be_right: own.is_some(),
            password: password.to_vec(),
            verdict: Arc::clone(&verdict),
        });
        if !is_taken {
            return Prepared::Ready;
        }
        state.trials.push(Trial { tag, origin, began: now, verdict });
        Prepared::Waiting
    }

    pub(crate) fn tag(&self, name: &[u8], password: &[u8]) -> Tag {
        let mut hash = Sha256::new();
        for (at, secret) in self.secrets.iter().enumerate() {
            hash.update(secret.hash_one(at).to_le_bytes());
        }
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(password);
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoginFault, User, Users};

    const SALT: &[u8; 16] = b"0123456789abcdef";

    /// Returns a hash that is quick for its kind.
    fn quick(password: &[u8]) -> SlowHash {
        let params = Params::new(64, 1, 1, None).unwrap();
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let salt = SaltString::encode_b64(SALT).unwrap();
        SlowHash::parse(&argon.hash_password(password, &salt).unwrap().to_string()).unwrap()
    }

    fn users() -> (Users, Arc<Verifier>) {
        let verifier = Arc::new(Verifier::default());
        let of = |name: &str| User::new(name, "+@all ~*").unwrap();
        let digest = crate::Digest::of(b"fast");
        let all = vec![
            of("slow").with_slow(vec![quick(b"right"), quick(b"other")]),
            of("fast").with_digest(digest),
        ];
        let users = Users::new(all.into_iter().map(Arc::new).collect());
        (users.verified_by(&verifier), verifier)
    }

    const FROM: &str = "10.0.0.1:1";

    /// Returns the result of a login, once it is known.
    fn log_in(
        (users, verifier): &(Users, Arc<Verifier>),
        name: &[u8],
        password: &[u8],
    ) -> Result<String, LoginFault> {
        while users.prepare(name, password, FROM, Time(9)) == Prepared::Waiting {
            verifier.next().work();
        }
        users.log_in(name, password, FROM, Time(9)).map(|user| user.name().to_string())
    }

    #[test]
    fn who_has_the_right_password_is_in_when_it_was_looked_at() {
        let both = users();
        let unprepared = both.0.log_in(b"slow", b"right", FROM, Time(9));
        assert_eq!(unprepared.err(), Some(LoginFault::Limited), "no worker works it out");
        for password in [b"right", b"other"] {
            assert_eq!(log_in(&both, b"slow", password), Ok("slow".to_owned()));
            // From then on the login succeeds at once.
            assert_eq!(both.0.prepare(b"slow", password, FROM, Time(9)), Prepared::Ready);
            assert!(both.0.log_in(b"slow", password, FROM, Time(9)).is_ok());
        }
        assert_eq!(both.0.prepare(b"fast", b"fast", FROM, Time(9)), Prepared::Ready);
        assert_eq!(log_in(&both, b"fast", b"fast"), Ok("fast".to_owned()));
    }

    #[test]
    fn who_has_not_waits_as_long_whether_there_is_such_a_user_or_not() {
        let both = users();
        for (name, fault) in [
            (&b"slow"[..], LoginFault::Password),
            (b"fast", LoginFault::Password),
            (b"none", LoginFault::Unknown),
        ] {
            // A password that is right for one user is right for no other.
            assert_eq!(both.0.prepare(name, b"wrong", FROM, Time(9)), Prepared::Waiting);
            assert_eq!(log_in(&both, name, b"wrong"), Err(fault));
        }
        assert_eq!(log_in(&both, b"none", b"right"), Err(LoginFault::Unknown));
        assert_eq!(log_in(&both, b"fast", b"right"), Err(LoginFault::Password));
        assert_eq!(log_in(&both, b"slow", &[b'x'; 2000]), Err(LoginFault::Password));
    }

    #[test]
    fn what_others_make_us_compute_is_bounded() {
        let (users, verifier) = users();
        let jobs = |verifier: &Verifier| verifier.jobs.lock().len();
        for n in 0..100u8 {
            users.prepare(b"slow", &[n], FROM, Time(9));
        }
        assert_eq!(jobs(&verifier), WAITING_OF_ONE_MAX);
        let text = users.log_in(b"slow", &[50], FROM, Time(9)).err();
        assert_eq!(text, Some(LoginFault::Limited));
        // The same login again is not a new one.
        assert_eq!(users.prepare(b"slow", &[0], FROM, Time(9)), Prepared::Waiting);
        assert_eq!(jobs(&verifier), WAITING_OF_ONE_MAX);
        for n in 0..500u32 {
            let from = format!("{}:1", std::net::Ipv4Addr::from(n));
            users.prepare(b"slow", b"wrong again", &from, Time(9));
            users.prepare(b"slow", &n.to_le_bytes(), &from, Time(9));
        }
        assert_eq!(jobs(&verifier), TRIALS_MAX);
        (0..TRIALS_MAX).for_each(|_| assert!(!verifier.next().work()));
        // An attacker that goes on has as many attempts as may fail in a row, and then one each
        // second.
        let mut worked = 0;
        for n in 0..1000u32 {
            users.prepare(format!("{n}").as_bytes(), b"x", "10.0.0.9:1", Time(9));
            worked += jobs(&verifier);
            (0..jobs(&verifier)).for_each(|_| assert!(!verifier.next().work()));
        }
        assert_eq!(worked, crate::users::WORK_OF_ONE_MAX as usize);
    }

    #[test]
    fn a_hash_is_read_as_others_write_it() {
        let text = slow_text(b"pw", SALT).unwrap();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        let mut memory = Vec::new();
        let hash = SlowHash::parse(&text).unwrap();
        assert!(hash.is_of(b"pw", &mut memory) && !hash.is_of(b"pv", &mut memory));
        for wrong in [
            "",
            "$",
            "#",
            &text.replace("argon2id", "argon2i"),
            &text.replace("m=19456", "m=1194560"),
            &text.replace("t=2", "t=200"),
            &text.replace("p=1", "p=9"),
            &text.replace("v=19", "v=16"),
            text.rsplit_once('$').unwrap().0,
        ] {
            assert!(SlowHash::parse(wrong).is_err(), "{wrong}");
        }
    }
    #[test]
    fn hashes_up_to_the_bounds_of_memory_work_and_lanes_are_taken() {
        let text = slow_text(b"pw", SALT).unwrap();
        for (params, is_good) in [
            ("m=65536,t=4,p=4", true),
            ("m=65537,t=1,p=1", false),
            ("m=65536,t=5,p=1", false),
            ("m=1024,t=256,p=1", true),
            ("m=1024,t=257,p=1", false),
            ("m=1024,t=1,p=5", false),
        ] {
            let text = text.replace("m=19456,t=2,p=1", params);
            assert_eq!(SlowHash::parse(&text).is_ok(), is_good, "{params}");
        }
    }

    #[test]
    fn a_hash_that_a_user_has_twice_is_as_good_as_once() {
        let job = |hashes: Vec<SlowHash>, password: &[u8]| Job {
            hashes: hashes.into(),
            may_be_right: true,
            password: password.to_vec(),
            verdict: Verdict::default(),
        };
        let both = || vec![quick(b"right"), quick(b"right")];
        assert!(job(both(), b"right").work() && !job(both(), b"wrong").work());
    }

    /// Returns the logins with the hash of `password`, and their verifier.
    fn trials(password: &[u8]) -> (Trials, Arc<[SlowHash]>) {
        let own: Arc<[SlowHash]> = vec![quick(password)].into();
        (Trials::new(Arc::default(), Arc::clone(&own)), own)
    }

    fn at(nanos: u64) -> Time {
        Time(Duration::from_secs(100).as_nanos() as u64 + nanos)
    }

    #[test]
    fn the_longest_password_that_is_looked_at_is_right_and_a_longer_one_is_wrong_at_once() {
        for (len, prepared) in
            [(PASSWORD_LEN_MAX, None), (PASSWORD_LEN_MAX + 1, Some(Prepared::Ready))]
        {
            let password = vec![b'x'; len];
            let (trials, own) = trials(&password);
            assert_eq!(trials.known(b"u", &password), prepared);
            assert_eq!(trials.begin((b"u", &password), Some(&own), 1, at(0)), Prepared::Waiting);
            assert!(trials.verifier.next().work());
            assert_eq!(trials.is_right(b"u", &password), Some(prepared.is_none()));
        }
    }

    #[test]
    fn the_last_right_logins_are_remembered_up_to_a_bound() {
        let (trials, own) = trials(b"right");
        let name = |n: usize| n.to_le_bytes();
        for n in 0..RIGHT_MAX + 3 {
            trials.begin((&name(n), b"right"), Some(&own), n as u64, at(0));
            trials.verifier.next().work();
            assert_eq!(trials.is_right(&name(n), b"right"), Some(true));
            let first = (n + 1).saturating_sub(RIGHT_MAX);
            let is_known = |n: usize| trials.is_right(&name(n), b"right").is_some();
            assert!(is_known(first) && (first == 0 || !is_known(first - 1)), "{n}");
        }
    }

    #[test]
    fn what_was_found_is_kept_for_a_while_though_others_begin() {
        let (trials, own) = trials(b"right");
        let kept = KEPT.as_nanos() as u64;
        trials.begin((b"done", b"wrong"), Some(&own), 1, at(0));
        trials.verifier.next().work();
        trials.begin((b"waits", b"wrong"), Some(&own), 1, at(0));
        for (nanos, verdict) in [(1, Some(false)), (kept - 1, Some(false)), (kept, None)] {
            trials.begin((&nanos.to_le_bytes(), b"wrong"), Some(&own), nanos, at(nanos));
            assert_eq!(trials.is_right(b"done", b"wrong"), verdict, "after {nanos} ns");
            assert_eq!(trials.known(b"waits", b"wrong"), Some(Prepared::Waiting), "{nanos} ns");
        }
    }

    #[test]
    fn a_login_that_waits_gives_way_to_no_other() {
        let (trials, own) = trials(b"right");
        let begin = |n: usize| {
            trials.begin((&n.to_le_bytes(), b"wrong"), Some(&own), n as u64, at(n as u64))
        };
        for n in 0..TRIALS_MAX {
            assert_eq!(begin(n), Prepared::Waiting);
        }
        assert_eq!(begin(TRIALS_MAX), Prepared::Ready, "all places are taken by those who wait");
        trials.verifier.next().work();
        assert_eq!(begin(TRIALS_MAX), Prepared::Waiting, "in the place of the first");
        for n in 0..=TRIALS_MAX {
            let known = trials.known(&n.to_le_bytes(), b"wrong");
            assert_eq!(known, (n > 0).then_some(Prepared::Waiting), "{n}");
        }
    }

    #[test]
    fn the_listeners_that_share_a_verifier_share_its_bound() {
        let verifier = Arc::new(Verifier::default());
        let own: Arc<[SlowHash]> = vec![quick(b"right")].into();
        for n in 0..TRIALS_MAX + 2 {
            // Each listener has a login of its own.
            let trials = Trials::new(Arc::clone(&verifier), Arc::clone(&own));
            let prepared = trials.begin((b"u", b"right"), Some(&own), 1, at(0));
            let expected = if n < TRIALS_MAX { Prepared::Waiting } else { Prepared::Ready };
            assert_eq!(prepared, expected, "{n}");
        }
        assert_eq!(verifier.jobs.lock().len(), TRIALS_MAX);
    }
}
