//! Short strings of a file on their way into the store.
//!
//! A key at random costs reads from memory, one behind the other. Those of a batch overlap.

use super::LoadError;
use crate::entry::Entry;
use crate::items::{ACCESS_MASK, Meta};
use crate::store::{KeyHint, Store, Turn};
use keyway_base::Clock;
use std::sync::Arc;

/// Strings of a batch, and their bytes. More takes memory, fewer are passed between threads more
/// often.
const STRINGS_MAX: usize = 512;
const BYTES_MAX: usize = 64 << 10;
/// Number of keys that are looked for at the same time. More than this drop each other's memory
/// from the first cache.
const AHEAD: usize = 32;

/// The manner in which keys of a file are put into a store.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) turn: Turn,
    pub(super) clock: Clock,
    /// The file is the base of a log. Nothing is evicted: the effects that follow say what was.
    pub(super) is_base: bool,
    /// The file comes from the process that this one replaces, whose bound may be passed a little.
    pub(super) is_twin: bool,
}

impl Manner {
    /// Makes room for so many bytes more.
    pub(super) fn make_room(&self, store: &Store, len: usize) -> Result<(), LoadError> {
        if self.is_base {
            return Ok(());
        }
        let has_room = match self.is_twin {
            true => !store.is_over_full(),
            false => store.make_room(len as u64, self.turn),
        };
        match has_room {
            true => Ok(()),
            false => Err(LoadError::Full { memory_max: store.config().memory_max }),
        }
    }

    /// Notes on an item how often it was used, or when it was last used, as the store's policy
    /// needs it.
    pub(super) fn set_use(&self, entry: &mut Entry<'_>, idle: Option<u64>, frequency: Option<u8>) {
        if entry.is_lfu() {
            frequency.into_iter().for_each(|it| entry.set_frequency(it));
        } else if let Some(seconds) = idle {
            let idle = seconds.min(ACCESS_MASK.into()) as u32;
            let now = (self.clock.unix_millis() / 1000) as u32;
            entry.set_access(now.wrapping_sub(idle));
        }
    }

    /// Puts one string into the store.
    pub(super) fn put_string(
        &self,
        store: &Store,
        key: &[u8],
        text: &[u8],
        head: &StringHead,
    ) -> Result<(), LoadError> {
        self.put_hinted(store, key, store.hint(key), text, head)
    }

    fn put_hinted(
        &self,
        store: &Store,
        key: &[u8],
        hint: KeyHint,
        text: &[u8],
        head: &StringHead,
    ) -> Result<(), LoadError> {
        self.make_room(store, key.len() + text.len())?;
        let was_there = store.with_hinted(self.turn, key, hint, |mut entry| {
            let was_there = entry.exists();
            entry.put(text, &head.meta);
            self.set_use(&mut entry, head.idle_seconds, head.frequency);
            was_there
        });
        if was_there { Err(LoadError::Twice(key.into())) } else { Ok(()) }
    }
}

/// All that is known of a string besides its key and value.
#[derive(Clone, Copy)]
pub(super) struct StringHead {
    pub(super) meta: Meta,
    pub(super) idle_seconds: Option<u64>,
    pub(super) frequency: Option<u8>,
}

/// A string of a batch: the ends of its key and of its value in the bytes of all.
struct Placed {
    key_end: usize,
    end: usize,
    head: StringHead,
}

/// Strings that were read from a file, and that wait to be put into the store.
///
/// It holds 64 KiB and 512 strings at most. Batches of one file may be put by several threads, in
/// any order.
pub struct LoadBatch {
    store: Arc<Store>,
    manner: Option<Manner>,
    bytes: Vec<u8>,
    strings: Vec<Placed>,
}

impl LoadBatch {
    /// The longest value that is not put into the store alone.
    pub(super) const LONGEST: usize = BYTES_MAX / 4;

    /// An empty batch for a store.
    pub fn new(store: &Arc<Store>) -> Self {
        let store = Arc::clone(store);
        Self { store, manner: None, bytes: Vec::new(), strings: Vec::new() }
    }

    /// Returns whether it has no strings.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }

    /// Returns whether a string of so many bytes does not fit.
    pub(super) fn is_full_with(&self, len: usize) -> bool {
        let is_long = self.bytes.len() + len > BYTES_MAX && !self.bytes.is_empty();
        self.strings.len() >= STRINGS_MAX || is_long
    }

    /// Says how the strings that follow are put into the store.
    pub(super) fn begin(&mut self, manner: Manner) {
        self.manner = Some(manner);
    }

    pub(super) fn push(&mut self, key: &[u8], text: &[u8], head: &StringHead) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.strings.push(Placed { key_end, end: self.bytes.len(), head: *head });
    }

    /// Puts all strings into the store; the batch is empty then.
    ///
    /// # Errors
    /// [`LoadError`]: the strings before the one that failed are in the store.
    pub fn put(&mut self) -> Result<(), LoadError> {
        let put = self.manner.map_or(Ok(()), |manner| self.put_all(&manner));
        self.strings.clear();
        self.bytes.clear();
        put
    }

    fn put_all(&self, manner: &Manner) -> Result<(), LoadError> {
        let mut hints = [KeyHint::default(); AHEAD];
        let mut start = 0;
        for group in self.strings.chunks(AHEAD) {
            let mut from = start;
            for (string, hint) in group.iter().zip(&mut hints) {
                *hint = self.store.hint(&self.bytes[from..string.key_end]);
                from = string.end;
            }
            self.store.prefetch_buckets(manner.turn.database, &hints[..group.len()]);
            for (string, hint) in group.iter().zip(hints) {
                let key = &self.bytes[start..string.key_end];
                let text = &self.bytes[string.key_end..string.end];
                manner.put_hinted(&self.store, key, hint, text, &string.head)?;
                start = string.end;
            }
        }
        Ok(())
    }
}
