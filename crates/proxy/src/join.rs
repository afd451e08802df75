//! Merges the replies to the fragments of a split request into one reply.

use crate::info_report::InfoQuery;
use keyway_base::Fault;
use keyway_command::Join as Rule;
use keyway_resp::{Framer, Framing, Kind, Protocol, parse_integer, reply};
use std::collections::BTreeMap;
use std::fmt::Write;

/// One fragment of a split request.
#[derive(Debug)]
pub struct Fragment {
    /// Index of its backend in the pool.
    pub backend: u16,
    /// Number of its keys.
    pub keys: u32,
    outcome: Outcome,
    /// Index in `Join::bytes` at which the next element to take starts.
    start: usize,
    /// Index of that element in `Join::ends`.
    element: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Waiting,
    Fine,
    Failed(Fault),
    /// An error reply. Its text without `-` and line end is in `Join::errors`.
    Refused {
        start: usize,
        end: usize,
    },
}

/// Why a server's answer is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer<'a> {
    /// The server answered this error.
    Refused(&'a [u8]),
    /// The server did not answer.
    Fault(Fault),
}

/// A split request that waits for its fragments.
#[derive(Debug)]
pub struct Join {
    /// Name of the command, for error texts.
    pub command: &'static str,
    /// True if each server was sent the whole request, and not only its keys.
    pub is_whole: bool,
    /// True if the servers were asked to wait. The duration then does not count as latency.
    pub is_waiting: bool,
    rule: Rule,
    waiting: u32,
    sum: i64,
    /// The fragment of each key, in the order of the request. Used only for arrays.
    owners: Vec<u16>,
    fragments: Vec<Fragment>,
    /// The format of the answers of a join of [`Rule::Each`].
    pub report: Option<Box<(InfoQuery, Protocol)>>,
    /// For [`Rule::AllOnes`], whether each element of the reply is a one whatever the servers
    /// answer. It may have fewer elements, and the others are not.
    pub certain: Vec<bool>,
    /// Array replies of the fragments, or their common reply.
    bytes: Vec<u8>,
    /// The end of each of their elements.
    ends: Vec<usize>,
    errors: Vec<u8>,
}

impl Default for Join {
    fn default() -> Self {
        Self {
            command: "",
            is_whole: false,
            is_waiting: false,
            rule: Rule::Sum,
            waiting: 0,
            sum: 0,
            owners: Vec::new(),
            fragments: Vec::new(),
            report: None,
            certain: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
            errors: Vec::new(),
        }
    }
}

/// Capacity that each buffer of an unused join keeps, in bytes.
const KEPT_MAX: usize = 16 << 10;
/// Capacity that all unused joins keep together, in bytes.
const POOL_KEPT_MAX: usize = 2 << 20;
/// Number of unused joins: as many as a deep pipeline of split requests has in flight.
const POOL_JOINS_MAX: usize = 1024;

/// Unused joins. The next joins use their buffers.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "the boxes are what is reused: they move between list and slab")]
pub struct JoinPool {
    free: Vec<Box<Join>>,
    /// Number of bytes that they hold.
    held: usize,
}

impl JoinPool {
    /// Returns an unused join, or a new one.
    pub fn take(&mut self) -> Box<Join> {
        let join = self.free.pop().unwrap_or_default();
        self.held = self.held.saturating_sub(join.held());
        join
    }

    /// Keeps a join for the next request. It frees what an unusually large request has allocated,
    /// and keeps only as many joins as fit into a little memory.
    pub fn give(&mut self, mut join: Box<Join>) {
        join.trim();
        let held = join.held();
        if self.free.len() < POOL_JOINS_MAX && self.held + held <= POOL_KEPT_MAX {
            self.held += held;
            self.free.push(join);
        }
    }
}

impl Join {
    /// Starts a new request, with the buffers of an earlier one.
    pub fn restart(&mut self, rule: Rule) {
        self.rule = rule;
        self.is_whole = false;
        self.is_waiting = false;
        self.waiting = 0;
        self.sum = 0;
        self.owners.clear();
        self.fragments.clear();
        self.report = None;
        self.certain.clear();
        self.bytes.clear();
        self.ends.clear();
        self.errors.clear();
    }

    /// Frees buffers that have grown large.
    fn trim(&mut self) {
        fn trim<T>(buffer: &mut Vec<T>) {
            if size_of::<T>() * buffer.capacity() > KEPT_MAX {
                *buffer = Vec::new();
            }
        }
        trim(&mut self.owners);
        trim(&mut self.fragments);
        trim(&mut self.certain);
        trim(&mut self.bytes);
        trim(&mut self.ends);
        trim(&mut self.errors);
    }

