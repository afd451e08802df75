//! One connection with TLS, or one that announces its client first.

use crate::{Io, ListenerIndex, Peer, Recv, Send, Socket, Token};
use keyway_base::Time;
use keyway_tls::{Channel, ClientTls, TlsFault};

/// Longest handshake of a client, in bytes. Certificate chains take some KiB.
const HANDSHAKE_LEN_MAX: usize = 64 << 10;

/// Number of steps after which a client's next steps come after those of others. A client that
/// sends its bytes in one piece needs two to four steps, and one or two more with certificates and
/// a header.
const PROMPT_STEPS: u16 = 8;

/// A connection of this driver.
pub(super) struct Line {
    /// The worker's token for it.
    pub(super) token: Token,
    pub(super) side: Side,
    pub(super) stage: Stage,
    /// Encrypted bytes that are still to be sent.
    pub(super) unsent: Vec<u8>,
    /// Number of bytes at the start of the next [`Io::send`] that are already in `unsent` but were
    /// not reported as accepted. A client whose connection is closed after its last reply so gets
    /// that reply.
    pub(super) held: usize,
    /// Bytes that the peer sent right after its handshake, or its header.
    pub(super) early: Vec<u8>,
    pub(super) fault: Option<TlsFault>,
    /// True if the peer has sent anything since the handshake.
    pub(super) was_heard: bool,
    /// True if the peer is to be told that no more bytes follow, after all are sent.
    pub(super) is_finishing: bool,
}

/// The side that has made the connection.
pub(super) enum Side {
    /// This process.
    Ours { tls: ClientTls, host: Box<str> },
    /// A client.
    Theirs(Arrival),
}

/// An arriving client.
pub(super) struct Arrival {
    pub(super) listener: ListenerIndex,
    pub(super) peer: Peer,
    pub(super) since: Time,
    /// True if it waits for this worker, rather than this worker for it.
    pub(super) is_queued: bool,
    /// Number of steps that it has had.
    pub(super) steps: u16,
    /// Number of bytes that it has sent.
    pub(super) said: usize,
}

impl Arrival {
    /// Returns whether it sends its bytes in many small pieces.
    pub(super) fn is_slow(&self) -> bool {
        self.steps >= PROMPT_STEPS
    }
}

pub(super) enum Stage {
    Connecting,
    /// A client has sent nothing yet, or the beginning of a header.
    Arriving {
        socket: Socket,
        said: Vec<u8>,
    },
    Handshaking {
        socket: Socket,
        channel: Channel,
    },
    /// A client has arrived, and no worker has it yet. Without a channel it has no TLS.
    Entered {
        socket: Socket,
        channel: Option<Channel>,
    },
    Open {
        socket: Socket,
        channel: Channel,
    },
    /// It is open, without TLS.
    Plain {
        socket: Socket,
    },
}

impl Stage {
    pub(super) fn socket(&self) -> Option<Socket> {
        match self {
            Stage::Connecting => None,
            Stage::Arriving { socket, .. }
            | Stage::Handshaking { socket, .. }
            | Stage::Entered { socket, .. }
            | Stage::Open { socket, .. }
            | Stage::Plain { socket } => Some(*socket),
        }
    }

    fn wants_output(&mut self) -> bool {
        self.channel().is_some_and(|(_, channel)| channel.wants_output())
    }

    fn channel(&mut self) -> Option<(Socket, &mut Channel)> {
        match self {
            Stage::Handshaking { socket, channel }
            | Stage::Open { socket, channel }
            | Stage::Entered { socket, channel: Some(channel) } => Some((*socket, channel)),
            _ => None,
        }
    }
}

/// The result of driving a handshake.
pub(super) enum Progress {
    Waiting,
    Done,
    Failed(TlsFault),
}

