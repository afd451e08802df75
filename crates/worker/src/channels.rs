//! Channels of the embedded stores: the one thing of publish and subscribe
//! that workers share.
//!
//! ```text
//!  worker 0: PUBLISH ──► who listens? (one lock) ──► its own subscribers
//!                                   └──► inbox of worker 1 ──► its subscribers
//! ```
//! Each worker knows its own subscribers; here is how many of them each worker
//! has for each name, so that PUBLISH can answer with the exact number, and an
//! inbox for each worker. Only commands about channels, and keyspace
//! notifications, take the lock.

use indexmap::IndexMap;
use keyway_base::glob;
use keyway_proxy::pubsub::{Name, SubscriptionKind};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// Bytes that may wait in one worker's inbox. More forgives longer stalls of a
/// worker; when it is full, the worker's subscribers of the pool are closed,
/// as they have missed a message.
const INBOX_LEN_MAX: usize = 64 << 20;

/// What a message takes in an inbox besides its bytes.
const MESSAGE_OVERHEAD: usize = 64;

type Names<V> = IndexMap<Name, V, foldhash::fast::RandomState>;

/// A message on its way to the subscribers of an embedded store.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) pool: u16,
    pub(crate) kind: SubscriptionKind,
    /// The channel's name, then the payload.
    bytes: Box<[u8]>,
    channel_len: usize,
}

impl Published {
    pub(crate) fn channel(&self) -> &[u8] {
        &self.bytes[..self.channel_len]
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[self.channel_len..]
    }
}

/// Messages for one worker's subscribers.
#[derive(Debug, Default)]
struct Inbox {
    messages: Vec<Arc<Published>>,
    len: usize,
    /// Pools of which a message found no room.
    overrun: Vec<u16>,
}

/// Subscribers of each name: their number by worker.
#[derive(Debug, Default)]
struct Table {
    names: [Names<Vec<u32>>; 3],
}

#[derive(Debug, Default)]
struct Shared {
    pools: Vec<Table>,
    inboxes: Vec<Mutex<Inbox>>,
}

/// Who listens to the channels of the embedded stores, by worker.
#[derive(Debug, Default)]
pub struct Channels {
    shared: RwLock<Shared>,
}

/// Messages wait that were published before: they must be delivered first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind;

/// What PUBLISH came to.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    /// Deliveries in all.
    pub(crate) count: u64,
    /// The message, if there are receivers on the publishing worker.
    pub(crate) own: Option<Arc<Published>>,
    /// Workers whose inbox was empty: they do not know of it yet.
    pub(crate) wake: Vec<u16>,
}

impl Channels {
    /// Counts one more subscriber of a worker for each of `names`, or with
    /// `change` -1 one less.
    ///
    /// # Errors
    /// When messages wait in the worker's inbox: who gets those was decided
    /// when they were published. Nothing is counted then.
    pub(crate) fn change<'a>(
        &self,
        place: (u16, u16),
        kind: SubscriptionKind,
        names: impl IntoIterator<Item = &'a Name>,
        change: i32,
    ) -> Result<(), Behind> {
        let mut shared = self.shared.write();
        let shared = &mut *shared;
        let worker = usize::from(place.1);
        if shared.inboxes.len() <= worker {
            shared.inboxes.resize_with(worker + 1, Mutex::default);
        }
        if !shared.inboxes[worker].get_mut().messages.is_empty() {
            return Err(Behind);
        }
        names.into_iter().for_each(|name| shared.count(place, kind, name, change));
        Ok(())
    }

    /// Names that somebody subscribes to.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        let shared = self.shared.read();
        shared.pools.iter().flat_map(|table| &table.names).map(Names::len).sum()
    }

    /// The same for a client that is gone: what waits for it is not delivered.
    pub(crate) fn forget(&self, place: (u16, u16), kind: SubscriptionKind, name: &Name) {
        self.shared.write().count(place, kind, name, -1);
    }

    /// Publishes: the inbox of every other worker with receivers gets the
    /// message, and who published gets it back for its own.
    pub(crate) fn publish(
        &self,
        (pool, from): (u16, u16),
        kind: SubscriptionKind,
        channel: &[u8],
        payload: &[u8],
    ) -> Receivers {
        let shared = self.shared.read();
        let Some(table) = shared.pools.get(usize::from(pool)) else { return Receivers::default() };
        let mut by_worker: Vec<u64> = Vec::new();
        table.each_count(kind, channel, |counts| {
            by_worker.resize(by_worker.len().max(counts.len()), 0);
            by_worker.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(*count));
        });
        let mut receivers = Receivers { count: by_worker.iter().sum(), ..Receivers::default() };
        if receivers.count == 0 {
            return receivers;
        }
        let message = Arc::new(Published {
            pool,
            kind,
            bytes: [channel, payload].concat().into(),
            channel_len: channel.len(),
        });
        for (worker, _) in by_worker.iter().enumerate().filter(|(_, count)| **count > 0) {
            if worker == usize::from(from) {
                receivers.own = Some(Arc::clone(&message));
            } else if shared.inboxes[worker].lock().put(&message) {
                receivers.wake.push(worker as u16);
            }
        }
        receivers
    }

    /// Takes what waits for a worker, and the pools whose subscribers there
    /// have missed something.
    pub(crate) fn take(&self, worker: u16) -> (Vec<Arc<Published>>, Vec<u16>) {
        let shared = self.shared.read();
        let Some(inbox) = shared.inboxes.get(usize::from(worker)) else {
            return Default::default();
        };
        let mut inbox = inbox.lock();
        inbox.len = 0;
        (std::mem::take(&mut inbox.messages), std::mem::take(&mut inbox.overrun))
    }

    /// Names of a kind that somebody has subscribed to, those that match
    /// `pattern` if there is one.
    pub(crate) fn names(
        &self,
        pool: u16,
        kind: SubscriptionKind,
        pattern: Option<&[u8]>,
    ) -> Vec<Name> {
        let shared = self.shared.read();
        let Some(table) = shared.pools.get(usize::from(pool)) else { return Vec::new() };
        let names = table.names[kind as usize].keys();
        let fits = |name: &&Name| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        names.filter(fits).cloned().collect()
    }

    /// How many have subscribed to exactly this.
    pub(crate) fn subscribers(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> u64 {
        let shared = self.shared.read();
        let table = shared.pools.get(usize::from(pool));
        let counts = table.and_then(|table| table.names[kind as usize].get(name));
        counts.map_or(0, |counts| counts.iter().map(|count| u64::from(*count)).sum())
    }
}

