//! Clients that arrive at an [`AcceptFilter`], over a network of the test with a clock of its own.

use keyway_base::{Clock, Time};
use keyway_net::{
    Accept, AcceptFilter, Address, Away, Event, Io, ListenerIndex, Peer, Recv, Secured, Send,
    Socket, Token,
};
use keyway_testkit::certificates::CertificateFiles;
use keyway_tls::{
    Channel, ClientCertificates, ClientSettings, ClientTls, Identity, MinVersion, ServerSettings,
    ServerTls, Trust,
};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const LISTENER: ListenerIndex = ListenerIndex(0);
const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 5 6\r\n";

#[derive(Default)]
struct Conn {
    token: Option<Token>,
    arriving: Vec<u8>,
    read_buf: Vec<u8>,
    sent: Vec<u8>,
    room: usize,
}

/// Clients that connect when the test says so.
#[derive(Default)]
struct Crowd {
    now: Time,
    waiting: VecDeque<i32>,
    conns: BTreeMap<i32, Conn>,
    events: Vec<Event>,
    closed: Vec<i32>,
    /// The longest sleep of the last poll.
    wait: Option<Duration>,
    /// True if waiting clients are not to be reported.
    is_held: bool,
    /// True if the system watches nothing more.
    is_blind: bool,
}

impl Crowd {
    fn come(&mut self, number: i32) {
        self.waiting.push_back(number);
        self.conns.insert(number, Conn { room: usize::MAX, ..Conn::default() });
    }

    fn say(&mut self, number: i32, bytes: &[u8]) {
        let conn = self.conns.get_mut(&number).unwrap();
        conn.arriving.extend_from_slice(bytes);
        if let Some(token) = conn.token {
            self.events.push(Event::Ready {
                token,
                readable: true,
                writable: false,
                hangup: false,
            });
        }
    }
}

impl Io for Crowd {
    fn clock(&mut self) -> Clock {
        Clock { now: self.now, unix_micros: 0 }
    }
    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        self.wait = wait;
        events.append(&mut self.events);
        false
    }
    fn accept(&mut self, _listener: ListenerIndex) -> Accept {
        match self.waiting.pop_front() {
            Some(number) => {
                let peer = Peer::Tcp(format!("127.0.0.1:{}", 1000 + number).parse().unwrap());
                Accept::Client { socket: Socket(number), peer }
            }
            None => Accept::Empty,
        }
    }
    fn pause_accepting(&mut self, _paused: bool) {}
    fn stop_listening(&mut self) {}
    fn hold_listener(&mut self, _listener: ListenerIndex, held: bool) {
        self.is_held = held;
    }
    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        if self.is_blind {
            return false;
        }
        let conn = self.conns.get_mut(&socket.0).unwrap();
        conn.token = Some(token);
        let readable = !conn.arriving.is_empty();
        self.events.push(Event::Ready { token, readable, writable: true, hangup: false });
        true
    }
    fn connect(&mut self, _address: &Address, _token: Token) {}
    fn cancel_connect(&mut self, _token: Token) {}
    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        let conn = self.conns.get_mut(&socket.0).unwrap();
        if conn.arriving.is_empty() {
            return Recv::Empty;
        }
        conn.read_buf = std::mem::take(&mut conn.arriving);
        Recv::Data { bytes: &conn.read_buf, drained: true, block: None }
    }
    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        let conn = self.conns.get_mut(&socket.0).unwrap();
        let taken = bytes.len().min(conn.room);
        conn.room -= taken;
        conn.sent.extend_from_slice(&bytes[..taken]);
        Send::Taken(taken)
    }
    fn release(&mut self, socket: Socket) -> Socket {
        self.conns.get_mut(&socket.0).unwrap().token = None;
        socket
    }
    fn close(&mut self, socket: Socket) {
        self.closed.push(socket.0);
    }
}

fn filter(tls: Option<ServerTls>, proxies: bool) -> AcceptFilter {
    AcceptFilter {
        allow: Vec::new(),
        deny: Vec::new(),
        proxies: proxies.then(Vec::new),
        tls,
        timeout: Duration::from_secs(5),
        arrivals_max: 3,
    }
}

