//! The header of an item, and what it tells of the value.

use keyway_memory::SLOT_LEN_MAX;
use std::ptr::NonNull;

pub(super) const ENCODING_MASK: u32 = 0xf;
const WIDE: u32 = 1 << 4;
pub(super) const EXPIRY: u32 = 1 << 5;
pub(super) const FLAGS: u32 = 1 << 6;
pub(super) const CAS: u32 = 1 << 7;
/// Nobody has read the value since it was set.
pub(super) const FRESH: u32 = 1 << 8;
pub(super) const ACCESS_SHIFT: u32 = 9;
/// Seconds of last access wrap after 97 days.
pub(crate) const ACCESS_MASK: u32 = 0x007f_ffff;

/// Bytes of a version with its marks.
pub(super) const CAS_LEN: usize = 9;

/// In the wide key length: the block is one of its own.
const LARGE: u32 = 1 << 31;
const NARROW_LEN_MAX: usize = 255;

/// The types of values that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Hash,
    List,
    Set,
    Sorted,
    Stream,
}

impl Kind {
    /// Returns the name of the type, as TYPE replies it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Hash => "hash",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::Sorted => "zset",
            Kind::Stream => "stream",
        }
    }
}

/// The encoding of a value's bytes. Strings differ only in the reply of OBJECT ENCODING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    /// A string as it was set: `int` if it reads as one, `embstr` if short.
    Text = 0,
    /// A string computed by us: `embstr` if short, never `int`.
    Plain = 1,
    /// A string changed in place: `raw`.
    Raw = 2,
    HashBlob = 3,
    HashBoxed = 4,
    ListBlob = 5,
    ListBoxed = 6,
    /// A set of integers, as a sorted array.
    Integers = 7,
    SetBlob = 8,
    SetBoxed = 9,
    SortedBlob = 10,
    SortedBoxed = 11,
    StreamBoxed = 12,
    /// A hash some fields of which may expire: see `collections/timed.rs`.
    HashTimed = 13,
    HashTimedBoxed = 14,
}

impl Encoding {
    const ALL: [Encoding; 15] = [
        Self::Text,
        Self::Plain,
        Self::Raw,
        Self::HashBlob,
        Self::HashBoxed,
        Self::ListBlob,
        Self::ListBoxed,
        Self::Integers,
        Self::SetBlob,
        Self::SetBoxed,
        Self::SortedBlob,
        Self::SortedBoxed,
        Self::StreamBoxed,
        Self::HashTimed,
        Self::HashTimedBoxed,
    ];

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Text | Self::Plain | Self::Raw => Kind::Text,
            Self::HashBlob | Self::HashBoxed | Self::HashTimed | Self::HashTimedBoxed => Kind::Hash,
            Self::ListBlob | Self::ListBoxed => Kind::List,
            Self::Integers | Self::SetBlob | Self::SetBoxed => Kind::Set,
            Self::SortedBlob | Self::SortedBoxed => Kind::Sorted,
            Self::StreamBoxed => Kind::Stream,
        }
    }

    #[inline]
    pub(crate) fn is_text(self) -> bool {
        (self as u8) <= Self::Raw as u8
    }

    /// Returns whether it is a hash whose fields may expire.
    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        (self as u8) >= Self::HashTimed as u8
    }

    /// Returns whether the value is the address of a structure.
    #[inline]
    pub(crate) fn is_boxed(self) -> bool {
        matches!(
            self,
            Self::HashBoxed
                | Self::ListBoxed
                | Self::SetBoxed
                | Self::SortedBoxed
                | Self::StreamBoxed
                | Self::HashTimedBoxed
        )
    }

    #[inline]
    pub(super) fn of(word: u32) -> Self {
        let index = (word & ENCODING_MASK) as usize;
        Self::ALL.get(index).copied().unwrap_or(Self::Raw)
    }
}

/// Bytes of a value that is an address.
pub(super) const ADDRESS_LEN: usize = size_of::<usize>();

/// The data that an item has besides key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) encoding: Encoding,
    /// Milliseconds since the Unix epoch, never 0.
    pub(crate) expiry: Option<u64>,
    /// A memcached client's own word; takes no memory when 0.
    pub(crate) flags: u32,
    /// Number of the value for compare-and-swap. It is 0, and takes no memory, until a client asks
    /// for it. A change of the value gives it another number, or 0.
    pub(crate) cas: u64,
    /// The marks that memcached clients know of the item: [`Meta::STALE`] and [`Meta::SENT`]. They
    /// are kept only with a number.
    pub(crate) marks: u8,
    /// Nobody has read the value since it was set.
    pub(crate) fresh: bool,
}

impl Meta {
    /// A memcached client said that the value is out of date.
    pub(crate) const STALE: u8 = 1;
    /// A memcached client was told to fill it again.
    pub(crate) const SENT: u8 = 2;

