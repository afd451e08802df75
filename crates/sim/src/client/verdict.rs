//! How a client judges its replies.

use super::stateful::Begun;
use super::*;
use crate::wire::Parsed;

impl Client {
    pub(super) fn take_replies(&mut self, network: &mut Network, ledger: &mut Ledger) {
        if self.is_given_up {
            return self.input.clear();
        }
        let mut at = 0;
        loop {
            match self.parse_reply(at) {
                Ok(Some((value, next))) => {
                    at = next;
                    let shown = value.show();
                    network.tell(|| format!("client {} reads {shown}", self.index));
                    let value = match self.hear(value, ledger) {
                        Ok(Some(value)) => value,
                        Ok(None) => continue,
                        Err(fault) => {
                            let index = self.index;
                            ledger.fail(|| format!("client {index} got {shown}: {fault}"));
                            return;
                        }
                    };
                    if self.gives_up(&value) {
                        self.is_given_up = true;
                        return self.input.clear();
                    }
                    let Some(expected) = self.expected.pop_front() else {
                        ledger.fail(|| {
                            format!("client {} got a reply too many: {}", self.index, value.show())
                        });
                        return;
                    };
                    ledger.replies += 1;
                    let waited = network.now - expected.asked_at;
                    if self.habits.prompt.is_some_and(|prompt| waited > prompt) {
                        let (index, name) = (self.index, expected.ask.name());
                        ledger.fail(|| {
                            format!(
                                "client {index} waited {waited} ns for {name}: {}",
                                value.show()
                            )
                        });
                        return;
                    }
                    self.front_asked_at = expected.asked_at;
                    self.answered_asked_at = expected.asked_at;
                    let conn = self.conn;
                    if let Err(fault) = self.check(&expected, &value, network.now, ledger) {
                        let index = self.index;
                        ledger.fail(|| {
                            format!("client {index} on {conn:?} got {}: {fault}", value.show())
                        });
                        return;
                    }
                    self.note_write_over(&expected, &value);
                    self.owed = self.owed.saturating_sub(1);
                    self.front_since = network.now;
                    self.settle_silent(ledger);
                }
                Ok(None) => break,
                Err(fault) => {
                    ledger.fail(|| {
                        let bytes = clip(&self.input[at..]);
                        format!("client {} got what is not RESP, {fault}: {bytes}", self.index)
                    });
                    return;
                }
            }
        }
        self.input.drain(..at);
        if self.expected.is_empty() && !self.input.is_empty() && !self.may_be_told() {
            let bytes = clip(&self.input);
            ledger.fail(|| format!("client {} got bytes too many: {bytes}", self.index));
        }
        if self.phase == Phase::Running {
            // The pipeline may have room again.
            network.wake_client(self.index, network.now.max(self.write_from));
        }
    }

    fn parse_reply(&self, at: usize) -> Parsed<Value> {
        if self.habits.mix != Mix::Memcached {
            return parse_value(&self.input, at);
        }
        let names = self.expected.front().map_or(Vec::new(), |expected| self.names_of(expected));
        let is_many =
            matches!(self.expected.front(), Some(Expected { ask: Ask::GetMany { .. }, .. }));
        memcached::parse_reply(&self.input, at, &names, is_many)
    }

    fn check(
        &mut self,
        expected: &Expected,
        value: &Value,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        if let Ask::Exactly(wanted) = &expected.ask {
            return (value == wanted).then_some(()).ok_or_else(|| format!("not {}", wanted.show()));
        }
        if let Ask::Begun(begun) = &expected.ask {
            return self.check_begun(expected, begun, value, now, ledger);
        }
        if let Ask::Told(told) = &expected.ask {
            return self.check_told(expected, told, value, now, ledger);
        }
        if let Ask::Cached(cached) = &expected.ask {
            return self.check_cached(expected, cached, value, now, ledger);
        }
        match value {
            Value::Error(text) => self.check_error(expected, text, now, ledger),
            _ => self.check_answer(expected, value, ledger),
        }
    }

