//! One key with its value in one block of memory.
//!
//! ```text
//!  word u32 │ lengths            │ expiry u64 │ flags u32 │ cas u64, marks u8 │ key │ value
//!           │ u8 u8 or u32 u32   └───────── each only when the word says so ───┘
//!  word: encoding 4 bits, WIDE, EXPIRY, FLAGS, CAS, FRESH, seconds of last access 23 bits
//! ```
//! Lengths are wide when key or value is longer than 255 bytes. A block of its
//! own is marked in the key length; it always has the expiry field (0: none),
//! so that setting one never moves hundreds of megabytes.
//! The encoding says what the value's bytes are: a string, the compact blob of a
//! small collection, or the address of a boxed one, which the item owns.

mod boxed;
mod shared;

use crate::collections::{Boxed, timed};
use keyway_memory::nodes::{NodeBox, Nodes};
use keyway_memory::{Heap, SLOT_LEN_MAX, block_len};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

const ENCODING_MASK: u32 = 0xf;
const WIDE: u32 = 1 << 4;
const EXPIRY: u32 = 1 << 5;
const FLAGS: u32 = 1 << 6;
const CAS: u32 = 1 << 7;
/// Nobody has read the value since it was set.
const FRESH: u32 = 1 << 8;
const ACCESS_SHIFT: u32 = 9;
/// Seconds of last access wrap after 97 days.
pub(crate) const ACCESS_MASK: u32 = 0x007f_ffff;

/// Bytes of a version with its marks.
const CAS_LEN: usize = 9;

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
    /// What TYPE says of it.
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

/// What the bytes of a value are. Strings differ only in what OBJECT ENCODING
/// says of them.
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

    /// Whether it is a hash whose fields may expire.
    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        (self as u8) >= Self::HashTimed as u8
    }

    /// Whether the value is the address of a structure.
    #[inline]
    fn is_boxed(self) -> bool {
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
    fn of(word: u32) -> Self {
        let index = (word & ENCODING_MASK) as usize;
        Self::ALL.get(index).copied().unwrap_or(Self::Raw)
    }
}

/// Bytes of a value that is an address.
const ADDRESS_LEN: usize = size_of::<usize>();

/// What an item carries besides key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) encoding: Encoding,
    /// Milliseconds since the Unix epoch, never 0.
    pub(crate) expiry: Option<u64>,
    /// A memcached client's own word; takes no memory when 0.
    pub(crate) flags: u32,
    /// Number of the value for compare-and-swap; takes no memory when 0, which
    /// stands for one that nobody has asked for yet. Whoever changes the value
    /// gives it another, or 0.
    pub(crate) cas: u64,
    /// What memcached clients were told of the item: [`Meta::STALE`] and
    /// [`Meta::SENT`]. Kept only with a number.
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
struct Head {
    word: u32,
    large: bool,
    /// Offset of the optional fields.
    fields_at: usize,
    key_len: usize,
    value_len: usize,
}

