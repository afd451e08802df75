//! One connection: what it is about to send, what it waits for, what it has of a reply.

use crate::verify::Check;
use keyway_net::Socket;
use std::collections::VecDeque;

/// Buffers that grew beyond this are given back when they are empty.
const KEPT_MAX: usize = 1 << 20;

/// What a reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A step of a request.
    Step(u8),
    /// What a connection begins with; the last of it lets requests on.
    Handshake { is_last: bool },
    /// `ASKING`, before a request that is sent elsewhere.
    Asking,
    /// One of the records that a scan found; the last of them ends it.
    Found { is_last: bool },
    /// One of them in a cluster, where each is asked for elsewhere.
    Apart,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When it was sent or due, in nanoseconds of the clock.
    pub(super) at: u64,
    /// What it was rendered from, beside its key.
    pub(super) seed: u64,
    pub(super) key: u64,
    pub(super) op: u16,
    /// How often it was sent elsewhere.
    pub(super) hops: u8,
    pub(super) role: Role,
    /// Of a request in pieces: which of its client's.
    pub(super) join: u16,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not wanted yet, or lost; opened when it is needed, or when its pause is over.
    Closed,
    Connecting,
    Greeting,
    Open,
}

/// How the end of a reply is found.
#[derive(Debug)]
pub(super) enum Framer {
    Redis(keyway_resp::Framer),
    Memcached(Option<keyway_memcache::Framer>),
}

/// A connection of a client to one server.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: u32,
    pub(super) node: u16,
    pub(super) stage: Stage,
    pub(super) socket: Option<Socket>,
    /// Tells events of this connection from those of one before it.
    pub(super) generation: u32,
    pub(super) opened_at: u64,
    pub(super) is_dirty: bool,
    /// Waits for its pause to be over.
    pub(super) is_pausing: bool,
    pub(super) out: Vec<u8>,
    out_sent: usize,
    pub(super) sent: VecDeque<Sent>,
    pub(super) checks: VecDeque<Check>,
    /// The beginning of a reply.
    pub(super) input: Vec<u8>,
    /// Bytes of `input` before which it need not be looked at.
    pub(super) needed: usize,
    pub(super) framer: Framer,
    /// Calls until it is closed.
    pub(super) calls_left: u64,
}

impl Link {
    pub(super) fn new(client: u32, node: u16, framer: Framer) -> Link {
        Link {
            client,
            node,
            stage: Stage::Closed,
            socket: None,
            generation: 0,
            opened_at: 0,
            is_dirty: false,
            is_pausing: false,
            out: Vec::new(),
            out_sent: 0,
            sent: VecDeque::new(),
            checks: VecDeque::new(),
            input: Vec::new(),
            needed: 0,
            framer,
            calls_left: u64::MAX,
        }
    }

    #[inline]
    pub(super) fn has_output(&self) -> bool {
        self.out_sent < self.out.len()
    }

    #[inline]
    pub(super) fn output(&self) -> &[u8] {
        &self.out[self.out_sent..]
    }

    /// So many bytes were taken.
    #[inline]
    pub(super) fn sent(&mut self, len: usize) {
        self.out_sent += len;
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
            if self.out.capacity() > KEPT_MAX {
                self.out = Vec::new();
            }
        }
    }

    /// Asks for a record of YCSB whose key a scan found.
    pub(super) fn ask_for_record(&mut self, key: &[u8], sent: Sent) {
        self.out.extend_from_slice(b"*2\r\n$7\r\nHGETALL\r\n");
        keyway_resp::reply::bulk(&mut self.out, key);
        self.sent.push_back(sent);
    }

    /// Forgets everything of the connection that was.
    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.out_sent = 0;
        self.sent.clear();
        self.checks.clear();
        self.input.clear();
        self.needed = 0;
        match &mut self.framer {
            Framer::Redis(framer) => framer.reset(),
            Framer::Memcached(framer) => *framer = None,
        }
    }

    /// Returns whether a reply's beginning is kept whose buffer is too large to stay.
    pub(super) fn tidy(&mut self) {
        if self.input.is_empty() && self.input.capacity() > KEPT_MAX {
            self.input = Vec::new();
        }
    }
}