    pub(super) fn check_answer(
        &mut self,
        expected: &Expected,
        value: &Value,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let pool = self.habits.pool;
        let Keys { strings, counters } = &mut self.databases[expected.database];
        let asked = &expected.circumstances;
        match (&expected.ask, value) {
            (Ask::Set { key, write }, Value::Simple(text)) if text == b"OK" => {
                ledger.on_acknowledged(pool, *write);
                strings[*key].on_fate(Some(*write), Fate::Done, asked[0]);
                Ok(())
            }
            (Ask::SetMany { keys, writes }, Value::Simple(text)) if text == b"OK" => {
                for ((&key, &write), &asked) in keys.iter().zip(writes).zip(asked) {
                    ledger.on_acknowledged(pool, write);
                    strings[key].on_fate(Some(write), Fate::Done, asked);
                }
                Ok(())
            }
            (Ask::Get { key }, Value::Bulk(bytes)) => {
                check_string(&mut strings[*key], bytes.as_deref(), expected, pool, ledger)
            }
            (Ask::GetMany { keys }, Value::Array(Some(items))) if items.len() == keys.len() => {
                for (&key, item) in keys.iter().zip(items) {
                    let Value::Bulk(bytes) = item else { return Err("an odd element".into()) };
                    check_string(&mut strings[key], bytes.as_deref(), expected, pool, ledger)?;
                }
                Ok(())
            }
            (Ask::AtMost(most), Value::Integer(count)) if (0..=*most).contains(count) => Ok(()),
            (Ask::Increment { counter }, Value::Integer(count)) => {
                counters[*counter].check(ledger, pool, *count, asked[0])
            }
            (Ask::Delete { keys } | Ask::Exists { keys }, Value::Integer(count)) => {
                self.check_count(expected, keys, *count, ledger)
            }
            (ask, _) => Err(format!("an answer of another kind than wanted by {}", ask.name())),
        }
    }

    /// Checks how many of `keys` a server has removed, or has.
    fn check_count(
        &mut self,
        expected: &Expected,
        keys: &[usize],
        count: i64,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let pool = self.habits.pool;
        let Keys { strings, .. } = &mut self.databases[expected.database];
        let (mut low, mut high) = (0, 0);
        // One pool answers reads, and another may answer the delete. After a fault their
        // contents may differ.
        let is_delete = matches!(expected.ask, Ask::Delete { .. });
        let may_differ = is_delete
            && ledger.is_told_by_one_of_many(pool)
            && keys.iter().any(|&key| ledger.had_troubles(pool, &strings[key].name));
        for &key in keys {
            // An item that was moved while the old pool failed may have been removed again.
            let may_miss = is_delete && ledger.may_miss(pool, &strings[key].name, 0);
            let (mut least, most) = match expected.may_be_stale || may_differ {
                true => (0, 1),
                false => strings[key].existence(ledger, pool),
            };
            if may_miss {
                least = 0;
            }
            (low, high) = (low + least, high + most);
        }
        if is_delete {
            for (&key, &asked) in keys.iter().zip(&expected.circumstances) {
                strings[key].on_fate(None, Fate::Done, asked);
            }
        }
        let fine = (low..=high).contains(&count);
        fine.then_some(()).ok_or_else(|| format!("but {low} to {high} of the keys exist"))
    }

    /// Returns whether an error tells that its worker waits for this client's requests no longer,
    /// and may. Its connection is closed next: this request and all behind it are as if it were.
    fn gives_up(&self, value: &Value) -> bool {
        let Value::Error(text) = value else { return false };
        let text = String::from_utf8_lossy(text);
        let may = self.draining || text.starts_with("ERR a reload has replaced this pool");
        may && text.contains("drain_timeout is over; the request ")
    }

