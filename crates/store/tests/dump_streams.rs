//! DUMP and RESTORE of streams beside a real redis-server 7: nothing that XINFO
//! tells of a stream is lost on the way there or back, and what is no stream is
//! refused.
//!
//! Left out of the comparison: how many nodes a tree has.

mod common;

use common::payloads::{Words, ok, ours, payload_of, store, theirs};
use common::redis::Redis;
use common::{Random, Reply};
use keyway_rdb::payload;
use keyway_store::{Store, StoreConfig};

/// Settings of the server before it makes payloads of its own.
const SETTINGS: [&[(&str, &str)]; 4] = [
    &[],
    &[("rdbcompression", "yes")],
    &[("stream-node-max-entries", "3")],
    &[("stream-node-max-entries", "0"), ("stream-node-max-bytes", "0")],
];

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn restore(payload: &[u8]) -> Words {
    let mut line = words("restore k 0 P replace");
    line[3] = payload.to_vec();
    line
}

/// All that is told of a stream; `with_blocks` also how many there are.
fn told(ask: &mut dyn FnMut(&[Vec<u8>]) -> Reply, with_blocks: bool) -> Vec<Reply> {
    let full = ask(&words("xinfo stream k full count 0"));
    let Reply::Array(Some(mut fields)) = full else { panic!("no stream: {full:?}") };
    let is = |reply: &Reply, name: &str| *reply == Reply::Bulk(Some(name.into()));
    for name in ["radix-tree-nodes", "radix-tree-keys"] {
        if let Some(at) = fields.iter().position(|field| is(field, name))
            && !(with_blocks && name == "radix-tree-keys")
        {
            fields.drain(at..at + 2);
        }
    }
    fields.push(ask(&words("xrevrange k + -")));
    fields
}

/// Commands that make a stream at `k`; with `whole` none that leave a hole in a
/// block.
fn lines(random: &mut Random, whole: bool) -> Vec<Words> {
    let mut lines = Vec::new();
    let count = [0, 1, 3, 40, 250][random.below(5)];
    let mut id = (1 + random.below(1 << 30) as u64, random.below(3) as u64);
    let mut ids = Vec::new();
    for _ in 0..count {
        match random.below(3) {
            0 => id.1 += 1 + random.below(3) as u64,
            _ => id = (id.0 + 1 + (random.next() & 0xfff), random.below(200) as u64),
        }
        ids.push(id);
        let mut line = words(&format!("xadd k {}-{}", id.0, id.1));
        let fields = [1, 2, 2, 2, 5][random.below(5)];
        for nth in 0..fields {
            let name = if random.once_in(9) { format!("{nth}") } else { format!("name{nth}") };
            let value = match random.below(5) {
                0 => (random.next() as i64).to_string(),
                1 => (random.next() as i8).to_string(),
                2 => "v".repeat(random.below(300)),
                3 => String::new(),
                _ => format!("text{}", random.below(99)),
            };
            line.extend([name.into_bytes(), value.into_bytes()]);
        }
        lines.push(line);
    }
    for group in ["g", "group 2", "h"].iter().take(random.below(4)) {
        let begin = match ids.get(random.below(ids.len() + 1)) {
            Some(id) if random.once_in(2) => format!("{}-{}", id.0, id.1),
            _ => ["0", "$"][random.below(2)].to_owned(),
        };
        let mut line = words(&format!("xgroup create k G {begin} mkstream"));
        line[3] = group.as_bytes().to_vec();
        lines.push(line);
        for _ in 0..random.below(5) {
            let consumer = random.below(3);
            let limit = 1 + random.below(50);
            let line = format!("xreadgroup group G c{consumer} count {limit} streams k >");
            let mut line = words(&line);
            line[2] = group.as_bytes().to_vec();
            lines.push(line);
            let Some(id) = ids.get(random.below(ids.len() + 1)) else { continue };
            let id = format!("{}-{}", id.0, id.1);
            let line = match random.below(4) {
                0 => format!("xack k G {id}"),
                1 => format!("xclaim k G other 0 {id} retrycount 700 time 1700000000000"),
                2 => format!("xclaim k G c{consumer} 0 {id} force"),
                _ => format!("xgroup createconsumer k G idle{consumer}"),
            };
            let mut line = words(&line);
            let at = if line[0] == b"xgroup" { 3 } else { 2 };
            line[at] = group.as_bytes().to_vec();
            lines.push(line);
        }
    }
    let (mut removed, mut keep) = (0, random.below(300));
    if !whole {
        for id in ids.iter().filter(|_| random.once_in(4)) {
            lines.push(words(&format!("xdel k {}-{}", id.0, id.1)));
            removed += 1;
        }
        if random.once_in(3) {
            keep = random.below(ids.len() + 1);
            lines.push(words(&format!("xtrim k maxlen {keep}")));
        }
    } else if random.once_in(3) {
        lines.push(words(&format!("xtrim k maxlen ~ {keep}")));
    }
    if random.once_in(3) {
        let entries = ids.len() + removed + keep;
        lines.push(words(&format!(
            "xsetid k {}-7 entriesadded {entries} maxdeletedid {}-1",
            id.0 + 5,
            id.0
        )));
    }
    lines.push(words("xgroup create k last $ mkstream"));
    lines
}