fn driver(filter: AcceptFilter) -> Secured<Crowd> {
    Secured::with_filters(Crowd::default(), vec![Some(Arc::new(filter))])
}

/// Runs a turn like a worker. Returns whether the listener is to be asked.
fn turn(io: &mut Secured<Crowd>, millis: u64) -> bool {
    let mut events = Vec::new();
    io.inner_mut().now = Time(io.inner_mut().now.0 + millis * 1_000_000);
    io.poll(Some(Duration::from_secs(1)), &mut events);
    io.clock();
    events.contains(&Event::Incoming(LISTENER))
}

fn client(accept: Accept) -> (Socket, String) {
    match accept {
        Accept::Client { socket, peer } => (socket, peer.to_string()),
        other => panic!("{other:?}"),
    }
}

fn away(accept: Accept) -> Away {
    match accept {
        Accept::Turned { away, .. } => away,
        other => panic!("{other:?}"),
    }
}

fn is_entering(io: &mut Secured<Crowd>) -> bool {
    matches!(io.accept(LISTENER), Accept::Entering)
}

fn received(io: &mut Secured<Crowd>, socket: Socket) -> Vec<u8> {
    match io.recv(socket) {
        Recv::Data { bytes, .. } => bytes.to_vec(),
        _ => Vec::new(),
    }
}

#[test]
fn a_client_is_told_of_when_it_has_said_whose_it_is_and_what_comes_behind_is_kept() {
    let mut io = driver(filter(None, true));
    io.inner_mut().come(7);
    assert!(is_entering(&mut io));
    assert!(!turn(&mut io, 0));
    io.inner_mut().say(7, &HEADER[..9]);
    assert!(!turn(&mut io, 0));
    io.inner_mut().say(7, &[&HEADER[9..], b"PING"].concat());
    assert!(turn(&mut io, 0));
    let (socket, peer) = client(io.accept(LISTENER));
    assert_eq!(peer, "192.0.2.7:5");
    assert!(io.watch(socket, Token(9)));
    assert_eq!(received(&mut io, socket), b"PING");
    io.inner_mut().say(7, b"again");
    let mut events = Vec::new();
    io.poll(None, &mut events);
    assert!(events.iter().any(|event| matches!(event, Event::Ready { token: Token(9), .. })));
    assert_eq!(received(&mut io, socket), b"again");
    assert_eq!(io.send(socket, b"reply"), Send::Taken(5));
    assert_eq!(io.inner_mut().conns[&7].sent, b"reply");
    io.close(socket);
    assert_eq!(io.inner_mut().closed, [7]);
}

#[test]
fn a_few_steps_are_taken_in_a_poll_and_the_others_soon() {
    let mut io = driver(AcceptFilter { arrivals_max: 100, ..filter(None, true) });
    for number in 0..10 {
        io.inner_mut().come(number);
        io.inner_mut().say(number, HEADER);
        assert!(is_entering(&mut io));
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        assert!(turn(&mut io, 0));
        let mut count = 0;
        while let Accept::Client { .. } = io.accept(LISTENER) {
            count += 1;
        }
        told.push(count);
    }
    assert_eq!(told, [4, 4, 2]);
    assert!(!turn(&mut io, 0));
    assert_eq!(io.inner_mut().wait, Some(Duration::from_secs(1)), "there is nothing to do");
}

#[test]
fn who_keeps_us_waiting_longest_makes_room_but_not_at_once() {
    let mut io = driver(filter(None, true));
    (1..=3).for_each(|number| io.inner_mut().come(number));
    assert!((0..3).all(|_| is_entering(&mut io)));
    turn(&mut io, 100);
    io.inner_mut().come(4);
    assert!(matches!(io.accept(LISTENER), Accept::Empty), "their words may be on the way");
    // A client that has sent bytes waits for the worker.
    turn(&mut io, 200);
    io.inner_mut().say(2, HEADER);
    assert!(turn(&mut io, 0));
    assert_eq!(client(io.accept(LISTENER)).1, "192.0.2.7:5");
    assert!(is_entering(&mut io), "there is room where one is in");
    io.inner_mut().come(5);
    assert!(is_entering(&mut io));
    assert_eq!(io.inner_mut().closed, [1]);
    assert!(turn(&mut io, 0));
    assert_eq!(away(io.accept(LISTENER)), Away::Crowded);
    // A late client is refused; the clock is read after a poll.
    turn(&mut io, 6_000);
    assert!(turn(&mut io, 0));
    let outcomes: Vec<Away> = (0..3).map(|_| away(io.accept(LISTENER))).collect();
    assert_eq!(outcomes, [Away::Late; 3]);
    assert!(!turn(&mut io, 0));
}