    #[inline]
    pub(crate) fn new(encoding: Encoding, expiry: Option<u64>) -> Self {
        Self { encoding, expiry, flags: 0, cas: 0, marks: 0, fresh: true }
    }
}

/// When things happen to an item by themselves, in milliseconds since the Unix
/// epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// When it expires.
    pub(crate) expiry: Option<u64>,
    /// When its first field does, or somewhat before.
    pub(crate) fields: Option<u64>,
}

impl Times {
    /// When the first of it happens.
    #[inline]
    pub(crate) fn first(self) -> Option<u64> {
        match (self.expiry, self.fields) {
            (Some(expiry), Some(fields)) => Some(expiry.min(fields)),
            (expiry, fields) => expiry.or(fields),
        }
    }
}

/// The header, read once.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) word: u32,
    pub(super) large: bool,
    /// Offset of the optional fields.
    pub(super) fields_at: usize,
    pub(super) key_len: usize,
    pub(super) value_len: usize,
}

impl Head {
    /// # Safety
    /// `start` is the start of a live item.
    #[inline]
    pub(super) unsafe fn read(start: NonNull<u8>) -> Self {
        // SAFETY: by contract the header is there.
        unsafe {
            let word = start.cast::<u32>().read();
            if word & WIDE == 0 {
                let lens = start.add(4).cast::<[u8; 2]>().read();
                let (key_len, value_len) = (usize::from(lens[0]), usize::from(lens[1]));
                Self { word, large: false, fields_at: 6, key_len, value_len }
            } else {
                let lens = start.add(4).cast::<[u32; 2]>().read();
                let key_len = (lens[0] & !LARGE) as usize;
                let large = lens[0] & LARGE != 0;
                Self { word, large, fields_at: 12, key_len, value_len: lens[1] as usize }
            }
        }
    }

    /// The header of an item to be. Its total length may be less than that of
    /// the block it is written to.
    pub(super) fn plan(meta: &Meta, key_len: usize, value_len: usize) -> Self {
        let optional = |bit: u32, present: bool| if present { bit } else { 0 };
        let mut word = meta.encoding as u32
            | optional(EXPIRY, meta.expiry.is_some())
            | optional(FLAGS, meta.flags != 0)
            | optional(CAS, meta.cas != 0)
            | optional(FRESH, meta.fresh);
        let wide = key_len > NARROW_LEN_MAX || value_len > NARROW_LEN_MAX;
        let mut head = Self { word, large: false, fields_at: 6, key_len, value_len };
        if wide {
            word |= WIDE;
            head = Self { word, fields_at: 12, ..head };
            if head.len() > SLOT_LEN_MAX {
                head = Self { word: word | EXPIRY, large: true, ..head };
            }
        }
        head
    }

    /// As [`Head::plan`], for a block that is known to be one of its own.
    pub(super) fn plan_large(meta: &Meta, key_len: usize, value_len: usize) -> Self {
        let head = Self::plan(meta, key_len, value_len);
        Self { word: head.word | WIDE | EXPIRY, large: true, fields_at: 12, ..head }
    }

    #[inline]
    pub(super) fn key_at(&self) -> usize {
        let mut at = self.fields_at;
        if self.word & (EXPIRY | FLAGS | CAS) != 0 {
            at += if self.word & EXPIRY != 0 { 8 } else { 0 };
            at += if self.word & FLAGS != 0 { 4 } else { 0 };
            at += if self.word & CAS != 0 { CAS_LEN } else { 0 };
        }
        at
    }

    #[inline]
    pub(super) fn value_at(&self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.value_at() + self.value_len
    }

    /// Writes header and optional fields.
    ///
    /// # Safety
    /// `start` is a block of at least `self.key_at()` bytes.
    pub(super) unsafe fn write(&self, start: NonNull<u8>, meta: &Meta, access: u32) {
        let word = self.word | (access & ACCESS_MASK) << ACCESS_SHIFT;
        // SAFETY: by contract; fields lie one behind the other before the key.
        unsafe {
            start.cast::<u32>().write(word);
            if word & WIDE == 0 {
                let lens = [self.key_len as u8, self.value_len as u8];
                start.add(4).cast::<[u8; 2]>().write(lens);
            } else {
                let mark = if self.large { LARGE } else { 0 };
                let lens = [self.key_len as u32 | mark, self.value_len as u32];
                start.add(4).cast::<[u32; 2]>().write(lens);
            }
            let mut at = start.add(self.fields_at);
            if word & EXPIRY != 0 {
                at.cast::<u64>().write_unaligned(meta.expiry.unwrap_or(0));
                at = at.add(8);
            }
            if word & FLAGS != 0 {
                at.cast::<u32>().write_unaligned(meta.flags);
                at = at.add(4);
            }
            if word & CAS != 0 {
                at.cast::<u64>().write_unaligned(meta.cas);
                at.add(CAS_LEN - 1).write(meta.marks);
            }
        }
    }
}
