//! The values that a client caches. The proxy reports to the client when they change.

use super::verdict::{excusing_since, fate_of};
use super::*;
use crate::ledger::Copy;
use std::collections::BTreeMap;

/// Number of keys that the clients of a pool cache and change.
const KEYS: usize = 4;

/// A request about cached values.
pub(super) enum Cached {
    Get {
        key: Vec<u8>,
        is_kept: bool,
    },
    Set {
        key: Vec<u8>,
        write: u64,
    },
    /// `CLIENT TRACKING ON`, with or without `NOLOOP`.
    On {
        is_noloop: bool,
    },
    Off,
    Caching,
}

/// How keys are tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackingMode {
    Default,
    Broadcast,
    OptIn,
}

/// The cached values of a client.
#[derive(Default)]
pub(super) struct Cache {
    copies: BTreeMap<Vec<u8>, Copy>,
    /// True if tracking is on, as of the replies read.
    is_on: bool,
    is_noloop: bool,
    /// The mode, as of what was asked.
    asks: Option<TrackingMode>,
}

impl Cache {
    /// Forgets everything, for a new connection.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the client may be tracked, as of what was asked.
    pub(super) fn asks_tracking(&self) -> bool {
        self.asks.is_some()
    }

    pub(super) fn on_reset_asked(&mut self) {
        self.asks = None;
    }

    pub(super) fn on_reset(&mut self) {
        self.is_on = false;
        self.copies.clear();
    }
}

impl Client {
    fn cache(&mut self, now: Nanos, cached: Cached) {
        self.expect(now, Ask::Cached(cached), Vec::new());
    }

    /// Asks one of the requests of this file.
    pub(super) fn ask_cached(&mut self, now: Nanos, ledger: &mut Ledger) {
        let may_change = self.attempt.is_none();
        match self.random.below(100) {
            0..20 if may_change && self.cache.asks.is_none() => {
                if !self.hearing.asks_resp3() {
                    self.ask_hello(now, true);
                }
                self.ask_tracking(now);
            }
            20..23 if may_change && self.cache.asks.is_some() => {
                self.cache.asks = None;
                write_request(&mut self.output, &[b"CLIENT", b"TRACKING", b"OFF"]);
                self.cache(now, Cached::Off);
            }
            0..75 => self.ask_copy(now),
            _ => self.ask_change_of_copy(now, ledger),
        }
    }

    fn ask_tracking(&mut self, now: Nanos) {
        let mut args: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON"];
        let way = self.random.pick(&[
            TrackingMode::Default,
            TrackingMode::Broadcast,
            TrackingMode::OptIn,
        ]);
        match way {
            TrackingMode::Default => {}
            TrackingMode::Broadcast => args.extend([&b"BCAST"[..], b"PREFIX", b"c"]),
            TrackingMode::OptIn => args.push(b"OPTIN"),
        }
        let is_noloop = self.random.percent(30);
        if is_noloop {
            args.push(b"NOLOOP");
        }
        self.cache.asks = Some(way);
        write_request(&mut self.output, &args);
        self.cache(now, Cached::On { is_noloop });
    }

    fn pick_copy(&mut self) -> Vec<u8> {
        let owner = format!("pool{}", self.habits.pool);
        key_name('c', self.database as u32, &owner, self.random.index(KEYS), false)
    }

    fn ask_copy(&mut self, now: Nanos) {
        let mut key = self.pick_copy();
        if self.cache.copies.contains_key(&key) && self.random.percent(80) {
            // The client has a copy of that key.
            key = self.pick_copy();
        }
        let opts_in = self.cache.asks == Some(TrackingMode::OptIn);
        let is_kept = !opts_in || self.random.percent(70);
        if opts_in && is_kept {
            write_request(&mut self.output, &[b"CLIENT", b"CACHING", b"YES"]);
            self.cache(now, Cached::Caching);
        }
        write_request(&mut self.output, &[b"GET", &key]);
        self.cache(now, Cached::Get { key, is_kept });
    }

    fn ask_change_of_copy(&mut self, now: Nanos, ledger: &mut Ledger) {
        let key = self.pick_copy();
        let write = ledger.new_write();
        ledger.on_copy_asked(self.habits.pool, &key, write, (self.index, now));
        let len = self.random.scaled(1, 100) as usize;
        write_request(&mut self.output, &[b"SET", &key, &value::compose(&key, write, len)]);
        self.cache(now, Cached::Set { key, write });
    }

