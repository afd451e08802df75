//! Why there is no result.

/// Why a run could not be made, or not be begun.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// What was asked for cannot be done: the text says what to change.
    #[error("{0}")]
    Asked(String),
    /// No connection came about.
    #[error("cannot connect to {address}: {why}")]
    Connect {
        /// Where to.
        address: String,
        /// In the system's words.
        why: String,
    },
    /// The server took the connection and refused what a connection begins with.
    #[error("{address} refuses: {reply}")]
    Refused {
        /// Who.
        address: String,
        /// Its own words.
        reply: String,
    },
    /// What came is no reply in the protocol that was asked for, or nothing came.
    #[error("{address} does not answer as a server of {protocol}: {what}")]
    Protocol {
        /// Who.
        address: String,
        /// What it was spoken to in.
        protocol: String,
        /// What came instead.
        what: String,
    },
    /// This system has no descriptor, thread or clock left to give.
    #[error("{what}: {why}")]
    System {
        /// What was to be done.
        what: String,
        /// In the system's words.
        why: String,
    },
    /// A process under test is not there, or is not to be looked at.
    #[error("{0}")]
    Process(String),
}

impl Error {
    pub(crate) fn system(what: &str, why: impl std::fmt::Display) -> Error {
        Error::System { what: what.to_owned(), why: why.to_string() }
    }

    pub(crate) fn asked(what: impl Into<String>) -> Error {
        Error::Asked(what.into())
    }
}
