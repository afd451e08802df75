//! The commands of a script as one request: nobody else sees the store between
//! them.
//!
//! Which keys a script touches is known only as it does. It holds the shards of
//! each command before that is executed, in whatever order, and lets go of them
//! at its end. So that nobody waits in a circle, there is one script at a time,
//! and whoever else needs several shards does not wait for one that is held
//! while it has others (`Store::lock_keys`, `Store::hold`).

use super::transaction::Footprint;
use crate::commands;
use crate::store::{Busy, Context, Mode, OUT_OF_MEMORY, Reserved, Store, Turn, args_len};
use keyway_command::{Flags, Request};
use keyway_memory::Holder;
use keyway_resp::reply;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The shards that a script holds. They are released when this is dropped.
pub struct ScriptHold {
    store: Arc<Store>,
    holder: Holder,
    /// In the order in which they were needed.
    shards: RefCell<Vec<u32>>,
    /// A transaction around it holds everything.
    is_inner: bool,
    /// The store may have become larger.
    grows: Cell<Option<Turn>>,
}

impl Store {
    /// Waits for its turn to run a script. Inside a transaction, everything
    /// must be held ([`Footprint::add_all`]).
    ///
    /// # Errors
    /// When the script that runs is busy.
    pub fn begin_script(self: &Arc<Self>) -> Result<ScriptHold, Busy> {
        let holder = Holder::of_thread();
        let is_inner = Holder::is_holding();
        if !is_inner {
            let guard = self.scripting.lock_unless_busy()?;
            self.scripting.keep(guard, holder);
            holder.set_holding(true);
        }
        Ok(ScriptHold {
            store: Arc::clone(self),
            holder,
            shards: RefCell::default(),
            is_inner,
            grows: Cell::new(None),
        })
    }
}

impl ScriptHold {
    /// Notes that the script has run for so long that others are not to wait for
    /// it any more.
    pub fn note_busy(&self, busy: Busy) {
        self.store.scripting.note_busy(Some(busy));
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Executes a command of the script, and appends its reply to `out`. One
    /// that may make the store larger is refused when there is no room for it,
    /// or in the quotas of its keys, unless the script `must_succeed`: it has
    /// written before, and is not to be left half done. Others are evicted for
    /// it then too. A script that goes on writing with nothing left to evict is
    /// refused all the same once memory is well above its bound.
    pub fn execute(
        &self,
        request: &Request<'_>,
        context: Context,
        must_succeed: bool,
        out: &mut Vec<u8>,
    ) {
        if !self.store.has_database(context, out) {
            return;
        }
        let turn = Turn::of(context).with(Mode::SCRIPTED);
        let mut room = Reserved::nothing(&self.store);
        if request.command.flags.contains(Flags::DENYOOM) {
            let len = args_len(request);
            // Earlier commands of the script may have discarded memory.
            self.store.free_unused(len);
            match self.store.reserve(len, turn) {
                Some(reserved) => room = reserved,
                None if must_succeed && self.store.may_exceed(len) => {}
                None => return reply::error(out, OUT_OF_MEMORY),
            }
            self.grows.set(Some(turn));
        }
        if !self.is_inner {
            let mut footprint = Footprint::default();
            footprint.add(&self.store, request);
            self.hold(footprint);
        }
        if self.store.quotas.is_empty() {
            return commands::execute(&self.store, request, turn, None, out);
        }
        if !must_succeed {
            return self.store.execute_within_quotas(request, turn, None, out);
        }
        commands::execute(&self.store, request, turn, None, out);
        if request.command.flags.contains(Flags::WRITE) {
            self.store.settle_quotas(request, turn);
        }
        drop(room);
    }

    /// Holds the whole store from now on.
    pub fn hold_everything(&self) {
        if !self.is_inner {
            let mut footprint = Footprint::default();
            footprint.add_all();
            self.hold(footprint);
        }
    }

    fn hold(&self, footprint: Footprint) {
        let mut shards = self.shards.borrow_mut();
        for index in footprint.settle(&self.store) {
            let lock = self.store.lock_of(index as usize);
            if !lock.is_held() {
                lock.hold(self.holder);
                shards.push(index);
            }
        }
    }
}

impl Drop for ScriptHold {
    fn drop(&mut self) {
        self.store.scripting.note_busy(None);
        if self.is_inner {
            return;
        }
        if self.store.effects.is_on() {
            self.store.effects.close_unit();
        }
        self.holder.set_holding(false);
        self.store.release(self.shards.get_mut(), self.holder);
        self.store.scripting.release(self.holder);
        self.store.events.resume();
        if let Some(turn) = self.grows.get() {
            // This covers memory that the estimates missed, such as a table that grew.
            self.store.make_room(0, turn);
        }
    }
}
