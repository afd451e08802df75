//! Binary requests: the lengths that belong to each operation, and the meaning of each field.

use keyway_memcache::{
    ParseLimits, Parsed, Request, RequestFault, RequestFlags, Verb, Wire, parse_request,
};

const HEADER_LEN: usize = 24;
const LIMITS: ParseLimits =
    ParseLimits { value_len_max: 1_000, keys_max: 10, keys_line_len_max: 1_000 };

fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body_len = (extras.len() + key.len() + value.len()) as u32;
    let key_len = (key.len() as u16).to_be_bytes();
    let mut bytes = vec![0x80, opcode, key_len[0], key_len[1], extras.len() as u8, 0, 0, 0];
    bytes.extend_from_slice(&body_len.to_be_bytes());
    bytes.extend_from_slice(&[0; 12]);
    [&bytes, extras, key, value].concat()
}

fn read(bytes: &[u8]) -> (Parsed, Request) {
    let mut request = Request::default();
    (parse_request(bytes, Wire::Binary, &LIMITS, &mut request), request)
}

/// Numbers of operations, lengths of the extras, whether there is a key, whether there is a value.
type Row = (&'static [u8], &'static [usize], Option<bool>, bool);

/// For every operation its number, the possible lengths of its extras, whether it has a key
/// (`None`: optional), and whether it has a value.
const OPERATIONS: [Row; 9] = [
    // Get, delete.
    (&[0x00, 0x04, 0x09, 0x0c, 0x0d, 0x14], &[0], Some(true), false),
    // Set, add, replace.
    (&[0x01, 0x02, 0x03, 0x11, 0x12, 0x13], &[8], Some(true), true),
    // Increment, decrement.
    (&[0x05, 0x06, 0x15, 0x16], &[20], Some(true), false),
    // Append, prepend.
    (&[0x0e, 0x0f, 0x19, 0x1a], &[0], Some(true), true),
    // Touch and get-and-touch.
    (&[0x1c, 0x1d, 0x1e, 0x23, 0x24], &[4], Some(true), false),
    // Flush.
    (&[0x08, 0x18], &[0, 4], Some(false), false),
    // Quit, no-operation, version, the authentication mechanisms.
    (&[0x07, 0x0a, 0x0b, 0x17, 0x20], &[0], Some(false), false),
    // Statistics.
    (&[0x10], &[0], None, false),
    // Authentication.
    (&[0x21, 0x22], &[0], Some(true), true),
];

#[test]
fn an_operation_takes_its_own_lengths_and_no_others() {
    for (opcodes, extras_lens, key, takes_value) in OPERATIONS {
        for &opcode in opcodes {
            for extras_len in 0..=24 {
                for key_text in [&b""[..], b"k"] {
                    let bytes = packet(opcode, &vec![0; extras_len], key_text, b"");
                    let fits = extras_lens.contains(&extras_len)
                        && key.is_none_or(|has_key| has_key != key_text.is_empty());
                    let what = format!("{opcode:#x}, {extras_len}, {}", key_text.len());
                    match read(&bytes).0 {
                        Parsed::Ready { consumed } => {
                            assert!(fits && consumed == bytes.len(), "{what}");
                        }
                        Parsed::Refused { fault, consumed, skip } => {
                            assert!(!fits, "{what}");
                            assert_eq!(fault, RequestFault::Arguments, "{what}");
                            assert_eq!((consumed, skip), (HEADER_LEN, 0), "{what}");
                        }
                        other => panic!("{what}: {other:?}"),
                    }
                    // The parser waits until its last byte has arrived.
                    for len in HEADER_LEN..bytes.len() {
                        if fits {
                            let at_least = bytes.len();
                            assert_eq!(read(&bytes[..len]).0, Parsed::NeedMore { at_least });
                        }
                    }
                }
            }
            let fitting = packet(
                opcode,
                &vec![0; extras_lens[0]],
                if key == Some(false) { b"" } else { b"k" },
                b"value",
            );
            if takes_value {
                let (parsed, request) = read(&fitting);
                assert_eq!(parsed, Parsed::Ready { consumed: fitting.len() }, "{opcode:#x}");
                assert_eq!(request.value.of(&fitting), b"value", "{opcode:#x}");
            }
        }
    }
}

#[test]
fn a_packet_whose_parts_are_longer_than_its_body_is_refused() {
    for (key_len, extras_len, body_len, fits) in
        [(1u16, 8u8, 9u32, true), (1, 8, 8, false), (9, 0, 8, false), (0, 9, 8, false)]
    {
        let mut bytes = packet(1, &[0; 8], b"k", b"");
        bytes[2..4].copy_from_slice(&key_len.to_be_bytes());
        bytes[4] = extras_len;
        bytes[8..12].copy_from_slice(&body_len.to_be_bytes());
        let is_refused =
            matches!(read(&bytes).0, Parsed::Refused { fault: RequestFault::Lengths, .. });
        assert_eq!(is_refused, !fits, "{key_len} {extras_len} {body_len}");
    }
}

