//! Transactions, watched counters that several clients raise, and lists on which clients wait.

use super::entries::Wait;
use super::verdict::{excusing_since, fate_of};
use super::*;
use crate::network::MILLI;

/// A request of these kinds, and its keys.
pub(super) struct Begun {
    pub(super) what: What,
    pub(super) names: Vec<Vec<u8>>,
}

pub(super) enum What {
    Watch,
    /// `GET` of a watched shared counter.
    ReadShared,
    Multi,
    /// A command inside `MULTI`. The fields say whether its key is on another server than the first
    /// key, or than one of the keys before it, and whether the transaction is too long.
    Queued {
        crosses: bool,
        crosses_any: bool,
        is_long: bool,
    },
    /// The queued commands, and whether keys are watched.
    Exec {
        parts: Vec<Expected>,
        watches: bool,
    },
    Discard {
        parts: Vec<Expected>,
    },
    /// Raises a shared counter to `value`, inside a transaction.
    WriteShared {
        value: i64,
    },
    /// A write to a key that no client reads, inside a transaction.
    Note {
        write: u64,
    },
    Push {
        element: Vec<u8>,
    },
    /// `None`: the client waits until it leaves after `patience`.
    Pop {
        timeout: Option<Nanos>,
        patience: Nanos,
        crosses: bool,
    },
    /// Adds an entry to a stream.
    Add,
    MakeGroup,
    Entries(Wait),
    Length,
    Id,
    Unblock {
        id: i64,
    },
}

/// An attempt to raise a shared counter, from `WATCH` to `EXEC`.
pub(super) struct Attempt {
    counter: usize,
    has_watch: bool,
    value: Option<i64>,
    is_over: bool,
}

/// A transaction while it is being asked.
struct Draft {
    group: usize,
    parts: Vec<Expected>,
    /// The server of its keys so far.
    home: Option<usize>,
    len: usize,
    had_written: bool,
}

impl Ask {
    /// Returns the value with which RESP2 says what is null in RESP3.
    pub(super) fn null(&self) -> Value {
        match self {
            Ask::Begun(Begun {
                what: What::Exec { .. } | What::Pop { .. } | What::Entries(_),
                ..
            }) => Value::Array(None),
            _ => Value::Bulk(None),
        }
    }
}

impl Client {
    pub(super) fn begin(&mut self, now: Nanos, what: What, names: Vec<Vec<u8>>) {
        self.expect(now, Ask::Begun(Begun { what, names }), Vec::new());
    }

    pub(super) fn shared(&self, kind: char, number: usize) -> Vec<u8> {
        let owner = format!("shared{}", self.habits.pool);
        key_name(kind, self.database as u32, &owner, number, kind == 'l')
    }

    pub(super) fn ask_id(&mut self, now: Nanos) {
        self.id = None;
        write_request(&mut self.output, &[b"CLIENT", b"ID"]);
        self.begin(now, What::Id, Vec::new());
    }

    /// Asks one of the requests of this file.
    pub(super) fn ask_stateful(&mut self, now: Nanos, ledger: &mut Ledger) {
        // Only on stores, so that seeds draw the same for servers as before.
        if self.habits.is_store && self.habits.lists && self.random.percent(25) {
            return self.ask_entries(now);
        }
        match self.random.below(100) {
            0..30 if self.attempt.is_none() => self.ask_attempt(now),
            30..55 if self.attempt.is_none() => self.ask_transaction(now, ledger),
            _ if !self.habits.lists => self.ask_get(now, ledger),
            0..75 => self.ask_push(now, ledger),
            75..90 => self.ask_pop(now, ledger),
            90..94 => {
                let list = self.pick_list();
                write_request(&mut self.output, &[b"LLEN", &list]);
                self.begin(now, What::Length, vec![list]);
            }
            _ => self.ask_unblock(now, ledger),
        }
    }

    fn ask_attempt(&mut self, now: Nanos) {
        let counter = self.random.index(2);
        let name = self.shared('w', counter);
        write_request(&mut self.output, &[b"WATCH", &name]);
        self.begin(now, What::Watch, vec![name.clone()]);
        write_request(&mut self.output, &[b"GET", &name]);
        self.begin(now, What::ReadShared, vec![name]);
        self.attempt = Some(Attempt { counter, has_watch: false, value: None, is_over: false });
    }

