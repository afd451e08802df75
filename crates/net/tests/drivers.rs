//! Both drivers of real sockets keep the same contract. A worker that reads on each event reads all
//! bytes. Nothing comes twice or out of order. Nothing is left of a socket that was closed or
//! handed over. Waiting clients are reported as long as there is room.

#![allow(clippy::disallowed_methods, reason = "real sockets, and peers that take their time")]

use keyway_base::Part;
use keyway_net::{
    Accept, Address, EpollIo, Event, Io, Listener, ListenerIndex, ListenerOptions, Mailbox, Peer,
    Recv, Send, Socket, Token, UringIo,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

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

#[test]
fn everything_arrives_once_and_in_order() {
    on_all(|seat| {
        let mut clients = seat.connected(200);
        let tokens = seat.introduced(&mut clients);
        for round in 0..20 {
            for (index, client) in clients.iter_mut().enumerate() {
                client.write_all(&pattern(50 + 37 * index, index as u8)).unwrap();
            }
            seat.until("a round", |seat| {
                let lens = tokens.iter().map(|token| seat.got.get(token).map_or(0, Vec::len));
                lens.enumerate().all(|(index, len)| len == 50 + 37 * index)
            });
            for (index, token) in tokens.iter().enumerate() {
                let got = seat.got.remove(token).unwrap();
                assert!(got == pattern(50 + 37 * index, index as u8), "round {round}, {index}");
            }
        }
        drop(clients);
        seat.until("the ends", |seat| tokens.iter().all(|token| seat.ended.contains(token)));
    });
}

#[test]
fn what_comes_while_another_is_asked_is_told() {
    on_all(|seat| {
        let mut clients = seat.connected(2);
        let tokens = seat.introduced(&mut clients);
        let len = |seat: &Seat| seat.got.get(&tokens[0]).map_or(0, Vec::len);
        for round in 0..50 {
            clients[0].write_all(b"one").unwrap();
            seat.until("the first", |seat| len(seat) == 6 * round + 3);
            clients[0].write_all(b"two").unwrap();
            // No event was reported there.
            seat.read(tokens[1], false);
            seat.until("the second", |seat| len(seat) == 6 * round + 6);
        }
    });
}

#[test]
fn a_long_stream_arrives_whole_while_others_speak() {
    on_all(|seat| {
        let mut clients = seat.connected(2);
        let tokens = seat.introduced(&mut clients);
        let long = pattern(32 << 20, 3);
        let mut other = clients.pop().unwrap();
        let mut streaming = clients.pop().unwrap();
        let sent = long.clone();
        let writer = std::thread::spawn(move || streaming.write_all(&sent).unwrap());
        let mut said = 0;
        seat.until("the stream", |seat| {
            said += 1;
            other.write_all(b"x").unwrap();
            seat.got.get(&tokens[0]).is_some_and(|got| got.len() == long.len())
        });
        writer.join().unwrap();
        assert!(seat.got[&tokens[0]] == long);
        seat.until("the others", |seat| seat.got.get(&tokens[1]).map_or(0, Vec::len) == said);
    });
}

#[test]
fn those_that_are_not_read_do_not_stop_the_others() {
    on_all(|seat| {
        let mut clients = seat.connected(12);
        let tokens = seat.introduced(&mut clients);
        seat.stubborn = tokens[..10].to_vec();
        let long = pattern(6 << 20, 9);
        let writers: Vec<_> = (0..10)
            .map(|index| {
                let (mut client, long) = (clients[index].try_clone().unwrap(), long.clone());
                std::thread::spawn(move || client.write_all(&long).unwrap())
            })
            .collect();
        for round in 1..200usize {
            clients[10].write_all(&pattern(3000, 1)).unwrap();
            clients[11].write_all(&pattern(40, 2)).unwrap();
            seat.until("others", |seat| {
                let len = |index: usize| seat.got.get(&tokens[index]).map_or(0, Vec::len);
                len(10) == 3000 * round && len(11) == 40 * round
            });
        }
        // Unread bytes stay in the system, so that the senders wait.
        assert!(writers.iter().all(|writer| !writer.is_finished()), "nothing holds them back");
        seat.stubborn.clear();
        for &token in &tokens[..10] {
            seat.read(token, false);
        }
        seat.until("what was held back", |seat| {
            tokens[..10].iter().all(|token| seat.got.get(token).map_or(0, Vec::len) == long.len())
        });
        for token in &tokens[..10] {
            assert!(seat.got[token] == long);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

#[test]
fn the_end_of_one_that_is_not_read_is_told() {
    // The lengths are what the system has room for; with io_uring also more than fits into the
    // buffers.
    let lens = [
        (Kind::Epoll, 40_000),
        (Kind::Uring, 40_000),
        (Kind::Uring, 110_000),
        (Kind::ShortUring, 110_000),
    ];
    let there = kinds();
    for (kind, len) in lens.into_iter().filter(|(kind, _)| there.contains(kind)) {
        let mut seat = Seat::new(kind);
        let mut clients = seat.connected(1);
        let tokens = seat.introduced(&mut clients);
        seat.stubborn = tokens.clone();
        let mut client = clients.pop().unwrap();
        client.write_all(&pattern(len, 1)).unwrap();
        for _ in 0..20 {
            seat.turn(Duration::from_millis(1));
        }
        drop(client);
        let mut told = Vec::new();
        let since = Instant::now();
        let is_told = |event: &Event| matches!(event, Event::Ready { hangup: true, .. });
        while !told.iter().any(is_told) {
            assert!(since.elapsed() < Duration::from_secs(20), "the end is not told: {told:?}");
            seat.io.poll(Some(Duration::from_millis(50)), &mut told);
        }
        seat.read(tokens[0], true);
        seat.until("the end", |seat| seat.ended == tokens);
        assert!(seat.got[&tokens[0]] == pattern(len, 1));
    }
}

#[test]
fn who_takes_little_is_told_of_room() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let tokens = seat.introduced(&mut clients);
        let long = pattern(24 << 20, 5);
        let mut client = clients.pop().unwrap();
        let expected = long.clone();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut got = vec![0; expected.len()];
            client.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        let (mut sent, mut waits) = (0, 0);
        while sent < long.len() {
            let Send::Taken(len) = seat.io.send(seat.sockets[&tokens[0]], &long[sent..]) else {
                panic!("it is there");
            };
            sent += len;
            if sent == long.len() {
                break;
            }
            waits += 1;
            let since = Instant::now();
            let mut told = Vec::new();
            let is_room = |event: &Event| matches!(event, Event::Ready { writable: true, .. });
            while !told.iter().any(is_room) {
                assert!(since.elapsed() < Duration::from_secs(20), "room is not told");
                seat.io.poll(Some(Duration::from_millis(50)), &mut told);
            }
        }
        assert!(waits > 0, "it was to wait");
        reader.join().unwrap();
    });
}

#[test]
fn a_socket_that_is_handed_over_takes_what_has_come_with_it() {
    // If one worker is refused io_uring and others have it, their drivers differ.
    let of_any = |one: Kind| kinds().into_iter().map(move |other| (one, other));
    for (kind, next) in kinds().into_iter().flat_map(of_any) {
        let (mut one, mut other) = (Seat::new(kind), Seat::new(next));
        let mut clients = one.connected(20);
        let tokens = one.introduced(&mut clients);
        for round in 0..10 {
            one.stubborn = tokens.clone();
            for (index, client) in clients.iter_mut().enumerate() {
                client.write_all(&pattern(1000, index as u8 ^ round)).unwrap();
            }
            if round % 2 == 0 {
                one.turn(Duration::from_millis(1));
            }
            for &token in &tokens {
                let socket = one.io.release(one.sockets.remove(&token).unwrap());
                let socket = other.io.adopt(socket);
                other.sockets.insert(token, socket);
                assert!(other.io.watch(socket, Token(token)));
                other.read(token, false);
            }
            other.until("what was sent", |seat| {
                tokens.iter().all(|token| seat.got.get(token).map_or(0, Vec::len) == 1000)
            });
            for (index, token) in tokens.iter().enumerate() {
                let got = other.got.remove(token).unwrap();
                assert!(got == pattern(1000, index as u8 ^ round), "{kind:?} {round} {index}");
            }
            std::mem::swap(&mut one, &mut other);
            other.stubborn.clear();
        }
    }
}

#[test]
fn what_is_closed_takes_nothing_from_who_has_its_number_next() {
    on_all(|seat| {
        for round in 0..200u32 {
            let mut clients = seat.connected(3);
            // It is closed in the turn in which it was accepted, before the driver below knows it.
            let token = *seat.sockets.last_key_value().unwrap().0;
            let socket = seat.sockets.remove(&token).unwrap();
            seat.io.close(socket);
            let mut next = TcpStream::connect(seat.at).unwrap();
            next.write_all(&round.to_be_bytes()).unwrap();
            let old = seat.sockets.clone();
            seat.until("the next", |seat| {
                seat.got.iter().any(|(token, got)| !old.contains_key(token) && got.len() == 4)
            });
            for client in &mut clients {
                let _ = client.write_all(b"late");
            }
            for (_, socket) in std::mem::take(&mut seat.sockets) {
                seat.io.close(socket);
            }
            seat.got.clear();
            seat.ended.clear();
        }
    });
}

/// A draining worker reads what is there, with or without an event, and ends.
#[test]
fn what_is_there_is_read_by_who_was_not_told() {
    on_all(|seat| {
        for round in 0..20 {
            let mut clients = seat.connected(60);
            let tokens = seat.introduced(&mut clients);
            seat.stubborn = tokens.clone();
            for (index, client) in clients.iter_mut().enumerate() {
                client.write_all(&pattern(20_000, index as u8)).unwrap();
            }
            if round % 2 == 0 {
                // Events are reported and not followed by reads: buffers become scarce.
                seat.turn(Duration::from_millis(1));
                seat.turn(Duration::ZERO);
            }
            for (index, &token) in tokens.iter().enumerate() {
                seat.read(token, true);
                assert!(seat.got[&token] == pattern(20_000, index as u8), "{round}, {index}");
            }
            for (_, socket) in std::mem::take(&mut seat.sockets) {
                seat.io.close(socket);
            }
            seat.got.clear();
            seat.stubborn.clear();
        }
    });
}

#[test]
fn closing_says_so_at_once() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let tokens = seat.introduced(&mut clients);
        seat.io.close(seat.sockets.remove(&tokens[0]).unwrap());
        seat.turn(Duration::ZERO);
        clients[0].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(clients[0].read(&mut [0; 8]).expect("its end"), 0);
    });
}