impl Line {
    /// Sends remaining bytes and the output of the channel. Returns `false` if the connection
    /// broke.
    pub(super) fn flush<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>) -> bool {
        let Some((socket, channel)) = self.stage.channel() else { return true };
        if !send_unsent(io, socket, &mut self.unsent) {
            return false;
        }
        if !self.unsent.is_empty() || !channel.wants_output() {
            return true;
        }
        cipher.clear();
        channel.take_output(cipher);
        match io.send(socket, cipher) {
            Send::Taken(taken) => {
                self.unsent.extend_from_slice(&cipher[taken..]);
                true
            }
            Send::Failed => false,
        }
    }

    pub(super) fn begin(&mut self, socket: Socket) -> Result<(), TlsFault> {
        let Side::Ours { tls, host } = &self.side else { return Err(TlsFault::Broken) };
        let channel = tls.connect(host)?;
        self.stage = Stage::Handshaking { socket, channel };
        Ok(())
    }

    /// Goes on with a handshake.
    pub(super) fn shake<I: Io>(
        &mut self,
        io: &mut I,
        cipher: &mut Vec<u8>,
        hangup: bool,
    ) -> Progress {
        loop {
            let Stage::Handshaking { socket, channel } = &mut self.stage else {
                return Progress::Waiting;
            };
            let (outcome, drained) = match io.recv(*socket) {
                Recv::Data { bytes, drained, .. } => {
                    if let Side::Theirs(arrival) = &mut self.side {
                        arrival.said += bytes.len();
                    }
                    (channel.handle_input(bytes, &mut self.early), drained)
                }
                Recv::Empty => return Progress::Waiting,
                Recv::End | Recv::Failed => return Progress::Failed(TlsFault::Closed),
            };
            let is_over = !channel.is_handshaking();
            let is_endless = |arrival: &Arrival| arrival.said > HANDSHAKE_LEN_MAX;
            let outcome = match &self.side {
                Side::Theirs(arrival) if !is_over && is_endless(arrival) => Err(TlsFault::Broken),
                _ => outcome,
            };
            // The peer is told of the fault, too.
            let was_sent = self.flush(io, cipher);
            match outcome {
                Err(fault) => return Progress::Failed(fault),
                Ok(()) if !was_sent => return Progress::Failed(TlsFault::Closed),
                Ok(()) if is_over => return Progress::Done,
                Ok(()) if drained && !hangup => return Progress::Waiting,
                Ok(()) => {}
            }
        }
    }

    /// Tells the peer that no more bytes follow. Returns `false` if that is not possible.
    pub(super) fn finish<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>) -> bool {
        let Stage::Open { channel, .. } = &mut self.stage else {
            // This connection has no TLS, or is still arriving.
            return self.stage.socket().is_some_and(|socket| io.finish(socket));
        };
        if self.fault.is_some() {
            return false;
        }
        channel.end();
        self.is_finishing = true;
        self.flush(io, cipher) && self.finish_below(io)
    }

    /// Ends the sending direction of the socket below, once all TLS output was sent.
    pub(super) fn finish_below<I: Io>(&mut self, io: &mut I) -> bool {
        let has_more = !self.unsent.is_empty() || self.stage.wants_output();
        has_more || self.stage.socket().is_some_and(|socket| io.finish(socket))
    }

    pub(super) fn open(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Connecting) {
            Stage::Handshaking { socket, channel }
            | Stage::Entered { socket, channel: Some(channel) } => Stage::Open { socket, channel },
            Stage::Entered { socket, channel: None } => Stage::Plain { socket },
            stage => stage,
        };
    }

    /// Returns whether a server has asked for a certificate and there is none.
    pub(super) fn lacks_identity(&self) -> bool {
        matches!(&self.side, Side::Ours { tls, .. } if tls.lacks_identity())
    }

    /// Encrypts and sends what it can of `bytes`. Returns how many count as accepted.
    pub(super) fn send<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>, bytes: &[u8]) -> Send {
        // The bytes encrypted last come after `taken - last`, in `unsent` or sent.
        let known = self.held.min(bytes.len());
        let (mut taken, mut last) = (known, self.held);
        loop {
            if !self.flush(io, cipher) {
                return Send::Failed;
            }
            if !self.unsent.is_empty() {
                break;
            }
            // Bytes that are encrypted and not among those given now are given the next time.
            last = self.held - known;
            if taken == bytes.len() {
                break;
            }
            let Stage::Open { channel, .. } = &mut self.stage else { return Send::Taken(0) };
            match channel.encrypt(&bytes[taken..]) {
                0 => return Send::Failed,
                len => (taken, last) = (taken + len, len),
            }
        }
        self.held = match self.side {
            Side::Theirs(_) => last,
            // A request may be taken back until it was reported as accepted.
            Side::Ours { .. } => 0,
        };
        match self.unsent.is_empty() {
            true => Send::Taken(taken),
            false => Send::Taken(taken.saturating_sub(self.held)),
        }
    }
}

/// Sends remaining bytes. Returns `false` if the connection broke.
fn send_unsent<I: Io>(io: &mut I, socket: Socket, unsent: &mut Vec<u8>) -> bool {
    if unsent.is_empty() {
        return true;
    }
    match io.send(socket, unsent) {
        Send::Taken(taken) if taken == unsent.len() => {
            // A line at rest keeps no memory.
            *unsent = Vec::new();
            true
        }
        Send::Taken(taken) => {
            unsent.drain(..taken);
            true
        }
        Send::Failed => false,
    }
}
