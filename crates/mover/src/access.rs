//! The way to a server, and what goes wrong.

use keyway_tls::ClientTls;
use keyway_topology::Endpoint;
use std::fmt;

/// The way to a server.
#[derive(Clone)]
pub struct Access {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Its password, if it wants one.
    pub password: Option<String>,
    /// What TLS needs, if it speaks it.
    pub tls: Option<ClientTls>,
}

impl Access {
    /// The way to a server without a password and without TLS.
    pub fn new(endpoint: Endpoint) -> Access {
        Access { endpoint, password: None, tls: None }
    }
}

/// The password is left out.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({})", self.endpoint)
    }
}

/// The reason why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason, for people.
    pub why: String,
    /// True if trying again is of no use before somebody has changed something.
    pub is_final: bool,
}

impl Failure {
    /// A failure that may be over at the next try.
    pub(crate) fn passing(why: impl Into<String>) -> Failure {
        Failure { why: why.into(), is_final: false }
    }

    /// A failure that would come again.
    pub(crate) fn lasting(why: impl Into<String>) -> Failure {
        Failure { why: why.into(), is_final: true }
    }

    /// The failure of a server that has answered with an error.
    pub(crate) fn of_error(server: &Endpoint, error: &[u8]) -> Failure {
        let words = keyway_base::printable(error.trim_ascii());
        let first = error.split(|byte| *byte == b' ').next().unwrap_or_default();
        let hint = match first {
            b"OOM" => ": it has too little memory: raise its maxmemory",
            b"NOAUTH" | b"WRONGPASS" => ": the password of the pool is not its password",
            b"NOPERM" => ": its user may not do that",
            b"MISCONF" => ": it cannot save its data: see its log",
            _ => "",
        };
        let is_final = matches!(first, b"OOM" | b"NOAUTH" | b"WRONGPASS" | b"NOPERM" | b"MISCONF");
        Failure { why: format!("{server} answers {words}{hint}"), is_final }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}
