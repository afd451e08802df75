use super::{PubSub, shape_of};
use crate::channels::{Missed, Published};
use crate::core::{Core, Plane};
use crate::pool_worker::PoolWorker;
use keyway_base::{Key, KeyspaceEvents, Limits, Slab, Time};
use keyway_proxy::Session;
use keyway_proxy::pubsub::{SubscriptionKind, append_frame, write_message};
use keyway_store::{KeyEvent, Store};
use std::sync::Arc;
use std::time::Duration;

/// The reason for closing a subscriber.
const OVER_HARD: &str = "more than pubsub_output_len_hard is undelivered";
const OVER_SOFT: &str = "more than pubsub_output_len_soft has been undelivered for too long";
const REFUSED: &str = "a server refuses a subscription that it had before";
const OVERRUN: &str = "its worker had no room for a message that another published";

impl Core {
    /// Delivers what clients of the embedded stores have published.
    pub(crate) fn deliver_published(&mut self) {
        let Core { sessions, plane, .. } = self;
        if !std::mem::take(&mut plane.pubsub.has_mail) {
            return;
        }
        let mut messages = std::mem::take(&mut plane.pubsub.inbox);
        let missed = plane.plan.channels.take(plane.worker(), &mut messages);
        messages.drain(..).for_each(|message| plane.deliver_one(sessions, &message));
        plane.pubsub.inbox = messages;
        if !missed.is_empty() {
            plane.drop_missing(sessions, missed);
        }
    }

    /// Takes the subscribers that are to be closed.
    pub(crate) fn take_dropped(&mut self) -> Vec<(Key<Session>, &'static str)> {
        std::mem::take(&mut self.plane.pubsub.dropped)
    }
}

/// The bound for undelivered messages that a subscriber exceeds.
enum Lag {
    None,
    /// More than the soft bound.
    Soft,
    /// More than the hard bound.
    Hard,
}

fn lag(limits: &Limits, undelivered: u64) -> Lag {
    let is_over = |bound: u64| bound != 0 && undelivered > bound;
    match () {
        () if is_over(limits.pubsub_output_len_hard) => Lag::Hard,
        () if is_over(limits.pubsub_output_len_soft) => Lag::Soft,
        () => Lag::None,
    }
}

impl Plane {
    /// Publishes a message on an embedded store. Returns the number of receivers.
    pub(in crate::core) fn publish(
        &mut self,
        pool: u16,
        kind: SubscriptionKind,
        channel: &[u8],
        payload: &[u8],
    ) -> u64 {
        let of = PoolWorker { pool, worker: self.worker() };
        let receivers = self.plan.channels.publish(of, kind, channel, payload);
        receivers.wake.iter().for_each(|worker| self.plan.post_published(*worker));
        self.pubsub.has_mail |= receivers.has_own;
        receivers.count
    }

    /// Publishes the events of keys.
    #[cold]
    pub(in crate::core) fn publish_events(
        &mut self,
        pool: u16,
        store: &Store,
        events: &mut Vec<KeyEvent>,
    ) {
        let notify = store.published();
        for event in events.iter().filter(|event| notify.contains(event.class)) {
            let KeyEvent { database, name, key, .. } = event;
            if notify.contains(KeyspaceEvents::KEYSPACE) {
                let mut channel = format!("__keyspace@{database}__:").into_bytes();
                channel.extend_from_slice(key);
                self.publish(pool, SubscriptionKind::Channel, &channel, name.as_bytes());
            }
            if notify.contains(KeyspaceEvents::KEYEVENT) {
                let channel = format!("__keyevent@{database}__:{name}");
                self.publish(pool, SubscriptionKind::Channel, channel.as_bytes(), key);
            }
        }
        if notify.contains(KeyspaceEvents::NEW) || notify.contains(KeyspaceEvents::MISS) {
            events.retain(|event| !event.is_notice());
        }
    }

    /// Delivers a message to this worker's subscribers of a store.
    fn deliver_one(&mut self, sessions: &mut Slab<Session>, message: &Arc<Published>) {
        let (pool, kind) = (message.pool, message.kind);
        let (channel, payload) = (message.channel(), message.payload());
        let mut frame = std::mem::take(&mut self.pubsub.frame);
        frame.clear();
        write_message(&mut frame, kind, None, channel, payload);
        self.fan_out(sessions, pool, kind, channel, &frame);
        if kind == SubscriptionKind::Channel {
            let registry = &self.pubsub.pools[pool as usize].registry;
            let patterns: Vec<_> = registry.matching(channel).cloned().collect();
            for pattern in patterns {
                frame.clear();
                let kind = SubscriptionKind::Pattern;
                write_message(&mut frame, kind, Some(&pattern), channel, payload);
                self.fan_out(sessions, pool, kind, &pattern, &frame);
            }
        }
        self.pubsub.frame = frame;
    }

