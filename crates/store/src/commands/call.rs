//! A request being executed, as commands see it, and why one fails.

use crate::algorithms::number::parse_integer;
use crate::collections::WrongType;
use crate::entry::Entry;
use crate::items::{Encoding, Item};
use crate::shards::EvictionPolicy;
use crate::store::{Locked, Mode, OUT_OF_MEMORY, Reserved, Store, Transfer, Turn, reserved_len};
use keyway_base::KeyspaceEvents;
use keyway_command::{Args, Request};
use keyway_resp::reply;

pub(super) const SYNTAX: Fault = Fault::Text("ERR syntax error");
pub(super) const NOT_AN_INTEGER: Fault = Fault::Text("ERR value is not an integer or out of range");
pub(super) const OUT_OF_LONG_RANGE: Fault = Fault::Text(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
pub(super) const TOO_LONG: Fault =
    Fault::Text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(super) const NO_SUCH_DATABASE: Fault = Fault::Text("ERR DB index is out of range");

/// Why a command is answered with an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// As it stands.
    Text(&'static str),
    /// A time that is no time; names the command.
    ExpireTime,
    /// An option of EXPIRE that there is not.
    Option(Vec<u8>),
    /// As it stands, with names that the client gave.
    Line(Vec<u8>),
    /// Of a command that needs one; names the command.
    NoInputKey(String),
    /// Composed for the occasion.
    Message(String),
}

impl From<WrongType> for Fault {
    fn from(_: WrongType) -> Self {
        Fault::Text("WRONGTYPE Operation against a key holding the wrong kind of value")
    }
}

/// Length in bytes up to which a value is taken to have its room already: that of the arguments.
const OF_ARGUMENTS: u64 = 4096;

pub(super) type Outcome = Result<(), Fault>;

/// A request being executed.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) store: &'a Store,
    pub(super) turn: Turn,
    pub(super) args: Args<'a>,
    /// Takes and gives long values without a copy. `None` if all are copied.
    pub(super) transfer: Option<&'a Transfer<'a>>,
}

