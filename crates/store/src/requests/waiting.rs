//! Clients of all workers that wait for an element of a key, in the order in which they came.
//!
//! ```text
//!  BLPOP finds nothing ──► entered, with the shards of its keys held
//!  a change of the key ──► noted as ready, with its shard locked
//!  the worker that made it ──► serves who waits: first come, first served
//! ```
//! The worker that changed the key executes the commands that wait for it, right after its own
//! request, and hands out the replies. So no client waits for another worker's turn, and a request
//! that a client sends behind its push finds the element taken, as with Redis. A client that comes
//! while others wait for a key stands behind them, whether or not the key has something by now.
//!
//! The worker that serves does not wait for a script that holds shards of a waiting command. The
//! key is put off until the script has ended, and the worker of the script then serves.
//!
//! A waiter is over once: it is served, or it is cancelled by its own worker.

use super::transaction::{Footprint, OutOfMemory};
use crate::commands::{self, Found, How};
use crate::store::{Context, Lane, Patience, Store, Turn, Waiter, Who};
use keyway_base::Clock;
use keyway_command::Request;
use keyway_memory::Lock;
use keyway_resp::reply;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The result of a command that may wait.
pub enum Waited {
    /// It is answered.
    Answered,
    /// It waits, for so many milliseconds; 0 for ever.
    Waits(Arc<Waiter>, Patience),
}

/// A script holds what a command needs that is to be served.
struct HeldByScript;

/// The keys that a command waits for.
fn keys_of<'a>(request: &Request<'a>) -> Vec<&'a [u8]> {
    let mut keys = Vec::new();
    if request.keys(&mut keys).is_err() {
        keys.clear();
    }
    if commands::waits_for_first(request.command.verb) {
        keys.truncate(1);
    }
    keys.iter().filter_map(|key| request.args.get(*key as usize)).collect()
}

impl Store {
    /// Makes an attempt at a command that may wait; whether it is answered.
    pub fn attempt(&self, request: &Request<'_>, context: Context, out: &mut Vec<u8>) -> bool {
        if !self.has_database(context, out) {
            return true;
        }
        if !self.may_execute(request, context) {
            reply::error(out, OutOfMemory::TEXT);
            return true;
        }
        let turn = Turn::of(context);
        let (found, _) = commands::attempt(self, request, turn, How::Newcomer, out);
        self.settle_quotas(request, turn);
        found == Found::Answered
    }

    /// Makes an attempt at a command that may wait, and lets it wait if it finds nothing: nothing
    /// comes between the two. [`Store::serve_ready`] of any worker serves it later, unless
    /// [`Store::cancel`] ends it.
    pub fn attempt_or_wait(
        &self,
        request: &Request<'_>,
        context: Context,
        who: Who,
        out: &mut Vec<u8>,
    ) -> Waited {
        let mut footprint = Footprint::default();
        footprint.add(self, request);
        // Before the shards are held: who changes a key later locks it later,
        // and knows that somebody waits.
        self.events.count_waiting(1);
        let held = match self.hold(footprint, context) {
            Ok(held) => held,
            Err(refused) => {
                self.events.count_waiting(-1);
                reply::error(out, refused.text());
                return Waited::Answered;
            }
        };
        let lane = commands::lane_of(request.command.verb);
        let keys = keys_of(request);
        let turn = Turn::of(context);
        // Before the attempt, which leaves alone what others wait for: while the
        // shards are held they may become fewer, not more.
        let is_left = |key: &&[u8]| {
            self.waiters.has_in(context.database, lane, key)
                && commands::may_serve(self, request, turn, key)
        };
        let left: Vec<&[u8]> = keys.iter().copied().filter(is_left).collect();
        let (found, patience) = commands::attempt(self, request, turn, How::Newcomer, out);
        if found == Found::Answered {
            drop(held);
            self.settle_quotas(request, turn);
            self.events.count_waiting(-1);
            return Waited::Answered;
        }
        let waiter = Arc::new(self.waiter(request, context, who, &keys));
        self.waiters.enter(&waiter);
        // Waiters before it may be served by other keys meanwhile, or wait for another type. They
        // then leave the elements to this one.
        for key in left {
            self.events.note_ready(who.worker, context.database, key);
        }
        Waited::Waits(waiter, patience)
    }

