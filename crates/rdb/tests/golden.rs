//! Bytes that were created by hand from the definition of the format, and what they must be read
//! as. Debian has no server that writes what they contain: ziplists and zipmaps of old servers,
//! expiring fields of Redis 7.4, and files of Valkey 9.

mod common;

use common::{file, read_at_once, read_by};
use keyway_rdb::{Fault, Form, StreamPart, What};

/// Returns the parts of the only value of a file, or its fault. It checks that a file read in
/// pieces gives the same.
fn parts(header: &[u8], body: &[u8]) -> Result<Vec<String>, Fault> {
    let file = file(header, body);
    let read = read_at_once(&file);
    for size in [1, 2, 7] {
        assert_eq!(read_by(&file, size), read);
    }
    let read = read?;
    for cut in 0..file.len() {
        let fault = read_at_once(&file[..cut]).expect_err("a file that is cut off");
        assert_eq!(fault.what(), What::Early, "cut at {cut}");
    }
    let parts = read.iter().filter_map(|piece| piece.strip_prefix("Part(")?.strip_suffix(')'));
    Ok(parts.map(str::to_owned).collect())
}

fn fault(header: &[u8], body: &[u8]) -> (u64, What) {
    let fault = parts(header, body).expect_err("a fault");
    (fault.offset(), fault.what())
}

fn bytes(text: &str) -> String {
    format!("{:?}", text.as_bytes())
}

fn field(name: &str, value: &str, expires_ms: Option<u64>) -> String {
    let (name, value) = (bytes(name), bytes(value));
    format!("Field {{ name: {name}, value: {value}, expires_ms: {expires_ms:?} }}")
}

const REDIS_9: &[u8] = b"REDIS0009";
const REDIS_10: &[u8] = b"REDIS0010";
const REDIS_12: &[u8] = b"REDIS0012";
const VALKEY_80: &[u8] = b"VALKEY080";
const VALKEY_81: &[u8] = b"VALKEY081";

/// A time whose six bytes are not all zero: 0x0180_0000_0001.
const TIME: u64 = 1_649_267_441_665;

#[test]
fn fields_of_valkey_9_have_their_times_behind_them() {
    let time = TIME.to_le_bytes();
    let body = [&b"\x16\x01h\x02\x01f\x01v"[..], &time, b"\x01g\xc0\x07", &[0xff; 8]].concat();
    let expected = vec![field("f", "v", Some(TIME)), field("g", "7", None)];
    assert_eq!(parts(VALKEY_80, &body), Ok(expected.clone()));
    assert_eq!(parts(VALKEY_81, &body), Ok(expected));
    // -2 is no time, and in Redis the same type has times in front.
    let body = [&b"\x16\x01h\x01\x01f\x01v"[..], &[0xfe], &[0xff; 7]].concat();
    assert_eq!(fault(VALKEY_80, &body), (17, What::Time));
    assert_eq!(parts(REDIS_12, b"\x16\x01h\x01\x05\x01f\x01v"), Ok(vec![field("f", "v", Some(5))]));
}

#[test]
fn fields_of_redis_7_4_count_their_times_from_the_earliest() {
    let earliest = TIME.to_le_bytes();
    let expected =
        vec![field("f", "v", Some(TIME)), field("g", "7", None), field("h", "", Some(TIME + 63))];
    let body = [&b"\x18\x01h"[..], &earliest, b"\x03\x01\x01f\x01v\0\x01g\xc0\x07\x40\x40\x01h\0"]
        .concat();
    assert_eq!(parts(REDIS_12, &body), Ok(expected));
    // In a listpack, times are unchanged: "f", "v" and a number of 64 bits.
    let time = TIME.to_le_bytes();
    let elements =
        [&b"\x81f\x02\x81v\x02\xf4"[..], &time, b"\x09\x81g\x02\x07\x01\0\x01\xff"].concat();
    let len = elements.len() as u8 + 6;
    let listpack = [&[len, 0, 0, 0, 6, 0], &elements[..]].concat();
    let expected = vec![field("f", "v", Some(TIME)), field("g", "7", None)];
    let body = [&b"\x19\x01h"[..], &earliest, &[len], &listpack].concat();
    assert_eq!(parts(REDIS_12, &body), Ok(expected.clone()));
    let early = [&b"\x17\x01h"[..], &[len], &listpack].concat();
    assert_eq!(parts(REDIS_12, &early), Ok(expected));
    // Five elements are no triples.
    let mut odd = body;
    odd[16] = 5;
    assert_eq!(fault(REDIS_12, &odd), (20, What::Block(Form::Listpack)));
    let late = [&b"\x18\x01h"[..], &[0xff; 8], b"\x01\x02\x01f\x01v"].concat();
    assert_eq!(fault(REDIS_12, &late), (21, What::Time));
}

