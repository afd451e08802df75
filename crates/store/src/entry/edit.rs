use super::key::{Entry, Facts};
use crate::collections::{Boxed, Means, View, WrongType, blob, integers};
use crate::items::{Encoding, Item, Kind, Meta, Owned};
use keyway_base::KeyspaceEvents;
use keyway_memory::nodes;
use std::ops::Range;

/// Returns the class of events about values of a kind.
fn class_of(kind: Kind) -> KeyspaceEvents {
    match kind {
        Kind::Text => KeyspaceEvents::STRING,
        Kind::Hash => KeyspaceEvents::HASH,
        Kind::List => KeyspaceEvents::LIST,
        Kind::Set => KeyspaceEvents::SET,
        Kind::Sorted => KeyspaceEvents::SORTED,
        Kind::Stream => KeyspaceEvents::STREAM,
    }
}

impl<'a> Entry<'a> {
    #[inline]
    fn means(&self) -> Means<'a> {
        self.store.means(self.shard_index, self.turn.now_millis)
    }

    /// Returns the collection for a command that reads it. A hit or a miss is counted, and a use.
    #[inline]
    pub(crate) fn read_as<'s, V: View<'s>>(&'s mut self) -> Result<Option<V>, WrongType> {
        self.read();
        self.look_at()
    }

    /// Returns the collection. Nothing is counted.
    #[inline]
    pub(crate) fn look_at<'s, V: View<'s>>(&'s mut self) -> Result<Option<V>, WrongType> {
        let means = self.means();
        match self.any_item() {
            None => Ok(None),
            Some(item) if item.encoding().kind() == V::KIND => Ok(Some(V::of(item, means))),
            Some(_) => Err(WrongType),
        }
    }

    /// Lets `work` change the collection of the key, or create one of this kind. A change is noted
    /// as `event`. A collection without elements is removed.
    pub(crate) fn edit<R>(
        &mut self,
        kind: Kind,
        event: &'static str,
        work: impl FnOnce(&mut Editor<'_, 'a>) -> R,
    ) -> Result<R, WrongType> {
        if self.item().is_some_and(|item| item.kind() != kind) {
            return Err(WrongType);
        }
        let mut editor = Editor::of(self);
        let result = work(&mut editor);
        let changed = editor.changed;
        if changed {
            self.notify(class_of(kind), event);
        }
        if kind == Kind::Hash {
            self.drop_some_hidden();
        }
        match self.any_item() {
            Some(item) if item.is_empty_collection() => {
                self.remove();
                self.notify(KeyspaceEvents::GENERIC, "del");
            }
            Some(_) => {
                if let Some(position) = self.position {
                    self.note_use(position);
                }
            }
            None => {}
        }
        Ok(result)
    }

    /// Replaces the item of the key, of whatever kind, by a new collection that `work` fills, and
    /// notes `event`. If the collection stays empty, the key is only removed.
    pub(crate) fn replace<R>(
        &mut self,
        kind: Kind,
        event: &'static str,
        work: impl FnOnce(&mut Editor<'_, 'a>) -> R,
    ) -> R {
        let was_there = self.exists();
        let result = self.rebuild(work);
        if self.exists() {
            self.notify(class_of(kind), event);
        } else if was_there {
            self.notify(KeyspaceEvents::GENERIC, "del");
        }
        result
    }

    /// Replaces the item of the key by one of any kind. No event is noted.
    pub(crate) fn rebuild<R>(&mut self, work: impl FnOnce(&mut Editor<'_, 'a>) -> R) -> R {
        self.remove();
        work(&mut Editor::of(self))
    }

    /// Lets `work` add to the item of the key, or create one. No event is noted, and nothing is
    /// counted.
    pub(crate) fn extend<R>(&mut self, work: impl FnOnce(&mut Editor<'_, 'a>) -> R) -> R {
        work(&mut Editor::of(self))
    }

    /// Returns the number of elements of the collection, including fields of a hash that have
    /// expired.
    pub(crate) fn element_count(&mut self) -> usize {
        match self.any_item() {
            None => 0,
            Some(item) => match (item.boxed(), item.encoding()) {
                (Some(boxed), _) => boxed.len(),
                (None, Encoding::Integers) => integers::len(item.value()),
                (None, _) => blob::count(item.value()),
            },
        }
    }

    /// Returns a copy of the item with another key.
    pub(crate) fn duplicate(&mut self, key: &[u8]) -> Option<Owned> {
        let (means, access) = (self.means(), self.turn.access());
        let item = self.any_item()?;
        let (meta, value, memory) = (item.meta(), item.value(), means.memory());
        Some(match item.boxed() {
            None => Owned::create(memory, &meta, access, key, value, value.len()),
            Some(boxed) => {
                let copy = nodes::boxed(boxed.duplicate(means));
                Owned::create_boxed(memory, &meta, access, key, copy)
            }
        })
    }

    /// Removes the item and returns it with another key.
    pub(crate) fn take_as(&mut self, key: &[u8]) -> Option<Owned> {
        let (means, access) = (self.means(), self.turn.access());
        let memory = means.memory();
        self.take().map(|item| item.rekey(memory, access, key))
    }

    /// Returns the item, of whatever kind, with the means to read its collection. Nothing is
    /// counted.
    pub(crate) fn look_closely(&mut self) -> Option<(Item<'_>, Means<'a>)> {
        let means = self.means();
        self.any_item().map(|item| (item, means))
    }

    /// Returns the item of the key, of whatever type.
    #[inline]
    pub(crate) fn item(&mut self) -> Option<Facts<'_>> {
        self.any_item().map(Facts)
    }
}

/// A key whose collection is being changed, or created. Each step accounts for its memory.
pub(crate) struct Editor<'e, 'a> {
    entry: &'e mut Entry<'a>,
    changed: bool,
}

