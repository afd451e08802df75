//! Replies of servers: the form common to the three protocols.

/// What a reply tells about an item. What it does not tell is `None`, empty or false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its key as written in the reply.
    pub key: &'a [u8],
    /// Whether that is written in base64.
    pub key_base64: bool,
    /// Its value.
    pub value: &'a [u8],
    /// The value is left out of what is written: whoever asked puts it there, in front of
    /// what [`value_end_len`](crate::value_end_len) tells.
    pub is_apart: bool,
    /// The client's flags.
    pub flags: u32,
    /// The number of its value.
    pub cas: Option<u64>,
    /// Seconds left; -1 for without end.
    pub ttl: Option<i64>,
    /// Length of its value, in bytes.
    pub size: Option<u64>,
    /// Seconds since it was last used.
    pub last_access: Option<u64>,
    /// Whether it was read before.
    pub hit: Option<bool>,
    /// Meta `W`: this client is the one to fill it again.
    pub won: bool,
    /// Meta `X`: it is stale.
    pub stale: bool,
    /// Meta `Z`: another client was told to fill it again.
    pub sent: bool,
}

/// What kind of error it is, which is what the protocols share of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such command.
    Unknown,
    /// The request is wrong.
    Client,
    /// The value there is no number.
    NotNumber,
    /// The client is not let do it.
    Auth,
    /// The server cannot.
    Server,
    /// The value is too long for the server.
    TooLarge,
    /// The server has no room.
    OutOfMemory,
}

/// How a request went: one element of a reply, and mostly all of it. The
/// items of a request with many keys and statistics come one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// An item with its value: `VALUE`, `VA`, a binary value.
    Hit(Item<'a>),
    /// It was done as asked: `STORED`, `DELETED`, `TOUCHED`, `OK`, `HD`, binary success.
    Done(Item<'a>),
    /// There is no such item: `NOT_FOUND`, `EN`, `NF`.
    NotFound,
    /// The condition of add, replace, append or prepend is not met: `NOT_STORED`, `NS`.
    NotStored,
    /// The value has another number than asked for: `EXISTS`, `EX`.
    Exists,
    /// What incr or decr made of a number.
    Number {
        /// The number.
        value: u64,
        /// The number of the value, if told.
        cas: Option<u64>,
    },
    /// A version, a list of ways to authenticate, a greeting.
    Text(&'a [u8]),
    /// What is known of an item, without its key: the rest of `ME`.
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
    /// Authentication goes on; the challenge.
    Continue(&'a [u8]),
    /// It failed.
    Error {
        /// How.
        kind: ErrorKind,
        /// The server's words, without the kind.
        text: &'a [u8],
    },
}

/// One element of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What it says.
    pub outcome: Outcome<'a>,
    /// Binary: the operation it answers.
    pub opcode: u8,
    /// Binary: the number its request was sent with.
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
    /// Not whole: no use looking again before the buffer holds `at_least`.
    NeedMore {
        /// Total buffer length worth parsing again, in bytes.
        at_least: usize,
    },
}

/// Why a server's bytes are no reply. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// Not of the protocol.
    Protocol,
    /// Longer than the bound.
    TooLong,
}

/// Bounds on one reply.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    /// Longest whole reply, in bytes.
    pub reply_len_max: u32,
}