    /// Drops the copies that the message reports as changed.
    pub(super) fn hear_invalidation(
        &mut self,
        keys: Option<&Value>,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        ledger.invalidations += u64::from(!self.cache.copies.is_empty());
        match keys {
            Some(Value::Null) => self.cache.copies.clear(),
            Some(Value::Array(Some(keys))) => {
                for key in keys {
                    let Value::Bulk(Some(key)) = key else { return Err("no key".into()) };
                    self.cache.copies.remove(key);
                }
            }
            _ => return Err("an invalidation of another form".into()),
        }
        Ok(())
    }

    pub(super) fn check_cached(
        &mut self,
        expected: &Expected,
        cached: &Cached,
        value: &Value,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let pool = self.habits.pool;
        if let Cached::Set { key, .. } = cached
            && self.cache.is_noloop
        {
            // The server forgets which connections have read the written key, and does not tell the
            // writer.
            self.cache.copies.remove(key);
        }
        match (cached, value) {
            (_, Value::Error(text)) => {
                let text = String::from_utf8_lossy(text).into_owned();
                self.check_cached_error(expected, cached, &text, now, ledger)
            }
            (Cached::Get { key, is_kept }, Value::Bulk(bytes)) => {
                self.check_cache(ledger, expected.front_asked_at)?;
                let write = bytes.as_deref().map(|bytes| value::check(key, bytes)).transpose()?;
                if !write.is_none_or(|write| ledger.is_copy(pool, key, write)) {
                    return Err("a value that nobody wrote".into());
                }
                if self.cache.is_on && *is_kept {
                    self.cache.copies.insert(key.clone(), Copy { write, read_at: now });
                }
                Ok(())
            }
            (Cached::Set { key, write }, value) if *value == ok() => {
                ledger.on_acknowledged(pool, *write);
                ledger.on_copy_acknowledged(pool, key, *write, now);
                Ok(())
            }
            (Cached::On { is_noloop }, value) if *value == ok() => {
                self.cache.is_on = true;
                self.cache.is_noloop = *is_noloop;
                Ok(())
            }
            (Cached::Off, value) if *value == ok() => {
                self.cache.on_reset();
                Ok(())
            }
            (Cached::Caching, value) if *value == ok() => Ok(()),
            _ => Err("an answer of another kind than wanted".into()),
        }
    }

    fn check_cached_error(
        &mut self,
        expected: &Expected,
        cached: &Cached,
        text: &str,
        now: Nanos,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let pool = self.habits.pool;
        // CLIENT CACHING is refused if CLIENT TRACKING was.
        if matches!(cached, Cached::Caching) && !self.cache.is_on {
            return Ok(());
        }
        if let Cached::Set { write, .. } = cached
            && ledger.is_for_room(pool, text)
        {
            ledger.refused_for_room += 1;
            ledger.on_denied(*write);
            return Ok(());
        }
        let (servers, fate) = match cached {
            Cached::Get { key, .. } | Cached::Set { key, .. } => {
                (ledger.possible_homes(pool, key), fate_of(text, std::slice::from_ref(key))?)
            }
            Cached::On { .. } => (ledger.servers_of(pool), Fate::NotDone),
            _ => return Err("an error for no reason".into()),
        };
        if !ledger.is_excused(&servers, excusing_since(text, expected.asked_at), now) {
            return Err("an error for no reason".into());
        }
        ledger.excused += 1;
        if let (Cached::Set { write, .. }, Fate::NotDone) = (cached, fate) {
            ledger.on_denied(*write);
        }
        Ok(())
    }

    /// Checks that no cached value was changed long before `until`.
    ///
    /// # Errors
    /// Returns what has changed.
    pub(super) fn check_cache(&self, ledger: &Ledger, until: Nanos) -> Result<(), String> {
        let own = self.cache.is_noloop.then_some(self.index);
        self.cache
            .copies
            .iter()
            .try_for_each(|(key, copy)| ledger.check_copy(self.habits.pool, key, copy, own, until))
    }
}

impl Cached {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Cached::Get { .. } => "GET",
            Cached::Set { .. } => "SET",
            Cached::On { .. } | Cached::Off => "CLIENT TRACKING",
            Cached::Caching => "CLIENT CACHING",
        }
    }
}