    /// Continues an attempt whose value was read.
    pub(super) fn go_on_with_attempt(&mut self, now: Nanos, ledger: &mut Ledger) {
        if !self.attempt.as_ref().is_some_and(|attempt| attempt.is_over) {
            return;
        }
        let Some(Attempt { counter, has_watch, value, .. }) = self.attempt.take() else { return };
        let name = self.shared('w', counter);
        let value = value.filter(|_| has_watch && self.random.percent(85));
        let Some(value) = value else {
            write_request(&mut self.output, &[b"UNWATCH"]);
            return self.expect(now, Ask::Exactly(ok()), Vec::new());
        };
        let mut draft = self.begin_draft(now, ledger, &name);
        let notes = self.random.below(3);
        for number in 0..notes {
            self.draft_note(now, ledger, &mut draft, number);
        }
        let bytes = (value + 1).to_string();
        let start = self.output.len();
        write_request(&mut self.output, &[b"SET", &name, bytes.as_bytes()]);
        self.begin(now, What::WriteShared { value: value + 1 }, vec![name.clone()]);
        self.draft_last(now, &mut draft, start, &[name], ledger);
        self.end_draft(now, ledger, draft, true);
    }

    fn begin_draft(&mut self, now: Nanos, ledger: &mut Ledger, watched: &[u8]) -> Draft {
        let had_written = self.has_written;
        write_request(&mut self.output, &[b"MULTI"]);
        self.begin(now, What::Multi, Vec::new());
        let home = match watched.is_empty() {
            true => None,
            false => ledger.home(self.habits.pool, watched),
        };
        Draft { group: ledger.new_group(), parts: Vec::new(), home, len: 0, had_written }
    }

    /// Adds a write to a key of its own beside the shared counter.
    fn draft_note(&mut self, now: Nanos, ledger: &mut Ledger, draft: &mut Draft, number: u64) {
        let owner = format!("c{}g{}n{number}", self.index, self.generation);
        let pool = self.habits.pool;
        let name = |number| key_name('x', self.database as u32, &owner, number, false);
        let near = (0..40).map(name).find(|name| ledger.home(pool, name) == draft.home);
        let Some(name) = near else { return };
        let write = ledger.new_write();
        ledger.join_group(write, draft.group);
        let start = self.output.len();
        write_request(&mut self.output, &[b"SET", &name, &value::compose(&name, write, 20)]);
        self.begin(now, What::Note { write }, vec![name.clone()]);
        self.draft_last(now, draft, start, &[name], ledger);
    }

    /// Makes the last request, from `start` of the output, a part of the transaction.
    fn draft_last(
        &mut self,
        now: Nanos,
        draft: &mut Draft,
        start: usize,
        names: &[Vec<u8>],
        ledger: &mut Ledger,
    ) {
        let Some(mut part) = self.expected.pop_back() else { return };
        part.may_be_stale = false;
        if let Ask::Set { write, .. } = part.ask {
            ledger.join_group(write, draft.group);
        }
        let home = names.first().and_then(|name| ledger.home(self.habits.pool, name));
        let crosses =
            *draft.home.get_or_insert(home.unwrap_or_default()) != home.unwrap_or_default();
        // An inline command is longer as an array.
        draft.len += self.output.len() - start + 64;
        let is_long = draft.len > self.habits.transaction_len_max;
        draft.parts.push(part);
        let crosses_any = self.crosses(&draft.parts, ledger);
        self.begin(now, What::Queued { crosses, crosses_any, is_long }, names.to_vec());
    }

    fn end_draft(&mut self, now: Nanos, ledger: &mut Ledger, draft: Draft, watches: bool) {
        let names = draft.parts.iter().flat_map(|part| self.names_of(part)).collect();
        // A queued command is no write yet.
        self.has_written = draft.had_written;
        if self.random.percent(10) {
            write_request(&mut self.output, &[b"DISCARD"]);
            return self.begin(now, What::Discard { parts: draft.parts }, names);
        }
        ledger.close_group(draft.group);
        write_request(&mut self.output, &[b"EXEC"]);
        let is_refused =
            draft.len > self.habits.transaction_len_max || self.crosses(&draft.parts, ledger);
        self.begin(now, What::Exec { parts: draft.parts, watches }, names);
        // A transaction that watches keys may write nothing. Its reply says so.
        if is_refused || watches {
            self.has_written = draft.had_written;
        }
    }

    /// Asks `MULTI`, some commands on keys of its own, and `EXEC`.
    fn ask_transaction(&mut self, now: Nanos, ledger: &mut Ledger) {
        let mut draft = self.begin_draft(now, ledger, b"");
        let count = self.random.below(7);
        let is_careful = self.random.percent(80);
        for _ in 0..count {
            let start = self.output.len();
            if is_careful {
                self.home_wanted = draft.home;
            }
            match self.random.below(5) {
                0..3 => self.ask_set(now, ledger),
                3 => self.ask_get(now, ledger),
                _ => self.ask_increment(now, ledger),
            }
            self.home_wanted = None;
            let names = self.expected.back().map(|part| self.names_of(part)).unwrap_or_default();
            self.draft_last(now, &mut draft, start, &names, ledger);
        }
        self.end_draft(now, ledger, draft, false);
    }