impl Inbox {
    /// Puts a message in; whether the worker is to be told.
    fn put(&mut self, message: &Arc<Published>) -> bool {
        let len = message.bytes.len() + MESSAGE_OVERHEAD;
        let was_empty = self.messages.is_empty() && self.overrun.is_empty();
        if self.len + len > INBOX_LEN_MAX {
            if !self.overrun.contains(&message.pool) {
                self.overrun.push(message.pool);
            }
        } else {
            self.len += len;
            self.messages.push(Arc::clone(message));
        }
        was_empty
    }
}

impl Table {
    /// Calls `each` with the counts of every subscription that `channel`
    /// reaches.
    fn each_count(&self, kind: SubscriptionKind, channel: &[u8], mut each: impl FnMut(&[u32])) {
        if let Some(counts) = self.names[kind as usize].get(channel) {
            each(counts);
        }
        if kind == SubscriptionKind::Channel {
            for (pattern, counts) in &self.names[SubscriptionKind::Pattern as usize] {
                if glob::matches(pattern, channel) {
                    each(counts);
                }
            }
        }
    }
}

impl Shared {
    fn count(
        &mut self,
        (pool, worker): (u16, u16),
        kind: SubscriptionKind,
        name: &Name,
        change: i32,
    ) {
        let (pool, worker) = (usize::from(pool), usize::from(worker));
        if self.pools.len() <= pool {
            self.pools.resize_with(pool + 1, Table::default);
        }
        let names = &mut self.pools[pool].names[kind as usize];
        if !names.contains_key(&**name) {
            names.insert(Name::clone(name), Vec::new());
        }
        let counts = &mut names[&**name];
        if counts.len() <= worker {
            counts.resize(worker + 1, 0);
        }
        counts[worker] = counts[worker].saturating_add_signed(change);
        if counts.iter().all(|count| *count == 0) {
            names.swap_remove(&**name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubscriptionKind::{Channel, Pattern, Shard};

    fn name(text: &str) -> Name {
        Name::from(text.as_bytes())
    }

    #[test]
    fn every_receiver_of_every_worker_is_counted_once_for_each_of_its_subscriptions() {
        let channels = Channels::default();
        for (worker, kind, text) in
            [(0, Channel, "news"), (1, Channel, "news"), (1, Channel, "news"), (2, Pattern, "n*")]
        {
            channels.change((0, worker), kind, [&name(text)], 1).unwrap();
        }
        channels.change((0, 1), Shard, [&name("news")], 1).unwrap();
        channels.change((1, 1), Channel, [&name("news")], 1).unwrap();
        let receivers = channels.publish((0, 0), Channel, b"news", b"x");
        assert_eq!((receivers.count, receivers.wake), (4, vec![1, 2]));
        let own = receivers.own.unwrap();
        assert_eq!((own.channel(), own.payload()), (&b"news"[..], &b"x"[..]));
        assert_eq!(channels.publish((0, 0), Shard, b"news", b"x").count, 1);
        assert_eq!(channels.publish((0, 0), Channel, b"other", b"x").count, 0);
        assert_eq!(channels.subscribers(0, Channel, b"news"), 3);
        assert_eq!(channels.names(0, Channel, Some(b"n*")), [name("news")]);
        assert_eq!(channels.take(1).0.len(), 2);
        channels.forget((0, 2), Pattern, &name("n*"));
        assert!(channels.names(0, Pattern, None).is_empty());
    }

    #[test]
    fn who_subscribes_is_told_nothing_published_before() {
        let channels = Channels::default();
        channels.change((0, 1), Channel, [&name("a")], 1).unwrap();
        assert_eq!(channels.publish((0, 0), Channel, b"a", b"x").wake, [1]);
        assert!(channels.publish((0, 0), Channel, b"a", b"y").wake.is_empty(), "it knows");
        assert_eq!(channels.change((0, 1), Channel, [&name("a")], 1), Err(Behind));
        assert_eq!(channels.take(1).0.len(), 2);
        assert_eq!(channels.change((0, 1), Channel, [&name("a")], 1), Ok(()));
    }

    #[test]
    fn an_inbox_is_bounded_and_what_it_misses_is_told() {
        let channels = Channels::default();
        channels.change((3, 1), Channel, [&name("a")], 1).unwrap();
        let payload = vec![b'x'; INBOX_LEN_MAX / 4];
        (0..5).for_each(|_| drop(channels.publish((3, 0), Channel, b"a", &payload)));
        let (messages, overrun) = channels.take(1);
        assert_eq!((messages.len(), overrun), (3, vec![3]));
        assert!(channels.take(1).1.is_empty());
    }
}
