//! Frames: a head of 40 bytes, the path of nodes that passed it on, and a body.
//!
//! ```text
//!  0 body_len u32 | 4 version u8 | 5 kind u8 | 6 flags u16 | 8 seq u64 | 16 src u64 | 24 dst u64
//! 32 ttl u8 | 33 hops u8 | 34 channel u16 | 36 crc32c u32 | 40 hops ids of 8 bytes, then the body
//! ```
//!
//! `body_len` includes the path. The checksum covers everything but itself.

use crate::fault::Reason;
use crate::id::NodeId;

/// Length of the head, in bytes.
pub const HEAD_LEN: usize = 40;
/// The only version of frames.
pub const VERSION: u8 = 1;
/// Most nodes that a message may pass; its path has no more places.
pub const TTL_MAX: u8 = 16;
/// Longest part of a body in one frame, in bytes. Longer bodies go in fragments, so that nothing
/// waits behind more than this.
pub const FRAGMENT_LEN: usize = 64 << 10;
/// Most bytes after a head: a fragment, its path, and the length of the whole in the first
/// fragment.
pub const FRAME_BODY_MAX: usize = FRAGMENT_LEN + TTL_MAX as usize * 8 + 8;
/// Longest frame, in bytes.
pub const FRAME_LEN_MAX: usize = HEAD_LEN + FRAME_BODY_MAX;
/// Longest message, over all its fragments, in bytes.
pub const MESSAGE_LEN_MAX: usize = 64 << 20;
/// Most bytes after a head before the peer is accepted: a stranger can make this process keep no
/// more.
pub const STRANGER_BODY_MAX: usize = 16 << 10;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The dialler identifies itself.
    Hello = 1,
    /// The acceptor answers with a nonce.
    Challenge = 2,
    /// The dialler's proofs of the tokens, labels and addresses.
    Register = 3,
    /// The dialler is accepted, with the acceptor's proof.
    Welcome = 4,
    /// The dialler is refused.
    Reject = 5,
    /// Asks whether the peer is alive.
    Ping = 6,
    /// Answers a ping.
    Pong = 7,
    /// How many bytes were taken, and how many may be sent.
    Credit = 8,
    /// The sender of this frame leaves; nothing more is to be sent to it.
    Goaway = 9,
    /// A node tells its upstream whether its messages go through it.
    Attach = 10,
    /// Changes of the nodes below.
    Topology = 11,
    /// A version of a topic.
    Push = 12,
    /// The versions that a node has.
    Have = 13,
    /// The version that a node has applied.
    Applied = 14,
    /// A message.
    Message = 15,
    /// A message, or a command, that came back.
    Failure = 16,
    /// The acknowledgement of a message.
    Ack = 17,
    /// A command.
    Command = 18,
    /// The result of a command.
    Result = 19,
}

impl Kind {
    const ALL: [Kind; 19] = [
        Kind::Hello,
        Kind::Challenge,
        Kind::Register,
        Kind::Welcome,
        Kind::Reject,
        Kind::Ping,
        Kind::Pong,
        Kind::Credit,
        Kind::Goaway,
        Kind::Attach,
        Kind::Topology,
        Kind::Push,
        Kind::Have,
        Kind::Applied,
        Kind::Message,
        Kind::Failure,
        Kind::Ack,
        Kind::Command,
        Kind::Result,
    ];

    fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Returns whether it may be for a node further away.
    pub fn is_routed(self) -> bool {
        self as u8 >= Kind::Applied as u8
    }

    /// Returns whether it may come in fragments.
    pub fn may_fragment(self) -> bool {
        matches!(self, Kind::Push | Kind::Message | Kind::Command | Kind::Result)
    }

    /// Returns whether it needs no credit, and is sent before everything else.
    pub fn is_urgent(self) -> bool {
        (self as u8) <= Kind::Goaway as u8
    }
}