    fn check_error(
        &mut self,
        expected: &Expected,
        text: &[u8],
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let pool = self.habits.pool;
        let shown = String::from_utf8_lossy(text);
        match &expected.ask {
            Ask::Refused { contains } => {
                let contains = String::from_utf8_lossy(contains);
                let fine = shown.starts_with("ERR unknown command") && shown.contains(&*contains);
                return fine.then_some(()).ok_or_else(|| "not the refusal wanted".into());
            }
            Ask::BrokenFrame => {
                let fine = shown.starts_with("ERR Protocol error");
                return fine.then_some(()).ok_or_else(|| "not the protocol error wanted".into());
            }
            Ask::Crossing { keys } => {
                if let Some(outcome) = self.check_crossing(expected, keys, &shown, ledger) {
                    return outcome;
                }
            }
            _ => {}
        }
        if ledger.is_for_room(pool, &shown) {
            let writes = matches!(
                expected.ask,
                Ask::Set { .. } | Ask::SetMany { .. } | Ask::Increment { .. }
            );
            ledger.refused_for_room += 1;
            self.settle(expected, Fate::NotDone, ledger);
            if let (Ask::Set { key, .. }, Mix::Memcached) = (&expected.ask, self.habits.mix) {
                // As in memcached, the item that should be replaced is deleted.
                let asked = expected.circumstances[0];
                self.databases[expected.database].strings[*key].on_fate(None, Fate::Done, asked);
            }
            return writes.then_some(()).ok_or_else(|| "but it writes nothing".into());
        }
        let names = self.names_of(expected);
        let mut fate = fate_of(&shown, &names)?;
        if ledger.is_told_by_one_of_many(pool) {
            fate = Fate::Maybe;
        }
        let since = excusing_since(&shown, expected.asked_at);
        let is_excused = ledger.is_excused_for(pool, &names, since, now)
            || ledger.is_forced(&shown, &names, expected.asked_at);
        if !is_excused {
            return Err(format!("an error for no reason in answer to {}", expected.ask.name()));
        }
        ledger.excused += 1;
        self.settle(expected, fate, ledger);
        Ok(())
    }

    /// Judges an error about where the keys are. Returns `None` if the error is not about that.
    fn check_crossing(
        &self,
        expected: &Expected,
        keys: &[usize],
        text: &str,
        ledger: &Ledger,
    ) -> Option<Result<(), String>> {
        let pool = self.habits.pool;
        let strings = &self.databases[expected.database].strings;
        let mut homes: Vec<_> =
            keys.iter().map(|&key| ledger.home(pool, &strings[key].name)).collect();
        homes.sort_unstable();
        homes.dedup();
        let is_static = ledger.pools[pool].as_ref().is_some_and(|known| known.is_static)
            || ledger.refuses_several_slots();
        let (crossing, wrong_type) = (text.starts_with("CROSSSLOT"), text.starts_with("WRONGTYPE"));
        if !crossing && !wrong_type {
            return None;
        }
        let fine = !is_static || crossing == (homes.len() > 1);
        Some(fine.then_some(()).ok_or_else(|| format!("but the keys live on {homes:?}")))
    }

    pub(super) fn names_of(&self, expected: &Expected) -> Vec<Vec<u8>> {
        let Keys { strings, counters } = &self.databases[expected.database];
        match &expected.ask {
            Ask::Set { key, .. } | Ask::Get { key } => vec![strings[*key].name.clone()],
            Ask::Increment { counter } => vec![counters[*counter].name.clone()],
            Ask::SetMany { keys, .. }
            | Ask::GetMany { keys }
            | Ask::Delete { keys }
            | Ask::Exists { keys }
            | Ask::Crossing { keys } => keys.iter().map(|&key| strings[key].name.clone()).collect(),
            Ask::Begun(Begun { names, .. }) => names.clone(),
            _ => Vec::new(),
        }
    }

    /// Notes for its keys that a request ended in an error.
    pub(super) fn settle(&mut self, expected: &Expected, fate: Fate, ledger: &mut Ledger) {
        self.is_unsure |= fate == Fate::Maybe;
        if let Ask::Begun(begun) = &expected.ask {
            return self.settle_begun(begun, fate, ledger);
        }
        let is_warmed_up = ledger.is_warmed_up(self.habits.pool);
        let Keys { strings, counters } = &mut self.databases[expected.database];
        let asked = &expected.circumstances;
        match &expected.ask {
            Ask::Set { key, write } => {
                if fate == Fate::NotDone {
                    ledger.on_denied(*write);
                }
                strings[*key].on_fate(Some(*write), fate, asked[0]);
                if is_warmed_up {
                    // By then the old pool may have got the delete.
                    strings[*key].on_fate(None, Fate::Maybe, asked[0]);
                }
            }
            Ask::SetMany { keys, writes } => {
                for ((&key, &write), &asked) in keys.iter().zip(writes).zip(asked) {
                    if fate == Fate::NotDone {
                        ledger.on_denied(write);
                    }
                    strings[key].on_fate(Some(write), fate, asked);
                }
            }
            Ask::Delete { keys } => {
                let fate = if is_warmed_up { Fate::Maybe } else { fate };
                for (&key, &asked) in keys.iter().zip(asked) {
                    strings[key].on_fate(None, fate, asked);
                }
            }
            Ask::Increment { counter } => counters[*counter].on_fault(fate),
            _ => {}
        }
    }
}

