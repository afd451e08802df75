//! Receiving and sending: through rings, or through the plain socket if no hello came.

use super::line::{Greeted, Line, Stage};
use super::terms::open;
use super::{RINGED_SOCKET, Ringed, plain};
use crate::io::Io;
use crate::{Event, Recv, Send, Socket};
use keyway_ring::{Ended, Hello};

/// Most hellos that are refused on one connection. A client that goes on asking does not want to be
/// served.
const REFUSALS_MAX: usize = 32;

impl Ringed {
    #[inline(never)]
    pub(super) fn recv_ringed(&mut self, socket: Socket) -> Recv<'_> {
        let number = socket.0 & !RINGED_SOCKET;
        if !matches!(self.line(number), Some(Line { stage: Stage::Open(_), .. })) {
            match self.greet(number) {
                Greeted::Open => {}
                Greeted::Plain => return self.recv_plain(number),
                Greeted::Waiting => return Recv::Empty,
                Greeted::Ended => return Recv::End,
                Greeted::Failed => return Recv::Failed,
            }
        }
        let now = self.now;
        let Self { io, lines, hot, looking, cooling, .. } = self;
        let Some(Some(line)) = lines.get_mut(number as usize) else { return Recv::Failed };
        let Stage::Open(rings) = &mut line.stage else { return Recv::Failed };
        if line.is_broken {
            return Recv::Failed;
        }
        let buf = io.read_buf();
        rings.stop_being_told(number, hot);
        loop {
            match rings.take(buf) {
                Ok(0) if rings.is_left() => return Recv::End,
                Ok(0) => {
                    if rings.wait_for_bytes((number, now), looking, hot) {
                        return Recv::Empty;
                    }
                }
                Ok(len) => {
                    Self::note_use(rings, now, (number, line.generation), cooling);
                    let drained = len < buf.len()
                        && !rings.is_left()
                        && rings.wait_for_bytes((number, now), looking, hot);
                    return Recv::Data { bytes: &buf[..len], drained, block: None };
                }
                Err(Ended::Closed) => return Recv::End,
                Err(Ended::Broken) => {
                    line.is_broken = true;
                    return Recv::Failed;
                }
            }
        }
    }

    pub(super) fn recv_plain(&mut self, number: i32) -> Recv<'_> {
        let Self { io, lines, .. } = self;
        let Some(Some(line)) = lines.get_mut(number as usize) else { return Recv::Failed };
        if let Stage::Plain { said, len: len @ 1.. } = &mut line.stage {
            let len = std::mem::take(len);
            let buf = io.read_buf();
            buf[..len].copy_from_slice(&said[..len]);
            return Recv::Data { bytes: &buf[..len], drained: false, block: None };
        }
        io.recv(plain(line))
    }

    /// Reads a connection's first bytes, and does what they ask for.
    #[cold]
    pub(super) fn greet(&mut self, number: i32) -> Greeted {
        let now = self.now;
        for _ in 0..REFUSALS_MAX {
            let Some(line) = self.line(number) else { return Greeted::Failed };
            let said = match line.hear_hello() {
                Ok(said) => said,
                Err(greeted) => return greeted,
            };
            match open(line, Hello::decode(&said), now) {
                Ok(true) => {
                    // Bytes right after the hello were reported together with it.
                    let mut events = std::mem::take(&mut self.early);
                    self.on_socket(number, false, &mut events);
                    self.early = events;
                    return Greeted::Open;
                }
                Err(_) => return Greeted::Failed,
                // The client goes on over the socket, or asks again.
                Ok(false) => {}
            }
        }
        Greeted::Failed
    }

    #[inline(never)]
    pub(super) fn send_ringed(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        let number = socket.0 & !RINGED_SOCKET;
        let now = self.now;
        let Self { io, lines, cooling, hot, looking, early, .. } = self;
        let Some(Some(line)) = lines.get_mut(number as usize) else { return Send::Failed };
        if line.is_broken {
            return Send::Failed;
        }
        let Stage::Open(rings) = &mut line.stage else { return io.send(plain(line), bytes) };
        match rings.put(bytes) {
            Ok(taken) => {
                Self::note_use(rings, now, (number, line.generation), cooling);
                if !rings.wait_for_answer((number, now), looking, hot) {
                    let token = line.token;
                    early.push(Event::Ready {
                        token,
                        readable: true,
                        writable: false,
                        hangup: false,
                    });
                }
                Send::Taken(taken)
            }
            Err(ended) => {
                line.is_broken = ended == Ended::Broken;
                Send::Failed
            }
        }
    }
}
