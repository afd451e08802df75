//! Both drivers of real sockets keep the same contract. A worker that reads on each event reads all
//! bytes. Nothing comes twice or out of order. Nothing is left of a socket that was closed or
//! handed over. Waiting clients are reported as long as there is room.

#![allow(clippy::disallowed_methods, reason = "real sockets, and peers that take their time")]

use keyway_net::{
    Accept, Address, EpollIo, Event, Io, Listener, ListenerIndex, ListenerOptions, Mailbox, Peer,
    Recv, Send, Socket, Token, UringIo,
};
use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

mod accepting;
mod reading;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Epoll,
    Uring,
    /// io_uring with one buffer for each reception.
    ShortUring,
}

/// Returns the drivers that this system permits.
fn kinds() -> Vec<Kind> {
    match UringIo::probe() {
        Ok(()) => vec![Kind::Epoll, Kind::Uring, Kind::ShortUring],
        Err(error) => {
            eprintln!("only epoll is looked at: no io_uring here: {error}");
            vec![Kind::Epoll]
        }
    }
}

/// A driver that listens, and what it has reported.
struct Seat {
    io: Box<dyn Io>,
    at: SocketAddr,
    _mailbox: Mailbox<()>,
    events: Vec<Event>,
    /// Sockets by token.
    sockets: BTreeMap<u64, Socket>,
    got: BTreeMap<u64, Vec<u8>>,
    ended: Vec<u64>,
    /// Tokens whose events are not followed by a read.
    stubborn: Vec<u64>,
}

fn options() -> ListenerOptions {
    ListenerOptions {
        address: Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        backlog: 1024,
        unix_mode: None,
        unix_owner: (None, None),
        tcp_keepalive: None,
        door: None,
        only_v6: false,
    }
}

fn listener() -> (Listener, SocketAddr) {
    let listener = Listener::bind(&options()).expect("a free port");
    let at = listener.local_addr().expect("TCP has an address");
    (listener, at)
}

impl Seat {
    fn new(kind: Kind) -> Seat {
        let (listener, at) = listener();
        Seat::with(kind, listener, at)
    }

    fn with(kind: Kind, listener: Listener, at: SocketAddr) -> Seat {
        let mailbox = Mailbox::new(4).expect("a descriptor");
        let listeners = vec![listener];
        let io: Box<dyn Io> = match kind {
            Kind::Epoll => Box::new(EpollIo::new(listeners, &mailbox).expect("an epoll instance")),
            Kind::Uring => Box::new(UringIo::new(listeners, &mailbox).expect("an io_uring")),
            Kind::ShortUring => {
                Box::new(UringIo::with_short_buffers(listeners, &mailbox).expect("an io_uring"))
            }
        };
        Seat {
            io,
            at,
            _mailbox: mailbox,
            events: Vec::new(),
            sockets: BTreeMap::new(),
            got: BTreeMap::new(),
            ended: Vec::new(),
            stubborn: Vec::new(),
        }
    }

    /// Runs one turn: reads on each event, as a worker does.
    fn turn(&mut self, wait: Duration) {
        let mut events = std::mem::take(&mut self.events);
        self.io.poll(Some(wait), &mut events);
        for event in events.drain(..) {
            match event {
                Event::Incoming(_) => self.accept(),
                Event::Ready { token, readable, hangup, .. } => {
                    if (readable || hangup) && !self.stubborn.contains(&token.0) {
                        self.read(token.0, hangup);
                    }
                }
                Event::Connected { token, socket } => drop(self.sockets.insert(token.0, socket)),
                other => panic!("{other:?}"),
            }
        }
        self.events = events;
    }

    fn accept(&mut self) {
        while let Accept::Client { socket, .. } = self.io.accept(ListenerIndex(0)) {
            let token = self.sockets.last_key_value().map_or(1, |(last, _)| last + 1);
            self.sockets.insert(token, socket);
            assert!(self.io.watch(socket, Token(token)));
            self.read(token, false);
        }
    }

    fn read(&mut self, token: u64, hangup: bool) {
        let Some(&socket) = self.sockets.get(&token) else { return };
        loop {
            match self.io.recv(socket) {
                Recv::Data { bytes, drained, .. } => {
                    self.got.entry(token).or_default().extend_from_slice(bytes);
                    if drained && !hangup {
                        return;
                    }
                }
                Recv::Empty => return,
                // The end may be reported more than once.
                Recv::End | Recv::Failed if self.ended.contains(&token) => return,
                Recv::End | Recv::Failed => return self.ended.push(token),
            }
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Seat) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < Duration::from_secs(20), "{what} did not come to pass");
            self.turn(Duration::from_millis(50));
        }
    }

    fn connected(&mut self, count: usize) -> Vec<TcpStream> {
        let before = self.sockets.len();
        let clients = (0..count).map(|_| TcpStream::connect(self.at).expect("it listens"));
        let clients: Vec<_> = clients.collect();
        self.until("connecting", |seat| seat.sockets.len() == before + count);
        clients
    }

    /// Returns the tokens of clients, in the order of `clients`: they send their index.
    fn introduced(&mut self, clients: &mut [TcpStream]) -> Vec<u64> {
        for (index, client) in clients.iter_mut().enumerate() {
            client.write_all(&(index as u32).to_be_bytes()).unwrap();
        }
        let count = clients.len();
        self.until("hearing all", |seat| {
            seat.got.values().filter(|got| got.len() == 4).count() == count
        });
        let mut tokens = vec![0; count];
        for (token, got) in std::mem::take(&mut self.got) {
            tokens[u32::from_be_bytes(got.try_into().unwrap()) as usize] = token;
        }
        tokens
    }
}

/// Returns a pattern of bytes in which lost, doubled or moved bytes are visible.
fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ (at >> 11) as u8 ^ salt).collect()
}

fn on_all(test: impl Fn(&mut Seat)) {
    kinds().into_iter().for_each(|kind| test(&mut Seat::new(kind)));
}