#[test]
fn keys_and_values_are_taken_up_to_their_bounds() {
    let key_of = |len: usize| read(&packet(0, &[], &vec![b'k'; len], b"")).0;
    assert_eq!(key_of(250), Parsed::Ready { consumed: HEADER_LEN + 250 });
    let refused = Parsed::Refused { consumed: HEADER_LEN, skip: 0, fault: RequestFault::Arguments };
    assert_eq!(key_of(251), refused);
    let max = LIMITS.value_len_max as usize;
    let whole = packet(1, &[0; 8], b"key", &vec![b'v'; max]);
    assert_eq!(read(&whole).0, Parsed::Ready { consumed: whole.len() });
    let over = packet(1, &[0; 8], b"key", &vec![b'v'; max + 1]);
    let value_at = HEADER_LEN + 8 + 3;
    // The parser waits for the key, which says what to remove, but not for the value.
    for len in HEADER_LEN..value_at {
        assert_eq!(read(&over[..len]).0, Parsed::NeedMore { at_least: value_at });
    }
    for len in [value_at, over.len()] {
        let (parsed, request) = read(&over[..len]);
        let fault = RequestFault::ValueTooLarge;
        let skip = max as u64 + 1;
        assert_eq!(parsed, Parsed::Refused { consumed: value_at, skip, fault });
        assert_eq!(request.key(&over, 0), b"key");
    }
    for (len, fits) in [(1, true), (32, true), (33, false)] {
        let mechanism = packet(0x21, &[], &vec![b'M'; len], b"secret");
        assert_eq!(matches!(read(&mechanism).0, Parsed::Ready { .. }), fits, "{len}");
    }
}

#[test]
fn a_number_to_compare_counts_where_an_item_is_changed() {
    let with_cas = |opcode: u8, extras: &[u8], key: &[u8], cas: u64| {
        let mut bytes = packet(opcode, extras, key, b"");
        bytes[16..24].copy_from_slice(&cas.to_be_bytes());
        let (parsed, request) = read(&bytes);
        assert_eq!(parsed, Parsed::Ready { consumed: bytes.len() });
        request.head
    };
    const CAS: u64 = 0x0102_0304_0506_0708;
    for (opcode, extras_len, plain, compared) in [
        (0x00, 0, Verb::Get, None),
        (0x1c, 4, Verb::Touch, None),
        (0x1d, 4, Verb::GetTouch, None),
        (0x01, 8, Verb::Set, Some(Verb::Cas)),
        (0x02, 8, Verb::Add, Some(Verb::Cas)),
        (0x03, 8, Verb::Replace, Some(Verb::Cas)),
        (0x04, 0, Verb::Delete, Some(Verb::Delete)),
        (0x05, 20, Verb::Incr, Some(Verb::Incr)),
        (0x06, 20, Verb::Decr, Some(Verb::Decr)),
        (0x0e, 0, Verb::Append, Some(Verb::Append)),
        (0x0f, 0, Verb::Prepend, Some(Verb::Prepend)),
    ] {
        let extras = vec![0; extras_len];
        let head = with_cas(opcode, &extras, b"k", 0);
        assert_eq!((head.verb, head.cas), (plain, None), "{opcode:#x}");
        let head = with_cas(opcode, &extras, b"k", CAS);
        assert_eq!(head.verb, compared.unwrap_or(plain), "{opcode:#x}");
        assert_eq!(head.cas, compared.map(|_| CAS), "{opcode:#x}");
        // The reply contains the item's number, except where only the expiry changes.
        assert_eq!(head.asked.has(RequestFlags::CAS), opcode != 0x1c, "{opcode:#x}");
    }
}

#[test]
fn extras_say_flags_expiry_step_and_first_value() {
    let (_, set) = read(&packet(1, &[1, 2, 3, 4, 0, 0, 0, 9], b"k", b""));
    assert_eq!((set.head.flags, set.head.expiry), (0x0102_0304, 9));
    for opcode in [0x1c, 0x1d, 0x23] {
        let (_, touch) = read(&packet(opcode, &[0, 0, 1, 0], b"k", b""));
        assert_eq!(touch.head.expiry, 256, "{opcode:#x}");
        assert!(touch.head.asked.has(RequestFlags::EXPIRY), "{opcode:#x}");
    }
    for (extras, delay) in [(&[][..], 0), (&[0, 0, 0, 30], 30)] {
        let (_, flush) = read(&packet(8, extras, b"", b""));
        assert_eq!((flush.head.verb, flush.head.expiry), (Verb::FlushAll, delay));
    }
    let step = 0x0102_0304_0506_0708u64.to_be_bytes();
    let first = 0x1112_1314_1516_1718u64.to_be_bytes();
    for (expiry, vivify) in [(60u32, Some(60)), (0, Some(0)), (u32::MAX, None)] {
        let extras = [&step[..], &first, &expiry.to_be_bytes()].concat();
        let head = read(&packet(5, &extras, b"k", b"")).1.head;
        assert_eq!(head.delta, 0x0102_0304_0506_0708);
        assert_eq!((head.initial, head.vivify), (0x1112_1314_1516_1718, vivify));
    }
}

#[test]
fn the_key_of_statistics_is_words() {
    for (text, expected) in [
        (&b""[..], &[][..]),
        (b"items", &[&b"items"[..]]),
        (b"detail on", &[b"detail", b"on"]),
        (b" detail  dump x ", &[b"detail", b"dump", b"x"]),
        (b" ", &[]),
    ] {
        let bytes = packet(0x10, &[], text, b"");
        let (parsed, request) = read(&bytes);
        assert_eq!(parsed, Parsed::Ready { consumed: bytes.len() });
        let words: Vec<&[u8]> = request.keys(&bytes).collect();
        assert_eq!(words, expected, "{}", text.escape_ascii());
    }
}

#[test]
fn the_three_steps_of_authentication_are_told_apart() {
    for (opcode, key, verb) in [
        (0x20, &b""[..], Verb::SaslList),
        (0x21, b"PLAIN", Verb::SaslStart),
        (0x22, b"PLAIN", Verb::SaslStep),
    ] {
        let bytes = packet(opcode, &[], key, b"");
        let (parsed, request) = read(&bytes);
        assert_eq!((parsed, request.head.verb), (Parsed::Ready { consumed: bytes.len() }, verb));
    }
}
