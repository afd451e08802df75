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
    /// The settings of TLS, if it speaks that.
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
        Failure::told(&format!("{server} answers"), error)
    }

    /// The failure of a server that has answered a command with an error.
    pub(crate) fn of_command(server: &Endpoint, command: &str, error: &[u8]) -> Failure {
        Failure::told(&format!("{server} answers {command} with"), error)
    }

    fn told(what: &str, error: &[u8]) -> Failure {
        let words = keyway_base::printable(error.trim_ascii());
        let first = error.split(|byte| *byte == b' ').next().unwrap_or_default();
        let (is_final, hint) = match first {
            b"OOM" => (true, "it has too little memory: raise its maxmemory"),
            b"NOAUTH" | b"WRONGPASS" => (true, "the password of the pool is not its password"),
            b"NOPERM" => (true, "its user may not do that"),
            b"MISCONF" => (true, "it cannot save its data: see its log"),
            b"READONLY" => (false, "it is a replica now: the copy begins anew"),
            b"BUSYKEY" => (false, "it has keys of these slots: they are to be deleted first"),
            _ if error.starts_with(b"ERR DUMP payload version") => {
                (true, "it is too old for this value: upgrade it")
            }
            _ if error.starts_with(b"ERR unknown command") => (true, "it is too old: upgrade it"),
            _ => (false, "the copy begins anew"),
        };
        Failure { why: format!("{what} {words}: {hint}"), is_final }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}