/// Returns the clients that have arrived by now.
fn let_in(io: &mut Secured<Crowd>) -> Vec<String> {
    std::iter::from_fn(|| match io.accept(LISTENER) {
        Accept::Client { peer, .. } => Some(peer.to_string()),
        _ => None,
    })
    .collect()
}

/// A header that does not end.
const ENDLESS: &[u8] = b"PROXY UNKNOWN ........................................................";

#[test]
fn who_says_a_byte_at_a_time_keeps_nobody_out() {
    let mut io = driver(AcceptFilter { arrivals_max: 200, ..filter(None, true) });
    for number in 0..100 {
        io.inner_mut().come(number);
    }
    for byte in &ENDLESS[..60] {
        (0..100).for_each(|number| io.inner_mut().say(number, &[*byte]));
        while is_entering(&mut io) {}
        for _ in 0..30 {
            turn(&mut io, 1);
        }
    }
    // All of them have sent something again, and are known as slow.
    (0..100).for_each(|number| io.inner_mut().say(number, b"."));
    turn(&mut io, 0);
    io.inner_mut().come(100);
    io.inner_mut().say(100, HEADER);
    assert!(is_entering(&mut io));
    assert!((0..3).any(|_| turn(&mut io, 0)));
    assert_eq!(let_in(&mut io), ["192.0.2.7:5"]);
}

#[test]
fn who_says_a_byte_at_a_time_makes_room_though_there_is_always_one_to_read() {
    let mut io = driver(AcceptFilter { arrivals_max: 6, ..filter(None, true) });
    (1..=6).for_each(|number| io.inner_mut().come(number));
    assert!((0..6).all(|_| is_entering(&mut io)));
    turn(&mut io, 0);
    for byte in &ENDLESS[..30] {
        turn(&mut io, 5);
        // The oldest is served its step after four others have had theirs.
        (1..=6).rev().for_each(|number| io.inner_mut().say(number, &[*byte]));
        turn(&mut io, 5);
    }
    io.inner_mut().come(7);
    io.inner_mut().say(7, HEADER);
    assert!(is_entering(&mut io));
    assert_eq!(io.inner_mut().closed, [1]);
    assert!(turn(&mut io, 0));
    assert_eq!(away(io.accept(LISTENER)), Away::Crowded);
    assert_eq!(let_in(&mut io), ["192.0.2.7:5"]);
}

#[test]
fn a_listener_is_not_asked_while_nobody_can_come_in() {
    let mut io = driver(filter(None, true));
    (1..=3).for_each(|number| io.inner_mut().come(number));
    assert!((0..3).all(|_| is_entering(&mut io)));
    turn(&mut io, 100);
    io.inner_mut().come(4);
    assert!(matches!(io.accept(LISTENER), Accept::Empty));
    assert!(io.inner_mut().is_held, "it would be told of without end");
    turn(&mut io, 100);
    assert!(io.inner_mut().is_held);
    let wait = io.inner_mut().wait.unwrap();
    assert!(wait > Duration::ZERO && wait < Duration::from_millis(100), "{wait:?}");
    turn(&mut io, 100);
    turn(&mut io, 0);
    assert!(!io.inner_mut().is_held, "the first of them can make room now");
    assert!(is_entering(&mut io));
    // When one has arrived there is room at once.
    io.inner_mut().come(5);
    io.inner_mut().closed.clear();
    (2..=4).for_each(|number| io.inner_mut().say(number, b"P"));
    turn(&mut io, 0);
    assert!(matches!(io.accept(LISTENER), Accept::Turned { .. }));
    io.inner_mut().say(3, &HEADER[1..]);
    assert!(turn(&mut io, 0) && !io.inner_mut().is_held);
    assert!(io.inner_mut().closed.is_empty());
}

