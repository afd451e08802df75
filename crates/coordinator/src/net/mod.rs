//! Connections to endpoints, plain or by TLS.

mod dial;

pub(crate) use dial::{Dialer, Socket, in_words};
