//! Replies in RESP2 translated to RESP3: whatever the reply and whatever the
//! command, exactly one reply comes out, errors unchanged, no RESP2 null left.

use crate::Choices;
use crate::invariants::{one_reply_in, shown};
use keyway_proxy::Translation;
use keyway_resp::{Framing, Kind, Protocol, frame_reply};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let translation = choices.pick(&Translation::ALL);
    let stream = choices.rest();
    let Ok(Framing::Ready { len, kind }) = frame_reply(stream, 1 << 20, 10) else { return };
    let reply = &stream[..len];
    let mut out = b"before".to_vec();
    translation.translate(reply, &mut out);
    let translated = out.strip_prefix(b"before").expect("what was there stays");
    one_reply_in(Protocol::Resp3, translated);
    if matches!(kind, Kind::Error | Kind::Simple | Kind::Integer) {
        assert_eq!(shown(translated), shown(reply));
    }
    let nulls = [&b"$-1\r\n"[..], b"*-1\r\n"];
    if nulls.contains(&reply) {
        assert_eq!(shown(translated), shown(b"_\r\n"));
    }
}
