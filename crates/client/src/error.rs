//! What can go wrong.

use crate::endpoint::EndpointError;
use std::fmt;
use std::io;

/// Why there is no reply.
#[derive(Debug)]
pub enum Error {
    /// The URL is none.
    Endpoint(EndpointError),
    /// There is no connection: where to, and why.
    Connect(String, io::Error),
    /// The connection was lost, or the time was up. Whether the server has executed what was sent
    /// is not known. The connection is of no more use.
    Lost(io::Error),
    /// The server has sent what is no reply. The connection is of no more use.
    Protocol(&'static str),
    /// The connection was lost earlier: open another.
    Closed,
    /// The server has answered with an error, of this text.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Endpoint(error) => error.fmt(f),
            Error::Connect(place, error) => write!(f, "cannot connect to {place}: {error}"),
            Error::Lost(error) => write!(f, "the connection is lost: {error}"),
            Error::Protocol(what) => write!(f, "the server has sent no reply: {what}"),
            Error::Closed => f.write_str("the connection was lost earlier, open another"),
            Error::Refused(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connect(_, error) | Error::Lost(error) => Some(error),
            Error::Endpoint(error) => Some(error),
            _ => None,
        }
    }
}

impl From<EndpointError> for Error {
    fn from(error: EndpointError) -> Error {
        Error::Endpoint(error)
    }
}
