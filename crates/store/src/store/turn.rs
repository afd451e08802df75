use keyway_base::Clock;
use keyway_resp::Protocol;

/// What a request needs besides its words.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The client's selected database.
    pub database: u32,
    /// Both clocks of the worker's turn.
    pub clock: Clock,
    /// What the client speaks.
    pub protocol: Protocol,
    /// Whose [`crate::Store::take_events`] tells what became of keys.
    pub worker: u16,
}

/// What holds for the whole of one request.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The client's database; it exists.
    pub(crate) database: u32,
    /// Milliseconds since the Unix epoch.
    pub(crate) now_millis: u64,
    /// What the client speaks.
    pub(crate) protocol: Protocol,
    /// Whose events are noted.
    pub(crate) worker: u16,
    /// The second, as noted in items.
    pub(crate) second: u32,
    /// A script called the command.
    pub(crate) is_scripted: bool,
    /// The command tells its effect.
    pub(crate) is_told: bool,
    /// The command is the effect of another store.
    pub(crate) is_effect: bool,
    /// What happens is not the command's doing, and is told apart.
    pub(crate) is_aside: bool,
}

impl Turn {
    /// What holds for a request of a client.
    #[inline]
    pub(crate) fn of(context: Context) -> Self {
        let Context { database, clock, protocol, worker } = context;
        let now_millis = clock.unix_millis();
        let second = (now_millis / 1000) as u32;
        Self {
            database,
            now_millis,
            protocol,
            worker,
            second,
            is_scripted: false,
            is_told: false,
            is_effect: false,
            is_aside: false,
        }
    }

    /// What holds for the effect of another store: time does not pass for it. Nothing
    /// expires but by an effect, and a time that has passed is a time to be set.
    pub(crate) fn of_effect(context: Context) -> Self {
        Self { now_millis: 0, is_effect: true, ..Self::of(context) }
    }

    /// When a consumer was heard of, in milliseconds since the Unix epoch.
    pub(crate) fn seen_millis(self) -> u64 {
        if self.is_effect { u64::from(self.second) * 1000 } else { self.now_millis }
    }

    /// The second, as noted in items.
    pub(crate) fn access(self) -> u32 {
        self.second
    }
}
