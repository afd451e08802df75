//! Addresses and ids of the bus's nodes: what is read is written so that it reads the same.

use keyway_bus::{IdRange, NodeId, URL_LEN_MAX, Url};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Url>() {
        Ok(url) => {
            let written = url.to_string();
            assert!(text.len() <= URL_LEN_MAX);
            assert_eq!(written.parse::<Url>().as_ref(), Ok(&url), "{written}");
        }
        Err(fault) => assert!(fault.to_string().starts_with('`'), "{fault}"),
    }
    if let Ok(id) = text.parse::<NodeId>() {
        assert_eq!(id.to_string().parse::<NodeId>(), Ok(id));
    }
    if let Ok(range) = text.parse::<IdRange>() {
        assert!(range.from <= range.to);
        assert_eq!(range.to_string().parse::<IdRange>(), Ok(range));
    }
}
