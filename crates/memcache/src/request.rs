//! Requests, in the form common to the three protocols.

use crate::{RequestFault, RequestFlags, binary, text};
use keyway_base::{ByteRange, Limits};

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Lines: classic and meta commands.
    Text,
    /// Packets.
    Binary,
}

impl Wire {
    /// The first byte of every binary request.
    pub const BINARY_MAGIC: u8 = 0x80;

    /// Returns the protocol of a client whose first byte is `first`. It applies to the whole
    /// connection: on a text connection packets are unknown commands, and on a binary one a line
    /// ends it.
    pub fn of(first: u8) -> Wire {
        if first == Self::BINARY_MAGIC { Wire::Binary } else { Wire::Text }
    }
}

/// The protocol of a request or a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Classic text.
    #[default]
    Text,
    /// Meta text.
    Meta,
    /// Binary.
    Binary,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// Read items: get, gets, mg, binary get and getk.
    #[default]
    Get,
    /// Read items and set their expiry: gat, gats, mg with `T`.
    GetTouch,
    /// Store.
    Set,
    /// Store if there is no item.
    Add,
    /// Store if there is an item.
    Replace,
    /// Append to the item.
    Append,
    /// Prepend to the item.
    Prepend,
    /// Store if the value still has the number [`Head::cas`].
    Cas,
    /// Delete.
    Delete,
    /// Add [`Head::delta`] to a number.
    Incr,
    /// Subtract [`Head::delta`] from a number, not below zero.
    Decr,
    /// Set the expiry.
    Touch,
    /// Empty the cache, after [`Head::expiry`] seconds.
    FlushAll,
    /// Statistics. The keys are the words after the command.
    Stats,
    /// The server's version.
    Version,
    /// Set the level of the log, [`Head::delta`].
    Verbosity,
    /// End the connection.
    Quit,
    /// Nothing. The reply means that everything before it is done.
    Noop,
    /// Details of an item: me.
    Debug,
    /// Change the memory bound.
    CacheMemlimit,
    /// End the server.
    Shutdown,
    /// Another command that manages a server (slabs, lru, lru_crawler, watch, extstore,
    /// refresh_certs). The keys are all its words.
    Admin,
    /// List the authentication mechanisms.
    SaslList,
    /// Begin to authenticate. The key is the mechanism, and the value is the initial data.
    SaslStart,
    /// Continue to authenticate.
    SaslStep,
}

impl Verb {
    /// Returns whether it carries a value to store.
    pub fn stores(self) -> bool {
        use Verb::*;
        matches!(self, Set | Add | Replace | Append | Prepend | Cas)
    }

    /// Returns whether it reads items.
    pub fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::GetTouch)
    }
}

/// Everything of a request except its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What to do.
    pub verb: Verb,
    /// The protocol in which it was sent.
    pub dialect: Dialect,
    /// True if a reply that only confirms is left out: noreply, meta `q`, the quiet form of a
    /// binary operation.
    pub quiet: bool,
    /// What else is asked for.
    pub asked: RequestFlags,
    /// The client's flags, stored with the value.
    pub flags: u32,
    /// The expiry as on the wire: 0 is never, up to 30 days are seconds from now, more is seconds
    /// since 1970, less than 0 is already expired. For [`Verb::FlushAll`] it is the delay.
    pub expiry: i64,
    /// The number the value must have.
    pub cas: Option<u64>,
    /// The number that the value will get, meta `E`.
    pub cas_new: Option<u64>,
    /// The step of [`Verb::Incr`] and [`Verb::Decr`].
    pub delta: u64,
    /// The value of a missing number, if [`Head::vivify`] is given.
    pub initial: u64,
    /// Create a missing item with this expiry: meta `N`, binary incr.
    pub vivify: Option<i64>,
    /// The first client that reads an item with less than this many seconds left must fill it
    /// again, meta `R`.
    pub recache: Option<i64>,
    /// Binary: the operation as sent. The reply repeats it.
    pub opcode: u8,
    /// Binary: a number that the reply repeats.
    pub opaque: u32,
}

