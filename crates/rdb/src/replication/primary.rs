//! The primary's side of the handshake.

use super::id::ReplicationId;
use super::transfer::MARK_LEN;
use crate::version::Version;
use keyway_resp::{parse_integer, reply};
use std::fmt;

/// Length of the longest address that a replica may announce. This is Redis's own limit.
const ADDRESS_LEN_MAX: usize = 255;
/// The capability by which a Keyway says which server it is: this, and an id. Other servers ignore
/// it.
pub(super) const NODE: &str = "keyway-node-";

/// What a replica has announced about itself with REPLCONF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaProfile {
    listening_port: Option<u16>,
    address: Option<Box<[u8]>>,
    version: Option<[u8; 3]>,
    takes_mark: bool,
    takes_new_id: bool,
    takes_flags: bool,
    node: Option<ReplicationId>,
    snapshot_only: bool,
    libraries_only: bool,
    acknowledged: Option<u64>,
    durable: Option<u64>,
}

/// What to do about a valid REPLCONF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Reply `+OK`.
    Ok,
    /// Send no reply: the replica has announced its offset, which [`ReplicaProfile::acknowledged`]
    /// returns.
    Acknowledged,
    /// Send no reply to a client. A replica sends its primary its offset at once.
    GetAck,
}

/// Why a REPLCONF is refused. The reply is the error, and the connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplconfFault {
    /// An option has no value.
    Syntax,
    /// An option is unknown.
    Unknown,
    /// A value is invalid for its option.
    Value,
}

impl fmt::Display for ReplconfFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "syntax error",
            Self::Unknown => "Unrecognized REPLCONF option",
            Self::Value => "REPLCONF value is out of range",
        })
    }
}

impl std::error::Error for ReplconfFault {}

impl ReplconfFault {
    /// Appends the error reply.
    pub fn write_error(self, out: &mut Vec<u8>) {
        reply::error(out, &format!("ERR {self}"));
    }
}

impl ReplicaProfile {
    /// Returns the port on which the replica serves its own clients.
    pub fn listening_port(&self) -> Option<u16> {
        self.listening_port
    }

    /// Returns the address that it has announced.
    pub fn address(&self) -> Option<&[u8]> {
        self.address.as_deref()
    }

    /// Returns its version of Valkey. Redis servers do not announce theirs.
    pub fn version(&self) -> Option<[u8; 3]> {
        self.version
    }

    /// Returns whether it accepts a snapshot that ends with a mark (`capa eof`). Others need its
    /// length in advance.
    pub fn takes_mark(&self) -> bool {
        self.takes_mark
    }

    /// Returns whether it accepts another id with `+CONTINUE` (`capa psync2`).
    pub fn takes_new_id(&self) -> bool {
        self.takes_new_id
    }

    /// Returns whether it knows the command KEYWAY.FLAGS (`capa keyway-flags`).
    pub fn takes_flags(&self) -> bool {
        self.takes_flags
    }

    /// Returns the id of the server that the replica is, if it is a Keyway that says so
    /// (`capa keyway-node-ID`).
    pub fn node(&self) -> Option<ReplicationId> {
        self.node
    }

    /// Returns whether it wants the snapshot and no commands (`rdb-only`).
    pub fn snapshot_only(&self) -> bool {
        self.snapshot_only
    }

    /// Returns whether it wants libraries of functions and no keys (`rdb-filter-only functions`).
    pub fn libraries_only(&self) -> bool {
        self.libraries_only
    }

    /// Returns the greatest offset that it has acknowledged.
    pub fn acknowledged(&self) -> Option<u64> {
        self.acknowledged
    }

    /// Returns the greatest offset that it has on disk (`FACK` of Redis 7.2).
    pub fn durable(&self) -> Option<u64> {
        self.durable
    }

    /// Returns the newest version of RDB that the replica certainly reads.
    pub fn snapshot_version(&self) -> Version {
        match self.version {
            Some(version) if version >= [9, 0, 0] => Version::Valkey80,
            Some(version) if version >= [7, 2, 0] => Version::Redis11,
            _ => Version::Redis9,
        }
    }

