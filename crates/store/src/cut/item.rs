//! Items as a snapshot has them.

use super::pieces::Pieces;
use crate::collections::Means;
use crate::dump::{self, Large};
use crate::items::{ACCESS_MASK, Item, Marks, Meta};
use keyway_rdb::format::{write_len, write_text};
use keyway_rdb::{Key, Kind, Opened, kind, pieces};

/// The field in front of a key that has what memcached clients know of its item. Servers of Redis
/// ignore it.
pub(crate) const META_FIELD: &[u8] = b"keyway-item";

/// The use of an item that is written: the one that the eviction policy goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uses {
    Nothing,
    IdleTime,
    Frequency,
}

/// Writes items.
#[derive(Clone, Copy)]
pub(crate) struct ItemWriter<'a> {
    pub(crate) means: Means<'a>,
    pub(crate) uses: Uses,
    /// The second of now, to count idle time.
    pub(crate) second: u32,
}

impl ItemWriter<'_> {
    /// Writes what has expired, too: commands of the primary that are still to come may have been
    /// executed before.
    #[must_use]
    pub(crate) fn with_expired(self) -> Self {
        Self { means: Means { now_millis: 0, ..self.means }, ..self }
    }

    /// Appends an item, unless it has expired.
    pub(crate) fn write(&self, item: Item<'_>, marks: Marks, out: &mut Pieces) {
        if item.is_gone(self.means.now_millis) {
            return;
        }
        if Pieces::shares(&item) {
            let bytes = out.bytes();
            self.head(item, marks, kind::STRING, bytes);
            write_len(item.value().len() as u64, bytes);
            return out.share(&item);
        }
        let bytes = out.bytes();
        if item.encoding().is_text() {
            self.head(item, marks, kind::STRING, bytes);
            return write_text(item.value(), bytes);
        }
        self.with_head(item, marks, bytes, |bytes| dump::write(item, self.means, bytes));
    }

    /// Appends the head of an item that [`dump::is_large`], whose pieces follow; none if it has
    /// expired.
    pub(crate) fn begin(&self, item: Item<'_>, marks: Marks, out: &mut Pieces) -> Option<Large> {
        if item.is_gone(self.means.now_millis) {
            return None;
        }
        let begin = |bytes: &mut Vec<u8>| Large::begin(item, self.means, bytes);
        Some(self.with_head(item, marks, out.bytes(), begin))
    }

    /// Appends the head of an item, then its value, of which `write` appends the type first.
    fn with_head<R>(
        &self,
        item: Item<'_>,
        marks: Marks,
        bytes: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let kind_at = self.head(item, marks, 0, bytes);
        let start = bytes.len();
        let result = write(bytes);
        // The type stands in front of the key.
        bytes[kind_at] = bytes.remove(start);
        result
    }

    /// Appends what stands in front of a value; where its type is.
    fn head(&self, item: Item<'_>, marks: Marks, kind: u8, out: &mut Vec<u8>) -> usize {
        let meta = item.meta();
        if (meta.flags, meta.cas) != (0, 0) {
            let text = format!("{} {} {}", meta.flags, meta.cas, meta.marks);
            pieces::aux(META_FIELD, text.as_bytes(), out);
        }
        let mut key = Key::new(item.key(), Opened::new(Kind::Text, 0));
        key.expires_ms = meta.expiry;
        match self.uses {
            Uses::Nothing => {}
            Uses::IdleTime => {
                let idle = self.second.wrapping_sub(item.access()) & ACCESS_MASK;
                key.idle_seconds = Some(idle.into());
            }
            Uses::Frequency => key.frequency = Some(marks.frequency),
        }
        pieces::attributes(&key, out);
        out.push(kind);
        let kind_at = out.len() - 1;
        write_text(key.name, out);
        kind_at
    }
}

/// Reads the field that [`META_FIELD`] names: flags, number and marks.
pub(crate) fn read_meta(text: &[u8], meta: &mut Meta) -> Option<()> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    meta.flags = words.next()?.parse().ok()?;
    meta.cas = words.next()?.parse().ok()?;
    meta.marks = words.next()?.parse().ok()?;
    words.next().is_none().then_some(())
}
