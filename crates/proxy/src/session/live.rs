use keyway_base::Time;
use keyway_command::{COMMANDS, Command, Verb};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// What a client asked last, and what it has begun and not ended, for `CLIENT
/// LIST` of any worker: written by its own worker, read without a lock.
#[derive(Debug, Default)]
pub struct ClientLive {
    /// Channels, patterns and shard channels it has subscribed to.
    subscriptions: [AtomicU32; 3],
    /// One more than the commands of its open transaction; 0 without one.
    multi: AtomicU32,
    /// Bits of [`ClientState`].
    flags: AtomicU16,
    /// One more than the [`Verb`] of its last request; 0 before the first.
    last_verb: AtomicU16,
    /// When its last bytes came, in seconds of the clock that is never set; 0 before the first.
    last_heard: AtomicU32,
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
        let bits = bits.into_iter().enumerate().map(|(at, is_set)| u16::from(is_set) << at);
        self.flags.store(bits.sum(), Relaxed);
    }

    /// Notes that the client sent something, and the last whole request among it.
    #[inline]
    pub fn note_request(&self, verb: Option<Verb>, now: Time) {
        if let Some(verb) = verb {
            self.last_verb.store(verb as u16 + 1, Relaxed);
        }
        self.last_heard.store(seconds(now), Relaxed);
    }

    /// Its last request; `None` before the first.
    pub fn last_command(&self) -> Option<&'static Command> {
        let verb = self.last_verb.load(Relaxed).checked_sub(1)?;
        let mut all =
            COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        all.find(|command| command.verb as u16 == verb)
    }

    /// How long it has said nothing, in whole seconds; `None` before its first bytes.
    pub fn silence(&self, now: Time) -> Option<Duration> {
        let last = self.last_heard.load(Relaxed);
        (last != 0).then(|| Duration::from_secs(seconds(now).saturating_sub(last).into()))
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

/// Whole seconds of the clock, from 1 on.
fn seconds(now: Time) -> u32 {
    (now.0 / 1_000_000_000) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the two counts of its `Arc` it takes a block of 48 bytes from the allocator, not 64.
    #[test]
    fn what_is_noted_of_a_client_is_small() {
        assert!(size_of::<ClientLive>() <= 24, "{} bytes", size_of::<ClientLive>());
    }

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
        let at = |seconds: u64| Time(seconds * 1_000_000_000 + 999);
        let silence = |live: &ClientLive, now| live.silence(at(now)).map(|it| it.as_secs());
        assert_eq!((name(&live), silence(&live, 9)), (None, None));
        live.note_request(Some(Verb::Acl), at(0));
        assert_eq!((name(&live), silence(&live, 9)), (Some("acl"), Some(9)));
        live.note_request(Some(Verb::ClientList), at(8));
        assert_eq!((name(&live), silence(&live, 9)), (Some("client|list"), Some(1)));
        live.note_request(None, at(9));
        assert_eq!((name(&live), silence(&live, 9)), (Some("client|list"), Some(0)));
    }
}
