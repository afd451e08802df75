//! Helpers that unit tests share.

use keyway_base::ByteRange;
use keyway_command::{Args, Request};

/// Lets `work` have the request that a line makes.
pub(crate) fn with_request<R>(line: &str, work: impl FnOnce(&Request<'_>) -> R) -> R {
    let mut ranges = Vec::new();
    let mut start = 0;
    for word in line.split(' ') {
        ranges.push(ByteRange::new(start, start + word.len()));
        start += word.len() + 1;
    }
    work(&Request::resolve(Args::new(line.as_bytes(), &ranges)).expect("a request"))
}
