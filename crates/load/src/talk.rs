//! A short conversation before a run: is it there, does it let us in, does it speak the protocol,
//! and, of a cluster, who has which slots?

use crate::engine::{Driver, connect, driver, explain};
use crate::error::Error;
use crate::greeting;
use crate::program::Judge;
use crate::reply::{self, DEPTH_MAX, LIMITS, REPLY_LEN_MAX};
use crate::run::{Flow, LOOK};
use crate::setup::nanos;
use crate::target::Target;
use keyway_memcache::Expect;
use keyway_net::{Address, Event, Io, Recv, Send, Socket, Token};
use keyway_topology::{ClusterView, Endpoint, SLOT_COUNT, ViewSource};
use std::time::Duration;

/// How much is shown of bytes that are no reply.
const SHOWN: usize = 60;

/// Servers and which slots they have; no slots outside of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) nodes: Vec<Address>,
    pub(crate) slots: Vec<u16>,
}

/// Asks the target what has to be known before a run. `look` is called some times a second, and may
/// end it.
///
/// # Errors
/// When it is not there, refuses, or speaks something else; or that it was ended.
pub(crate) fn ask(target: &Target, look: &mut dyn FnMut() -> Flow) -> Result<Found, Error> {
    let mut talk = Talk::connect(target, look)?;
    let mut greeting = Vec::new();
    let count = greeting::compose(target, &mut greeting);
    greeting.extend_from_slice(greeting::probe(target.protocol));
    talk.send(&greeting)?;
    for _ in 0..=count {
        let reply = talk.reply()?;
        talk.refuse_error(&reply)?;
    }
    if !target.is_cluster {
        return Ok(Found { nodes: vec![target.address.clone()], slots: Vec::new() });
    }
    if !target.protocol.is_redis() {
        return Err(Error::asked("only servers of Redis are a cluster that is asked directly"));
    }
    talk.send(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n")?;
    let reply = talk.reply()?;
    talk.refuse_error(&reply)?;
    slots(target, &reply)
}

fn slots(target: &Target, reply: &[u8]) -> Result<Found, Error> {
    let Address::Tcp { host, port } = &target.address else {
        return Err(Error::asked("a cluster is asked by TCP"));
    };
    let asked = Endpoint::tcp(host, *port).map_err(|_| Error::asked("no address of a cluster"))?;
    let view = ClusterView::from_slots(reply, ViewSource::plainly(&asked))
        .map_err(|_| Error::asked("what CLUSTER SLOTS is answered with cannot be read"))?;
    let mut found = Found { nodes: Vec::new(), slots: vec![0; SLOT_COUNT] };
    for slot in 0..SLOT_COUNT as u16 {
        let owner = view.owner_of(slot).and_then(|node| node.endpoint.as_ref());
        let Some(Endpoint::Tcp { host, port }) = owner else {
            return Err(Error::asked(format!("nobody in the cluster has slot {slot}")));
        };
        let address = Address::Tcp { host: host.clone(), port: *port };
        let known = found.nodes.iter().position(|node| *node == address);
        found.slots[usize::from(slot)] = known.unwrap_or_else(|| {
            found.nodes.push(address);
            found.nodes.len() - 1
        }) as u16;
    }
    Ok(found)
}

struct Talk<'a> {
    target: &'a Target,
    look: &'a mut dyn FnMut() -> Flow,
    io: Driver,
    socket: Socket,
    until: u64,
    input: Vec<u8>,
}

