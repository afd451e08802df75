//! Laws that more than one target checks.

use keyway_base::ByteRange;
use keyway_proxy::local::Facts;
use keyway_resp::{Framer, Framing, Kind, Protocol, reply};
use std::sync::LazyLock;

/// Deepest nesting of any reply of ours.
const DEPTH_MAX: u32 = 16;

/// `bytes` is exactly one reply; returns its kind.
pub fn one_reply(bytes: &[u8]) -> Kind {
    one_reply_in(Protocol::Resp2, bytes)
}

/// The same in either version.
pub fn one_reply_in(protocol: Protocol, bytes: &[u8]) -> Kind {
    match Framer::new(protocol).frame(bytes, u32::MAX, DEPTH_MAX) {
        Ok(Framing::Ready { len, kind }) if len == bytes.len() => kind,
        other => panic!("not one reply but {other:?}: {:?}", shown(bytes)),
    }
}

/// `bytes` is exactly one line with an error.
pub fn one_error_line(bytes: &[u8]) {
    assert_eq!(one_reply(bytes), Kind::Error, "{:?}", shown(bytes));
}

/// Bytes as text, for messages.
pub fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The wire form of `args`, and where each lies in it.
pub fn compose<A: AsRef<[u8]>>(args: &[A]) -> (Vec<u8>, Vec<ByteRange>) {
    let (mut buf, mut ranges) = (Vec::new(), Vec::new());
    reply::array(&mut buf, args.len());
    for arg in args {
        reply::bulk(&mut buf, arg.as_ref());
        let end = buf.len() - 2;
        ranges.push(ByteRange::new(end - arg.as_ref().len(), end));
    }
    (buf, ranges)
}

/// A process that knows nothing about itself.
pub struct NoFacts;

impl Facts for NoFacts {
    fn info(&self, _pool: u16, _is_cluster: bool, _sections: &[&str], out: &mut String) {
        out.push_str("# Server\r\n");
    }
    fn settings(&self, _pool: u16) -> Vec<(&'static str, String)> {
        vec![("maxclients", "10".to_owned())]
    }
}

/// Tells what happens in a run, where `KEYWAY_FUZZ_STORY` is set: to
/// understand one input.
pub fn tell(line: impl FnOnce() -> String) {
    static IS_TOLD: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("KEYWAY_FUZZ_STORY").is_some());
    if *IS_TOLD {
        eprintln!("{}", line());
    }
}
