//! The keys of slots at one server: they are counted, or deleted.

use crate::access::{Access, Failure};
use crate::commands::command;
use crate::pace::{Pace, Pacer, now};
use crate::slots::SlotSet;
use crate::wire::Wire;
use keyway_resp::{Framing, frame_reply};
use std::time::Duration;

/// Keys that a server looks at for one question.
const COUNT: &[u8] = b"1000";

/// Longest wait for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Longest sleep between two looks at whether somebody still wants it.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Keys that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Keys of the slots.
    pub keys: u64,
    /// All keys of the server.
    pub scanned: u64,
}

/// Counts the keys of slots that a server has in database 0. `on_progress` gets the number so far, and
/// returns whether it is still wanted.
///
/// # Errors
/// The server is not reached, or it was not wanted any more.
pub fn count_keys(
    access: &Access,
    slots: &SlotSet,
    pace: Pace,
    on_progress: &dyn Fn(u64) -> bool,
) -> Result<Counted, Failure> {
    let mut wire = Wire::connect(access, "keyway-count", ANSWER_WITHIN)?;
    let mut counted = Counted::default();
    visit(&mut wire, slots, pace, &mut |_, moving, scanned| {
        counted.keys += moving.len() as u64;
        counted.scanned += scanned;
        check_wanted(on_progress(counted.keys))
    })?;
    Ok(counted)
}

/// Deletes the keys of slots that a server has in database 0. Returns their number.
///
/// # Errors
/// The server is not reached or refuses, or it was not wanted any more.
pub fn purge(
    access: &Access,
    slots: &SlotSet,
    pace: Pace,
    name: &str,
    on_progress: &dyn Fn(u64) -> bool,
) -> Result<u64, Failure> {
    let mut wire = Wire::connect(access, name, ANSWER_WITHIN)?;
    let (mut deleted, mut verb): (u64, &[u8]) = (0, b"UNLINK");
    visit(&mut wire, slots, pace, &mut |wire, moving, _| {
        if !moving.is_empty() {
            let mut reply = delete(wire, verb, moving)?;
            if reply.starts_with(b"-ERR unknown command") {
                // Redis 3.2 frees the memory at once.
                verb = b"DEL";
                reply = delete(wire, verb, moving)?;
            }
            if let Some(error) = reply.strip_prefix(b"-") {
                return Err(Failure::of_error(&access.endpoint, error));
            }
            deleted += count_of(&reply);
        }
        check_wanted(on_progress(deleted))
    })?;
    Ok(deleted)
}

fn delete(wire: &mut Wire, verb: &[u8], keys: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
    let words: Vec<&[u8]> = [verb].into_iter().chain(keys.iter().map(Vec::as_slice)).collect();
    wire.ask(&words, ANSWER_WITHIN)
}

/// Reads an integer. A page of keys may have some twice, and others may have expired.
fn count_of(reply: &[u8]) -> u64 {
    let digits = reply.strip_prefix(b":").map(<[u8]>::trim_ascii_end).unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

fn check_wanted(is_wanted: bool) -> Result<(), Failure> {
    if is_wanted { Ok(()) } else { Err(Failure::passing("it is not wanted any more")) }
}

/// A visitor of some keys: those of the slots, and how many there were in all.
type Visit<'v> = &'v mut dyn FnMut(&mut Wire, &[Vec<u8>], u64) -> Result<(), Failure>;

fn visit(wire: &mut Wire, slots: &SlotSet, pace: Pace, each: Visit<'_>) -> Result<(), Failure> {
    let mut cursor = b"0".to_vec();
    let mut pacer = Pacer::new(now());
    loop {
        let reply = wire.ask(&[b"SCAN", &cursor, b"COUNT", COUNT], ANSWER_WITHIN)?;
        if let Some(error) = reply.strip_prefix(b"-") {
            return Err(Failure::of_error(wire.server(), error));
        }
        let (next, keys) = page(&reply).ok_or_else(|| {
            Failure::passing(format!("{} answers SCAN with something else", wire.server()))
        })?;
        let scanned = keys.len() as u64;
        let moving: Vec<Vec<u8>> =
            keys.into_iter().filter(|key| slots.has_key(key)).map(<[u8]>::to_vec).collect();
        each(wire, &moving, scanned)?;
        let until = now() + pacer.note(pace, moving.len() as u64, 0, now());
        while now() < until {
            std::thread::park_timeout(until.saturating_duration_since(now()).min(SLEEP_MAX));
            each(wire, &[], 0)?;
        }
        if next == b"0" {
            return Ok(());
        }
        cursor = next.to_vec();
    }
}

/// Returns the cursor and the keys of a reply to SCAN.
fn page(reply: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut rest = reply.strip_prefix(b"*2\r\n")?;
    let cursor = text(&mut rest)?;
    let head = rest.iter().position(|byte| *byte == b'\n')?;
    let count = std::str::from_utf8(rest.get(1..head)?).ok()?.trim().parse::<u32>().ok()?;
    rest.starts_with(b"*").then_some(())?;
    rest = rest.get(head + 1..)?;
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(text(&mut rest)?);
    }
    Some((cursor, keys))
}

/// Takes a text out of replies.
fn text<'r>(replies: &mut &'r [u8]) -> Option<&'r [u8]> {
    let Ok(Framing::Ready { len, .. }) = frame_reply(replies, u32::MAX, 1) else { return None };
    let (whole, rest) = replies.split_at_checked(len)?;
    let head = whole.iter().position(|byte| *byte == b'\n')?;
    *replies = rest;
    whole.starts_with(b"$").then(|| whole.get(head + 1..len.checked_sub(2)?))?
}

/// Closes the connections of clients whose names begin with a text, but for one name. Returns their
/// number. A process that was stopped, and whose work another one has taken over, writes nothing more
/// by them when it runs again.
///
/// # Errors
/// The server is not reached or refuses.
pub fn end_others(
    access: &Access,
    beginning: &str,
    but_for: &str,
    within: Duration,
) -> Result<u64, Failure> {
    let mut wire = Wire::connect(access, "keyway-look", within)?;
    let reply = wire.ask(&[b"CLIENT", b"LIST"], within)?;
    if let Some(error) = reply.strip_prefix(b"-") {
        return Err(Failure::of_error(&access.endpoint, error));
    }
    let text = String::from_utf8_lossy(&reply);
    let mut requests = Vec::new();
    let mut count = 0;
    for line in text.lines() {
        let word = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        let is_other = word("name=").is_some_and(|it| it.starts_with(beginning) && it != but_for);
        if let Some(id) = word("id=").filter(|_| is_other) {
            command(&mut requests, &[b"CLIENT", b"KILL", b"ID", id.as_bytes()]);
            count += 1;
        }
    }
    wire.queue(&mut requests);
    let mut input = Vec::new();
    for _ in 0..count {
        // One that has gone meanwhile is no fault.
        wire.answer(&mut input, within)?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_of_keys_is_read() {
        let reply = b"*2\r\n$2\r\n17\r\n*2\r\n$1\r\na\r\n$3\r\nb\r\n\r\n";
        assert_eq!(page(reply), Some((&b"17"[..], vec![&b"a"[..], b"b\r\n"])));
        assert_eq!(page(b"*2\r\n$1\r\n0\r\n*0\r\n"), Some((&b"0"[..], vec![])));
    }

    proptest! {
        #[test]
        fn no_reply_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = page(&bytes);
            let _ = page(&[&b"*2\r\n"[..], &bytes].concat());
        }
    }
}