    /// Handles the arguments of a REPLCONF.
    ///
    /// # Errors
    /// Returns [`ReplconfFault`]. Options before the wrong one have been accepted, as in servers.
    pub fn replconf(&mut self, words: &[&[u8]]) -> Result<Answer, ReplconfFault> {
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(ReplconfFault::Syntax);
        }
        for (at, [name, value]) in pairs.iter().enumerate() {
            let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
            if is("ack") {
                self.acknowledge(&pairs[at..]);
                return Ok(Answer::Acknowledged);
            }
            if is("getack") {
                return Ok(Answer::GetAck);
            }
            self.option(name, value)?;
        }
        Ok(Answer::Ok)
    }

    fn option(&mut self, name: &[u8], value: &[u8]) -> Result<(), ReplconfFault> {
        let is = |text: &str| name.eq_ignore_ascii_case(text.as_bytes());
        let says = |text: &str| value.eq_ignore_ascii_case(text.as_bytes());
        let number = || parse_integer(value).ok_or(ReplconfFault::Value);
        if is("listening-port") {
            let port = u16::try_from(number()?).map_err(|_| ReplconfFault::Value)?;
            self.listening_port = Some(port);
        } else if is("ip-address") {
            if value.len() > ADDRESS_LEN_MAX {
                return Err(ReplconfFault::Value);
            }
            self.address = Some(value.into());
        } else if is("capa") {
            // Other capabilities may be ignored, and are.
            self.takes_mark |= says("eof");
            self.takes_new_id |= says("psync2");
            self.takes_flags |= says("keyway-flags");
            let node = value.strip_prefix(NODE.as_bytes()).and_then(ReplicationId::parse);
            self.node = node.or(self.node);
        } else if is("version") {
            self.version = Some(parse_version(value).ok_or(ReplconfFault::Value)?);
        } else if is("rdb-only") {
            self.snapshot_only = match number()? {
                0 => false,
                1 => true,
                _ => return Err(ReplconfFault::Value),
            };
        } else if is("rdb-filter-only") {
            if !says("functions") {
                return Err(ReplconfFault::Value);
            }
            self.libraries_only = true;
        } else {
            return Err(ReplconfFault::Unknown);
        }
        Ok(())
    }

    /// Notes an acknowledged offset. Offsets never decrease: a late one is ignored.
    fn acknowledge(&mut self, pairs: &[[&[u8]; 2]]) {
        let offset = |text| parse_integer(text).and_then(|offset| u64::try_from(offset).ok());
        if let Some([_, value]) = pairs.first() {
            self.acknowledged = self.acknowledged.max(offset(value));
        }
        if let Some([name, value]) = pairs.get(1)
            && name.eq_ignore_ascii_case(b"fack")
        {
            self.durable = self.durable.max(offset(value));
        }
    }
}

/// Parses three numbers separated by dots.
fn parse_version(text: &[u8]) -> Option<[u8; 3]> {
    let mut parts = text.split(|byte| *byte == b'.');
    let mut part = || u8::try_from(parse_integer(parts.next()?)?).ok();
    let version = [part()?, part()?, part()?];
    parts.next().is_none().then_some(version)
}

/// The content of a PSYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    from: Option<(ReplicationId, u64)>,
    takes_over: bool,
    is_old: bool,
}

/// Why a PSYNC is invalid. The reply is an error, and the connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestWrong {
    /// There are too few or too many words, or unknown ones.
    Syntax,
    /// The offset is no number.
    Offset,
}

impl fmt::Display for RequestWrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "syntax error",
            Self::Offset => "value is not an integer or out of range",
        })
    }
}

impl std::error::Error for RequestWrong {}

impl Request {
    /// Parses the arguments of a PSYNC. An invalid id, such as `?`, asks for a snapshot.
    ///
    /// # Errors
    /// Returns [`RequestWrong`].
    pub fn parse(words: &[&[u8]]) -> Result<Self, RequestWrong> {
        let (id, next, takes_over) = match words {
            [id, next] => (id, next, false),
            [id, next, word] if word.eq_ignore_ascii_case(b"failover") => (id, next, true),
            _ => return Err(RequestWrong::Syntax),
        };
        let next = parse_integer(next).ok_or(RequestWrong::Offset)?;
        // It is the number of the next byte, counted from 1.
        let offset = next.checked_sub(1).and_then(|offset| u64::try_from(offset).ok());
        Ok(Self { from: ReplicationId::parse(id).zip(offset), takes_over, is_old: false })
    }

