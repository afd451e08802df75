//! Items whose value is the address of a structure, which they own.

use super::{ADDRESS_LEN, Meta, Owned};
use crate::collections::Boxed;
use keyway_memory::Heap;
use keyway_memory::nodes::{self, NodeBox, Nodes};
use std::ptr::NonNull;

impl Owned {
    /// An item whose value is a structure, which it owns.
    pub(crate) fn create_boxed(
        heap: &Heap,
        arena: usize,
        meta: &Meta,
        access: u32,
        key: &[u8],
        boxed: NodeBox<Boxed>,
    ) -> Self {
        debug_assert!(meta.encoding.is_boxed());
        let address = NodeBox::into_raw(boxed).expose_provenance().to_ne_bytes();
        Self::create(heap, arena, meta, access, key, (&address, ADDRESS_LEN))
    }

    /// The structure that the value is the address of, to change it.
    #[inline]
    pub(crate) fn boxed_mut(&mut self) -> Option<&mut Boxed> {
        let address = self.item().boxed_address()?;
        // SAFETY: as for `Item::boxed`; the item is borrowed mutably.
        Some(unsafe { &mut *address })
    }

    /// Moves the structure, if it lies on a page that is to become empty; whether
    /// it was moved.
    pub(crate) fn relocate_boxed(&mut self) -> bool {
        let Some(address) = self.item().boxed_address() else { return false };
        // SAFETY: the address came from a box in `create_boxed` or here, which
        // the item owns, and which is borrowed mutably.
        let (boxed, has_moved) =
            nodes::relocate_boxed(unsafe { NodeBox::from_raw_in(address, Nodes) });
        let address = NodeBox::into_raw(boxed).expose_provenance().to_ne_bytes();
        if has_moved {
            let at = self.item().head.value_at();
            // SAFETY: the value of a boxed item is an address of that length.
            unsafe {
                self.start
                    .add(at)
                    .copy_from_nonoverlapping(NonNull::from(&address).cast(), ADDRESS_LEN)
            };
        }
        has_moved
    }
}
