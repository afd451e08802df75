use crate::collections::WrongType;
use crate::items::{Encoding, Item, Kind, Marks, Meta, Owned, Position, SlotMut, Times};
use crate::shards::{Shard, Space};
use crate::store::{Mode, Store, StreamedSet, Turn};
use keyway_base::KeyspaceEvents;

impl Turn {
    #[inline]
    pub(super) fn note_use(self, store: &Store, slot: &mut SlotMut<'_>) {
        if store.counts_uses() {
            slot.count_use();
        }
        slot.with_item(|item| item.set_access(self.access()));
    }

    /// Notes a use of the item that reads its value.
    #[inline]
    pub(super) fn note_read(self, store: &Store, slot: &mut SlotMut<'_>) {
        if store.counts_uses() {
            slot.count_use();
        }
        slot.with_item(|item| item.set_read(self.access()));
    }
}

/// Where a key is, if it exists: its locked shard with the shard's index, the index of its space in
/// shards, and its hash.
pub(super) struct Located<'a> {
    pub(super) shard: &'a mut Shard,
    pub(super) shard_index: usize,
    pub(super) database: usize,
    pub(super) hash: u32,
}

/// The facts about an item that do not depend on its type.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a>(pub(super) Item<'a>);

impl Facts<'_> {
    pub(crate) fn kind(&self) -> Kind {
        self.0.encoding().kind()
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.0.encoding()
    }

    /// See [`Item::expiry`].
    pub(crate) fn expiry(&self) -> Option<u64> {
        self.0.expiry()
    }

    /// See [`Item::access`].
    pub(crate) fn access(&self) -> u32 {
        self.0.access()
    }
}

/// One key of one database, with the lock of its shard held. The key may be missing. Every command
/// uses keys through an entry, which accounts for memory, expiry and eviction.
pub(crate) struct Entry<'a> {
    pub(super) store: &'a Store,
    pub(super) shard: &'a mut Shard,
    pub(super) shard_index: usize,
    /// The index of the key's space in shards. SWAPDB changes it.
    pub(super) database: usize,
    pub(super) key: &'a [u8],
    pub(super) hash: u32,
    pub(super) turn: Turn,
    pub(super) position: Option<Position>,
}

impl<'a> Entry<'a> {
    /// Looks up `key`, and removes its item if that has expired. `shard` is the shard of `key`, and
    /// `shard_index` its index.
    #[inline]
    pub(crate) fn locate(
        store: &'a Store,
        shard: &'a mut Shard,
        shard_index: usize,
        turn: Turn,
        key: &'a [u8],
        hash: u32,
    ) -> Self {
        let database = store.space_index(turn.database, key);
        let located = Located { shard, shard_index, database, hash };
        let table = &located.shard.space(database).table;
        let position = table.find(hash, |item, _| item.key() == key);
        Self::at(store, located, turn, key, position)
    }

    /// Returns the entry of a key that was looked up before. An expired item is removed.
    pub(super) fn at(
        store: &'a Store,
        located: Located<'a>,
        turn: Turn,
        key: &'a [u8],
        position: Option<Position>,
    ) -> Self {
        let Located { shard, shard_index, database, hash } = located;
        let mut entry = Self { store, shard, shard_index, database, key, hash, turn, position };
        if let Some(position) = position {
            let table = &entry.space().table;
            if table.marks(position).volatile {
                entry.keep_time(position);
            }
        }
        entry
    }

    /// Lets a snapshot write the item that the key had at the cut. The caller calls this before it
    /// changes, replaces, removes or creates the item.
    #[inline]
    pub(super) fn before_change(&mut self) {
        let (database, hash, now_millis) = (self.database, self.hash, self.turn.now_millis);
        self.store.before_change(self.shard, self.shard_index, database, hash, now_millis);
    }

    #[inline]
    pub(super) fn space(&mut self) -> &mut Space {
        self.shard.space(self.database)
    }

    /// Removes the item, or fields of it, if they have expired. A replica only hides them until its
    /// primary removes them.
    fn keep_time(&mut self, position: Position) {
        let now_millis = self.turn.now_millis;
        let item = self.space().table.item(position);
        if item.is_expired(now_millis) {
            match self.store.is_replica() {
                true => self.position = None,
                false => self.expire(),
            }
        } else if item.encoding().is_timed() {
            self.drop_some_hidden();
        }
    }

