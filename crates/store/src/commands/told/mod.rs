//! Commands that tell their effect: executed with the shards of their keys held, and then
//! told in the words that repeat what they did.
//!
//! Most commands are their own effect. The others depend on the time, on chance, on their
//! options or on how numbers are computed. They are told by their result: by what the keys
//! hold now, or by the reply. A command that changed nothing is not told.

mod collections;
mod fields;
mod pieces;
mod streams;
mod strings;

use super::call::Call;
use crate::entry::Entry;
use crate::store::{Mode, ShardIndices, Store, Telling, Turn};
use keyway_command::{Flags, Request, Verb};
use keyway_memory::Holder;

/// Our own command, which no other server knows: `KEYWAY.FLAGS key flags marks` gives a
/// string the flags and marks of a memcached client. It follows the SET of its string, and
/// only if one of them is not 0.
pub(crate) const FLAGS_COMMAND: &[u8] = b"KEYWAY.FLAGS";

/// Returns whether a command may change a key.
pub(super) fn may_change(request: &Request<'_>) -> bool {
    // PFCOUNT keeps its count in the key.
    request.command.flags.contains(Flags::WRITE) || request.command.verb == Verb::Pfcount
}

/// Returns whether a command tells its effect where it makes its change: the commonest one, in the
/// form without options. Within a transaction or a script it does not, whose effects are one unit.
pub(super) fn tells_itself(request: &Request<'_>) -> bool {
    request.command.verb == Verb::Set && request.args.len() == 3 && !Holder::is_holding()
}

/// Returns whether a request may need keys that it does not name, or not where its
/// command's specification looks for them.
pub(crate) fn reads_others(request: &Request<'_>) -> bool {
    match request.command.verb {
        Verb::Sort | Verb::SortRo => request.reads_by_pattern(),
        Verb::Georadius | Verb::Georadiusbymember => {
            request.args.from(5).any(|word| word.eq_ignore_ascii_case(b"store"))
                || request.args.from(5).any(|word| word.eq_ignore_ascii_case(b"storedist"))
        }
        _ => false,
    }
}

/// Holds the shards that a request needs, unless they are held already.
fn hold<'s>(store: &'s Store, request: &Request<'_>) -> Option<Telling<'s>> {
    let mut shards = ShardIndices::new();
    let found = match reads_others(request) {
        true => Ok(()),
        false => request.each_key(&mut |index, _| {
            if let Some(key) = request.args.get(index) {
                shards.push(store.locate(key).1 as u32);
            }
        }),
    };
    if found.is_err() || shards.is_empty() {
        shards = (0..store.shard_count() as u32).collect();
    }
    store.begin_telling(shards)
}

/// Executes a command by `work`, and tells its effect.
#[cold]
pub(super) fn execute<R>(
    store: &Store,
    request: &Request<'_>,
    turn: Turn,
    is_streamed: bool,
    out: &mut Vec<u8>,
    work: impl FnOnce(Turn, &mut Vec<u8>) -> R,
) -> R {
    let _telling = hold(store, request);
    let turn = turn.with(Mode::TOLD);
    store.effects.with_unit(|unit| unit.set_changed(false));
    let start = out.len();
    let result = work(turn, out);
    let is_changed = store.effects.with_unit(|unit| unit.set_changed(false));
    let call = Call { store, turn, args: request.args, transfer: None };
    let telling =
        Told { call: &call, verb: request.command.verb, reply: &out[start..], is_streamed };
    telling.tell(is_changed);
    result
}

/// A command that was executed and is to be told.
struct Told<'t> {
    call: &'t Call<'t>,
    verb: Verb,
    reply: &'t [u8],
    /// The value came apart from the arguments.
    is_streamed: bool,
}

