//! [`Secured`] over a network that accepts and brings bytes as it likes, with a peer of rustls
//! itself.

use keyway_base::Clock;
use keyway_net::{
    Accept, Address, ClientTls, ConnectFault, Event, Io, ListenerIndex, Recv, Secured, Send,
    Socket, TlsFault, Token,
};
use keyway_testkit::certificates::Authority;
use keyway_tls::{Channel, ClientSettings, MinVersion, Trust};
use proptest::prelude::*;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const TOKEN: Token = Token(1 << 62 | 7);
const SOCKET: Socket = Socket(5);

/// One connection, whose other end belongs to the test.
#[derive(Default)]
struct Wire {
    /// The connection's token here.
    token: Option<Token>,
    events: Vec<Event>,
    /// The bytes that arrive, in the pieces that reads return.
    arriving: VecDeque<Vec<u8>>,
    has_ended: bool,
    read_buf: Vec<u8>,
    sent: Vec<u8>,
    /// Number of bytes that are accepted now.
    room: usize,
    was_blocked: bool,
    closed: Vec<Socket>,
    /// Bytes sent before the end was announced.
    finished_at: Option<usize>,
    cancelled: usize,
}

impl Wire {
    fn tell(&mut self, readable: bool, writable: bool, hangup: bool) {
        let Some(token) = self.token else { return };
        self.events.push(Event::Ready { token, readable, writable, hangup });
    }
}

impl Io for Wire {
    fn clock(&mut self) -> Clock {
        Clock::default()
    }
    fn poll(&mut self, _wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        events.append(&mut self.events);
        false
    }
    fn accept(&mut self, _listener: ListenerIndex) -> Accept {
        Accept::Empty
    }
    fn pause_accepting(&mut self, _paused: bool) {}
    fn stop_listening(&mut self) {}
    fn watch(&mut self, _socket: Socket, _token: Token) -> bool {
        true
    }
    fn connect(&mut self, _address: &Address, token: Token) {
        self.token = Some(token);
        self.events.push(Event::Connected { token, socket: SOCKET });
    }
    fn cancel_connect(&mut self, _token: Token) {
        self.cancelled += 1;
    }
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        assert_eq!(socket, SOCKET);
        match self.arriving.pop_front() {
            Some(piece) => {
                self.read_buf = piece;
                Recv::Data { bytes: &self.read_buf, drained: self.arriving.is_empty(), block: None }
            }
            None if self.has_ended => Recv::End,
            None => Recv::Empty,
        }
    }
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        assert_eq!(socket, SOCKET);
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.was_blocked |= taken < bytes.len();
        self.sent.extend_from_slice(&bytes[..taken]);
        Send::Taken(taken)
    }
    fn release(&mut self, socket: Socket) -> Socket {
        socket
    }
    fn finish(&mut self, socket: Socket) -> bool {
        assert_eq!(socket, SOCKET);
        self.finished_at = Some(self.sent.len());
        true
    }
    fn close(&mut self, socket: Socket) {
        self.closed.push(socket);
    }
}

fn sides() -> &'static (ClientTls, [Arc<ServerConfig>; 2]) {
    static SIDES: OnceLock<(ClientTls, [Arc<ServerConfig>; 2])> = OnceLock::new();
    SIDES.get_or_init(|| {
        let authority = Authority::new("keyway tests");
        let issued = authority.issue(&["127.0.0.1"]);
        let servers = [&rustls::version::TLS13, &rustls::version::TLS12].map(|version| {
            let chain =
                vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key);
            Arc::new(config.unwrap())
        });
        let settings = ClientSettings {
            trust: Trust::Authorities(PathBuf::from("/ca.pem")),
            server_name: None,
            identity: None,
            min_version: MinVersion::V1_2,
        };
        let text = authority.certificate.clone();
        let loaded = ClientTls::load(&settings, &move |_| Ok(text.clone()));
        (loaded.expect("it is right").tls, servers)
    })
}

/// A user of the driver, like a worker.
struct Worker {
    io: Secured<Wire>,
    socket: Option<Socket>,
    fault: Option<ConnectFault>,
    to_send: Vec<u8>,
    is_blocked: bool,
    heard: Vec<u8>,
    has_ended: bool,
}

impl Worker {
    fn new(to_send: Vec<u8>) -> Worker {
        let mut io = Secured::new(Wire::default());
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        io.connect_secured(&address, &sides().0, TOKEN);
        Worker {
            io,
            socket: None,
            fault: None,
            to_send,
            is_blocked: false,
            heard: Vec::new(),
            has_ended: false,
        }
    }

