//! Several requests as one: nobody else sees the store between them.
//!
//! Which shards they need is known from their keys before the first begins. All
//! of these are held, taken in ascending order as every request takes its own,
//! and the requests then find them as if they were free .

use crate::commands::{self, FLAGS_COMMAND};
use crate::shards::Shard;
use crate::store::{Busy, Context, OUT_OF_MEMORY, Reserved, Store, Turn, args_len};
use keyway_command::{Args, Flags, Request};
use keyway_memory::{Guard, Holder, Lock};
use keyway_resp::reply;

/// What the requests of a transaction need.
#[derive(Debug, Default)]
pub struct Footprint {
    /// Shards of their keys, in any order.
    shards: Vec<u32>,
    /// They may need any shard.
    is_all: bool,
    /// Bytes of those that may make the store larger; `None` without any.
    room: Option<u64>,
    /// Room for one request's keys.
    keys: Vec<u32>,
}

/// There is no room in the store for what a request would write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl OutOfMemory {
    /// Redis's words for it, error code included.
    pub const TEXT: &'static str = crate::store::OUT_OF_MEMORY;
}

/// Why nothing is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for what the requests would write.
    OutOfMemory,
    /// A script that runs for long holds what they need.
    Busy(Busy),
    /// The store is being loaded.
    Loading,
    /// The log of the store takes no writes, or not yet.
    NotLogged,
    /// The store is a replica, and the request may write.
    ReadOnly,
    /// The store is a replica whose link is down, and which is not to show old data.
    Stale,
}

impl Refused {
    /// Redis's words for it, error code included.
    pub const fn text(self) -> &'static str {
        match self {
            Self::OutOfMemory => OutOfMemory::TEXT,
            Self::Busy(busy) => busy.text(),
            Self::Loading => "LOADING Redis is loading the dataset in memory",
            Self::NotLogged => {
                "MISCONF the log of this pool takes no writes: its disk fails, or its first base \
                 is being written; the log of the process says which"
            }
            Self::ReadOnly => "READONLY You can't write against a read only replica.",
            Self::Stale => {
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
            }
        }
    }
}

impl From<Busy> for Refused {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

impl Footprint {
    /// Adds what `request`, of which the store serves the command, needs.
    pub fn add(&mut self, store: &Store, request: &Request<'_>) {
        if request.command.flags.contains(Flags::DENYOOM) {
            self.add_room(args_len(request));
        }
        let mut keys = std::mem::take(&mut self.keys);
        let args = &request.args;
        match request.keys(&mut keys) {
            Ok(()) if !keys.is_empty() && !commands::reads_others(request) => {
                keys.iter().for_each(|key| self.add_key(store, &args[*key as usize]));
            }
            // Without keys it is about all of them; with wrong ones it is
            // refused, by its command.
            _ => self.add_all(),
        }
        self.keys = keys;
    }

    /// Adds a command of a stream of effects ([`Store::apply`]); one that the store does not have
    /// needs nothing.
    pub fn add_effect(&mut self, store: &Store, args: Args<'_>) {
        if args.get(0).is_some_and(|name| name.eq_ignore_ascii_case(FLAGS_COMMAND)) {
            args.get(1).into_iter().for_each(|key| self.add_key(store, key));
        } else if let Ok(request) = Request::resolve(args)
            && store.serves(request.command.verb)
        {
            self.add(store, &request);
        }
    }

    /// Adds one key.
    pub fn add_key(&mut self, store: &Store, key: &[u8]) {
        let (_, shard) = store.locate(key);
        self.shards.push(shard as u32);
    }

    /// Adds a request that may make the store larger by so many bytes.
    pub(crate) fn add_room(&mut self, bytes: u64) {
        self.room = Some(self.room.unwrap_or_default().saturating_add(bytes));
    }

    /// Makes it that of effects, for which no room is made.
    #[must_use]
    pub fn of_effects(self) -> Self {
        Self { room: None, ..self }
    }

    /// Adds everything.
    pub fn add_all(&mut self) {
        self.is_all = true;
    }

    /// The shards, ascending and each once.
    pub(crate) fn settle(mut self, store: &Store) -> Vec<u32> {
        if self.is_all {
            return (0..store.shard_count() as u32).collect();
        }
        self.shards.sort_unstable();
        self.shards.dedup();
        self.shards
    }
}

impl Store {
    /// Returns whether there is room for what a request would write.
    pub(crate) fn may_execute(&self, request: &Request<'_>, context: Context) -> bool {
        !request.command.flags.contains(Flags::DENYOOM) || self.has_room_for(request, context)
    }

    /// Returns whether there is room for a request that is to be executed later:
    /// evicts for it as if it were executed now.
    pub fn has_room_for(&self, request: &Request<'_>, context: Context) -> bool {
        self.config().memory_max == 0 || self.make_room(args_len(request), Turn::of(context))
    }