    #[cold]
    fn expire(&mut self) {
        self.remove();
        self.shard.counts.expired += 1;
        self.notify(KeyspaceEvents::EXPIRED, "expired");
    }

    /// Notes a keyspace event of the key, and counts the change.
    #[inline]
    pub(crate) fn notify(&self, class: KeyspaceEvents, name: &'static str) {
        if class != KeyspaceEvents::EXPIRED {
            self.shard.count_change();
        }
        self.store.note_event(self.turn, class, name, self.key);
    }

    #[inline]
    pub(crate) fn exists(&self) -> bool {
        self.position.is_some()
    }

    #[inline]
    pub(super) fn any_item(&mut self) -> Option<Item<'_>> {
        let position = self.position?;
        Some(self.space().table.item(position))
    }

    /// Returns the item for a command that reads it. A hit or a miss is counted, and a use. The
    /// read may move the expiry of the item.
    #[inline]
    pub(crate) fn read(&mut self) -> Option<Facts<'_>> {
        if self.count_read() && self.store.config().after_read.is_some() && !self.store.is_replica()
        {
            self.put_off_expiry();
        }
        self.item()
    }

    /// Returns the item as [`Entry::read`] does, but keeps its expiry.
    #[inline]
    pub(crate) fn read_only(&mut self) -> Option<Facts<'_>> {
        self.count_read();
        self.item()
    }

    /// Counts a hit and a use, or a miss. Returns whether it was a hit.
    #[inline]
    fn count_read(&mut self) -> bool {
        match self.position {
            Some(position) => {
                self.shard.counts.hits += 1;
                self.note_read(position);
            }
            None => self.count_miss(),
        }
        self.position.is_some()
    }

    #[inline]
    fn count_miss(&mut self) {
        self.shard.counts.misses += 1;
        self.store.note_notice(self.turn, KeyspaceEvents::MISS, "keymiss", self.key);
    }

    /// Moves the expiry of an item that is read, if the item has one and little time is left. No
    /// client is told, because the value stays the same.
    #[cold]
    fn put_off_expiry(&mut self) {
        let (Some(after_read), now_millis) = (self.store.config().after_read, self.turn.now_millis)
        else {
            return;
        };
        let expiry = self.times().expiry;
        if expiry.is_some_and(|expiry| after_read.puts_off(expiry.saturating_sub(now_millis))) {
            let expiry = now_millis.checked_add(after_read.span_millis);
            self.set_expiry(expiry);
            if self.store.effects.is_on()
                && let Some(millis) = expiry
            {
                let millis = millis.to_string();
                let words: [&[u8]; 3] = [b"PEXPIREAT", self.key, millis.as_bytes()];
                self.store.tell_of_key(self.turn.database, self.key, &words);
            }
        }
    }

    /// Returns the string for a command that reads it. A hit or a miss is counted, as in
    /// [`Entry::read`].
    #[inline]
    pub(crate) fn read_text(&mut self) -> Result<Option<Item<'_>>, WrongType> {
        self.read();
        self.text()
    }

    /// Returns the string. Nothing is counted.
    #[inline]
    pub(crate) fn text(&mut self) -> Result<Option<Item<'_>>, WrongType> {
        match self.any_item() {
            Some(item) if !item.encoding().is_text() => Err(WrongType),
            item => Ok(item),
        }
    }

    /// Returns the facts about the item. A hit or a miss is counted, but no use.
    pub(crate) fn peek(&mut self) -> Option<Facts<'_>> {
        match self.position {
            Some(_) => self.shard.counts.hits += 1,
            None => self.count_miss(),
        }
        self.item()
    }

    #[inline]
    pub(super) fn note_use(&mut self, position: Position) {
        let (store, turn) = (self.store, self.turn);
        turn.note_use(store, &mut self.space().table.slot_mut(position));
    }

    #[inline]
    pub(super) fn note_read(&mut self, position: Position) {
        let (store, turn) = (self.store, self.turn);
        turn.note_read(store, &mut self.space().table.slot_mut(position));
    }

    /// Returns the bytes of the item, and its share of the memory that its space takes besides the
    /// items.
    pub(crate) fn bytes(&mut self) -> Option<usize> {
        let position = self.position?;
        let space = self.space();
        let share = space.bytes().div_ceil(space.table.len().max(1));
        Some(space.table.with_item(position, |item| item.bytes()) + share)
    }

    /// Returns the recent use of the item, from 0 to 3.
    pub(crate) fn frequency(&mut self) -> u8 {
        let Some(position) = self.position else { return 0 };
        self.space().table.marks(position).frequency
    }

    /// Sets the recent use of the item. Values above 3 count as 3.
    pub(crate) fn set_frequency(&mut self, frequency: u8) {
        let Some(position) = self.position else { return };
        let mut slot = self.space().table.slot_mut(position);
        let marks = slot.marks();
        slot.set_marks(Marks { frequency, ..marks });
    }

    /// Returns whether the store evicts items by their frequency of use.
    pub(crate) fn is_lfu(&self) -> bool {
        self.store.policy().is_lfu()
    }

    /// Sets the second of the item's last access.
    pub(crate) fn set_access(&mut self, second: u32) {
        let Some(position) = self.position else { return };
        self.space().table.with_item(position, |item| item.set_access(second));
    }

    /// Sets the key to a string.
    pub(crate) fn set(&mut self, value: &[u8], encoding: Encoding, expiry: Option<u64>) {
        self.set_with(value, &Meta::new(encoding, expiry));
    }

    /// Sets the key to a string whose value already lies in its block.
    pub(crate) fn set_streamed(&mut self, mut streamed: StreamedSet, expiry: Option<u64>) {
        let meta = Meta::new(Encoding::Text, expiry);
        match streamed.take_item(&meta, self.turn.access(), self.key) {
            Some(item) => self.adopt(item),
            None => self.set_with(streamed.bytes(), &meta),
        }
    }

    #[inline]
    pub(super) fn set_with(&mut self, value: &[u8], meta: &Meta) {
        self.before_change();
        let access = self.turn.access();
        if let Some(position) = self.position {
            let old = self.times();
            let table = &mut self.space().table;
            if table.with_item(position, |item| item.overwrite(meta, access, value)) {
                self.note_use(position);
                let now_expires = meta.expiry.is_some() || meta.encoding.is_timed();
                if now_expires || old.first().is_some() {
                    self.note_times(old);
                }
                return;
            }
        }
        let memory = self.store.memory_of(self.shard_index);
        let item = Owned::create(memory, meta, access, self.key, value, value.len());
        self.adopt(item);
    }

    /// Returns the times at which upkeep has something to do for the item.
    #[inline]
    pub(super) fn times(&mut self) -> Times {
        let Some(position) = self.position else { return Times::default() };
        let table = &self.space().table;
        if table.marks(position).volatile { table.item(position).times() } else { Times::default() }
    }

    /// Makes `item` the item of the key. `item` must contain this key.
    pub(crate) fn adopt(&mut self, item: Owned) {
        self.before_change();
        let bytes = item.bytes() as i64;
        match self.position {
            Some(position) => {
                let old = self.times();
                let replaced = self
                    .space()
                    .table
                    .with_item(position, |current| std::mem::replace(current, item));
                let freed = replaced.release(&self.store.heap) as i64;
                self.note_use(position);
                self.note_times(old);
                self.charge(bytes - freed);
            }
            None => self.insert(item, bytes),
        }
    }

    fn insert(&mut self, item: Owned, bytes: i64) {
        let (store, hash, turn) = (self.store, self.hash, self.turn);
        store.tidy_if_due(self.shard, self.shard_index, self.turn);
        let space = self.space();
        let marks = match store.counts_uses() {
            true if turn.is(Mode::LOADED) => Space::admit_loaded(store.policy()),
            true => space.admit(hash, store.policy()),
            false => Marks { frequency: 0, main: true, volatile: false },
        };
        let memory = store.memory_of(self.shard_index);
        let space = self.shard.space(self.database);
        let position = space.table.insert(memory, hash, item, marks, |key| store.hash(key) as u32);
        self.position = Some(position);
        self.note_times(Times::default());
        self.charge_items(bytes, 1);
        self.store.note_notice(self.turn, KeyspaceEvents::NEW, "new", self.key);
    }

    /// Notes the times of the item for upkeep if they differ from `old`.
    #[inline]
    pub(super) fn note_times(&mut self, old: Times) {
        let Some(position) = self.position else { return };
        let new = self.space().table.item(position).times();
        if old == new {
            return;
        }
        let (store, hash) = (self.store, self.hash);
        let upkeep = store.upkeep(self.shard_index, self.turn);
        let due = self.space().set_times(position, hash, old, new, &upkeep);
        if let Some(second) = due {
            store.come_by(self.shard_index, second);
        }
    }

    /// Accounts for a change of the bytes of an item that did not move. The tables are the same.
    #[inline]
    pub(super) fn charge_in_place(&mut self, change: i64) {
        if change != 0 {
            let (store, index) = (self.store, self.database);
            self.shard.space(index).book(&store.quotas, index, change, 0);
            store.charge(self.shard, change);
        }
    }

    /// Accounts for a change of the item's bytes, and for the growth of the tables.
    #[inline]
    pub(super) fn charge(&mut self, change: i64) {
        self.charge_items(change, 0);
    }

    /// Accounts for a change of the item's bytes and of the number of items.
    #[inline]
    fn charge_items(&mut self, change: i64, items: i64) {
        let (store, index) = (self.store, self.database);
        let space = self.shard.space(index);
        space.book(&store.quotas, index, change, items);
        let change = change + space.growth();
        store.charge(self.shard, change);
    }

    /// Removes the key. Returns whether it existed.
    pub(crate) fn remove(&mut self) -> bool {
        let item = self.take();
        item.map(|item| item.release(&self.store.heap)).is_some()
    }

    /// Removes the item of the key from the table, and returns it.
    pub(crate) fn take(&mut self) -> Option<Owned> {
        let position = self.position.take()?;
        self.before_change();
        let memory = self.store.memory_of(self.shard_index);
        let item = self.space().remove(memory, position);
        self.charge_items(-(item.bytes() as i64), -1);
        Some(item)
    }

    /// Sets the expiry of the item, in milliseconds since the Unix epoch. `None` means never.
    /// Nothing happens if there is no item.
    pub(crate) fn set_expiry(&mut self, expiry: Option<u64>) {
        let Some(item) = self.any_item() else { return };
        let (meta, value_len) = (item.meta(), item.value().len());
        if meta.expiry != expiry {
            self.reshape(&Meta { expiry, ..meta }, value_len);
        }
    }

    pub(super) fn reshape(&mut self, meta: &Meta, value_len: usize) {
        let Some(position) = self.position else { return };
        self.before_change();
        let memory = self.store.memory_of(self.shard_index);
        let old = self.times();
        let table = &mut self.space().table;
        let change = table.with_item(position, |item| item.reshape(memory, meta, value_len));
        self.note_times(old);
        self.charge(change);
    }

    /// Sets the length of the string to `value_len` bytes and lets `change` change them. New bytes
    /// are zero, and a missing key is created. The string counts as changed in place afterwards.
    pub(crate) fn change_value<R>(
        &mut self,
        value_len: usize,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, WrongType> {
        match self.text()? {
            None => {
                let memory = self.store.memory_of(self.shard_index);
                let (access, meta) = (self.turn.access(), Meta::new(Encoding::Raw, None));
                let item = Owned::create(memory, &meta, access, self.key, &[], value_len);
                self.adopt(item);
            }
            Some(item) => {
                let old = item.meta();
                let keeps_place = item.value().len() == value_len && old.cas == 0;
                let meta = Meta { encoding: Encoding::Raw, cas: 0, marks: 0, ..old };
                self.before_change();
                if keeps_place {
                    if let Some(position) = self.position {
                        self.space()
                            .table
                            .with_item(position, |item| item.set_encoding(Encoding::Raw));
                    }
                } else {
                    self.reshape(&meta, value_len);
                }
            }
        }
        Ok(match self.position {
            Some(position) => {
                self.note_use(position);
                let heap = &self.store.heap;
                self.space().table.with_item(position, |item| {
                    item.unshare(heap);
                    change(item.value_mut())
                })
            }
            None => change(&mut []),
        })
    }
}