#[test]
fn what_valkey_and_redis_name_alike_is_not_mixed_up() {
    for kind in [23, 24, 25, 26] {
        let body = [kind, 1, b'h', 0];
        assert_eq!(fault(VALKEY_80, &body), (9, What::Type(kind)));
    }
    assert_eq!(fault(REDIS_12, &[26, 1, b'h', 0]), (9, What::Type(26)));
    assert_eq!(fault(REDIS_12, &[8, 1, b'h', 0]), (9, What::Type(8)));
    assert_eq!(fault(VALKEY_80, b"\xf3\x01j\x01\0\0"), (9, What::SlotImport));
    assert_eq!(fault(REDIS_12, b"\xf3\x01"), (9, What::KeyMetadata));
    assert_eq!(fault(VALKEY_81, b"\xf2\x01"), (9, What::InlineCommand));
    assert_eq!(fault(REDIS_12, b"\xf2\x01"), (9, What::Opcode(242)));
    assert_eq!(fault(REDIS_10, b"\xfe\0\xf6"), (11, What::EarlyLibrary));
    // Sizes of slots are hints, and both versions have them.
    for header in [REDIS_12, VALKEY_80] {
        assert_eq!(parts(header, b"\xf4\x40\x80\x05\x01"), Ok(vec![]));
    }
}

#[test]
fn only_versions_that_are_known_are_read() {
    for (header, what) in [
        (b"REDIS0013", What::Version(13)),
        (b"REDIS0008", What::Version(8)),
        (b"REDIS0080", What::Version(80)),
        (b"VALKEY011", What::Version(11)),
        (b"VALKEY082", What::Version(82)),
        (b"REDIS00x9", What::Signature),
        (b"REDIX0009", What::Signature),
    ] {
        assert_eq!(fault(header, b""), (0, what));
    }
    // A wrong beginning is reported at once, also in pieces.
    assert_eq!(read_by(b"VALKEZ", 1), read_at_once(b"VALKEZ"));
    assert_eq!(read_at_once(b"H").map_err(|fault| fault.what()), Err(What::Signature));
}

#[test]
fn modules_are_named_and_not_skipped() {
    // "ReJSON-RL", version 3: nine letters of 6 bits, and ten bits.
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let place = |letter| LETTERS.iter().position(|other| *other == letter).expect("a letter");
    let name = b"ReJSON-RL".iter().fold(0, |id, letter| id << 6 | place(*letter) as u64);
    let id = (name << 10 | 3).to_be_bytes();
    for (body, offset, text) in [
        (
            [&b"\x07\x01m\x81"[..], &id, b"\0"].concat(),
            12,
            "RDB, byte 12: a value belongs to module type ReJSON-RL; modules are not supported",
        ),
        (
            [&b"\xf7\x81"[..], &id, b"\x02\x01"].concat(),
            9,
            "RDB, byte 9: data belongs to module type ReJSON-RL; modules are not supported",
        ),
    ] {
        let fault = parts(REDIS_10, &body).expect_err("a module");
        assert_eq!((fault.offset(), fault.to_string().as_str()), (offset, text));
    }
}

