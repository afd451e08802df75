//! Requests parsed whole, in pieces, and prefix by prefix: the verdict is the
//! same, no byte behind a request is looked at, and a hint to wait is neither
//! too small to help nor larger than the request.

use crate::Choices;
use crate::invariants::{compose, one_error_line, shown};
use keyway_base::{ByteRange, Limits};
use keyway_resp::{ParseLimits, Parsed, RequestFault, parse_request};

/// Requests longer than this are cut at every point only now and then.
const EVERY_PREFIX_LEN_MAX: usize = 80;

#[derive(Debug, PartialEq, Eq)]
struct Request {
    args: Vec<Vec<u8>>,
    len: usize,
}

/// What becomes of a stream: its requests, and whether it ended in a fault.
#[derive(Debug, PartialEq, Eq)]
struct Story {
    requests: Vec<Request>,
    broken: bool,
}

#[derive(Default)]
struct Parser {
    args: Vec<ByteRange>,
    inline: Vec<u8>,
}

enum Verdict {
    Request(Request),
    NeedMore(usize),
    Fault(RequestFault),
}

impl Parser {
    fn parse(&mut self, buf: &[u8], limits: &ParseLimits) -> Verdict {
        match parse_request(buf, limits, &mut self.args, &mut self.inline) {
            Ok(Parsed::Ready { consumed }) => {
                let args = self.args.iter().map(|arg| arg.of(&buf[..consumed]).to_vec());
                Verdict::Request(Request { args: args.collect(), len: consumed })
            }
            Ok(Parsed::Inline { consumed }) => {
                assert!(consumed <= buf.len());
                let args: Vec<_> =
                    self.args.iter().map(|arg| arg.of(&self.inline).to_vec()).collect();
                assert_eq!(compose(&args), (self.inline.clone(), self.args.clone()));
                Verdict::Request(Request { args, len: consumed })
            }
            Ok(Parsed::NeedMore { at_least }) => {
                assert!(at_least > buf.len(), "a parser that waits must wait for more");
                Verdict::NeedMore(at_least)
            }
            Err(fault) => Verdict::Fault(fault),
        }
    }
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = limits(&mut choices);
    let pieces = [1 + choices.below(64), 1 + choices.below(64)];
    let stream = choices.rest();

    let whole = read_whole(stream, &limits);
    let split = read_in_pieces(stream, &limits, pieces);
    assert_eq!(whole, split, "split changes {:?}", shown(stream));
    let mut rest = stream;
    for request in &whole.requests {
        every_prefix_waits(&rest[..request.len], &limits);
        composing_again_is_identity(request, &rest[..request.len]);
        rest = &rest[request.len..];
    }
}

fn limits(choices: &mut Choices) -> ParseLimits {
    let limits = ParseLimits::of(&Limits::default());
    match choices.below(4) {
        0 => limits,
        1 => limits.unauthenticated(),
        2 => {
            ParseLimits { args_max: 5, bulk_len_max: 60, request_len_max: 100, inline_len_max: 40 }
        }
        _ => ParseLimits { request_len_max: 1 << 12, ..limits },
    }
}

fn read_whole(stream: &[u8], limits: &ParseLimits) -> Story {
    let mut parser = Parser::default();
    let mut story = Story { requests: Vec::new(), broken: false };
    let mut pos = 0;
    loop {
        match parser.parse(&stream[pos..], limits) {
            Verdict::Request(request) => {
                assert!(request.len > 0);
                pos += request.len;
                story.requests.push(request);
            }
            Verdict::NeedMore(_) => return story,
            Verdict::Fault(fault) => {
                let mut out = Vec::new();
                fault.write_error(&mut out);
                one_error_line(&out);
                story.broken = true;
                return story;
            }
        }
    }
}

/// Reads the stream as it arrives, and looks again only when the hint says so.
fn read_in_pieces(stream: &[u8], limits: &ParseLimits, pieces: [usize; 2]) -> Story {
    let mut parser = Parser::default();
    let mut story = Story { requests: Vec::new(), broken: false };
    let (mut start, mut end, mut needed) = (0, 0, 0);
    for piece in pieces.iter().cycle() {
        if end == stream.len() {
            break;
        }
        end = (end + piece).min(stream.len());
        if end - start < needed {
            continue;
        }
        loop {
            // A buffer of its own: reading past it is an error.
            let held = stream[start..end].to_vec();
            match parser.parse(&held, limits) {
                Verdict::Request(request) => {
                    start += request.len;
                    story.requests.push(request);
                }
                Verdict::NeedMore(at_least) => {
                    needed = at_least;
                    break;
                }
                Verdict::Fault(_) => {
                    story.broken = true;
                    return story;
                }
            }
        }
    }
    story
}

fn every_prefix_waits(request: &[u8], limits: &ParseLimits) {
    let mut parser = Parser::default();
    let mut hint = 0;
    let step = 1 + request.len() / EVERY_PREFIX_LEN_MAX;
    for len in (0..request.len()).step_by(step) {
        match parser.parse(&request[..len], limits) {
            Verdict::NeedMore(at_least) => {
                let what = format!("{:?} cut at {len}", shown(request));
                assert!(at_least <= request.len(), "{what}: waits for {at_least}");
                assert!(at_least >= hint, "{what}: the hint fell from {hint} to {at_least}");
                hint = at_least;
            }
            _ => panic!("{:?} is taken whole at {len}", shown(request)),
        }
    }
}

/// An array is handed on as it came, so there is but one way to write it: a
/// server may be stricter about any other.
fn composing_again_is_identity(request: &Request, bytes: &[u8]) {
    let (composed, _) = compose(&request.args);
    if bytes[0] == b'*' && !request.args.is_empty() {
        assert_eq!(shown(&composed), shown(bytes), "another form of a request is taken");
    }
    match Parser::default().parse(&composed, &ParseLimits::of(&Limits::default())) {
        Verdict::Request(again) => {
            assert_eq!(again.args, request.args);
            assert_eq!(again.len, composed.len());
        }
        _ => panic!("not a request: {:?}", shown(&composed)),
    }
}
