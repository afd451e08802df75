//! The commands of a stream that concern keys of some slots.

use crate::access::Failure;
use crate::commands::{Commands, shown};
use crate::slots::SlotSet;
use keyway_command::{Args, Refusal, Request, Verb};
use keyway_resp::reply;

/// A command of the stream: its database, its bytes as they came, and its words.
pub(crate) struct Heard<'a> {
    pub(crate) database: u64,
    pub(crate) raw: &'a [u8],
    pub(crate) args: Args<'a>,
}

/// Commands that are newer than the table, and whose only key is their first argument.
const NEWER: [&[u8]; 9] = [
    b"delex",
    b"delifeq",
    b"vadd",
    b"vrem",
    b"vsetattr",
    b"xackdel",
    b"xcfgset",
    b"xdelex",
    b"xnack",
];

/// The fate of a command.
enum Fate<'a> {
    /// It concerns no key of the slots.
    Dropped,
    /// All its keys are of the slots.
    Kept,
    /// Some are, and its parts stand for themselves: this is its name, and a part has so many words.
    Divided(&'a [u8], usize),
    /// It is the text of a script, by whose hash later commands may call it.
    Learned(&'a [u8]),
}

/// Leaves out of a stream what does not concern keys of some slots.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// The places of the keys of a command.
    keys: Vec<u32>,
}

impl Filter {
    /// Appends those commands of a unit, and those parts of them, that concern keys of the slots.
    ///
    /// # Errors
    /// A command cannot be divided, or no copy can go on after it.
    pub(crate) fn unit<'a>(
        &mut self,
        slots: &SlotSet,
        heard: impl Iterator<Item = Heard<'a>>,
        is_transaction: bool,
        out: &mut Commands,
    ) -> Result<(), Failure> {
        let (before, count) = (out.bytes.len(), out.count);
        if is_transaction {
            out.add(&[b"MULTI"]);
        }
        let opened = out.count;
        for one in heard {
            self.each(slots, &one, out)?;
        }
        if out.count == opened {
            // A transaction of other slots leaves nothing.
            out.bytes.truncate(before);
            out.count = count;
        } else if is_transaction {
            out.add(&[b"EXEC"]);
        }
        Ok(())
    }

    fn each(
        &mut self,
        slots: &SlotSet,
        one: &Heard<'_>,
        out: &mut Commands,
    ) -> Result<(), Failure> {
        let is_moving = |at: &u32| one.args.get(*at as usize).is_some_and(|key| slots.has_key(key));
        match self.fate(&is_moving, one)? {
            Fate::Dropped => {}
            Fate::Kept => {
                out.bytes.extend_from_slice(one.raw);
                out.count += 1;
            }
            Fate::Learned(text) => out.add(&[b"SCRIPT", b"LOAD", text]),
            Fate::Divided(name, step) => {
                let moving = self.keys.iter().filter(|at| is_moving(at));
                reply::array(&mut out.bytes, 1 + moving.clone().count() * step);
                reply::bulk(&mut out.bytes, name);
                for at in moving {
                    let words = one.args.from(*at as usize).take(step);
                    words.for_each(|word| reply::bulk(&mut out.bytes, word));
                }
                out.count += 1;
            }
        }
        Ok(())
    }

    fn fate<'a>(
        &mut self,
        is_moving: &dyn Fn(&u32) -> bool,
        one: &Heard<'a>,
    ) -> Result<Fate<'a>, Failure> {
        let request = match Request::resolve(one.args) {
            Ok(request) => Some(request),
            Err(Refusal::Empty) => return Ok(Fate::Dropped),
            // New subcommands of others concern the server, and not its keys.
            Err(Refusal::UnknownSubcommand(command)) if command.verb != Verb::Xgroup => {
                return Ok(Fate::Dropped);
            }
            Err(_) => None,
        };
        let verb = request.map(|request| request.command.verb);
        if let Some(verb @ (Verb::Flushall | Verb::Flushdb | Verb::Swapdb)) = verb {
            let name = if verb == Verb::Swapdb { "were exchanged" } else { "was flushed" };
            let what = if verb == Verb::Swapdb { "databases of the source" } else { "the source" };
            return Err(Failure::passing(format!("{what} {name}: the copy begins anew")));
        }
        self.find_keys(request, one)?;
        let moving = self.keys.iter().filter(|at| is_moving(at)).count();
        match verb {
            // They are said to clients of the source.
            Some(Verb::Publish | Verb::Spublish) => return Ok(Fate::Dropped),
            Some(Verb::Eval | Verb::Evalsha | Verb::Fcall) if self.keys.is_empty() => {
                return Err(Failure::lasting(format!(
                    "the source has executed {} without keys, so nobody knows what it has changed: \
                     name the keys of scripts, or upgrade the source, which then sends what they \
                     change",
                    shown(one.args.get(0).unwrap_or_default())
                )));
            }
            Some(Verb::Eval) if moving == 0 => {
                return Ok(Fate::Learned(one.args.get(1).unwrap_or_default()));
            }
            _ if moving == 0 => return Ok(Fate::Dropped),
            _ => {}
        }
        if let Some(at) = self.keys.iter().find(|at| is_moving(at)).filter(|_| one.database != 0) {
            return Err(Failure::lasting(format!(
                "key {} is in database {}, and only database 0 can be moved",
                shown(one.args.get(*at as usize).unwrap_or_default()),
                one.database
            )));
        }
        if request.is_some_and(|request| reaches_further(&request)) {
            return Err(refused(one, "which concerns more than the keys that it names"));
        }
        if moving == self.keys.len() {
            return Ok(Fate::Kept);
        }
        match verb {
            Some(Verb::Del | Verb::Unlink) => {
                Ok(Fate::Divided(one.args.get(0).unwrap_or_default(), 1))
            }
            // That it was executed means that no key was there.
            Some(Verb::Mset | Verb::Msetnx) => Ok(Fate::Divided(b"MSET", 2)),
            _ => Err(refused(one, "with keys that move and keys that stay")),
        }
    }

    /// Finds the keys of a command. One that is not known has an unknown number of them.
    fn find_keys(&mut self, request: Option<Request<'_>>, one: &Heard<'_>) -> Result<(), Failure> {
        self.keys.clear();
        if let Some(request) = request
            && request.keys(&mut self.keys).is_ok()
        {
            return Ok(());
        }
        let name = one.args.get(0).unwrap_or_default().to_ascii_lowercase();
        if NEWER.contains(&&*name) && one.args.len() > 1 {
            self.keys.push(1);
            return Ok(());
        }
        Err(Failure::lasting(format!(
            "the source has executed {}, which is unknown here: it may have changed keys that move",
            shown(&name)
        )))
    }
}

