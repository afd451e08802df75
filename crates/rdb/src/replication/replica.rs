//! The replica's side of the handshake.

use super::id::ReplicationId;
use super::primary::NODE;
use super::transfer::{Body, MARK_LEN, Transfer};
use keyway_resp::{parse_integer, reply};
use std::fmt;

/// Length of the longest line of the primary: an error with its text, or the mark.
const LINE_LEN_MAX: usize = 4096;
/// Number of bytes of a refusal that are kept for the log.
const TEXT_LEN_MAX: usize = 200;

/// What a replica announces about itself, and what it asks for.
#[derive(Clone, Debug, Default)]
pub struct ReplicaSettings {
    /// The user's name. Without it, the password is the server's own.
    pub username: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// The port of the replica. INFO of the primary then shows it.
    pub listening_port: Option<u16>,
    /// The address of the replica, if it is not that of the connection.
    pub address: Option<String>,
    /// The version of Valkey that the replica announces, such as `9.0.0`. Without it, Valkey 9
    /// sends RDB 11, or fails if that cannot contain its data.
    pub version: Option<String>,
    /// Where to continue. `None`: a snapshot is requested.
    pub resume: Option<Resume>,
    /// True if the replica knows Keyway's command KEYWAY.FLAGS.
    pub knows_flags: bool,
    /// The id of the server that the replica is, so that a Keyway that is asked to follow itself
    /// finds out.
    pub node: Option<ReplicationId>,
    /// True if the server at the other end is to become a primary first, if it has all of
    /// `resume` (`PSYNC … FAILOVER`).
    pub hands_over: bool,
}

/// Where a replica can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The history of which it has a part.
    pub id: ReplicationId,
    /// The offset up to which it has everything.
    pub offset: u64,
}

/// The handshake of a replica, from the first byte to the snapshot or the stream of commands.
///
/// Legal order: send what [`ReplicaHandshake::take_output`] returns, at first and after each call
/// of [`ReplicaHandshake::read`]. Commands follow after [`HandshakeEvent::Continue`]. The bytes of
/// the snapshot follow after [`HandshakeEvent::Snapshot`].
#[derive(Debug)]
pub struct ReplicaHandshake {
    settings: ReplicaSettings,
    stage: Stage,
    out: Vec<u8>,
    /// Number of consumed bytes.
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ping,
    Auth,
    /// Number of replies to REPLCONF that are still missing.
    Configure {
        left: usize,
    },
    Psync,
    Snapshot,
    Over,
}

/// The steps of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeStage {
    /// PING.
    Ping,
    /// AUTH.
    Auth,
    /// REPLCONF.
    Configure,
    /// PSYNC.
    Psync,
    /// The primary creates its snapshot.
    Snapshot,
}

/// The result of [`ReplicaHandshake::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Something the caller needs to know.
    Event {
        /// Number of consumed bytes.
        consumed: usize,
        /// The facts about it.
        event: HandshakeEvent,
    },
    /// More bytes are needed.
    More {
        /// Number of consumed bytes.
        consumed: usize,
    },
}

/// The events of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeEvent {
    /// An empty line: the primary is alive, and not ready yet.
    Alive,
    /// The stream of commands continues where the replica was. This is the last event.
    Continue {
        /// The history's id, if it is another one now. The replica's own id is valid for what it
        /// has, and the new one from here on.
        id: Option<ReplicationId>,
        /// The offset at which the stream begins.
        offset: u64,
    },
    /// A snapshot will follow, and replaces everything.
    Full {
        /// The history's id.
        id: ReplicationId,
        /// The offset at which the stream after the snapshot begins.
        offset: u64,
    },
    /// The snapshot follows at once. This is the last event.
    Snapshot(Transfer),
}

/// Why a handshake has failed, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeFault {
    offset: u64,
    stage: HandshakeStage,
    wrong: HandshakeWrong,
}

/// What is wrong with the primary's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeWrong {
    /// The primary has refused, with this text.
    Refused(String),
    /// The primary cannot serve replicas now, with this text: it loads its data, or has lost its
    /// own primary. A later try may succeed.
    NotNow(String),
    /// The protocol has no such answer to this step.
    Unexpected,
    /// The answer is longer than any valid one.
    TooLong,
}

impl HandshakeFault {
    /// Returns the number of bytes before the answer.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the step that has failed.
    pub fn stage(&self) -> HandshakeStage {
        self.stage
    }