    /// Returns the bytes of memory held.
    fn held(&self) -> usize {
        fn held<T>(buffer: &Vec<T>) -> usize {
            size_of::<T>() * buffer.capacity()
        }
        size_of::<Join>()
            + held(&self.owners)
            + held(&self.fragments)
            + held(&self.certain)
            + held(&self.bytes)
            + held(&self.ends)
            + held(&self.errors)
    }

    /// Adds a fragment. Returns its index.
    pub fn add_fragment(&mut self, backend: u16, keys: u32) -> u16 {
        let outcome = Outcome::Waiting;
        self.fragments.push(Fragment { backend, keys, outcome, start: 0, element: 0 });
        self.waiting += 1;
        (self.fragments.len() - 1) as u16
    }

    /// Notes the fragment of the next key.
    pub fn add_owner(&mut self, fragment: u16) {
        if self.rule == Rule::Array {
            self.owners.push(fragment);
        }
    }

    /// Returns whether the reply is an array of the keys that the servers have.
    pub fn tells_keys(&self) -> bool {
        self.rule == Rule::Concat
    }

    /// Returns the position of the server that is asked for a fragment.
    pub fn server_of(&self, fragment: u16) -> Option<u16> {
        self.fragments.get(usize::from(fragment)).map(|fragment| fragment.backend)
    }

