//! A target that is a server.

use keyway_rdb::replication::ReplicationId;
use keyway_rdb::{Event, Key, Kind, Opened, Part, ValueWriter, Version, payload};
use keyway_replica::{Origin, Position, Remains, Target, TargetError, Unit};
use keyway_testkit::{Client, RedisServer, Value, encode};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a [`Replayer`] has seen, for the test to look at.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub snapshots: usize,
    pub aborted: usize,
    pub origins: Vec<Origin>,
    pub units: usize,
    pub transactions: usize,
    pub renamed: Vec<(ReplicationId, Position)>,
    /// The position behind all that was applied.
    pub position: Option<Position>,
    /// Breaches of the order of calls: none are allowed.
    pub wrong: Vec<String>,
}

/// Replays a snapshot by RESTORE and the stream as it comes, and checks that no
/// byte of the stream is missing or comes twice.
pub struct Replayer {
    client: Client,
    version: Version,
    seen: Arc<Mutex<Seen>>,
    is_in_snapshot: bool,
    database: u64,
    name: Vec<u8>,
    expires_ms: Option<u64>,
    opened: Option<Opened>,
    writer: Option<ValueWriter>,
    value: Vec<u8>,
    /// Elements of a list that the snapshot has not counted.
    list: Vec<Vec<u8>>,
    /// True if the first key of a snapshot takes more than a second.
    is_slow: bool,
}

impl Replayer {
    pub fn new(server: &RedisServer) -> Self {
        Self::over(server.client(), Version::Redis10)
    }

    pub fn over(client: Client, version: Version) -> Self {
        Self {
            client,
            version,
            seen: Arc::default(),
            is_in_snapshot: false,
            database: 0,
            name: Vec::new(),
            expires_ms: None,
            opened: None,
            writer: None,
            value: Vec::new(),
            list: Vec::new(),
            is_slow: false,
        }
    }

    /// One that needs more than a second for the first key of a snapshot.
    pub fn slow(server: &RedisServer) -> Self {
        Self { is_slow: true, ..Self::new(server) }
    }

    pub fn seen(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.seen)
    }

    fn note(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.lock());
    }

    fn wrong(&self, text: String) -> TargetError {
        self.note(|seen| seen.wrong.push(text.clone()));
        TargetError::stop(&text)
    }

    fn tell(&mut self, words: &[&[u8]]) -> Result<(), TargetError> {
        let reply = self.client.command(words);
        self.check(&reply, words[0])
    }

    fn check(&self, reply: &Value, name: &[u8]) -> Result<(), TargetError> {
        match reply.is_error() {
            true => {
                let name = String::from_utf8_lossy(name);
                Err(self.wrong(format!("{name}: {}", reply.error_text())))
            }
            false => Ok(()),
        }
    }

    fn open(&mut self, key: &Key<'_>) -> Result<(), TargetError> {
        self.name = key.name.to_vec();
        self.expires_ms = key.expires_ms;
        self.opened = Some(key.value);
        self.list.clear();
        self.value.clear();
        if key.value.kind == Kind::List && key.value.count.is_none() {
            return Ok(());
        }
        self.begin(key.value)
    }

    fn begin(&mut self, value: Opened) -> Result<(), TargetError> {
        let wrong = |fault: keyway_rdb::WriteFault| self.wrong(fault.to_string());
        let kind = ValueWriter::kind_of(self.version, &value).map_err(wrong)?;
        self.value.push(kind);
        let writer = ValueWriter::open(self.version, &value, &mut self.value);
        self.writer = Some(writer.map_err(|fault| self.wrong(fault.to_string()))?);
        Ok(())
    }

    fn part(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        match (&mut self.writer, part) {
            (Some(writer), part) => {
                let written = writer.part(part, &mut self.value);
                written.map_err(|fault| self.wrong(fault.to_string()))
            }
            (None, Part::Element(element)) => {
                self.list.push(element.to_vec());
                Ok(())
            }
            (None, other) => Err(self.wrong(format!("{other:?} in a list"))),
        }
    }

    fn close(&mut self) -> Result<(), TargetError> {
        if self.writer.is_none() {
            self.begin(Opened::new(Kind::List, self.list.len() as u64))?;
            for element in std::mem::take(&mut self.list) {
                self.part(&Part::Element(&element))?;
            }
        }
        self.writer = None;
        payload::seal_as(self.version, &mut self.value);
        let expires = self.expires_ms.unwrap_or(0).to_string();
        let (name, value) = (std::mem::take(&mut self.name), std::mem::take(&mut self.value));
        self.tell(&[b"RESTORE", &name, expires.as_bytes(), &value, b"ABSTTL"])
    }
}

