//! The commands of a stream that concern keys of some slots.

use crate::access::Failure;
use crate::slots::SlotSet;
use crate::value::{Commands, shown};
use keyway_command::{Args, Refusal, Request, Verb};
use keyway_resp::reply;

/// A command of the stream: its database, its bytes as they came, and its words.
pub(crate) struct Heard<'a> {
    pub(crate) database: u64,
    pub(crate) raw: &'a [u8],
    pub(crate) args: Args<'a>,
}

/// Appends those commands of a unit, and those parts of them, that concern keys of the slots.
///
/// # Errors
/// A command cannot be divided, or no copy can go on after it.
pub(crate) fn unit<'a>(
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
        each(slots, &one, out)?;
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

fn each(slots: &SlotSet, one: &Heard<'_>, out: &mut Commands) -> Result<(), Failure> {
    let request = match Request::resolve(one.args) {
        Ok(request) => request,
        Err(Refusal::Empty) => return Ok(()),
        Err(_) => return unknown(one),
    };
    match request.command.verb {
        Verb::Flushall | Verb::Flushdb | Verb::Swapdb => {
            return Err(Failure::passing(format!(
                "the source has executed {}: the copy begins anew",
                request.command.name
            )));
        }
        _ => {}
    }
    let mut keys = Vec::new();
    if request.keys(&mut keys).is_err() {
        return unknown(one);
    }
    let is_moving = |at: &u32| one.args.get(*at as usize).is_some_and(|key| slots.has_key(key));
    let moving = keys.iter().filter(|at| is_moving(at)).count();
    // What has no key is said to the server, or to everybody: PUBLISH, SCRIPT LOAD, FUNCTION LOAD.
    if moving == 0 || matches!(request.command.verb, Verb::Publish | Verb::Spublish) {
        return Ok(());
    }
    if one.database != 0 {
        let key = keys.iter().find(|at| is_moving(at)).and_then(|at| one.args.get(*at as usize));
        return Err(Failure::lasting(format!(
            "key {} is in database {}, and only database 0 can be moved",
            shown(key.unwrap_or_default()),
            one.database
        )));
    }
    if moving == keys.len() {
        out.bytes.extend_from_slice(one.raw);
        out.count += 1;
        return Ok(());
    }
    // Both sides of a key that stays and one that moves.
    let (name, step) = match request.command.verb {
        Verb::Del | Verb::Unlink => ("DEL", 1),
        // That it was executed means that no key was there.
        Verb::Mset | Verb::Msetnx => ("MSET", 2),
        _ => {
            return Err(Failure::lasting(format!(
                "the source has executed {} with keys that move and keys that stay: only commands \
                 whose keys have one slot can be moved",
                request.command.name
            )));
        }
    };
    reply::array(&mut out.bytes, 1 + moving * step);
    reply::bulk(&mut out.bytes, name.as_bytes());
    for at in keys.iter().filter(|at| is_moving(at)) {
        let words = one.args.from(*at as usize).take(step);
        words.for_each(|word| reply::bulk(&mut out.bytes, word));
    }
    out.count += 1;
    Ok(())
}

/// Refuses a command that is not known to have no key of the slots.
fn unknown(one: &Heard<'_>) -> Result<(), Failure> {
    let name = one.args.get(0).unwrap_or_default();
    Err(Failure::lasting(format!(
        "the source has executed {}, which is unknown here: it may have changed keys that move",
        shown(name)
    )))
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
        unit(slots, heard, is_transaction, &mut out)?;
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
