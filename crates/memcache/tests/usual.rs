//! The most common requests and replies are read by separate code. It must give the same results as
//! the general code.

use keyway_memcache::{
    Dialect, Expect, Framer, Framing, Outcome, ParseLimits, Parsed, ReplyFault, ReplyLimits,
    ReplyParsed, Request, Wire, compose_request, parse_reply, parse_request, text_item_len,
};
use proptest::collection::vec;
use proptest::prelude::*;

const LIMITS: ParseLimits =
    ParseLimits { value_len_max: 1_000_000, keys_max: 1000, keys_line_len_max: 1 << 20 };

fn parse(bytes: &[u8]) -> (Parsed, Request) {
    let mut request = Request::default();
    (parse_request(bytes, Wire::Text, &LIMITS, &mut request), request)
}

/// Bytes of keys: printable ones, and at times one that breaks a line.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => vec(33u8..=255, 1..40),
        1 => vec(33u8..=255, 245..260),
        1 => vec(any::<u8>(), 0..20),
    ]
}

/// Numbers as programs write them, and in unusual forms.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => any::<u32>().prop_map(|number| number.to_string()),
        2 => (0u32..200).prop_map(|number| number.to_string()),
        1 => proptest::sample::select(vec!["", "-1", "00", "007", "+5", "5x", "99999999999", " 1"])
            .prop_map(str::to_owned),
    ]
}

/// A `get` or a `set`, nearly always complete.
fn usual() -> impl Strategy<Value = Vec<u8>> {
    let get = vec(key(), 1..5).prop_map(|keys| [b"get ", &keys.join(&b' ')[..], b"\r\n"].concat());
    let set = (key(), number(), number(), vec(any::<u8>(), 0..60), 0usize..12).prop_map(
        |(key, flags, expiry, value, odd)| {
            let len = value.len() + usize::from(odd == 0);
            let line = format!(" {flags} {expiry} {len}\r\n");
            [b"set ", &key[..], line.as_bytes(), &value, b"\r\n"].concat()
        },
    );
    prop_oneof![get, set]
}

/// Returns what a request means, wherever its bytes are.
fn meaning(request: &Request, buf: &[u8]) -> String {
    let keys: Vec<&[u8]> = request.keys(buf).collect();
    format!("{:?} {keys:?} {:?}", request.head, request.value.of(buf))
}

/// Reads the same reply element by element.
fn by_elements(buf: &[u8], expect: Expect, limits: &ReplyLimits) -> Result<Framing, ReplyFault> {
    let mut at = 0;
    loop {
        match parse_reply(&buf[at..], Wire::Text, limits)? {
            ReplyParsed::NeedMore { at_least } => {
                return Ok(Framing::NeedMore { at_least: at + at_least });
            }
            ReplyParsed::Ready { len, reply } => {
                at += len;
                let goes_on = matches!(reply.outcome, Outcome::Hit(_) | Outcome::Stat { .. });
                if expect == Expect::One || !goes_on {
                    return Ok(Framing::Ready { len: at });
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn a_usual_request_means_what_it_means_with_a_blank_more(bytes in usual(), cut in 0usize..400) {
        let (parsed, request) = parse(&bytes);
        // A second blank after the verb is accepted, but only by the general code.
        let spaced = [&bytes[..4], b" ", &bytes[4..]].concat();
        let (general, spaced_request) = parse(&spaced);
        prop_assert!(!spaced_request.is_canonical);
        if let Parsed::Ready { consumed } = parsed {
            prop_assert_eq!(general, Parsed::Ready { consumed: consumed + 1 });
            prop_assert_eq!(meaning(&request, &bytes), meaning(&spaced_request, &spaced));
        } else {
            prop_assert!(!request.is_canonical, "{:?} of {:?}", parsed, bytes.escape_ascii().to_string());
        }
        // A part of a request is no request, and needs no more bytes than the whole one has.
        let part = &bytes[..cut.min(bytes.len())];
        if let (Parsed::NeedMore { at_least }, Parsed::Ready { consumed }) = (parse(part).0, parsed) {
            prop_assert!(at_least > part.len() && at_least <= consumed);
        }
    }

    #[test]
    fn what_is_canonical_is_what_would_be_composed(bytes in usual()) {
        let (parsed, request) = parse(&bytes);
        if !request.is_canonical {
            return Ok(());
        }
        let Parsed::Ready { consumed } = parsed else { panic!("{parsed:?}") };
        let (mut out, value) = (Vec::new(), request.value.of(&bytes));
        let keys = request.keys(&bytes);
        compose_request(&mut out, Dialect::Text, &request.head, keys, value).unwrap();
        prop_assert_eq!(&out[..], &bytes[..consumed]);
    }

    #[test]
    fn a_usual_reply_ends_where_its_elements_do(
        key in key(),
        flags in number(),
        value in vec(any::<u8>(), 0..60),
        odd in 0usize..12,
        unique in proptest::sample::select(vec!["", "", " 7", " 18446744073709551615", " x", " "]),
        end in proptest::sample::select(vec!["END\r\n", "STORED\r\n", "", "EN", "VALUE a 0 0\r\n\r\nEND\r\n"]),
        bound in proptest::sample::select(vec![40u32, 1 << 20]),
        cut in 0usize..400,
    ) {
        let len = value.len() + usize::from(odd == 0);
        let head = [b"VALUE ", &key[..], format!(" {flags} {len}{unique}\r\n").as_bytes()].concat();
        let whole = [&head[..], &value, b"\r\n", end.as_bytes()].concat();
        let limits = ReplyLimits { reply_len_max: bound };
        // Text clients cannot ask for other keys.
        if key.iter().all(|&byte| byte > b' ')
            && let Some(len) = text_item_len(&whole, &key)
        {
            let parsed = parse_reply(&whole, Wire::Text, &ReplyLimits { reply_len_max: u32::MAX });
            let Ok(ReplyParsed::Ready { len: expected, reply }) = parsed else { panic!("{parsed:?}") };
            let Outcome::Hit(item) = reply.outcome else { panic!("{reply:?}") };
            prop_assert_eq!((len, &key[..]), (expected, item.key));
        }
        for bytes in [&whole[..], &whole[..cut.min(whole.len())], end.as_bytes()] {
            for expect in [Expect::List, Expect::One] {
                let framed = Framer::new(Wire::Text, expect).frame(bytes, &limits);
                let expected = match by_elements(bytes, expect, &limits) {
                    Ok(Framing::Ready { len } | Framing::NeedMore { at_least: len })
                        if len > bound as usize => Err(ReplyFault::TooLong),
                    other => other,
                };
                // If the second element exceeds a limit, this can be noticed at the first.
                if expected != Err(ReplyFault::TooLong) {
                    prop_assert_eq!(framed, expected, "{}", bytes.escape_ascii());
                } else {
                    prop_assert!(framed.is_err());
                }
            }
        }
    }
}

#[test]
fn the_usual_way_is_taken() {
    for bytes in
        ["get key:1\r\n", "set k 0 0 3\r\nabc\r\n", "set k 7 100 0\r\n\r\n", "get a b c\r\n"]
    {
        assert!(parse(bytes.as_bytes()).1.is_canonical, "{bytes}");
    }
    for bytes in [
        "get a  b\r\n",
        "get a b \r\n",
        "get a\n",
        "set k 0 0 1 noreply\r\na\r\n",
        "set k -1 0 1\r\na\r\n",
    ] {
        assert!(!parse(bytes.as_bytes()).1.is_canonical, "{bytes}");
    }
}
