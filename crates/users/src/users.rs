use crate::attempts::Attempts;
use crate::log::AccessLog;
use crate::password::Digest;
use crate::slow::{Prepared, Trials, Verifier};
use crate::user::User;
use keyway_base::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginFault {
    /// There is no such user.
    Unknown,
    /// The user is off.
    Disabled,
    /// The password is wrong.
    Password,
    /// The login was not checked: too many failed before it, or are being checked.
    Limited,
}

impl LoginFault {
    /// All of them, in the order of [`LoginFault::index`].
    pub const ALL: [LoginFault; 4] =
        [LoginFault::Unknown, LoginFault::Disabled, LoginFault::Password, LoginFault::Limited];

    /// Returns its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            LoginFault::Unknown => "user",
            LoginFault::Disabled => "disabled",
            LoginFault::Password => "password",
            LoginFault::Limited => "limited",
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The user of a client that has not logged in.
const DEFAULT: &str = "default";

/// Default number of failed logins in a row.
const FAILED_MAX: u32 = 10;

/// Number of passwords of one address, one after the other, for which slow hashes are computed. One
/// more is allowed each second. More would give an attacker more processor time.
pub(crate) const WORK_OF_ONE_MAX: u32 = 64;

/// Number of bytes of a name by which failed logins are counted. More would be more to hash.
const NAME_LEN_MAX: usize = 256;

/// The users of a listener.
pub struct Users {
    /// The users, sorted by name.
    all: Vec<Arc<User>>,
    /// True if clients of memcached may give any name, because there is one password for all.
    any_name: bool,
    /// True if some belong to another pool than the listener.
    has_pools: bool,
    attempts: Attempts,
    /// The logins that wait for a slow hash, if there can be some.
    trials: Option<Trials>,
    /// The slow checks, by address alone.
    worked: Attempts,
    failed: [AtomicU64; LoginFault::ALL.len()],
    log: AccessLog,
}

impl Users {
    /// Creates the only user of a listener with one password, or with none.
    pub fn plain(password: Option<&str>) -> Users {
        let user = Arc::new(User::free(DEFAULT, password));
        Users { any_name: true, ..Users::new(vec![user]) }
    }

    /// Creates the users of a listener. If none of them is called `default`, a login needs a name.
    pub fn new(mut all: Vec<Arc<User>>) -> Users {
        if !all.iter().any(|user| **user.name() == *DEFAULT) {
            let nobody = User::new(DEFAULT, "off").expect("these are rules");
            all.push(Arc::new(nobody));
        }
        all.sort_by(|one, other| one.name().cmp(other.name()));
        Users {
            any_name: false,
            has_pools: all.iter().any(|user| user.pool().is_some()),
            attempts: Attempts::new(FAILED_MAX),
            trials: None,
            worked: Attempts::new(WORK_OF_ONE_MAX),
            failed: Default::default(),
            log: AccessLog::default(),
            all,
        }
    }

    /// Returns the users with another limit on failed logins in a row, from one address for one
    /// user. 0: no limit.
    #[must_use]
    pub fn limited(mut self, failed_max: u32) -> Users {
        self.attempts = Attempts::new(failed_max);
        self
    }

    /// Returns the users with `verifier` for slow hashes.
    #[must_use]
    pub fn verified_by(mut self, verifier: &Arc<Verifier>) -> Users {
        let usual = self.all.iter().map(|user| &user.passwords.slow).find(|slow| !slow.is_empty());
        self.trials = usual.map(|usual| Trials::new(Arc::clone(verifier), Arc::clone(usual)));
        self
    }

    /// Returns whether some users have slow hashes. Then [`Users::prepare`] must be called first.
    #[inline]
    pub fn are_slow(&self) -> bool {
        self.trials.is_some()
    }

