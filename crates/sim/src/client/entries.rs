//! Streams of the embedded store. Clients add entries and wait for them, either alone or as
//! consumers of a group.

use super::stateful::{Begun, What};
use super::*;
use crate::ledger::{EntryId, StreamRead};
use crate::network::MILLI;
use std::collections::{BTreeMap, BTreeSet};

/// The group that clients read as. Each stream has one.
pub const GROUP: &[u8] = b"group";

/// A client's view of streams.
#[derive(Default)]
pub(super) struct Reading {
    /// The id of the last entry that it has read, for each stream.
    positions: BTreeMap<Vec<u8>, EntryId>,
    /// The streams whose group the client has created on this connection.
    pub(super) groups: BTreeSet<Vec<u8>>,
}

/// A wait for entries.
pub(super) struct Wait {
    /// `None`: the client waits until it leaves after `patience`.
    pub(super) timeout: Option<Nanos>,
    pub(super) patience: Nanos,
    /// The entries after which the client reads, one for each stream; an element of `None` means
    /// the last entry there is. `None` for a group, which gives each consumer what no other one
    /// has.
    after: Option<Vec<Option<EntryId>>>,
}

impl Client {
    /// Asks one of the requests of this file.
    pub(super) fn ask_entries(&mut self, now: Nanos) {
        let stream = self.pick_stream();
        match self.random.below(10) {
            0..5 => {
                self.tags += 1;
                let value = [&stream[..], format!("#{}", self.tags).as_bytes()].concat();
                write_request(&mut self.output, &[b"XADD", &stream, b"*", b"field", &value]);
                self.begin(now, What::Add, vec![stream]);
            }
            5..8 => self.ask_read(now, stream),
            _ => self.ask_group_read(now, stream),
        }
    }

    fn pick_stream(&mut self) -> Vec<u8> {
        let number = self.random.index(2);
        self.shared('t', number)
    }

    /// Picks a timeout. Returns it with its text.
    fn pick_wait(&mut self) -> (Option<Nanos>, String) {
        let millis = self.random.percent(60).then(|| self.random.between(10, 500));
        (millis.map(|millis| millis * MILLI), millis.unwrap_or(0).to_string())
    }

    fn ask_read(&mut self, now: Nanos, stream: Vec<u8>) {
        let other = self.pick_stream();
        let mut streams = vec![stream];
        if self.random.percent(30) && other != streams[0] {
            streams.push(other);
        }
        let (timeout, millis) = self.pick_wait();
        let count = self.random.between(1, 4).to_string();
        let mut after = Vec::new();
        for stream in &streams {
            let known = self.reading.positions.get(stream).copied().unwrap_or_default();
            after.push((!self.random.percent(25)).then_some(known));
        }
        let ids: Vec<Vec<u8>> = after
            .iter()
            .map(|id| match id {
                Some((millis, number)) => format!("{millis}-{number}").into_bytes(),
                None => b"$".to_vec(),
            })
            .collect();
        let mut args: Vec<&[u8]> = vec![b"XREAD", b"COUNT", count.as_bytes()];
        args.extend([&b"BLOCK"[..], millis.as_bytes(), b"STREAMS"]);
        args.extend(streams.iter().map(Vec::as_slice));
        args.extend(ids.iter().map(Vec::as_slice));
        write_request(&mut self.output, &args);
        let patience = self.random.scaled(5 * MILLI, 1000 * MILLI);
        let wait = Wait { timeout, patience, after: Some(after) };
        self.begin(now, What::Entries(wait), streams);
    }

    fn ask_group_read(&mut self, now: Nanos, stream: Vec<u8>) {
        if self.reading.groups.insert(stream.clone()) || self.random.percent(10) {
            let args = [&b"XGROUP"[..], b"CREATE", &stream, GROUP, b"0", b"MKSTREAM"];
            write_request(&mut self.output, &args);
            self.begin(now, What::MakeGroup, vec![stream.clone()]);
        }
        let (timeout, millis) = self.pick_wait();
        let consumer = format!("c{}", self.index);
        let mut args = vec![&b"XREADGROUP"[..], b"GROUP", GROUP, consumer.as_bytes()];
        args.extend([&b"COUNT"[..], b"2", b"BLOCK", millis.as_bytes()]);
        if self.random.percent(50) {
            args.push(b"NOACK");
        }
        args.extend([&b"STREAMS"[..], &stream, b">"]);
        write_request(&mut self.output, &args);
        let patience = self.random.scaled(5 * MILLI, 1000 * MILLI);
        let wait = Wait { timeout, patience, after: None };
        self.begin(now, What::Entries(wait), vec![stream]);
    }

