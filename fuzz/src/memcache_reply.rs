//! Replies of memcached servers framed whole, prefix by prefix and element by
//! element, and handed on to clients of each protocol.

use crate::Choices;
use crate::invariants::shown;
use keyway_memcache::{
    Asker, Dialect, Expect, Framer, Framing, Head, Outcome, ReplyLimits, ReplyParsed, RequestFlags,
    Verb, Wire, parse_reply, write_end, write_reply,
};

/// Replies longer than this are cut at every point only now and then.
const EVERY_PREFIX_LEN_MAX: usize = 80;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let wire = choices.pick(&[Wire::Text, Wire::Binary]);
    let expect = choices.pick(&[Expect::One, Expect::List, Expect::UntilNoop]);
    let limits = ReplyLimits { reply_len_max: choices.pick(&[u32::MAX, 1 << 20, 1000, 50]) };
    let verb = choices.pick(&[Verb::Get, Verb::GetTouch, Verb::Incr, Verb::Set, Verb::Stats]);
    let mut rest = choices.rest();
    while !rest.is_empty() {
        let mut framer = Framer::new(wire, expect);
        let whole = framer.frame(rest, &limits);
        let Ok(Framing::Ready { len }) = whole else {
            if let Ok(Framing::NeedMore { at_least }) = whole {
                assert!(at_least > rest.len() && at_least <= limits.reply_len_max as usize);
            }
            return;
        };
        assert!(len > 0 && len <= rest.len() && len <= limits.reply_len_max as usize);
        every_prefix_waits(&rest[..len], wire, expect, &limits);
        is_handed_on(&rest[..len], wire, &limits, verb);
        rest = &rest[len..];
    }
}

fn every_prefix_waits(reply: &[u8], wire: Wire, expect: Expect, limits: &ReplyLimits) {
    let step = 1 + reply.len() / EVERY_PREFIX_LEN_MAX;
    let mut framer = Framer::new(wire, expect);
    for len in (0..reply.len()).step_by(step) {
        let resumed = framer.frame(&reply[..len], limits);
        let afresh = Framer::new(wire, expect).frame(&reply[..len], limits);
        assert_eq!(resumed, afresh, "{:?} cut at {len}", shown(reply));
        match resumed {
            Ok(Framing::NeedMore { at_least }) => {
                assert!(at_least > len && at_least <= reply.len(), "{:?} at {len}", shown(reply));
            }
            other => panic!("{:?} cut at {len}: {other:?}", shown(reply)),
        }
    }
    assert_eq!(framer.frame(reply, limits), Ok(Framing::Ready { len: reply.len() }));
}

fn is_handed_on(reply: &[u8], wire: Wire, limits: &ReplyLimits, verb: Verb) {
    let asked = RequestFlags::VALUE | RequestFlags::KEY | RequestFlags::CAS;
    for dialect in [Dialect::Text, Dialect::Meta, Dialect::Binary] {
        let head = Head { verb, dialect, asked, ..Head::default() };
        let asker = Asker { head: &head, key: b"k", meta: b"k c t O12 s l h f v" };
        let mut rest = reply;
        let mut out = Vec::new();
        while let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, wire, limits) {
            write_reply(&mut out, &asker, &reply.outcome);
            if let Outcome::Hit(item) = reply.outcome {
                assert!(item.value.len() < len);
            }
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        write_end(&mut out, &head);
    }
}
