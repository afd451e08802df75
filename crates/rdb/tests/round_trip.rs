//! The reader reads what the writer writes, in pieces of any size. Every cut, every changed bit and
//! every wrong length is detected.

mod common;

use common::{read_at_once, read_by, show};
use keyway_rdb::{
    Event, Fault, History, Id, Key, Kind, Opened, Part, ReadLimits, Reader, Step, StreamBlock,
    Totals, Version, What, WriteFault, Writer,
};
use proptest::prelude::*;

type Bytes = Vec<u8>;

#[derive(Clone, Debug)]
enum Value {
    Text(Bytes),
    List(Vec<Bytes>),
    Set(Vec<Bytes>),
    Sorted(Vec<(Bytes, f64)>),
    Hash(Vec<(Bytes, Bytes)>),
    Expiring(Vec<(Bytes, Bytes, Option<u64>)>),
    Stream(Stream),
}

/// Whether an entry has the names of its block, and its own names if not.
type StreamEntry = (bool, Vec<(Bytes, Bytes)>);

#[derive(Clone, Debug)]
struct Stream {
    /// The names of a block, and its entries.
    blocks: Vec<(Vec<Bytes>, Vec<StreamEntry>)>,
    groups: Vec<Group>,
    numbers: [u64; 4],
}

#[derive(Clone, Debug)]
struct Group {
    name: Bytes,
    numbers: [u64; 3],
    pending: Vec<(u64, u64)>,
    consumers: Vec<(Bytes, u64, Vec<u64>)>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Bytes,
    attributes: (Option<u64>, Option<u64>, Option<u8>),
    value: Value,
}

fn text() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        (any::<i64>(), 0..63u32).prop_map(|(value, bits)| (value >> bits).to_string().into()),
        proptest::collection::vec(any::<u8>(), 0..100),
        (0..3usize).prop_map(|which| vec![b'x'; [63, 64, 16_384][which]]),
    ]
}

fn some<T: Strategy>(of: T) -> impl Strategy<Value = Vec<T::Value>> {
    proptest::collection::vec(of, 0..6)
}

fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(|(number, bits)| number >> bits)
}

fn stream() -> impl Strategy<Value = Stream> {
    let entry = (any::<bool>(), some((text(), text())));
    let block = (some(text()), proptest::collection::vec(entry, 1..4));
    let group = (
        text(),
        [number(), number(), number()],
        some((number(), number())),
        some((text(), number(), some(number()))),
    )
        .prop_map(|(name, numbers, pending, consumers)| Group {
            name,
            numbers,
            pending,
            consumers,
        });
    (some(block), some(group), [number(), number(), number(), number()])
        .prop_map(|(blocks, groups, numbers)| Stream { blocks, groups, numbers })
}

