//! The limits of the admin listener for its clients.

use std::time::Duration;

/// The limits of the admin listener for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminLimits {
    /// Most connections served at once. With more, the oldest whose request is incomplete makes
    /// room for a new one. A larger number costs about 20 KiB of buffers for each. A smaller one
    /// cuts off clients behind slow lines sooner when many connect.
    pub connections_max: usize,
    /// Time for the head of a request, from the moment of connecting.
    pub header_time: Duration,
    /// Time for a connection as a whole; each serves one request. A shorter time cuts off scrapes
    /// over slow lines.
    pub connection_time: Duration,
    /// Time for a request to arrive, with its handshake and body, before its connection may make
    /// room for another. A longer time lets silent clients delay the others for longer. A shorter
    /// one cuts off distant clients while many connect.
    pub asking_time: Duration,
    /// Time for a client to read its reply before its connection may make room.
    pub reading_time: Duration,
    /// Time for requests being answered when the listener is stopped.
    pub stop_time: Duration,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            header_time: Duration::from_secs(5),
            connection_time: Duration::from_secs(40),
            asking_time: Duration::from_millis(100),
            reading_time: Duration::from_secs(1),
            stop_time: Duration::from_secs(1),
        }
    }
}
