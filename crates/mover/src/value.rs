//! A value of the snapshot as commands.
//!
//! A small value is one RESTORE, or one SET without an expiry. A large collection goes out in pieces, so
//! that no command takes the target long. A long string is one SET: a server reads its bytes into their
//! place as they come, and takes them without a copy. APPEND and SETRANGE would move or clear them. A
//! stream is one RESTORE, because its groups and times have no commands.

use crate::access::Failure;
use crate::commands::{Commands, shown};
use keyway_rdb::format::{write_len, write_text};
use keyway_rdb::{Kind, Opened, Part, ValueWriter, Version, kind, payload};
use keyway_resp::reply;

/// Bytes of a piece of a collection.
const PIECE_LEN: usize = 64 << 10;

/// Texts of a piece of a collection. A server takes half a millisecond for them.
const PIECE_TEXTS: usize = 1024;

/// Bytes of a stream at most: a server has to take it at once.
const STREAM_LEN_MAX: usize = 256 << 20;

/// Longest string that is one command in a buffer. A longer one is sent in chunks.
pub(crate) const TEXT_LEN_MAX: usize = 64 << 10;

/// The forms that a target understands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// True if it knows RESTORE with REPLACE and ABSTTL: since Redis 5.0.
    pub(crate) restores: bool,
    /// The form in which streams are written.
    pub(crate) version: Version,
}

/// A value that is being copied.
#[derive(Debug, Default)]
pub(crate) struct Value {
    name: Vec<u8>,
    kind: Option<Kind>,
    expires_ms: Option<u64>,
    restores: bool,
    /// The texts of the next piece, one behind the other, and where each ends. Scores are texts, too.
    texts: Vec<u8>,
    ends: Vec<usize>,
    /// True if a piece was written.
    is_in_pieces: bool,
    /// Fields that expire, of the next piece.
    times: Vec<(Vec<u8>, u64)>,
    /// A stream.
    stream: Option<(ValueWriter, Vec<u8>)>,
    payload: Vec<u8>,
}

impl Value {
    /// Begins the value of a key.
    pub(crate) fn begin(
        &mut self,
        (name, expires_ms): (&[u8], Option<u64>),
        opened: &Opened,
        dialect: Dialect,
    ) -> Result<(), Failure> {
        self.name.clear();
        self.name.extend_from_slice(name);
        (self.kind, self.expires_ms) = (Some(opened.kind), expires_ms);
        (self.restores, self.is_in_pieces) = (dialect.restores, false);
        self.texts.clear();
        self.ends.clear();
        self.times.clear();
        self.stream = None;
        if opened.kind == Kind::Stream {
            // Every server with streams reads those of the versions before its own.
            let version = dialect.version.min(Version::Redis11);
            let fault = |fault| self.not_written(&fault);
            let kind = ValueWriter::kind_of(version, opened).map_err(fault)?;
            let mut bytes = vec![kind];
            let writer = ValueWriter::open(version, opened, &mut bytes).map_err(fault)?;
            self.stream = Some((writer, bytes));
        }
        Ok(())
    }

