//! The database in which requests run, for clients that may select one.

use super::{Internal, Link, LinkOptions, Owner, REFUSAL_LEN_MAX};
use keyway_base::Time;
use keyway_command::Counted;
use keyway_resp::{Kind, reply};

/// The database in which a request runs that is sent unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Database {
    /// The one that the handshake selects.
    Own,
    /// Another, by its number.
    Selected(u32),
    /// A `SELECT` was refused, so it may be any.
    Unknown,
}

impl Link {
    /// Returns whether requests run in the database that the handshake selects, unless another is
    /// selected.
    #[inline]
    pub fn is_in_own_database(&self) -> bool {
        self.database == Database::Own
    }

    /// Makes the requests that are enqueued from now on run in `database`.
    pub fn select(&mut self, database: u32, options: &LinkOptions, now: Time) {
        let is_current = match self.database {
            Database::Own => database == options.database,
            Database::Selected(current) => database == current,
            Database::Unknown => false,
        };
        if !is_current {
            self.send_select(database, now);
        }
    }

    fn send_select(&mut self, database: u32, now: Time) {
        self.database = Database::Selected(database);
        let out = self.output.buf();
        let start = out.len();
        reply::array(out, 2);
        reply::bulk(out, b"SELECT");
        reply::bulk(out, database.to_string().as_bytes());
        let len = out.len() - start;
        self.enqueue(Owner::Internal(Internal::Select), Counted::OWN, len, now);
    }

    /// Notes the answer to a `SELECT`. If it was refused, the requests after it, up to the next
    /// one, ran in another database, if at all.
    pub(super) fn on_select_reply(&mut self, kind: Kind, reply: &[u8]) {
        self.refusal.clear();
        if kind == Kind::Simple {
            return;
        }
        self.database = Database::Unknown;
        let words = match kind {
            Kind::Error => &reply[1..reply.len() - 2],
            _ => b"ERR SELECT was answered with something else than OK",
        };
        self.refusal.push(b'-');
        self.refusal.extend_from_slice(&words[..words.len().min(REFUSAL_LEN_MAX)]);
        self.refusal.extend_from_slice(
            b" (said to SELECT; the request may have been executed on another database)\r\n",
        );
    }
}