/// A plain close would reset the connection, and bytes that the client has not read would be lost.
#[test]
fn who_is_told_that_nothing_more_comes_may_send_on() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let token = seat.introduced(&mut clients)[0];
        let socket = seat.sockets[&token];
        let mut client = clients.pop().unwrap();
        let (last, long) = (pattern(300_000, 6), pattern(12 << 20, 7));
        let mut sent = 0;
        while sent < last.len() {
            match seat.io.send(socket, &last[sent..]) {
                Send::Taken(len) => sent += len,
                Send::Failed => panic!("it is there"),
            }
            seat.turn(Duration::from_millis(1));
        }
        let (wanted, said) = (last.clone(), long.clone());
        assert!(seat.io.finish(socket));
        let peer = std::thread::spawn(move || {
            client.write_all(&said).unwrap();
            let mut got = Vec::new();
            client.read_to_end(&mut got).expect("the end, and no reset");
            assert!(got == wanted);
        });
        seat.until("its end", |seat| seat.ended.contains(&token));
        assert!(seat.got[&token] == long);
        peer.join().unwrap();
        seat.io.close(seat.sockets.remove(&token).unwrap());
    });
}

#[test]
fn connections_that_are_made_are_read_too() {
    on_all(|seat| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        // Tokens of links to servers look like this.
        let name = 1 << 62 | 77;
        seat.io.connect(&address, Token(name));
        let (mut peer, _) = server.accept().unwrap();
        peer.write_all(&pattern(100_000, 4)).unwrap();
        seat.until("its bytes", |seat| seat.got.get(&name).is_some_and(|got| got.len() == 100_000));
        assert!(seat.got[&name] == pattern(100_000, 4));
        assert_eq!(seat.io.send(seat.sockets[&name], b"thanks"), Send::Taken(6));
        let mut said = [0; 6];
        peer.read_exact(&mut said).unwrap();
        drop(peer);
        seat.until("its end", |seat| seat.ended == [name]);
    });
}