    /// The name of the key.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    fn not_written(&self, fault: &dyn std::fmt::Display) -> Failure {
        Failure::lasting(format!("key {} cannot be written: {fault}", shown(&self.name)))
    }

    /// Takes a part. A string has at most [`TEXT_LEN_MAX`] bytes.
    pub(crate) fn part(&mut self, part: &Part<'_>, out: &mut Commands) -> Result<(), Failure> {
        match *part {
            Part::Text(text) => self.text(text),
            Part::Element(word) | Part::Member(word) => self.text(word),
            Part::Scored { member, score } => {
                self.text(&score.to_le_bytes());
                self.text(member);
            }
            Part::Field { name, value, expires_ms } => {
                if let Some(millis) = expires_ms {
                    self.times.push((name.to_vec(), millis));
                }
                self.text(name);
                self.text(value);
            }
            _ => return self.stream_part(part),
        }
        // A string is written at its end.
        if self.kind != Some(Kind::Text)
            && (self.texts.len() >= PIECE_LEN || self.ends.len() >= PIECE_TEXTS)
        {
            self.piece(out);
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.texts.extend_from_slice(text);
        self.ends.push(self.texts.len());
    }

    fn stream_part(&mut self, part: &Part<'_>) -> Result<(), Failure> {
        let Some((writer, bytes)) = &mut self.stream else { return Ok(()) };
        if let Err(fault) = writer.part(part, bytes) {
            return Err(self.not_written(&fault));
        }
        if bytes.len() > STREAM_LEN_MAX {
            return Err(Failure::lasting(format!(
                "stream {} has more than {} MB, which the target would have to take at once: trim \
                 it, and move the slot then",
                shown(&self.name),
                STREAM_LEN_MAX >> 20
            )));
        }
        Ok(())
    }

    /// The texts of the next piece.
    fn each_text(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| self.texts.get(start..*end).unwrap_or_default())
    }

    /// Writes what there is of a collection as a command.
    fn piece(&mut self, out: &mut Commands) {
        if self.ends.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.is_in_pieces, true) {
            out.add(&[b"DEL", &self.name]);
        }
        let verb: &[u8] = match self.kind {
            Some(Kind::List) => b"RPUSH",
            Some(Kind::Set) => b"SADD",
            Some(Kind::Sorted) => b"ZADD",
            _ => b"HSET",
        };
        let is_sorted = self.kind == Some(Kind::Sorted);
        reply::array(&mut out.bytes, 2 + self.ends.len());
        reply::bulk(&mut out.bytes, verb);
        reply::bulk(&mut out.bytes, &self.name);
        for (nth, text) in self.each_text().enumerate() {
            match text.try_into() {
                Ok(score) if is_sorted && nth % 2 == 0 => {
                    reply::bulk(&mut out.bytes, decimal(f64::from_le_bytes(score)).as_bytes());
                }
                _ => reply::bulk(&mut out.bytes, text),
            }
        }
        out.count += 1;
        self.texts.clear();
        self.ends.clear();
        for (field, millis) in self.times.drain(..) {
            let millis = millis.to_string();
            let words: [&[u8]; 6] =
                [b"HPEXPIREAT", &self.name, millis.as_bytes(), b"FIELDS", b"1", &field];
            out.add(&words);
        }
    }

    /// Ends the value.
    pub(crate) fn end(&mut self, out: &mut Commands) -> Result<(), Failure> {
        if let Some((writer, mut bytes)) = self.stream.take() {
            if let Err(fault) = writer.finish() {
                return Err(self.not_written(&fault));
            }
            payload::seal_oldest(&mut bytes);
            self.restore(&bytes, out);
            return Ok(());
        }
        let is_small = !self.is_in_pieces && self.times.is_empty() && !self.ends.is_empty();
        let is_text = self.kind == Some(Kind::Text);
        match is_text {
            true if self.ends.is_empty() => {}
            true if !self.restores || self.expires_ms.is_none() => {
                out.add(&[b"SET", &self.name, &self.texts]);
            }
            _ if is_small && self.restores => {
                let mut payload = std::mem::take(&mut self.payload);
                self.dump(&mut payload);
                self.restore(&payload, out);
                payload.clear();
                self.payload = payload;
                return Ok(());
            }
            _ => self.piece(out),
        }
        // Behind everything else: a collection that expired between two pieces would begin anew.
        if let Some(millis) = self.expires_ms {
            out.add(&[b"PEXPIREAT", &self.name, millis.to_string().as_bytes()]);
        }
        Ok(())
    }

    /// Writes a small value as DUMP would, with the oldest version that knows its type.
    fn dump(&self, payload: &mut Vec<u8>) {
        let (kind, texts_each) = match self.kind {
            Some(Kind::List) => (kind::LIST, 1),
            Some(Kind::Set) => (kind::SET, 1),
            Some(Kind::Sorted) => (kind::SORTED, 2),
            Some(Kind::Text) => (kind::STRING, 0),
            _ => (kind::HASH, 2),
        };
        payload.push(kind);
        if let Some(count) = self.ends.len().checked_div(texts_each) {
            write_len(count as u64, payload);
        }
        if kind != kind::SORTED {
            self.each_text().for_each(|text| write_text(text, payload));
        } else {
            let mut texts = self.each_text();
            while let (Some(score), Some(member)) = (texts.next(), texts.next()) {
                write_text(member, payload);
                payload.extend_from_slice(score);
            }
        }
        payload::seal_oldest(payload);
    }

    fn restore(&self, payload: &[u8], out: &mut Commands) {
        let name = &*self.name;
        match self.expires_ms {
            None => out.add(&[b"RESTORE", name, b"0", payload, b"REPLACE"]),
            Some(millis) => {
                let millis = millis.to_string();
                out.add(&[b"RESTORE", name, millis.as_bytes(), payload, b"REPLACE", b"ABSTTL"]);
            }
        }
    }
}

/// Returns a score as a server reads it, without a loss.
fn decimal(score: f64) -> String {
    match score {
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        score => format!("{score:e}"),
    }
}
