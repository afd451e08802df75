//! DUMP and RESTORE beside a real redis-server 7: what either gives the other
//! takes, and both refuse the same.
//!
//! Left out of the comparison: the order of elements that have none; scores that
//! are no numbers, and values that run into their payload's footer, which only
//! the store refuses.

mod common;

use common::payloads::{Words, ok, ours, payload_of, store, theirs};
use common::redis::Redis;
use common::{Random, Reply};
use keyway_rdb::payload;
use keyway_store::{Store, StoreConfig};

/// Settings of the server before it makes payloads of its own.
const SETTINGS: [&[(&str, &str)]; 6] = [
    &[],
    &[("rdbcompression", "yes")],
    &[("list-compress-depth", "1"), ("rdbcompression", "yes"), ("list-max-listpack-size", "-1")],
    &[("list-compress-depth", "2"), ("list-max-listpack-size", "7")],
    &[
        ("hash-max-listpack-entries", "0"),
        ("zset-max-listpack-entries", "0"),
        ("set-max-intset-entries", "0"),
        ("list-max-listpack-size", "1"),
    ],
    &[
        ("hash-max-listpack-entries", "100000"),
        ("hash-max-listpack-value", "100000"),
        ("zset-max-listpack-entries", "100000"),
        ("zset-max-listpack-value", "100000"),
        ("set-max-intset-entries", "100000"),
        ("list-max-listpack-size", "-5"),
    ],
];