/// A channel has a queue and credit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Channel {
    /// The tree, short commands and results, acknowledgements, failures.
    Control = 0,
    /// Pushes.
    Config = 1,
    /// Messages, and commands and results in parts.
    Data = 2,
}

/// The number of channels.
pub const CHANNELS: usize = 3;

/// Flags of a frame.
pub mod flags {
    /// The sender wants a [`super::Kind::Ack`].
    pub const ACK: u16 = 1;
    /// The frame is one of several fragments.
    pub const FRAGMENT: u16 = 2;
    /// It is the first fragment: the length of the whole, a u32, precedes it.
    pub const FIRST: u16 = 4;
    /// It is the last fragment.
    pub const LAST: u16 = 8;
    /// The body is compressed.
    pub const COMPRESSED: u16 = 16;
    /// In a failure: the message may have arrived all the same.
    pub const MAYBE: u16 = 32;
    /// The frame must not go to an upstream.
    pub const NO_UPSTREAM: u16 = 64;
    /// In a failure: it came from where its message did not go, as far as a node on its way knew.
    pub const UNPROVEN: u16 = 128;
    /// All flags; others are refused.
    pub const ALL: u16 = 255;
}

/// A head, without its lengths and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the frame.
    pub kind: Kind,
    /// Flags of [`flags`].
    pub flags: u16,
    /// The sender's number for it, which grows.
    pub seq: u64,
    /// The sender.
    pub src: NodeId,
    /// The destination.
    pub dst: NodeId,
    /// Number of nodes that it may still pass.
    pub ttl: u8,
}

impl Head {
    /// Returns the head of a frame for the peer itself, without a number.
    pub fn plain(kind: Kind, src: NodeId, dst: NodeId) -> Self {
        Self { kind, flags: 0, seq: 0, src, dst, ttl: 0 }
    }

    /// Returns the channel on which it is sent.
    pub fn channel(&self) -> Channel {
        channel_of(self.kind, self.flags)
    }

    /// Returns whether `flag` is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A frame, as it lies in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its head.
    pub head: Head,
    /// The ids of the nodes that passed it on, 8 bytes each.
    pub path: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// Length of the whole frame, in bytes.
    pub len: usize,
}

/// The beginning of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// The beginning of a frame that takes at least this many bytes.
    NeedMore(usize),
}

/// Returns the kind of a whole frame.
pub(crate) fn kind_of(frame: &[u8]) -> Option<Kind> {
    Kind::of(*frame.get(5)?)
}

fn u16_at(buf: &[u8; HEAD_LEN], at: usize) -> u16 {
    u16::from_le_bytes([buf[at], buf[at + 1]])
}

fn u64_at(buf: &[u8; HEAD_LEN], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| buf[at + i]))
}

fn checksum(head: &[u8], rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..36]), rest)
}

/// Returns the channel of a frame. Parts of a command or a result go among messages, so that no
/// short frame waits behind them.
fn channel_of(kind: Kind, flags: u16) -> Channel {
    match kind {
        Kind::Message => Channel::Data,
        Kind::Command | Kind::Result if flags & flags::FRAGMENT != 0 => Channel::Data,
        Kind::Push | Kind::Have | Kind::Applied => Channel::Config,
        _ => Channel::Control,
    }
}

/// Returns whether the flags are allowed: only some kinds have fragments, and only a fragment is
/// the first or the last.
fn flags_fit(kind: Kind, flags: u16) -> bool {
    match flags & flags::FRAGMENT != 0 {
        true => kind.may_fragment(),
        false => flags & (flags::FIRST | flags::LAST) == 0,
    }
}