    /// Executes SAVE: begins a snapshot, whose end the client waits for, or refuses to.
    pub fn save_or_wait(
        &self,
        request: &Request<'_>,
        context: Context,
        who: Who,
        out: &mut Vec<u8>,
    ) -> Waited {
        self.events.count_waiting(1);
        let waiter = Arc::new(self.waiter(request, context, who, &[]));
        match self.begin_snapshot_for(&waiter, context.clock.unix_millis()) {
            Ok(()) => Waited::Waits(waiter, 0),
            Err(refusal) => {
                self.events.count_waiting(-1);
                reply::error(out, refusal.text());
                Waited::Answered
            }
        }
    }

    /// Has a client wait for what another thread does, which ends by [`Store::cancel`].
    pub fn wait_apart(&self, request: &Request<'_>, context: Context, who: Who) -> Arc<Waiter> {
        self.events.count_waiting(1);
        Arc::new(self.waiter(request, context, who, &[]))
    }

    /// Answers who waited for a snapshot that has ended: each reply is given to `served`.
    pub fn serve_saved(&self, mut served: impl FnMut(&Waiter, Vec<u8>)) {
        let waiters = self.take_saved();
        if waiters.is_empty() {
            return;
        }
        let status = self.snapshot_status();
        let mut reply = Vec::new();
        match status.last_failed {
            true => reply::error(&mut reply, &format!("ERR {}", status.failure)),
            false => reply::simple(&mut reply, "OK"),
        }
        for waiter in waiters {
            if self.cancel(&waiter) {
                served(&waiter, reply.clone());
            }
        }
    }

    fn waiter(&self, request: &Request<'_>, context: Context, who: Who, keys: &[&[u8]]) -> Waiter {
        let (group, (frame, ranges)) = commands::settle(self, request, Turn::of(context));
        Waiter {
            who,
            ticket: self.waiters.next_ticket.fetch_add(1, Ordering::Relaxed),
            database: context.database,
            protocol: context.protocol,
            command: request.command,
            lane: commands::lane_of(request.command.verb),
            group: group.map(Into::into),
            frame,
            ranges,
            keys: keys.iter().map(|key| (*key).into()).collect(),
            is_over: Lock::new(false),
        }
    }

    /// Ends the waiting of a command; whether it still did, or has been served.
    pub fn cancel(&self, waiter: &Waiter) -> bool {
        let mut is_over = waiter.is_over.lock();
        let waited = !std::mem::replace(&mut *is_over, true);
        if waited {
            self.waiters.remove(waiter);
            self.events.count_waiting(-1);
        }
        waited
    }

    /// Returns whether a command still waits.
    pub fn is_waiting(&self, waiter: &Waiter) -> bool {
        !*waiter.is_over.lock()
    }

    /// Serves who waits for the keys that a worker's requests have made ready.
    /// Each reply is given to `served`, which may take the events of it. To be
    /// called after each request while [`Store::notifies`], when nothing is
    /// held.
    pub fn serve_ready(
        &self,
        worker: u16,
        clock: Clock,
        mut served: impl FnMut(&Arc<Waiter>, Vec<u8>),
    ) {
        while let Some((database, key)) = self.events.take_ready(worker) {
            if self.serve_key(database, &key, worker, clock, &mut served).is_err() {
                self.events.put_off(database, key);
                // The thread that ends a script looks afterwards for keys that were put off.
                if !self.has_script() {
                    self.events.resume();
                }
            }
        }
    }

    /// Serves who waits for a key, as far as it goes round.
    ///
    /// # Errors
    /// When a script holds what the next of them needs.
    fn serve_key(
        &self,
        database: u32,
        key: &[u8],
        worker: u16,
        clock: Clock,
        served: &mut impl FnMut(&Arc<Waiter>, Vec<u8>),
    ) -> Result<(), HeldByScript> {
        for lane in Lane::ALL {
            let mut from = 0;
            while let Some(waiter) = self.waiters.next((database, lane, from), key) {
                match self.serve(&waiter, key, worker, clock, served)? {
                    // It is not there any more.
                    None | Some(Found::Answered) => {}
                    Some(Found::Nothing) => break,
                    Some(Found::NotForIt) => from = waiter.ticket + 1,
                }
            }
        }
        Ok(())
    }