fn value() -> impl Strategy<Value = Value> {
    let score = any::<f64>().prop_filter("a number", |score| !score.is_nan());
    let time = proptest::option::of(0..1u64 << 46);
    prop_oneof![
        text().prop_map(Value::Text),
        some(text()).prop_map(Value::List),
        some(text()).prop_map(Value::Set),
        some((text(), score)).prop_map(Value::Sorted),
        some((text(), text())).prop_map(Value::Hash),
        some((text(), text(), time)).prop_map(Value::Expiring),
        stream().prop_map(Value::Stream),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let millis = proptest::option::of(0..1u64 << 63);
    let attributes = (millis, proptest::option::of(number()), proptest::option::of(any::<u8>()));
    let entry = (text(), attributes, value()).prop_map(|(name, attributes, value)| Entry {
        name,
        attributes,
        value,
    });
    proptest::collection::vec(entry, 0..5)
}

/// Calls `visit` with the pieces of a file, as a version can contain them.
fn visit(version: Version, entries: &[Entry], visit: &mut dyn FnMut(Event<'_>)) {
    visit(Event::Start(version));
    visit(Event::Aux { name: b"redis-ver", value: b"255.255.255" });
    visit(Event::Aux { name: b"ctime", value: b"1700000000" });
    visit(Event::Library(b"#!lua name=x\n"));
    visit(Event::Database(7));
    visit(Event::Sizes { keys: 100_000, expiring: 70 });
    for entry in entries {
        visit_entry(version, entry, visit);
    }
    visit(Event::End { checked: true });
}

fn visit_entry(version: Version, entry: &Entry, visit: &mut dyn FnMut(Event<'_>)) {
    let value = match &entry.value {
        Value::Text(_) => Opened { kind: Kind::Text, count: None, earliest_ms: None },
        Value::List(list) => Opened::new(Kind::List, list.len() as u64),
        Value::Set(set) => Opened::new(Kind::Set, set.len() as u64),
        Value::Sorted(sorted) => Opened::new(Kind::Sorted, sorted.len() as u64),
        Value::Hash(hash) => Opened::new(Kind::Hash, hash.len() as u64),
        Value::Expiring(hash) if version < Version::Redis12 => {
            Opened::new(Kind::Hash, hash.len() as u64)
        }
        Value::Expiring(hash) => {
            let earliest = hash.iter().filter_map(|(.., time)| *time).min().unwrap_or(0);
            let earliest_ms = (version == Version::Redis12).then_some(earliest);
            Opened { earliest_ms, ..Opened::new(Kind::ExpiringHash, hash.len() as u64) }
        }
        Value::Stream(stream) => Opened::new(Kind::Stream, stream.blocks.len() as u64),
    };
    let (expires_ms, idle_seconds, frequency) = entry.attributes;
    let name = &entry.name;
    visit(Event::Key(Key { name, expires_ms, idle_seconds, frequency, value }));
    let mut part = |part: Part<'_>| visit(Event::Part(part));
    match &entry.value {
        Value::Text(text) => part(Part::Text(text)),
        Value::List(list) => list.iter().for_each(|text| part(Part::Element(text))),
        Value::Set(set) => set.iter().for_each(|text| part(Part::Member(text))),
        Value::Sorted(sorted) => {
            sorted.iter().for_each(|(member, score)| part(Part::Scored { member, score: *score }));
        }
        Value::Hash(hash) => hash
            .iter()
            .for_each(|(name, value)| part(Part::Field { name, value, expires_ms: None })),
        Value::Expiring(hash) => hash.iter().for_each(|(name, value, time)| {
            let expires_ms = time.filter(|_| value_is_expiring(version));
            part(Part::Field { name, value, expires_ms });
        }),
        Value::Stream(stream) => visit_stream(version, stream, &mut part),
    }
    visit(Event::KeyEnd);
}

fn value_is_expiring(version: Version) -> bool {
    version >= Version::Redis12
}

fn visit_stream(version: Version, stream: &Stream, part: &mut dyn FnMut(Part<'_>)) {
    let (mut ms, mut len) = (stream.numbers[0] / 2, 0);
    for (names, entries) in &stream.blocks {
        ms += 1;
        let first = Id { ms, seq: 5 };
        let (count, fields) = (entries.len() as u64, names.len() as u64);
        part(Part::Block(StreamBlock { first, entries: count, deleted: 0, fields, len: 0 }));
        names.iter().for_each(|name| part(Part::BlockField(name)));
        for (nth, (shares_fields, own)) in entries.iter().enumerate() {
            let id = Id { ms, seq: 5 + nth as u64 };
            let fields = if *shares_fields { fields } else { own.len() as u64 };
            part(Part::Entry { id, fields, shares_fields: *shares_fields });
            if *shares_fields {
                names.iter().for_each(|name| part(Part::EntryField { name, value: name }));
            } else {
                own.iter().for_each(|(name, value)| part(Part::EntryField { name, value }));
            }
            len += 1;
        }
    }
    let first = Id { ms: stream.numbers[1], seq: 1 };
    let deleted = Id { ms: stream.numbers[2], seq: 2 };
    let history = History { first, deleted, added: stream.numbers[3] };
    let newest = Id { ms: ms + 1, seq: 0 };
    let history = (version > Version::Redis9).then_some(history);
    part(Part::Totals(Totals { len, newest, history, groups: stream.groups.len() as u64 }));
    for group in &stream.groups {
        visit_group(version, group, part);
    }
}

fn visit_group(version: Version, group: &Group, part: &mut dyn FnMut(Part<'_>)) {
    let [last, seq, read] = group.numbers;
    part(Part::Group {
        name: &group.name,
        last: Id { ms: last, seq },
        entries_read: (version > Version::Redis9).then_some((read >> 1) as i64 - 1),
        pending: group.pending.len() as u64,
    });
    for (nth, (delivered_ms, deliveries)) in group.pending.iter().enumerate() {
        let id = Id { ms: 9, seq: nth as u64 };
        part(Part::Pending { id, delivered_ms: *delivered_ms, deliveries: *deliveries });
    }
    part(Part::Consumers(group.consumers.len() as u64));
    for (name, seen_ms, owned) in &group.consumers {
        part(Part::Consumer {
            name,
            seen_ms: *seen_ms,
            active_ms: (version > Version::Redis10).then_some(*seen_ms as i64 - 1),
            pending: owned.len() as u64,
        });
        owned.iter().for_each(|ms| part(Part::Owned(Id { ms: *ms, seq: 3 })));
    }
}

/// Returns a file of these entries, and its pieces.
fn written(version: Version, entries: &[Entry]) -> (Bytes, Vec<String>) {
    let (mut writer, mut file, mut pieces) = (Writer::new(version), Vec::new(), Vec::new());
    visit(version, entries, &mut |event| {
        writer.write(&event).expect("a piece in order");
        pieces.push(show(event));
        // Some of it is taken in pieces.
        if pieces.len().is_multiple_of(3) {
            writer.take_output(&mut file);
        }
    });
    writer.take_output(&mut file);
    assert!(writer.is_over());
    assert_eq!(writer.len(), file.len() as u64);
    (file, pieces)
}

fn version() -> impl Strategy<Value = Version> {
    proptest::sample::select(Version::ALL.as_slice())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_file_reads_as_it_was_written(
        version in version(),
        entries in entries(),
        size in 1..5000usize,
    ) {
        let (file, pieces) = written(version, &entries);
        prop_assert_eq!(read_at_once(&file), Ok(pieces.clone()));
        prop_assert_eq!(read_by(&file, size), Ok(pieces));
    }

    #[test]
    fn a_file_that_ends_early_says_where(
        version in version(),
        entries in entries(),
        cut in any::<prop::sample::Index>(),
        size in 1..5000usize,
    ) {
        let (file, _) = written(version, &entries);
        let cut = &file[..cut.index(file.len())];
        for read in [read_at_once(cut), read_by(cut, size)] {
            let fault = read.expect_err("a file that is cut off");
            prop_assert_eq!(fault.what(), What::Early);
            prop_assert!(fault.offset() <= cut.len() as u64);
        }
    }

    #[test]
    fn no_changed_bit_goes_unnoticed(
        version in version(),
        entries in entries(),
        bit in any::<prop::sample::Index>(),
        size in 1..5000usize,
    ) {
        let (mut file, _) = written(version, &entries);
        let bit = bit.index(8 * file.len());
        file[bit / 8] ^= 1 << (bit % 8);
        let at_once = read_at_once(&file);
        prop_assert!(at_once.is_err());
        prop_assert_eq!(read_by(&file, size), at_once);
    }

    #[test]
    fn no_bytes_make_it_panic_or_hold_more_than_it_may(
        header in 0..7usize,
        body in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0..27u8,
    ) {
        let headers: [&[u8]; 7] = [b"", b"REDIS0009", b"REDIS0010", b"REDIS0011", b"REDIS0012",
            b"VALKEY080", b"VALKEY081"];
        for body in [body.clone(), [&[kind, 1, b'k'], &body[..]].concat()] {
            let file = [headers[header], &body].concat();
            let at_once = read_at_once(&file);
            prop_assert_eq!(read_by(&file, 1), at_once);
        }
    }
}

#[test]
fn byte_by_byte_is_as_good_as_at_once() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for version in Version::ALL {
        for _ in 0..5 {
            let entries = proptest::strategy::ValueTree::current(
                &entries().new_tree(&mut runner).expect("entries"),
            );
            let (file, pieces) = written(version, &entries);
            assert_eq!(read_by(&file, 1), Ok(pieces));
        }
    }
}

#[test]
fn every_bit_of_a_small_file_is_guarded() {
    let values = [
        Value::Text(b"hello".to_vec()),
        Value::List(vec![b"1".to_vec(), b"two".to_vec()]),
        Value::Sorted(vec![(b"m".to_vec(), 1.5)]),
        Value::Expiring(vec![(b"f".to_vec(), b"v".to_vec(), Some(1_700_000_000_000))]),
    ];
    let entries = values.map(|value| Entry {
        name: b"key".to_vec(),
        attributes: (Some(1_800_000_000_000), Some(7), None),
        value,
    });
    let (file, _) = written(Version::Redis12, &entries);
    for bit in 0..8 * file.len() {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(read_at_once(&changed).is_err(), "bit {bit}");
    }
}

#[test]
fn a_length_that_lies_costs_no_memory() {
    // A list of 2^60 elements, one of which has 2^40 bytes.
    let long = b"REDIS0010\x01\x01k\x81\x10\0\0\0\0\0\0\0\x81\0\0\x01\0\0\0\0\0";
    let mut reader = Reader::new(ReadLimits::default());
    let mut at = 0;
    let fault = loop {
        match reader.read(&long[at..]) {
            Ok(Step::Event { consumed, .. }) => at += consumed,
            Ok(other) => panic!("{other:?}"),
            Err(fault) => break fault,
        }
    };
    let (len, max) = (1 << 40, 512 << 20);
    assert_eq!((fault.offset(), fault.what()), (21, What::StringLong { len, max }));
    // The reader waits for an allowed string, without reserving memory for it.
    let wait = b"REDIS0010\0\x01k\x80\x10\0\0\0";
    let mut reader = Reader::new(ReadLimits::default());
    let mut at = 0;
    let at_least = loop {
        match reader.read(&wait[at..]).expect("a length that is allowed") {
            Step::Event { consumed, .. } => at += consumed,
            Step::More { at_least, .. } => break at_least,
            Step::Over => panic!("over"),
        }
    };
    assert_eq!(at_least, (256 << 20) + 5);
    let limits = ReadLimits { string_len_max: 100, block_len_max: 10 };
    let fault = |file: &[u8]| -> Fault {
        let mut reader = Reader::new(limits);
        let mut at = 0;
        loop {
            match reader.read(&file[at..]) {
                Ok(Step::Event { consumed, .. }) => at += consumed,
                Ok(other) => panic!("{other:?}"),
                Err(fault) => return fault,
            }
        }
    };
    let text = fault(b"REDIS0010\0\x01k\x40\x65");
    assert_eq!((text.offset(), text.what()), (12, What::StringLong { len: 101, max: 100 }));
    let block = fault(b"REDIS0010\x10\x01k\x0b");
    assert_eq!((block.offset(), block.what()), (12, What::BlockLong { len: 11, max: 10 }));
    assert_eq!(
        text.to_string(),
        "RDB, byte 12: a string of 101 bytes is longer than the limit of 100"
    );
}

#[test]
fn pieces_out_of_order_are_not_written() {
    let list = Event::Key(Key::new(b"k", Opened::new(Kind::List, 2)));
    let element = Event::Part(Part::Element(b"e"));
    let end = Event::End { checked: true };
    for (events, fault) in [
        (vec![element], WriteFault::Order),
        (vec![Event::KeyEnd], WriteFault::Order),
        (vec![list, list], WriteFault::Order),
        (vec![list, end], WriteFault::Order),
        (vec![list, Event::Part(Part::Member(b"m"))], WriteFault::Order),
        (vec![list, element, Event::KeyEnd], WriteFault::Missing),
        (vec![list, element, element, element], WriteFault::Order),
        (vec![end, Event::Database(1)], WriteFault::Order),
        (
            vec![Event::Key(Key::new(b"k", Opened::new(Kind::ExpiringHash, 1)))],
            WriteFault::Version(Version::Redis11),
        ),
        (
            vec![Event::Key(Key::new(
                b"k",
                Opened { kind: Kind::List, count: None, earliest_ms: None },
            ))],
            WriteFault::Uncounted,
        ),
    ] {
        let mut writer = Writer::new(Version::Redis11);
        let (last, before) = events.split_last().expect("events");
        before.iter().for_each(|event| writer.write(event).expect("in order"));
        let len = writer.len();
        assert_eq!(writer.write(last), Err(fault), "{events:?}");
        assert_eq!(writer.len(), len, "nothing was written");
    }
}

#[test]
fn values_as_dump_has_them_become_keys() {
    let mut writer = Writer::new(Version::Redis9);
    let mut key = Key::new(b"k", Opened::new(Kind::Set, 0));
    key.expires_ms = Some(5);
    let version = Version::Valkey80;
    writer.dumped(&key, version, b"\x02\x01\x01m").expect("a set");
    let listpack = writer.dumped(&key, version, b"\x10\x07\x07\0\0\0\0\0\xff");
    assert_eq!(listpack, Err(WriteFault::Version(Version::Redis9)));
    assert_eq!(writer.dumped(&key, version, b""), Err(WriteFault::Missing));
    // Redis and Valkey both have type 22, with different meanings.
    let mut newer = Writer::new(Version::Redis12);
    let hash = newer.dumped(&key, version, b"\x16\0");
    assert_eq!(hash, Err(WriteFault::Version(Version::Redis12)));
    newer.dumped(&key, Version::Redis12, b"\x16\0").expect("a hash");
    writer.write(&Event::End { checked: false }).expect("the end");
    let pieces = read_at_once(writer.output()).expect("a file");
    let expected = [
        Event::Start(Version::Redis9),
        Event::Key(Key { value: Opened::new(Kind::Set, 1), ..key }),
        Event::Part(Part::Member(b"m")),
        Event::KeyEnd,
        Event::End { checked: false },
    ];
    assert_eq!(pieces, expected.map(show));
}