impl<'a> Talk<'a> {
    fn connect(target: &'a Target, look: &'a mut dyn FnMut() -> Flow) -> Result<Talk<'a>, Error> {
        let mut io = driver()?;
        let until = nanos() + target.patience.as_nanos() as u64;
        let failed =
            |why: &str| Error::Connect { address: target.address.to_string(), why: why.to_owned() };
        io.clock();
        connect(&mut io, target, &target.address, Token(1));
        let mut events = Vec::new();
        loop {
            for event in events.drain(..) {
                match event {
                    Event::Connected { socket, .. } => {
                        return Ok(Talk { target, look, io, socket, until, input: Vec::new() });
                    }
                    Event::ConnectFailed { fault, .. } => {
                        return Err(failed(&explain(target, &target.address, fault)));
                    }
                    _ => {}
                }
            }
            if !wait(&mut io, until, &mut events, look)? {
                return Err(failed("no answer in time"));
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            match self.io.send(self.socket, bytes) {
                Send::Taken(0) => self.wait()?,
                Send::Taken(len) => bytes = &bytes[len..],
                Send::Failed => return Err(self.wrong("it closes the connection")),
            }
        }
        Ok(())
    }

    /// The next whole reply.
    fn reply(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(len) = self.framed()? {
                return Ok(self.input.drain(..len).collect());
            }
            match self.io.recv(self.socket) {
                Recv::Data { bytes, .. } => self.input.extend_from_slice(bytes),
                Recv::Empty => self.wait()?,
                Recv::End | Recv::Failed => {
                    return Err(self.wrong("it closes the connection"));
                }
            }
        }
    }

    fn framed(&self) -> Result<Option<usize>, Error> {
        if self.input.is_empty() {
            return Ok(None);
        }
        let framed = match greeting::wire(self.target.protocol) {
            None => {
                let mut framer = greeting::framer(self.target.protocol);
                match framer.frame(&self.input, REPLY_LEN_MAX, DEPTH_MAX) {
                    Ok(keyway_resp::Framing::Ready { len, .. }) => Ok(Some(len)),
                    Ok(_) => Ok(None),
                    Err(_) => Err(()),
                }
            }
            Some(wire) => {
                let mut framer = keyway_memcache::Framer::new(wire, Expect::One);
                match framer.frame(&self.input, &LIMITS) {
                    Ok(keyway_memcache::Framing::Ready { len }) => Ok(Some(len)),
                    Ok(_) => Ok(None),
                    Err(_) => Err(()),
                }
            }
        };
        framed.map_err(|()| {
            let shown = &self.input[..self.input.len().min(SHOWN)];
            let said = format!("it says \"{}\"", shown.escape_ascii());
            match keyway_base::Foreign::of(&self.input) {
                Some(foreign) => self.wrong(&format!("it speaks {}: {said}", foreign.name())),
                None => self.wrong(&said),
            }
        })
    }

    /// An error is a reply too, and ends what was to begin.
    fn refuse_error(&self, reply: &[u8]) -> Result<(), Error> {
        let told = match greeting::wire(self.target.protocol) {
            None => match keyway_resp::Kind::of(reply) {
                Some(kind) => reply::redis(reply, kind, Judge::One),
                None => return Err(self.wrong("it says nothing")),
            },
            Some(wire) => reply::memcached(reply, wire, Judge::One),
        };
        match told.error {
            None => Ok(()),
            Some(text) => Err(Error::Refused {
                address: self.target.address.to_string(),
                reply: keyway_base::printable(text),
            }),
        }
    }

    fn wait(&mut self) -> Result<(), Error> {
        if wait(&mut self.io, self.until, &mut Vec::new(), self.look)? {
            return Ok(());
        }
        Err(self.wrong("no answer in time"))
    }

    fn wrong(&self, what: &str) -> Error {
        Error::Protocol {
            address: self.target.address.to_string(),
            protocol: self.target.protocol.to_string(),
            what: what.to_owned(),
        }
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        self.io.close(self.socket);
    }
}

/// Waits for events; `false` when the time is up.
fn wait(
    io: &mut Driver,
    until: u64,
    events: &mut Vec<Event>,
    look: &mut dyn FnMut() -> Flow,
) -> Result<bool, Error> {
    let left = until.saturating_sub(nanos());
    if left == 0 {
        return Ok(false);
    }
    io.clock();
    io.poll(Some(LOOK.min(Duration::from_nanos(left))), events);
    match look() {
        Flow::Continue => Ok(true),
        Flow::Stop => Err(Error::asked("interrupted while connecting")),
    }
}
