//! The filters of `CLIENT KILL` and the types of `CLIENT LIST`.

use super::{ClientEntry, SYNTAX};
use keyway_command::Args;
use keyway_resp::parse_integer;
use keyway_users::Users;

/// The kinds of clients. Keyway has no replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A client without subscriptions, including monitors.
    Normal,
    /// A client with subscriptions.
    Pubsub,
    /// A kind of which there are no clients.
    Other,
}

impl Type {
    /// Parses the name of a type.
    ///
    /// # Errors
    /// Returns the text of the error reply.
    pub(super) fn parse(word: &[u8]) -> Result<Type, String> {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("normal") {
            Ok(Type::Normal)
        } else if is("pubsub") {
            Ok(Type::Pubsub)
        } else if ["master", "slave", "replica"].into_iter().any(is) {
            Ok(Type::Other)
        } else {
            Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)))
        }
    }
}

/// The conditions for closing a client. `None` is always fulfilled.
#[derive(Debug)]
pub(super) struct Filters<'a> {
    id: Option<u64>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    kind: Option<Type>,
    user: Option<&'a [u8]>,
    /// Smallest number of seconds since it connected.
    age_min: Option<u64>,
    /// True if the caller is excluded.
    pub(super) skip_me: bool,
}

impl<'a> Filters<'a> {
    /// Creates the filter of the old form: the client at this address, even the caller.
    pub(super) fn of_addr(addr: &'a [u8]) -> Self {
        Self {
            id: None,
            addr: Some(addr),
            laddr: None,
            kind: None,
            user: None,
            age_min: None,
            skip_me: false,
        }
    }

    /// Parses the filters from argument 2 on, in pairs.
    ///
    /// # Errors
    /// Returns the text of the error reply.
    pub(super) fn parse(args: &Args<'a>, users: &Users) -> Result<Self, String> {
        let mut filters = Self { addr: None, skip_me: true, ..Self::of_addr(b"") };
        let mut index = 2;
        while let Some(name) = args.get(index) {
            let value = args.get(index + 1).ok_or(SYNTAX)?;
            filters.set(name, value, users)?;
            index += 2;
        }
        Ok(filters)
    }

    fn set(&mut self, name: &[u8], value: &'a [u8], users: &Users) -> Result<(), String> {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if is("id") {
            let id = parse_integer(value).filter(|id| *id > 0);
            self.id = Some(id.ok_or("ERR client-id should be greater than 0")? as u64);
        } else if is("type") {
            self.kind = Some(Type::parse(value)?);
        } else if is("addr") {
            self.addr = Some(value);
        } else if is("laddr") {
            self.laddr = Some(value);
        } else if is("user") {
            self.user = Some(value);
            if users.get(value).is_none() {
                return Err(format!("ERR No such user '{}'", String::from_utf8_lossy(value)));
            }
        } else if is("skipme") {
            self.skip_me = match () {
                () if value.eq_ignore_ascii_case(b"yes") => true,
                () if value.eq_ignore_ascii_case(b"no") => false,
                () => return Err(SYNTAX.to_owned()),
            };
        } else if is("maxage") {
            let age = parse_integer(value).ok_or("ERR maxage is not an integer or out of range")?;
            if age <= 0 {
                return Err("ERR maxage should be greater than 0".to_owned());
            }
            self.age_min = Some(age as u64);
        } else {
            return Err(SYNTAX.to_owned());
        }
        Ok(())
    }

    /// Returns whether a client is of this type.
    pub(super) fn passes_type(kind: Type, entry: &ClientEntry) -> bool {
        let is_subscriber = entry.live.get().is_subscriber();
        match kind {
            Type::Normal => !is_subscriber,
            Type::Pubsub => is_subscriber,
            Type::Other => false,
        }
    }

    /// Returns whether a client passes every filter.
    pub(super) fn pass(&self, id: u64, entry: &ClientEntry, now_unix: u64) -> bool {
        let age = now_unix.saturating_sub(entry.connected_unix);
        self.id.is_none_or(|wanted| wanted == id)
            && self.addr.is_none_or(|addr| addr == entry.addr.as_bytes())
            && self.laddr.is_none_or(|laddr| laddr == entry.laddr.as_bytes())
            && self.user.is_none_or(|user| user == entry.user.as_bytes())
            && self.kind.is_none_or(|kind| Self::passes_type(kind, entry))
            && self.age_min.is_none_or(|age_min| age >= age_min)
    }
}