#[test]
fn what_is_held_of_a_read_is_not_read_over() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let token = seat.introduced(&mut clients)[0];
        let socket = seat.sockets[&token];
        let (mut held, mut read): (Vec<Part>, _) = (Vec::new(), 0);
        for round in 0..50_u8 {
            let sent = pattern(1000, round);
            clients[0].write_all(&sent).unwrap();
            let mut got = Vec::new();
            while got.len() < sent.len() {
                seat.io.poll(Some(Duration::from_millis(50)), &mut Vec::new());
                while let Recv::Data { bytes, block, .. } = seat.io.recv(socket) {
                    got.extend_from_slice(bytes);
                    held.extend(block.and_then(|block| Part::of(block, bytes)));
                    read += bytes.len();
                }
            }
            assert!(got == sent);
        }
        let all: Vec<u8> = (0..50_u8).flat_map(|round| pattern(1000, round)).collect();
        let kept: Vec<u8> = held.iter().flat_map(|part| part.bytes().to_vec()).collect();
        assert!(read == all.len() && (kept.is_empty() || kept == all), "another read is in it");
    });
}

#[test]
fn pieces_arrive_in_their_order_as_far_as_there_is_room() {
    on_all(|seat| {
        let mut clients = seat.connected(1);
        let token = seat.introduced(&mut clients)[0];
        let socket = seat.sockets[&token];
        let wanted = pattern(9 << 20, 3);
        let mut client = clients.remove(0);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut got = vec![0; 9 << 20];
            client.read_exact(&mut got).unwrap();
            got
        });
        let (mut at, mut was_full) = (0, false);
        while at < wanted.len() {
            let lens = [1, 40_000, 0, 16_384, 70_000, 3];
            let mut rest = &wanted[at..];
            let mut pieces = Vec::new();
            for len in lens {
                let (piece, behind) = rest.split_at(len.min(rest.len()));
                pieces.push(IoSlice::new(piece));
                rest = behind;
            }
            let all: usize = pieces.iter().map(|piece| piece.len()).sum();
            let Send::Taken(taken) = seat.io.send_pieces(socket, &pieces) else { panic!("broken") };
            at += taken;
            if taken < all {
                was_full = true;
                seat.io.poll(Some(Duration::from_millis(20)), &mut Vec::new());
            }
        }
        assert!(was_full && reader.join().unwrap() == wanted);
    });
}

