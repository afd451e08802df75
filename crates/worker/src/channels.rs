//! Channels of the embedded stores: the only part of publish and subscribe that workers share.
//!
//! ```text
//!  worker 0: PUBLISH ──► who listens? (one lock) ──► its own inbox ──► its subscribers
//!                                   └──► inbox of worker 1 ──► its subscribers
//! ```
//! Each worker knows its own subscribers; here is how many of them each worker
//! has for each name, so that PUBLISH can answer with the exact number, and an
//! inbox for each worker. A message goes into every inbox, the publisher's own
//! included, before the next one of its pool goes into any: all subscribers see
//! the messages of a pool in one order, and an answer never before what it
//! answers. Only commands about channels, and keyspace notifications, take
//! these locks.

use crate::pool_worker::PoolWorker;
use indexmap::IndexMap;
use keyway_base::glob;
use keyway_proxy::pubsub::{Name, SubscriptionKind};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// Number of bytes that other workers may have waiting in one worker's inbox. An empty one accepts
/// any message. With more, longer stalls of a worker would be tolerated. If an inbox is full, the
/// subscribers that miss a message are closed.
const INBOX_LEN_MAX: usize = 64 << 20;

/// Number of channels, and of bytes of their names, whose missed messages are reported to a worker.
/// Beyond either, all its subscribers of the pool count as having missed one. With more, fewer
/// subscribers of other channels would be closed, but more memory would be used when it is already
/// short.
const MISSED_MAX: usize = 64;
const MISSED_LEN_MAX: usize = 64 << 10;

/// Messages for which an inbox keeps room.
const KEPT_MAX: usize = 4 << 10;

/// Number of bytes that a message takes in an inbox besides its own.
const MESSAGE_OVERHEAD: usize = 64;

type Names<V> = IndexMap<Name, V, foldhash::fast::RandomState>;

/// A message that is being delivered to the subscribers of an embedded store.
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
    /// Number of bytes of the messages of other workers.
    len: usize,
    missed: Missed,
}

/// Messages that found no room in an inbox.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Channels with such a message.
    pub(crate) channels: Vec<(u16, SubscriptionKind, Name)>,
    /// Pools with more such channels.
    pub(crate) pools: Vec<u16>,
    /// Number of bytes of the names in `channels`.
    len: usize,
}

/// The number of subscribers of each name, by worker.
#[derive(Debug, Default)]
struct Table {
    names: [Names<Vec<u32>>; 3],
    /// Held while a message is put into the inboxes.
    order: Mutex<()>,
}

#[derive(Debug, Default)]
struct Shared {
    pools: Vec<Table>,
    inboxes: Vec<Mutex<Inbox>>,
}

/// The subscribers of the channels of the embedded stores, by worker.
#[derive(Debug, Default)]
pub struct Channels {
    shared: RwLock<Shared>,
}

/// Earlier messages wait, and must be delivered first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind;

/// The result of PUBLISH.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    /// Number of deliveries in total.
    pub(crate) count: u64,
    /// True if some are on the publishing worker, so that its inbox must be read.
    pub(crate) has_own: bool,
    /// Workers whose inbox was empty, and which must be woken.
    pub(crate) wake: Vec<u16>,
}

