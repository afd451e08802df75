//! Primaries played by the test. The follower goes on from where its data is,
//! whatever ends a link; what no primary says makes it neither panic nor hold
//! much memory.

use keyway_rdb::replication::ReplicationId;
use keyway_rdb::{Event, Key, Kind, Opened, Part, ReadLimits, Version, Writer};
use keyway_replica::{
    Follower, FollowerSettings, Origin, Position, Remains, State, Target, TargetError, Unit,
};
use keyway_testkit::{Random, encode_words, resident_bytes, wait_until, watchdog};
use keyway_topology::Endpoint;
use parking_lot::{Condvar, Mutex};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(20);

/// A target that counts, and waits where it is told to.
#[derive(Default)]
struct Counter {
    applied: Arc<AtomicU64>,
    is_blocked: Arc<(Mutex<bool>, Condvar)>,
    pieces: u64,
    pieces_max: Option<u64>,
    keeps_old_data: bool,
    /// Bytes of an incomplete unit that it lets be held.
    pending_max: Option<usize>,
}

impl Target for Counter {
    fn begin_snapshot(&mut self, _: &Origin) -> Result<(), TargetError> {
        self.pieces = 0;
        Ok(())
    }

    fn take(&mut self, _: Event<'_>) -> Result<(), TargetError> {
        self.pieces += 1;
        match self.pieces_max {
            Some(max) if self.pieces > max => Err(TargetError::resync("memory is full")),
            _ => Ok(()),
        }
    }

    fn end_snapshot(&mut self, _: Position) -> Result<(), TargetError> {
        Ok(())
    }

    fn abort_snapshot(&mut self) -> Remains {
        if self.keeps_old_data { Remains::Before } else { Remains::Nothing }
    }