#[test]
fn who_waits_for_us_is_not_late() {
    let mut io = driver(AcceptFilter { arrivals_max: 100, ..filter(None, true) });
    (0..10).for_each(|number| io.inner_mut().come(number));
    assert!((0..10).all(|_| is_entering(&mut io)));
    turn(&mut io, 4_999);
    turn(&mut io, 10);
    (0..9).for_each(|number| io.inner_mut().say(number, HEADER));
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        turn(&mut io, 0);
        loop {
            match io.accept(LISTENER) {
                Accept::Client { .. } => outcomes.push(None),
                Accept::Turned { away, .. } => outcomes.push(Some(away)),
                _ => break,
            }
        }
    }
    outcomes.sort_by_key(Option::is_some);
    assert_eq!(outcomes[..9], [None; 9]);
    assert_eq!(outcomes[9..], [Some(Away::Late)], "it has said nothing");
}

#[test]
fn who_has_had_its_time_goes_behind_the_next_byte() {
    let mut io = driver(filter(None, true));
    io.inner_mut().come(1);
    assert!(is_entering(&mut io));
    turn(&mut io, 5_001);
    io.inner_mut().say(1, b"P");
    assert!(turn(&mut io, 0));
    assert_eq!(away(io.accept(LISTENER)), Away::Late);
}

#[test]
fn a_connection_that_the_system_does_not_watch_is_turned_away() {
    let mut io = driver(filter(None, true));
    io.inner_mut().is_blind = true;
    io.inner_mut().come(1);
    assert_eq!(away(io.accept(LISTENER)), Away::Unwatched);
    assert_eq!(io.inner_mut().closed, [1]);
    io.inner_mut().is_blind = false;
    io.inner_mut().come(2);
    assert!(is_entering(&mut io), "it may be better now");
}

#[test]
fn while_accepting_is_paused_nobody_is_told_and_nothing_spins() {
    let mut io = driver(filter(None, true));
    io.inner_mut().come(1);
    io.inner_mut().say(1, HEADER);
    assert!(is_entering(&mut io));
    io.pause_accepting(true);
    assert!(!turn(&mut io, 0));
    assert!(!turn(&mut io, 0));
    assert_eq!(io.inner_mut().wait, Some(Duration::from_secs(1)));
    io.pause_accepting(false);
    assert!(turn(&mut io, 0));
    assert_eq!(client(io.accept(LISTENER)).1, "192.0.2.7:5");
}

#[test]
fn nobody_is_left_when_nobody_listens_any_more() {
    let mut io = driver(filter(None, true));
    (1..=3).for_each(|number| io.inner_mut().come(number));
    assert!((0..3).all(|_| is_entering(&mut io)));
    io.inner_mut().say(2, HEADER);
    turn(&mut io, 0);
    io.stop_listening();
    let mut closed = io.inner_mut().closed.clone();
    closed.sort_unstable();
    assert_eq!(closed, [1, 2, 3]);
    assert!(!turn(&mut io, 9_000) && matches!(io.accept(LISTENER), Accept::Empty));
}

fn sides() -> (ServerTls, ClientTls) {
    let files = CertificateFiles::default();
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let identity =
        Identity { cert_file: files.path("server.pem"), key_file: files.path("server.key") };
    let server = ServerSettings {
        identities: vec![identity],
        clients: ClientCertificates::None,
        crl_file: None,
        min_version: MinVersion::V1_2,
    };
    let client = ClientSettings {
        trust: Trust::Authorities(files.path("ca.pem")),
        server_name: None,
        identity: None,
        min_version: MinVersion::V1_2,
    };
    (ServerTls::load(&server, &read).unwrap().tls, ClientTls::load(&client, &read).unwrap().tls)
}

/// Returns a TLS client on connection 1 that has arrived, and its end of the channel.
fn secured() -> (Secured<Crowd>, Socket, Channel) {
    let (server, client_tls) = sides();
    let mut io = driver(filter(Some(server), false));
    io.inner_mut().come(1);
    assert!(is_entering(&mut io));
    let mut channel = client_tls.connect("127.0.0.1").unwrap();
    let mut plain = Vec::new();
    for _ in 0..8 {
        let mut said = Vec::new();
        channel.take_output(&mut said);
        io.inner_mut().say(1, &said);
        if turn(&mut io, 0) {
            let (socket, peer) = client(io.accept(LISTENER));
            assert_eq!(peer, "127.0.0.1:1001");
            assert!(io.watch(socket, Token(3)));
            hear(&mut io, &mut channel, &mut plain);
            return (io, socket, channel);
        }
        hear(&mut io, &mut channel, &mut plain);
    }
    panic!("the handshake does not end");
}