    /// Returns what is wrong.
    pub fn wrong(&self) -> &HandshakeWrong {
        &self.wrong
    }
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.stage {
            HandshakeStage::Ping => "PING",
            HandshakeStage::Auth => "AUTH",
            HandshakeStage::Configure => "REPLCONF",
            HandshakeStage::Psync => "PSYNC",
            HandshakeStage::Snapshot => "the snapshot",
        };
        write!(f, "replication handshake, byte {}: ", self.offset)?;
        match &self.wrong {
            HandshakeWrong::Refused(text) => write!(f, "the primary refuses {step}: {text}"),
            HandshakeWrong::NotNow(text) => {
                write!(f, "the primary cannot serve replicas now, try again later: {text}")
            }
            HandshakeWrong::Unexpected => {
                write!(f, "the answer to {step} is not part of the protocol")
            }
            HandshakeWrong::TooLong => {
                write!(f, "the answer to {step} is longer than {LINE_LEN_MAX} bytes")
            }
        }
    }
}

impl std::error::Error for HandshakeFault {}

impl ReplicaHandshake {
    /// Creates the handshake on a new connection.
    pub fn new(settings: ReplicaSettings) -> Self {
        let mut handshake = Self { settings, stage: Stage::Ping, out: Vec::new(), offset: 0 };
        handshake.command(&[b"PING"]);
        handshake
    }

    /// Moves the bytes that must be sent to the end of `sink`.
    pub fn take_output(&mut self, sink: &mut Vec<u8>) {
        sink.append(&mut self.out);
    }