/// Returns the ports of clients, by which the tests identify them.
fn ports(clients: &[TcpStream]) -> Vec<u16> {
    clients.iter().map(|client| client.local_addr().unwrap().port()).collect()
}

/// Accepts at most `most` clients. Returns their ports, in order.
fn take_in(seat: &mut Seat, at: ListenerIndex, most: usize) -> Vec<u16> {
    let mut ports = Vec::new();
    while ports.len() < most
        && let Accept::Client { socket, peer } = seat.io.accept(at)
    {
        let Peer::Tcp(addr) = peer else { panic!("{peer:?}") };
        ports.push(addr.port());
        let token = seat.sockets.last_key_value().map_or(1, |(last, _)| last + 1);
        seat.sockets.insert(token, socket);
        assert!(seat.io.watch(socket, Token(token)));
    }
    ports
}

/// Polls until a listener is reported.
fn await_incoming(seat: &mut Seat, at: ListenerIndex) {
    let since = Instant::now();
    let mut told = Vec::new();
    while !told.contains(&Event::Incoming(at)) {
        assert!(since.elapsed() < Duration::from_secs(20), "nobody is told of: {told:?}");
        seat.io.poll(Some(Duration::from_millis(50)), &mut told);
    }
}

fn is_anybody_told(seat: &mut Seat, polls: usize) -> bool {
    let mut told = Vec::new();
    for _ in 0..polls {
        seat.io.poll(Some(Duration::from_millis(2)), &mut told);
    }
    told.iter().any(|event| matches!(event, Event::Incoming(_)))
}

fn connect_all(at: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(at).expect("it listens")).collect()
}

const FIRST: ListenerIndex = ListenerIndex(0);

#[test]
fn who_comes_while_there_is_no_room_comes_in_when_there_is_and_in_order() {
    type Hold = fn(&mut Seat, bool);
    let holds: [Hold; 2] = [
        |seat, held| seat.io.hold_listener(FIRST, held),
        |seat, held| seat.io.pause_accepting(held),
    ];
    for hold in holds {
        on_all(|seat| {
            let mut clients = connect_all(seat.at, 50);
            await_incoming(seat, FIRST);
            let mut came = take_in(seat, FIRST, 20);
            // It is reported again, as long as a client waits.
            await_incoming(seat, FIRST);
            hold(seat, true);
            clients.extend(connect_all(seat.at, 50));
            assert!(!is_anybody_told(seat, 20), "there is no room");
            hold(seat, false);
            while came.len() < 100 {
                await_incoming(seat, FIRST);
                came.extend(take_in(seat, FIRST, 7));
            }
            assert_eq!(came, ports(&clients));
            assert!(!is_anybody_told(seat, 5), "nobody waits");
            let tokens: Vec<u64> = seat.sockets.keys().copied().collect();
            assert_eq!(tokens.len(), 100);
            clients.iter_mut().for_each(|client| client.write_all(b"hi").unwrap());
            seat.until("hearing all", |seat| {
                tokens.iter().all(|token| seat.got.get(token).is_some_and(|got| got == b"hi"))
            });
        });
    }
}