impl Channels {
    /// Counts one more subscriber of a worker for each of `names`, or with `change` -1 one less.
    ///
    /// # Errors
    /// Returns an error if messages wait in the worker's inbox: their receivers were decided when
    /// they were published. Nothing is counted then.
    pub(crate) fn change<'a>(
        &self,
        of: PoolWorker,
        kind: SubscriptionKind,
        names: impl IntoIterator<Item = &'a Name>,
        change: i32,
    ) -> Result<(), Behind> {
        let mut shared = self.shared.write();
        let shared = &mut *shared;
        let worker = usize::from(of.worker);
        if shared.inboxes.len() <= worker {
            shared.inboxes.resize_with(worker + 1, Mutex::default);
        }
        if !shared.inboxes[worker].get_mut().messages.is_empty() {
            return Err(Behind);
        }
        names.into_iter().for_each(|name| shared.count(of, kind, name, change));
        Ok(())
    }

    /// Returns the number of names with subscribers.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        let shared = self.shared.read();
        shared.pools.iter().flat_map(|table| &table.names).map(Names::len).sum()
    }

    /// The same for a client that is gone: what waits for it is not delivered.
    pub(crate) fn forget(&self, of: PoolWorker, kind: SubscriptionKind, name: &Name) {
        self.shared.write().count(of, kind, name, -1);
    }

    /// Publishes a message: it is put into the inbox of every worker with receivers. The inbox of
    /// the publishing worker has room for any number, because it is emptied at the end of the turn.
    pub(crate) fn publish(
        &self,
        PoolWorker { pool, worker: from }: PoolWorker,
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
        let order = table.order.lock();
        for (worker, _) in by_worker.iter().enumerate().filter(|(_, count)| **count > 0) {
            let mut inbox = shared.inboxes[worker].lock();
            if worker == usize::from(from) {
                inbox.messages.push(Arc::clone(&message));
                receivers.has_own = true;
            } else if inbox.put(&message) {
                receivers.wake.push(worker as u16);
            }
        }
        drop(order);
        receivers
    }

    /// Moves the waiting messages of a worker into `messages`, which must be empty. Returns what
    /// its subscribers have missed.
    pub(crate) fn take(&self, worker: u16, messages: &mut Vec<Arc<Published>>) -> Missed {
        let shared = self.shared.read();
        let Some(inbox) = shared.inboxes.get(usize::from(worker)) else {
            return Missed::default();
        };
        messages.shrink_to(KEPT_MAX);
        let mut inbox = inbox.lock();
        inbox.len = 0;
        std::mem::swap(&mut inbox.messages, messages);
        std::mem::take(&mut inbox.missed)
    }

    /// Returns the names of a kind with subscribers, or those that match `pattern` if there is one.
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

    /// Returns the number of names of a kind with subscribers.
    pub fn count(&self, pool: u16, kind: SubscriptionKind) -> usize {
        let shared = self.shared.read();
        shared.pools.get(usize::from(pool)).map_or(0, |table| table.names[kind as usize].len())
    }

    /// Returns the number of subscribers of exactly this name.
    pub(crate) fn subscribers(&self, pool: u16, kind: SubscriptionKind, name: &[u8]) -> u64 {
        let shared = self.shared.read();
        let table = shared.pools.get(usize::from(pool));
        let counts = table.and_then(|table| table.names[kind as usize].get(name));
        counts.map_or(0, |counts| counts.iter().map(|count| u64::from(*count)).sum())
    }
}

impl Inbox {
    /// Puts another worker's message in. Returns whether the worker must be woken.
    fn put(&mut self, message: &Arc<Published>) -> bool {
        let len = message.bytes.len() + MESSAGE_OVERHEAD;
        let was_empty = self.messages.is_empty() && self.missed.is_empty();
        let is_full = self.len > 0 && self.len + len > INBOX_LEN_MAX;
        // After a gap, further messages of the channel are useless.
        if is_full || self.missed.has(message) {
            self.missed.note(message);
        } else {
            self.len += len;
            self.messages.push(Arc::clone(message));
        }
        was_empty
    }
}

impl Missed {
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.pools.is_empty()
    }

    fn has(&self, message: &Published) -> bool {
        let is_its = |(pool, kind, name): &(u16, SubscriptionKind, Name)| {
            (*pool, *kind, &**name) == (message.pool, message.kind, message.channel())
        };
        self.pools.contains(&message.pool) || self.channels.iter().any(is_its)
    }

    #[cold]
    fn note(&mut self, message: &Published) {
        let (pool, kind, channel) = (message.pool, message.kind, message.channel());
        if self.has(message) {
            return;
        }
        if self.channels.len() < MISSED_MAX && self.len + channel.len() <= MISSED_LEN_MAX {
            self.len += channel.len();
            self.channels.push((pool, kind, Name::from(channel)));
        } else {
            self.pools.push(pool);
        }
    }
}

impl Table {
    /// Calls `each` with the counts of every subscription that `channel` matches.
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
        PoolWorker { pool, worker }: PoolWorker,
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

    fn of(pool: u16, worker: u16) -> PoolWorker {
        PoolWorker { pool, worker }
    }

    fn name(text: &str) -> Name {
        Name::from(text.as_bytes())
    }

    fn take(channels: &Channels, worker: u16) -> (Vec<Arc<Published>>, Missed) {
        let mut messages = Vec::new();
        let missed = channels.take(worker, &mut messages);
        (messages, missed)
    }