    /// Handles the reply to a fragment. Returns whether it was the last.
    pub fn on_reply(&mut self, fragment: u16, kind: Kind, bytes: &[u8]) -> bool {
        let keys = self.fragments[fragment as usize].keys;
        let body = &bytes[1..bytes.len() - 2];
        let outcome = match (kind, self.rule) {
            (Kind::Error, _) => {
                let start = self.errors.len();
                self.errors.extend_from_slice(body);
                Outcome::Refused { start, end: self.errors.len() }
            }
            (Kind::Integer, Rule::Sum) => match parse_integer(body) {
                Some(count) => {
                    self.sum = self.sum.saturating_add(count);
                    Outcome::Fine
                }
                None => protocol_fault(),
            },
            (Kind::Integer, Rule::Max) => match parse_integer(body) {
                Some(count) => {
                    self.sum = self.sum.max(count);
                    Outcome::Fine
                }
                None => protocol_fault(),
            },
            (Kind::Integer, Rule::Min) => match parse_integer(body) {
                Some(count) => {
                    self.sum = if self.bytes.is_empty() { count } else { self.sum.min(count) };
                    // There is an element.
                    self.bytes.resize(1, 0);
                    Outcome::Fine
                }
                None => protocol_fault(),
            },
            (Kind::Bulk | Kind::Verbatim, Rule::Each) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                let fragment = &mut self.fragments[fragment as usize];
                (fragment.start, fragment.element) = (start, self.bytes.len());
                Outcome::Fine
            }
            (Kind::Simple, Rule::AllOk) => Outcome::Fine,
            (Kind::Array, Rule::Union | Rule::Counts) => match self.take_all(fragment, bytes) {
                Some(()) => Outcome::Fine,
                None => protocol_fault(),
            },
            (Kind::Array, Rule::Array) => match self.take_elements(fragment, bytes, keys) {
                Some(()) => Outcome::Fine,
                None => protocol_fault(),
            },
            (Kind::Array, Rule::Concat) => self.take_array(bytes).unwrap_or_else(protocol_fault),
            (Kind::Array, Rule::AllOnes) => self.take_ones(bytes).unwrap_or_else(protocol_fault),
            (Kind::Bulk | Kind::Simple, Rule::Same) => {
                if self.bytes.is_empty() {
                    self.bytes.extend_from_slice(bytes);
                }
                if self.bytes == bytes { Outcome::Fine } else { protocol_fault() }
            }
            _ => protocol_fault(),
        };
        self.settle(fragment, outcome)
    }

    /// Appends an array unchanged.
    fn take_array(&mut self, bytes: &[u8]) -> Option<Outcome> {
        let (count, start) = array_head(bytes)?;
        self.sum += i64::try_from(count).ok()?;
        self.bytes.extend_from_slice(&bytes[start..]);
        Some(Outcome::Fine)
    }

    /// Takes an array of integers. It keeps one byte for each, which is zero once any server has
    /// returned zero.
    fn take_ones(&mut self, bytes: &[u8]) -> Option<Outcome> {
        let (count, start) = array_head(bytes)?;
        let elements = bytes[start..].chunks_exact(4);
        if !elements.remainder().is_empty() || elements.len() != count {
            return None;
        }
        if self.bytes.is_empty() {
            self.bytes.resize(count, 1);
        }
        if self.bytes.len() != count {
            return None;
        }
        for (all, element) in self.bytes.iter_mut().zip(elements) {
            match element {
                b":0\r\n" => *all = 0,
                b":1\r\n" => {}
                _ => return None,
            }
        }
        Some(Outcome::Fine)
    }

    /// Takes the elements of an array reply. Returns `None` if there is not one for each of the
    /// fragment's keys.
    fn take_elements(&mut self, fragment: u16, bytes: &[u8], keys: u32) -> Option<()> {
        let start = array_start(bytes, keys)?;
        let (base, element) = (self.bytes.len(), self.ends.len());
        let mut pos = start;
        let mut framer = Framer::new(Protocol::Resp3);
        for _ in 0..keys {
            // The reply may be of either version: the link has already framed the whole.
            match framer.frame(&bytes[pos..], u32::MAX, u32::MAX) {
                Ok(Framing::Ready { len, .. }) => pos += len,
                _ => return None,
            }
            self.ends.push(base + pos);
        }
        if pos != bytes.len() {
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        let fragment = &mut self.fragments[fragment as usize];
        (fragment.start, fragment.element) = (base + start, element);
        Some(())
    }

    /// Appends all elements of an array reply, however many there are.
    fn take_all(&mut self, fragment: u16, bytes: &[u8]) -> Option<()> {
        let line = bytes.iter().position(|&byte| byte == b'\r')?;
        let count = parse_integer(&bytes[1..line])?;
        let elements = &bytes[line + 2..];
        let base = self.bytes.len();
        let mut pos = 0;
        let mut framer = Framer::new(Protocol::Resp3);
        for _ in 0..count {
            match framer.frame(&elements[pos..], u32::MAX, u32::MAX) {
                Ok(Framing::Ready { len, .. }) => pos += len,
                _ => return None,
            }
            self.ends.push(base + pos);
        }
        self.bytes.extend_from_slice(elements);
        self.fragments[fragment as usize].element = count.max(0) as usize;
        Some(())
    }

    /// Returns the elements taken by [`Join::take_all`].
    fn elements(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.ends.len()).map(|index| self.element(index))
    }

    fn element(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    fn write_union(&self, out: &mut Vec<u8>) {
        let mut elements: Vec<&[u8]> = self.elements().collect();
        elements.sort_unstable();
        elements.dedup();
        reply::array(out, elements.len());
        elements.iter().for_each(|element| out.extend_from_slice(element));
    }

    fn write_counts(&self, out: &mut Vec<u8>) {
        let len = self.fragments.iter().map(|fragment| fragment.element).min().unwrap_or(0);
        reply::array(out, len);
        for index in 0..len {
            let same = (index..self.ends.len()).step_by(len);
            let mut same = same.map(|index| self.element(index));
            let first = same.next().unwrap_or_default();
            if index % 2 == 0 {
                out.extend_from_slice(first);
                continue;
            }
            let number = |element: &[u8]| {
                element.get(1..element.len() - 2).and_then(parse_integer).unwrap_or(0)
            };
            // The sum stays a valid number even if servers reply huge counts.
            reply::integer(out, same.map(number).fold(number(first), i64::saturating_add));
        }
    }

    /// Notes that a fragment gets no reply. Returns whether it was the last.
    pub fn on_fault(&mut self, fragment: u16, fault: Fault) -> bool {
        self.settle(fragment, Outcome::Failed(fault))
    }

    fn settle(&mut self, fragment: u16, outcome: Outcome) -> bool {
        let slot = &mut self.fragments[fragment as usize].outcome;
        if *slot == Outcome::Waiting {
            *slot = outcome;
            self.waiting -= 1;
        }
        self.waiting == 0
    }

    /// Returns the fault of the first failed fragment, for metrics, or `None` if every server
    /// answered.
    pub fn fault(&self) -> Option<Fault> {
        self.fragments.iter().find_map(|fragment| match fragment.outcome {
            Outcome::Failed(fault) => Some(fault),
            _ => None,
        })
    }

    /// Returns whether a server answered with an error.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Appends the merged reply, which may be an error as soon as one fragment has failed.
    /// `describe` appends the text of a fault for the backend at an index. `name` returns that
    /// backend's name.
    pub fn write_reply<'a>(
        &mut self,
        out: &mut Vec<u8>,
        name: impl Fn(u16) -> &'a str,
        describe: impl Fn(u16, Fault) -> String,
    ) {
        let is_failed =
            |part: &&Fragment| !matches!(part.outcome, Outcome::Fine | Outcome::Waiting);
        let failed = self.fragments.iter().filter(is_failed).count();
        if let Some(text) = self.unblocked() {
            return reply::error(out, &text);
        }
        if failed > 0 && !self.is_agreed() {
            return self.write_error(failed, out, name, describe);
        }
        match self.rule {
            Rule::Same => out.extend_from_slice(&self.bytes),
            Rule::Concat => {
                reply::array(out, self.sum as usize);
                out.extend_from_slice(&self.bytes);
            }
            Rule::AllOnes => {
                reply::array(out, self.bytes.len());
                for (index, &all) in self.bytes.iter().enumerate() {
                    let is_one = all == 1 || self.certain.get(index) == Some(&true);
                    reply::integer(out, i64::from(is_one));
                }
            }
            Rule::Sum | Rule::Max | Rule::Min => reply::integer(out, self.sum),
            // The caller composes this reply from `Join::answers`.
            Rule::Each => {}
            Rule::Union => self.write_union(out),
            Rule::Counts => self.write_counts(out),
            Rule::AllOk => reply::simple(out, "OK"),
            Rule::Array => self.write_array(out),
        }
    }

    /// Returns the error of servers for a command that was ended by another client. The error does
    /// not concern a server, so no server is named.
    fn unblocked(&self) -> Option<String> {
        let mut refusals = self.fragments.iter().filter_map(|part| match part.outcome {
            Outcome::Refused { start, end } => Some(&self.errors[start..end]),
            _ => None,
        });
        let text = refusals.find(|text| text.starts_with(b"UNBLOCKED"))?;
        (self.rule == Rule::Min).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Returns the answer of each server, for [`Rule::Each`]: its index, and its reply without
    /// type, length and line end, or the reason why there is none.
    pub fn answers(&self) -> impl Iterator<Item = (u16, Result<&[u8], NoAnswer<'_>>)> {
        self.fragments.iter().map(|part| {
            let answer = match part.outcome {
                Outcome::Fine => Ok(text_of(&self.bytes[part.start..part.element])),
                Outcome::Refused { start, end } => Err(NoAnswer::Refused(&self.errors[start..end])),
                Outcome::Failed(fault) => Err(NoAnswer::Fault(fault)),
                Outcome::Waiting => Err(NoAnswer::Refused(b"")),
            };
            (part.backend, answer)
        })
    }

    /// Returns whether all servers that could be asked gave the same reply, and at least one could.
    /// [`Rule::Same`] requires that.
    fn is_agreed(&self) -> bool {
        let counts = |part: &Fragment| match part.outcome {
            Outcome::Fine => true,
            Outcome::Failed(fault) => !is_protocol(fault),
            Outcome::Refused { .. } | Outcome::Waiting => false,
        };
        self.rule == Rule::Same && !self.bytes.is_empty() && self.fragments.iter().all(counts)
    }

    /// Returns the common reply of the servers, without type and line ends. Returns `None` if they
    /// differ, or if the rule is not [`Rule::Same`].
    pub fn agreed(&self) -> Option<&[u8]> {
        let line = self.is_agreed().then(|| self.bytes.strip_suffix(b"\r\n"))??;
        let start = line.iter().rposition(|&byte| byte == b'\n').map_or(1, |end| end + 1);
        line.get(start..)
    }

    fn write_array(&mut self, out: &mut Vec<u8>) {
        reply::array(out, self.owners.len());
        for &owner in &self.owners {
            let Fragment { start, element, .. } = &mut self.fragments[owner as usize];
            let end = self.ends[*element];
            out.extend_from_slice(&self.bytes[*start..end]);
            (*start, *element) = (end, *element + 1);
        }
    }

    /// Returns the error of all servers if each was sent the same request and all agree that it is
    /// wrong. It would not help to say which server sent it.
    fn one_refusal(&self) -> Option<&str> {
        let mut texts = self.fragments.iter().map(|fragment| match fragment.outcome {
            Outcome::Refused { start, end } if self.is_whole => Some(&self.errors[start..end]),
            _ => None,
        });
        let first = texts.next()??;
        let agree = texts.all(|text| text == Some(first));
        if agree { std::str::from_utf8(first).ok() } else { None }
    }

    /// Appends an error that says which part failed. It begins with the error code of the first
    /// server that answered with one, so that clients that check the code (OOM, READONLY, ...)
    /// still see it.
    #[cold]
    fn write_error<'a>(
        &self,
        failed: usize,
        out: &mut Vec<u8>,
        name: impl Fn(u16) -> &'a str,
        describe: impl Fn(u16, Fault) -> String,
    ) {
        if let Some(text) = self.one_refusal() {
            return reply::error(out, text);
        }
        let (servers, failures) = self.failures();
        let mut code = "ERR";
        let mut parts = String::new();
        for Failure { first, keys } in failures.iter().take(SERVERS_TOLD_MAX) {
            let text = match first.outcome {
                Outcome::Fine | Outcome::Waiting => continue,
                Outcome::Failed(fault) => describe(first.backend, fault),
                Outcome::Refused { start, end } => {
                    let text = std::str::from_utf8(&self.errors[start..end]).unwrap_or("ERR");
                    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
                    if code == "ERR" {
                        code = word;
                    }
                    rest.to_owned()
                }
            };
            let text = shortened(&text);
            let separator = if parts.is_empty() { "" } else { "; " };
            let server = name(first.backend);
            let _ = match self.is_whole {
                true => write!(parts, "{separator}{server}: {text}"),
                false => write!(parts, "{separator}{server} ({keys} of the keys): {text}"),
            };
        }
        if let Some(more) = failures.len().checked_sub(SERVERS_TOLD_MAX).filter(|more| *more > 0) {
            let _ = write!(parts, "; and {more} more");
        }
        let rest = match (self.rule, self.is_whole) {
            _ if failed == self.fragments.len() => "",
            (Rule::AllOk, false) => "; the other keys were written",
            (Rule::Sum, false) => "; done for the other keys",
            (Rule::AllOk | Rule::Same, true) => "; done on the other servers",
            (_, false) => "; nothing is returned for the other keys",
            (_, true) => "; nothing is returned for the other servers",
        };
        let command = self.command.to_ascii_uppercase().replace('|', " ");
        let of = failures.len();
        reply::error(
            out,
            &format!("{code} {command} failed on {of} of {servers} servers: {parts}{rest}"),
        );
    }

    /// Returns the number of servers that were asked, and for each failed server its first failure.
    /// A server of a cluster has a fragment for each slot.
    fn failures(&self) -> (usize, Vec<Failure<'_>>) {
        let mut of_server: BTreeMap<u16, Option<usize>> = BTreeMap::new();
        let mut failures: Vec<Failure<'_>> = Vec::new();
        for fragment in &self.fragments {
            let known = of_server.entry(fragment.backend).or_default();
            match (&fragment.outcome, *known) {
                (Outcome::Fine | Outcome::Waiting, _) => {}
                (_, Some(at)) => failures[at].keys += u64::from(fragment.keys),
                (_, None) => {
                    *known = Some(failures.len());
                    failures.push(Failure { first: fragment, keys: fragment.keys.into() });
                }
            }
        }
        (of_server.len(), failures)
    }
}

