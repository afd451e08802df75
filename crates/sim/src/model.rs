//! The replies that a client may get about a key that only it uses.

use crate::ledger::{Circumstances, Ledger};
use crate::value;
use crate::wire::clip;

/// The known fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged.
    Done,
    /// It may have been executed.
    Maybe,
    /// It was not executed, and never will be.
    NotDone,
}

/// A state of a key: absent, or the number of the write that it holds.
pub type Content = Option<u64>;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    content: Content,
    is_certain: bool,
}

/// The model of a string key.
pub struct KeyModel {
    /// Its name.
    pub name: Vec<u8>,
    /// The states that the key may have, given the replies so far. All requests before the one
    /// whose reply is checked have been answered.
    candidates: Vec<Candidate>,
    /// True if a request that may have been executed may still be executed after later ones: the
    /// client may have moved to another worker, with other links.
    is_loose: bool,
    /// The circumstances when the first candidate was established.
    since: Circumstances,
    /// Every write asked. What is read under changed circumstances must be one of these.
    writes: Vec<u64>,
}

impl KeyModel {
    /// Creates the model of a key that was never written.
    pub fn new(name: Vec<u8>, is_loose: bool, since: Circumstances) -> Self {
        let candidates = vec![Candidate { content: None, is_certain: true }];
        Self { name, candidates, is_loose, since, writes: Vec::new() }
    }

    /// Notes that the key holds this write from the beginning.
    pub fn inherit(&mut self, write: u64) {
        self.candidates = vec![Candidate { content: Some(write), is_certain: true }];
        self.writes.push(write);
    }

    /// Notes that a write is asked.
    pub fn on_write(&mut self, write: u64) {
        self.writes.push(write);
    }

    /// Returns whether the key existed, as far as is known.
    pub fn was_there(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.content.is_some())
    }

    /// Notes that the key was missing and may have been evicted. It stays missing until it is
    /// written.
    pub fn on_gone(&mut self) {
        let since = self.since;
        self.on_fate(None, Fate::Done, since);
    }

    /// Notes that the key was missing, and may have been evicted.
    pub fn on_maybe_gone(&mut self) {
        self.candidates.push(Candidate { content: None, is_certain: false });
    }

    /// Notes the fate of a change to `content` that was asked under `asked`.
    pub fn on_fate(&mut self, content: Content, fate: Fate, asked: Circumstances) {
        match fate {
            Fate::Done => {
                let is_loose = self.is_loose;
                self.candidates.retain(|candidate| is_loose && !candidate.is_certain);
                self.candidates.push(Candidate { content, is_certain: true });
                self.since = asked;
            }
            Fate::Maybe => self.candidates.push(Candidate { content, is_certain: false }),
            Fate::NotDone => {}
        }
    }

    /// Returns whether the candidates are still reliable.
    pub fn is_reliable(&self, ledger: &Ledger, pool: usize) -> bool {
        ledger.circumstances(pool, &self.name) == self.since
    }

    /// Checks what was read from a copy, which may be behind.
    ///
    /// # Errors
    /// Returns how it contradicts what is known.
    pub fn check_copy(&self, read: Option<&[u8]>) -> Result<(), String> {
        let Some(bytes) = read else { return Ok(()) };
        let write = value::check(&self.name, bytes)?;
        match self.writes.contains(&write) {
            true => Ok(()),
            false => Err(format!("{} holds write {write}, never asked for", clip(&self.name))),
        }
    }

    /// Checks what was read.
    ///
    /// # Errors
    /// Returns how it contradicts what is known.
    pub fn check(&self, ledger: &Ledger, pool: usize, read: Option<&[u8]>) -> Result<(), String> {
        let content = match read {
            None => None,
            Some(bytes) => Some(value::check(&self.name, bytes)?),
        };
        if let Some(write) = content
            && !self.writes.contains(&write)
        {
            return Err(format!("{} holds write {write}, never asked for", clip(&self.name)));
        }
        let mut contents = self.candidates.iter().map(|candidate| candidate.content);
        if self.is_reliable(ledger, pool) && !contents.any(|candidate| candidate == content) {
            return Err(format!(
                "{} holds {content:?} but can only hold one of {:?}",
                clip(&self.name),
                self.candidates
            ));
        }
        Ok(())
    }

    /// Returns the smallest and largest number of this key that may exist: 0 or 1.
    pub fn existence(&self, ledger: &Ledger, pool: usize) -> (i64, i64) {
        if !self.is_reliable(ledger, pool) {
            return (0, 1);
        }
        let low = self.candidates.iter().all(|candidate| candidate.content.is_some())
            && !ledger.may_be_gone(pool, &self.name);
        let high = self.candidates.iter().any(|candidate| candidate.content.is_some());
        (i64::from(low), i64::from(high))
    }
}

/// The model of a counter key.
pub struct CounterModel {
    /// Its name.
    pub name: Vec<u8>,
    low: i64,
    high: i64,
    asked: i64,
    /// Number of increments that may be executed at any time, as for string keys.
    loose: i64,
    is_loose: bool,
    since: Circumstances,
}

impl CounterModel {
    /// Creates the model of a counter that was never raised.
    pub fn new(name: Vec<u8>, is_loose: bool, since: Circumstances) -> Self {
        Self { name, low: 0, high: 0, asked: 0, loose: 0, is_loose, since }
    }

    /// Notes that an increment is asked.
    pub fn on_ask(&mut self) {
        self.asked += 1;
    }

    /// Notes that an increment got no answer from its server.
    pub fn on_fault(&mut self, fate: Fate) {
        if fate == Fate::Maybe {
            self.high += 1;
            self.loose += i64::from(self.is_loose);
        }
    }

    /// Checks the reply to an increment that was asked under `asked`.
    ///
    /// # Errors
    /// Returns how it contradicts what is known.
    pub fn check(
        &mut self,
        ledger: &Ledger,
        pool: usize,
        returned: i64,
        asked: Circumstances,
    ) -> Result<(), String> {
        let now = ledger.circumstances(pool, &self.name);
        let (low, high) =
            if now == self.since { (self.low + 1, self.high + 1) } else { (1, self.asked) };
        let low = if ledger.may_be_gone(pool, &self.name) { 1 } else { low };
        if !(low..=high).contains(&returned) {
            return Err(format!(
                "{} counts {returned} but can only count {low} to {high}",
                clip(&self.name)
            ));
        }
        (self.low, self.high, self.since) = (returned, returned + self.loose, asked);
        Ok(())
    }
}