impl Head {
    /// # Safety
    /// `start` is the start of a live item.
    #[inline]
    unsafe fn read(start: NonNull<u8>) -> Self {
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
    fn plan(meta: &Meta, key_len: usize, value_len: usize) -> Self {
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
    fn plan_large(meta: &Meta, key_len: usize, value_len: usize) -> Self {
        let head = Self::plan(meta, key_len, value_len);
        Self { word: head.word | WIDE | EXPIRY, large: true, fields_at: 12, ..head }
    }

    #[inline]
    fn key_at(&self) -> usize {
        let mut at = self.fields_at;
        if self.word & (EXPIRY | FLAGS | CAS) != 0 {
            at += if self.word & EXPIRY != 0 { 8 } else { 0 };
            at += if self.word & FLAGS != 0 { 4 } else { 0 };
            at += if self.word & CAS != 0 { CAS_LEN } else { 0 };
        }
        at
    }

    #[inline]
    fn value_at(&self) -> usize {
        self.key_at() + self.key_len
    }

    #[inline]
    fn len(&self) -> usize {
        self.value_at() + self.value_len
    }

    /// Writes header and optional fields.
    ///
    /// # Safety
    /// `start` is a block of at least `self.key_at()` bytes.
    unsafe fn write(&self, start: NonNull<u8>, meta: &Meta, access: u32) {
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

/// Where an item is, for whoever knows that it still is there.
#[derive(Clone, Copy)]
pub(crate) struct Address(NonNull<u8>);

// SAFETY: nothing is reached through it but by `Item::at`, whose caller vouches
// for the item, as it would for one of its own thread.
unsafe impl Send for Address {}
// SAFETY: as above; the address itself never changes.
unsafe impl Sync for Address {}

impl Address {
    /// Where the item's block begins.
    pub(crate) fn start(self) -> NonNull<u8> {
        self.0
    }

    /// The item.
    ///
    /// # Safety
    /// It stays live and unchanged for `'a`.
    #[inline]
    pub(crate) unsafe fn item<'a>(self) -> Item<'a> {
        // SAFETY: by contract.
        unsafe { Item::at(self.0) }
    }
}

/// A live item to read.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    start: NonNull<u8>,
    head: Head,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// # Safety
    /// `start` is the start of an item that stays live and unchanged for `'a`.
    #[inline]
    pub(crate) unsafe fn at(start: NonNull<u8>) -> Self {
        // SAFETY: by contract.
        Self { start, head: unsafe { Head::read(start) }, of: PhantomData }
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        // SAFETY: the header describes the live block.
        unsafe {
            let key = self.start.add(self.head.key_at());
            std::slice::from_raw_parts(key.as_ptr(), self.head.key_len)
        }
    }

    /// The value's bytes, whatever they are: see [`Encoding`].
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        // SAFETY: the header describes the live block.
        unsafe {
            let value = self.start.add(self.head.value_at());
            std::slice::from_raw_parts(value.as_ptr(), self.head.value_len)
        }
    }

    /// The structure that the value is the address of, if it is one.
    #[inline]
    pub(crate) fn boxed(&self) -> Option<&'a Boxed> {
        let address = self.boxed_address()?;
        // SAFETY: a boxed item owns the structure at its address, which lives
        // and stays unchanged as long as the item does.
        Some(unsafe { &*address })
    }

    #[inline]
    fn boxed_address(&self) -> Option<*mut Boxed> {
        if !self.encoding().is_boxed() {
            return None;
        }
        let bytes = <[u8; ADDRESS_LEN]>::try_from(self.value()).ok()?;
        Some(std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(bytes)))
    }

    /// Where the item is.
    #[inline]
    pub(crate) fn address(&self) -> Address {
        Address(self.start)
    }

    #[inline]
    pub(crate) fn encoding(&self) -> Encoding {
        Encoding::of(self.head.word)
    }

    /// When it expires, in milliseconds since the Unix epoch.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<u64> {
        if self.head.word & EXPIRY == 0 {
            return None;
        }
        // SAFETY: the word says that the field is there.
        let expiry = unsafe { self.start.add(self.head.fields_at).cast::<u64>().read_unaligned() };
        (expiry != 0).then_some(expiry)
    }

    /// When it expires, and when something in it does.
    #[inline]
    pub(crate) fn times(&self) -> Times {
        let fields = if self.encoding().is_timed() { timed::earliest(self) } else { None };
        Times { expiry: self.expiry(), fields }
    }

    /// The low bits of the second it was last accessed in: see [`ACCESS_MASK`].
    #[inline]
    pub(crate) fn access(&self) -> u32 {
        self.head.word >> ACCESS_SHIFT
    }

    /// A memcached client's own word.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        if self.head.word & FLAGS == 0 { 0 } else { self.meta().flags }
    }

    /// The value's number, 0 for none, and its marks.
    #[inline]
    pub(crate) fn cas_and_marks(&self) -> (u64, u8) {
        if self.head.word & CAS == 0 {
            return (0, 0);
        }
        let meta = self.meta();
        (meta.cas, meta.marks)
    }

    pub(crate) fn meta(&self) -> Meta {
        let mut at = self.head.fields_at;
        at += if self.head.word & EXPIRY != 0 { 8 } else { 0 };
        let mut meta = Meta::new(self.encoding(), self.expiry());
        meta.fresh = self.head.word & FRESH != 0;
        // SAFETY: the word says which fields are there.
        unsafe {
            if self.head.word & FLAGS != 0 {
                meta.flags = self.start.add(at).cast::<u32>().read_unaligned();
                at += 4;
            }
            if self.head.word & CAS != 0 {
                meta.cas = self.start.add(at).cast::<u64>().read_unaligned();
                meta.marks = self.start.add(at + CAS_LEN - 1).read();
            }
        }
        meta
    }
}