    /// Begins a slow check of a password, or returns whether it is over.
    pub fn prepare(&self, name: &[u8], password: &[u8], from: &str, now: Time) -> Prepared {
        let Some(trials) = &self.trials else { return Prepared::Ready };
        if let Some(prepared) = trials.known(name, password) {
            return prepared;
        }
        let user = self.get(name).filter(|user| user.is_on());
        let is_in_at_once = user.is_some_and(|user| user.passwords.contain(&Digest::of(password)));
        let whose = &name[..name.len().min(NAME_LEN_MAX)];
        let is_refused =
            self.attempts.are_used_up(from, whose, now) || self.worked.are_used_up(from, b"", now);
        if is_in_at_once || is_refused {
            return Prepared::Ready;
        }
        let own = user.map(|user| &user.passwords.slow).filter(|slow| !slow.is_empty());
        let origin = self.worked.origin(from);
        let prepared = trials.begin((name, password), own, origin, now);
        if prepared == Prepared::Waiting {
            self.worked.note((from, b""), &trials.tag(name, password), now);
        }
        prepared
    }

    /// Returns the users with the failed logins that `old` has counted: a client that is locked out
    /// there is locked out here.
    #[must_use]
    pub fn following(mut self, old: &Users) -> Users {
        self.attempts = self.attempts.following(&old.attempts);
        self.worked = self.worked.following(&old.worked);
        for (count, before) in self.failed.iter().zip(&old.failed) {
            count.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self
    }

    /// Returns all of them, sorted by name.
    pub fn all(&self) -> &[Arc<User>] {
        &self.all
    }

    /// Returns the user of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        let found = self.all.binary_search_by(|user| user.name().as_bytes().cmp(name));
        found.ok().map(|at| &self.all[at])
    }

    /// Returns the user of a client that has not logged in.
    fn default_user(&self) -> &Arc<User> {
        self.get(DEFAULT.as_bytes()).expect("there is one always")
    }

    /// Returns the user of a new client, or `None` if it must log in.
    pub fn newcomer(&self) -> Option<&Arc<User>> {
        Some(self.default_user()).filter(|user| user.is_on() && user.needs_no_password())
    }

    /// Returns whether a password without a name is accepted. It is not if the default user needs
    /// none.
    pub fn takes_bare_password(&self) -> bool {
        !self.default_user().needs_no_password()
    }

    /// Returns whether a login may lead to another pool.
    pub fn have_pools(&self) -> bool {
        self.has_pools
    }

    /// Logs a client in from the address `from`.
    ///
    /// # Errors
    /// Returns the reason if it fails, and counts it.
    pub fn log_in(
        &self,
        name: &[u8],
        password: &[u8],
        from: &str,
        now: Time,
    ) -> Result<&Arc<User>, LoginFault> {
        // Names without a user count alike, so that the limit does not show which users exist.
        let whose = &name[..name.len().min(NAME_LEN_MAX)];
        if self.attempts.are_used_up(from, whose, now) {
            return Err(self.count(LoginFault::Limited));
        }
        let user = self.get(name);
        // The password is hashed for every name, so that the time does not show which users exist.
        let digest = Digest::of(password);
        let judged = match user {
            None => Err(LoginFault::Unknown),
            Some(user) if !user.is_on() => Err(LoginFault::Disabled),
            Some(user) if !user.passwords.contain(&digest) => Err(LoginFault::Password),
            Some(user) => Ok(user),
        };
        if judged.is_err()
            && let Some(trials) = &self.trials
        {
            match trials.is_right(name, password) {
                Some(true) => return user.ok_or(LoginFault::Unknown),
                Some(false) => {}
                None => return Err(self.count(LoginFault::Limited)),
            }
        }
        judged.map_err(|fault| {
            self.attempts.note((from, whose), password, now);
            self.count(fault)
        })
    }

    /// Does the same for a client of memcached, which may have to give a name although there is one
    /// password for all.
    ///
    /// # Errors
    /// Returns the errors of [`Users::log_in`].
    pub fn log_in_memcached(
        &self,
        name: &[u8],
        password: &[u8],
        from: &str,
        now: Time,
    ) -> Result<&Arc<User>, LoginFault> {
        let name = if self.any_name { DEFAULT.as_bytes() } else { name };
        self.log_in(name, password, from, now)
    }

    fn count(&self, fault: LoginFault) -> LoginFault {
        self.failed[fault.index()].fetch_add(1, Ordering::Relaxed);
        fault
    }

    /// Returns how many logins failed for each reason of [`LoginFault::ALL`].
    pub fn failed(&self) -> [u64; LoginFault::ALL.len()] {
        std::array::from_fn(|at| self.failed[at].load(Ordering::Relaxed))
    }

    /// Returns the recent refusals.
    pub fn log(&self) -> &AccessLog {
        &self.log
    }
}