    /// Reads from `input`, which must contain all bytes that have arrived and were not consumed.
    ///
    /// # Errors
    /// Returns [`HandshakeFault`]. The connection can no longer be used.
    pub fn read(&mut self, input: &[u8]) -> Result<HandshakeStep, HandshakeFault> {
        let mut consumed = 0;
        while self.stage != Stage::Over {
            let rest = &input[consumed..];
            let Some(end) = memchr::memchr(b'\n', &rest[..rest.len().min(LINE_LEN_MAX)]) else {
                if rest.len() >= LINE_LEN_MAX {
                    return Err(self.fault(HandshakeWrong::TooLong));
                }
                break;
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            let event = self.line(line)?;
            consumed += end + 1;
            self.offset = self.offset.saturating_add(end as u64 + 1);
            if let Some(event) = event {
                return Ok(HandshakeStep::Event { consumed, event });
            }
        }
        Ok(HandshakeStep::More { consumed })
    }

    fn fault(&self, wrong: HandshakeWrong) -> HandshakeFault {
        let stage = match self.stage {
            Stage::Ping => HandshakeStage::Ping,
            Stage::Auth => HandshakeStage::Auth,
            Stage::Configure { .. } => HandshakeStage::Configure,
            Stage::Psync => HandshakeStage::Psync,
            Stage::Snapshot | Stage::Over => HandshakeStage::Snapshot,
        };
        HandshakeFault { offset: self.offset, stage, wrong }
    }

    fn refused(&self, line: &[u8]) -> HandshakeFault {
        self.fault(HandshakeWrong::Refused(text_of(line)))
    }

    /// A refusal that may be one of the moment: the server loads its data, runs a
    /// script that does not end, or is a replica without its primary.
    fn refused_for_now(&self, line: &[u8]) -> HandshakeFault {
        let passes = [&b"-LOADING"[..], b"-NOMASTERLINK", b"-MASTERDOWN", b"-BUSY "];
        if passes.iter().any(|code| line.starts_with(code)) {
            return self.fault(HandshakeWrong::NotNow(text_of(line)));
        }
        self.refused(line)
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<HandshakeEvent>, HandshakeFault> {
        if line.is_empty() {
            return Ok(Some(HandshakeEvent::Alive));
        }
        match self.stage {
            Stage::Ping => self.answer_to_ping(line)?,
            Stage::Auth if line == b"+OK" => self.configure(),
            Stage::Auth if line[0] == b'-' => return Err(self.refused(line)),
            Stage::Configure { left } => self.answer_to_configure(line, left)?,
            Stage::Psync => return self.answer_to_psync(line).map(Some),
            Stage::Snapshot => return self.preamble(line).map(Some),
            Stage::Auth | Stage::Over => return Err(self.fault(HandshakeWrong::Unexpected)),
        }
        Ok(None)
    }

    fn answer_to_ping(&mut self, line: &[u8]) -> Result<(), HandshakeFault> {
        // A server that requires a password may already say so here. A server whose user may not
        // PING works all the same.
        let wants_password =
            line.starts_with(b"-NOAUTH") || line.starts_with(b"-ERR operation not permitted");
        let goes_on = line == b"+PONG"
            || line.starts_with(b"-NOPERM")
            || (wants_password && self.settings.password.is_some());
        if !goes_on {
            return Err(self.refused_for_now(line));
        }
        match (self.settings.username.clone(), self.settings.password.clone()) {
            (_, None) => self.configure(),
            (None, Some(password)) => {
                self.command(&[b"AUTH", password.as_bytes()]);
                self.stage = Stage::Auth;
            }
            (Some(username), Some(password)) => {
                self.command(&[b"AUTH", username.as_bytes(), password.as_bytes()]);
                self.stage = Stage::Auth;
            }
        }
        Ok(())
    }

    /// Sends everything that the replica announces about itself.
    fn configure(&mut self) {
        let mut left = 1;
        let settings = self.settings.clone();
        let port = settings.listening_port.map(|port| port.to_string());
        for (name, value) in [
            (&b"listening-port"[..], port),
            (b"ip-address", settings.address),
            (b"version", settings.version),
        ] {
            if let Some(value) = value {
                self.command(&[b"REPLCONF", name, value.as_bytes()]);
                left += 1;
            }
        }
        let mut capable = vec![&b"REPLCONF"[..], b"capa", b"eof", b"capa", b"psync2"];
        if self.settings.knows_flags {
            capable.extend([&b"capa"[..], b"keyway-flags"]);
        }
        let node = self.settings.node.map(|node| format!("{NODE}{node}"));
        if let Some(node) = &node {
            capable.extend([&b"capa"[..], node.as_bytes()]);
        }
        self.command(&capable);
        self.stage = Stage::Configure { left };
    }

    fn answer_to_configure(&mut self, line: &[u8], left: usize) -> Result<(), HandshakeFault> {
        // Old servers do not know all options, which does no harm.
        let is_fatal = line.starts_with(b"-NOAUTH") || line.starts_with(b"-NOPERM");
        if is_fatal {
            return Err(self.refused(line));
        }
        if line != b"+OK" && line[0] != b'-' {
            return Err(self.fault(HandshakeWrong::Unexpected));
        }
        if left > 1 {
            self.stage = Stage::Configure { left: left - 1 };
            return Ok(());
        }
        match self.settings.resume {
            Some(Resume { id, offset }) => {
                let next = offset.saturating_add(1).to_string();
                let mut words = vec![&b"PSYNC"[..], id.as_bytes(), next.as_bytes()];
                words.extend(self.settings.hands_over.then_some(&b"FAILOVER"[..]));
                self.command(&words);
            }
            None => self.command(&[b"PSYNC", b"?", b"-1"]),
        }
        self.stage = Stage::Psync;
        Ok(())
    }

    fn answer_to_psync(&mut self, line: &[u8]) -> Result<HandshakeEvent, HandshakeFault> {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let (answer, id, offset, more) = (words.next(), words.next(), words.next(), words.next());
        let id = id.map(ReplicationId::parse);
        match (answer, id, offset, more, self.settings.resume) {
            (Some(b"+FULLRESYNC"), Some(Some(id)), Some(offset), None, _) => {
                let offset = parse_integer(offset).and_then(|offset| u64::try_from(offset).ok());
                let offset = offset.ok_or_else(|| self.fault(HandshakeWrong::Unexpected))?;
                self.stage = Stage::Snapshot;
                Ok(HandshakeEvent::Full { id, offset })
            }
            (Some(b"+CONTINUE"), None | Some(Some(_)), None, None, Some(resume)) => {
                self.stage = Stage::Over;
                let id = id.flatten().filter(|id| *id != resume.id);
                Ok(HandshakeEvent::Continue { id, offset: resume.offset })
            }
            _ if line[0] == b'-' => Err(self.refused_for_now(line)),
            _ => Err(self.fault(HandshakeWrong::Unexpected)),
        }
    }

    fn preamble(&mut self, line: &[u8]) -> Result<HandshakeEvent, HandshakeFault> {
        let body = match line {
            [b'-', ..] => return Err(self.refused(line)),
            [b'$', b'E', b'O', b'F', b':', mark @ ..] => {
                <[u8; MARK_LEN]>::try_from(mark).ok().map(Body::Mark)
            }
            [b'$', len @ ..] => {
                let len = parse_integer(len).and_then(|len| u64::try_from(len).ok());
                len.map(Body::Length)
            }
            _ => None,
        };
        let body = body.ok_or_else(|| self.fault(HandshakeWrong::Unexpected))?;
        self.stage = Stage::Over;
        Ok(HandshakeEvent::Snapshot(Transfer::new(body)))
    }

    fn command(&mut self, words: &[&[u8]]) {
        reply::array(&mut self.out, words.len());
        words.iter().for_each(|word| reply::bulk(&mut self.out, word));
    }
}

/// Returns the text of an error, in a form suitable for a log.
fn text_of(line: &[u8]) -> String {
    let text = line.strip_prefix(b"-").unwrap_or(line);
    keyway_base::printable(&text[..text.len().min(TEXT_LEN_MAX)])
}
