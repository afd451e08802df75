use super::ClientLive;
use keyway_base::Time;
use keyway_command::Request;
use keyway_resp::Protocol;
use keyway_users::{User, Users};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// The setting of `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every request is answered.
    #[default]
    On,
    /// No request is answered.
    Off,
    /// The next request is not answered, those after it are.
    SkipNext,
}

/// The identity of a client, and the settings of its connection.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A number that is unique in the process and ascends. `CLIENT ID` returns it.
    pub id: u64,
    /// Its address, as in `CLIENT LIST`. It is also kept here, so that a worker that shows its
    /// requests need not look it up.
    pub addr: Arc<str>,
    /// True if it gave a password, or none is needed.
    pub authenticated: bool,
    /// True if it may do everything, so that its requests need not be checked. [`Identity::admit`]
    /// and [`Identity::begin`] set it.
    pub is_free: bool,
    /// True if logins of its listener may wait, or lead to other pools.
    pub is_bound: bool,
    /// Its user, if it came through a listener.
    pub user: Option<Arc<User>>,
    /// Its protocol since its last `HELLO`.
    pub protocol: Protocol,
    /// The database it selected.
    pub database: u32,
    /// The setting of `CLIENT REPLY`.
    pub reply_mode: ReplyMode,
    /// True if it has sent `CLIENT NO-EVICT ON`.
    pub no_evict: bool,
    /// True if it has sent `CLIENT NO-TOUCH ON`.
    pub no_touch: bool,
    /// Its last request and the state that it has begun, for other clients.
    pub live: Arc<ClientLive>,
    /// When it connected.
    pub connected: Time,
    /// Until when it reads at the primary, because it has written.
    pub reads_primary_until: Time,
    /// When it last sent a request that may write, if reads may go to replicas.
    pub wrote_at: Time,
    /// The effect of replies to its writes, while some may be in flight.
    pub pin_due: Option<PinDue>,
}

/// A pin that begins again with each reply to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinDue {
    /// Index of the reply to the latest write.
    reply_index: u32,
    /// Duration of the pin, in milliseconds.
    lasts_ms: NonZeroU32,
}

impl PinDue {
    /// Rounds up to whole milliseconds, at least one.
    fn millis(lasts: Duration) -> NonZeroU32 {
        let millis = u64::from(lasts.subsec_nanos().div_ceil(1_000_000));
        let millis = lasts.as_secs().saturating_mul(1000).saturating_add(millis);
        let millis = u32::try_from(millis).unwrap_or(u32::MAX);
        NonZeroU32::new(millis).unwrap_or(NonZeroU32::MIN)
    }

    fn lasts(self) -> Duration {
        Duration::from_millis(u64::from(self.lasts_ms.get()))
    }
}

impl Identity {
    /// Makes it `user` from now on, one of the listener's `users`.
    pub fn admit(&mut self, user: &Arc<User>, users: &Users) {
        self.authenticated = true;
        // The pool of its requests is checked as well.
        self.is_bound = users.have_pools() || users.are_slow();
        self.is_free = user.is_free() && !self.is_bound;
        self.user = Some(Arc::clone(user));
    }

    /// Returns whether a request is certainly allowed and needs no further check.
    #[inline]
    pub fn passes(&self, request: &Request) -> bool {
        !self.is_bound
            && self.authenticated
            && self.user.as_ref().is_some_and(|user| user.passes(request))
    }

    /// Resets it to a client that has not logged in.
    pub fn begin(&mut self, users: &Users) {
        match users.newcomer() {
            Some(user) => self.admit(user, users),
            None => {
                self.authenticated = false;
                self.is_free = false;
                self.user = None;
            }
        }
    }

    /// Returns the name of its user, or `default` if it has not logged in.
    pub fn user_name(&self) -> &str {
        self.user.as_ref().map_or("default", |user| user.name())
    }

    /// Returns the same without a copy, if its user is known.
    pub fn shared_user_name(&self) -> Arc<str> {
        self.user.as_ref().map_or_else(|| "default".into(), |user| Arc::clone(user.name()))
    }

    /// Notes that it has written: until then at least it reads at the primary.
    #[inline]
    pub fn pin(&mut self, until: Time) {
        self.reads_primary_until = self.reads_primary_until.max(until);
    }

    /// Notes that the client writes, and that the reply will have the index `reply_index`. The
    /// client reads from primaries until `lasts` has passed since that reply.
    #[inline]
    pub fn pin_for(&mut self, lasts: Duration, reply_index: u32, now: Time) {
        self.pin(now + lasts);
        let lasts = PinDue::millis(lasts);
        let lasts_ms = self.pin_due.map_or(lasts, |due| due.lasts_ms.max(lasts));
        self.pin_due = Some(PinDue { reply_index, lasts_ms });
    }

    /// A reply is here, while there may be some to writes on their way; `is_last` when no
    /// other is.
    #[cold]
    pub fn on_reply(&mut self, reply_index: u32, is_last: bool, now: Time) {
        // Replies to requests before the latest write count as well.
        if self.pin_due.is_some_and(|due| due.reply_index.wrapping_sub(reply_index) as i32 >= 0) {
            self.pin_anew(now);
        }
        if is_last {
            self.pin_due = None;
        }
    }

    /// Handles a reply that may be one to a write.
    #[cold]
    pub fn pin_anew(&mut self, now: Time) {
        if let Some(due) = self.pin_due {
            self.pin(now + due.lasts());
        }
    }

    /// Creates a client that has just connected, from an unknown address.
    pub fn new(id: u64, authenticated: bool, now: Time) -> Self {
        Self {
            id,
            addr: Arc::default(),
            authenticated,
            is_free: authenticated,
            is_bound: false,
            user: None,
            protocol: Protocol::Resp2,
            database: 0,
            reply_mode: ReplyMode::On,
            no_evict: false,
            no_touch: false,
            live: Arc::default(),
            connected: now,
            reads_primary_until: Time(0),
            wrote_at: Time(0),
            pin_due: None,
        }
    }
}
