//! What requests and replies of the binary protocol share: the header, the operations, the status
//! codes.

use crate::{Head, Verb};

/// Length of the header of every packet, in bytes.
pub(crate) const HEADER_LEN: usize = 24;

/// First byte of every reply.
pub(crate) const REPLY_MAGIC: u8 = 0x81;

/// The operations, by number.
pub(crate) mod op {
    pub(crate) const GET: u8 = 0x00;
    pub(crate) const SET: u8 = 0x01;
    pub(crate) const ADD: u8 = 0x02;
    pub(crate) const REPLACE: u8 = 0x03;
    pub(crate) const DELETE: u8 = 0x04;
    pub(crate) const INCREMENT: u8 = 0x05;
    pub(crate) const DECREMENT: u8 = 0x06;
    pub(crate) const QUIT: u8 = 0x07;
    pub(crate) const FLUSH: u8 = 0x08;
    pub(crate) const GETQ: u8 = 0x09;
    pub(crate) const NOOP: u8 = 0x0a;
    pub(crate) const VERSION: u8 = 0x0b;
    pub(crate) const GETK: u8 = 0x0c;
    pub(crate) const GETKQ: u8 = 0x0d;
    pub(crate) const APPEND: u8 = 0x0e;
    pub(crate) const PREPEND: u8 = 0x0f;
    pub(crate) const STAT: u8 = 0x10;
    pub(crate) const SETQ: u8 = 0x11;
    pub(crate) const PREPENDQ: u8 = 0x1a;
    pub(crate) const TOUCH: u8 = 0x1c;
    pub(crate) const GAT: u8 = 0x1d;
    pub(crate) const GATQ: u8 = 0x1e;
    pub(crate) const SASL_LIST: u8 = 0x20;
    pub(crate) const SASL_START: u8 = 0x21;
    pub(crate) const SASL_STEP: u8 = 0x22;
    pub(crate) const GATK: u8 = 0x23;
    pub(crate) const GATKQ: u8 = 0x24;
}

/// The expiry of an increment that must not create a missing item.
pub(crate) const NO_VIVIFY: u32 = u32::MAX;

/// The status of a binary request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u16);

impl Status {
    pub(crate) const OK: Status = Status(0);
    pub(crate) const NOT_FOUND: Status = Status(1);
    pub(crate) const EXISTS: Status = Status(2);
    pub(crate) const TOO_LARGE: Status = Status(3);
    pub(crate) const INVALID: Status = Status(4);
    pub(crate) const NOT_STORED: Status = Status(5);
    pub(crate) const NOT_NUMBER: Status = Status(6);
    pub(crate) const AUTH_ERROR: Status = Status(0x20);
    pub(crate) const AUTH_CONTINUE: Status = Status(0x21);
    pub(crate) const UNKNOWN_COMMAND: Status = Status(0x81);
    pub(crate) const OUT_OF_MEMORY: Status = Status(0x82);
    /// The server cannot do it now, but may later.
    pub(crate) const TEMPORARY: Status = Status(0x86);

    /// Returns memcached's text for the code.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Status::OK => "",
            Status::NOT_FOUND => "Not found",
            Status::EXISTS => "Data exists for key.",
            Status::TOO_LARGE => "Too large.",
            Status::INVALID => "Invalid arguments",
            Status::NOT_STORED => "Not stored.",
            Status::NOT_NUMBER => "Non-numeric server-side value for incr or decr",
            Status::AUTH_ERROR => "Auth failure.",
            Status::UNKNOWN_COMMAND => "Unknown command",
            Status::OUT_OF_MEMORY => "Out of memory",
            _ => "Temporary failure",
        }
    }
}

/// The header of a packet, of a request or a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) magic: u8,
    pub(crate) opcode: u8,
    pub(crate) key_len: usize,
    pub(crate) extras_len: usize,
    /// Zero in requests.
    pub(crate) status: Status,
    /// Length of extras, key and value together.
    pub(crate) body_len: usize,
    pub(crate) opaque: u32,
    pub(crate) cas: u64,
}

impl Header {
    /// Reads the header at the start of `buf`. Returns `None` while it is incomplete.
    #[inline]
    pub(crate) fn read(buf: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_LEN] = buf.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|place| bytes[at + place]));
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Header {
            magic: bytes[0],
            opcode: bytes[1],
            key_len: usize::from(half(2)),
            extras_len: usize::from(bytes[4]),
            status: Status(half(6)),
            body_len: word(8) as usize,
            opaque: word(12),
            cas: u64::from(word(16)) << 32 | u64::from(word(20)),
        })
    }

    /// Appends it.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.magic;
        bytes[1] = self.opcode;
        bytes[2..4].copy_from_slice(&(self.key_len as u16).to_be_bytes());
        bytes[4] = self.extras_len as u8;
        bytes[6..8].copy_from_slice(&self.status.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&(self.body_len as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.cas.to_be_bytes());
        out.extend_from_slice(&bytes);
    }
}

/// Returns the verb of an operation, whether it is the quiet form, and whether the reply contains
/// the key. Returns `None` for an unknown operation.
#[inline]
pub(crate) fn verb(opcode: u8) -> Option<(Verb, bool, bool)> {
    use Verb::*;
    const LOUD: [Verb; 16] = [
        Get, Set, Add, Replace, Delete, Incr, Decr, Quit, FlushAll, Get, Noop, Version, Get, Get,
        Append, Prepend,
    ];
    const QUIET: [Verb; 10] =
        [Set, Add, Replace, Delete, Incr, Decr, Quit, FlushAll, Append, Prepend];
    Some(match opcode {
        op::GET..=op::PREPEND => (
            LOUD[usize::from(opcode)],
            matches!(opcode, op::GETQ | op::GETKQ),
            matches!(opcode, op::GETK | op::GETKQ),
        ),
        op::STAT => (Stats, false, false),
        op::SETQ..=op::PREPENDQ => (QUIET[usize::from(opcode - op::SETQ)], true, false),
        op::TOUCH => (Touch, false, false),
        op::GAT => (GetTouch, false, false),
        op::GATQ => (GetTouch, true, false),
        op::GATK => (GetTouch, false, true),
        op::GATKQ => (GetTouch, true, true),
        op::SASL_LIST => (SaslList, false, false),
        op::SASL_START => (SaslStart, false, false),
        op::SASL_STEP => (SaslStep, false, false),
        _ => return None,
    })
}

/// Everything in a reply except its header.
#[derive(Clone, Copy, Default)]
pub(crate) struct Body<'a> {
    pub(crate) cas: u64,
    pub(crate) extras: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// True if the value is not written.
    pub(crate) is_apart: bool,
}

/// Appends a reply of `status` to `head`, with `text` as its body.
pub(crate) fn error(out: &mut Vec<u8>, head: &Head, status: Status, text: &str) {
    reply(out, head, status, &Body { value: text.as_bytes(), ..Body::default() });
}

/// Appends a reply to `head`.
#[inline]
pub(crate) fn reply(out: &mut Vec<u8>, head: &Head, status: Status, body: &Body<'_>) {
    let Body { cas, extras, key, value, is_apart } = *body;
    let header = Header {
        magic: REPLY_MAGIC,
        opcode: head.opcode,
        key_len: key.len(),
        extras_len: extras.len(),
        status,
        body_len: extras.len() + key.len() + value.len(),
        opaque: head.opaque,
        cas,
    };
    header.write(out);
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    if !is_apart {
        out.extend_from_slice(value);
    }
}
