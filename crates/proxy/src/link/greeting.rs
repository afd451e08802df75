//! The handshake: who we are, which protocol we want, which database.
//!
//! A link of RESP3 begins with `HELLO 3`. Whatever a server says against it,
//! it may still take the commands of RESP2: then its replies are translated.
//! It is asked again on every new connection, since a server may be upgraded.

use super::{Link, LinkOptions, LinkState};
use keyway_base::Time;
use keyway_resp::{Framer, Kind, Protocol, reply};

/// The user that a password without a name belongs to.
const USER: &[u8] = b"default";

/// What follows the reply to `HELLO`.
#[derive(Debug)]
pub(super) struct Greeting {
    /// For a server that does not know `HELLO`: its requests, and how many.
    auth: (Vec<u8>, u8),
    /// For every server.
    selects: (Vec<u8>, u8),
}

impl Link {
    /// A link for clients that speak `protocol`.
    pub fn new(protocol: Protocol) -> Link {
        Link { protocol, ..Link::default() }
    }

    /// What its replies are in, whatever the server speaks.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Notes that the connection stands, and prepares the handshake.
    pub fn on_connected(&mut self, options: &LinkOptions, now: Time) {
        let deadline = now + options.connect_timeout;
        let greeting = Greeting { auth: auth(options), selects: selects(options) };
        self.progress = now;
        self.answered = false;
        self.translates = self.protocol == Protocol::Resp3;
        if self.translates && !self.was_lost_greeting {
            write_hello(options.password.as_deref(), self.handshake.buf());
            self.framer = Framer::new(Protocol::Resp3);
            self.greeting = Some(Box::new(greeting));
            self.state = LinkState::Handshaking { left: 1, deadline };
        } else {
            self.framer = Framer::default();
            self.introduce([greeting.auth, greeting.selects], deadline);
        }
    }

    /// Sends these requests of the handshake, if any.
    fn introduce<const N: usize>(&mut self, parts: [(Vec<u8>, u8); N], deadline: Time) {
        let mut left = 0;
        for (bytes, count) in parts {
            self.handshake.buf().extend_from_slice(&bytes);
            left += count;
        }
        self.state = match left {
            0 => LinkState::Ready,
            left => LinkState::Handshaking { left, deadline },
        };
    }

    /// Takes the reply to `HELLO`.
    pub(super) fn on_greeted(&mut self, greeting: Greeting, kind: Kind, deadline: Time) {
        if kind == Kind::Map {
            self.translates = false;
            self.introduce([greeting.selects], deadline);
        } else {
            self.framer = Framer::default();
            self.introduce([greeting.auth, greeting.selects], deadline);
        }
    }
}

fn write_hello(password: Option<&str>, out: &mut Vec<u8>) {
    reply::array(out, if password.is_some() { 5 } else { 2 });
    reply::bulk(out, b"HELLO");
    reply::bulk(out, b"3");
    if let Some(password) = password {
        reply::bulk(out, b"AUTH");
        reply::bulk(out, USER);
        reply::bulk(out, password.as_bytes());
    }
}

fn auth(options: &LinkOptions) -> (Vec<u8>, u8) {
    let mut out = Vec::new();
    let Some(password) = &options.password else { return (out, 0) };
    reply::array(&mut out, 2);
    reply::bulk(&mut out, b"AUTH");
    reply::bulk(&mut out, password.as_bytes());
    (out, 1)
}

fn selects(options: &LinkOptions) -> (Vec<u8>, u8) {
    let (mut out, mut count) = (Vec::new(), 0);
    let own = options.database;
    let last = own + options.databases.saturating_sub(1);
    let selects = [(last > own, last), (last > own || own != 0, own)];
    for (_, database) in selects.into_iter().filter(|(is_needed, _)| *is_needed) {
        reply::array(&mut out, 2);
        reply::bulk(&mut out, b"SELECT");
        reply::bulk(&mut out, database.to_string().as_bytes());
        count += 1;
    }
    (out, count)
}
