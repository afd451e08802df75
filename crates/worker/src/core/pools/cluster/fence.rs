//! Slots that move to another group: commands for them are held, and those that were sent before end.
//!
//! A request in flight when the fence is followed may be at a server, or on its way there by any road:
//! sent again, in several steps, led by another pool. All of these have a client that waits for its
//! reply, so the fence is drained when every such client has had its replies. Blocking commands
//! would wait for longer. The server is asked to end them, and they are put aside until the slots
//! have a group again.

use crate::PoolPlan;
use crate::cluster::SlotsNow;
use crate::core::pools::cluster::state::{Retry, Waits};
use crate::core::request::RequestContext;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use keyway_base::Key;
use keyway_command::{Class, Flags, Handling, Verb};
use keyway_proxy::{Owner, Redirected, Session};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at a command that is put aside. A longer time delays it after the move.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Time until a request that is held is looked at again, if nothing ends the fence before. It is refused
/// when the fence has lasted for too long.
pub(in crate::core) const FENCE_LOOK: Duration = Duration::from_millis(50);

/// A fence that is not drained yet.
pub(super) struct Draining {
    pub(super) pool: u16,
    /// The clients that had requests in flight when it was followed, and wait for replies.
    clients: Vec<Key<Session>>,
}

/// The fate of a request for slots that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Fenced {
    /// It waits.
    Waits,
    /// It has waited for long enough, and gets an error.
    IsOver,
}

impl Core {
    /// Follows the map of slots and its fence, after `before`.
    #[cold]
    pub(super) fn follow_slots(&mut self, pool: u16, before: &Arc<SlotsNow>) {
        let Some(state) = self.plane.cluster_state(pool) else { return };
        let Some(slots) = &state.slots else { return };
        let (has_fence, is_other) = (slots.now().fence.is_some(), slots.now().map != before.map);
        if is_other {
            self.lose_moved_watches(pool, before);
        }
        self.plane.cluster.fences.retain(|draining| draining.pool != pool);
        if has_fence {
            self.hold_in_flight(pool);
            self.move_waiting(pool);
            let clients = self.in_flight_to(pool);
            self.plane.cluster.fences.push(Draining { pool, clients });
            self.look_at_fences();
        } else {
            if let Some(slots) = self.plane.cluster_state(pool).and_then(|it| it.slots.as_ref()) {
                slots.note_drained();
            }
            self.end_pauses_of(pool);
        }
    }

    /// Looks whether fences are drained.
    pub(super) fn look_at_fences(&mut self) {
        if self.plane.cluster.fences.is_empty() {
            return;
        }
        let mut fences = std::mem::take(&mut self.plane.cluster.fences);
        fences.retain_mut(|draining| {
            draining.clients.retain(|&key| self.is_undrained(key));
            let is_drained = draining.clients.is_empty();
            let state = self.plane.cluster_state(draining.pool);
            if let Some(slots) = state.and_then(|it| it.slots.as_ref()).filter(|_| is_drained) {
                slots.note_drained();
            }
            !is_drained
        });
        self.plane.cluster.fences.append(&mut fences);
    }

    /// Returns whether a client waits for a reply, and not because its command is put aside.
    fn is_undrained(&self, key: Key<Session>) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        let is_its = |retry: &Retry| {
            let owner = retry.redirected.exchange.owner;
            retry.waits.is_some()
                && matches!(owner, Owner::Session { session, .. } if session == key)
        };
        Self::has_requests_in_flight(session) && !self.plane.cluster.retries.iter().any(is_its)
    }

    /// Puts a blocking command aside that its server has ended, until its slot has a group.
    pub(super) fn wait_behind_fence(&mut self, from: ConnectionKey, redirected: Redirected) {
        let at = self.plane.clock.now + LOOK_EVERY;
        let connection = &mut self.links[from];
        connection.awaits_retry = true;
        let waits = Some(Waits {
            pool: connection.server_id.pool,
            protocol: connection.link.protocol(),
            keys: connection.awaited_keys.clone(),
        });
        let server = connection.server_id;
        let retry = Retry { at, from, server, is_private: true, redirected, waits, is_held: false };
        self.plane.put_aside(retry);
    }

    /// Has the transactions fail whose watched keys have moved: that counts as a change.
    fn lose_moved_watches(&mut self, pool: u16, before: &Arc<SlotsNow>) {
        let Core { sessions, links, plane } = self;
        let Some(state) = plane.cluster_state(pool) else { return };
        let Some(slots) = &state.slots else { return };
        let now = Arc::clone(&slots.now().map);
        let has_moved = |home: u16| now.group_of(home) != before.map.group_of(home);
        let watches = |session: &Session| {
            let watch = session.stateful.as_ref().and_then(|stateful| stateful.watch.as_ref());
            session.pool == pool && watch.is_some_and(|watch| has_moved(watch.home))
        };
        let lost: Vec<_> =
            sessions.iter().filter(|(_, it)| watches(it)).map(|(key, _)| key).collect();
        for key in lost {
            if let Some(session) = sessions.get_mut(key) {
                plane.lose_watch(links, key, session);
            }
        }
    }
}

