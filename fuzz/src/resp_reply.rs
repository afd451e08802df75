//! Replies of either version framed whole and prefix by prefix, against a plain
//! recursive reader of the protocol.

use crate::Choices;
use crate::invariants::shown;
use keyway_resp::{Framer, Framing, FramingFault, Protocol, parse_integer};

/// Nesting that the plain reader never goes beyond: more than is ever allowed.
const DEPTH_CAP: u32 = 40;
/// Replies longer than this are cut at every point only now and then.
const EVERY_PREFIX_LEN_MAX: usize = 80;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let len_max = choices.pick(&[u32::MAX, 1 << 30, 1000, 50]);
    let choice = choices.below(80) as u32;
    let depth_max = choice % 40;
    let protocol = if choice < 40 { Protocol::Resp2 } else { Protocol::Resp3 };
    let bounds = Bounds { protocol, len_max, depth_max };
    let stream = choices.rest();

    integers_are_read_as_the_library_does(stream);
    let mut rest = stream;
    while !rest.is_empty() {
        match check(rest, bounds) {
            Some(len) => {
                every_prefix_waits(&rest[..len], bounds);
                rest = &rest[len..];
            }
            None => return,
        }
    }
}

/// What replies are allowed to be.
#[derive(Clone, Copy)]
struct Bounds {
    protocol: Protocol,
    len_max: u32,
    depth_max: u32,
}

impl Bounds {
    fn frame(self, framer: &mut Framer, buf: &[u8]) -> Result<Framing, FramingFault> {
        framer.frame(buf, self.len_max, self.depth_max)
    }

    fn frame_whole(self, buf: &[u8]) -> Result<Framing, FramingFault> {
        self.frame(&mut Framer::new(self.protocol), buf)
    }
}

/// Compares both readers; returns the length of the reply, if it is whole.
fn check(buf: &[u8], bounds: Bounds) -> Option<usize> {
    let Bounds { protocol, len_max, depth_max } = bounds;
    let mut plain = Plain { buf, is_resp3: protocol == Protocol::Resp3, depth: 0 };
    let (plain, depth) = (plain.element(0, 0), plain.depth);
    let fits = depth <= depth_max;
    let framed = bounds.frame_whole(buf);
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

fn every_prefix_waits(reply: &[u8], bounds: Bounds) {
    let step = 1 + reply.len() / EVERY_PREFIX_LEN_MAX;
    let mut framer = Framer::new(bounds.protocol);
    for len in (0..reply.len()).step_by(step) {
        let resumed = bounds.frame(&mut framer, &reply[..len]);
        assert_eq!(resumed, bounds.frame_whole(&reply[..len]), "{}", shown(reply));
        match resumed {
            Ok(Framing::NeedMore { at_least }) => {
                let what = format!("{:?} cut at {len}", shown(reply));
                assert!(at_least > len && at_least <= reply.len(), "{what}: needs {at_least}");
            }
            other => panic!("{:?} cut at {len}: {other:?}", shown(reply)),
        }
    }
    let whole = bounds.frame(&mut framer, reply);
    assert_eq!(whole, bounds.frame_whole(reply), "{}", shown(reply));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Partial,
    Broken,
}

/// Reads replies the plainest way.
struct Plain<'a> {
    buf: &'a [u8],
    is_resp3: bool,
    /// The deepest level met.
    depth: u32,
}

impl Plain<'_> {
    /// End of the element at `pos`, which lies inside `levels` others.
    fn element(&mut self, pos: usize, levels: u32) -> Result<usize, Stop> {
        let buf = self.buf;
        match *buf.get(pos).ok_or(Stop::Partial)? {
            b'+' | b'-' => line(buf, pos + 1).map(|(_, end)| end),
            b':' => number(buf, pos + 1).map(|(_, end)| end),
            b'$' => match number(buf, pos + 1)? {
                (-1, end) => Ok(end),
                (len, start) => bytes(buf, len, start),
            },
            b'*' => match number(buf, pos + 1)? {
                (-1, end) => Ok(end),
                (count, end) => self.elements(i128::from(count), end, levels),
            },
            byte if self.is_resp3 => self.resp3(byte, pos, levels),
            _ => Err(Stop::Broken),
        }
    }

    fn resp3(&mut self, byte: u8, pos: usize, levels: u32) -> Result<usize, Stop> {
        let buf = self.buf;
        let is_number = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        match byte {
            b'_' | b'#' | b',' | b'(' => {
                let (text, end) = line(buf, pos + 1)?;
                let text = String::from_utf8_lossy(text);
                let is_right = match byte {
                    b'_' => text.is_empty(),
                    b'#' => text == "t" || text == "f",
                    b'(' => is_number(&text),
                    _ => !text.is_empty(),
                };
                if is_right { Ok(end) } else { Err(Stop::Broken) }
            }
            b'=' | b'!' => match number(buf, pos + 1)? {
                (len, _) if byte == b'=' && len < 4 => Err(Stop::Broken),
                (len, start) => bytes(buf, len, start),
            },
            b'~' | b'>' | b'%' | b'|' => {
                let (count, end) = number(buf, pos + 1)?;
                if count < 0 {
                    return Err(Stop::Broken);
                }
                let count = i128::from(count);
                let elements = match byte {
                    b'%' => 2 * count,
                    b'|' => 2 * count + 1,
                    _ => count,
                };
                self.elements(elements, end, levels)
            }
            _ => Err(Stop::Broken),
        }
    }

    fn elements(&mut self, count: i128, mut end: usize, levels: u32) -> Result<usize, Stop> {
        if count < 0 {
            return Err(Stop::Broken);
        }
        if count == 0 {
            return Ok(end);
        }
        self.depth = self.depth.max(levels + 1);
        if levels >= DEPTH_CAP {
            return Err(Stop::Partial);
        }
        for _ in 0..count {
            end = self.element(end, levels + 1)?;
        }
        Ok(end)
    }
}

/// The text of the line at `at`, and where the next line starts.
fn line(buf: &[u8], at: usize) -> Result<(&[u8], usize), Stop> {
    let end = at + position(&buf[at..], |byte| byte == b'\r' || byte == b'\n')?;
    line_end(buf, end).map(|next| (&buf[at..end], next))
}

/// End of `len` bytes from `start` on, with their line end.
fn bytes(buf: &[u8], len: i64, start: usize) -> Result<usize, Stop> {
    let len = u128::try_from(len).map_err(|_| Stop::Broken)?;
    let end = start as u128 + len;
    match buf.get(usize::try_from(end).unwrap_or(usize::MAX)..) {
        Some([b'\r', b'\n', ..]) => Ok(end as usize + 2),
        Some([_, _, ..]) => Err(Stop::Broken),
        _ => Err(Stop::Partial),
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
