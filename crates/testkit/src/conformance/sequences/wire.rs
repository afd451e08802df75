//! A connection of which the bytes are kept as they come, whole frames at a
//! time, however many there are to a request.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::value::{Value, parse};

/// How long a single look for more bytes lasts: short, so that a condition is
/// noticed soon after it holds.
const LOOK: Duration = Duration::from_millis(1);

/// One frame: its bytes and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub bytes: Vec<u8>,
    pub value: Value,
}

/// A connection to a system.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
    is_closed: bool,
}

impl Wire {
    pub fn connect(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        let _ = stream.set_nodelay(true);
        Wire { stream, received: Vec::new(), is_closed: false }
    }

    /// Sends all of it; a closed connection takes it silently.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            self.is_closed = true;
        }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a whole frame is here already.
    pub fn has_frame(&mut self) -> bool {
        self.read_now();
        matches!(parse(&self.received), Ok(Some(_)))
    }

    /// The next whole frame that is here already, without waiting.
    pub fn frame_now(&mut self) -> Option<Frame> {
        if let Some(frame) = self.take() {
            return Some(frame);
        }
        self.read_now();
        self.take()
    }

    fn read_now(&mut self) {
        let _ = self.stream.set_nonblocking(true);
        self.read();
        let _ = self.stream.set_nonblocking(false);
    }

    /// The next frame, if it comes within `bound`.
    pub fn frame_within(&mut self, bound: Duration) -> Option<Frame> {
        let end = Instant::now() + bound;
        let _ = self.stream.set_read_timeout(Some(LOOK));
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            if self.is_closed || Instant::now() > end {
                return None;
            }
            self.read();
        }
    }

    /// Whether the other side closes within `bound`, with nothing unread.
    pub fn closes_within(&mut self, bound: Duration) -> bool {
        self.frame_within(bound).is_none() && self.is_closed
    }

    /// Sends one request and waits for its reply.
    ///
    /// # Panics
    /// When none comes within 20 s.
    pub fn ask(&mut self, line: &str) -> Value {
        self.send(&crate::client::encode_words(line));
        let frame = self.frame_within(Duration::from_secs(20));
        frame.unwrap_or_else(|| panic!("no reply to {line}")).value
    }

    fn read(&mut self) {
        let mut chunk = [0_u8; 16 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.is_closed = true,
                Ok(length) => {
                    self.received.extend_from_slice(&chunk[..length]);
                    if length == chunk.len() {
                        continue;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => self.is_closed = true,
                },
            }
            return;
        }
    }

    fn take(&mut self) -> Option<Frame> {
        match parse(&self.received) {
            Ok(None) => None,
            Ok(Some((value, length))) => {
                let bytes = self.received.drain(..length).collect();
                Some(Frame { bytes, value })
            }
            Err(_) if self.received.is_empty() => None,
            Err(what) => {
                // Handed on as one frame, so that it is compared and shown.
                let bytes = std::mem::take(&mut self.received);
                Some(Frame { bytes, value: Value::Error(what.into_bytes()) })
            }
        }
    }
}
