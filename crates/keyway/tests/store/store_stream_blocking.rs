//! XREAD and XREADGROUP that block on the embedded store: the replies of a bare redis-server; each
//! entry goes to all readers and to one of each group; nothing is lost, doubled or left waiting.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode_words, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

const GROUP: &str = "XREADGROUP GROUP g c BLOCK 10000 STREAMS s >";
const GROUPS: &str = "XREADGROUP GROUP g c COUNT 1 BLOCK 10000 STREAMS s o > >";
const READ: &str = "XREAD BLOCK 10000 STREAMS s none 1-1 $";

fn store(workers: &str) -> Keyway {
    let config = KeywayConfig::new(vec![Pool::store("local")]);
    Keyway::start(KEYWAY, config.with_server("workers", workers))
}

/// Returns the number of blocked clients, as INFO shows it.
fn blocked(client: &mut Client) -> i64 {
    let text = client.words("INFO clients").text();
    let field = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    field.expect("the field").trim().parse().expect("a number")
}

fn wait_for_blocked(client: &mut Client, count: i64) {
    wait_until(&format!("{count} blocked"), BOUND, || blocked(client) == count);
}

fn prepare(client: &mut Client) {
    client.pipeline(&[
        "FLUSHALL",
        "XADD s 1-1 a b",
        "XGROUP CREATE s g $",
        "XADD o 5-5 a b",
        "XGROUP CREATE o g $",
        "XADD other 5-5 a b",
        "XGROUP CREATE other g 0",
        "XADD plain 5-5 a b",
        "SELECT 1",
        "XADD s 6-6 a b",
        "XGROUP CREATE s g 0",
        "SELECT 0",
    ]);
}

/// Returns the state of the streams, without times.
fn state(client: &mut Client) -> Vec<Value> {
    let lines = ["XRANGE s - +", "XPENDING s g", "XPENDING o g", "XLEN none", "EXISTS s o"];
    lines.into_iter().map(|line| client.words(line)).collect()
}

#[test]
fn a_stream_wakes_who_waits_for_it_as_on_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(120), "waking");
    let (bare, keyway) = (RedisServer::start(), store("3"));
    let cases: &[(&str, &[&str])] = &[
        (GROUP, &["XADD s 8-1 a b"]),
        (GROUP, &["XADD s MAXLEN 0 7-7 a b"]),
        (GROUP, &["XGROUP SETID s g 0", "XADD s 7-7 q r"]),
        (GROUP, &["XGROUP DESTROY s g"]),
        (GROUP, &["DEL s"]),
        (GROUP, &["SET s x"]),
        (GROUP, &["RENAME s t"]),
        (GROUP, &["RENAME other s"]),
        (GROUP, &["RENAME plain s"]),
        (GROUP, &["COPY other s REPLACE"]),
        (GROUP, &["COPY plain s REPLACE"]),
        (GROUP, &["FLUSHALL"]),
        (GROUP, &["FLUSHDB"]),
        (GROUP, &["SWAPDB 0 1"]),
        (GROUP, &["SWAPDB 0 2"]),
        (GROUP, &["MOVE s 2"]),
        (GROUP, &["PEXPIRE s 1"]),
        (GROUP, &["PEXPIRE s -1"]),
        (GROUP, &["MULTI", "XADD s 8-1 a b", "DEL s", "EXEC"]),
        (GROUP, &["MULTI", "DEL s", "SADD s a", "EXEC"]),
        (GROUP, &["MULTI", "DEL s", "XADD s 8-1 a b", "EXEC"]),
        (GROUP, &["MULTI", "XADD s 8-1 a b", "XADD s 8-2 c d", "EXEC"]),
        (GROUPS, &["MULTI", "XADD o 8-1 a b", "XADD o 8-2 c d", "XADD s 8-2 c d", "EXEC"]),
        (GROUPS, &["DEL o"]),
        ("XREADGROUP GROUP g c NOACK BLOCK 10000 STREAMS s >", &["XADD s 8-1 a b"]),
        (READ, &["XADD none 7-7 a b"]),
        (READ, &["XADD none MAXLEN 0 7-7 a b"]),
        (READ, &["XSETID s 9-9", "XADD s 10-1 a b"]),
        (READ, &["XSETID s 9-9", "XDEL s 1-1", "PERSIST s", "XADD s 10-1 a b"]),
        (READ, &["DEL s", "XADD s 0-1 x y", "XADD s 3-1 x y"]),
        (READ, &["RENAME other none"]),
        (READ, &["COPY plain s REPLACE"]),
        (READ, &["SWAPDB 0 1"]),
        (READ, &["MULTI", "XADD none 8-1 a b", "XADD none 8-2 c d", "EXEC"]),
        ("XREAD BLOCK 10000 COUNT 1 STREAMS s s 1-1 5-1", &["XADD s 2-1 a b"]),
        ("XREAD BLOCK 10000 COUNT 1 STREAMS s s 5-1 1-1", &["XADD s 2-1 a b", "XADD s 6-1 c d"]),
    ];
    for (blocking, waking) in cases {
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut told = Vec::new();
            for [mut waiting, mut other] in
                [[bare.client(), bare.client()], [keyway.client(0), keyway.client(0)]]
            {
                prepare(&mut other);
                waiting.words(hello);
                waiting.send(&encode_words(blocking));
                wait_for_blocked(&mut other, 1);
                let mut all: Vec<Value> = waking.iter().map(|line| other.words(line)).collect();
                all.push(waiting.reply());
                all.extend(state(&mut other));
                told.push(all);
            }
            assert_eq!(told[1], told[0], "{hello}: {blocking}, {waking:?}");
        }
    }
}