    /// Holds what `footprint` says, so that requests are executed as one.
    ///
    /// # Errors
    /// When there is no room for what they would write, or what they need is held
    /// by a script that is busy. Nothing is held then.
    ///
    /// # Panics
    /// When this thread holds something already: it would wait for itself.
    pub fn hold(&self, footprint: Footprint, context: Context) -> Result<Held<'_>, Refused> {
        assert!(!Holder::is_holding(), "one transaction at a time");
        let turn = Turn::of(context);
        let grows = footprint.room.is_some();
        let room = match footprint.room {
            None => Reserved::nothing(self),
            // With most of it held, nothing could be evicted.
            Some(room) => self
                .reserve(room, turn)
                .ok_or_else(|| self.busy().map_or(Refused::OutOfMemory, Refused::Busy))?,
        };
        // With all shards, there would always be one that some script holds.
        let is_all = footprint.is_all;
        let mut scripting = is_all.then(|| self.scripting.lock_unless_busy()).transpose()?;
        let shards = footprint.settle(self);
        let holder = Holder::of_thread();
        self.hold_shards(&shards, holder, |lock, count| {
            // Who had none yet only waits for that one.
            if count > 0 && scripting.is_none() {
                scripting = Some(self.scripting.lock_unless_busy()?);
            }
            self.scripting.wait_for_holder(lock)
        })?;
        holder.set_holding(true);
        // A script inside is the one that runs.
        let scripting = scripting.filter(|_| is_all);
        Ok(Held { store: self, shards, holder, grows, turn, room, scripting })
    }

    /// Holds what `footprint` says, unless that would have to wait for a script;
    /// makes no room.
    pub(crate) fn hold_unless_script(&self, footprint: Footprint, turn: Turn) -> Option<Held<'_>> {
        assert!(!Holder::is_holding(), "one transaction at a time");
        let shards = footprint.settle(self);
        let holder = Holder::of_thread();
        let wait = |lock: &Lock<Shard>, _| {
            let mut spins = 0;
            while lock.holder().is_some() {
                if self.has_script() {
                    return Err(());
                }
                keyway_memory::pause(&mut spins);
            }
            Ok(())
        };
        self.hold_shards(&shards, holder, wait).ok()?;
        holder.set_holding(true);
        let room = Reserved::nothing(self);
        Some(Held { store: self, shards, holder, grows: false, turn, room, scripting: None })
    }

    pub(crate) fn release(&self, shards: &[u32], holder: Holder) {
        shards.iter().for_each(|index| self.lock_of(*index as usize).release(holder));
    }

    /// Holds shards that are in ascending order, as `Store::lock_keys` locks
    /// them. While another thread holds one, nothing is held: `wait` is told how many
    /// were, and waits for that one.
    fn hold_shards<E>(
        &self,
        shards: &[u32],
        holder: Holder,
        mut wait: impl FnMut(&Lock<Shard>, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut count = 0;
        while let Some(index) = shards.get(count) {
            let lock = self.lock_of(*index as usize);
            if lock.hold_unless_held(holder) {
                count += 1;
                continue;
            }
            self.release(&shards[..count], holder);
            wait(lock, count)?;
            count = 0;
        }
        Ok(())
    }
}

/// Shards that one thread holds until this is dropped.
pub struct Held<'a> {
    store: &'a Store,
    /// Ascending.
    shards: Vec<u32>,
    holder: Holder,
    /// What was executed may have made the store larger.
    grows: bool,
    turn: Turn,
    /// Room for the requests that are still to be executed.
    room: Reserved<'a>,
    /// With everything, no other script begins.
    scripting: Option<Guard<'a, ()>>,
}

impl Held<'_> {
    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Returns whether every shard is held.
    pub(crate) fn has_everything(&self) -> bool {
        self.shards.len() == self.store.shard_count()
    }

    /// Executes a request that was added to the footprint, and appends its
    /// reply to `out`. A request that may make the store larger is refused in its
    /// place if earlier requests left memory well above its bound and nothing can
    /// be evicted.
    pub fn execute(&self, request: &Request<'_>, context: Context, out: &mut Vec<u8>) {
        if !self.store.has_database(context, out) {
            return;
        }
        let turn = Turn::of(context);
        if !request.command.flags.contains(Flags::DENYOOM) {
            return self.execute_admitted(request, turn, out);
        }
        let len = args_len(request);
        match self.has_room_beside_reserved(len, turn) {
            true => self.execute_admitted(request, turn, out),
            false => reply::error(out, OUT_OF_MEMORY),
        }
        self.room.release(len);
        // What the estimate missed: a value made out of others may be far longer
        // than its request.
        self.store.make_room(0, turn);
    }

    fn execute_admitted(&self, request: &Request<'_>, turn: Turn, out: &mut Vec<u8>) {
        match self.store.quotas.is_empty() {
            true => commands::execute(self.store, request, turn, None, out),
            false => self.store.execute_within_quotas(request, turn, None, out),
        }
    }

    /// Brings memory down to its bound, with what is reserved for the requests to come,
    /// before a request of `len` bytes. Frees what earlier requests discarded, and
    /// evicts from shards that nobody else holds. Returns whether the request may go ahead.
    /// As its room was made when the transaction began, it may go ahead with memory a little
    /// above the bound.
    #[inline]
    fn has_room_beside_reserved(&self, len: u64, turn: Turn) -> bool {
        self.store.free_unused(0);
        self.store.make_room(0, turn) || self.store.may_exceed(len)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.store.effects.is_on() {
            self.store.effects.close_unit();
        }
        self.holder.set_holding(false);
        self.store.release(&self.shards, self.holder);
        if self.scripting.take().is_some() {
            // A script may have run inside.
            self.store.events.resume();
        }
        self.room.release(u64::MAX);
        if self.grows {
            // What the estimate missed, such as a table that grew.
            self.store.make_room(0, self.turn);
        }
    }
}
