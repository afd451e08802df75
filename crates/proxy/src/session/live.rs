use keyway_command::{COMMANDS, Command, Verb};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What a client asked last, and what it has begun and not ended, for `CLIENT
/// LIST` of any worker: written by its own worker, read without a lock.
#[derive(Debug, Default)]
pub struct ClientLive {
    /// Channels, patterns and shard channels it has subscribed to.
    subscriptions: [AtomicU32; 3],
    /// One more than the commands of its open transaction; 0 without one.
    multi: AtomicU32,
    /// Bits of [`ClientState`].
    flags: AtomicU32,
    /// One more than the [`Verb`] of its last request; 0 before the first.
    last_verb: AtomicU32,
    /// Unix time of its last bytes, in seconds; 0 before the first.
    last_unix: AtomicU32,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientState {
    /// Channels, patterns and shard channels it has subscribed to.
    pub subscriptions: [u32; 3],
    /// Commands of its open transaction.
    pub multi: Option<u32>,
    /// It watches keys.
    pub is_watching: bool,
    /// What it watches counts as changed: EXEC will fail.
    pub is_dirty: bool,
    /// It is shown requests.
    pub is_monitor: bool,
}

impl ClientState {
    /// Whether it has subscriptions.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| *count > 0)
    }
}

impl ClientLive {
    /// Notes what the client has begun.
    pub fn set(&self, state: &ClientState) {
        for (cell, count) in self.subscriptions.iter().zip(state.subscriptions) {
            cell.store(count, Relaxed);
        }
        self.multi.store(state.multi.map_or(0, |queued| queued + 1), Relaxed);
        let bits = [state.is_watching, state.is_dirty, state.is_monitor];
        let bits = bits.into_iter().enumerate().map(|(at, is_set)| u32::from(is_set) << at);
        self.flags.store(bits.sum(), Relaxed);
    }

    /// Notes that the client sent something at this Unix time, in seconds, and
    /// the last whole request among it.
    #[inline]
    pub fn note_request(&self, verb: Option<Verb>, now_unix: u64) {
        if let Some(verb) = verb {
            self.last_verb.store(verb as u32 + 1, Relaxed);
        }
        self.last_unix.store(now_unix as u32, Relaxed);
    }

    /// Its last request; `None` before the first.
    pub fn last_command(&self) -> Option<&'static Command> {
        let verb = self.last_verb.load(Relaxed).checked_sub(1)?;
        let mut all =
            COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        all.find(|command| command.verb as u32 == verb)
    }

    /// Unix time of its last bytes, in seconds; 0 before the first.
    pub fn last_unix(&self) -> u64 {
        self.last_unix.load(Relaxed).into()
    }

    /// What the client has begun, as it was noted last.
    pub fn get(&self) -> ClientState {
        let flags = self.flags.load(Relaxed);
        let is_set = |at: u32| flags >> at & 1 == 1;
        ClientState {
            subscriptions: self.subscriptions.each_ref().map(|cell| cell.load(Relaxed)),
            multi: self.multi.load(Relaxed).checked_sub(1),
            is_watching: is_set(0),
            is_dirty: is_set(1),
            is_monitor: is_set(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_told() {
        let live = ClientLive::default();
        assert_eq!(live.get(), ClientState::default());
        let state = ClientState {
            subscriptions: [1, 2, 3],
            multi: Some(0),
            is_watching: true,
            is_dirty: false,
            is_monitor: true,
        };
        live.set(&state);
        assert_eq!(live.get(), state);
        assert!(state.is_subscriber());
    }

    #[test]
    fn the_last_request_is_told_by_its_whole_name() {
        let live = ClientLive::default();
        let name = |live: &ClientLive| live.last_command().map(|command| command.name);
        assert_eq!((name(&live), live.last_unix()), (None, 0));
        live.note_request(Some(Verb::Acl), 7);
        assert_eq!((name(&live), live.last_unix()), (Some("acl"), 7));
        live.note_request(Some(Verb::ClientList), 8);
        assert_eq!((name(&live), live.last_unix()), (Some("client|list"), 8));
        live.note_request(None, 9);
        assert_eq!((name(&live), live.last_unix()), (Some("client|list"), 9));
    }
}