#[test]
fn the_forms_of_old_servers_are_read() {
    // "a", 5 in four bits, "b", 1024.
    let ziplist: &[u8] =
        b"\x18\0\0\0\x13\0\0\0\x04\0\x00\x01a\x03\xf6\x02\x01b\x03\xc0\x00\x04\xff";
    let ziplist = [&[ziplist.len() as u8], &ziplist[1..]].concat();
    let len = [ziplist.len() as u8];
    let with = |kind: u8| [&[kind, 1, b'k'][..], &len, &ziplist].concat();
    let texts = |name: &str| ["a", "5", "b", "1024"].map(|text| format!("{name}({})", bytes(text)));
    let mut ok = [10, 12, 13].map(|kind| parts(REDIS_9, &patched(with(kind)))).into_iter();
    assert_eq!(ok.next(), Some(Ok(texts("Element").to_vec())));
    let scored = |member: &str, score: f64| {
        format!("Scored {{ member: {}, score: {score:?} }}", bytes(member))
    };
    assert_eq!(ok.next(), Some(Ok(vec![scored("a", 5.0), scored("b", 1024.0)])));
    assert_eq!(ok.next(), Some(Ok(vec![field("a", "5", None), field("b", "1024", None)])));
    // There are several nodes, and one is empty.
    let empty: &[u8] = b"\x0b\x0b\0\0\0\x0a\0\0\0\0\0\xff";
    let nodes = [&b"\x0e\x01k\x02"[..], empty, &patched(with(10))[3..]].concat();
    assert_eq!(parts(REDIS_9, &nodes), Ok(texts("Element").to_vec()));
    let zipmap = b"\x09\x01k\x0d\x01\x03foo\x03\x02barXY\xff";
    assert_eq!(parts(REDIS_9, zipmap), Ok(vec![field("foo", "bar", None)]));
    // The scores are text.
    let sorted = b"\x03\x01k\x03\x01a\x031.5\x01b\xff\x01c\xfe";
    let expected =
        vec![scored("a", 1.5), scored("b", f64::NEG_INFINITY), scored("c", f64::INFINITY)];
    assert_eq!(parts(REDIS_9, sorted), Ok(expected));
    assert_eq!(fault(REDIS_9, b"\x03\x01k\x01\x01a\xfd"), (15, What::Score));
    // Before Redis 2.6, expiries were in seconds.
    let read = read_at_once(&file(REDIS_9, b"\xfd\x05\0\0\0\0\x01k\x01v")).expect("a key");
    assert!(read[1].contains("expires_ms: Some(5000)"), "{}", read[1]);
}

/// Returns a ziplist with the right position of its last element.
fn patched(mut body: Vec<u8>) -> Vec<u8> {
    // The header has 10 bytes, and the elements have 3, 2, 3 and 4.
    body[4 + 4] = 10 + 3 + 2 + 3;
    body
}

#[test]
fn nodes_of_redis_7_are_listpacks_or_single_elements() {
    let body = b"\x12\x01k\x02\x01\x05hello\x02\x0a\x0a\0\0\0\x01\0\x81e\x02\xff";
    let expected = ["hello", "e"].map(|text| format!("Element({})", bytes(text)));
    assert_eq!(parts(REDIS_10, body), Ok(expected.to_vec()));
    assert_eq!(fault(REDIS_10, b"\x12\x01k\x01\x03\x01e"), (13, What::Container(3)));
    assert_eq!(fault(REDIS_10, b"\x12\x01k\x01\x01\0"), (14, What::Block(Form::Listpack)));
}

/// Returns the listpack of a block with three live entries, one deleted one, and the field "f".
fn block() -> Vec<u8> {
    let elements: &[u8] = b"\x02\x01\x01\x01\x01\x01\x81f\x02\0\x01\
        \x02\x01\0\x01\0\x01\x81v\x02\x04\x01\
        \x03\x01\0\x01\x01\x01\x81d\x02\x04\x01\
        \0\x01\x05\x01\0\x01\x01\x01\x81n\x02\x07\x01\x06\x01\xff";
    let len = elements.len() as u8 + 6;
    [&[len, 0, 0, 0, 0xff, 0xff], elements].concat()
}

