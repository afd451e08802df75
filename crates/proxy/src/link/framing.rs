//! Splits the received bytes of a server into replies.
//!
//! ```text
//!   read 1  [ reply ][ reply ][ rep      what is here of the last one is kept,
//!   read 2  ly ][ reply ][ reply ][ r    and as much put behind it as it wants;
//!               └── looked at where they lie
//! ```

use super::{Exchange, Internal, Link, LinkState, Owner};
use keyway_base::{BackendFault, Limits};
use keyway_resp::{Framing, Kind};

/// Number of bytes that are first appended to the kept part of a reply, if it is not known how much
/// is missing. With fewer, a reply of many elements would be parsed more often. With more, more of
/// the following bytes would be copied.
const JOINED_LEN_MIN: usize = 256;

/// Capacity that the input buffer keeps when it becomes empty, in bytes.
pub(super) const INPUT_KEPT_MAX: usize = 64 << 10;

impl Link {
    /// Takes replies from `bytes`, and keeps the received part of the last one.
    pub(super) fn frame_input(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) -> Result<(), BackendFault> {
        let bytes = match self.input.is_empty() {
            true => bytes,
            false => self.end_part(bytes, limits, deliver)?,
        };
        if !bytes.is_empty() {
            let consumed = self.take_replies(bytes, limits, deliver)?;
            self.input.extend_from_slice(&bytes[consumed..]);
        }
        Ok(())
    }