/// A request. One value is filled again and again, and its lists keep their capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Everything except its bytes.
    pub head: Head,
    /// The keys, or the words of a command without keys. See [`Request::key`].
    pub keys: Vec<ByteRange>,
    /// The value, without its line end.
    pub value: ByteRange,
    /// The words after a meta command's key (and length), separated by blanks.
    pub meta: ByteRange,
    /// The decoded key of a meta command in base64. [`Request::keys`] is then a range into this.
    pub decoded: Vec<u8>,
    /// True if its bytes are those that [`crate::compose_request`] would append for a server of
    /// classic text, so that they may be sent unchanged. This is set only for the most common
    /// requests.
    pub is_canonical: bool,
}

impl Request {
    /// Returns the key at `index`, as the server knows it. `buf` is the parsed buffer.
    ///
    /// # Panics
    /// Panics if there is no such key, or if `buf` is another buffer.
    #[inline]
    pub fn key<'a>(&'a self, buf: &'a [u8], index: usize) -> &'a [u8] {
        self.keys[index].of(if self.head.asked.has(RequestFlags::KEY_BASE64) {
            &self.decoded
        } else {
            buf
        })
    }

    /// Returns the ranges of all keys in their order, and the bytes to which they refer: `buf`, or
    /// the bytes decoded from it.
    pub fn key_ranges<'a>(&'a self, buf: &'a [u8]) -> (&'a [u8], &'a [ByteRange]) {
        let is_decoded = self.head.asked.has(RequestFlags::KEY_BASE64);
        (if is_decoded { &self.decoded } else { buf }, &self.keys)
    }

    /// Returns all keys, each as from [`Request::key`].
    pub fn keys<'a>(&'a self, buf: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        (0..self.keys.len()).map(move |index| self.key(buf, index))
    }

    #[inline]
    pub(crate) fn clear(&mut self, dialect: Dialect) {
        self.head = Head { dialect, ..Head::default() };
        self.keys.clear();
        self.value = ByteRange::default();
        self.meta = ByteRange::default();
        self.decoded.clear();
        self.is_canonical = false;
    }
}

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct ParseLimits {
    /// Length of the longest value, in bytes. memcached's own default is 1 MiB for the whole item.
    pub value_len_max: u32,
    /// Largest number of keys of one request.
    pub keys_max: u32,
    /// Length of the longest line with many keys, in bytes.
    pub keys_line_len_max: u32,
}

impl ParseLimits {
    /// Length of the longest line of any other command, in bytes. This is memcached's own limit.
    pub const LINE_LEN_MAX: usize = 2048;

    /// Length of the longest value that memcached accepts by default, in bytes.
    pub const VALUE_LEN_DEFAULT: u32 = 1 << 20;

    /// Returns limits with values of up to `value_len_max` bytes, and everything else as in
    /// `limits`.
    pub fn of(limits: &Limits, value_len_max: u32) -> Self {
        Self {
            value_len_max: value_len_max.min(limits.bulk_len_max),
            keys_max: limits.request_args_max,
            keys_line_len_max: limits.request_len_max.min(1 << 20),
        }
    }
}

/// Outcome of [`parse_request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole request of `consumed` bytes. Ranges refer to those bytes.
    Ready {
        /// Length of the request in bytes.
        consumed: usize,
    },
    /// The request is incomplete. It need not be parsed again before the buffer holds `at_least`
    /// bytes.
    NeedMore {
        /// Total buffer length from which parsing again can succeed, in bytes.
        at_least: usize,
    },
    /// The request is refused after `consumed` bytes. The following `skip` bytes belong to it as
    /// well and must be dropped as they arrive: they may be too many to hold.
    Refused {
        /// Number of bytes that were read.
        consumed: usize,
        /// Number of bytes to drop after them.
        skip: u64,
        /// The reason. [`RequestFault::write`] writes the reply, and [`RequestFault::closes`] says
        /// whether to close.
        fault: RequestFault,
    },
}

/// Reads one request from the start of `buf` into `request`. `request` is overwritten even if the
/// outcome is not [`Parsed::Ready`]. After [`Parsed::Refused`], its head is used to answer the
/// fault.
#[inline]
pub fn parse_request(
    buf: &[u8],
    wire: Wire,
    limits: &ParseLimits,
    request: &mut Request,
) -> Parsed {
    match wire {
        Wire::Text => text::parse(buf, limits, request),
        Wire::Binary => binary::parse(buf, limits, request),
    }
}
