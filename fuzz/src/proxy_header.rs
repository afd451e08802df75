//! What a hostile proxy says first: a header or a fault, the same however it is cut into
//! pieces, and never more waited for than is bounded.

use crate::Choices;
use keyway_net::{HEADER_LEN_MAX, Header, parse_header};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let piece_len = 1 + choices.below(40);
    let said = choices.rest();
    let whole = parse_header(said);
    // A fault stays one, and a header the same, whatever comes behind.
    let mut len = 0;
    while len < said.len() {
        len = (len + piece_len).min(said.len());
        match parse_header(&said[..len]) {
            Ok(Header::NeedMore) => {
                assert!(len < HEADER_LEN_MAX, "it waits for ever");
            }
            early => {
                assert_eq!(early, whole);
                break;
            }
        }
    }
    if let Ok(Header::Whole { len, .. }) = whole {
        assert!(len <= said.len() && len <= HEADER_LEN_MAX);
        for cut in 0..len {
            assert_eq!(parse_header(&said[..cut]), Ok(Header::NeedMore), "cut at {cut}");
        }
    }
}