    /// Completes the reply of which a part is kept, as far as `bytes` contain more of it. Returns
    /// the following bytes, which are not copied: the next reply starts with them.
    fn end_part<'b>(
        &mut self,
        mut bytes: &'b [u8],
        limits: &Limits,
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) -> Result<&'b [u8], BackendFault> {
        let mut len_min = JOINED_LEN_MIN;
        loop {
            let kept = self.input.len();
            let missing = self.input_needed.saturating_sub(kept);
            let joined = missing.max(len_min).min(bytes.len());
            self.input.extend_from_slice(&bytes[..joined]);
            if joined < missing {
                return Ok(&[]);
            }
            let mut input = std::mem::take(&mut self.input);
            let consumed = self.take_replies(&input, limits, deliver)?;
            let is_over = consumed >= kept;
            let behind = if is_over { &bytes[consumed - kept..] } else { &bytes[joined..] };
            let is_known = consumed < input.len() && behind.len() < self.input_needed;
            input.drain(..consumed);
            if is_over && !is_known {
                // The following bytes are parsed where they are.
                input.clear();
            }
            if !input.is_empty() || input.capacity() <= INPUT_KEPT_MAX {
                self.input = input;
            }
            match is_over {
                true if is_known => {
                    self.input.extend_from_slice(&bytes[joined..]);
                    return Ok(&[]);
                }
                true => return Ok(behind),
                false if behind.is_empty() => return Ok(&[]),
                false => (bytes, len_min) = (behind, len_min * 2),
            }
        }
    }

    fn take_replies(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        deliver: &mut impl FnMut(&Exchange, Kind, &[u8]),
    ) -> Result<usize, BackendFault> {
        if self.memcached.is_some() {
            return self.take_memcached_replies(bytes, limits, deliver);
        }
        let mut pos = 0;
        while pos < bytes.len() {
            let rest = &bytes[pos..];
            match self.framer.frame(rest, limits.reply_len_max, limits.reply_depth_max) {
                Ok(Framing::Ready { len, kind }) => {
                    pos += len;
                    // A push answers no request, and only a private link of one client has asked
                    // for any.
                    if kind == Kind::Push {
                        let is_asked =
                            self.announcement.is_some() && self.state == LinkState::Ready;
                        let push = if is_asked { &Exchange::PUSH } else { &Exchange::UNASKED };
                        deliver(push, kind, &rest[..len]);
                        continue;
                    }
                    if let LinkState::Handshaking { left, deadline } = self.state {
                        self.on_handshake_reply(kind, &rest[..len], left, deadline)?;
                        continue;
                    }
                    if !self.answered {
                        self.on_first_reply(&rest[..len])?;
                    }
                    if let Some(Exchange { replies_before: 1.., .. }) = self.fifo.front() {
                        self.skip_reply(kind, &rest[..len]);
                        continue;
                    }
                    let exchange = self.take_answered()?;
                    if len >= limits.big_reply_len() {
                        self.note_big(&exchange, &rest[..len]);
                    }
                    if self.redirected.is_some()
                        && self.release_answered(&exchange, kind, &rest[..len])?
                    {
                        continue;
                    }
                    let is_select = exchange.owner == Owner::Internal(Internal::Select);
                    if is_select {
                        self.on_select_reply(kind, &rest[..len]);
                    }
                    if self.translates {
                        self.deliver_translated(&exchange, &rest[..len], deliver);
                    } else if is_select || self.refusal.is_empty() {
                        deliver(&exchange, kind, &rest[..len]);
                    } else {
                        self.deliver_refusal(&exchange, deliver);
                    }
                }
                Ok(Framing::NeedMore { at_least }) => {
                    self.input_needed = at_least;
                    break;
                }
                Err(fault) => return Err(self.framing_fault(fault)),
            }
        }
        Ok(pos)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkOptions, MemcachedOptions};
    use super::*;
    use crate::link::tests;
    use keyway_base::{Key, Time};
    use keyway_command::Counted;
    use keyway_memcache::{Dialect, Expect};

    fn options(memcached: Option<MemcachedOptions>) -> LinkOptions {
        LinkOptions { memcached, timeout: None, ..tests::options() }
    }

    /// Returns a link on which each of `asked` waits for its reply.
    fn link(options: &LinkOptions, asked: &[Expect]) -> Link {
        let mut link = Link::default();
        link.on_connecting(options, Time(0));
        link.on_connected(options, Time(0));
        if options.memcached.is_some() {
            link.advance(link.unsent().len());
            link.handle_input(b"VERSION 1.6.38\r\n", &Limits::default(), Time(0), |_, _, _| ())
                .unwrap();
        }
        for (sequence, expect) in asked.iter().enumerate() {
            link.request_buf().extend_from_slice(b"asked\r\n");
            let owner = Owner::Session { session: Key::NONE, sequence: sequence as u32 };
            link.enqueue(owner, Counted::OWN, 7, Time(0));
            link.set_expect(*expect);
        }
        link.advance(link.unsent().len());
        link
    }

    /// Feeds `all` in pieces with the lengths of `lens`, again and again.
    fn hear(mut link: Link, all: &[u8], lens: &[usize]) -> Vec<Vec<u8>> {
        let (mut got, mut rest, mut lens) = (Vec::new(), all, lens.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*lens.next().unwrap()));
            link.handle_input(piece, &Limits::default(), Time(0), |exchange, _, reply| {
                let number = got.len() as u32;
                let owner = Owner::Session { session: Key::NONE, sequence: number };
                assert_eq!(exchange.owner, owner);
                got.push(reply.to_vec());
            })
            .unwrap();
            rest = behind;
        }
        assert!(!link.has_part() && link.in_flight() == 0);
        got
    }

    fn hear_all_cuts(options: &LinkOptions, asked: &[Expect], wanted: &[Vec<u8>]) {
        let all = wanted.concat();
        for first in 1..all.len() {
            assert!(hear(link(options, asked), &all, &[first, all.len()]) == wanted, "{first}");
        }
        for len in (1..40).chain([100, 255, 256, 257, 511, 700, 1000]) {
            assert!(hear(link(options, asked), &all, &[len]) == wanted, "{len}");
            assert!(hear(link(options, asked), &all, &[len, 3, 2 * len + 1]) == wanted, "{len}");
        }
    }

    #[test]
    fn replies_are_the_same_wherever_reads_end() {
        let bulk = |len: usize| format!("${len}\r\n{}\r\n", "v".repeat(len)).into_bytes();
        let list = |len: usize| [format!("*{len}\r\n").into_bytes(), bulk(1).repeat(len)].concat();
        let wanted = [
            b":7\r\n".to_vec(),
            bulk(300),
            list(200),
            bulk(0),
            b"-ERR no\r\n".to_vec(),
            list(3),
            b"*2\r\n*1\r\n$-1\r\n*-1\r\n".to_vec(),
            bulk(1100),
            b"+OK\r\n".to_vec(),
        ];
        hear_all_cuts(&options(None), &[Expect::One; 9], &wanted);
    }

    #[test]
    fn those_of_memcached_too() {
        let value = |len: usize| format!("VALUE k 0 {len}\r\n{}\r\n", "v".repeat(len));
        let wanted = [
            [value(300), value(0), "END\r\n".to_owned()].concat().into_bytes(),
            b"STORED\r\n".to_vec(),
            b"END\r\n".to_vec(),
            [value(9).repeat(60), "END\r\n".to_owned()].concat().into_bytes(),
            b"SERVER_ERROR out\r\n".to_vec(),
        ];
        let asked = [Expect::List, Expect::One, Expect::List, Expect::List, Expect::One];
        let memcached = MemcachedOptions { dialect: Dialect::Text, user: String::new() };
        hear_all_cuts(&options(Some(memcached)), &asked, &wanted);
    }
}