impl<'e, 'a> Editor<'e, 'a> {
    pub(super) fn of(entry: &'e mut Entry<'a>) -> Self {
        entry.before_change();
        Self { entry, changed: false }
    }

    pub(crate) fn exists(&self) -> bool {
        self.entry.exists()
    }

    #[inline]
    pub(crate) fn means(&self) -> Means<'a> {
        self.entry.means()
    }

    /// Returns the current item.
    #[inline]
    pub(crate) fn item(&mut self) -> Option<Item<'_>> {
        self.entry.any_item()
    }

    /// Returns the current collection, or `None` if there is none.
    #[inline]
    pub(crate) fn view<'s, V: View<'s>>(&'s mut self) -> Option<V> {
        let means = self.means();
        self.item().map(|item| V::of(item, means))
    }

    /// Returns the bytes of the blob. They are empty if there is no item, or if the item is boxed.
    #[inline]
    pub(crate) fn blob(&mut self) -> &[u8] {
        match self.entry.any_item() {
            Some(item) if item.boxed().is_none() => item.value(),
            _ => &[],
        }
    }

    pub(crate) fn is_boxed(&mut self) -> bool {
        self.item().is_some_and(|item| item.boxed().is_some())
    }

    /// Returns whether the collection is a hash whose fields may expire.
    #[inline]
    pub(crate) fn is_timed(&mut self) -> bool {
        self.item().is_some_and(|item| item.encoding().is_timed())
    }

    /// Sets the encoding of the value. The bytes stay the same.
    pub(crate) fn set_encoding(&mut self, encoding: Encoding) {
        let Some(position) = self.entry.position else { return };
        self.entry.space().table.with_item(position, |item| item.set_encoding(encoding));
    }

    /// Lets `work` change the expiries of fields, and notes the time of the next upkeep.
    pub(crate) fn with_times<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let old = self.entry.times();
        let result = work(self);
        self.entry.note_times(old);
        result
    }

    /// Counts a change, even if nothing was changed.
    pub(crate) fn touch(&mut self) {
        self.changed = true;
    }

    /// Frees a structure that was taken out. A large one is freed in steps.
    pub(crate) fn discard(&self, boxed: Boxed) {
        boxed.discard(&self.entry.store.heap);
    }

    fn meta(&mut self, encoding: Encoding) -> Meta {
        match self.item() {
            Some(item) => Meta { encoding, cas: 0, marks: 0, ..item.meta() },
            None => Meta::new(encoding, None),
        }
    }

    /// Replaces the collection by a blob of these bytes.
    pub(crate) fn store(&mut self, encoding: Encoding, blob: &[u8]) {
        self.changed = true;
        let meta = self.meta(encoding);
        self.entry.set_with(blob, &meta);
    }

    /// Replaces the collection by a structure with the same elements.
    pub(crate) fn store_boxed(&mut self, encoding: Encoding, boxed: Boxed) {
        let (meta, access, memory) =
            (self.meta(encoding), self.entry.turn.access(), self.means().memory());
        let (key, boxed) = (self.entry.key, nodes::boxed(boxed));
        let item = Owned::create_boxed(memory, &meta, access, key, boxed);
        self.entry.adopt(item);
    }

    /// Replaces a range of the blob's bytes by `parts`. The blob has `count` elements afterwards.
    pub(crate) fn splice(&mut self, range: Range<usize>, parts: &[&[u8]], count: usize) {
        self.splice_bytes(range, parts);
        self.write(0, &blob::header(count));
    }

    /// Replaces a range of the bytes of a blob that has no count.
    pub(crate) fn splice_bytes(&mut self, range: Range<usize>, parts: &[&[u8]]) {
        let Some(position) = self.entry.position else { return };
        self.changed = true;
        let memory = self.means().memory();
        let table = &mut self.entry.space().table;
        let change = table.with_item(position, |item| item.splice(memory, range, parts));
        self.entry.charge_in_place(change);
    }

    /// Overwrites bytes of the blob.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        let Some(position) = self.entry.position else { return };
        self.changed = true;
        let table = &mut self.entry.space().table;
        table.with_item(position, |item| {
            item.value_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    /// Lets `work` change the structure. Returns `None` if the collection is a blob.
    pub(crate) fn boxed<R>(&mut self, work: impl FnOnce(&mut Boxed, Means<'a>) -> R) -> Option<R> {
        let position = self.entry.position?;
        let means = self.means();
        let table = &mut self.entry.space().table;
        let (result, change) = table.with_item(position, |item| {
            let boxed = item.boxed_mut()?;
            let before = boxed.bytes() as i64;
            let result = work(boxed, means);
            Some((result, boxed.bytes() as i64 - before))
        })?;
        self.entry.charge_in_place(change);
        Some(result)
    }

    /// Lets `work` change the part of the structure that `pick` finds. Returns `None` if it finds
    /// none.
    #[inline]
    pub(crate) fn with<T, R>(
        &mut self,
        pick: impl FnOnce(&mut Boxed) -> Option<&mut T>,
        work: impl FnOnce(&mut T, Means<'a>) -> R,
    ) -> Option<R> {
        self.boxed(|boxed, means| pick(boxed).map(|it| work(it, means))).flatten()
    }

    /// Lets `work` change the part of the structure that `pick` finds. Returns whether `work` says
    /// that it changed anything, or `None` if `pick` finds nothing.
    pub(crate) fn change<T>(
        &mut self,
        pick: impl FnOnce(&mut Boxed) -> Option<&mut T>,
        work: impl FnOnce(&mut T, Means<'a>) -> bool,
    ) -> Option<bool> {
        let has_changed = self.with(pick, work);
        self.changed |= has_changed == Some(true);
        has_changed
    }
}