    fn pending(&mut self, len: usize) -> Result<(), TargetError> {
        match self.pending_max {
            Some(max) if len > max => Err(TargetError::stop(&format!("{len} bytes are held"))),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let mut is_blocked = self.is_blocked.0.lock();
        self.is_blocked.1.wait_while(&mut is_blocked, |is_blocked| *is_blocked);
        let words = unit.commands().map(|command| command.words().len() as u64).sum();
        self.applied.fetch_add(words, Ordering::Relaxed);
        Ok(())
    }
}

fn settings(listener: &TcpListener) -> FollowerSettings {
    let port = listener.local_addr().expect("an address").port();
    let millis = Duration::from_millis;
    FollowerSettings {
        pause_min: millis(1),
        pause_max: millis(2),
        timeout: Duration::from_secs(10),
        ..FollowerSettings::new(Endpoint::tcp("127.0.0.1", port).expect("an endpoint"))
    }
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

/// The answers of a primary up to its snapshot.
fn answers() -> Vec<u8> {
    let id = ReplicationId::of_random([3; 20]);
    format!("+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC {id} 100\r\n").into_bytes()
}

/// A snapshot of a few keys.
fn snapshot() -> Vec<u8> {
    let mut writer = Writer::new(Version::Redis10);
    let text = Opened { kind: Kind::Text, count: None, earliest_ms: None };
    for event in [
        Event::Database(0),
        Event::Key(Key::new(b"text", text)),
        Event::Part(Part::Text(b"value")),
        Event::KeyEnd,
        Event::Key(Key::new(b"list", Opened::new(Kind::List, 2))),
        Event::Part(Part::Element(b"one")),
        Event::Part(Part::Element(b"2")),
        Event::KeyEnd,
        Event::End { checked: true },
    ] {
        writer.write(&event).expect("a snapshot");
    }
    let mut file = Vec::new();
    writer.take_output(&mut file);
    file
}

/// All that a primary says up to its stream, and where its parts end.
fn dialogue(by_mark: bool) -> (Vec<u8>, Vec<usize>) {
    let (mut said, file) = (answers(), snapshot());
    let mut ends = vec![0, 7, 12, 17, said.len()];
    match by_mark {
        true => {
            let mark = "m".repeat(40);
            said.extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
            ends.push(said.len());
            said.extend_from_slice(&file);
            ends.push(said.len());
            said.extend_from_slice(mark.as_bytes());
        }
        false => {
            said.extend_from_slice(format!("${}\r\n", file.len()).as_bytes());
            ends.push(said.len());
            said.extend_from_slice(&file);
        }
    }
    ends.push(said.len());
    (said, ends)
}

/// Says something and waits for the follower to leave, or leaves by itself.
fn say(mut connection: TcpStream, bytes: &[u8], leaves: bool) {
    let _ = connection.set_read_timeout(Some(BOUND));
    let _ = connection.write_all(bytes);
    if leaves {
        let _ = connection.shutdown(std::net::Shutdown::Write);
    }
    let mut room = [0; 4096];
    while matches!(connection.read(&mut room), Ok(1..)) {}
}

/// Reads until this has come.
fn hear(connection: &mut TcpStream, end: &[u8]) {
    connection.set_read_timeout(Some(BOUND)).expect("a live socket");
    let (mut heard, mut room) = (Vec::new(), [0; 4096]);
    while !heard.ends_with(end) {
        let len = connection.read(&mut room).expect("words of the follower");
        assert!(len > 0, "the follower has left");
        heard.extend_from_slice(&room[..len]);
    }
}

#[test]
fn garbage_at_every_stage_ends_the_link_and_nothing_else() {
    const CASES: u64 = 400;
    let _watchdog = watchdog(Duration::from_secs(60), "garbage");
    let listener = listener();
    let target = Counter::default();
    let follower = Follower::start(settings(&listener), Box::new(target)).expect("a thread");
    let mut random = Random::new(1);
    for case in 0..CASES {
        let (said, ends) = dialogue(random.below(2) == 0);
        // In front of a part, in the middle of it, or behind all.
        let end = match random.below(3) {
            0 => *random.pick(&ends),
            1 => random.below(said.len()),
            _ => said.len(),
        };
        let mut bytes = said[..end].to_vec();
        match random.below(3) {
            0 => {
                let len = random.below(2000);
                bytes.extend(random.bytes(len));
            }
            1 => {
                let pieces: [&[u8]; 8] =
                    [b"*", b"$", b"-", b"+", b"\r\n", b"99999999999", b"MULTI", b"\xff\x80\x81"];
                (0..random.below(60))
                    .for_each(|_| bytes.extend_from_slice(random.pick::<&[u8]>(&pieces)));
            }
            _ => {
                // The rest as it is, with one byte changed.
                bytes.extend_from_slice(&said[end..]);
                bytes.extend(encode_words("SET a 1"));
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        let (connection, _) = listener.accept().expect("a follower");
        say(connection, &bytes, true);
        let failures = || follower.status().failures;
        wait_until("the link ends", BOUND, || failures() > case);
        assert_ne!(follower.status().state, State::Stopped);
    }
    let reason = follower.status().reason.expect("a reason").to_string();
    assert!(reason.len() < 1000 && reason.is_ascii(), "{reason:?}");
}

#[test]
fn what_never_ends_and_lengths_that_lie_cost_no_memory() {
    let _watchdog = watchdog(Duration::from_secs(60), "memory");
    let listener = listener();
    let target = Counter { pieces_max: Some(100_000), ..Counter::default() };
    let limits = ReadLimits { string_len_max: 1 << 20, block_len_max: 1 << 20 };
    let settings = FollowerSettings {
        snapshot_limits: limits,
        transaction_len_max: 1 << 20,
        ..settings(&listener)
    };
    let follower = Follower::start(settings, Box::new(target)).expect("a thread");
    let before = resident_bytes(std::process::id());
    let (said, _) = dialogue(false);
    let file = snapshot();
    let (open, rdb) = (format!("$EOF:{}\r\n", "m".repeat(40)), b"REDIS0010\xfe\x00");
    let key = [&b"\x00\x03key\x40\x64"[..], &[b'v'; 100]].concat();
    let huge = [&b"\x00\x03key\x81"[..], &(1u64 << 50).to_be_bytes()].concat();
    let long_string = [&b"\x00\x03key\x80"[..], &(500u32 << 20).to_be_bytes()].concat();
    let set = encode_words(&format!("SET a {}", "x".repeat(1000)));
    let with = |parts: &[&[u8]]| [&answers()[..], &parts.concat()].concat();
    let online = |parts: &[&[u8]]| [&said[..], &parts.concat()].concat();
    let multi = encode_words("MULTI");
    for (start, repeated, told) in [
        (Vec::new(), vec![b'x'; 1000], "longer than 4096 bytes"),
        (with(&[open.as_bytes(), rdb]), key, "memory is full"),
        (
            with(&[open.as_bytes(), rdb, &huge]),
            vec![b'v'; 1000],
            "is longer than the limit of 1048576",
        ),
        (with(&[open.as_bytes(), rdb, &long_string]), vec![0; 1000], "is longer than the limit"),
        (with(&[open.as_bytes(), &file]), vec![b'n'; 1000], "bytes behind its end"),
        (with(&[b"$9999999999999\r\n", &file]), vec![b'n'; 1000], "bytes behind its end"),
        (online(&[&multi]), set, "a transaction is longer than the limit of 1048576 bytes"),
        (
            online(&[&multi, b"*2\r\n$3\r\nGET\r\n$400000000\r\n"]),
            vec![0; 9],
            "a transaction is longer",
        ),
        (online(&[b"*2\r\n$3\r\nGET\r\n$9999999999\r\n"]), vec![0; 9], "invalid bulk length"),
        (online(&[b"*1048577\r\n"]), vec![0; 9], "invalid multibulk length"),
    ] {
        let (mut connection, _) = listener.accept().expect("a follower");
        let failures = follower.status().failures;
        let _ = connection.write_all(&start);
        let piece = repeated.repeat(100);
        // Until the follower has had enough.
        let mut sent = 0;
        while connection.write_all(&piece).is_ok() {
            sent += piece.len();
            assert!(sent < 1 << 30, "{told}");
        }
        wait_until(told, BOUND, || follower.status().failures > failures);
        let reason = follower.status().reason.expect("a reason").to_string();
        assert!(reason.contains(told), "{reason} has no {told:?}");
    }
    let grown = resident_bytes(std::process::id()).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

#[test]
fn a_target_that_waits_holds_up_the_primary_and_not_the_memory() {
    let _watchdog = watchdog(Duration::from_secs(60), "a target that waits");
    let listener = listener();
    let target = Counter::default();
    let (applied, is_blocked) = (Arc::clone(&target.applied), Arc::clone(&target.is_blocked));
    *is_blocked.0.lock() = true;
    let follower = Follower::start(settings(&listener), Box::new(target)).expect("a thread");
    let (mut connection, _) = listener.accept().expect("a follower");
    connection.write_all(&dialogue(true).0).expect("a reader");
    let piece = encode_words(&format!("SET a {}", "x".repeat(10_000)));
    // What the two systems hold between the ends is some megabytes.
    connection.set_nonblocking(true).expect("a live socket");
    let (mut sent, mut out) = (0, Vec::new());
    let mut is_full = 0;
    while is_full < 200 {
        if out.is_empty() {
            out = piece.clone();
        }
        match connection.write(&out) {
            Ok(len) => {
                (sent, is_full) = (sent + len, 0);
                out.drain(..len);
            }
            Err(_) => {
                is_full += 1;
                std::thread::yield_now();
            }
        }
        assert!(sent < 64 << 20, "the follower reads on");
    }
    assert_eq!(follower.status().offset, 100, "nothing is applied");
    *is_blocked.0.lock() = false;
    is_blocked.1.notify_all();
    connection.set_nonblocking(false).expect("a live socket");
    connection.write_all(&out).expect("a reader");
    let commands = (sent + out.len()) / piece.len();
    wait_until("all is applied", BOUND, || applied.load(Ordering::Relaxed) == 3 * commands as u64);
    assert_eq!(follower.status().offset, 100 + (commands * piece.len()) as u64);
    // Acknowledged as well, behind the signs of life.
    let last = format!(
        "${}\r\n{}\r\n",
        follower.status().offset.to_string().len(),
        follower.status().offset
    );
    hear(&mut connection, last.as_bytes());
}

#[test]
fn a_primary_that_sends_its_snapshot_slowly_hears_that_the_replica_is_there() {
    let _watchdog = watchdog(Duration::from_secs(60), "signs of life");
    let listener = listener();
    let target = Counter::default();
    let follower = Follower::start(settings(&listener), Box::new(target)).expect("a thread");
    let (mut connection, _) = listener.accept().expect("a follower");
    let (said, _) = dialogue(false);
    let (begin, end) = said.split_at(said.len() - 5);
    connection.write_all(begin).expect("a reader");
    hear(&mut connection, b"PSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n\n\n");
    connection.write_all(end).expect("a reader");
    hear(&mut connection, &encode_words("REPLCONF ACK 100"));
    let status = follower.status();
    assert_eq!((status.state, status.failures), (State::Online, 0));
}

/// The id and the offset that a follower asks for, which is told yes up to there.
fn asked(connection: &mut TcpStream) -> (String, String) {
    connection.set_read_timeout(Some(BOUND)).expect("a live socket");
    connection.write_all(b"+PONG\r\n+OK\r\n+OK\r\n").expect("a reader");
    let (mut heard, mut room) = (String::new(), [0; 4096]);
    loop {
        let len = connection.read(&mut room).expect("a request");
        assert!(len > 0, "the follower has left");
        heard.push_str(std::str::from_utf8(&room[..len]).expect("words"));
        let Some((_, words)) = heard.split_once("PSYNC\r\n") else { continue };
        let words: Vec<&str> = words.split("\r\n").collect();
        if words.len() > 4 {
            return (words[1].to_owned(), words[3].to_owned());
        }
    }
}

#[test]
fn the_next_link_asks_for_what_the_target_has() {
    let _watchdog = watchdog(Duration::from_secs(60), "positions");
    let (first, second) = ("03".repeat(20), "07".repeat(20));
    let multi = encode_words("MULTI");
    let set = encode_words("SET a 1");
    let full = format!("+FULLRESYNC {second} 900\r\n").into_bytes();
    let begun = [&full[..], b"$5000\r\n", &snapshot()[..20]].concat();
    let bad_sum = {
        let mut file = snapshot();
        *file.last_mut().expect("a checksum") ^= 1;
        [&full[..], format!("${}\r\n", file.len()).as_bytes(), &file].concat()
    };
    let goes_on = |more: &[u8]| [b"+CONTINUE\r\n", more].concat();
    let renamed = [format!("+CONTINUE {second}\r\n").as_bytes(), &set].concat();
    let after_set = (101 + set.len()).to_string();
    let none = ("?", "-1");
    for (said, keeps_old_data, expected) in [
        // The primary dies while it makes its snapshot: nothing has changed yet.
        (full.clone(), false, (&*first, "101")),
        (begun.clone(), false, none),
        (begun, true, (&*first, "101")),
        (bad_sum.clone(), false, none),
        (bad_sum, true, (&*first, "101")),
        (b"-ERR not today\r\n".to_vec(), false, (&*first, "101")),
        (goes_on(b""), false, (&*first, "101")),
        (goes_on(&set), false, (&*first, &*after_set)),
        (renamed, false, (&*second, &*after_set)),
        // Part of a command, and part of a transaction.
        (goes_on(&set[..set.len() - 1]), false, (&*first, "101")),
        (goes_on(&[&set[..], &multi, &set].concat()), false, (&*first, &*after_set)),
        (goes_on(&[&set[..], &multi, &multi].concat()), false, none),
        (goes_on(&[&set[..], b"SET a 1\r\n"].concat()), false, none),
        (goes_on(&[&set[..], b"*1\r\n:"].concat()), false, none),
    ] {
        let what = format!("{} {keeps_old_data}", said.escape_ascii());
        let listener = listener();
        let target = Counter { keeps_old_data, ..Counter::default() };
        let follower = Follower::start(settings(&listener), Box::new(target)).expect("a thread");
        let (connection, _) = listener.accept().expect("a follower");
        say(connection, &dialogue(false).0, true);
        let (mut connection, _) = listener.accept().expect("a follower");
        let resumed = asked(&mut connection);
        assert_eq!(resumed, (first.clone(), "101".to_owned()));
        say(connection, &said, true);
        let (mut connection, _) = listener.accept().expect("a follower");
        let (id, offset) = asked(&mut connection);
        assert_eq!((&*id, &*offset), expected, "{what}");
        let position = follower.stop().map(|position| (position.id.to_string(), position.offset));
        let expected = match expected {
            ("?", _) => None,
            (id, offset) => Some((id.to_owned(), offset.parse::<u64>().expect("an offset") - 1)),
        };
        assert_eq!(position, expected, "{what}");
    }
}

/// A transaction that is open counts as memory while it grows, and not when it is over.
#[test]
fn a_target_hears_of_a_transaction_that_is_open() {
    const HELD_MAX: usize = 1 << 20;
    let _watchdog = watchdog(Duration::from_secs(60), "an open transaction");
    let listener = listener();
    let target = Counter { pending_max: Some(HELD_MAX), ..Counter::default() };
    let follower = Follower::start(settings(&listener), Box::new(target)).expect("a thread");
    let (mut connection, _) = listener.accept().expect("a follower");
    let (said, _) = dialogue(false);
    connection.write_all(&said).expect("a follower that reads");
    connection.write_all(&encode_words("MULTI")).expect("a follower that reads");
    let set = encode_words(&format!("SET a {}", "x".repeat(1000)));
    while connection.write_all(&set).is_ok() {}
    wait_until("it stops", BOUND, || follower.status().state == State::Stopped);
    let reason = follower.status().reason.expect("a reason").to_string();
    let held = reason.split(' ').find_map(|word| word.parse::<usize>().ok()).expect("a number");
    assert!((HELD_MAX..2 * HELD_MAX).contains(&held), "{reason}");
}