impl<'a> Call<'a> {
    /// Argument `index`, or nothing past the end: the command table checked
    /// the number of arguments.
    #[inline]
    pub(super) fn arg(&self, index: usize) -> &'a [u8] {
        self.args.get(index).unwrap_or_default()
    }

    /// Arguments from `index` on, every `step`th.
    pub(super) fn args_from(
        &self,
        index: usize,
        step: usize,
    ) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        let args = self.args;
        (index..args.len()).step_by(step).map(move |index| args.get(index).unwrap_or_default())
    }

    /// Appends `value`, which is of `item`, as a bulk string; a long one may go without a copy.
    #[inline]
    pub(super) fn write_bulk(&self, item: &Item<'_>, value: &[u8], out: &mut Vec<u8>) {
        reply::bulk_header(out, value.len());
        match self.transfer.filter(|transfer| transfer.is_for(item, value)) {
            None => out.extend_from_slice(value),
            Some(transfer) => transfer.insert(item, value, out.len()),
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Returns whether the value to set was given apart from the arguments.
    #[inline]
    pub(super) fn has_streamed(&self) -> bool {
        self.transfer.is_some_and(|transfer| transfer.streamed_len() > 0)
    }

    /// Sets the key to a string: to the one that was given, if one was, else to `value`.
    pub(super) fn set_text(&self, entry: &mut Entry<'_>, value: &[u8], expiry: Option<u64>) {
        match self.transfer.and_then(Transfer::take_streamed) {
            Some(streamed) => entry.set_streamed(*streamed, expiry),
            None => entry.set(value, Encoding::Text, expiry),
        }
    }

    pub(super) fn integer(&self, index: usize) -> Result<i64, Fault> {
        parse_integer(self.arg(index)).ok_or(NOT_AN_INTEGER)
    }

    /// Returns whether argument `index` reads `word`, in any case.
    pub(super) fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// Works on the key that is argument 1.
    #[inline]
    pub(super) fn with_key<R>(&self, work: impl FnOnce(Entry<'_>) -> R) -> R {
        self.store.with_key(self.turn, self.arg(1), work)
    }

    /// Notes what became of a key of the client's database.
    #[inline]
    pub(super) fn notify(&self, class: KeyspaceEvents, name: &'static str, key: &[u8]) {
        self.store.note_event(self.turn, class, name, key);
    }

    /// Notes a change that no event tells of, which is to be told by the command.
    pub(super) fn note_silent_change(&self) {
        if self.store.effects.is_on() && !self.turn.is(Mode::TOLD) {
            self.store.lose_followers_if_cut();
        }
    }

    /// Argument `index` as the number of a database.
    pub(super) fn database(&self, index: usize) -> Result<u32, Fault> {
        let number = parse_integer(self.arg(index)).ok_or(NOT_AN_INTEGER)?;
        let number = i32::try_from(number).map_err(|_| {
            Fault::Text("ERR value is out of range, value must between -2147483648 and 2147483647")
        })?;
        u32::try_from(number)
            .ok()
            .filter(|number| *number < self.store.database_count())
            .ok_or(NO_SUCH_DATABASE)
    }

    /// Makes room for a value of `value_len` bytes, which may be longer than the request itself.
    /// Other workers see the room as taken until it is dropped.
    pub(super) fn reserve_room_for(&self, value_len: u64) -> Result<Reserved<'a>, Fault> {
        if value_len <= OF_ARGUMENTS
            || self.store.config().memory_max == 0
            || self.turn.is(Mode::EFFECT)
        {
            return Ok(Reserved::nothing(self.store));
        }
        let more = value_len.saturating_sub(reserved_len(args_bytes(self.args)));
        self.store.reserve(more, self.turn).ok_or(Fault::Text(OUT_OF_MEMORY))
    }

    /// Reserves room for a value that is made out of others, in the place of what `target` holds.
    /// The value is known only with the shards of all keys locked. `len` is about what it takes in
    /// bytes: a low estimate, as the next write makes room for the rest.
    pub(super) fn reserve_for_made(
        &self,
        locked: &mut Locked<'_>,
        target: &[u8],
        len: usize,
    ) -> Result<Reserved<'a>, Fault> {
        let (store, turn) = (self.store, self.turn);
        if len as u64 <= OF_ARGUMENTS || store.config().memory_max == 0 || turn.is(Mode::EFFECT) {
            return Ok(Reserved::nothing(store));
        }
        let replaced = locked.entry(turn, target).bytes().unwrap_or_default();
        let more = len.saturating_sub(replaced) as u64;
        store.free_unused(more);
        if let Some(room) = store.reserve_beside_locked(more, turn) {
            return Ok(room);
        }
        // Items of locked shards are evicted only after the command.
        let is_evicted_after = store.policy() != EvictionPolicy::NoEviction && locked.has_most();
        match is_evicted_after || turn.is(Mode::SCRIPTED) && store.may_exceed(more) {
            true => Ok(Reserved::nothing(store)),
            false => Err(Fault::Text(OUT_OF_MEMORY)),
        }
    }
}

fn args_bytes(args: Args<'_>) -> u64 {
    args.ranges().iter().map(|range| range.len() as u64).sum()
}

pub(super) fn write_fault(request: &Request<'_>, fault: Fault, out: &mut Vec<u8>) {
    match fault {
        Fault::Text(text) => reply::error(out, text),
        Fault::Line(line) => {
            let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            out.push(b'-');
            out.extend(line.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }));
            out.extend_from_slice(b"\r\n");
        }
        Fault::ExpireTime => {
            let name = request.command.name;
            reply::error(out, &format!("ERR invalid expire time in '{name}' command"));
        }
        Fault::NoInputKey(name) => {
            reply::error(out, &format!("ERR at least 1 input key is needed for '{name}' command"));
        }
        Fault::Message(text) => reply::error(out, &text),
        Fault::Option(name) => {
            out.extend_from_slice(b"-ERR Unsupported option ");
            let printable = name.into_iter().take_while(|byte| *byte != 0);
            out.extend(
                printable.map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }),
            );
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Writes a pair of a key and what was taken from it, begun by the key.
pub(super) fn begin_pair(key: &[u8], len: usize, out: &mut Vec<u8>) {
    reply::array(out, len);
    reply::bulk(out, key);
}
