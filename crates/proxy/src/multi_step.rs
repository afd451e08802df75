//! A request that takes more than one question, or whose reply is not an unchanged reply of the
//! server: SCAN, RANDOMKEY, and scripts that a server lacks.
//!
//! ```text
//!   asked ──reply──► Next::Pass | Next::Cursor | Next::Error ──► the client
//!     ▲                 │
//!     └── Next::Again ──┘   (another server, or the same after a load)
//! ```
//! The worker asks. A multi-step request only decides what a reply means.

use crate::{ConnectionKey, Digest};
use keyway_resp::{Framing, Kind, Protocol, frame_reply, parse_integer};
use keyway_route::Walk;

/// A request that takes several steps.
#[derive(Debug)]
pub struct MultiStep {
    /// The word of `CLIENT CACHING` for it.
    pub caching: Option<&'static str>,
    /// The database in which it runs, by the client's number.
    pub database: u32,
    /// The protocol of its client.
    pub protocol: Protocol,
    /// Index of the server that is asked.
    pub server: u16,
    /// The connection on which it was asked.
    pub link: ConnectionKey,
    /// The bytes that are sent, to be sent again.
    pub request: Vec<u8>,
    /// The server's `NOSCRIPT`, while the server is asked whether it really lacks the script.
    pub said: Vec<u8>,
    /// The task.
    pub work: Work,
}

/// The task of a multi-step request.
#[derive(Clone, Debug)]
pub enum Work {
    /// One step of a SCAN.
    Scan(Walk),
    /// RANDOMKEY.
    RandomKey {
        /// Number of servers that were not asked yet.
        left: u16,
        /// True if a server has answered that it has no key.
        is_empty: bool,
    },
    /// EVALSHA of a known script.
    Script {
        /// The script.
        digest: Digest,
        /// The last question.
        step: ScriptStep,
    },
    /// A transaction that calls scripts. It is never run again, but the server may have lost what
    /// it was given.
    Transaction,
}

/// The last question about a script. A script that has run must not run again, and may itself have
/// returned an error like that of a server that lacks it. So the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptStep {
    /// Run it.
    Run,
    /// Ask whether the server has it, after `NOSCRIPT`.
    Look,
    /// Run it after its load.
    Again,
}

/// The next action after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The reply is the client's.
    Pass,
    /// The client gets this cursor, and the server's reply from `rest` on.
    Cursor {
        /// The client's cursor.
        cursor: u64,
        /// Index in the server's reply at which the keys start.
        rest: usize,
    },
    /// The client gets this error instead: a text with its code.
    Error(&'static str),
    /// The client gets the server's earlier reply.
    Said,
    /// Ask again: the next server, or this one about the script or after a load of it, if that is
    /// allowed. Otherwise the reply, or the server's earlier one, is the client's.
    Again,
}

const CURSOR_TOO_LARGE: &str =
    "ERR a server's SCAN cursor is too large to carry; run SCAN on each server";
const NOT_A_SCAN_REPLY: &str =
    "ERR a server answered SCAN with something else than a cursor and keys";

impl MultiStep {
    /// Returns what follows from a server's reply. Counts the question as asked.
    pub fn on_reply(&mut self, kind: Kind, reply: &[u8]) -> Next {
        match &mut self.work {
            Work::Scan(_) if kind == Kind::Error => Next::Pass,
            Work::Scan(walk) => {
                let Some((inner, rest)) = scan_reply(reply) else {
                    return Next::Error(NOT_A_SCAN_REPLY);
                };
                match walk.encode(self.server, inner) {
                    Some(cursor) => Next::Cursor { cursor, rest },
                    None => Next::Error(CURSOR_TOO_LARGE),
                }
            }
            Work::RandomKey { left, is_empty } => {
                let is_null = reply == b"$-1\r\n" || reply == b"_\r\n";
                *is_empty |= is_null;
                if !is_null || *left == 0 {
                    return Next::Pass;
                }
                *left -= 1;
                Next::Again
            }
            Work::Transaction => {
                const MISSING: &[u8] = b"\r\n-NOSCRIPT";
                match reply.windows(MISSING.len()).any(|part| part == MISSING) {
                    true => Next::Again,
                    false => Next::Pass,
                }
            }
            Work::Script { step, .. } => match *step {
                ScriptStep::Run if reply.starts_with(b"-NOSCRIPT") => {
                    *step = ScriptStep::Look;
                    self.said.extend_from_slice(reply);
                    Next::Again
                }
                ScriptStep::Look if reply == b"*1\r\n:0\r\n" => {
                    *step = ScriptStep::Again;
                    Next::Again
                }
                ScriptStep::Look => Next::Said,
                ScriptStep::Run | ScriptStep::Again => Next::Pass,
            },
        }
    }