    /// Returns the request of a SYNC: a snapshot that no line announces, and its stream.
    pub const fn sync() -> Self {
        Self { from: None, takes_over: false, is_old: true }
    }

    /// Returns whether it is a SYNC.
    pub fn is_old(&self) -> bool {
        self.is_old
    }

    /// Returns where the replica wants to continue, or `None` if it wants a snapshot.
    pub fn resume(&self) -> Option<(ReplicationId, u64)> {
        self.from
    }

    /// Returns whether the replica's primary hands over to this server (`PSYNC … FAILOVER`), which
    /// must first become a primary.
    pub fn takes_over(&self) -> bool {
        self.takes_over
    }
}

/// A primary's history of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    id: ReplicationId,
    /// The id that the history had up to an offset.
    second: Option<(ReplicationId, u64)>,
    start: u64,
    end: u64,
}

/// What a primary does about a [`Request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Reply with [`write_continue`], and then send the backlog from this offset on.
    Continue {
        /// The offset.
        offset: u64,
    },
    /// Reply with [`write_full_resync`], and then send a snapshot.
    Full(FullReason),
}

/// Why a replica gets a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullReason {
    /// It has asked for one.
    Asked,
    /// It has another history.
    OtherHistory,
    /// It continued with its earlier primary, past the offset up to which both histories are the
    /// same.
    PastSecond {
        /// The offset.
        limit: u64,
    },
    /// The backlog does not contain what it needs.
    OutsideBacklog {
        /// The offset at which the backlog begins.
        start: u64,
        /// The offset at which it ends.
        end: u64,
    },
}

impl History {
    /// Creates a history whose backlog contains what is between two offsets. `end` is that of the
    /// primary.
    pub fn new(id: ReplicationId, start: u64, end: u64) -> Self {
        Self { id, second: None, start: start.min(end), end }
    }

    /// Returns the same history with another id up to the offset `limit`: the one before a replica
    /// became a primary, or got a new primary.
    #[must_use]
    pub fn with_second(self, id: ReplicationId, limit: u64) -> Self {
        Self { second: Some((id, limit)), ..self }
    }

    /// Returns its id.
    pub fn id(&self) -> ReplicationId {
        self.id
    }

    /// Returns the offset of the primary.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns what to do about a request.
    pub fn decide(&self, request: &Request) -> Decision {
        let Some((id, offset)) = request.from else { return Decision::Full(FullReason::Asked) };
        if id != self.id {
            match self.second {
                Some((second, limit)) if second == id && offset > limit => {
                    return Decision::Full(FullReason::PastSecond { limit });
                }
                Some((second, _)) if second == id => {}
                _ => return Decision::Full(FullReason::OtherHistory),
            }
        }
        let (start, end) = (self.start, self.end);
        if (start..=end).contains(&offset) {
            Decision::Continue { offset }
        } else {
            Decision::Full(FullReason::OutsideBacklog { start, end })
        }
    }
}

/// Appends the reply that announces a snapshot, after which the stream begins at this offset.
pub fn write_full_resync(id: &ReplicationId, offset: u64, out: &mut Vec<u8>) {
    reply::simple(out, &format!("FULLRESYNC {id} {offset}"));
}

/// Appends the reply that lets a replica continue.
pub fn write_continue(history: &History, replica: &ReplicaProfile, out: &mut Vec<u8>) {
    if replica.takes_new_id() {
        reply::simple(out, &format!("CONTINUE {}", history.id));
    } else {
        reply::simple(out, "CONTINUE");
    }
}

/// Appends what precedes a snapshot of known length.
pub fn write_length(len: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("${len}\r\n").as_bytes());
}

/// Appends what precedes a snapshot after which the same mark will follow. The bytes of the mark
/// are random, from those of ids, and must never be used again: a snapshot that happens to contain
/// them would end there.
pub fn write_mark(mark: &[u8; MARK_LEN], out: &mut Vec<u8>) {
    out.extend_from_slice(b"$EOF:");
    out.extend_from_slice(mark);
    out.extend_from_slice(b"\r\n");
}
