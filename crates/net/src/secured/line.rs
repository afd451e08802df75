//! One connection that is secured, or says first whose it is.

use crate::{Io, ListenerIndex, Peer, Recv, Send, Socket, Token};
use keyway_base::Time;
use keyway_tls::{Channel, ClientTls, TlsFault};

/// Most bytes of a client's handshake: chains of certificates take some KiB.
const HANDSHAKE_LEN_MAX: usize = 64 << 10;

/// Steps that a client may have had before those of others go before its own. Who says what
/// it has to say in one piece needs two to four, its certificates and a header one or two more.
const PROMPT_STEPS: u16 = 8;

/// A connection of ours.
pub(super) struct Line {
    /// The worker's name for it.
    pub(super) token: Token,
    pub(super) side: Side,
    pub(super) stage: Stage,
    /// Encrypted, and still to be sent.
    pub(super) unsent: Vec<u8>,
    /// How many bytes, the next that [`Io::send`] gets, are in `unsent` already and were not
    /// told of as taken: a client whose connection is closed behind its last reply gets that.
    pub(super) held: usize,
    /// Said by the peer right behind its handshake, or its header.
    pub(super) early: Vec<u8>,
    pub(super) fault: Option<TlsFault>,
    /// Whether the peer has said anything since the handshake.
    pub(super) was_heard: bool,
    /// The peer is told that nothing more comes, when all is sent.
    pub(super) is_finishing: bool,
}

/// Who has asked for a connection.
pub(super) enum Side {
    /// We have.
    Ours { tls: ClientTls, host: Box<str> },
    /// A client.
    Theirs(Arrival),
}

/// A client that comes in.
pub(super) struct Arrival {
    pub(super) listener: ListenerIndex,
    pub(super) peer: Peer,
    pub(super) since: Time,
    /// Whether it waits for us, and not we for it.
    pub(super) is_queued: bool,
    /// How often it was taken a step further.
    pub(super) steps: u16,
    /// Bytes it has said until now.
    pub(super) said: usize,
}

impl Arrival {
    /// Whether it says what it has to say bit by bit.
    pub(super) fn is_slow(&self) -> bool {
        self.steps >= PROMPT_STEPS
    }
}

pub(super) enum Stage {
    Connecting,
    /// A client has said nothing yet, or the beginning of a header.
    Arriving {
        socket: Socket,
        said: Vec<u8>,
    },
    Handshaking {
        socket: Socket,
        channel: Channel,
    },
    /// A client is in, and no worker has it yet. Without a channel it is not secured.
    Entered {
        socket: Socket,
        channel: Option<Channel>,
    },
    Open {
        socket: Socket,
        channel: Channel,
    },
    /// Open, and not secured.
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

/// What came of driving a handshake.
pub(super) enum Progress {
    Waiting,
    Done,
    Failed(TlsFault),
}

impl Line {
    /// Sends what is left over and what the channel has to say. `false` when the
    /// connection broke.
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

    /// Reads on in a handshake.
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
            // What is wrong is told the peer, too.
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

    /// Tells the peer that nothing more comes; `false` when it cannot be told.
    pub(super) fn finish<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>) -> bool {
        let Stage::Open { channel, .. } = &mut self.stage else {
            // One that is not secured, or not yet in.
            return self.stage.socket().is_some_and(|socket| io.finish(socket));
        };
        if self.fault.is_some() {
            return false;
        }
        channel.end();
        self.is_finishing = true;
        self.flush(io, cipher) && self.finish_below(io)
    }

    /// The same below, when what TLS has to say was sent.
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

    /// Whether a server has asked for a certificate that we have not.
    pub(super) fn lacks_identity(&self) -> bool {
        matches!(&self.side, Side::Ours { tls, .. } if tls.lacks_identity())
    }

    /// Encrypts and sends what it can of `bytes`; how much counts as taken.
    pub(super) fn send<I: Io>(&mut self, io: &mut I, cipher: &mut Vec<u8>, bytes: &[u8]) -> Send {
        // What was encrypted last is behind `taken - last`, in `unsent` or sent.
        let known = self.held.min(bytes.len());
        let (mut taken, mut last) = (known, self.held);
        loop {
            if !self.flush(io, cipher) {
                return Send::Failed;
            }
            if !self.unsent.is_empty() {
                break;
            }
            // Bytes that were encrypted and are not among those given are so the next time, too.
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
            // A request may be taken back until it was told of as taken.
            Side::Ours { .. } => 0,
        };
        match self.unsent.is_empty() {
            true => Send::Taken(taken),
            false => Send::Taken(taken.saturating_sub(self.held)),
        }
    }
}

/// `false` when the connection broke.
fn send_unsent<I: Io>(io: &mut I, socket: Socket, unsent: &mut Vec<u8>) -> bool {
    if unsent.is_empty() {
        return true;
    }
    match io.send(socket, unsent) {
        Send::Taken(taken) if taken == unsent.len() => {
            // At rest a line keeps nothing.
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