impl Target for Replayer {
    fn begin_snapshot(&mut self, origin: &Origin) -> Result<(), TargetError> {
        if self.is_in_snapshot {
            return Err(self.wrong("a snapshot within a snapshot".to_owned()));
        }
        self.is_in_snapshot = true;
        self.note(|seen| {
            seen.origins.push(origin.clone());
            seen.position = None;
        });
        // What the connection had of the stream before is gone.
        self.tell(&[b"FLUSHALL"])?;
        self.tell(&[b"FUNCTION", b"FLUSH"])
    }

    fn take(&mut self, event: Event<'_>) -> Result<(), TargetError> {
        match event {
            Event::Library(code) => self.tell(&[b"FUNCTION", b"LOAD", code]),
            Event::Database(number) => {
                self.database = number;
                self.tell(&[b"SELECT", number.to_string().as_bytes()])
            }
            Event::Key(key) => self.open(&key),
            Event::Part(part) => self.part(&part),
            Event::KeyEnd => {
                if std::mem::take(&mut self.is_slow) {
                    self.tell(&[b"DEBUG", b"SLEEP", b"1.2"])?;
                }
                self.close()
            }
            _ => Ok(()),
        }
    }

    fn end_snapshot(&mut self, position: Position) -> Result<(), TargetError> {
        self.is_in_snapshot = false;
        self.note(|seen| {
            seen.snapshots += 1;
            seen.position = Some(position);
        });
        Ok(())
    }

    fn abort_snapshot(&mut self) -> Remains {
        self.is_in_snapshot = false;
        self.writer = None;
        self.note(|seen| seen.aborted += 1);
        Remains::Nothing
    }

    fn renamed(&mut self, before: ReplicationId, position: Position) {
        self.note(|seen| {
            seen.renamed.push((before, position));
            seen.position = Some(position);
        });
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let (mut bytes, mut replies) = (Vec::new(), 0);
        let mut add = |command: &[u8]| {
            bytes.extend_from_slice(command);
            replies += 1;
        };
        let is_in_order = |seen: &Seen| {
            !self.is_in_snapshot
                && seen.position.is_some_and(|position| position.offset == unit.start())
                && unit.end() - unit.start() == unit.raw().len() as u64
        };
        if !is_in_order(&self.seen.lock()) {
            return Err(self.wrong(format!("unit {}..{} out of order", unit.start(), unit.end())));
        }
        if unit.is_transaction() {
            add(&encode(&["MULTI"]));
        }
        for command in unit.commands() {
            if command.database() != self.database {
                self.database = command.database();
                add(&encode(&["SELECT", &self.database.to_string()]));
            }
            add(command.raw());
        }
        if unit.is_transaction() {
            add(&encode(&["EXEC"]));
        }
        self.client.send(&bytes);
        for reply in self.client.replies(replies) {
            let failed = match &reply {
                Value::Array(replies) => replies.iter().find(|reply| reply.is_error()),
                reply => Some(reply).filter(|reply| reply.is_error()),
            };
            if let Some(reply) = failed {
                let raw = unit.raw().escape_ascii();
                return Err(self.wrong(format!("{}: {raw}", reply.error_text())));
            }
        }
        self.note(|seen| {
            seen.units += 1;
            seen.transactions += usize::from(unit.is_transaction());
            if let Some(position) = &mut seen.position {
                position.offset = unit.end();
            }
        });
        Ok(())
    }
}