#[test]
fn streams_of_three_versions_differ_in_what_they_know() {
    let id = |ms: u64, seq: u64| [ms.to_be_bytes(), seq.to_be_bytes()].concat();
    let block = block();
    let stream = |kind: u8, counts: &[u8], read: &[u8], active: &[u8]| {
        [
            &[kind, 1, b'k', 1, 16][..],
            &id(100, 7),
            &[block.len() as u8],
            &block,
            b"\x02\x40\x69\x07",
            counts,
            b"\x01\x01g\x40\x64\x07",
            read,
            b"\x01",
            &id(100, 7),
            &5u64.to_le_bytes(),
            b"\x03\x01\x01c",
            &6u64.to_le_bytes(),
            active,
            b"\x01",
            &id(100, 7),
        ]
        .concat()
    };
    let counts = b"\x40\x64\x07\x40\x64\x08\x03";
    let never = [0xff; 8];
    let five = parts(REDIS_9, &stream(15, b"", b"", b"")).expect("a stream");
    let seven = parts(REDIS_10, &stream(19, counts, b"\x01", b"")).expect("a stream");
    let newer = parts(VALKEY_80, &stream(21, counts, b"\x01", &never)).expect("a stream");
    let expected = [
        "Block(StreamBlock { first: Id { ms: 100, seq: 7 }, entries: 2, deleted: 1, fields: 1, len: 0 })",
        "BlockField([102])",
        "Entry { id: Id { ms: 100, seq: 7 }, fields: 1, shares_fields: true }",
        "EntryField { name: [102], value: [118] }",
        "Entry { id: Id { ms: 105, seq: 7 }, fields: 1, shares_fields: false }",
        "EntryField { name: [110], value: [55] }",
        "Totals(Totals { len: 2, newest: Id { ms: 105, seq: 7 }, history: Some(History { \
            first: Id { ms: 100, seq: 7 }, deleted: Id { ms: 100, seq: 8 }, added: 3 }), groups: 1 })",
        "Group { name: [103], last: Id { ms: 100, seq: 7 }, entries_read: Some(1), pending: 1 }",
        "Pending { id: Id { ms: 100, seq: 7 }, delivered_ms: 5, deliveries: 3 }",
        "Consumers(1)",
        "Consumer { name: [99], seen_ms: 6, active_ms: Some(-1), pending: 1 }",
        "Owned(Id { ms: 100, seq: 7 })",
    ];
    assert_eq!(newer, expected);
    assert_eq!(seven[..10], expected[..10]);
    assert_eq!(seven[10], expected[10].replace("Some(-1)", "None"));
    assert_eq!(five[..6], expected[..6]);
    assert!(five[6].contains("history: None"), "{}", five[6]);
    assert!(five[7].contains("entries_read: None"), "{}", five[7]);
}

#[test]
fn a_stream_that_contradicts_itself_is_refused() {
    let id = |ms: u64| [ms.to_be_bytes(), 7u64.to_be_bytes()].concat();
    let block = block();
    let stream = |first: u64, change: Option<(usize, u8)>, totals: &[u8]| {
        let mut block = block.clone();
        if let Some((at, byte)) = change {
            block[at] = byte;
        }
        let len = block.len() as u8;
        [&b"\x0f\x01k\x01\x10"[..], &id(first), &[len], &block, totals, b"\0"].concat()
    };
    let wrong = |body: &[u8], part| {
        let (_, what) = fault(REDIS_9, body);
        assert_eq!(what, What::Stream(part));
    };
    let totals = b"\x02\x40\x69\x07";
    assert!(parts(REDIS_9, &stream(100, None, totals)).is_ok());
    wrong(&stream(100, None, b"\x03\x40\x69\x07"), StreamPart::Length);
    wrong(&stream(100, None, b"\x02\x40\x69\x06"), StreamPart::Length);
    // More live entries, one entry more, a wrong count after an entry.
    wrong(&stream(100, Some((6, 3)), totals), StreamPart::Block);
    wrong(&stream(100, Some((8, 2)), totals), StreamPart::Block);
    wrong(&stream(100, Some((26, 5)), totals), StreamPart::Block);
    // The second id is not greater than the first one.
    wrong(&stream(100, Some((41, 0)), totals), StreamPart::EntryId);
    let short = b"\x0f\x01k\x01\x03abc\x00";
    wrong(short, StreamPart::BlockId);
    let long = b"\x0f\x01k\x01\x80\x0f\0\0\0";
    wrong(long, StreamPart::BlockId);
}

#[test]
fn strings_are_unpacked_and_a_wrong_packing_is_found() {
    // "abc", then nine bytes from three bytes before.
    let packed = b"\0\x01k\xc3\x07\x0c\x02abc\xe0\0\x02";
    let expected = format!("Text({})", bytes("abcabcabcabc"));
    assert_eq!(parts(REDIS_10, packed), Ok(vec![expected]));
    let wrong = b"\0\x01k\xc3\x07\x0d\x02abc\xe0\0\x02";
    assert_eq!(fault(REDIS_10, wrong), (12, What::Packed));
}

#[test]
fn a_file_without_checksum_is_read_and_one_with_a_wrong_one_is_not() {
    let mut file = file(REDIS_10, b"\xfe\0");
    let at = file.len() - 8;
    file[at..].fill(0);
    let read = read_at_once(&file).expect("a file without checksum");
    assert_eq!(read.last().map(String::as_str), Some("End { checked: false }"));
    file[at] = 1;
    let fault = read_at_once(&file).expect_err("a wrong checksum");
    assert_eq!(fault.offset(), at as u64);
    assert!(matches!(fault.what(), What::Checksum { found: 1, .. }));
}
