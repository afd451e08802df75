//! Replies framed whole and prefix by prefix, against a plain recursive reader
//! of the protocol.

use crate::Choices;
use crate::laws::shown;
use keyway_resp::{Framer, Framing, FramingFault, frame_reply, parse_integer};

/// Nesting that the plain reader never goes beyond: more than is ever allowed.
const DEPTH_CAP: u32 = 40;
/// Replies longer than this are cut at every point only now and then.
const EVERY_PREFIX_LEN_MAX: usize = 80;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let len_max = choices.pick(&[u32::MAX, 1 << 30, 1000, 50]);
    let depth_max = choices.below(40) as u32;
    let stream = choices.rest();

    integers_are_read_as_the_library_does(stream);
    let mut rest = stream;
    while !rest.is_empty() {
        match check(rest, len_max, depth_max) {
            Some(len) => {
                every_prefix_waits(&rest[..len], len_max, depth_max);
                rest = &rest[len..];
            }
            None => return,
        }
    }
}

/// Compares both readers; returns the length of the reply, if it is whole.
fn check(buf: &[u8], len_max: u32, depth_max: u32) -> Option<usize> {
    let mut depth = 0;
    let plain = element(buf, 0, 0, &mut depth);
    let fits = depth <= depth_max;
    let framed = frame_reply(buf, len_max, depth_max);
    let what = || format!("{:?}: {framed:?}, plainly {plain:?}, depth {depth}", shown(buf));
    match (framed, plain) {
        (Ok(Framing::Ready { len, .. }), Ok(end)) => {
            assert!(len == end && len <= len_max as usize && fits, "{}", what());
            return Some(len);
        }
        (Ok(Framing::NeedMore { at_least }), Err(Stop::Partial)) => {
            assert!(at_least > buf.len() && at_least <= len_max as usize, "{}", what());
        }
        (Err(FramingFault::Protocol), Err(Stop::Broken)) => {}
        (Err(FramingFault::TooDeep), _) => assert!(!fits, "{}", what()),
        (Err(FramingFault::TooLong), Ok(end)) => assert!(end > len_max as usize, "{}", what()),
        (Err(FramingFault::TooLong), Err(Stop::Partial)) => {}
        _ => panic!("{}", what()),
    }
    None
}

fn every_prefix_waits(reply: &[u8], len_max: u32, depth_max: u32) {
    let step = 1 + reply.len() / EVERY_PREFIX_LEN_MAX;
    let mut framer = Framer::default();
    for len in (0..reply.len()).step_by(step) {
        let resumed = framer.frame(&reply[..len], len_max, depth_max);
        assert_eq!(resumed, frame_reply(&reply[..len], len_max, depth_max), "{}", shown(reply));
        match resumed {
            Ok(Framing::NeedMore { at_least }) => {
                let what = format!("{:?} cut at {len}", shown(reply));
                assert!(at_least > len && at_least <= reply.len(), "{what}: needs {at_least}");
            }
            other => panic!("{:?} cut at {len}: {other:?}", shown(reply)),
        }
    }
    let whole = framer.frame(reply, len_max, depth_max);
    assert_eq!(whole, frame_reply(reply, len_max, depth_max), "{}", shown(reply));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Partial,
    Broken,
}

/// End of the element at `pos`, which lies inside `levels` arrays.
fn element(buf: &[u8], pos: usize, levels: u32, depth: &mut u32) -> Result<usize, Stop> {
    match *buf.get(pos).ok_or(Stop::Partial)? {
        b'+' | b'-' => {
            let end = pos + 1 + position(&buf[pos + 1..], |byte| byte == b'\r' || byte == b'\n')?;
            line_end(buf, end)
        }
        b':' => number(buf, pos + 1).map(|(_, end)| end),
        b'$' => match number(buf, pos + 1)? {
            (-1, end) => Ok(end),
            (len @ 0.., start) => {
                let end = start as u128 + len as u128;
                match buf.get(usize::try_from(end).unwrap_or(usize::MAX)..) {
                    Some([b'\r', b'\n', ..]) => Ok(end as usize + 2),
                    Some([_, _, ..]) => Err(Stop::Broken),
                    _ => Err(Stop::Partial),
                }
            }
            _ => Err(Stop::Broken),
        },
        b'*' => match number(buf, pos + 1)? {
            (-1 | 0, end) => Ok(end),
            (count @ 1.., mut end) => {
                *depth = (*depth).max(levels + 1);
                if levels >= DEPTH_CAP {
                    return Err(Stop::Partial);
                }
                for _ in 0..count {
                    end = element(buf, end, levels + 1, depth)?;
                }
                Ok(end)
            }
            _ => Err(Stop::Broken),
        },
        _ => Err(Stop::Broken),
    }
}

fn position(bytes: &[u8], found: impl Fn(u8) -> bool) -> Result<usize, Stop> {
    bytes.iter().position(|&byte| found(byte)).ok_or(Stop::Partial)
}

fn line_end(buf: &[u8], at: usize) -> Result<usize, Stop> {
    match &buf[at..] {
        [b'\r', b'\n', ..] => Ok(at + 2),
        [] | [b'\r'] => Err(Stop::Partial),
        _ => Err(Stop::Broken),
    }
}

/// The number on the line at `at`, and where the next line starts.
fn number(buf: &[u8], at: usize) -> Result<(i64, usize), Stop> {
    let signed = usize::from(buf.get(at) == Some(&b'-'));
    let digits = buf[at + signed..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = at + signed + digits;
    if digits > 19 {
        return Err(Stop::Broken);
    }
    if end == buf.len() {
        return Err(Stop::Partial);
    }
    let end_of_line = line_end(buf, end);
    let text = std::str::from_utf8(&buf[at..end]).expect("ASCII");
    match (text.parse::<i64>(), end_of_line) {
        (_, Err(stop)) if digits > 0 => Err(stop),
        (Ok(value), Ok(next)) => Ok((value, next)),
        _ => Err(Stop::Broken),
    }
}

fn integers_are_read_as_the_library_does(text: &[u8]) {
    let plain = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<i64>().ok())
        .filter(|value| value.to_string().as_bytes() == text);
    assert_eq!(parse_integer(text), plain, "{:?}", shown(text));
}
