use keyway_base::Time;
use keyway_command::{COMMANDS, Command, Verb};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A client's last request, and the state that it has begun, for `CLIENT LIST` of any worker. Its
/// own worker writes it. It is read without a lock.
#[derive(Debug, Default)]
pub struct ClientLive {
    /// Numbers of its channels, patterns and shard channels.
    subscriptions: [AtomicU32; 3],
    /// One more than the number of commands of its open transaction. 0 without one.
    multi: AtomicU32,
    /// Bits of [`ClientState`].
    flags: AtomicU16,
    /// One more than the [`Verb`] of its last request. 0 before the first.
    last_verb: AtomicU16,
    /// When its last bytes arrived, in seconds of the monotonic clock. 0 before the first.
    last_heard: AtomicU32,
}

/// The same at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientState {
    /// Numbers of its channels, patterns and shard channels.
    pub subscriptions: [u32; 3],
    /// Number of commands of its open transaction.
    pub multi: Option<u32>,
    /// True if it watches keys.
    pub is_watching: bool,
    /// True if its watched keys count as changed, so that EXEC will fail.
    pub is_dirty: bool,
    /// True if it is a monitor.
    pub is_monitor: bool,
}

impl ClientState {
    /// Returns whether it has subscriptions.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| *count > 0)
    }
}

impl ClientLive {
    /// Notes the state that the client has begun.
    pub fn set(&self, state: &ClientState) {
        for (cell, count) in self.subscriptions.iter().zip(state.subscriptions) {
            cell.store(count, Relaxed);
        }
        self.multi.store(state.multi.map_or(0, |queued| queued + 1), Relaxed);
        let bits = [state.is_watching, state.is_dirty, state.is_monitor];
        let bits = bits.into_iter().enumerate().map(|(at, is_set)| u16::from(is_set) << at);
        self.flags.store(bits.sum(), Relaxed);
    }

    /// Notes that the client sent something, and its last complete request.
    #[inline]
    pub fn note_request(&self, verb: Option<Verb>, now: Time) {
        if let Some(verb) = verb {
            self.last_verb.store(verb as u16 + 1, Relaxed);
        }
        self.last_heard.store(seconds(now), Relaxed);
    }

    /// Returns its last request, or `None` before the first.
    pub fn last_command(&self) -> Option<&'static Command> {
        let verb = self.last_verb.load(Relaxed).checked_sub(1)?;
        let mut all =
            COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        all.find(|command| command.verb as u16 == verb)
    }

    /// Returns how long it has sent nothing, in whole seconds, or `None` before its first bytes.
    pub fn silence(&self, now: Time) -> Option<Duration> {
        let last = self.last_heard.load(Relaxed);
        (last != 0).then(|| Duration::from_secs(seconds(now).saturating_sub(last).into()))
    }

    /// Returns the state that the client has begun, as last noted.
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

/// Returns whole seconds of the clock, from 1 on.
fn seconds(now: Time) -> u32 {
    (now.0 / 1_000_000_000) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the two counts of its `Arc` it takes a block of 48 bytes from the allocator, and not
    /// one of 64.
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
