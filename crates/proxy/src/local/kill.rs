//! CLIENT KILL, in its old form (an address) and its new one (filters).

use super::{After, ClientEntry, LocalContext};
use keyway_command::Args;
use keyway_resp::{parse_integer, reply};

/// What a client must be like to be closed.
#[derive(Default)]
struct Filters {
    id: Option<u64>,
    addr: Option<String>,
    laddr: Option<String>,
    age_min: Option<u64>,
    /// Of a type or user that nobody here is.
    nobody: bool,
    spare_caller: bool,
}

pub(super) fn kill(args: &Args, context: &LocalContext, out: &mut Vec<u8>) -> After {
    let is_old = args.len() == 3;
    let filters = if is_old {
        let addr = Some(String::from_utf8_lossy(&args[2]).into_owned());
        Filters { addr, ..Filters::default() }
    } else {
        match filters(args) {
            Ok(filters) => filters,
            Err(text) => {
                reply::error(out, &text);
                return After::Continue;
            }
        }
    };
    let now = context.clock.unix_micros / 1_000_000;
    let mut ids = Vec::new();
    context.clients.for_each(|id, entry| {
        if filters.matches(id, entry, now, context.identity.id) {
            ids.push(id);
        }
    });
    match (is_old, ids.len()) {
        (true, 0) => reply::error(out, "ERR No such client"),
        (true, _) => reply::simple(out, "OK"),
        (false, count) => reply::integer(out, count as i64),
    }
    After::Kill(ids)
}

impl Filters {
    fn matches(&self, id: u64, entry: &ClientEntry, now: u64, caller: u64) -> bool {
        !self.nobody
            && !(self.spare_caller && id == caller)
            && self.id.is_none_or(|wanted| wanted == id)
            && self.addr.as_ref().is_none_or(|addr| *addr == entry.addr)
            && self.laddr.as_ref().is_none_or(|laddr| *laddr == entry.laddr)
            && self.age_min.is_none_or(|age| now.saturating_sub(entry.connected_unix) >= age)
    }
}

fn filters(args: &Args) -> Result<Filters, String> {
    let mut filters = Filters { spare_caller: true, ..Filters::default() };
    let mut pairs = args.from(2);
    while let Some(name) = pairs.next() {
        let Some(value) = pairs.next() else { return Err("ERR syntax error".to_owned()) };
        let text = String::from_utf8_lossy(value).into_owned();
        let number = parse_integer(value).and_then(|value| u64::try_from(value).ok());
        match name.to_ascii_uppercase().as_slice() {
            b"ID" => match number.filter(|&id| id > 0) {
                Some(id) => filters.id = Some(id),
                None => return Err("ERR client-id should be greater than 0".to_owned()),
            },
            b"ADDR" => filters.addr = Some(text),
            b"LADDR" => filters.laddr = Some(text),
            b"MAXAGE" => match number {
                Some(age) => filters.age_min = Some(age),
                None => return Err("ERR maxage is not an integer or out of range".to_owned()),
            },
            b"USER" if text == "default" => {}
            b"USER" => return Err(format!("ERR No such user '{text}'")),
            b"TYPE" => match text.to_ascii_lowercase().as_str() {
                "normal" => {}
                "master" | "slave" | "replica" | "pubsub" => filters.nobody = true,
                _ => return Err(format!("ERR Unknown client type '{text}'")),
            },
            b"SKIPME" => match text.to_ascii_lowercase().as_str() {
                "yes" => filters.spare_caller = true,
                "no" => filters.spare_caller = false,
                _ => return Err("ERR syntax error".to_owned()),
            },
            _ => return Err("ERR syntax error".to_owned()),
        }
    }
    Ok(filters)
}