    /// Makes an attempt at the command of a waiter for which a key is ready;
    /// nothing if another worker has served it, or its own has cancelled it,
    /// since it was found.
    fn serve(
        &self,
        waiter: &Arc<Waiter>,
        key: &[u8],
        worker: u16,
        clock: Clock,
        served: &mut impl FnMut(&Arc<Waiter>, Vec<u8>),
    ) -> Result<Option<Found>, HeldByScript> {
        let mut is_over = waiter.is_over.lock();
        if *is_over {
            return Ok(None);
        }
        let (database, protocol) = (waiter.database, waiter.protocol);
        let turn = Turn::of(Context { database, clock, protocol, worker });
        let mut out = Vec::new();
        let (found, _) = waiter.with_request(|request| {
            // The attempt looks at this key alone, and may move what is there to another one.
            let mut footprint = Footprint::default();
            match commands::waits_for_first(request.command.verb) {
                true => footprint.add(self, request),
                false => footprint.add_key(self, key),
            }
            let held = self.hold_unless_script(footprint, turn).ok_or(HeldByScript)?;
            let attempted = commands::attempt(self, request, turn, How::Ready(key), &mut out);
            drop(held);
            if attempted.0 == Found::Answered {
                self.settle_quotas(request, turn);
            }
            Ok(attempted)
        })?;
        if found == Found::Answered {
            *is_over = true;
            // Until here, who comes stands behind it.
            self.waiters.remove(waiter);
            drop(is_over);
            self.events.count_waiting(-1);
            served(waiter, out);
        }
        Ok(Some(found))
    }