    #[test]
    fn every_receiver_of_every_worker_is_counted_once_for_each_of_its_subscriptions() {
        let channels = Channels::default();
        for (worker, kind, text) in
            [(0, Channel, "news"), (1, Channel, "news"), (1, Channel, "news"), (2, Pattern, "n*")]
        {
            channels.change(of(0, worker), kind, [&name(text)], 1).unwrap();
        }
        channels.change(of(0, 1), Shard, [&name("news")], 1).unwrap();
        channels.change(of(1, 1), Channel, [&name("news")], 1).unwrap();
        let receivers = channels.publish(of(0, 0), Channel, b"news", b"x");
        assert_eq!((receivers.count, receivers.wake), (4, vec![1, 2]));
        assert!(receivers.has_own);
        let own = take(&channels, 0).0;
        assert_eq!((own[0].channel(), own[0].payload()), (&b"news"[..], &b"x"[..]));
        assert_eq!(channels.publish(of(0, 0), Shard, b"news", b"x").count, 1);
        assert_eq!(channels.publish(of(0, 0), Channel, b"other", b"x").count, 0);
        assert_eq!(channels.subscribers(0, Channel, b"news"), 3);
        assert_eq!(channels.names(0, Channel, Some(b"n*")), [name("news")]);
        assert_eq!(take(&channels, 1).0.len(), 2);
        channels.forget(of(0, 2), Pattern, &name("n*"));
        assert!(channels.names(0, Pattern, None).is_empty());
    }

    #[test]
    fn who_subscribes_is_told_nothing_published_before() {
        let channels = Channels::default();
        channels.change(of(0, 1), Channel, [&name("a")], 1).unwrap();
        assert_eq!(channels.publish(of(0, 0), Channel, b"a", b"x").wake, [1]);
        assert!(channels.publish(of(0, 0), Channel, b"a", b"y").wake.is_empty(), "it knows");
        assert_eq!(channels.change(of(0, 1), Channel, [&name("a")], 1), Err(Behind));
        assert_eq!(take(&channels, 1).0.len(), 2);
        assert_eq!(channels.change(of(0, 1), Channel, [&name("a")], 1), Ok(()));
    }

    #[test]
    fn an_inbox_is_bounded_and_tells_which_channels_missed_a_message() {
        let channels = Channels::default();
        for text in ["a", "b"] {
            channels.change(of(3, 1), Channel, [&name(text)], 1).unwrap();
        }
        let payload = vec![b'x'; INBOX_LEN_MAX / 4];
        (0..5).for_each(|_| drop(channels.publish(of(3, 0), Channel, b"a", &payload)));
        channels.publish(of(3, 0), Channel, b"a", b"behind a gap");
        channels.publish(of(3, 0), Channel, b"b", b"small");
        let (messages, missed) = take(&channels, 1);
        assert_eq!((messages.len(), missed.pools.len()), (4, 0));
        assert_eq!(missed.channels, [(3, Channel, name("a"))]);
        assert!(take(&channels, 1).1.is_empty());
    }

    #[test]
    fn an_empty_inbox_takes_one_message_of_any_size() {
        let channels = Channels::default();
        channels.change(of(0, 1), Channel, [&name("big")], 1).unwrap();
        let payload = vec![b'x'; INBOX_LEN_MAX + 1];
        channels.publish(of(0, 0), Channel, b"big", &payload);
        let (messages, missed) = take(&channels, 1);
        assert!(messages.len() == 1 && missed.is_empty());
    }

    #[test]
    fn more_channels_than_are_noted_count_as_the_whole_pool() {
        let channels = Channels::default();
        channels.change(of(0, 1), Pattern, [&name("*")], 1).unwrap();
        channels.publish(of(0, 0), Channel, b"first", &vec![b'x'; INBOX_LEN_MAX]);
        for number in 0..2 * MISSED_MAX {
            channels.publish(of(0, 0), Channel, number.to_string().as_bytes(), b"x");
        }
        let missed = take(&channels, 1).1;
        assert_eq!((missed.channels.len(), missed.pools), (MISSED_MAX, vec![0]));
    }

    #[test]
    fn every_worker_gets_the_messages_of_a_pool_in_one_order() {
        const WORKERS: u16 = 3;
        const EACH: usize = 2_000;
        let channels = Channels::default();
        for worker in 0..WORKERS {
            channels.change(of(0, worker), Channel, [&name("a")], 1).unwrap();
        }
        let seen: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
            let publish = |worker: u16| {
                let channels = &channels;
                move || {
                    let (mut seen, mut messages) = (Vec::new(), Vec::new());
                    let mut published = 0;
                    while seen.len() < EACH * usize::from(WORKERS) {
                        if published < EACH {
                            let text = format!("{worker} {published}");
                            channels.publish(of(0, worker), Channel, b"a", text.as_bytes());
                            published += 1;
                        }
                        let missed = channels.take(worker, &mut messages);
                        assert!(missed.is_empty());
                        seen.extend(messages.drain(..).map(|one| one.payload().to_vec()));
                    }
                    seen
                }
            };
            let threads: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(publish(worker))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|one| *one == seen[0]));
    }
}