/// The failure of one server.
struct Failure<'a> {
    /// The server's first failed fragment. Its text represents those of the others.
    first: &'a Fragment,
    /// Number of keys in all failed fragments.
    keys: u64,
}

/// Number of servers that an error names. For the others it contains only their number.
const SERVERS_TOLD_MAX: usize = 8;

/// Number of characters that are kept of each server's text.
const TOLD_LEN_MAX: usize = 300;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TOLD_LEN_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the text of a bulk or verbatim reply.
fn text_of(reply: &[u8]) -> &[u8] {
    let start = reply.iter().position(|&byte| byte == b'\n').map_or(reply.len(), |end| end + 1);
    let text = reply[start..].strip_suffix(b"\r\n").unwrap_or_default();
    match reply.first() {
        Some(b'=') => text.get(4..).unwrap_or_default(),
        _ => text,
    }
}

fn is_protocol(fault: Fault) -> bool {
    matches!(fault, Fault::Backend { fault: keyway_base::BackendFault::Protocol, .. })
}

fn protocol_fault() -> Outcome {
    Outcome::Failed(Fault::Backend {
        fault: keyway_base::BackendFault::Protocol,
        sent: keyway_base::Sent::Maybe,
    })
}

/// Returns the index at which the first element of an array reply of `keys` elements starts.
fn array_start(bytes: &[u8], keys: u32) -> Option<usize> {
    let (count, start) = array_head(bytes)?;
    (count == keys as usize).then_some(start)
}

/// Returns the number of elements of an array reply, and the index at which the first one starts.
fn array_head(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    Some((usize::try_from(parse_integer(&bytes[1..end])?).ok()?, end + 2))
}

#[cfg(test)]
mod invariants;

#[cfg(test)]
mod tests;
