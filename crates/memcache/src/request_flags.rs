//! The wishes of a request beside its verb, one bit each.

use std::ops::{BitOr, BitOrAssign};

/// A set of wishes: what the reply should tell and how the item is to be
/// treated. Classic and binary requests have those that go with their command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags(u32);

impl RequestFlags {
    /// Nothing.
    pub const NONE: RequestFlags = RequestFlags(0);
    /// The value, meta `v`.
    pub const VALUE: RequestFlags = RequestFlags(1);
    /// The client's flags, meta `f`.
    pub const FLAGS: RequestFlags = RequestFlags(1 << 1);
    /// The unique number of the value, meta `c`.
    pub const CAS: RequestFlags = RequestFlags(1 << 2);
    /// The key, meta `k`.
    pub const KEY: RequestFlags = RequestFlags(1 << 3);
    /// The seconds left, meta `t`.
    pub const TTL: RequestFlags = RequestFlags(1 << 4);
    /// The length of the value, meta `s`.
    pub const SIZE: RequestFlags = RequestFlags(1 << 5);
    /// Whether it was read before, meta `h`.
    pub const HIT: RequestFlags = RequestFlags(1 << 6);
    /// Seconds since it was last used, meta `l`.
    pub const LAST_ACCESS: RequestFlags = RequestFlags(1 << 7);
    /// Read without being counted as used, meta `u`.
    pub const NO_BUMP: RequestFlags = RequestFlags(1 << 8);
    /// Mark as stale instead of deleting, or take a value whose number is
    /// older; meta `I`.
    pub const INVALIDATE: RequestFlags = RequestFlags(1 << 9);
    /// Empty the item and keep it, meta `x`.
    pub const REMOVE_VALUE: RequestFlags = RequestFlags(1 << 10);
    /// The key is written in base64, meta `b`.
    pub const KEY_BASE64: RequestFlags = RequestFlags(1 << 11);
    /// A new expiry is given, meta `T`: [`crate::Head::expiry`] holds it.
    pub const EXPIRY: RequestFlags = RequestFlags(1 << 12);
    /// A token to be given back, meta `O`.
    pub const OPAQUE: RequestFlags = RequestFlags(1 << 13);
    /// The seconds left are those before the new expiry: meta `t` comes before
    /// `T` or `N`.
    pub const TTL_BEFORE: RequestFlags = RequestFlags(1 << 14);

    /// Whether all of `other` is asked for.
    #[inline]
    pub const fn has(self, other: RequestFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is asked for.
    #[inline]
    pub const fn any(self, other: RequestFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    #[inline]
    pub const fn with(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 | other.0)
    }

    /// What is asked for here and not in `other`.
    #[inline]
    pub const fn without(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 & !other.0)
    }
}

impl BitOr for RequestFlags {
    type Output = RequestFlags;

    fn bitor(self, other: RequestFlags) -> RequestFlags {
        self.with(other)
    }
}

impl BitOrAssign for RequestFlags {
    fn bitor_assign(&mut self, other: RequestFlags) {
        self.0 |= other.0;
    }
}
