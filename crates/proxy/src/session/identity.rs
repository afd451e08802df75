use super::ClientLive;
use keyway_base::Time;
use keyway_command::Request;
use keyway_resp::Protocol;
use keyway_users::{User, Users};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// What `CLIENT REPLY` set.
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

/// Who a client is, and what it has set on its connection.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Unique in the process, ascending; what `CLIENT ID` answers.
    pub id: u64,
    /// Its address, as in `CLIENT LIST`; kept here as well, so that who shows
    /// its requests need not ask for it.
    pub addr: Arc<str>,
    /// Whether it gave a password, or none is needed.
    pub authenticated: bool,
    /// Whether it may do everything, so that its requests need not be looked at. Set
    /// with [`Identity::admit`] and [`Identity::begin`].
    pub is_free: bool,
    /// Logins of its listener may wait, or lead to other pools.
    pub is_bound: bool,
    /// Who it is, where it came through a listener.
    pub user: Option<Arc<User>>,
    /// What it speaks since its last `HELLO`.
    pub protocol: Protocol,
    /// The database it selected.
    pub database: u32,
    /// What `CLIENT REPLY` set.
    pub reply_mode: ReplyMode,
    /// `CLIENT NO-EVICT ON`.
    pub no_evict: bool,
    /// `CLIENT NO-TOUCH ON`.
    pub no_touch: bool,
    /// What it asked last and has begun, for other clients to see.
    pub live: Arc<ClientLive>,
    /// When it connected.
    pub connected: Time,
    /// Until when it reads where it writes, since it has written.
    pub reads_primary_until: Time,
    /// When it last sent what may write, where reads may go to replicas.
    pub wrote_at: Time,
    /// What replies to its writes do, while there may be some on their way.
    pub pin_due: Option<PinDue>,
}

/// A pin that begins anew with each reply to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinDue {
    /// The place of the latest write in the order of replies.
    place: u32,
    /// How long the pin lasts, in milliseconds.
    lasts_ms: NonZeroU32,
}

impl PinDue {
    /// Whole milliseconds that are not less, and at least one.
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
    /// It is `user` from now on, one of the listener's `users`.
    pub fn admit(&mut self, user: &Arc<User>, users: &Users) {
        self.authenticated = true;
        // The pool of its requests is looked at as well.
        self.is_bound = users.have_pools() || users.are_slow();
        self.is_free = user.is_free() && !self.is_bound;
        self.user = Some(Arc::clone(user));
    }

    /// Whether it may certainly make a request, of which nothing else has to be seen to.
    #[inline]
    pub fn passes(&self, request: &Request) -> bool {
        !self.is_bound
            && self.authenticated
            && self.user.as_ref().is_some_and(|user| user.passes(request))
    }

    /// It has said nothing yet of who it is.
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

    /// The name of its user; `default` until it has said who it is.
    pub fn user_name(&self) -> &str {
        self.user.as_ref().map_or("default", |user| user.name())
    }

    /// Returns the same without a copy, where its user is known.
    pub fn shared_user_name(&self) -> Arc<str> {
        self.user.as_ref().map_or_else(|| "default".into(), |user| Arc::clone(user.name()))
    }

    /// It has written: until then at least it reads where it writes.
    #[inline]
    pub fn pin(&mut self, until: Time) {
        self.reads_primary_until = self.reads_primary_until.max(until);
    }

    /// It sends what writes, whose reply will have that place: it reads where it writes
    /// until so long after the reply.
    #[inline]
    pub fn pin_for(&mut self, lasts: Duration, place: u32, now: Time) {
        self.pin(now + lasts);
        let lasts = PinDue::millis(lasts);
        let lasts_ms = self.pin_due.map_or(lasts, |due| due.lasts_ms.max(lasts));
        self.pin_due = Some(PinDue { place, lasts_ms });
    }

    /// A reply is here, while there may be some to writes on their way; `is_last` when no
    /// other is.
    #[cold]
    pub fn on_reply(&mut self, place: u32, is_last: bool, now: Time) {
        // Those to what was sent before the latest write count as well.
        if self.pin_due.is_some_and(|due| due.place.wrapping_sub(place) as i32 >= 0) {
            self.pin_anew(now);
        }
        if is_last {
            self.pin_due = None;
        }
    }

    /// What may be the reply to a write is here.
    #[cold]
    pub fn pin_anew(&mut self, now: Time) {
        if let Some(due) = self.pin_due {
            self.pin(now + due.lasts());
        }
    }

    /// A client that has just connected, from nobody knows where.
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