fn words(line: &[&str]) -> Words {
    line.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn restore(payload: &[u8]) -> Words {
    vec![b"restore".to_vec(), b"k".to_vec(), b"0".to_vec(), payload.to_vec(), b"replace".to_vec()]
}

/// The value of a key, with what has no order in order.
fn contents(ask: &mut dyn FnMut(&[Vec<u8>]) -> Reply) -> Reply {
    let Reply::Simple(kind) = ask(&words(&["type", "k"])) else { panic!("no type") };
    match kind.as_str() {
        "string" => ask(&words(&["get", "k"])),
        "list" => ask(&words(&["lrange", "k", "0", "-1"])),
        "zset" => ask(&words(&["zrange", "k", "0", "-1", "withscores"])),
        "set" => {
            let mut members = ask(&words(&["smembers", "k"])).strings();
            members.sort();
            Reply::Array(Some(members.into_iter().map(|text| Reply::Bulk(Some(text))).collect()))
        }
        "hash" => {
            let strings = ask(&words(&["hgetall", "k"])).strings();
            let mut pairs: Vec<&[Vec<u8>]> = strings.chunks(2).collect();
            pairs.sort();
            let text = |text: &Vec<u8>| Reply::Bulk(Some(text.clone()));
            Reply::Array(Some(pairs.concat().iter().map(text).collect()))
        }
        other => Reply::Simple(other.to_owned()),
    }
}

fn text(random: &mut Random) -> Vec<u8> {
    let number = random.next() as i64;
    match random.below(12) {
        0 => Vec::new(),
        1 => (number as i8).to_string().into_bytes(),
        2 => (number as i16).to_string().into_bytes(),
        3 => (number as i32).to_string().into_bytes(),
        4 => number.wrapping_mul(0x1_0000_0001).to_string().into_bytes(),
        5 => vec![b'r'; random.below(300)],
        6 => "abcabcd".repeat(random.below(40)).into_bytes(),
        7 => (0..random.below(80)).map(|_| random.next() as u8).collect(),
        8 => format!("0{number}").into_bytes(),
        _ => format!("v{}", number & 0xffff).into_bytes(),
    }
}

/// Commands that make a value of any type at `k`.
fn value(random: &mut Random) -> Vec<Words> {
    let count = [1, 2, 5, 30, 127, 129, 500, 520, 3000][random.below(9)];
    let kind = random.below(8);
    let name = ["set", "hset", "rpush", "sadd", "sadd", "zadd", "zadd", "lpush"][kind];
    let mut line = words(&[name, "k"]);
    let floats = ["1.5", "-0.1", "1e300", "inf", "-inf", "3.0000000000000004", "1e17"];
    if kind == 0 {
        let long = 1 + random.below(70_000);
        line.push(if random.once_in(6) { vec![b'l'; long] } else { text(random) });
        return vec![line];
    }
    let spread = [40, 40_000, 3_000_000_000usize][random.below(3)] as i64;
    for nth in 0..count {
        match kind {
            1 => line.extend([format!("{}f{nth}", nth % 2).into_bytes(), text(random)]),
            3 => line.push((random.next() as i64 % spread).to_string().into_bytes()),
            5 => line.extend([random.pick(&floats).as_bytes().to_vec(), text(random)]),
            6 => line.extend([(nth as i64 - spread).to_string().into_bytes(), text(random)]),
            _ => line.push(text(random)),
        }
    }
    vec![line]
}

#[test]
fn what_the_server_dumps_the_store_restores() {
    for (number, settings) in SETTINGS.iter().enumerate() {
        let (mut redis, store) = (Redis::start(1), store());
        for (name, value) in *settings {
            assert_eq!(theirs(&mut redis, &words(&["config", "set", name, value])), ok());
        }
        let mut random = Random::new(77 + number as u64);
        for _ in 0..150 {
            theirs(&mut redis, &words(&["del", "k"]));
            value(&mut random).iter().for_each(|line| _ = theirs(&mut redis, line));
            let payload = payload_of(&theirs(&mut redis, &words(&["dump", "k"])));
            assert_eq!(ours(&store, &restore(&payload)), ok());
            let expected = contents(&mut |words| theirs(&mut redis, words));
            assert_eq!(contents(&mut |words| ours(&store, words)), expected);
            let encoding = words(&["object", "encoding", "k"]);
            if number < 4 && !payload.starts_with(b"\0") {
                assert_eq!(ours(&store, &encoding), theirs(&mut redis, &encoding));
            }
        }
    }
}

#[test]
fn what_the_store_dumps_the_server_restores() {
    let (mut redis, store) = (Redis::start(1), store());
    let sanitize = words(&["config", "set", "sanitize-dump-payload", "yes"]);
    assert_eq!(theirs(&mut redis, &sanitize), ok());
    let mut random = Random::new(99);
    for _ in 0..600 {
        ours(&store, &words(&["del", "k"]));
        value(&mut random).iter().for_each(|line| _ = ours(&store, line));
        let payload = payload_of(&ours(&store, &words(&["dump", "k"])));
        assert_eq!(theirs(&mut redis, &restore(&payload)), ok());
        let expected = contents(&mut |words| theirs(&mut redis, words));
        assert_eq!(contents(&mut |words| ours(&store, words)), expected);
        let encoding = words(&["object", "encoding", "k"]);
        if !payload.starts_with(b"\0") {
            assert_eq!(ours(&store, &encoding), theirs(&mut redis, &encoding));
        }
    }
}

#[test]
fn the_same_value_is_dumped_alike_where_it_has_an_order() {
    let (mut redis, store) = (Redis::start(1), store());
    let mut random = Random::new(123);
    let mut equal = 0;
    for _ in 0..600 {
        ours(&store, &words(&["del", "k"]));
        theirs(&mut redis, &words(&["del", "k"]));
        let lines = value(&mut random);
        for line in &lines {
            assert_eq!(ours(&store, line), theirs(&mut redis, line));
        }
        let dump = words(&["dump", "k"]);
        let (mine, other) = (ours(&store, &dump), theirs(&mut redis, &dump));
        let kind = payload_of(&other)[0];
        // Tables have no order, and a list's blocks tell how it came about.
        if matches!(kind, 2 | 4) || lines[0][0] == b"lpush" {
            assert_eq!(payload_of(&mine)[0], kind);
            continue;
        }
        assert_eq!(mine, other);
        equal += 1;
    }
    assert!(equal > 300);
}

/// A payload of these bytes.
fn sealed(value: &[u8]) -> Vec<u8> {
    let mut payload = value.to_vec();
    payload::seal(&mut payload);
    payload
}

/// A ziplist of these strings.
fn ziplist(strings: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0; 10];
    let (mut before, mut last_at) = (0, 10);
    for text in strings {
        last_at = bytes.len();
        bytes.push(before);
        match text {
            [b'i', value] => bytes.extend_from_slice(&[0xfe, *value]),
            _ => {
                bytes.push(text.len() as u8);
                bytes.extend_from_slice(text);
            }
        }
        before = (bytes.len() - last_at) as u8;
    }
    bytes.push(0xff);
    let len = bytes.len() as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&(last_at as u32).to_le_bytes());
    bytes[8..10].copy_from_slice(&(strings.len() as u16).to_le_bytes());
    bytes
}