    /// Commands that wait now, for tests.
    pub fn waiting_len(&self) -> usize {
        self.events.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreConfig;
    use crate::testing::with_request;
    use keyway_resp::Protocol;
    use std::sync::mpsc;
    use std::time::Duration;

    const WATCHDOG: Duration = Duration::from_secs(20);

    fn context(worker: u16) -> Context {
        Context { database: 0, clock: Clock::default(), protocol: Protocol::default(), worker }
    }

    fn wait(store: &Store, client: u64, line: &str) -> Arc<Waiter> {
        let who = Who { client, worker: 0, is_noloop: false };
        with_request(line, |request| {
            match store.attempt_or_wait(request, context(0), who, &mut Vec::new()) {
                Waited::Waits(waiter, _) => waiter,
                Waited::Answered => panic!("{line} does not wait"),
            }
        })
    }

    /// Returns the clients that are served after a worker's request.
    fn served(store: &Store, worker: u16, line: &str) -> Vec<u64> {
        with_request(line, |it| store.execute(it, context(worker), &mut Vec::new()));
        ready(store, worker)
    }

    /// Returns the clients that a worker can serve.
    fn ready(store: &Store, worker: u16) -> Vec<u64> {
        let mut told = Vec::new();
        store.serve_ready(worker, Clock::default(), |waiter, _| told.push(waiter.who.client));
        told
    }

    /// Returns the result of `work` on a thread of its own, which must not wait.
    fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            scope.spawn(move || done.send(work()));
            is_done.recv_timeout(WATCHDOG).expect("it stands still")
        })
    }

    #[test]
    fn a_newcomer_has_only_those_keys_looked_at_that_others_leave_to_it() {
        let store = Store::new(StoreConfig { shards: Some(8), ..Default::default() });
        let execute = |line: &str| {
            with_request(line, |it| store.execute(it, context(0), &mut Vec::new()));
            ready(&store, 0);
        };
        execute("XADD read 1-1 a b");
        execute("XGROUP CREATE read g $");
        let commands = [
            "BLPOP a b c 0",
            "BZPOPMIN a b c 0",
            "BLMOVE a b LEFT LEFT 0",
            "XREAD BLOCK 0 STREAMS a read $ $",
            "XREADGROUP GROUP g one BLOCK 0 STREAMS read >",
        ];
        for command in commands {
            let waiters = [1, 2, 3].map(|client| wait(&store, client, command));
            assert!(!store.notifies(), "{command}: there is nothing to look at");
            assert!(waiters.iter().all(|waiter| store.cancel(waiter)));
        }
        let earlier = wait(&store, 1, "BZPOPMIN a list 0");
        execute("RPUSH list 1");
        let late = wait(&store, 2, "BLPOP a list 0");
        assert_eq!(ready(&store, 0), [2], "the earlier one waits for another type");
        assert!(store.cancel(&earlier) && !store.cancel(&late));
    }

    #[test]
    fn who_serves_does_not_wait_for_a_script_after_which_its_worker_serves() {
        let store = Arc::new(Store::new(StoreConfig { shards: Some(8), ..Default::default() }));
        let shard_of = |key: &str| store.locate(key.as_bytes()).1;
        let free = |name: &str| {
            let keys = (0..).map(|nth| format!("{name}{nth}"));
            keys.into_iter().find(|key| shard_of(key) != shard_of("held")).expect("a key")
        };
        let (from, other) = (free("from"), free("other"));
        wait(&store, 1, &format!("BLMOVE {from} held LEFT LEFT 0"));
        wait(&store, 2, &format!("BLPOP {from} 0"));
        let late = wait(&store, 3, &format!("BLMOVE {other} held LEFT LEFT 0"));
        assert_eq!(ready(&store, 0), [], "nothing is there yet");
        let script = store.begin_script().expect("none is busy");
        with_request("GET held", |it| script.execute(it, context(9), false, &mut Vec::new()));
        elsewhere(|| {
            for line in [format!("RPUSH {from} a"), format!("RPUSH {from} b")] {
                assert_eq!(served(&store, 1, &line), [], "it needs what the script holds");
            }
            assert_eq!(served(&store, 1, &format!("RPUSH {other} a")), []);
            assert!(store.cancel(&late), "its time is up meanwhile");
            assert!(!store.notifies(), "nobody looks again before the script ends");
            // Pages of nodes are those of all stores, and other tests leave some.
            while store.tick(Clock::default()) {}
            assert!(!store.notifies(), "upkeep does not look again either");
            let alone = free("alone");
            wait(&store, 4, &format!("BLPOP {alone} 0"));
            assert_eq!(served(&store, 1, &format!("RPUSH {alone} a")), [4]);
        });
        drop(script);
        assert!(store.notifies());
        assert_eq!(ready(&store, 9), [1, 2], "in the order of coming");
        assert_eq!((store.waiting_len(), store.notifies()), (0, false));
    }

    #[test]
    fn who_serves_does_not_wait_for_a_script_within_a_transaction() {
        let store = Arc::new(Store::new(StoreConfig { shards: Some(8), ..Default::default() }));
        wait(&store, 1, "BLPOP k 0");
        with_request("RPUSH k a", |it| store.execute(it, context(1), &mut Vec::new()));
        let mut footprint = Footprint::default();
        footprint.add_all();
        let held = store.hold(footprint, context(9)).expect("room");
        let script = store.begin_script().expect("none is busy");
        elsewhere(|| assert_eq!(ready(&store, 1), []));
        drop(script);
        drop(held);
        assert_eq!(ready(&store, 9), [1]);
    }

    #[test]
    fn what_was_put_off_as_its_script_ended_is_seen_to_in_upkeep() {
        let store = Arc::new(Store::new(StoreConfig { shards: Some(8), ..Default::default() }));
        wait(&store, 1, "BLPOP k 0");
        with_request("RPUSH k a", |it| store.execute(it, context(1), &mut Vec::new()));
        let (database, key) = store.events.take_ready(1).expect("it is ready");
        store.events.put_off(database, key);
        assert!(!store.notifies());
        let _ = store.tick(Clock::default());
        assert_eq!(ready(&store, 7), [1]);
    }
}