    fn turn(&mut self) {
        let mut events = Vec::new();
        self.io.poll(Some(Duration::ZERO), &mut events);
        for event in events {
            match event {
                Event::Connected { token, socket } => {
                    assert!(token == TOKEN && self.socket.is_none() && self.fault.is_none());
                    self.socket = Some(socket);
                }
                Event::ConnectFailed { token, fault } => {
                    assert!(token == TOKEN && self.socket.is_none());
                    self.fault = Some(fault);
                }
                Event::Ready { token, readable, writable, hangup } => {
                    assert!(token == TOKEN && self.socket.is_some(), "not before it stands");
                    self.is_blocked &= !writable;
                    if readable || hangup {
                        self.read(hangup);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        if let (Some(socket), false) = (self.socket, self.is_blocked) {
            let len = self.to_send.len();
            if let (1.., Send::Taken(taken)) = (len, self.io.send(socket, &self.to_send)) {
                self.to_send.drain(..taken);
                self.is_blocked = taken < len;
            }
        }
    }

    /// Reads until the socket is drained, as edge-triggered events require.
    fn read(&mut self, hangup: bool) {
        let Some(socket) = self.socket else { return };
        loop {
            match self.io.recv(socket) {
                Recv::Data { bytes, drained, .. } => {
                    assert!(!bytes.is_empty());
                    self.heard.extend_from_slice(bytes);
                    if drained && !hangup {
                        return;
                    }
                }
                Recv::Empty => return,
                Recv::End | Recv::Failed => {
                    self.has_ended = true;
                    return;
                }
            }
        }
    }
}

fn text_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn bytes_come_through_however_little_the_network_takes_and_brings(
        which in 0usize..2,
        (ours, theirs) in (0usize..150_000, 0usize..150_000),
        rooms in prop::collection::vec(0usize..40_000, 1..12),
        cuts in prop::collection::vec(1usize..30_000, 1..12),
    ) {
        let mut server = ServerConnection::new(Arc::clone(&sides().1[which])).unwrap();
        server.set_buffer_limit(None);
        let (ours, theirs) = (text_of(ours, 1), text_of(theirs, 2));
        let mut worker = Worker::new(ours.clone());
        let mut to_say = Some(theirs.clone());
        let mut heard = Vec::new();
        let (mut rooms, mut cuts) = (rooms.iter().cycle(), cuts.iter().cycle());
        let mut rounds = 0;
        while heard.len() < ours.len() || worker.heard.len() < theirs.len() {
            rounds += 1;
            prop_assert!(rounds < 20_000, "it stands still");
            let wire = worker.io.inner_mut();
            // One byte at least is accepted, or nothing would ever move.
            wire.room += *rooms.next().unwrap() + 1;
            if std::mem::take(&mut wire.was_blocked) {
                wire.tell(false, true, false);
            }
            let sent = std::mem::take(&mut wire.sent);
            let mut left = &sent[..];
            while !left.is_empty() {
                server.read_tls(&mut left).unwrap();
                server.process_new_packets().unwrap();
                let _ = server.reader().read_to_end(&mut heard);
            }
            if !server.is_handshaking() && let Some(text) = to_say.take() {
                server.writer().write_all(&text).unwrap();
            }
            let mut said = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut said).unwrap();
            }
            let mut left = &said[..];
            while !left.is_empty() {
                let (piece, rest) = left.split_at(left.len().min(*cuts.next().unwrap()));
                wire.arriving.push_back(piece.to_vec());
                left = rest;
            }
            if !said.is_empty() {
                wire.tell(true, false, false);
            }
            worker.turn();
            prop_assert!(worker.fault.is_none() && !worker.has_ended);
        }
        prop_assert!(heard == ours && worker.heard == theirs);
        // The end is reported once, and nothing of ours is left.
        let wire = worker.io.inner_mut();
        wire.has_ended = true;
        wire.room = 1000;
        wire.tell(true, false, true);
        worker.turn();
        prop_assert!(worker.has_ended);
        worker.io.close(worker.socket.unwrap());
        prop_assert_eq!(&worker.io.inner_mut().closed, &[SOCKET]);
        worker.io.inner_mut().tell(true, true, true);
        let mut events = Vec::new();
        worker.io.poll(None, &mut events);
        prop_assert!(events.is_empty(), "what was closed is not told of");
    }

    #[test]
    fn hostile_bytes_end_the_handshake_with_a_fault_and_the_socket(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5000), 1..40),
        begins_well: bool,
    ) {
        let mut worker = Worker::new(b"PING".to_vec());
        worker.io.inner_mut().room = usize::MAX;
        worker.turn();
        let mut given = 0;
        for mut piece in pieces {
            if begins_well && given == 0 {
                // This is a handshake record of the greatest possible length.
                piece.splice(0..0, [22, 3, 3, 0x40, 0]);
            }
            given += piece.len();
            let wire = worker.io.inner_mut();
            wire.arriving.push_back(piece);
            wire.tell(true, false, false);
            worker.turn();
            prop_assert!(worker.fault.is_some() || given < 96 << 10, "it takes whatever comes");
        }
        if worker.fault.is_none() {
            let wire = worker.io.inner_mut();
            wire.has_ended = true;
            wire.tell(true, false, true);
            worker.turn();
        }
        prop_assert!(matches!(worker.fault, Some(ConnectFault::Tls(_))), "{:?}", worker.fault);
        prop_assert_eq!(&worker.io.inner_mut().closed, &[SOCKET]);
        prop_assert!(worker.heard.is_empty() && worker.to_send == b"PING");
    }
}