#[test]
fn more_than_wait_in_a_list_come_in_all_the_same() {
    on_all(|seat| {
        let mut came = Vec::new();
        let mut clients = Vec::new();
        // By and by there are more clients than a listener's list has room for, and none is taken.
        for _ in 0..4 {
            clients.extend(connect_all(seat.at, 200));
            await_incoming(seat, FIRST);
        }
        while came.len() < clients.len() {
            await_incoming(seat, FIRST);
            came.extend(take_in(seat, FIRST, 64));
        }
        assert_eq!(came, ports(&clients));
        clients.extend(connect_all(seat.at, 1));
        await_incoming(seat, FIRST);
        assert_eq!(take_in(seat, FIRST, 9).len(), 1);
    });
}

/// No client is missed that waits at a listener which is about to end, whether it was accepted
/// already or not.
#[test]
fn who_waits_at_a_listener_that_is_to_go_is_taken_in() {
    on_all(|seat| {
        // There are more clients than the list has room for: the order is withdrawn.
        let mut clients = connect_all(seat.at, 400);
        await_incoming(seat, FIRST);
        let mut came = take_in(seat, FIRST, 64);
        clients.extend(connect_all(seat.at, 50));
        seat.io.empty_listener(FIRST);
        came.extend(take_in(seat, FIRST, usize::MAX));
        seat.io.end_listening(FIRST);
        assert_eq!(came, ports(&clients));
        TcpStream::connect(seat.at).expect_err("nobody listens");
    });
}

#[test]
fn who_was_accepted_before_a_worker_leaves_is_served_and_nobody_later() {
    on_all(|seat| {
        let mut clients = connect_all(seat.at, 40);
        await_incoming(seat, FIRST);
        let mut came = take_in(seat, FIRST, 10);
        seat.io.leave_listening();
        TcpStream::connect(seat.at).expect_err("nobody listens");
        // With epoll the others still wait in the system, perhaps for another process.
        while seat.io.has_arrivals() {
            await_incoming(seat, FIRST);
            came.extend(take_in(seat, FIRST, 8));
        }
        assert_eq!(came, ports(&clients[..came.len()]));
        let tokens: Vec<u64> = seat.sockets.keys().copied().collect();
        let there = clients[..came.len()].iter_mut();
        there.for_each(|client| client.write_all(b"hi").unwrap());
        seat.until("hearing all", |seat| tokens.iter().all(|token| seat.got.contains_key(token)));
        assert!(!is_anybody_told(seat, 5), "nobody is left");
    });
}

/// During an upgrade another process has the same socket: no client is lost between the two.
#[test]
fn who_comes_to_a_socket_of_two_is_served_by_one_of_them() {
    for kind in kinds() {
        let (listener, at) = listener();
        let shared = listener.hold().socket().unwrap().expect("it is open");
        let mut one = Seat::with(kind, listener, at);
        let options = options();
        let mut other = Seat::with(kind, Listener::taken(shared, &options).unwrap(), at);
        let mut clients = connect_all(at, 60);
        await_incoming(&mut one, FIRST);
        let mut came = take_in(&mut one, FIRST, 5);
        clients.extend(connect_all(at, 60));
        one.io.leave_listening();
        clients.extend(connect_all(at, 60));
        while one.io.has_arrivals() {
            await_incoming(&mut one, FIRST);
            came.extend(take_in(&mut one, FIRST, 50));
        }
        let mut rest = Vec::new();
        while came.len() + rest.len() < clients.len() {
            await_incoming(&mut other, FIRST);
            rest.extend(take_in(&mut other, FIRST, 50));
        }
        came.extend(rest);
        assert_eq!(came, ports(&clients), "{kind:?}");
    }
}