#[test]
fn who_reads_for_a_group_is_told_when_the_stream_expires() {
    let _watch = watchdog(Duration::from_secs(120), "expiring streams");
    let (bare, keyway) = (RedisServer::start(), store("3"));
    // Streams expire after the command has begun to wait, however slow the machine is.
    let cases: &[(u64, &str, &[&str])] = &[
        (5000, "PEXPIRE other 60000", &["PEXPIRE s 100"]),
        (5000, "PEXPIRE s 60000", &["PEXPIRE s 100"]),
        (5000, "XGROUP SETID other g $", &["RENAME other s", "PEXPIRE s 100"]),
        (300, "PEXPIRE s 60000", &["PERSIST s"]),
        (300, "PEXPIRE s 60000", &["PEXPIRE s 70000"]),
    ];
    for (patience, before, meanwhile) in cases {
        let mut told = Vec::new();
        for [mut waiting, mut other] in
            [[bare.client(), bare.client()], [keyway.client(0), keyway.client(0)]]
        {
            prepare(&mut other);
            other.words(before);
            let reading = format!("XREADGROUP GROUP g c BLOCK {patience} STREAMS s >");
            waiting.send(&encode_words(&reading));
            wait_for_blocked(&mut other, 1);
            meanwhile.iter().for_each(|line| drop(other.words(line)));
            told.push(waiting.reply());
        }
        assert_eq!(told[1], told[0], "{before}, {meanwhile:?}");
        assert_eq!(told[0].is_error(), *patience == 5000, "{told:?}");
    }
}

#[test]
fn what_brings_nothing_leaves_them_waiting() {
    let _watch = watchdog(Duration::from_secs(120), "leaving");
    let (bare, keyway) = (RedisServer::start(), store("2"));
    let cases: &[(&str, &str)] = &[
        (GROUP, "XTRIM s MAXLEN 0"),
        (GROUP, "XDEL s 1-1"),
        (GROUP, "XSETID s 9-9"),
        (GROUP, "XADD o 9-9 a b"),
        (GROUP, "XGROUP CREATE s another 0"),
        (GROUP, "XGROUP DESTROY s another"),
        (READ, "DEL s"),
        (READ, "SET s x"),
        (READ, "LPUSH none a"),
        (READ, "XGROUP CREATE none g $ MKSTREAM"),
        (READ, "XSETID s 9-9"),
    ];
    for (blocking, waking) in cases {
        for hello in ["HELLO 2", "HELLO 3"] {
            let mut told = Vec::new();
            for [mut waiting, mut other] in
                [[bare.client(), bare.client()], [keyway.client(0), keyway.client(0)]]
            {
                prepare(&mut other);
                waiting.words(hello);
                let id = waiting.words("CLIENT ID").integer();
                waiting.send(&encode_words(blocking));
                wait_for_blocked(&mut other, 1);
                let mut all = vec![other.words(waking)];
                all.push(other.words(&format!("CLIENT UNBLOCK {id}")));
                all.extend([waiting.reply(), waiting.words("PING")]);
                all.extend(state(&mut other));
                told.push(all);
            }
            assert_eq!(told[1], told[0], "{hello}: {blocking}, {waking}");
        }
    }
}

#[test]
fn they_wait_as_long_as_they_said() {
    let _watch = watchdog(Duration::from_secs(120), "waiting");
    let keyway = store("2");
    let mut client = keyway.client(0);
    prepare(&mut client);
    for blocking in [GROUP, READ] {
        let begun = Instant::now();
        let reply = client.words(&blocking.replace("10000", "60"));
        assert!(begun.elapsed() >= Duration::from_millis(60), "{blocking}");
        assert_eq!(reply, Value::NilArray, "{blocking}");
    }
}