    fn pick_list(&mut self) -> Vec<u8> {
        let number = self.random.index(3);
        self.shared('l', number)
    }

    fn ask_push(&mut self, now: Nanos, ledger: &mut Ledger) {
        let list = self.pick_list();
        let element = ledger.new_element(&list);
        write_request(&mut self.output, &[b"RPUSH", &list, &element]);
        self.begin(now, What::Push { element }, vec![list]);
    }

    fn ask_pop(&mut self, now: Nanos, ledger: &Ledger) {
        let mut lists = vec![self.pick_list()];
        if self.random.percent(30) {
            lists.push(self.pick_list());
        }
        let timeout = self.random.percent(50).then(|| self.random.between(10, 500) * MILLI);
        let text = timeout.map_or("0".to_owned(), |span| format!("{:.3}", span as f64 / 1e9));
        let mut args: Vec<&[u8]> = vec![b"BLPOP"];
        args.extend(lists.iter().map(Vec::as_slice));
        args.push(text.as_bytes());
        write_request(&mut self.output, &args);
        let home = |list: &Vec<u8>| ledger.home(self.habits.pool, list);
        let crosses = lists.iter().any(|list| home(list) != home(&lists[0]));
        let patience = self.random.scaled(5 * MILLI, 1000 * MILLI);
        self.begin(now, What::Pop { timeout, patience, crosses }, lists);
    }

    fn ask_unblock(&mut self, now: Nanos, ledger: &mut Ledger) {
        let id = self.random.between(1, 40) as i64;
        let number = id.to_string();
        let reason: &[u8] = if self.random.percent(50) { b"TIMEOUT" } else { b"ERROR" };
        write_request(&mut self.output, &[b"CLIENT", b"UNBLOCK", number.as_bytes(), reason]);
        ledger.on_unblock_asked(id);
        self.begin(now, What::Unblock { id }, Vec::new());
    }

    /// Returns the current wait as timeout and patience.
    fn wait(&self) -> Option<(Option<Nanos>, Nanos)> {
        match &self.expected.front()?.ask {
            Ask::Begun(Begun { what: What::Pop { timeout, patience, .. }, .. }) => {
                Some((*timeout, *patience))
            }
            Ask::Begun(Begun { what: What::Entries(wait), .. }) => {
                Some((wait.timeout, wait.patience))
            }
            _ => None,
        }
    }

    /// Returns how long the client may wait for elements beyond the usual time.
    pub(super) fn waits_for(&self) -> Option<Nanos> {
        self.wait().map(|(timeout, patience)| timeout.unwrap_or(patience))
    }

    /// Returns the time at which the client leaves because it has waited for long enough.
    pub(super) fn leaves_at(&self) -> Option<Nanos> {
        match self.wait()? {
            (None, patience) => Some(self.front_since + patience),
            _ => None,
        }
    }

    /// Returns whether the client still waits although it should have been unblocked.
    pub fn is_unblock_overdue(&self, ledger: &Ledger, now: Nanos) -> bool {
        let id = self.id.filter(|_| self.conn.is_some() && self.wait().is_some());
        id.is_some_and(|id| ledger.is_unblock_overdue(id, self.front_since, now))
    }

    /// Returns whether the client has asked for elements and has no reply yet.
    pub(super) fn waits_for_elements(&self) -> bool {
        let is_pop = |expected: &Expected| {
            let Ask::Begun(Begun { what, .. }) = &expected.ask else { return false };
            matches!(what, What::Pop { .. } | What::Entries(_))
        };
        self.expected.iter().any(is_pop)
    }

    /// Notes that the client leaves. What it has begun is over.
    pub(super) fn note_departure(&mut self, now: Nanos, ledger: &mut Ledger) {
        for expected in &self.expected {
            match &expected.ask {
                Ask::Begun(Begun { what: What::Pop { .. } | What::Entries(_), names }) => {
                    ledger.on_departure(names, expected.asked_at, now);
                }
                Ask::Begun(Begun { what: What::Unblock { id }, .. }) => {
                    ledger.on_unblock_over(*id, now, None);
                }
                _ => {}
            }
        }
        self.attempt = None;
        // Messages from before the last reply were sent before it.
        if !self.draining
            && let Err(fault) = self.check_told_all(ledger, self.answered_asked_at)
        {
            ledger.fail(|| fault);
        }
    }