/// Reads the frame at the beginning of `buf`. The bytes after its head may be at most
/// `body_len_max`.
pub fn parse(buf: &[u8], body_len_max: usize) -> Result<Parsed<'_>, Reason> {
    let Some((head, rest)) = buf.split_first_chunk::<HEAD_LEN>() else {
        return Ok(Parsed::NeedMore(HEAD_LEN));
    };
    let body_len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let (kind, flags, hops) = (Kind::of(head[5]), u16_at(head, 6), head[33]);
    let Some(kind) = kind.filter(|_| head[4] == VERSION) else { return Err(Reason::NoFrame) };
    let path_len = usize::from(hops) * 8;
    if body_len > body_len_max.min(FRAME_BODY_MAX)
        || hops > TTL_MAX
        || head[32] > TTL_MAX
        || path_len > body_len
        || flags & !flags::ALL != 0
        || u16_at(head, 34) != channel_of(kind, flags) as u16
        || !flags_fit(kind, flags)
        || body_len - path_len > FRAGMENT_LEN + if flags & flags::FIRST != 0 { 4 } else { 0 }
    {
        return Err(Reason::NoFrame);
    }
    if rest.len() < body_len {
        return Ok(Parsed::NeedMore(HEAD_LEN + body_len));
    }
    let rest = &rest[..body_len];
    let crc = u32::from_le_bytes([head[36], head[37], head[38], head[39]]);
    if checksum(head, rest) != crc {
        return Err(Reason::Checksum);
    }
    let (path, body) = rest.split_at(path_len);
    let head = Head {
        kind,
        flags,
        seq: u64_at(head, 8),
        src: NodeId(u64_at(head, 16)),
        dst: NodeId(u64_at(head, 24)),
        ttl: head[32],
    };
    Ok(Parsed::Frame(Frame { head, path, body, len: HEAD_LEN + body_len }))
}

/// Appends a frame whose body is the `parts`, one after the other. Returns its length.
///
/// The path has at most [`TTL_MAX`] ids and the body at most [`FRAGMENT_LEN`] + 4 bytes.
pub fn append(out: &mut Vec<u8>, head: &Head, path: &[u8], parts: [&[u8]; 2]) -> usize {
    let body_len = path.len() + parts[0].len() + parts[1].len();
    assert!(body_len <= FRAME_BODY_MAX && path.len() <= usize::from(TTL_MAX) * 8);
    let start = out.len();
    let mut bytes = [0; HEAD_LEN];
    bytes[0..4].copy_from_slice(&(body_len as u32).to_le_bytes());
    bytes[4] = VERSION;
    bytes[5] = head.kind as u8;
    bytes[6..8].copy_from_slice(&head.flags.to_le_bytes());
    bytes[8..16].copy_from_slice(&head.seq.to_le_bytes());
    bytes[16..24].copy_from_slice(&head.src.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&head.dst.0.to_le_bytes());
    bytes[32] = head.ttl;
    bytes[33] = (path.len() / 8) as u8;
    bytes[34..36].copy_from_slice(&(head.channel() as u16).to_le_bytes());
    out.reserve(HEAD_LEN + body_len);
    out.extend_from_slice(&bytes);
    out.extend_from_slice(path);
    out.extend_from_slice(parts[0]);
    out.extend_from_slice(parts[1]);
    let crc = checksum(&bytes, &out[start + HEAD_LEN..]);
    out[start + 36..start + HEAD_LEN].copy_from_slice(&crc.to_le_bytes());
    HEAD_LEN + body_len
}

