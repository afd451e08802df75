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
    /// A script called the command.
    pub(crate) is_scripted: bool,
}

impl Turn {
    /// What holds for a request of a client.
    #[inline]
    pub(crate) fn of(context: Context) -> Self {
        let Context { database, clock, protocol, worker } = context;
        Self { database, now_millis: clock.unix_millis(), protocol, worker, is_scripted: false }
    }

    /// The second, as noted in items.
    pub(crate) fn access(self) -> u32 {
        (self.now_millis / 1000) as u32
    }
}