/// Room for values that grow: an eighth more than asked for. Less copies more
/// often, more wastes memory. (Slots have their class's spare bytes already.)
fn roomy(len: usize) -> usize {
    len + len / 8
}

/// An item that nobody else knows of. Must be released: dropping it loses its
/// memory for good.
#[must_use]
pub(crate) struct Owned {
    start: NonNull<u8>,
}

impl Owned {
    /// An item whose value is `value`, then zeros up to `value_len`.
    pub(crate) fn create(
        heap: &Heap,
        arena: usize,
        meta: &Meta,
        access: u32,
        key: &[u8],
        (value, value_len): (&[u8], usize),
    ) -> Self {
        let head = Head::plan(meta, key.len(), value_len);
        let start = if head.large { heap.large(head.len()) } else { heap.slot(arena, head.len()) };
        let mut item = Self { start };
        // SAFETY: the block has at least `head.len()` bytes.
        unsafe { item.fill(&head, meta, access, key, value) };
        item
    }

    /// The same item under another key.
    pub(crate) fn rekey(self, heap: &Heap, arena: usize, access: u32, key: &[u8]) -> Self {
        let (meta, value) = (self.item().meta(), self.item().value());
        // What a boxed value's address leads to belongs to the new item now.
        let renamed = Self::create(heap, arena, &meta, access, key, (value, value.len()));
        self.free_block(heap);
        renamed
    }

    /// Whether the item lies on a page that is to become empty, see
    /// [`Heap::is_sparse`].
    pub(crate) fn is_on_sparse_page(&self, heap: &Heap) -> bool {
        // SAFETY: an item that is not large lies in a slot of the heap, which
        // is live.
        !self.item().head.large && unsafe { heap.is_sparse(self.start) }
    }

    /// Moves the item, which is not large, to another slot of the same length.
    pub(crate) fn relocate(&mut self, heap: &Heap, arena: usize) {
        // SAFETY: the item's slot is live, and nobody else knows of the item
        // while it is borrowed.
        self.start = unsafe { heap.relocate(arena, self.start) };
    }

    /// # Safety
    /// The block has at least `head.len()` bytes and overlaps neither `key`
    /// nor `value`, which is no longer than `head.value_len`.
    unsafe fn fill(&mut self, head: &Head, meta: &Meta, access: u32, key: &[u8], value: &[u8]) {
        debug_assert!(value.len() <= head.value_len);
        // SAFETY: by contract.
        unsafe {
            head.write(self.start, meta, access);
            let at = self.start.add(head.key_at());
            at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let at = at.add(key.len());
            at.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
            if value.len() < head.value_len {
                at.add(value.len()).write_bytes(0, head.value_len - value.len());
            }
        }
    }

    /// The item's address; nobody frees it until it is owned again.
    #[inline]
    pub(crate) fn into_start(self) -> NonNull<u8> {
        self.start
    }

    /// # Safety
    /// `start` came from [`Owned::into_start`] and is not owned otherwise.
    #[inline]
    pub(crate) unsafe fn from_start(start: NonNull<u8>) -> Self {
        Self { start }
    }