#[test]
fn what_the_server_dumps_the_store_restores_and_the_other_way_round() {
    for (number, settings) in SETTINGS.iter().enumerate() {
        let (mut redis, store) = (Redis::start(1), store());
        for (name, value) in *settings {
            assert_eq!(theirs(&mut redis, &words(&format!("config set {name} {value}"))), ok());
        }
        let sanitize = words("config set sanitize-dump-payload yes");
        assert_eq!(theirs(&mut redis, &sanitize), ok());
        let is_default = number < 2;
        let mut random = Random::new(177 + number as u64);
        for _ in 0..120 {
            theirs(&mut redis, &words("del k"));
            for line in lines(&mut random, false) {
                theirs(&mut redis, &line);
            }
            let payload = payload_of(&theirs(&mut redis, &words("dump k")));
            assert_eq!(ours(&store, &restore(&payload)), ok());
            let expected = told(&mut |words| theirs(&mut redis, words), is_default);
            assert_eq!(told(&mut |words| ours(&store, words), is_default), expected);
            // And back.
            let payload = payload_of(&ours(&store, &words("dump k")));
            assert_eq!(theirs(&mut redis, &restore(&payload)), ok());
            assert_eq!(told(&mut |words| theirs(&mut redis, words), is_default), expected);
            // Commands that follow find the same stream.
            for line in ["xadd k * a b", "xtrim k maxlen ~ 60", "xack k g 0-1", "xlen k"] {
                let (mine, other) = (ours(&store, &words(line)), theirs(&mut redis, &words(line)));
                assert!(mine == other || line.contains('*') || !is_default, "{line}");
            }
        }
    }
}

#[test]
fn the_same_stream_is_dumped_alike() {
    let (mut redis, store) = (Redis::start(1), store());
    let mut random = Random::new(5);
    for _ in 0..300 {
        ours(&store, &words("del k"));
        theirs(&mut redis, &words("del k"));
        // Deliveries have times.
        let reads = |line: &Words| matches!(&line[0][..], b"xreadgroup" | b"xclaim" | b"xgroup");
        for line in lines(&mut random, true).iter().filter(|line| !reads(line)) {
            assert_eq!(ours(&store, line), theirs(&mut redis, line));
        }
        let dump = words("dump k");
        assert_eq!(ours(&store, &dump), theirs(&mut redis, &dump));
    }
}

#[test]
fn a_payload_that_was_dumped_here_is_the_same_after_its_way_through_a_server() {
    let (mut redis, store) = (Redis::start(1), store());
    let mut random = Random::new(31);
    for _ in 0..100 {
        ours(&store, &words("del k"));
        for line in lines(&mut random, false) {
            ours(&store, &line);
        }
        let payload = payload_of(&ours(&store, &words("dump k")));
        assert_eq!(theirs(&mut redis, &restore(&payload)), ok());
        let back = payload_of(&theirs(&mut redis, &words("dump k")));
        assert_eq!(back, payload);
        assert_eq!(ours(&store, &restore(&back)), ok());
        assert_eq!(payload_of(&ours(&store, &words("dump k"))), payload);
    }
}

/// A payload of these bytes.
fn sealed(value: &[u8]) -> Vec<u8> {
    let mut payload = value.to_vec();
    payload::seal(&mut payload);
    payload
}

fn values(count: usize) -> Vec<Vec<u8>> {
    let store = store();
    let mut random = Random::new(8);
    let value = |_| {
        ours(&store, &words("del k"));
        for line in lines(&mut random, false) {
            ours(&store, &line);
        }
        let payload = payload_of(&ours(&store, &words("dump k")));
        payload[..payload.len() - payload::FOOTER_LEN].to_vec()
    };
    (0..count).map(value).filter(|value| value.len() < 900).collect()
}

/// A copy with some bytes changed, left out or doubled.
fn changed(value: &[u8], random: &mut Random) -> Vec<u8> {
    let mut copy = value.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(copy.len()).max(1).min(copy.len() - 1);
        match random.below(8) {
            0 => copy.truncate(at + 1),
            1 if copy.len() > 2 => drop(copy.remove(at)),
            2 => copy.insert(at, random.next() as u8),
            3 => copy[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xfe, 0xff]),
            4 => copy[at] ^= 1 << random.below(8),
            _ => copy[at] = copy[at].wrapping_add(1),
        }
    }
    copy
}

