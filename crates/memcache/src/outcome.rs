//! Replies of servers, in the form common to the three protocols.

/// What a reply says about an item. Fields that it does not contain are `None`, empty or false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its key as in the reply.
    pub key: &'a [u8],
    /// True if the key is in base64.
    pub key_base64: bool,
    /// Its value.
    pub value: &'a [u8],
    /// True if the value is left out of what is written. The caller inserts it before the last
    /// [`value_end_len`](crate::value_end_len) bytes.
    pub is_apart: bool,
    /// The client's flags.
    pub flags: u32,
    /// The unique number of its value.
    pub cas: Option<u64>,
    /// Remaining seconds. -1: it does not expire.
    pub ttl: Option<i64>,
    /// Length of its value, in bytes.
    pub size: Option<u64>,
    /// Number of seconds since it was last used.
    pub last_access: Option<u64>,
    /// True if it was read before.
    pub hit: Option<bool>,
    /// Meta `W`: whether this client must fill it again.
    pub won: bool,
    /// Meta `X`: whether it is stale.
    pub stale: bool,
    /// Meta `Z`: whether another client was told to fill it again.
    pub sent: bool,
}

/// The kind of an error. This is all that the protocols share of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such command.
    Unknown,
    /// The request is wrong.
    Client,
    /// The stored value is no number.
    NotNumber,
    /// The client is not allowed to do it.
    Auth,
    /// The server cannot do it.
    Server,
    /// The value is too long for the server.
    TooLarge,
    /// The server has no room.
    OutOfMemory,
}

/// How a request went. This is one element of a reply, and usually all of it. The items of a
/// request with many keys, and statistics, arrive one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// An item with its value: `VALUE`, `VA`, a binary value.
    Hit(Item<'a>),
    /// It was done: `STORED`, `DELETED`, `TOUCHED`, `OK`, `HD`, binary success.
    Done(Item<'a>),
    /// There is no such item: `NOT_FOUND`, `EN`, `NF`.
    NotFound,
    /// The condition of add, replace, append or prepend is not met: `NOT_STORED`, `NS`.
    NotStored,
    /// The value does not have the number that was asked for: `EXISTS`, `EX`.
    Exists,
    /// The result of incr or decr.
    Number {
        /// The number.
        value: u64,
        /// The unique number of the value, if the reply contains it.
        cas: Option<u64>,
    },
    /// A version, a list of authentication mechanisms, a greeting.
    Text(&'a [u8]),
    /// Details of an item, without its key: the rest of `ME`.
    Debug(&'a [u8]),
    /// One statistic.
    Stat {
        /// Its name.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The end of items or statistics: `END`, a binary statistic without a name.
    End,
    /// `MN`, binary no-operation.
    Noop,
    /// Authentication continues, with this challenge.
    Continue(&'a [u8]),
    /// The request failed.
    Error {
        /// The kind of error.
        kind: ErrorKind,
        /// The server's text, without the kind.
        text: &'a [u8],
    },
}

/// One element of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What it says.
    pub outcome: Outcome<'a>,
    /// Binary: the operation that it answers.
    pub opcode: u8,
    /// Binary: the number with which its request was sent.
    pub opaque: u32,
}

/// Outcome of [`parse_reply`](crate::parse_reply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyParsed<'a> {
    /// A whole element of `len` bytes.
    Ready {
        /// Its length in bytes.
        len: usize,
        /// The element.
        reply: Reply<'a>,
    },
    /// The reply is incomplete. It need not be parsed again before the buffer holds `at_least`
    /// bytes.
    NeedMore {
        /// Total buffer length from which parsing again can succeed, in bytes.
        at_least: usize,
    },
}

/// Why the bytes of a server are no reply. The connection can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// The bytes do not follow the protocol.
    Protocol,
    /// The reply is longer than the limit.
    TooLong,
}

/// Limits of one reply.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    /// Length of the longest whole reply, in bytes.
    pub reply_len_max: u32,
}