/// A worker that is busy with a script accepts no client.
#[test]
fn who_waits_at_another_workers_socket_can_be_taken_in() {
    for kind in kinds() {
        let (listener, at) = listener();
        let sibling = listener.template().unwrap().bind().unwrap();
        let mut one = Seat::with(kind, listener, at);
        let mut busy = Seat::with(kind, sibling, at);
        assert!(!is_anybody_told(&mut busy, 3) && !one.io.accept_beside(FIRST));
        let clients = connect_all(at, 60);
        let (mut came, mut beside) = (Vec::new(), 0);
        let since = Instant::now();
        while came.len() < clients.len() {
            assert!(since.elapsed() < Duration::from_secs(20), "{kind:?}: {} came", came.len());
            if one.io.accept_beside(FIRST) {
                let taken = take_in(&mut one, FIRST, 60);
                beside += taken.len();
                came.extend(taken);
            }
            if is_anybody_told(&mut one, 1) {
                came.extend(take_in(&mut one, FIRST, 60));
            }
        }
        came.sort_unstable();
        let mut all = ports(&clients);
        all.sort_unstable();
        assert_eq!(came, all, "{kind:?}");
        assert!(beside > 10, "{kind:?}: {beside} came by the other's socket");
        // The busy worker accepts clients again once it is free.
        let more = connect_all(at, 40);
        await_incoming(&mut busy, FIRST);
        assert!(!take_in(&mut busy, FIRST, 40).is_empty(), "{kind:?}: {more:?}");
    }
}

#[test]
fn a_listener_that_is_ended_lets_nobody_in_and_its_position_is_anothers() {
    on_all(|seat| {
        let mut clients = connect_all(seat.at, 30);
        await_incoming(seat, FIRST);
        assert_eq!(take_in(seat, FIRST, 10).len(), 10);
        seat.io.end_listening(FIRST);
        TcpStream::connect(seat.at).expect_err("nobody listens");
        for client in &mut clients[10..] {
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // The read returns the end, or an error.
            assert!(matches!(client.read(&mut [0; 8]), Ok(0) | Err(_)));
        }
        assert!(!is_anybody_told(seat, 5) && take_in(seat, FIRST, 1).is_empty());
        for index in [FIRST, ListenerIndex(3)] {
            let (listener, at) = listener();
            assert!(seat.io.listen(index, listener));
            let clients = connect_all(at, 5);
            let mut came = Vec::new();
            while came.len() < clients.len() {
                await_incoming(seat, index);
                came.extend(take_in(seat, index, 64));
            }
            assert_eq!(came, ports(&clients));
        }
        let tokens = seat.sockets.len();
        assert_eq!(tokens, 20);
        clients[0].write_all(b"still here").unwrap();
        seat.until("the one from before", |seat| !seat.got.is_empty());
    });
}

#[test]
fn what_is_left_of_a_driver_accepts_nobody() {
    for kind in kinds() {
        let mut seat = Seat::new(kind);
        let at = seat.at;
        let mut clients = connect_all(at, 3);
        await_incoming(&mut seat, FIRST);
        drop(seat);
        TcpStream::connect(at).expect_err("nobody listens");
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert!(matches!(client.read(&mut [0; 8]), Ok(0) | Err(_)));
        }
    }
}

#[test]
fn who_is_gone_before_it_is_taken_in_keeps_nobody_out() {
    on_all(|seat| {
        let clients = connect_all(seat.at, 9);
        await_incoming(seat, FIRST);
        // The connections are reset, not ended.
        for client in clients {
            let linger = socket2::SockRef::from(&client);
            linger.set_linger(Some(Duration::ZERO)).unwrap();
        }
        let last = connect_all(seat.at, 1);
        let mut came = Vec::new();
        while came.last() != ports(&last).last() {
            await_incoming(seat, FIRST);
            came.extend(take_in(seat, FIRST, 64));
        }
    });
}