/// Returns the ids in a path.
pub fn path_ids(path: &[u8]) -> impl Iterator<Item = NodeId> {
    path.chunks_exact(8).map(|id| NodeId(u64::from_le_bytes(std::array::from_fn(|i| id[i]))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> Head {
        Head {
            kind: Kind::Message,
            flags: flags::ACK,
            seq: 9,
            src: NodeId(1),
            dst: NodeId(2),
            ttl: 16,
        }
    }

    #[test]
    fn the_bytes_of_a_frame_are_these() {
        let mut out = Vec::new();
        append(&mut out, &head(), &7u64.to_le_bytes(), [b"he", b"llo"]);
        let expected = [
            &[13, 0, 0, 0, 1, 15, 1, 0][..],
            &[9, 0, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[16, 1, 2, 0],
        ]
        .concat();
        assert_eq!(out[..36], expected);
        assert_eq!(out[40..], *b"\x07\0\0\0\0\0\0\0hello");
        let Ok(Parsed::Frame(frame)) = parse(&out, FRAME_BODY_MAX) else { panic!() };
        assert_eq!((frame.head, frame.body, frame.len), (head(), &b"hello"[..], out.len()));
        assert_eq!(path_ids(frame.path).collect::<Vec<_>>(), [NodeId(7)]);
    }

    #[test]
    fn every_bit_counts() {
        let mut out = Vec::new();
        append(&mut out, &head(), &[], [b"body", b""]);
        for bit in 0..out.len() * 8 {
            let mut bent = out.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            let outcome = parse(&bent, FRAME_BODY_MAX);
            let waits = matches!(outcome, Ok(Parsed::NeedMore(_)));
            assert!(outcome.is_err() || (waits && bit < 32), "bit {bit}: {outcome:?}");
        }
    }

    #[test]
    fn a_frame_in_pieces_says_how_much_it_needs() {
        let mut out = Vec::new();
        append(&mut out, &head(), &[], [b"body", b""]);
        for len in 0..out.len() {
            let at_least = if len < HEAD_LEN { HEAD_LEN } else { out.len() };
            assert_eq!(parse(&out[..len], FRAME_BODY_MAX), Ok(Parsed::NeedMore(at_least)));
        }
    }

    #[test]
    fn a_stranger_s_frame_is_short() {
        let mut out = Vec::new();
        append(&mut out, &head(), &[], [&[0; STRANGER_BODY_MAX + 1], b""]);
        assert_eq!(parse(&out, STRANGER_BODY_MAX), Err(Reason::NoFrame));
        assert!(parse(&out, FRAME_BODY_MAX).is_ok());
    }

    #[test]
    fn a_body_leaves_room_for_the_path_of_who_passes_it_on() {
        let parsed = |flags: u16, len: usize| {
            let mut out = Vec::new();
            append(&mut out, &Head { flags, ..head() }, &[], [&vec![0; len], b""]);
            parse(&out, FRAME_BODY_MAX).map(|_| ())
        };
        let first = flags::FRAGMENT | flags::FIRST;
        assert_eq!(parsed(0, FRAGMENT_LEN), Ok(()));
        assert_eq!(parsed(0, FRAGMENT_LEN + 1), Err(Reason::NoFrame));
        assert_eq!(parsed(flags::FRAGMENT, FRAGMENT_LEN + 1), Err(Reason::NoFrame));
        assert_eq!(parsed(first, FRAGMENT_LEN + 4), Ok(()));
        assert_eq!(parsed(first, FRAGMENT_LEN + 5), Err(Reason::NoFrame));
        for flag in [flags::FIRST, flags::LAST] {
            assert_eq!(parsed(flag, 10), Err(Reason::NoFrame));
        }
    }

    proptest! {
        #[test]
        fn frames_survive_their_bytes(
            kind in 1u8..=19, flag in 0u16..256, seq: u64, src: u64, dst: u64, ttl in 0u8..=16,
            path in prop::collection::vec(any::<u64>(), 0..=16),
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let kind = Kind::of(kind).unwrap();
            let is_part = kind.may_fragment() && flag & flags::FRAGMENT != 0;
            let parts = flags::FRAGMENT | flags::FIRST | flags::LAST;
            let flags = if is_part { flag } else { flag & !parts };
            let head = Head { kind, flags, seq, src: NodeId(src), dst: NodeId(dst), ttl };
            let path: Vec<u8> = path.iter().flat_map(|id| id.to_le_bytes()).collect();
            let mut out = Vec::new();
            append(&mut out, &head, &path, [&body, &[]]);
            let len = out.len();
            out.extend_from_slice(b"next");
            let frame = Frame { head, path: &path, body: &body, len };
            prop_assert_eq!(parse(&out, FRAME_BODY_MAX), Ok(Parsed::Frame(frame)));
        }
    }
}