fn block(kind: u8, blocks: &[&[u8]]) -> Vec<u8> {
    let mut value = vec![kind];
    blocks.iter().for_each(|block| keyway_rdb::format::write_bytes(block, &mut value));
    value
}

/// Values of every form that is read.
fn forms() -> Vec<Vec<u8>> {
    let pairs = ziplist(&[b"one", b"1.5", b"two", b"i\x02", b"i\x03", b"inf"]);
    let mut ziplists = block(14, &[&pairs, &ziplist(&[]), &pairs]);
    ziplists.insert(1, 3);
    let mut zipmap = b"\x02\x03foo\x03\x02barXY\x05hello\xfe\x2c\x01\0\0\x00".to_vec();
    zipmap.extend_from_slice(&[b'w'; 300]);
    zipmap.push(0xff);
    let mut forms = vec![
        block(9, &[&zipmap]),
        block(10, &[&pairs]),
        block(12, &[&pairs]),
        block(13, &[&pairs]),
        ziplists,
        b"\x01\x03\x01a\xc0\x05\xc3\x07\x0c\x02abc\xe0\x00\x02".to_vec(),
        b"\x03\x03\x01a\x031.5\x01b\xff\xc1\x05\x00\xfe".to_vec(),
        block(11, &[b"\x02\0\0\0\x03\0\0\0\xfe\xff\x01\0\x02\0"]),
        b"\x12\x01\x01\x05plain".to_vec(),
    ];
    // The store writes these payloads.
    let store = store();
    for line in [
        "set k 12345",
        "set k text",
        "hset k a 1 b 70000 c text 3 -5000",
        "rpush k a 1 -1 70000 text 123456789012 -3000000",
        "sadd k 1 2 3 40000",
        "sadd k 1 2 3 text",
        "zadd k 1 a 2.5 b inf c",
    ] {
        ours(&store, &words(&["del", "k"]));
        let line: Vec<&str> = line.split(' ').collect();
        ours(&store, &words(&line));
        let payload = payload_of(&ours(&store, &words(&["dump", "k"])));
        forms.push(payload[..payload.len() - payload::FOOTER_LEN].to_vec());
    }
    let mut line = words(&["zadd", "k"]);
    (0..130).for_each(|nth| line.extend(words(&[&nth.to_string(), &format!("m{nth}")])));
    ours(&store, &words(&["del", "k"]));
    ours(&store, &line);
    let payload = payload_of(&ours(&store, &words(&["dump", "k"])));
    forms.push(payload[..payload.len() - payload::FOOTER_LEN].to_vec());
    forms
}

#[test]
fn every_form_is_read_as_the_server_reads_it() {
    let (mut redis, store) = (Redis::start(1), store());
    for form in forms() {
        let line = restore(&sealed(&form));
        assert_eq!((ours(&store, &line), theirs(&mut redis, &line)), (ok(), ok()), "{form:?}");
        let expected = contents(&mut |words| theirs(&mut redis, words));
        assert_eq!(contents(&mut |words| ours(&store, words)), expected, "{form:?}");
    }
}

/// A copy with some bytes changed, left out or doubled.
fn changed(form: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = form.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(copy.len());
        match random.below(8) {
            0 => copy.truncate(at.max(1)),
            1 => drop(copy.remove(at.max(1).min(copy.len() - 1))),
            2 => copy.insert(at, random.next() as u8),
            3 => copy[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xfe, 0xff]),
            4 => copy[at] ^= 1 << random.below(8),
            _ => copy[at] = copy[at].wrapping_add(1),
        }
        if copy.is_empty() {
            copy.push(0);
        }
    }
    copy
}

#[test]
fn what_was_tampered_with_is_refused_where_the_server_refuses_it() {
    let (mut redis, store) = (Redis::start(1), store());
    let sanitize = words(&["config", "set", "sanitize-dump-payload", "yes"]);
    assert_eq!(theirs(&mut redis, &sanitize), ok());
    let forms = forms();
    let mut random = Random::new(4);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..15_000 {
        let form = changed(&forms[random.below(forms.len())], &mut random);
        // Modules and streams are another matter.
        if matches!(form[0], 6 | 7 | 15 | 19..) {
            continue;
        }
        let line = restore(&sealed(&form));
        let (mine, other) = (ours(&store, &line), theirs(&mut redis, &line));
        if mine != other {
            // The server reads on into the footer, or what is no score.
            let with_footer = restore(&sealed(&sealed(&form)));
            let allowed = ours(&store, &with_footer) == ok() || matches!(form[0], 3 | 5 | 12 | 17);
            assert!(allowed && other == ok(), "{form:?}: {mine:?}, {other:?}");
            continue;
        }
        if mine != ok() {
            refused += 1;
            continue;
        }
        taken += 1;
        let expected = contents(&mut |words| theirs(&mut redis, words));
        let found = contents(&mut |words| ours(&store, words));
        // The server keeps a listpack in whatever order it came in.
        assert!(found == expected || matches!(form[0], 12 | 17), "{form:?}");
    }
    assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
}