/// The test runs in a process of its own, whose descriptors run out.
#[test]
fn without_descriptors_who_waits_is_told_of_and_nobody_else() {
    const CHILD: &str = "KEYWAY_TEST_WITHOUT_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let name = "without_descriptors_who_waits_is_told_of_and_nobody_else";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let status = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").status();
        assert!(status.expect("it starts").success());
        return;
    }
    let limit = |to: Option<u64>| {
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: to, ..limits }).unwrap();
    };
    let before = getrlimit(Resource::Nofile).current;
    // The lowest free number is used: none is left below it.
    let lowest = || u64::try_from(TcpListener::bind("127.0.0.1:0").unwrap().as_raw_fd()).unwrap();
    on_all(|seat| {
        assert!(!is_anybody_told(seat, 3));
        limit(Some(lowest()));
        assert!(!is_anybody_told(seat, 20), "nobody waits");
        for paused in [true, false] {
            seat.io.pause_accepting(paused);
            assert!(!is_anybody_told(seat, 20), "nobody waits");
        }
        limit(before);
        let clients = connect_all(seat.at, 20);
        limit(Some(lowest()));
        await_incoming(seat, FIRST);
        let came = take_in(seat, FIRST, 64);
        assert!(came.is_empty() && matches!(seat.io.accept(FIRST), Accept::Exhausted));
        seat.io.pause_accepting(true);
        assert!(!is_anybody_told(seat, 20), "it is asked for after a pause");
        seat.io.pause_accepting(false);
        await_incoming(seat, FIRST);
        assert!(matches!(seat.io.accept(FIRST), Accept::Exhausted));
        seat.io.pause_accepting(true);
        limit(before);
        seat.io.pause_accepting(false);
        let mut came = Vec::new();
        while came.len() < clients.len() {
            await_incoming(seat, FIRST);
            came.extend(take_in(seat, FIRST, 64));
        }
        assert_eq!(came, ports(&clients));
        assert!(matches!(seat.io.accept(FIRST), Accept::Empty));
        let more = connect_all(seat.at, 2);
        while came.len() < 22 {
            await_incoming(seat, FIRST);
            came.extend(take_in(seat, FIRST, 64));
        }
        assert_eq!(came[20..], ports(&more));
    });
}

#[test]
fn who_brings_much_and_then_little_is_read_whole() {
    on_all(|seat| {
        let mut clients = seat.connected(3);
        let tokens = seat.introduced(&mut clients);
        let token = tokens[0];
        let mut other = 0;
        for phase in 0..3_u8 {
            for round in 0..10 {
                let sent = pattern(300_000, phase ^ round);
                let (mut client, long) = (clients[0].try_clone().unwrap(), sent.clone());
                let writer = std::thread::spawn(move || client.write_all(&long).unwrap());
                clients[1].write_all(b"x").unwrap();
                other += 1;
                seat.until("much", |seat| {
                    let len = |token| seat.got.get(token).map_or(0, Vec::len);
                    len(&token) == sent.len() && len(&tokens[1]) == other
                });
                writer.join().unwrap();
                assert!(seat.got.remove(&token).unwrap() == sent, "{phase} {round}");
            }
            for round in 0..150 {
                clients[0].write_all(&[phase; 90]).unwrap();
                seat.until("little", |seat| seat.got.get(&token).is_some_and(|it| it.len() == 90));
                assert!(seat.got.remove(&token).unwrap() == [phase; 90], "{phase} {round}");
            }
        }
        // This is the end of a connection that has just brought many bytes.
        let mut client = clients.remove(2);
        let sent = pattern(2 << 20, 5);
        let long = sent.clone();
        std::thread::spawn(move || client.write_all(&long).unwrap());
        seat.until("its end", |seat| seat.ended == [tokens[2]]);
        assert!(seat.got[&tokens[2]] == sent);
    });
}

#[test]
fn who_brings_much_is_handed_over_whole() {
    for kind in kinds() {
        let (mut one, mut other) = (Seat::new(kind), Seat::new(kind));
        let mut clients = one.connected(2);
        let tokens = one.introduced(&mut clients);
        let sent = pattern(24 << 20, 7);
        let (mut client, long) = (clients.remove(0), sent.clone());
        let writer = std::thread::spawn(move || {
            client.write_all(&long).unwrap();
            client
        });
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let wanted = sent.len().min(got.len() + (2 << 20));
            one.until("some", |seat| {
                seat.got.get(&tokens[0]).map_or(0, Vec::len) + got.len() >= wanted
            });
            got.extend(one.got.remove(&tokens[0]).unwrap());
            let socket = one.io.release(one.sockets.remove(&tokens[0]).unwrap());
            let socket = other.io.adopt(socket);
            other.sockets.insert(tokens[0], socket);
            assert!(other.io.watch(socket, Token(tokens[0])));
            other.read(tokens[0], false);
            std::mem::swap(&mut one, &mut other);
        }
        assert!(got == sent, "{kind:?}");
        let client = writer.join().unwrap();
        drop(client);
        one.until("its end", |seat| seat.ended == [tokens[0]]);
    }
}
