use keyway_base::Clock;
use keyway_resp::Protocol;

/// The context of a request.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The client's selected database.
    pub database: u32,
    /// Both clocks of the worker's turn.
    pub clock: Clock,
    /// The client's protocol.
    pub protocol: Protocol,
    /// The worker whose [`crate::Store::take_events`] returns the events of the request.
    pub worker: u16,
}

/// The mode in which a command is executed: a set of the constants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(u8);

impl Mode {
    /// A script called the command.
    pub(crate) const SCRIPTED: Self = Self(1);
    /// The command tells its effect.
    pub(crate) const TOLD: Self = Self(1 << 1);
    /// The command is the effect of another store.
    pub(crate) const EFFECT: Self = Self(1 << 2);
    /// The change is not an effect of the command, and is told separately.
    pub(crate) const ASIDE: Self = Self(1 << 3);
    /// The change is told by whoever makes it, with the key's shard locked.
    pub(crate) const TELLING: Self = Self(1 << 5);
    /// The key comes from a file.
    pub(crate) const LOADED: Self = Self(1 << 4);
}

/// The state that holds for the whole of one request. It fits into two registers.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The client's database; it exists.
    pub(crate) database: u32,
    /// Milliseconds since the Unix epoch.
    pub(crate) now_millis: u64,
    /// The client's protocol.
    pub(crate) protocol: Protocol,
    /// The worker that takes the events.
    pub(crate) worker: u16,
    /// The mode in which the command is executed.
    pub(crate) mode: Mode,
}

const _: () = assert!(size_of::<Turn>() == 16);

impl Turn {
    /// Returns the turn of a client's request.
    #[inline]
    pub(crate) fn of(context: Context) -> Self {
        let Context { database, clock, protocol, worker } = context;
        Self { database, now_millis: clock.unix_millis(), protocol, worker, mode: Mode(0) }
    }

    /// Returns the turn of an effect of another store. Time does not pass for it. Nothing expires
    /// but by an effect, and a time that has passed is a time to be set. The moment is one of
    /// January 1970, as many milliseconds after the epoch as it is seconds.
    pub(crate) fn of_effect(context: Context) -> Self {
        let turn = Self::of(context);
        Self { now_millis: turn.now_millis / 1000, ..turn }.with(Mode::EFFECT)
    }

    #[inline]
    pub(crate) fn is(self, mode: Mode) -> bool {
        self.mode.0 & mode.0 != 0
    }

    #[inline]
    pub(crate) fn with(self, mode: Mode) -> Self {
        Self { mode: Mode(self.mode.0 | mode.0), ..self }
    }

    /// When a consumer was heard of, in milliseconds since the Unix epoch.
    pub(crate) fn seen_millis(self) -> u64 {
        if self.is(Mode::EFFECT) { self.now_millis * 1000 } else { self.now_millis }
    }

    /// The second, as noted in items.
    #[inline]
    pub(crate) fn access(self) -> u32 {
        match self.is(Mode::EFFECT) {
            true => self.now_millis as u32,
            false => (self.now_millis / 1000) as u32,
        }
    }
}
