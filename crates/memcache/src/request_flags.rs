//! What a request asks for besides its verb, one bit each.

use std::ops::{BitOr, BitOrAssign};

/// A set of flags: what the reply should contain and how the item is treated. Classic and binary
/// requests have the flags that belong to their command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags(u32);

impl RequestFlags {
    /// No flags.
    pub const NONE: RequestFlags = RequestFlags(0);
    /// Return the value, meta `v`.
    pub const VALUE: RequestFlags = RequestFlags(1);
    /// Return the client's flags, meta `f`.
    pub const FLAGS: RequestFlags = RequestFlags(1 << 1);
    /// Return the unique number of the value, meta `c`.
    pub const CAS: RequestFlags = RequestFlags(1 << 2);
    /// Return the key, meta `k`.
    pub const KEY: RequestFlags = RequestFlags(1 << 3);
    /// Return the remaining seconds, meta `t`.
    pub const TTL: RequestFlags = RequestFlags(1 << 4);
    /// Return the length of the value, meta `s`.
    pub const SIZE: RequestFlags = RequestFlags(1 << 5);
    /// Return whether the item was read before, meta `h`.
    pub const HIT: RequestFlags = RequestFlags(1 << 6);
    /// Return the seconds since the item was last used, meta `l`.
    pub const LAST_ACCESS: RequestFlags = RequestFlags(1 << 7);
    /// Read without counting as a use, meta `u`.
    pub const NO_BUMP: RequestFlags = RequestFlags(1 << 8);
    /// Mark as stale instead of deleting, or accept a value whose number is older, meta `I`.
    pub const INVALIDATE: RequestFlags = RequestFlags(1 << 9);
    /// Empty the item and keep it, meta `x`.
    pub const REMOVE_VALUE: RequestFlags = RequestFlags(1 << 10);
    /// The key is in base64, meta `b`.
    pub const KEY_BASE64: RequestFlags = RequestFlags(1 << 11);
    /// A new expiry is given, meta `T`. [`crate::Head::expiry`] contains it.
    pub const EXPIRY: RequestFlags = RequestFlags(1 << 12);
    /// A token that the reply repeats, meta `O`.
    pub const OPAQUE: RequestFlags = RequestFlags(1 << 13);
    /// The remaining seconds are those before the new expiry, because meta `t` comes before `T` or
    /// `N`.
    pub const TTL_BEFORE: RequestFlags = RequestFlags(1 << 14);

    /// Returns whether all of `other` is asked for.
    #[inline]
    pub const fn has(self, other: RequestFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any of `other` is asked for.
    #[inline]
    pub const fn any(self, other: RequestFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of both.
    #[inline]
    pub const fn with(self, other: RequestFlags) -> RequestFlags {
        RequestFlags(self.0 | other.0)
    }

    /// Returns the flags that are set here and not in `other`.
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