    pub(super) fn check_begun(
        &mut self,
        expected: &Expected,
        begun: &Begun,
        value: &Value,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let outcome = match (&begun.what, value) {
            (_, Value::Error(text)) => {
                let shown = String::from_utf8_lossy(text).into_owned();
                self.check_begun_error(expected, begun, &shown, now, ledger)
            }
            (What::Exec { parts, watches }, value) => {
                self.check_exec(parts, *watches, value, ledger)
            }
            (What::Discard { parts }, value) if *value == ok() => {
                parts.iter().for_each(|part| self.settle(part, Fate::NotDone, ledger));
                Ok(())
            }
            (What::Watch, value) if *value == ok() => {
                if let Some(attempt) = &mut self.attempt {
                    attempt.has_watch = true;
                }
                Ok(())
            }
            (What::Multi, value) if *value == ok() => {
                self.is_refused = false;
                Ok(())
            }
            (What::Queued { crosses, .. }, Value::Simple(text)) if text == b"QUEUED" => {
                // Two slots may be on one server. It refuses them together.
                let is_static = self.is_static(ledger) && !ledger.is_cluster();
                let fine = !(*crosses && is_static);
                fine.then_some(()).ok_or_else(|| "but its key is on another server".into())
            }
            (What::ReadShared, Value::Bulk(bytes)) => self.read_shared(bytes.as_deref()),
            (What::WriteShared { value: raised }, value) if *value == ok() => {
                ledger.on_raised(self.habits.pool, &begun.names[0], *raised)
            }
            (What::Note { write }, value) if *value == ok() => {
                ledger.on_acknowledged(self.habits.pool, *write);
                Ok(())
            }
            (What::Push { element }, Value::Integer(1..)) => {
                ledger.on_push_told(self.habits.pool, element, expected.asked_at);
                Ok(())
            }
            (What::Add, Value::Bulk(Some(id))) => {
                self.check_added((expected, begun), id, now, ledger)
            }
            (What::MakeGroup, value) if *value == ok() => Ok(()),
            (What::Entries(wait), value) => {
                self.check_entries((expected, begun, wait), value, now, ledger)
            }
            (What::Length, Value::Integer(0..)) => Ok(()),
            (What::Id, Value::Integer(id)) => {
                self.id = Some(*id);
                Ok(())
            }
            (What::Unblock { id }, Value::Integer(count @ 0..=1)) => {
                let since = (*count == 1).then_some(expected.asked_at);
                ledger.on_unblock_over(*id, now, since);
                Ok(())
            }
            (What::Pop { timeout, .. }, value) => {
                self.check_pop(begun, *timeout, value, now, ledger)
            }
            _ => Err("an answer of another kind than wanted".into()),
        };
        if let What::ReadShared = begun.what
            && let Some(attempt) = &mut self.attempt
        {
            attempt.is_over = true;
        }
        outcome
    }

    fn crosses(&self, parts: &[Expected], ledger: &Ledger) -> bool {
        let names = parts.iter().flat_map(|part| self.names_of(part));
        let homes = names.map(|name| ledger.home(self.habits.pool, &name));
        homes.collect::<std::collections::BTreeSet<_>>().len() > 1
    }

    fn is_static(&self, ledger: &Ledger) -> bool {
        ledger.pools[self.habits.pool].as_ref().is_some_and(|known| known.is_static)
    }

    fn read_shared(&mut self, bytes: Option<&[u8]>) -> Result<(), String> {
        let text = String::from_utf8_lossy(bytes.unwrap_or(b"0"));
        let number = text.parse().map_err(|_| "the value is none of a counter".to_owned())?;
        if let Some(attempt) = &mut self.attempt {
            attempt.value = Some(number);
        }
        Ok(())
    }

    fn check_exec(
        &mut self,
        parts: &[Expected],
        watches: bool,
        value: &Value,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        if self.is_refused {
            return Err("although a command of the transaction was refused".into());
        }
        match value {
            Value::Array(None) if watches => {
                parts.iter().for_each(|part| self.settle(part, Fate::NotDone, ledger));
                Ok(())
            }
            Value::Array(Some(items)) if items.len() == parts.len() => {
                ledger.commits += 1;
                self.has_written |= watches;
                self.has_write_done |= watches;
                for (part, item) in parts.iter().zip(items) {
                    match (&part.ask, item) {
                        // A command without room is refused in its place.
                        (_, Value::Error(text)) => {
                            let text = String::from_utf8_lossy(text);
                            if !ledger.is_for_room(self.habits.pool, &text) {
                                return Err("an error inside EXEC".into());
                            }
                            self.settle(part, Fate::NotDone, ledger);
                        }
                        (Ask::Begun(begun), item) => {
                            self.check_begun(part, begun, item, 0, ledger)?
                        }
                        (_, item) => self.check_answer(part, item, ledger)?,
                    }
                }
                Ok(())
            }
            _ => Err("an answer of another kind than wanted by EXEC".into()),
        }
    }