/// Returns whether a command reads or writes more than its keys: another database, or keys that it makes
/// of values.
fn reaches_further(request: &Request<'_>) -> bool {
    match request.command.verb {
        Verb::Move => true,
        Verb::Sort | Verb::Copy => request.handling() != request.command.handling,
        _ => false,
    }
}

fn refused(one: &Heard<'_>, why: &str) -> Failure {
    Failure::lasting(format!(
        "the source has executed {} {why}: only commands whose keys have one slot can be moved",
        shown(one.args.get(0).unwrap_or_default())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;
    use keyway_topology::SlotSpace;
    use proptest::prelude::*;

    /// Returns what is left of commands, as lines of words.
    fn left(slots: &SlotSet, lines: &[&str], is_transaction: bool) -> Result<Vec<String>, Failure> {
        let framed: Vec<(Vec<u8>, Vec<ByteRange>)> = lines.iter().map(|line| frame(line)).collect();
        let heard = framed.iter().map(|(raw, ranges)| Heard {
            database: 0,
            raw,
            args: Args::new(raw, ranges),
        });
        let mut out = Commands::default();
        Filter::default().unit(slots, heard, is_transaction, &mut out)?;
        let text = String::from_utf8(out.bytes).unwrap();
        let mut left: Vec<Vec<String>> = Vec::new();
        for line in text.split("\r\n") {
            match line.chars().next() {
                Some('*') => left.push(Vec::new()),
                Some('$') | None => {}
                _ => left.last_mut().unwrap().push(line.to_owned()),
            }
        }
        assert_eq!(left.len() as u64, out.count);
        Ok(left.into_iter().map(|words| words.join(" ")).collect())
    }

    fn frame(line: &str) -> (Vec<u8>, Vec<ByteRange>) {
        let words: Vec<&str> = line.split(' ').collect();
        let (mut raw, mut ranges) = (Vec::new(), Vec::new());
        reply::array(&mut raw, words.len());
        for word in words {
            reply::bulk(&mut raw, word.as_bytes());
            let end = raw.len() - 2;
            ranges.push(ByteRange::new(end - word.len(), end));
        }
        (raw, ranges)
    }

    /// Returns the slots in which `a` is, and `b` is not.
    fn of_a() -> SlotSet {
        let space = SlotSpace::Codis;
        let slot = space.slot_of(b"a");
        assert_ne!(slot, space.slot_of(b"b"));
        SlotSet::new(space, [(slot, slot)])
    }

    #[test]
    fn what_concerns_no_key_of_the_slots_is_left_out() {
        let lines = ["SET a 1", "SET b 1", "DEL a b", "MSET b 1 a 2", "PUBLISH a x", "SET {a}x 1"];
        let expected = ["SET a 1", "DEL a", "MSET a 2", "SET {a}x 1"];
        assert_eq!(left(&of_a(), &lines, false).unwrap(), expected);
        assert_eq!(left(&of_a(), &["SCRIPT LOAD x", "SPUBLISH a x"], false).unwrap(), [""; 0]);
        let scripts = ["EVAL x 1 b", "EVAL y 1 a", "EVALSHA z 1 a", "EVALSHA z 1 b"];
        let expected = ["SCRIPT LOAD x", "EVAL y 1 a", "EVALSHA z 1 a"];
        assert_eq!(left(&of_a(), &scripts, false).unwrap(), expected);
        assert_eq!(left(&of_a(), &["VADD a x", "VADD b x"], false).unwrap(), ["VADD a x"]);
    }

    #[test]
    fn a_transaction_stays_one_and_an_empty_one_is_none() {
        let lines = ["SET b 1", "INCR a", "LPUSH {a}l x"];
        let expected = ["MULTI", "INCR a", "LPUSH {a}l x", "EXEC"];
        assert_eq!(left(&of_a(), &lines, true).unwrap(), expected);
        assert_eq!(left(&of_a(), &["SET b 1"], true).unwrap(), [""; 0]);
    }

    #[test]
    fn commands_that_cannot_be_divided_end_the_copy() {
        for (line, is_final) in [
            ("RENAME a b", true),
            ("SUNIONSTORE a b", true),
            ("NOSUCHCOMMAND a", true),
            ("MOVE a 1", true),
            ("COPY a {a}b DB 1", true),
            ("SORT a BY w_* STORE {a}b", true),
            ("EVAL x 0", true),
            ("EVAL x 2 a b", true),
            ("FLUSHALL", false),
            ("SWAPDB 0 1", false),
        ] {
            let failure = left(&of_a(), &[line], false).unwrap_err();
            assert_eq!(failure.is_final, is_final, "{line}: {failure}");
        }
        assert_eq!(left(&of_a(), &["RENAME a {a}b"], false).unwrap(), ["RENAME a {a}b"]);
    }

    proptest! {
        /// Each key of a deletion goes to the side of its slot, and keeps its place.
        #[test]
        fn deletions_are_divided_by_slot(keys in prop::collection::vec("[a-z]{1,3}", 1..9)) {
            let space = SlotSpace::Codis;
            let moving = SlotSet::new(space, [(0, 511)]);
            let staying = SlotSet::new(space, [(512, 1023)]);
            let line = format!("UNLINK {}", keys.join(" "));
            let of = |slots: &SlotSet| {
                let left = left(slots, &[&line], false).unwrap();
                let words = left.first().map(|line| line.split(' ').skip(1).map(str::to_owned));
                words.map(Iterator::collect::<Vec<_>>).unwrap_or_default()
            };
            let kept: Vec<String> =
                keys.iter().filter(|key| moving.has_key(key.as_bytes())).cloned().collect();
            prop_assert_eq!(of(&moving), kept);
            prop_assert_eq!(of(&moving).len() + of(&staying).len(), keys.len());
        }
    }
}