#[test]
fn what_is_there_or_wrong_is_answered_at_once_as_by_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(120), "at once");
    let (bare, keyway) = (RedisServer::start(), store("1"));
    let (mut theirs, mut ours) = (bare.client(), keyway.client(0));
    let lines = [
        "XREAD BLOCK 0 STREAMS s 0",
        "XREAD BLOCK 0 STREAMS none s 0 0",
        "XREAD COUNT 1 BLOCK 0 STREAMS s other 0 0",
        "XREAD BLOCK 1 STREAMS none $",
        "XREAD BLOCK 1 STREAMS s 99-0",
        "XREAD BLOCK 1 STREAMS s 18446744073709551615-18446744073709551615",
        "XREAD BLOCK x STREAMS s $",
        "XREAD BLOCK 1.5 STREAMS s $",
        "XREAD BLOCK -1 STREAMS s $",
        "XREAD BLOCK 9223372036854775808 STREAMS s $",
        "XREAD BLOCK 0 STREAMS s",
        "XREAD BLOCK 0 STREAMS s o $",
        "XREAD BLOCK 0 STREAMS s >",
        "XREAD BLOCK 0 STREAMS s x",
        "XREAD BLOCK 0 STREAMS l $",
        "XREAD BLOCK",
        "XREAD BLOCK 0",
        "XREAD BLOCK 0 COUNT 2",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS none >",
        "XREADGROUP GROUP no c BLOCK 0 STREAMS s >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s 0",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS l >",
        "XREADGROUP GROUP g c BLOCK 1 STREAMS s >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s other > >",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS other 0",
        "XREADGROUP BLOCK 0 STREAMS s >",
        "MULTI",
        "XREAD BLOCK 0 STREAMS s $",
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
        "XREAD BLOCK x STREAMS s $",
        "XREAD BLOCK 0 STREAMS s 0",
        "EXEC",
    ];
    for hello in ["HELLO 2", "HELLO 3"] {
        for client in [&mut theirs, &mut ours] {
            prepare(client);
            client.pipeline(&["RPUSH l x", hello]);
        }
        for line in lines {
            assert_eq!(ours.words(line), theirs.words(line), "{hello}: {line}");
        }
    }
}

#[test]
fn who_is_unblocked_or_goes_waits_no_more_and_takes_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "leaving");
    let keyway = store("2");
    let mut other = keyway.client(0);
    prepare(&mut other);
    for blocking in [GROUP, READ] {
        let mut waiting = keyway.client(0);
        let id = waiting.words("CLIENT ID").integer();
        for (how, text) in
            [("TIMEOUT", ""), ("ERROR", "UNBLOCKED client unblocked via CLIENT UNBLOCK")]
        {
            waiting.send(&encode_words(blocking));
            wait_for_blocked(&mut other, 1);
            assert_eq!(other.words(&format!("CLIENT UNBLOCK {id} {how}")), Value::Integer(1));
            let reply = waiting.reply();
            assert_eq!(reply == Value::NilArray, text.is_empty(), "{reply:?}");
            assert_eq!(reply.error_text(), text);
        }
        waiting.send(&encode_words(blocking));
        wait_for_blocked(&mut other, 1);
        drop(waiting);
        wait_for_blocked(&mut other, 0);
    }
    // No client is left for which an entry would be taken.
    other.words("XADD s 9-1 a b");
    let pending = other.words("XPENDING s g");
    assert_eq!(pending.array()[0], Value::Integer(0), "{pending:?}");
}

#[test]
fn entries_of_many_connections_come_to_all_readers_and_to_one_of_a_group() {
    const CONSUMERS: usize = 4;
    const READERS: usize = 2;
    const ENTRIES: usize = 400;
    let _watch = watchdog(Duration::from_secs(120), "many");
    let keyway = store("3");
    let mut other = keyway.client(0);
    prepare(&mut other);
    let address = &keyway;
    let (taken, read) = std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|nth| {
                scope.spawn(move || {
                    let mut client = address.client(0);
                    let line = format!("XREADGROUP GROUP g c{nth} COUNT 3 BLOCK 1500 STREAMS s >");
                    let mut ids = Vec::new();
                    loop {
                        let reply = client.words(&line);
                        if reply == Value::NilArray {
                            return ids;
                        }
                        ids.extend(ids_of(&reply));
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = address.client(0);
                    let mut ids = vec!["1-1".to_owned()];
                    loop {
                        let after = ids.last().expect("an id").clone();
                        let reply = client.words(&format!("XREAD BLOCK 1500 STREAMS s {after}"));
                        if reply == Value::NilArray {
                            return ids;
                        }
                        ids.extend(ids_of(&reply));
                    }
                })
            })
            .collect();
        for nth in 0..ENTRIES {
            other.words(&format!("XADD s 2-{nth} a b"));
        }
        let joined = |them: Vec<std::thread::ScopedJoinHandle<'_, Vec<String>>>| {
            them.into_iter().map(|one| one.join().expect("ids")).collect::<Vec<_>>()
        };
        (joined(consumers), joined(readers))
    });
    let expected: BTreeSet<String> = (0..ENTRIES).map(|nth| format!("2-{nth}")).collect();
    let all: Vec<String> = taken.concat();
    assert_eq!(all.len(), ENTRIES, "each entry once");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
    for mut ids in read {
        ids.remove(0);
        assert_eq!(ids.len(), ENTRIES);
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    assert_eq!(blocked(&mut other), 0);
}

/// Returns the ids of the entries of one stream that was read.
fn ids_of(reply: &Value) -> Vec<String> {
    let entries = reply.array()[0].array()[1].array();
    entries.iter().map(|entry| entry.array()[0].text()).collect()
}
