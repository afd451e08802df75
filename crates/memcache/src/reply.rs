//! Reads a server's reply, in the protocol of its connection.

use crate::outcome::{ReplyFault, ReplyLimits, ReplyParsed};
use crate::{Wire, reply_binary, reply_text};

/// Reads one element of a reply from the start of `buf`.
#[inline]
pub fn parse_reply<'a>(
    buf: &'a [u8],
    wire: Wire,
    limits: &ReplyLimits,
) -> Result<ReplyParsed<'a>, ReplyFault> {
    match wire {
        Wire::Text => reply_text::parse(buf, limits),
        Wire::Binary => reply_binary::parse(buf, limits),
    }
}
