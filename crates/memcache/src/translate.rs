//! Forwards a server's whole reply to a client, whichever protocols the two use.

use crate::{
    Asker, Dialect, Expect, Outcome, ReplyFault, ReplyLimits, ReplyParsed, Wire, parse_reply,
    write_end, write_reply,
};

/// A server's whole reply, as [`crate::Framer`] found it.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// The protocol of the server.
    pub wire: Wire,
    /// How it ends, as [`crate::compose_request`] returned.
    pub expect: Expect,
}

/// How [`translate_elements`] went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translated {
    /// There were items or statistics, or none. More may follow, and [`write_end`] ends them.
    Open,
    /// The reply is complete.
    Complete,
}

/// Appends the client's reply to `out`, including its end.
///
/// # Errors
/// Returns an error if the bytes are no reply. `out` is then unchanged.
#[inline]
pub fn translate_reply(
    out: &mut Vec<u8>,
    asker: &Asker<'_>,
    answer: &Answer<'_>,
) -> Result<(), ReplyFault> {
    if translate_elements(out, asker, answer)? == Translated::Open {
        write_end(out, asker.head);
    }
    Ok(())
}

/// Does the same without the end, for a reply that is merged from those of several servers. An
/// error replaces what this reply had before it.
///
/// # Errors
/// Returns an error if the bytes are no reply. `out` is then unchanged.
pub fn translate_elements(
    out: &mut Vec<u8>,
    asker: &Asker<'_>,
    answer: &Answer<'_>,
) -> Result<Translated, ReplyFault> {
    let limits = ReplyLimits { reply_len_max: u32::MAX };
    let before = out.len();
    let mut rest = answer.bytes;
    let mut items = 0;
    while !rest.is_empty() {
        let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, answer.wire, &limits) else {
            out.truncate(before);
            return Err(ReplyFault::Protocol);
        };
        rest = &rest[len..];
        match reply.outcome {
            Outcome::Error { .. } => {
                out.truncate(before);
                write_reply(out, asker, &reply.outcome);
                return Ok(Translated::Complete);
            }
            Outcome::End => {}
            Outcome::Noop if answer.expect == Expect::UntilNoop => {}
            // A server that was asked for each key separately reports its misses.
            Outcome::NotFound if answer.expect == Expect::UntilNoop => {}
            outcome => {
                items += 1;
                write_reply(out, asker, &outcome);
                let is_listed = matches!(outcome, Outcome::Hit(_) | Outcome::Stat { .. });
                if answer.expect == Expect::List && !is_listed {
                    return Ok(Translated::Complete);
                }
            }
        }
    }
    // This is a list without items, to a client that asked for one and whose protocol can report a
    // miss.
    if items == 0 && asker.head.verb.reads() && asker.head.dialect != Dialect::Text {
        write_reply(out, asker, &Outcome::NotFound);
    }
    Ok(Translated::Open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, RequestFlags, Verb};

    fn told(head: &Head, bytes: &[u8], expect: Expect) -> String {
        let asker = Asker { head, key: b"k", meta: b"" };
        let mut out = b">".to_vec();
        let answer = Answer { bytes, wire: Wire::Text, expect };
        if translate_reply(&mut out, &asker, &answer).is_err() {
            out.extend_from_slice(b"fault");
        }
        out.escape_ascii().to_string()
    }

    #[test]
    fn an_error_takes_the_place_of_the_list_it_ends() {
        let get = Head { asked: RequestFlags::VALUE, ..Head::default() };
        let bytes = b"VALUE k 0 1\r\na\r\nSERVER_ERROR x\r\n";
        assert_eq!(told(&get, bytes, Expect::List), r">SERVER_ERROR x\r\n");
        let bytes = b"VA 1 kk\r\na\r\nSERVER_ERROR x\r\nMN\r\n";
        assert_eq!(told(&get, bytes, Expect::UntilNoop), r">SERVER_ERROR x\r\n");
        let stats = Head { verb: Verb::Stats, ..Head::default() };
        assert_eq!(told(&stats, b"STAT a 1\r\nEND\r\n", Expect::List), r">STAT a 1\r\nEND\r\n");
        assert_eq!(told(&stats, b"RESET\r\n", Expect::List), r">RESET\r\n");
    }

    #[test]
    fn an_empty_list_is_a_miss_where_there_is_a_word_for_it() {
        let get = Head::default();
        assert_eq!(told(&get, b"END\r\n", Expect::List), r">END\r\n");
        assert_eq!(told(&get, b"EN\r\n", Expect::One), r">END\r\n");
        let meta = Head { dialect: Dialect::Meta, ..get };
        assert_eq!(told(&meta, b"END\r\n", Expect::List), r">EN\r\n");
        assert_eq!(told(&meta, b"EN\r\n", Expect::One), r">EN\r\n");
        let noop = Head { verb: Verb::Noop, ..meta };
        assert_eq!(told(&noop, b"MN\r\n", Expect::One), r">MN\r\n");
    }

    #[test]
    fn what_is_no_reply_leaves_nothing() {
        assert_eq!(
            told(&Head::default(), b"VALUE k 0 1\r\na\r\nHTTP/1.1\r\n", Expect::List),
            ">fault"
        );
    }
}
