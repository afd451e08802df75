//! A replica's stream is its primary's: readers of a replica get the bytes that it got.

use super::core::Store;
use super::following::EffectReader;
use crate::effects::{EffectLimits, Keeping};
use std::sync::Arc;

/// A reader of effects that is to come.
pub struct Expected {
    store: Arc<Store>,
    is_first: bool,
}

impl Expected {
    /// Returns whether effects were not noted before: a write may be under way that knows of no
    /// reader.
    pub fn is_first(&self) -> bool {
        self.is_first
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.store.effects.expect_less();
        self.store.note_followers();
    }
}

impl Store {
    /// Begins to relay the stream of a primary at the offset of the store's data. `database` is the
    /// one that the stream has selected there. Readers of the stream so far are
    /// [`Overrun`](crate::Overrun). Relaying ends with the last reader.
    pub fn begin_relaying(
        self: &Arc<Self>,
        limits: EffectLimits,
        offset: u64,
        database: Option<u32>,
    ) -> EffectReader {
        let _order = self.effects.relay_order();
        let number = self.effects.begin_relay(limits, offset, database);
        self.note_followers();
        EffectReader::new(self, number, offset)
    }

    /// Returns whether the stream of a primary is relayed.
    #[inline]
    pub fn is_relaying(&self) -> bool {
        self.effects.is_relaying()
    }

    /// Executes a unit of the primary's stream, and appends its bytes to the stream of this store.
    /// `apply` returns the database that is selected behind the unit, or an error, with which
    /// nothing is appended.
    ///
    /// A unit that has no room ends relaying: [`Store::is_relaying`] tells.
    ///
    /// # Errors
    /// The error of `apply`.
    pub fn relay<E>(
        &self,
        unit: &[u8],
        apply: impl FnOnce() -> Result<Option<u32>, E>,
    ) -> Result<(), E> {
        let _order = self.effects.relay_order();
        let selected = apply()?;
        if self.effects.is_relaying() {
            self.effects.relay(unit, selected);
        }
        Ok(())
    }

    /// Has the stream go on with that of a primary, as this store becomes a replica. No client
    /// writes any more. Returns the offset of the store's data; none if nobody follows, so that
    /// the data has no offset.
    pub fn relay_on(&self) -> Option<u64> {
        let _order = self.effects.relay_order();
        let _locked = self.lock_all();
        let offset = self.effects.relay_on();
        self.note_followers();
        offset
    }

    /// Has the stream go on with the effects of this store, as it becomes a primary. Returns the
    /// offset that the primary before had; none if nothing was relayed.
    pub fn end_relaying(&self) -> Option<u64> {
        let _order = self.effects.relay_order();
        let _locked = self.lock_all();
        let offset = self.effects.end_relay();
        self.note_followers();
        offset
    }

    /// Returns the offsets between which the stream is kept; none if nobody follows. The second
    /// one is behind everything whose reply a client has got.
    pub fn kept_effects(&self) -> Option<(u64, u64)> {
        self.effects.kept()
    }

    /// The offset behind the last unit of the stream. It stands still while nobody follows.
    pub fn effects_offset(&self) -> u64 {
        self.effects.kept().map_or_else(|| self.effects.end_offset(), |(_, end)| end)
    }

    /// Has all readers lose their places: the data becomes another one.
    pub fn drop_stream(&self) {
        self.effects.overrun();
        self.note_followers();
    }

    /// Begins to note effects for a reader whose cut follows soon, so that writes that are begun from
    /// now on know of it, whichever other readers leave meanwhile. That ends with the returned value.
    #[must_use = "effects are noted as long as it lives"]
    pub fn expect_follower(self: &Arc<Self>, limits: EffectLimits) -> Expected {
        let is_first = self.effects.expect(limits);
        self.note_followers();
        Expected { store: Arc::clone(self), is_first }
    }

    /// Returns whether effects are noted, or relayed.
    pub fn has_followers(&self) -> bool {
        self.effects.is_on() || self.effects.is_relaying()
    }

    /// The database that the relayed stream has selected at its end.
    pub(crate) fn relayed_database(&self) -> Option<u32> {
        self.effects.relayed_database()
    }

    /// Adds a reader at the end of the stream.
    pub(crate) fn follow_end(self: &Arc<Self>, keeping: Keeping) -> Option<EffectReader> {
        let (number, start) = self.effects.join_on(keeping)?;
        Some(EffectReader::new(self, number, start))
    }
}