    #[inline]
    pub(crate) fn item(&self) -> Item<'_> {
        // SAFETY: the item is live as long as it is owned.
        unsafe { Item::at(self.start) }
    }

    /// Bytes it takes of the system's memory, with what its value leads to.
    pub(crate) fn bytes(&self) -> usize {
        let item = self.item();
        // SAFETY: the item's block is live and of the kind its header tells.
        let block = unsafe {
            if item.head.large {
                keyway_memory::large_bytes(self.start)
            } else {
                keyway_memory::slot_capacity(self.start)
            }
        };
        block + item.boxed().map_or(0, Boxed::bytes)
    }

    /// Frees the item; the bytes it took. A large structure is only handed to
    /// the heap here, to be freed in steps.
    #[inline]
    pub(crate) fn release(self, heap: &Heap) -> usize {
        let boxed = match self.item().boxed_address() {
            Some(address) => {
                // SAFETY: the address came from a box in `create_boxed`, and
                // the item that owned it is gone with this function.
                let boxed = unsafe { NodeBox::from_raw_in(address, Nodes) };
                NodeBox::into_inner(boxed).discard(heap)
            }
            None => 0,
        };
        boxed + self.free_block(heap)
    }

    fn free_block(self, heap: &Heap) -> usize {
        // SAFETY: the block is live, of the kind its header tells, and nobody
        // else knows of it.
        unsafe {
            if self.item().head.large {
                heap.free_large(self.start)
            } else {
                heap.free_slot(self.start)
            }
        }
    }

    /// Sets value and meta where the item lies, if the block suits them: not
    /// too short, nor so long that memory would be wasted. Nor does it suit
    /// when the item owns a structure.
    pub(crate) fn overwrite(&mut self, meta: &Meta, access: u32, value: &[u8]) -> bool {
        if self.item().encoding().is_boxed() || self.is_lent() {
            return false;
        }
        let Some(head) = self.plan_in_place(meta, value.len()) else { return false };
        self.shift(&head, head.key_len);
        // SAFETY: the block has room for `head.len()` bytes; the key is in
        // place already.
        unsafe {
            head.write(self.start, meta, access);
            let at = self.start.add(head.value_at());
            at.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        true
    }

    /// Gives the value another length and the item another meta; the value
    /// keeps its first bytes, new ones are zero. The change in bytes taken.
    pub(crate) fn reshape(
        &mut self,
        heap: &Heap,
        arena: usize,
        meta: &Meta,
        value_len: usize,
    ) -> i64 {
        let (access, old) = (self.item().access(), self.item().head);
        let is_lent = self.is_lent();
        if let Some(head) = self.plan_in_place(meta, value_len)
            && (!is_lent || old.key_at() == head.key_at() && old.value_len == value_len)
        {
            self.reshape_in_place(&head, meta, access, old.value_len);
            return 0;
        }
        let before = self.bytes();
        let head = Head::plan(meta, old.key_len, value_len);
        if old.large && head.large && old.key_at() == head.key_at() && !is_lent {
            // SAFETY: the block is one of its own, and owned.
            self.start = unsafe { heap.resize_large(self.start, roomy(head.len())) };
            self.reshape_in_place(&head, meta, access, old.value_len);
        } else {
            let kept = old.value_len.min(value_len);
            let item = self.item();
            let (key, value) = (item.key(), &item.value()[..kept]);
            let moved = if head.large {
                let mut moved = Self { start: heap.large(roomy(head.len())) };
                // SAFETY: the new block has at least `head.len()` bytes.
                unsafe { moved.fill(&head, meta, access, key, value) };
                moved
            } else {
                Self::create(heap, arena, meta, access, key, (value, value_len))
            };
            // What a boxed value's address leads to goes on with the new block.
            std::mem::replace(self, moved).free_block(heap);
        }
        self.bytes() as i64 - before as i64
    }

    fn reshape_in_place(&mut self, head: &Head, meta: &Meta, access: u32, old_value_len: usize) {
        let kept = old_value_len.min(head.value_len);
        self.shift(head, head.key_len + kept);
        // SAFETY: the block has room for `head.len()` bytes; key and the kept
        // part of the value are in place already.
        unsafe {
            head.write(self.start, meta, access);
            let at = self.start.add(head.value_at() + kept);
            at.write_bytes(0, head.value_len - kept);
        }
    }

    /// The header with which the item could stay in its block.
    fn plan_in_place(&self, meta: &Meta, value_len: usize) -> Option<Head> {
        let old = self.item().head;
        if old.large {
            let head = Head::plan_large(meta, old.key_len, value_len);
            // SAFETY: the block is one of its own, and live.
            let capacity = unsafe { keyway_memory::large_capacity(self.start) };
            (head.len() > SLOT_LEN_MAX && (capacity / 2..=capacity).contains(&head.len()))
                .then_some(head)
        } else {
            let head = Head::plan(meta, old.key_len, value_len);
            // SAFETY: the block is a slot, and live.
            let capacity = unsafe { keyway_memory::slot_capacity(self.start) };
            (!head.large && block_len(head.len()) == capacity).then_some(head)
        }
    }

    /// Moves the first `len` bytes of key and value to where `head` has them.
    fn shift(&mut self, head: &Head, len: usize) {
        let old = self.item().head;
        if old.key_at() != head.key_at() {
            // SAFETY: both runs lie in the block.
            unsafe {
                let from = self.start.add(old.key_at());
                self.start.add(head.key_at()).copy_from(from, len);
            }
        }
    }

    /// Puts `parts` in the place of the value's bytes in `range`; the change in
    /// bytes taken.
    pub(crate) fn splice(
        &mut self,
        (heap, arena): (&Heap, usize),
        range: Range<usize>,
        parts: &[&[u8]],
    ) -> i64 {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let old_len = self.item().value().len();
        let new_len = old_len - range.len() + added;
        let tail_at = range.start + added;
        let meta = self.item().meta();
        let mut change = 0;
        if added < range.len() {
            self.value_mut().copy_within(range.end.., tail_at);
            change = self.reshape(heap, arena, &meta, new_len);
        } else if added > range.len() {
            change = self.reshape(heap, arena, &meta, new_len);
            self.value_mut().copy_within(range.end..old_len, tail_at);
        }
        let mut at = range.start;
        let value = self.value_mut();
        for part in parts {
            value[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        change
    }

    /// The value, to change its bytes.
    pub(crate) fn value_mut(&mut self) -> &mut [u8] {
        let head = self.item().head;
        // SAFETY: the header describes the block, which is borrowed mutably.
        unsafe {
            let value = self.start.add(head.value_at());
            std::slice::from_raw_parts_mut(value.as_ptr(), head.value_len)
        }
    }

    /// Notes the second of the last access.
    #[inline]
    pub(crate) fn set_access(&mut self, access: u32) {
        self.note_access(access, ACCESS_MASK << ACCESS_SHIFT);
    }

    /// The same, of one that read the value.
    #[inline]
    pub(crate) fn set_read(&mut self, access: u32) {
        self.note_access(access, ACCESS_MASK << ACCESS_SHIFT | FRESH);
    }

    #[inline]
    fn note_access(&mut self, access: u32, replaced: u32) {
        // SAFETY: the header is there. Written only when it changes, lest
        // every read dirty a cache line.
        unsafe {
            let word = self.start.cast::<u32>();
            let new = word.read() & !replaced | (access & ACCESS_MASK) << ACCESS_SHIFT;
            if word.read() != new {
                word.write(new);
            }
        }
    }

    pub(crate) fn set_encoding(&mut self, encoding: Encoding) {
        // SAFETY: the header is there.
        unsafe {
            let word = self.start.cast::<u32>();
            word.write(word.read() & !ENCODING_MASK | encoding as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_meta() -> impl Strategy<Value = Meta> {
        let encoding =
            prop_oneof![Just(Encoding::Text), Just(Encoding::Plain), Just(Encoding::Raw)];
        let cas = prop_oneof![Just((0, 0)), (Just(u64::MAX), 0..4u8)];
        (encoding, proptest::option::of(1..u64::MAX), 0..2u32, cas, any::<bool>()).prop_map(
            |(encoding, expiry, flags, (cas, marks), fresh)| Meta {
                encoding,
                expiry,
                flags,
                cas,
                marks,
                fresh,
            },
        )
    }

    fn any_value() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![0..300usize, Just(7100), 7000..20_000usize, Just(100_000)];
        (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
    }

    proptest! {
        #[test]
        fn an_item_reads_back_as_written_through_any_changes(
            key_len in prop_oneof![0..20usize, 250..260usize, Just(9000)],
            first in (any_meta(), any_value()),
            changes in proptest::collection::vec((any::<bool>(), any_meta(), any_value()), 0..8),
        ) {
            let heap = Heap::new(1);
            let key = vec![b'k'; key_len];
            let (mut meta, mut value) = first;
            let mut item = Owned::create(&heap, 0, &meta, 5, &key, (&value, value.len()));
            let mut bytes = item.bytes() as i64;
            for (set, new_meta, new_value) in changes {
                if set {
                    if item.overwrite(&new_meta, 5, &new_value) {
                        value = new_value;
                        meta = new_meta;
                    }
                } else {
                    bytes += item.reshape(&heap, 0, &new_meta, new_value.len());
                    value.resize(new_value.len(), 0);
                    meta = new_meta;
                }
                prop_assert_eq!(item.item().key(), &key[..]);
                prop_assert_eq!(item.item().value(), &value[..]);
                prop_assert_eq!(item.item().meta(), meta);
                prop_assert_eq!(item.item().access(), 5);
                prop_assert_eq!(item.bytes() as i64, bytes);
            }
            prop_assert_eq!(item.release(&heap) as i64, bytes);
        }
    }

    #[test]
    fn a_short_item_has_six_bytes_of_header() {
        let head = Head::plan(&Meta::new(Encoding::Text, None), 16, 64);
        assert_eq!(head.len(), 86);
        let head = Head::plan(&Meta::new(Encoding::Text, Some(1)), 16, 64);
        assert_eq!(head.len(), 94);
    }
}