impl Plane {
    /// Adds a command to those that are sent again later.
    fn put_aside(&mut self, retry: Retry) {
        self.note_cluster_deadline(retry.at);
        let cluster = &mut self.cluster;
        cluster.retries_due = match cluster.retries.is_empty() {
            true => retry.at,
            false => cluster.retries_due.min(retry.at),
        };
        cluster.retries.push(retry);
    }

    /// Returns a request whose pause is over, unless it is a blocking command behind a fence: that is
    /// put aside again.
    pub(super) fn past_fence(&mut self, mut retry: Retry) -> Option<Retry> {
        let pool = retry.server.pool;
        if retry.waits.is_none() || !self.is_fenced_command(pool, &retry.redirected.request) {
            return Some(retry);
        }
        retry.at = self.clock.now + LOOK_EVERY;
        self.put_aside(retry);
        None
    }

    /// Returns whether commands for a slot of a pool are held in this worker.
    fn is_slot_fenced(&self, pool: u16, slot: u16) -> bool {
        let slots = self.cluster_state(pool).and_then(|state| state.slots.as_ref());
        slots.and_then(|it| it.now().fence.as_ref()).is_some_and(|fence| fence.holds(slot))
    }

    /// Returns whether a command as it was sent has a key in a fenced slot.
    pub(super) fn is_fenced_command(&self, pool: u16, sent: &[u8]) -> bool {
        let slots = self.cluster_state(pool).and_then(|state| state.slots.as_ref());
        if slots.is_none_or(|slots| slots.now().fence.is_none()) {
            return false;
        }
        let mut is_fenced = false;
        let mut keys = Vec::new();
        self.each_command(sent, |request| {
            keys.clear();
            let is_known = request.keys(&mut keys).is_ok();
            let mut named = keys.iter().filter_map(|&at| request.args.get(at as usize));
            is_fenced |= is_known && named.any(|key| self.is_key_fenced(pool, key));
        });
        is_fenced
    }

    fn is_key_fenced(&self, pool: u16, key: &[u8]) -> bool {
        let slot = self.moving_home_of(pool, key);
        slot.is_some_and(|slot| self.is_slot_fenced(pool, slot))
    }

    /// Returns whether a command waits at a server for keys whose slots are fenced.
    pub(super) fn waits_behind_fence(&self, connection: &Connection) -> bool {
        let pool = connection.server_id.pool;
        let Some(state) = self.cluster_state(pool) else { return false };
        let Some(fence) = state.slots.as_ref().and_then(|it| it.now().fence.as_ref()) else {
            return false;
        };
        let Some(servers) = self.pools[usize::from(pool)].servers() else { return false };
        let slot = |hash: &u32| servers.ring().slot_of(*hash);
        connection.awaited_keys.iter().filter_map(slot).any(|slot| fence.holds(slot))
    }

    /// Returns what happens to a request for slots that move, if it is one. A write without keys may
    /// be about any slot.
    #[cold]
    pub(in crate::core) fn is_fenced(
        &mut self,
        pool: &PoolPlan,
        incoming: &RequestContext,
    ) -> Option<Fenced> {
        let RequestContext { session, request, .. } = incoming;
        let index = session.pool;
        if !pool.pause.is_fenced() {
            return None;
        }
        let slots = self.cluster_state(index)?.slots.as_ref()?;
        let is_over = slots.now().fence.as_ref()?.is_over(self.clock.now);
        let is_fenced = if request.command.verb == Verb::Exec {
            let stateful = session.stateful.as_ref();
            let home = stateful.and_then(|it| it.transaction.as_ref()?.home());
            home.is_some_and(|home| self.is_slot_fenced(index, home))
        } else {
            let mut keys = std::mem::take(&mut self.keys);
            keys.clear();
            let is_known = request.keys(&mut keys).is_ok();
            let mut named = keys.iter().filter_map(|&at| request.args.get(at as usize));
            let is_fenced = match is_known && !keys.is_empty() {
                true => named.any(|key| self.is_key_fenced(index, key)),
                false => {
                    let command = request.command;
                    let writes = command.flags.contains(Flags::WRITE)
                        || matches!(command.verb, Verb::Publish | Verb::Spublish)
                        || (command.class == Class::Script
                            && !command.flags.contains(Flags::READONLY));
                    writes && request.handling() != Handling::Local
                }
            };
            self.keys = keys;
            is_fenced
        };
        is_fenced.then_some(if is_over { Fenced::IsOver } else { Fenced::Waits })
    }

    /// Does the same for keys of a client of memcached.
    #[cold]
    pub(in crate::core) fn is_fenced_for<'k>(
        &self,
        pool: &PoolPlan,
        index: u16,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        pool.pause.is_fenced() && keys.any(|key| self.is_key_fenced(index, key))
    }
}
