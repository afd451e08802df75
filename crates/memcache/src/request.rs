//! Requests: the form common to the three protocols.

use crate::{RequestFault, RequestFlags, binary, text};
use keyway_base::{ByteRange, Limits};

/// What a connection speaks.
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

    /// What a client speaks whose first byte is `first`. It holds for the
    /// connection: on a text one packets are unknown commands, on a binary one
    /// a line ends it.
    pub fn of(first: u8) -> Wire {
        if first == Self::BINARY_MAGIC { Wire::Binary } else { Wire::Text }
    }
}

/// Which of the three protocols a request or a server uses.
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

/// What a request wants done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// Read items: get, gets, mg, binary get and getk.
    #[default]
    Get,
    /// Read items and set their expiry: gat, gats, mg with `T`.
    GetTouch,
    /// Store.
    Set,
    /// Store if there is none.
    Add,
    /// Store if there is one.
    Replace,
    /// Put behind what is there.
    Append,
    /// Put before what is there.
    Prepend,
    /// Store if the value has still the number [`Head::cas`].
    Cas,
    /// Delete.
    Delete,
    /// Add [`Head::delta`] to a number.
    Incr,
    /// Take [`Head::delta`] from a number, not below zero.
    Decr,
    /// Set the expiry.
    Touch,
    /// Empty the cache, after [`Head::expiry`] seconds.
    FlushAll,
    /// Statistics; the keys are the words behind it.
    Stats,
    /// The server's version.
    Version,
    /// Set the level of the log, [`Head::delta`].
    Verbosity,
    /// End the connection.
    Quit,
    /// Nothing: tells that everything before it is done.
    Noop,
    /// What is known of an item: me.
    Debug,
    /// Change the memory bound.
    CacheMemlimit,
    /// End the server.
    Shutdown,
    /// Another command that manages a server (slabs, lru, lru_crawler, watch,
    /// extstore, refresh_certs); the keys are all its words.
    Admin,
    /// The ways to authenticate.
    SaslList,
    /// Begin to authenticate: the key is the way, the value what it begins with.
    SaslStart,
    /// Go on authenticating.
    SaslStep,
}

impl Verb {
    /// Whether it carries a value to store.
    pub fn stores(self) -> bool {
        use Verb::*;
        matches!(self, Set | Add | Replace | Append | Prepend | Cas)
    }

    /// Whether it reads items.
    pub fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::GetTouch)
    }
}

/// All of a request but its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What to do.
    pub verb: Verb,
    /// The protocol it came in.
    pub dialect: Dialect,
    /// No reply where it would only confirm: noreply, meta `q`, a binary
    /// operation's quiet form.
    pub quiet: bool,
    /// What else is asked for.
    pub asked: RequestFlags,
    /// The client's flags, stored with the value.
    pub flags: u32,
    /// Expiry as on the wire: 0 is never, up to 30 days are seconds from now,
    /// more is seconds since 1970, less than 0 is expired already. The delay of
    /// [`Verb::FlushAll`].
    pub expiry: i64,
    /// The number the value must have.
    pub cas: Option<u64>,
    /// The number the value shall get, meta `E`.
    pub cas_new: Option<u64>,
    /// Step of [`Verb::Incr`] and [`Verb::Decr`].
    pub delta: u64,
    /// What a number that is missing becomes, if [`Head::vivify`] is given.
    pub initial: u64,
    /// Create what is missing, with this expiry: meta `N`, binary incr.
    pub vivify: Option<i64>,
    /// The first to read an item with less than so many seconds left shall
    /// fill it again, meta `R`.
    pub recache: Option<i64>,
    /// Binary: the operation as sent, to be repeated in the reply.
    pub opcode: u8,
    /// Binary: to be repeated in the reply.
    pub opaque: u32,
}

/// A request. One of these is filled again and again: its lists keep their
/// capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// All but its bytes.
    pub head: Head,
    /// The keys, or the words of a command without; see [`Request::key`].
    pub keys: Vec<ByteRange>,
    /// The value, without its line end.
    pub value: ByteRange,
    /// The words behind a meta command's key (and length), blanks between.
    pub meta: ByteRange,
    /// The key of a meta command in base64, decoded: [`Request::keys`] is a
    /// range into this then.
    pub decoded: Vec<u8>,
    /// Its bytes are those that [`crate::compose_request`] would append for a
    /// server of classic text, and may be sent as they are. Told of the commonest
    /// requests only.
    pub is_canonical: bool,
}

impl Request {
    /// The key at `index`, as the server knows it; `buf` is what was parsed.
    ///
    /// # Panics
    /// When there is no such key, or `buf` is another buffer.
    #[inline]
    pub fn key<'a>(&'a self, buf: &'a [u8], index: usize) -> &'a [u8] {
        self.keys[index].of(if self.head.asked.has(RequestFlags::KEY_BASE64) {
            &self.decoded
        } else {
            buf
        })
    }

    /// Where all keys are, one behind the other, and in which bytes: `buf`, or those decoded from it.
    pub fn key_ranges<'a>(&'a self, buf: &'a [u8]) -> (&'a [u8], &'a [ByteRange]) {
        let is_decoded = self.head.asked.has(RequestFlags::KEY_BASE64);
        (if is_decoded { &self.decoded } else { buf }, &self.keys)
    }

    /// All keys, as [`Request::key`].
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

/// Bounds on one request.
#[derive(Clone, Copy, Debug)]
pub struct ParseLimits {
    /// Longest value, in bytes. memcached's own default is 1 MiB for the whole item.
    pub value_len_max: u32,
    /// Most keys of one request.
    pub keys_max: u32,
    /// Longest line that names many keys, in bytes.
    pub keys_line_len_max: u32,
}

impl ParseLimits {
    /// Longest line of any other command, in bytes: memcached's own bound.
    pub const LINE_LEN_MAX: usize = 2048;

    /// Longest value memcached takes unless told otherwise, in bytes.
    pub const VALUE_LEN_DEFAULT: u32 = 1 << 20;

    /// Values of up to `value_len_max` bytes, all else as `limits` say.
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
    /// A whole request of `consumed` bytes, with ranges into those.
    Ready {
        /// Bytes of the request.
        consumed: usize,
    },
    /// Not whole: no use looking again before the buffer holds `at_least`.
    NeedMore {
        /// Total buffer length worth parsing again, in bytes.
        at_least: usize,
    },
    /// Refused after `consumed` bytes. The `skip` bytes that follow them belong to
    /// it too and are to be dropped as they come: they may be too many to hold.
    Refused {
        /// Bytes of what was read.
        consumed: usize,
        /// Bytes to drop behind them.
        skip: u64,
        /// Why. [`RequestFault::write`] answers, [`RequestFault::closes`] tells what then.
        fault: RequestFault,
    },
}

/// Reads one request from the start of `buf` into `request`, which is
/// overwritten even where the outcome is not [`Parsed::Ready`]; after
/// [`Parsed::Refused`] its head is what the fault is answered by.
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