#[test]
fn what_was_tampered_with_is_refused_or_is_what_the_server_takes_it_for() {
    let (mut redis, store) = (Redis::start(1), store());
    let sanitize = words("config set sanitize-dump-payload yes");
    assert_eq!(theirs(&mut redis, &sanitize), ok());
    let values = values(100);
    let mut random = Random::new(4);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let line = restore(&sealed(&changed(&values[random.below(values.len())], &mut random)));
        if ours(&store, &line) != ok() {
            refused += 1;
            continue;
        }
        taken += 1;
        assert_eq!(theirs(&mut redis, &line), ok(), "{:?}", line[3]);
        let mine = ours(&store, &words("xrange k - +"));
        assert_eq!(mine, theirs(&mut redis, &words("xrange k - +")), "{:?}", line[3]);
        // Of it there is a payload that is taken.
        let again = restore(&payload_of(&ours(&store, &words("dump k"))));
        assert_eq!(ours(&store, &again), ok());
    }
    assert!(taken > 1000 && refused > 1000, "{taken} {refused}");
}

#[test]
fn older_and_newer_forms_are_read() {
    let store = store();
    // Two entries of one block, and a group with a consumer that has one.
    let elements = b"\x02\x01\0\x01\x01\x01\x81a\x02\0\x01\
        \x02\x01\0\x01\0\x01\x81x\x02\x04\x01\
        \x02\x01\x05\x01\0\x01\x07\x01\x04\x01\xff";
    let mut listpack = (elements.len() as u32 + 6).to_le_bytes().to_vec();
    listpack.extend_from_slice(&[15, 0]);
    listpack.extend_from_slice(elements);
    let id = |ms: u8, seq: u8| {
        let mut bytes = [0; 16];
        (bytes[7], bytes[15]) = (ms, seq);
        bytes
    };
    let value = |kind: u8| {
        let mut bytes = vec![kind, 1];
        keyway_rdb::format::write_bytes(&id(3, 1), &mut bytes);
        keyway_rdb::format::write_bytes(&listpack, &mut bytes);
        bytes.extend_from_slice(&[2, 8, 1]);
        if kind != 15 {
            bytes.extend_from_slice(&[3, 1, 2, 2, 9]);
        }
        bytes.extend_from_slice(b"\x01\x01g\x03\x01");
        if kind != 15 {
            bytes.push(4);
        }
        bytes.push(1);
        bytes.extend_from_slice(&id(3, 1));
        bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 6]);
        bytes.extend_from_slice(b"\x01\x01c\x02\0\0\0\0\0\0\0");
        if kind == 21 {
            bytes.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.push(1);
        bytes.extend_from_slice(&id(3, 1));
        bytes
    };
    let mut redis = Redis::start(1);
    for kind in [15, 19, 21] {
        let line = restore(&sealed(&value(kind)));
        assert_eq!(ours(&store, &line), ok(), "{kind}");
        // Redis 7.0 does not show the fields that 7.2 adds.
        let known = if kind == 21 { restore(&sealed(&value(19))) } else { line };
        assert_eq!(theirs(&mut redis, &known), ok(), "{kind}");
        let expected = told(&mut |words| theirs(&mut redis, words), true);
        assert_eq!(told(&mut |words| ours(&store, words), true), expected, "{kind}");
    }
    // A set as 7.2 writes it, in its version of the form.
    let mut payload = b"\x14\x0c\x0c\0\0\0\x02\0\x81a\x02\x05\x01\xff\x0b\0".to_vec();
    let sum = keyway_rdb::checksum(&payload);
    payload.extend_from_slice(&sum.to_le_bytes());
    assert_eq!(ours(&store, &restore(&payload)), ok());
    let mut members = ours(&store, &words("smembers k")).strings();
    members.sort();
    assert_eq!(members, [b"5".to_vec(), b"a".to_vec()]);
}

#[test]
fn no_stream_is_restored_that_memory_has_no_room_for() {
    let large = store();
    for nth in 1..30_000 {
        ours(&large, &words(&format!("xadd k {nth}-1 name value{nth}")));
    }
    let payload = payload_of(&ours(&large, &words("dump k")));
    let small =
        Store::new(StoreConfig { memory_max: 1 << 18, shards: Some(1), ..StoreConfig::default() });
    let reply = ours(&small, &restore(&payload));
    assert!(matches!(&reply, Reply::Error(text) if text.starts_with("OOM ")), "{reply:?}");
}