    /// Appends `frame` to the output of all subscribers to `name`. The frame was composed once;
    /// each client gets a copy of its bytes.
    pub(super) fn fan_out(
        &mut self,
        sessions: &mut Slab<Session>,
        pool: u16,
        kind: SubscriptionKind,
        name: &[u8],
        frame: &[u8],
    ) {
        let Plane { pubsub, clients, plan, cells, clock, .. } = self;
        let (busy_pool, dirty) = (&mut clients.busy_pool, &mut clients.dirty);
        let mut delivered = 0;
        for key in pubsub.pools[pool as usize].registry.subscribers(kind, name) {
            let Some(session) = sessions.get_mut(key) else { continue };
            let shape = shape_of(session);
            let Some(subscriptions) = session.subscriptions.as_mut() else { continue };
            if subscriptions.is_dropped || session.closing {
                continue;
            }
            let busy = session.busy.get_or_insert_with(|| busy_pool.take());
            append_frame(busy.output.buf(), shape, frame);
            delivered += 1;
            match lag(&plan.limits, busy.undelivered() as u64) {
                Lag::None => {}
                Lag::Hard => {
                    subscriptions.is_dropped = true;
                    pubsub.dropped.push((key, OVER_HARD));
                }
                Lag::Soft => {
                    if subscriptions.over_soft_since.is_none() {
                        subscriptions.over_soft_since = Some(clock.now);
                        pubsub.over_soft.push(key);
                    }
                }
            }
            if !session.is_dirty {
                session.is_dirty = true;
                dirty.push(key);
            }
        }
        cells.pool(pool as usize).pubsub.delivered.add(delivered);
    }

    /// Finds the subscribers that have been above the soft bound for too long.
    pub(super) fn tend_lagging(&mut self, sessions: &mut Slab<Session>, now: Time) {
        let limits = self.plan.limits;
        let patience = Duration::from_secs(u64::from(limits.pubsub_output_soft_secs));
        let dropped = &mut self.pubsub.dropped;
        self.pubsub.over_soft.retain(|&key| {
            let Some(session) = sessions.get_mut(key) else { return false };
            let undelivered = session.busy.as_ref().map_or(0, |busy| busy.undelivered() as u64);
            let Some(subscriptions) = session.subscriptions.as_mut() else { return false };
            let Some(since) = subscriptions.over_soft_since else { return false };
            if matches!(lag(&limits, undelivered), Lag::None) {
                subscriptions.over_soft_since = None;
                return false;
            }
            let is_over = now >= since + patience;
            if is_over && !std::mem::replace(&mut subscriptions.is_dropped, true) {
                dropped.push((key, OVER_SOFT));
            }
            !is_over
        });
    }

    /// Closes the subscribers to a name that its server refused when it was asked anew.
    #[cold]
    pub(super) fn drop_refused(
        &mut self,
        sessions: &mut Slab<Session>,
        pool: u16,
        kind: SubscriptionKind,
        name: &[u8],
    ) {
        self.drop_subscribers(sessions, pool, kind, name, REFUSED);
    }

    fn drop_subscribers(
        &mut self,
        sessions: &mut Slab<Session>,
        pool: u16,
        kind: SubscriptionKind,
        name: &[u8],
        reason: &'static str,
    ) {
        let PubSub { pools, dropped, .. } = &mut self.pubsub;
        for key in pools[pool as usize].registry.subscribers(kind, name) {
            let subscriptions = sessions.get_mut(key).and_then(|it| it.subscriptions.as_mut());
            let Some(subscriptions) = subscriptions else { continue };
            if !std::mem::replace(&mut subscriptions.is_dropped, true) {
                dropped.push((key, reason));
            }
        }
    }

    /// Closes the subscribers that have missed a message.
    #[cold]
    fn drop_missing(&mut self, sessions: &mut Slab<Session>, missed: Missed) {
        for (pool, kind, channel) in missed.channels {
            self.drop_subscribers(sessions, pool, kind, &channel, OVERRUN);
            if kind == SubscriptionKind::Channel {
                let registry = &self.pubsub.pools[pool as usize].registry;
                let patterns: Vec<_> = registry.matching(&channel).cloned().collect();
                for pattern in patterns {
                    let kind = SubscriptionKind::Pattern;
                    self.drop_subscribers(sessions, pool, kind, &pattern, OVERRUN);
                }
            }
        }
        missed.pools.into_iter().for_each(|pool| self.drop_all(sessions, pool));
    }

    /// Closes every subscriber of a pool, because a message to some of them was lost.
    #[cold]
    fn drop_all(&mut self, sessions: &mut Slab<Session>, pool: u16) {
        for key in sessions.keys() {
            let Some(session) = sessions.get_mut(key) else { continue };
            let Some(subscriptions) = session.subscriptions.as_mut() else { continue };
            if session.pool == pool && subscriptions.is_subscriber() && !subscriptions.is_dropped {
                subscriptions.is_dropped = true;
                self.pubsub.dropped.push((key, OVERRUN));
            }
        }
    }
}