    fn check_pop(
        &mut self,
        begun: &Begun,
        timeout: Option<Nanos>,
        value: &Value,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        match value {
            Value::Array(None) => {
                let is_due = timeout.is_some_and(|span| now >= self.front_asked_at + span);
                let is_ended =
                    self.id.is_none_or(|id| ledger.may_be_unblocked(id, self.front_asked_at));
                let fine = is_due || is_ended;
                fine.then_some(()).ok_or_else(|| "but nobody ended the wait".into())
            }
            Value::Array(Some(items)) => match &items[..] {
                [Value::Bulk(Some(list)), Value::Bulk(Some(element))] => {
                    ledger.on_delivered(self.habits.pool, &begun.names, (list, element))
                }
                _ => Err("no element".into()),
            },
            _ => Err("an answer of another kind than wanted by BLPOP".into()),
        }
    }

    fn check_begun_error(
        &mut self,
        expected: &Expected,
        begun: &Begun,
        text: &str,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let is_static = self.is_static(ledger);
        let is_queued = matches!(begun.what, What::Queued { .. });
        let is_crossing = text.starts_with("CROSSSLOT");
        let pool = self.habits.pool;
        let is_for_room = ledger.is_for_room(pool, text);
        ledger.refused_for_room += u64::from(is_for_room);
        let is_known = match &begun.what {
            What::Queued { .. } | What::Push { .. } | What::Add | What::MakeGroup
                if is_for_room =>
            {
                true
            }
            // The group could not be created because there was no room.
            What::Entries(_) if text.starts_with("NOGROUP") => ledger.is_bounded(pool),
            // If a command was refused because no server had its key, the first accepted command
            // decides where the other keys must be. Redis compares all keys at EXEC. Here EXEC
            // fails anyway.
            What::Queued { crosses_any: true, .. } if is_crossing && self.is_refused => true,
            What::Queued { crosses, .. } | What::Pop { crosses, .. } if is_crossing => {
                *crosses || !is_static
            }
            What::Watch if is_crossing => !is_static,
            What::Queued { is_long, .. } if text.starts_with("ERR the transaction is too long") => {
                *is_long
            }
            What::MakeGroup if text.starts_with("BUSYGROUP") => true,
            What::Pop { .. } | What::Entries(_) if text.starts_with("UNBLOCKED") => {
                // Nothing is begun for a client that has announced that it sends no more.
                self.draining
                    || matches!(self.phase, Phase::Leaving { .. })
                    || self.id.is_none_or(|id| ledger.may_be_unblocked(id, expected.asked_at))
            }
            What::Exec { .. } if text.starts_with("EXECABORT") => {
                let reason = text.split_once("discarded because of: ").map_or("", |it| it.1);
                self.is_refused || ledger.is_for_room(pool, reason)
            }
            What::Exec { parts, .. } if is_crossing => {
                ledger.is_cluster() && self.crosses(parts, ledger)
            }
            _ => false,
        };
        self.is_refused |= is_queued;
        let is_abort = text.starts_with("EXECABORT")
            || (is_crossing && matches!(begun.what, What::Exec { .. }));
        if !is_known {
            let fate = match is_abort && matches!(begun.what, What::Exec { .. }) {
                true => Fate::NotDone,
                false => fate_of(text, &begun.names)?,
            };
            let homes = begun.names.iter().flat_map(|name| ledger.possible_homes(pool, name));
            let servers: Vec<usize> = homes.collect();
            let since = excusing_since(text, expected.asked_at);
            let is_excused = ledger.is_excused(&servers, since, now)
                || ledger.is_forced(text, &begun.names, expected.asked_at);
            if !is_excused {
                return Err("an error for no reason".into());
            }
            ledger.excused += 1;
            self.settle_begun(begun, fate, ledger);
        } else if is_abort {
            self.settle_begun(begun, Fate::NotDone, ledger);
        }
        Ok(())
    }

    pub(super) fn settle_begun(&mut self, begun: &Begun, fate: Fate, ledger: &mut Ledger) {
        match &begun.what {
            What::Exec { parts, .. } | What::Discard { parts } => {
                parts.iter().for_each(|part| self.settle(part, fate, ledger));
            }
            What::Note { write } if fate == Fate::NotDone => ledger.on_denied(*write),
            _ => {}
        }
    }
}
