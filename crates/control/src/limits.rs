//! What the admin listener grants to those who connect.

use std::time::Duration;

/// What the admin listener grants to those who connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminLimits {
    /// Connections served at once. When there are more, the oldest whose request is not
    /// complete makes room for a new one. Larger costs about 20 KiB of buffers for each;
    /// smaller cuts off clients behind slow lines sooner when many connect.
    pub connections_max: usize,
    /// Time to send the head of a request, from the moment of connecting.
    pub header_time: Duration,
    /// Time for a connection as a whole; each serves one request. Smaller
    /// cuts off scrapes over slow lines.
    pub connection_time: Duration,
    /// Time that a request has to arrive, with its handshake and body, before its connection
    /// may make room for another. Larger lets clients that send nothing delay the others for
    /// longer; smaller cuts off clients far away while many connect.
    pub asking_time: Duration,
    /// Time that a client has to read its reply before its connection may make room.
    pub reading_time: Duration,
    /// Time that stopping grants to requests being answered.
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