impl<'t> Told<'t> {
    fn arg(&self, index: usize) -> &'t [u8] {
        self.call.arg(index)
    }

    /// The key of most commands.
    fn key(&self) -> &'t [u8] {
        self.arg(1)
    }

    fn push<'a>(&self, words: impl ExactSizeIterator<Item = &'a [u8]>) {
        let Turn { database, .. } = self.call.turn;
        self.call.store.effects.with_unit(|unit| unit.push(database, words));
    }

    fn tell_words(&self, words: &[&[u8]]) {
        self.push(words.iter().copied());
    }

    /// Tells the command as it is.
    fn tell_itself(&self) {
        let args = self.call.args;
        self.push((0..args.len()).map(move |index| args.get(index).unwrap_or_default()));
    }

    fn with_key<R>(&self, key: &[u8], work: impl FnOnce(Entry<'_>) -> R) -> R {
        self.call.store.with_key(self.call.turn, key, work)
    }

    fn exists(&self, key: &[u8]) -> bool {
        self.with_key(key, |entry| entry.exists())
    }

    /// Tells that a key is gone; returns whether it is.
    fn tell_gone(&self, key: &[u8]) -> bool {
        let is_gone = !self.exists(key);
        if is_gone {
            self.tell_words(&[b"DEL", key]);
        }
        is_gone
    }

    fn tell(&self, is_changed: bool) {
        let is_ok = self.reply.first() == Some(&b'+');
        let is_count = self.reply.first() == Some(&b':');
        match self.verb {
            // No key's event tells of these.
            Verb::Flushdb | Verb::Flushall | Verb::Swapdb if is_ok => self.tell_itself(),
            Verb::Xreadgroup => self.tell_xreadgroup(is_changed),
            Verb::Xclaim => self.tell_xclaim(is_changed),
            Verb::Xautoclaim => self.tell_xautoclaim(is_changed),
            Verb::Xack if is_count && self.reply != b":0\r\n" => self.tell_itself(),
            _ if !is_changed => {}
            verb => self.tell_change(verb),
        }
    }

    /// Tells a command that changed something.
    fn tell_change(&self, verb: Verb) {
        use Verb::{
            Blmove, Blmpop, Blpop, Brpop, Brpoplpush, Bzmpop, Bzpopmax, Bzpopmin, Expire, Expireat,
            Georadius, Georadiusbymember, Geosearchstore, Getdel, Getex, Getset, Hexpire,
            Hexpireat, Hgetdel, Hgetex, Hincrby, Hincrbyfloat, Hpersist, Hpexpire, Hpexpireat,
            Hsetex, Hsetnx, Incrbyfloat, Lmpop, Pexpire, Pexpireat, Psetex, Restore, RestoreAsking,
            Set, Setex, Setnx, Sort, Spop, Xadd, Xtrim, Zmpop,
        };
        match verb {
            Set if self.call.args.len() == 3 && !self.is_streamed => self.tell_itself(),
            Set | Setnx | Getset => self.tell_set(2),
            Setex | Psetex => self.tell_set(3),
            Incrbyfloat => self.tell_text(self.key()),
            Getdel => self.tell_words(&[b"DEL", self.key()]),
            Getex | Expire | Expireat | Pexpire | Pexpireat => self.tell_expiry(),
            Verb::Msetnx => self.tell_mset(),
            Restore | RestoreAsking => self.tell_restore(),
            Hsetnx => self.tell_words(&[b"HSET", self.key(), self.arg(2), self.arg(3)]),
            Hincrby => self.tell_increment(true),
            Hincrbyfloat => self.tell_increment(false),
            Hexpire | Hpexpire | Hexpireat | Hpexpireat | Hpersist => self.tell_times_set(),
            Hgetdel => self.tell_fields_gone(),
            Hgetex => self.tell_times(),
            Hsetex => self.tell_hsetex(),
            Spop => self.tell_spop(),
            Blpop => self.tell_pop(b"LPOP"),
            Brpop => self.tell_pop(b"RPOP"),
            Bzpopmin => self.tell_pop(b"ZPOPMIN"),
            Bzpopmax => self.tell_pop(b"ZPOPMAX"),
            Lmpop | Zmpop => self.tell_multi_pop(1),
            Blmpop | Bzmpop => self.tell_multi_pop(2),
            Blmove => self.push(
                [&b"LMOVE"[..], self.key(), self.arg(2), self.arg(3), self.arg(4)].into_iter(),
            ),
            Brpoplpush => self.tell_words(&[b"RPOPLPUSH", self.key(), self.arg(2)]),
            Sort => self.tell_sort(),
            Geosearchstore | Georadius | Georadiusbymember => self.tell_found(),
            Xadd => self.tell_xadd(),
            Xtrim => self.tell_length(self.key()),
            _ => self.tell_itself(),
        }
    }
}
