//! Bounds of copies of an embedded store: what one crate enforces and another tells the operator.

/// Bytes on their way to a replica, before no more are fetched for it. Fewer make more calls of the
/// system; more hold more memory for each slow replica.
pub const REPLICA_UNSENT_LEN_MAX: usize = 256 << 10;

/// The least and the most room for writes that wait for the next process of an upgrade, in bytes, and
/// its part of the memory of a store.
const ROOM_MIN: u64 = 16 << 20;
const ROOM_MAX: u64 = 256 << 20;
const ROOM_PART: u64 = 8;

/// Bounds of the copy of a store for the next process of an upgrade, in bytes. One request of each
/// worker may come on top, in three copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBounds {
    /// Writes that are kept beside the store while the snapshot is sent. Writers wait for what is
    /// beyond, so that less holds requests more often.
    pub spool: u64,
    /// Writes that wait in the store, where they count as its memory. Workers execute nothing more
    /// beyond. With less, requests are held more often.
    pub room: u64,
    /// Items that change before the snapshot has them. Requests are held long before; the rest is
    /// for what is written until then. With less, an upgrade under more writes fails.
    pub items: u64,
}

impl CopyBounds {
    /// The bounds for a store of so many bytes. `None` or 0 means no bound, or one that is not known.
    pub fn of(memory_max: Option<u64>) -> Self {
        let part = memory_max.filter(|max| *max > 0).map_or(ROOM_MAX, |max| max / ROOM_PART);
        let room = part.clamp(ROOM_MIN, ROOM_MAX);
        Self { spool: ROOM_MAX, room, items: 2 * room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_a_part_of_the_store_within_bounds() {
        let room = |memory_max| CopyBounds::of(memory_max).room;
        assert_eq!([room(None), room(Some(0)), room(Some(u64::MAX))], [ROOM_MAX; 3]);
        assert_eq!([room(Some(1)), room(Some(128 << 20))], [ROOM_MIN; 2]);
        assert_eq!(room(Some(1 << 30)), 128 << 20);
    }
}