#[test]
fn errors_come_in_the_order_of_the_server() {
    let (mut redis, store) = (Redis::start(1), store());
    let payload = sealed(b"\0\x05value");
    let mut broken = payload.clone();
    broken[3] ^= 1;
    let empty_set = sealed(b"\x02\0");
    for line in [
        "restore k",
        "restore k 0",
        "restore k 0 P",
        "restore k 0 P",
        "restore k x X",
        "restore k -1 X",
        "restore j x X",
        "restore j -1 X",
        "restore j 0 X",
        "restore j 0 E",
        "restore j 0 short",
        "restore k 0 P replace absttl",
        "restore k 0 P REPLACE what",
        "restore k 0 P idletime",
        "restore k 0 P idletime x",
        "restore k 0 P idletime -1",
        "restore k 0 P idletime 5 freq 5",
        "restore k 0 P freq 5 idletime 5",
        "restore k 0 P freq 256",
        "restore k 0 P freq -1 replace",
        "restore k 0 P freq",
        "restore k 0 P replace freq 255",
        "restore k 1000000 P replace idletime 1000",
        "object idletime k",
        "exists k",
        "restore k 1 P replace absttl",
        "exists k",
        "restore k 9223372036854775807 P replace",
        "exists k",
        "restore k 9223372036854775807 P replace absttl",
        "pexpiretime k",
        "restore k 4000000000000 P absttl replace",
        "pexpiretime k",
        "restore k 0 P replace",
        "pexpiretime k",
        "dump k",
        "dump missing",
        "dump",
        "dump k k",
    ] {
        let line: Words = line
            .split(' ')
            .map(|word| match word {
                "P" => payload.clone(),
                "X" => broken.clone(),
                "E" => empty_set.clone(),
                word => word.as_bytes().to_vec(),
            })
            .collect();
        let show = String::from_utf8_lossy(&line.join(&b' ')).into_owned();
        assert_eq!(ours(&store, &line), theirs(&mut redis, &line), "{show}");
    }
}

#[test]
fn nothing_is_restored_that_memory_has_no_room_for() {
    let bomb = {
        // A string that packs 264 bytes in three.
        let mut packed = vec![0, b'x'];
        (0..4000).for_each(|_| packed.extend_from_slice(&[0xe0, 0xff, 0]));
        let mut value = vec![0, 0xc3];
        keyway_rdb::format::write_len(packed.len() as u64, &mut value);
        keyway_rdb::format::write_len(1 + 4000 * 264, &mut value);
        value.extend_from_slice(&packed);
        sealed(&value)
    };
    let small =
        Store::new(StoreConfig { memory_max: 1 << 20, shards: Some(1), ..StoreConfig::default() });
    let reply = ours(&small, &restore(&bomb));
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("OOM ")), "{reply:?}");
    let large = store();
    assert_eq!(ours(&large, &restore(&bomb)), ok());
    assert_eq!(ours(&large, &words(&["strlen", "k"])), Reply::Integer(1 + 4000 * 264));
}

#[test]
fn no_payload_makes_it_panic_or_leaves_a_key_half_done() {
    let forms = forms();
    let mut random = Random::new(11);
    let store = store();
    let kept = words(&["set", "k", "kept"]);
    for _ in 0..200_000 {
        let form = match random.once_in(8) {
            true => (0..random.below(64)).map(|_| random.next() as u8).collect(),
            false => changed(&forms[random.below(forms.len())], &mut random),
        };
        ours(&store, &kept);
        if ours(&store, &restore(&sealed(&form))) != ok() {
            let value = ours(&store, &words(&["get", "k"]));
            assert_eq!(value, Reply::Bulk(Some(b"kept".to_vec())));
        }
    }
}
