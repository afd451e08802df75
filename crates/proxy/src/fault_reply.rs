//! The only place where a fault becomes a text on the wire.

use keyway_base::{BackendFault, Fault, LimitFault, ReplyBound, Sent};
use keyway_command::Request;
use keyway_resp::reply;
use keyway_users::{Denied, Place};
use std::fmt;

/// Appends the error reply for `fault`. `backend` describes what failed (its name, address and what
/// is known of the cause), or the pool if no backend is involved.
#[cold]
pub fn write_fault(fault: Fault, backend: &str, out: &mut Vec<u8>) {
    reply::error(out, &text(fault, backend));
}

/// Returns the text of [`write_fault`], after an error code.
#[cold]
pub(crate) fn text(fault: Fault, backend: &str) -> String {
    text_with(fault, backend, what)
}

/// Returns the same for a client of memcached.
#[cold]
pub(crate) fn text_for_memcached(fault: Fault, backend: &str) -> String {
    text_with(fault, backend, |fault| match fault {
        BackendFault::Protocol => "answered something that is no reply",
        BackendFault::Handshake => "refused the password of this pool (or, of Redis, the database)",
        BackendFault::Full => "has no room for another connection",
        other => what(other),
    })
}

fn text_with(fault: Fault, backend: &str, what: impl Fn(BackendFault) -> &'static str) -> String {
    match fault {
        Fault::Client => "ERR Protocol error".to_owned(),
        Fault::Denied => "ERR not allowed here".to_owned(),
        Fault::Unrouted => {
            format!(
                "ERR no server of [pool.{backend}] may be used now: all are ejected; see /backends \
                 on the admin address"
            )
        }
        Fault::Backend { fault, sent } => {
            let what = what(fault);
            let consequence = match sent {
                Sent::No if fault == BackendFault::Full => "the request was not executed",
                Sent::No => "the request was not sent",
                Sent::Maybe => "the request may have been executed",
            };
            format!("ERR backend {backend} {what}; {consequence}")
        }
        Fault::StoreFull => "OOM command not allowed when used memory > 'maxmemory'.".to_owned(),
        Fault::Limit(LimitFault::Clients) => "ERR max number of clients reached".to_owned(),
    }
}

/// Returns the text for a request that the client's user may not make, as in Redis 7.0.
#[cold]
pub(crate) fn denied_words(request: &Request, denied: Denied, place: Place) -> String {
    let name = request.command.name;
    let whose = "NOPERM this user has no permissions to";
    let script = "ERR The user executing the script can't";
    match (denied, place) {
        (Denied::Command, Place::Script) => format!("{script} run this command or subcommand"),
        (Denied::Key(_), Place::Script) => {
            format!("{script} access at least one of the keys mentioned in the command arguments")
        }
        (Denied::Channel(_), Place::Script) => {
            format!("{script} publish to the channel mentioned in the command")
        }
        (Denied::Command, _) => format!("{whose} run the '{name}' command"),
        (Denied::Key(_), _) => format!("{whose} access one of the keys used as arguments"),
        (Denied::Channel(_), _) => format!("{whose} access one of the channels used as arguments"),
        (Denied::Keys(fault), _) => request.keys_error(fault),
        (Denied::Pattern(option), _) => {
            format!("ERR {option} option of SORT denied due to insufficient ACL permissions.")
        }
    }
}

/// Returns what a server did, to be put after its name.
#[cold]
pub fn fault_words(fault: BackendFault) -> &'static str {
    what(fault)
}

fn what(fault: BackendFault) -> &'static str {
    match fault {
        BackendFault::Connect => "cannot be reached",
        BackendFault::Timeout => "did not answer in time",
        BackendFault::Closed => "closed the connection",
        BackendFault::Protocol => "answered something that is not RESP",
        BackendFault::Handshake => {
            "refused the password, database or protocol that its connections begin with"
        }
        BackendFault::NotReady => "is not ready yet: it is loading its data, or busy",
        BackendFault::Full => {
            "has no room for another connection ('ERR max number of clients reached'; raise its \
             maxclients)"
        }
        BackendFault::CircuitOpen => {
            "is not asked for now, since too many requests to it failed (its circuit is open)"
        }
        BackendFault::Ejected => "is out of use on an operator's word",
        BackendFault::Reply(ReplyBound::Len) => {
            "sent a reply longer than reply_len_max and was disconnected"
        }
        BackendFault::Reply(ReplyBound::Depth) => {
            "sent a reply nested deeper than reply_depth_max and was disconnected"
        }
    }
}

/// Appends the error for a request whose keys are on several servers or have several slots. `spread`
/// says so, as in "live on 2 servers".
#[cold]
pub fn write_crossslot(
    command: &str,
    spread: impl fmt::Display,
    hash_tag: Option<&str>,
    out: &mut Vec<u8>,
) {
    let advice = match hash_tag {
        Some(tag) => {
            let mut marks = tag.chars();
            let (open, close) = (marks.next().unwrap_or('{'), marks.next().unwrap_or('}'));
            format!("give them a common hash tag, such as {open}user1{close}:name")
        }
        None => "set hash_tag = \"{}\" on the pool and give them a common tag, such as \
                 {user1}:name"
            .to_owned(),
    };
    let command = command.to_ascii_uppercase();
    reply::error(out, &format!("CROSSSLOT keys of this {command} {spread}; {advice}"));
}