    /// Checks the reply to an added entry: its id.
    pub(super) fn check_added(
        &mut self,
        (expected, begun): (&Expected, &Begun),
        id: &[u8],
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let id = id_of(id).ok_or_else(|| "no id of an entry".to_owned())?;
        let pool = self.habits.pool;
        ledger.on_entry_told(pool, &begun.names[0], id, (expected.asked_at, now))
    }

    pub(super) fn check_entries(
        &mut self,
        (expected, begun, wait): (&Expected, &Begun, &Wait),
        value: &Value,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let streams = match value {
            Value::Array(None) | Value::Null => {
                return self.check_no_entries((expected, begun, wait), now, ledger);
            }
            // RESP3 uses a map.
            Value::Map(items) => items.chunks(2).map(<[Value]>::to_vec).collect(),
            Value::Array(Some(items)) => {
                let pair = |item: &Value| match item {
                    Value::Array(Some(pair)) => pair.clone(),
                    _ => Vec::new(),
                };
                items.iter().map(pair).collect::<Vec<_>>()
            }
            _ => return Err("an answer of another kind than wanted by XREAD".into()),
        };
        if streams.is_empty() {
            return Err("no stream".into());
        }
        for pair in &streams {
            let [Value::Bulk(Some(stream)), Value::Array(Some(entries))] = &pair[..] else {
                return Err("no stream with its entries".into());
            };
            let nth = begun.names.iter().position(|name| name == stream);
            let nth = nth.ok_or_else(|| "a stream that was not asked for".to_owned())?;
            let ids: Option<Vec<_>> = entries.iter().map(|entry| entry_of(entry, stream)).collect();
            let ids = ids.filter(|ids| !ids.is_empty());
            let ids = ids.ok_or_else(|| "no entries of that stream".to_owned())?;
            let pool = self.habits.pool;
            match &wait.after {
                None => ledger.on_entries_given(pool, stream, &ids)?,
                Some(after) => {
                    self.reading.positions.insert(stream.clone(), ids[ids.len() - 1]);
                    let (after, asked_at) = (after[nth], expected.asked_at);
                    let stream = stream.clone();
                    ledger.on_entries_read(StreamRead { pool, stream, after, ids, asked_at });
                }
            }
        }
        Ok(())
    }

    /// Checks a wait that ended without entries.
    fn check_no_entries(
        &mut self,
        (expected, begun, wait): (&Expected, &Begun, &Wait),
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let end = wait.timeout.map(|span| expected.asked_at + span);
        if self.id.is_none_or(|id| ledger.may_be_unblocked(id, self.front_asked_at)) {
            return Ok(());
        }
        let Some(end) = end.filter(|end| now >= *end) else {
            return Err("but nobody ended the wait".into());
        };
        let pool = self.habits.pool;
        match &wait.after {
            // A later reply tells whether the entries were given to another consumer.
            None => ledger.on_group_idle(pool, &begun.names[0], end),
            Some(after) => {
                for (stream, after) in begun.names.iter().zip(after) {
                    let after = after.filter(|after| ledger.has_entry(pool, stream, *after, end));
                    if after.is_some() {
                        return Err("although an entry was there in time".into());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Parses the two numbers of an id.
pub fn id_of(bytes: &[u8]) -> Option<EntryId> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (millis, number) = text.split_once('-')?;
    Some((millis.parse().ok()?, number.parse().ok()?))
}

/// Returns the id of an entry of a stream, or `None` if it is not such an entry.
fn entry_of(entry: &Value, stream: &[u8]) -> Option<EntryId> {
    let Value::Array(Some(parts)) = entry else { return None };
    let [Value::Bulk(Some(id)), Value::Array(Some(fields))] = &parts[..] else { return None };
    let [Value::Bulk(Some(_)), Value::Bulk(Some(value))] = &fields[..] else { return None };
    value.starts_with(stream).then_some(())?;
    id_of(id)
}