fn hear(io: &mut Secured<Crowd>, channel: &mut Channel, plain: &mut Vec<u8>) {
    let sent = std::mem::take(&mut io.inner_mut().conns.get_mut(&1).unwrap().sent);
    channel.handle_input(&sent, plain).unwrap();
}

/// Bytes that count as accepted have been sent: a connection that is closed when all were accepted
/// loses nothing.
#[test]
fn nothing_counts_as_taken_that_its_socket_has_not_taken() {
    let (mut io, socket, mut channel) = secured();
    let text: Vec<u8> = (0..200_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let (mut taken, mut heard, mut rounds) = (0, Vec::new(), 0);
    while taken < text.len() {
        io.inner_mut().conns.get_mut(&1).unwrap().room = 1 + (rounds * 7919) % 30_000;
        let Send::Taken(now) = io.send(socket, &text[taken..]) else { panic!() };
        taken += now;
        rounds += 1;
        hear(&mut io, &mut channel, &mut heard);
        assert!(heard.len() >= taken, "it counts {taken} and has sent {}", heard.len());
    }
    assert!(rounds > 5 && heard == text);
}

/// A caller that gives fewer bytes than the last time gets a count of what it gave, and bytes that
/// were encrypted already are not sent twice.
#[test]
fn less_than_what_was_given_before_is_taken_once() {
    let (mut io, socket, mut channel) = secured();
    let text = [b'a'; 30_000];
    io.inner_mut().conns.get_mut(&1).unwrap().room = 10;
    assert_eq!(io.send(socket, &text), Send::Taken(0));
    assert_eq!(io.send(socket, &text[..100]), Send::Taken(0));
    io.inner_mut().conns.get_mut(&1).unwrap().room = usize::MAX;
    assert_eq!(io.send(socket, &text[..100]), Send::Taken(100));
    assert_eq!(io.send(socket, &text[100..]), Send::Taken(29_900));
    assert_eq!(io.send(socket, b"b"), Send::Taken(1));
    let mut heard = Vec::new();
    hear(&mut io, &mut channel, &mut heard);
    assert_eq!(heard, [&text[..], b"b"].concat());
}

#[test]
fn a_connection_goes_on_with_another_worker() {
    let (mut io, socket, mut channel) = secured();
    let released = io.release(socket);
    let conn = io.inner_mut().conns.remove(&1).unwrap();
    let mut other = driver(filter(None, true));
    other.inner_mut().conns.insert(1, conn);
    let socket = other.adopt(released);
    assert!(other.watch(socket, Token(4)));
    assert_eq!(channel.encrypt(b"PING"), 4);
    let mut said = Vec::new();
    channel.take_output(&mut said);
    other.inner_mut().say(1, &said);
    let mut events = Vec::new();
    other.poll(None, &mut events);
    assert!(events.iter().any(|event| matches!(event, Event::Ready { token: Token(4), .. })));
    assert_eq!(received(&mut other, socket), b"PING");
    assert_eq!(other.send(socket, b"PONG"), Send::Taken(4));
    let mut plain = Vec::new();
    hear(&mut other, &mut channel, &mut plain);
    assert_eq!(plain, b"PONG");
}

#[test]
fn who_is_on_no_list_is_closed_and_who_is_has_its_own_socket() {
    let mut closed =
        driver(AcceptFilter { allow: vec!["10.0.0.0/8".parse().unwrap()], ..filter(None, false) });
    closed.inner_mut().come(1);
    assert_eq!(away(closed.accept(LISTENER)), Away::NotAllowed);
    assert_eq!(closed.inner_mut().closed, [1]);
    let mut open =
        driver(AcceptFilter { deny: vec!["10.0.0.0/8".parse().unwrap()], ..filter(None, false) });
    open.inner_mut().come(1);
    assert_eq!(client(open.accept(LISTENER)).0, Socket(1));
}