/// Returns a connection after its handshake.
fn standing() -> (ServerConnection, Worker, Socket) {
    let mut server = ServerConnection::new(Arc::clone(&sides().1[0])).unwrap();
    let mut worker = Worker::new(Vec::new());
    for _ in 0..4 {
        let wire = worker.io.inner_mut();
        wire.room = usize::MAX / 2;
        let sent = std::mem::take(&mut wire.sent);
        let mut left = &sent[..];
        while !left.is_empty() {
            server.read_tls(&mut left).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut said = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut said).unwrap();
        }
        if !said.is_empty() {
            wire.arriving.push_back(said);
            wire.tell(true, false, false);
        }
        worker.turn();
    }
    let socket = worker.socket.expect("it stands");
    (server, worker, socket)
}

#[test]
fn what_is_encrypted_and_not_sent_is_bounded() {
    let (_, mut worker, socket) = standing();
    worker.io.inner_mut().room = 0;
    let text = vec![b'x'; 10 << 20];
    // Accepted bytes wait here; no more are accepted until they are sent.
    assert_eq!(worker.io.send(socket, &text), Send::Taken(Channel::ENCRYPT_LEN_MAX));
    assert_eq!(worker.io.send(socket, &text), Send::Taken(0));
    worker.io.inner_mut().room = 100;
    assert_eq!(worker.io.send(socket, &text), Send::Taken(0));
    let mut events = Vec::new();
    worker.io.inner_mut().tell(false, true, false);
    worker.io.poll(None, &mut events);
    assert!(matches!(events[..], [Event::Ready { writable: false, .. }]), "{events:?}");
    worker.io.inner_mut().room = 1 << 20;
    worker.io.inner_mut().tell(false, true, false);
    worker.io.poll(None, &mut events);
    assert!(matches!(events[..], [_, Event::Ready { writable: true, .. }]), "{events:?}");
}

/// The sending half below ends when the peer has everything, and what the peer sends is still read.
#[test]
fn the_end_is_said_behind_all_that_was_encrypted() {
    let (mut server, mut worker, socket) = standing();
    worker.io.inner_mut().room = 0;
    assert_eq!(worker.io.send(socket, b"the last"), Send::Taken(8));
    assert!(worker.io.finish(socket));
    for room in [10, 15, 1 << 20] {
        assert_eq!(worker.io.inner_mut().finished_at, None, "something is still to be sent");
        worker.io.inner_mut().room = room;
        worker.io.inner_mut().tell(false, true, false);
        worker.turn();
    }
    let wire = worker.io.inner_mut();
    assert_eq!(wire.finished_at, Some(wire.sent.len()));
    let sent = std::mem::take(&mut wire.sent);
    let mut left = &sent[..];
    while !left.is_empty() {
        server.read_tls(&mut left).unwrap();
        server.process_new_packets().unwrap();
    }
    let mut heard = String::new();
    server.reader().read_to_string(&mut heard).expect("a whole end");
    assert_eq!(heard, "the last");
    server.writer().write_all(b"more").unwrap();
    let mut said = Vec::new();
    server.write_tls(&mut said).unwrap();
    let wire = worker.io.inner_mut();
    wire.arriving.push_back(said);
    wire.tell(true, false, false);
    worker.turn();
    assert_eq!(worker.heard, b"more");
    worker.io.close(socket);
    let wire = worker.io.inner_mut();
    assert!(wire.sent.is_empty() && wire.closed == [SOCKET], "its end was said once");
}

#[test]
fn a_connection_given_up_in_its_handshake_leaves_nothing_behind() {
    let mut worker = Worker::new(Vec::new());
    // The connection is being made.
    worker.io.cancel_connect(TOKEN);
    assert_eq!(worker.io.inner_mut().cancelled, 1);
    worker.turn();
    assert!(worker.socket.is_none() && worker.fault.is_none());
    assert_eq!(worker.io.inner_mut().closed, [SOCKET], "it came all the same");
    // The handshake is under way.
    let mut worker = Worker::new(Vec::new());
    worker.io.inner_mut().room = 1 << 20;
    worker.turn();
    worker.io.cancel_connect(TOKEN);
    assert_eq!(worker.io.inner_mut().closed, [SOCKET]);
    worker.io.inner_mut().tell(true, true, true);
    worker.turn();
    assert!(worker.socket.is_none() && worker.fault.is_none());
}

#[test]
fn a_peer_that_leaves_in_the_handshake_is_told_of() {
    let mut worker = Worker::new(Vec::new());
    worker.turn();
    let wire = worker.io.inner_mut();
    wire.has_ended = true;
    wire.tell(true, false, true);
    worker.turn();
    assert_eq!(worker.fault, Some(ConnectFault::Tls(TlsFault::Closed)));
}