    /// Returns what follows if a random key is none of the server's own. Without another one, the client
    /// learns that there is no key.
    pub fn on_foreign_key(&mut self) -> Next {
        let Work::RandomKey { left, is_empty } = &mut self.work else { return Next::Pass };
        *is_empty = true;
        if *left == 0 {
            self.protocol.null(&mut self.said);
            return Next::Said;
        }
        *left -= 1;
        Next::Again
    }

    /// Returns what follows if the server gives no reply: another one may have a key too, and a
    /// question changes nothing. Counts the question as asked.
    pub fn on_fault(&mut self) -> Next {
        match &mut self.work {
            Work::Script { step: ScriptStep::Look, .. } => Next::Said,
            Work::RandomKey { left: left @ 1.., .. } => {
                *left -= 1;
                Next::Again
            }
            _ => Next::Pass,
        }
    }
}

/// Returns the cursor in a server's reply to SCAN, and the index at which the keys start.
fn scan_reply(reply: &[u8]) -> Option<(u64, usize)> {
    let rest = reply.strip_prefix(b"*2\r\n")?;
    let Ok(Framing::Ready { len, kind: Kind::Bulk }) = frame_reply(rest, u32::MAX, 1) else {
        return None;
    };
    let head = rest.iter().position(|&byte| byte == b'\n')? + 1;
    let digits = rest.get(head..len.checked_sub(2)?)?;
    let cursor = match parse_integer(digits) {
        Some(cursor) => u64::try_from(cursor).ok()?,
        // It is greater than a signed number.
        None => std::str::from_utf8(digits).ok()?.parse().ok()?,
    };
    Some((cursor, 4 + len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_route::ServersInUse;
    use keyway_topology::Server;

    fn multi_step(work: Work) -> MultiStep {
        MultiStep {
            caching: None,
            database: 0,
            protocol: Protocol::Resp2,
            server: 0,
            link: ConnectionKey::NONE,
            request: Vec::new(),
            said: Vec::new(),
            work,
        }
    }

    fn scan() -> (MultiStep, ServersInUse) {
        let servers = ["a:1", "b:1"].map(|text| Server::parse(text).unwrap());
        let in_use = ServersInUse::new(&servers, |_| true);
        (multi_step(Work::Scan(Walk::Listed(in_use.clone()))), in_use)
    }

    #[test]
    fn a_scan_goes_on_on_the_next_server_and_ends_behind_the_last() {
        let (mut multi_step, in_use) = scan();
        let reply = b"*2\r\n$2\r\n12\r\n*1\r\n$1\r\na\r\n";
        let cursor = in_use.encode(0, 12).unwrap();
        assert_eq!(multi_step.on_reply(Kind::Array, reply), Next::Cursor { cursor, rest: 12 });
        let last = b"*2\r\n$1\r\n0\r\n*0\r\n";
        let cursor = in_use.encode(0, 0).unwrap();
        assert_eq!(multi_step.on_reply(Kind::Array, last), Next::Cursor { cursor, rest: 11 });
        multi_step.server = 1;
        assert_eq!(multi_step.on_reply(Kind::Array, last), Next::Cursor { cursor: 0, rest: 11 });
    }

    #[test]
    fn a_reply_that_is_no_scan_is_an_error_and_an_error_stays_what_it_is() {
        let (mut multi_step, _) = scan();
        assert_eq!(multi_step.on_reply(Kind::Error, b"-ERR syntax error\r\n"), Next::Pass);
        for (kind, reply) in [
            (Kind::Integer, &b":1\r\n"[..]),
            (Kind::Array, b"*0\r\n"),
            (Kind::Array, b"*2\r\n:1\r\n*0\r\n"),
            (Kind::Array, b"*2\r\n$1\r\nx\r\n*0\r\n"),
            (Kind::Array, b"*2\r\n$2\r\n-1\r\n*0\r\n"),
            (Kind::Array, b"*2\r\n$-1\r\n*0\r\n"),
        ] {
            assert_eq!(multi_step.on_reply(kind, reply), Next::Error(NOT_A_SCAN_REPLY));
        }
        let huge = b"*2\r\n$20\r\n18446744073709551615\r\n*0\r\n";
        assert_eq!(multi_step.on_reply(Kind::Array, huge), Next::Error(CURSOR_TOO_LARGE));
    }

    #[test]
    fn a_random_key_is_looked_for_on_every_server_before_there_is_none() {
        let mut multi_step = multi_step(Work::RandomKey { left: 2, is_empty: false });
        assert_eq!(multi_step.on_reply(Kind::Bulk, b"$-1\r\n"), Next::Again);
        assert_eq!(multi_step.on_reply(Kind::Bulk, b"$-1\r\n"), Next::Again);
        assert_eq!(multi_step.on_reply(Kind::Bulk, b"$-1\r\n"), Next::Pass);
    }

    #[test]
    fn a_server_that_gives_no_reply_leaves_a_random_key_to_the_others() {
        let mut random = multi_step(Work::RandomKey { left: 1, is_empty: false });
        assert_eq!(random.on_fault(), Next::Again);
        assert_eq!(random.on_fault(), Next::Pass);
        assert_eq!(scan().0.on_fault(), Next::Pass, "a part of a scan is one server's");
    }

    #[test]
    fn what_the_server_says_it_lacks_is_run_again_once() {
        let digest = Digest::of(b"return 1");
        let missing = b"-NOSCRIPT No matching script.\r\n";
        let mut multi_step = multi_step(Work::Script { digest, step: ScriptStep::Run });
        assert_eq!(multi_step.on_reply(Kind::Error, b"-ERR other\r\n"), Next::Pass);
        assert_eq!(multi_step.on_reply(Kind::Error, missing), Next::Again);
        assert_eq!(multi_step.on_reply(Kind::Array, b"*1\r\n:0\r\n"), Next::Again);
        assert_eq!(multi_step.on_reply(Kind::Error, missing), Next::Pass);
    }

    #[test]
    fn a_script_that_returns_such_an_error_itself_runs_once() {
        let digest = Digest::of(b"return 1");
        let own = b"-NOSCRIPT No matching script.\r\n";
        for said in [&b"*1\r\n:1\r\n"[..], b"-NOPERM no\r\n"] {
            let mut multi_step = multi_step(Work::Script { digest, step: ScriptStep::Run });
            assert_eq!(multi_step.on_fault(), Next::Pass, "it may have run");
            assert_eq!(multi_step.on_reply(Kind::Error, own), Next::Again);
            assert_eq!(multi_step.on_fault(), Next::Said);
            assert_eq!(multi_step.on_reply(Kind::Array, said), Next::Said);
            assert_eq!(multi_step.said, own);
        }
    }

    #[test]
    fn a_transaction_tells_of_a_script_that_is_missing_in_it() {
        let mut multi_step = multi_step(Work::Transaction);
        let missing = b"*2\r\n:1\r\n-NOSCRIPT No matching script.\r\n";
        assert_eq!(multi_step.on_reply(Kind::Array, missing), Next::Again);
        assert_eq!(multi_step.on_reply(Kind::Array, b"*1\r\n:1\r\n"), Next::Pass);
    }
}
