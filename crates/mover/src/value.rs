//! A value of the snapshot as commands.
//!
//! Collections go out in pieces, so that no command takes the target long. A string is one SET, which a
//! server takes without a copy. A stream is one RESTORE: its groups and times have no commands.

use crate::access::Failure;
use crate::wire::command;
use keyway_rdb::{Kind, Opened, Part, ValueWriter, Version, payload};
use keyway_resp::reply;

/// Bytes of a piece of a collection.
const PIECE_LEN: usize = 32 << 10;

/// Elements of a piece of a collection.
const PIECE_ELEMENTS: usize = 512;

/// Bytes of a stream at most: a server has to take it at once.
const STREAM_LEN_MAX: usize = 256 << 20;

/// Commands, and how many they are.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
}

impl Commands {
    pub(crate) fn add(&mut self, words: &[&[u8]]) {
        command(&mut self.bytes, words);
        self.count += 1;
    }
}

/// A value that is being copied.
#[derive(Debug, Default)]
pub(crate) struct Value {
    name: Vec<u8>,
    kind: Option<Kind>,
    expires_ms: Option<u64>,
    /// The words of the next piece behind the name, and how many they are.
    words: Vec<u8>,
    count: usize,
    /// Fields that expire, of the next piece.
    times: Vec<(Vec<u8>, u64)>,
    /// A stream.
    stream: Option<(ValueWriter, Vec<u8>, Version)>,
}

impl Value {
    /// Begins a value. A stream is written in the form of this version.
    pub(crate) fn begin(
        &mut self,
        (name, expires_ms): (&[u8], Option<u64>),
        opened: &Opened,
        version: Version,
    ) -> Result<(), Failure> {
        self.name.clear();
        self.name.extend_from_slice(name);
        (self.kind, self.expires_ms, self.count) = (Some(opened.kind), expires_ms, 0);
        self.words.clear();
        self.times.clear();
        self.stream = None;
        if opened.kind == Kind::Stream {
            let fault = |fault| self.not_written(&fault);
            let kind = ValueWriter::kind_of(version, opened).map_err(fault)?;
            let mut bytes = vec![kind];
            let writer = ValueWriter::open(version, opened, &mut bytes).map_err(fault)?;
            self.stream = Some((writer, bytes, version));
        }
        Ok(())
    }

    fn not_written(&self, fault: &dyn std::fmt::Display) -> Failure {
        Failure::lasting(format!("key {} cannot be written: {fault}", shown(&self.name)))
    }

    /// Takes a part.
    pub(crate) fn part(&mut self, part: &Part<'_>, out: &mut Commands) -> Result<(), Failure> {
        match *part {
            Part::Text(text) => out.add(&[b"SET", &self.name, text]),
            Part::Element(word) | Part::Member(word) => self.words(&[word], out),
            Part::Scored { member, score } => {
                let score = match score {
                    f64::INFINITY => "inf".to_owned(),
                    f64::NEG_INFINITY => "-inf".to_owned(),
                    score => format!("{score}"),
                };
                self.words(&[score.as_bytes(), member], out);
            }
            Part::Field { name, value, expires_ms } => {
                if let Some(millis) = expires_ms {
                    self.times.push((name.to_vec(), millis));
                }
                self.words(&[name, value], out);
            }
            _ => {
                let Some((writer, bytes, _)) = &mut self.stream else { return Ok(()) };
                if let Err(fault) = writer.part(part, bytes) {
                    return Err(self.not_written(&fault));
                }
                if bytes.len() > STREAM_LEN_MAX {
                    return Err(Failure::lasting(format!(
                        "stream {} has more than {} MB, which the target would have to take at \
                         once: trim it, and move the slot then",
                        shown(&self.name),
                        STREAM_LEN_MAX >> 20
                    )));
                }
            }
        }
        Ok(())
    }

    fn words(&mut self, words: &[&[u8]], out: &mut Commands) {
        words.iter().for_each(|word| reply::bulk(&mut self.words, word));
        self.count += words.len();
        if self.words.len() >= PIECE_LEN || self.count >= PIECE_ELEMENTS {
            self.piece(out);
        }
    }

    fn piece(&mut self, out: &mut Commands) {
        let verb: &[u8] = match self.kind {
            _ if self.count == 0 => return,
            Some(Kind::List) => b"RPUSH",
            Some(Kind::Set) => b"SADD",
            Some(Kind::Sorted) => b"ZADD",
            _ => b"HSET",
        };
        reply::array(&mut out.bytes, 2 + self.count);
        reply::bulk(&mut out.bytes, verb);
        reply::bulk(&mut out.bytes, &self.name);
        out.bytes.append(&mut self.words);
        out.count += 1;
        self.count = 0;
        for (field, millis) in self.times.drain(..) {
            let millis = millis.to_string();
            let words: [&[u8]; 6] =
                [b"HPEXPIREAT", &self.name, millis.as_bytes(), b"FIELDS", b"1", &field];
            out.add(&words);
        }
    }

    /// Ends the value.
    pub(crate) fn end(&mut self, out: &mut Commands) -> Result<(), Failure> {
        self.piece(out);
        if let Some((writer, mut bytes, version)) = self.stream.take() {
            if let Err(fault) = writer.finish() {
                return Err(self.not_written(&fault));
            }
            payload::seal_as(version, &mut bytes);
            out.add(&[b"RESTORE", &self.name, b"0", &bytes]);
        }
        // Behind everything else: a collection that expired between two pieces would begin anew.
        if let Some(millis) = self.expires_ms {
            out.add(&[b"PEXPIREAT", &self.name, millis.to_string().as_bytes()]);
        }
        Ok(())
    }
}

/// Returns a key for people.
pub(crate) fn shown(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 60;
    let cut = key.get(..SHOWN_MAX).unwrap_or(key);
    let dots = if cut.len() < key.len() { "…" } else { "" };
    format!("{}{dots}", keyway_base::printable(cut))
}
