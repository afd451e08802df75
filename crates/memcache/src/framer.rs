//! Finds where a whole reply ends, across the reads in which it arrives.

use crate::{Outcome, ReplyFault, ReplyLimits, ReplyParsed, Wire, parse_reply, usual};

/// How the reply to a request ends. [`crate::compose_request`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// After one element.
    One,
    /// After an end mark, or an element that is no item and no statistic.
    List,
    /// After the element of a no-operation, whatever it says.
    UntilNoop,
    /// There is no reply: the server closes.
    Nothing,
}

/// Outcome of [`Framer::frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The reply is the first `len` bytes.
    Ready {
        /// Its length in bytes.
        len: usize,
    },
    /// The reply is incomplete. It need not be framed again before the buffer holds `at_least`
    /// bytes.
    NeedMore {
        /// Total buffer length from which framing again can succeed, in bytes.
        at_least: usize,
    },
}

/// Frames one reply. It remembers how far it has read, so that it reads no element twice. Each call
/// gets the bytes of the reply so far, from the first one.
#[derive(Clone, Copy, Debug)]
pub struct Framer {
    wire: Wire,
    expect: Expect,
    at: usize,
}

impl Framer {
    /// Creates a framer for a reply that ends as `expect` says.
    pub fn new(wire: Wire, expect: Expect) -> Self {
        Self { wire, expect, at: 0 }
    }

    /// Looks for the end of the reply with which `buf` starts.
    #[inline]
    pub fn frame(&mut self, buf: &[u8], limits: &ReplyLimits) -> Result<Framing, ReplyFault> {
        if self.expect == Expect::Nothing {
            return Ok(Framing::Ready { len: 0 });
        }
        if self.at == 0
            && self.wire == Wire::Text
            && let Some(len) = usual::reply_len(buf, self.expect)
        {
            self.check(len, limits)?;
            return Ok(Framing::Ready { len });
        }
        self.frame_elements(buf, limits)
    }

    /// Looks for the end element by element.
    fn frame_elements(&mut self, buf: &[u8], limits: &ReplyLimits) -> Result<Framing, ReplyFault> {
        if self.wire == Wire::Text && self.expect == Expect::List {
            self.pass_items(buf, limits)?;
        }
        loop {
            match parse_reply(buf.get(self.at..).unwrap_or_default(), self.wire, limits)? {
                ReplyParsed::NeedMore { at_least } => {
                    let at_least = self.at + at_least;
                    self.check(at_least, limits)?;
                    return Ok(Framing::NeedMore { at_least });
                }
                ReplyParsed::Ready { len, reply } => {
                    let end = self.at + len;
                    self.check(end, limits)?;
                    if self.ends(&reply.outcome) {
                        return Ok(Framing::Ready { len: end });
                    }
                    self.at = end;
                }
            }
        }
    }

    /// Skips items that have the usual form.
    fn pass_items(&mut self, buf: &[u8], limits: &ReplyLimits) -> Result<(), ReplyFault> {
        let mut at = self.at.min(buf.len());
        while let Some(len) = usual::item_len(&buf[at..]) {
            at += len;
        }
        self.at = self.at.max(at);
        self.check(at, limits)
    }

    fn check(&self, len: usize, limits: &ReplyLimits) -> Result<(), ReplyFault> {
        if len > limits.reply_len_max as usize { Err(ReplyFault::TooLong) } else { Ok(()) }
    }

    fn ends(&self, outcome: &Outcome<'_>) -> bool {
        match self.expect {
            Expect::One | Expect::Nothing => true,
            Expect::List => !matches!(outcome, Outcome::Hit(_) | Outcome::Stat { .. }),
            Expect::UntilNoop => matches!(outcome, Outcome::Noop),
        }
    }
}
