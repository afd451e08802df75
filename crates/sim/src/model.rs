//! What a client may be told about a key that only it uses.

use crate::ledger::{Circumstances, Ledger};
use crate::value;
use crate::wire::clip;

/// What may be known of a write's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Acknowledged.
    Done,
    /// It may have been executed.
    Maybe,
    /// It was not executed, and never will be.
    NotDone,
}

/// A state a key may be in: absent, or holding a write.
pub type Content = Option<u64>;

#[derive(Clone, Copy, Debug)]
struct Candidate {
    content: Content,
    is_certain: bool,
}

/// A string key.
pub struct KeyModel {
    /// Its name.
    pub name: Vec<u8>,
    /// The states it may be in, given the replies so far; all requests before
    /// the one whose reply is looked at have been answered.
    candidates: Vec<Candidate>,
    /// Whether what may have been executed may still be, after what was asked
    /// later: the client may have moved to another worker, with other links.
    is_loose: bool,
    /// When the first candidate was established.
    since: Circumstances,
    /// Every write asked for; what is read under changed circumstances must
    /// be one of these.
    writes: Vec<u64>,
}

impl KeyModel {
    /// A key that was never written.
    pub fn new(name: Vec<u8>, is_loose: bool, since: Circumstances) -> Self {
        let candidates = vec![Candidate { content: None, is_certain: true }];
        Self { name, candidates, is_loose, since, writes: Vec::new() }
    }

    /// It holds this write from the beginning.
    pub fn inherit(&mut self, write: u64) {
        self.candidates = vec![Candidate { content: Some(write), is_certain: true }];
        self.writes.push(write);
    }

    /// A write is asked for.
    pub fn on_write(&mut self, write: u64) {
        self.writes.push(write);
    }

    /// Returns whether it was there for all that is known.
    pub fn was_there(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.content.is_some())
    }

    /// It was found missing and may have gone: it stays so until it is written.
    pub fn on_gone(&mut self) {
        let since = self.since;
        self.on_fate(None, Fate::Done, since);
    }

    /// It was found missing, and may have gone.
    pub fn on_maybe_gone(&mut self) {
        self.candidates.push(Candidate { content: None, is_certain: false });
    }

    /// The fate of a change to `content`, asked for under `asked`, is known.
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

    /// Whether what the candidates say can still be relied upon.
    pub fn is_reliable(&self, ledger: &Ledger, pool: usize) -> bool {
        ledger.circumstances(pool, &self.name) == self.since
    }

    /// Checks what was read from a copy, which may be behind.
    ///
    /// # Errors
    /// How it contradicts what is known.
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
    /// How it contradicts what is known.
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

    /// Fewest and most of this key that may exist: 0 or 1.
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

/// A counter key.
pub struct CounterModel {
    /// Its name.
    pub name: Vec<u8>,
    low: i64,
    high: i64,
    asked: i64,
    /// Increments that may be executed at any time, as for string keys.
    loose: i64,
    is_loose: bool,
    since: Circumstances,
}

impl CounterModel {
    /// A counter that was never raised.
    pub fn new(name: Vec<u8>, is_loose: bool, since: Circumstances) -> Self {
        Self { name, low: 0, high: 0, asked: 0, loose: 0, is_loose, since }
    }

    /// An increment is asked for.
    pub fn on_ask(&mut self) {
        self.asked += 1;
    }

    /// An increment got no answer from its server.
    pub fn on_fault(&mut self, fate: Fate) {
        if fate == Fate::Maybe {
            self.high += 1;
            self.loose += i64::from(self.is_loose);
        }
    }

    /// Checks what an increment asked for under `asked` returned.
    ///
    /// # Errors
    /// How it contradicts what is known.
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