impl Ask {
    /// Returns its name in reports.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Ask::Exactly(_) => "an echo",
            Ask::Set { .. } => "SET",
            Ask::Get { .. } => "GET",
            Ask::Increment { .. } => "INCR",
            Ask::SetMany { .. } => "MSET",
            Ask::GetMany { .. } => "MGET",
            Ask::Delete { .. } => "DEL",
            Ask::Exists { .. } => "EXISTS",
            Ask::Refused { .. } => "an unknown command",
            Ask::AtMost(_) => "CLIENT KILL",
            Ask::Crossing { .. } => "SDIFF",
            Ask::Begun(_) => "a transaction or a list",
            Ask::Told(told) => told.name(),
            Ask::Cached(cached) => cached.name(),
            Ask::BrokenFrame => "a broken frame",
        }
    }
}

/// Checks what a read returned for one string; `None` if the key was missing.
fn check_string(
    key: &mut KeyModel,
    bytes: Option<&[u8]>,
    expected: &Expected,
    pool: usize,
    ledger: &mut Ledger,
) -> Result<(), String> {
    let is_missing = bytes.is_none();
    if is_missing && ledger.may_be_gone(pool, &key.name) {
        ledger.gone += u64::from(key.was_there());
        key.on_gone();
        return Ok(());
    }
    if is_missing && ledger.may_be_taken_back(pool, &key.name, expected.asked_at) {
        key.on_maybe_gone();
    }
    match is_missing && ledger.may_miss(pool, &key.name, expected.asked_at) {
        true => Ok(()),
        false if expected.may_be_stale => key.check_copy(bytes),
        false => key.check(ledger, pool, bytes),
    }
}

/// Returns the time from which a fault excuses an error. A circuit that the fault has opened stays
/// open until requests have succeeded, for as long as there are none.
pub(super) fn excusing_since(text: &str, asked_at: Nanos) -> Nanos {
    if text.contains("(its circuit is open)") { 0 } else { asked_at }
}

/// Returns what an error reply says about the fate of its request.
///
/// # Errors
/// Returns an error if the text is none of the errors that a fault may cause, or names a key of
/// another request.
pub(super) fn fate_of(text: &str, names: &[Vec<u8>]) -> Result<Fate, String> {
    if text.contains(" failed on ") && text.contains(" of the keys)") {
        return Ok(Fate::Maybe);
    }
    if text.starts_with("OOM no room for ") || text.starts_with("LOADING for ") {
        let key = text.rsplit(' ').next().unwrap_or_default().as_bytes();
        let own = names.iter().any(|name| name == key);
        return own.then_some(Fate::NotDone).ok_or_else(|| "another request's error".into());
    }
    // Servers of a cluster send these before they have done anything.
    let refusals = ["MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ", "READONLY ", "UNBLOCKED force "];
    if refusals.iter().any(|code| text.starts_with(code)) {
        return Ok(Fate::NotDone);
    }
    // Nothing was popped, because the pool uses other servers now.
    if text.starts_with("UNBLOCKED a server left") {
        return Ok(Fate::NotDone);
    }
    if text.starts_with("EXECABORT ") && text.contains("left the pool or came back") {
        return Ok(Fate::NotDone);
    }
    let unknown = [
        "ERR no server of ",
        "ERR nobody tells who ",
        "ERR who is the primary ",
        "ERR nodes_max in [pool.",
    ];
    if unknown.iter().any(|start| text.starts_with(start)) {
        return Ok(Fate::NotDone);
    }
    if text.starts_with("ERR backend ") {
        if text.ends_with("; the request was not sent") {
            return Ok(Fate::NotDone);
        }
        if text.ends_with("; the request may have been executed") {
            return Ok(Fate::Maybe);
        }
    }
    Err("an error nobody may be told".into())
}
