//! [`Ringed`] over real sockets and memory, with clients on the other end: each event comes once,
//! and none is missing.

#![allow(clippy::disallowed_methods, reason = "a test waits by the clock")]

use keyway_net::{
    Accept, Address, Door, EpollIo, Event, Io, Listener, ListenerIndex, ListenerOptions, Mailbox,
    Peer, Recv, RingFault, Ringed, Send, Socket, Token,
};
use keyway_net::{ConnectFault, ListenerTemplate};
use keyway_ring::{CAPACITY_MIN, Hello, Mapping, Pipe, Producer, Spin, ask};
use keyway_testkit::TempDir;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CLIENT: Token = Token(7);
const LINK: Token = Token(1 << 62 | 9);
const SOON: Duration = Duration::from_secs(10);

struct Driver {
    io: Ringed,
    path: PathBuf,
    template: ListenerTemplate,
    _mailbox: Mailbox<()>,
    _directory: TempDir,
}

fn ringed(listener: Listener, budget: Duration) -> (Ringed, Mailbox<()>) {
    let mailbox = Mailbox::new(1).unwrap();
    let io = EpollIo::new(vec![listener], &mailbox).unwrap();
    (Ringed::new(io, budget), mailbox)
}

impl Driver {
    fn new(budget: Duration) -> Driver {
        let directory = TempDir::new();
        let path = directory.path().join("shm");
        let options = ListenerOptions {
            address: Address::Shm(path.clone()),
            backlog: 16,
            unix_mode: None,
            unix_owner: (None, None),
            tcp_keepalive: None,
            door: Some(Door { allow_uids: Vec::new(), ring_max: 1 << 20 }),
            only_v6: false,
        };
        let listener = Listener::bind(&options).unwrap();
        let template = listener.template().unwrap();
        let (io, mailbox) = ringed(listener, budget);
        Driver { io, path, template, _mailbox: mailbox, _directory: directory }
    }

    /// Returns a client with rings, and its socket here.
    fn client(&mut self) -> (Pipe, Socket) {
        self.client_by(pipe)
    }

    fn client_by<T: std::marker::Send + 'static>(&mut self, make: fn(&Path) -> T) -> (T, Socket) {
        let path = self.path.clone();
        let asking = std::thread::spawn(move || make(&path));
        wait(&mut self.io, |event| matches!(event, Event::Incoming(_)));
        let Accept::Client { socket, peer } = self.io.accept(ListenerIndex(0)) else {
            panic!("a client waits");
        };
        assert_eq!(peer, Peer::Shm);
        assert!(self.io.watch(socket, CLIENT));
        // It gets rings when its hello is read.
        while !asking.is_finished() {
            assert!(matches!(self.io.recv(socket), Recv::Empty));
            self.poll(Duration::from_millis(1));
        }
        (asking.join().unwrap(), socket)
    }

    fn poll(&mut self, wait: Duration) -> Vec<Event> {
        let mut events = Vec::new();
        self.io.clock();
        self.io.poll(Some(wait), &mut events);
        events
    }
}

fn pipe(path: &Path) -> Pipe {
    let socket = UnixStream::connect(path).unwrap();
    let shared = ask(&socket, &Hello::new(0, 0)).unwrap().unwrap();
    Pipe::new(shared, socket, Spin::never())
}

fn wait(io: &mut impl Io, is_it: impl Fn(&Event) -> bool) -> Event {
    let until = Instant::now() + SOON;
    let mut events = Vec::new();
    while Instant::now() < until {
        io.clock();
        io.poll(Some(Duration::from_millis(100)), &mut events);
        if let Some(event) = events.drain(..).find(|event| is_it(event)) {
            return event;
        }
    }
    panic!("nothing of the kind happened in {SOON:?}");
}

fn is_readable(event: &Event) -> bool {
    matches!(event, Event::Ready { token: CLIENT, readable: true, .. })
}

fn budgets() -> [Duration; 2] {
    [Duration::ZERO, Duration::from_millis(1)]
}

#[test]
fn bytes_are_told_of_once_until_the_ring_was_read_empty() {
    for budget in budgets() {
        let mut driver = Driver::new(budget);
        let (mut client, socket) = driver.client();
        for round in 0..50 {
            let said = [b'a' + round % 26; 1000];
            // The bytes come before the driver sleeps, while it polls, and long after.
            let writing = (round % 2 == 0).then(|| {
                client.write_all(&said).unwrap();
                client.flush().unwrap();
            });
            if writing.is_none() {
                assert!(driver.poll(Duration::from_millis(3)).is_empty(), "nothing was said");
                client.write_all(&said).unwrap();
                client.flush().unwrap();
            }
            wait(&mut driver.io, is_readable);
            assert!(!driver.poll(Duration::ZERO).iter().any(is_readable), "it was told already");
            match driver.io.recv(socket) {
                Recv::Data { bytes, drained, .. } => assert!(bytes == said && drained),
                other => panic!("{other:?}"),
            }
        }
        client.finish();
        wait(&mut driver.io, is_readable);
        assert!(matches!(driver.io.recv(socket), Recv::End));
        driver.io.close(socket);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it hears of the end");
    }
}

#[test]
fn room_is_told_of_when_a_quarter_is_free() {
    let mut driver = Driver::new(Duration::ZERO);
    let (mut client, socket) = driver.client();
    let said = vec![7; CAPACITY_MIN * 2];
    assert_eq!(driver.io.send(socket, &said), Send::Taken(CAPACITY_MIN));
    assert_eq!(driver.io.send(socket, &said), Send::Taken(0));
    let mut got = vec![0; CAPACITY_MIN / 8];
    client.read_exact(&mut got).unwrap();
    let is_writable =
        |event: &Event| matches!(event, Event::Ready { token: CLIENT, writable: true, .. });
    assert!(!driver.poll(Duration::from_millis(3)).iter().any(is_writable), "too little room");
    client.read_exact(&mut got).unwrap();
    wait(&mut driver.io, is_writable);
    assert_eq!(driver.io.send(socket, &said), Send::Taken(CAPACITY_MIN / 4));
    // A client that is gone accepts nothing, and reading reports that.
    drop(client);
    wait(&mut driver.io, |event| matches!(event, Event::Ready { hangup: true, .. }));
    assert!(matches!(driver.io.recv(socket), Recv::End));
    driver.io.close(socket);
}

#[test]
fn a_connection_moves_to_another_driver_with_what_is_in_its_rings() {
    for budget in budgets() {
        let mut driver = Driver::new(budget);
        let (mut other, _mailbox) = ringed(driver.template.bind().unwrap(), budget);
        let (mut client, socket) = driver.client();
        client.write_all(b"before").unwrap();
        client.flush().unwrap();
        driver.io.release(socket);
        assert!(!driver.poll(Duration::from_millis(3)).iter().any(is_readable));
        assert!(matches!(driver.io.recv(socket), Recv::Failed), "it is another's");
        assert!(other.watch(socket, CLIENT));
        assert!(matches!(other.recv(socket), Recv::Data { bytes: b"before", .. }));
        client.write_all(b"after").unwrap();
        client.flush().unwrap();
        wait(&mut other, is_readable);
        assert!(matches!(other.recv(socket), Recv::Data { bytes: b"after", .. }));
        assert_eq!(other.send(socket, b"heard"), Send::Taken(5));
        let mut got = [0; 5];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"heard");
        other.close(socket);
    }
}

#[test]
fn a_link_connects_speaks_and_hears_of_the_end() {
    let mut server = Driver::new(Duration::ZERO);
    let mut proxy = Driver::new(Duration::ZERO);
    proxy.io.connect(&Address::Shm(server.path.clone()), LINK);
    let mut told = Vec::new();
    let mut accepted = None;
    let link = loop {
        for event in server.poll(Duration::from_millis(1)) {
            if let Event::Incoming(listener) = event {
                let Accept::Client { socket, .. } = server.io.accept(listener) else { continue };
                assert!(server.io.watch(socket, CLIENT));
                accepted = Some(socket);
            }
        }
        if let Some(socket) = accepted {
            assert!(matches!(server.io.recv(socket), Recv::Empty));
        }
        told.extend(proxy.poll(Duration::from_millis(1)));
        if let Some(Event::Connected { token, socket }) = told.first() {
            assert_eq!(*token, LINK);
            break *socket;
        }
    };
    let accepted = accepted.unwrap();
    assert_eq!(proxy.io.send(link, b"asked"), Send::Taken(5));
    wait(&mut server.io, is_readable);
    assert!(matches!(server.io.recv(accepted), Recv::Data { bytes: b"asked", .. }));
    assert_eq!(server.io.send(accepted, b"answered"), Send::Taken(8));
    server.io.close(accepted);
    wait(&mut proxy.io, |event| matches!(event, Event::Ready { token: LINK, .. }));
    assert!(matches!(proxy.io.recv(link), Recv::Data { bytes: b"answered", .. }));
    assert!(matches!(proxy.io.recv(link), Recv::End));
    proxy.io.close(link);

    // No server is there; and a connection that was given up is not reported.
    std::fs::remove_file(&server.path).unwrap();
    proxy.io.connect(&Address::Shm(server.path.clone()), LINK);
    let failed = wait(&mut proxy.io, |event| matches!(event, Event::ConnectFailed { .. }));
    assert_eq!(failed, Event::ConnectFailed { token: LINK, fault: ConnectFault::NoSocket });
    let silent = std::os::unix::net::UnixListener::bind(&server.path).unwrap();
    proxy.io.connect(&Address::Shm(server.path.clone()), LINK);
    let _socket = silent.accept().unwrap();
    proxy.poll(Duration::from_millis(5));
    proxy.io.cancel_connect(LINK);
    assert!(proxy.poll(Duration::from_millis(5)).is_empty());
    assert!(RingFault::NoAnswer.text().contains("no answer"));
}

/// A client's end that tells whether it is to wake the driver.
struct Teller {
    producer: Producer<Mapping>,
    socket: UnixStream,
    _back: Mapping,
}

impl Teller {
    fn at(path: &Path) -> Teller {
        let socket = UnixStream::connect(path).unwrap();
        let shared = ask(&socket, &Hello::new(0, 0)).unwrap().unwrap();
        Teller { producer: Producer::new(shared.out), socket, _back: shared.back }
    }

    /// Writes something. Returns whether the ring is not polled, so that a wake-up was sent.
    fn says(&mut self) -> bool {
        self.producer.write(b"x").unwrap();
        let rings = self.producer.publish().is_some();
        if rings {
            self.socket.write_all(b"!").unwrap();
        }
        rings
    }
}

#[test]
fn who_was_written_to_is_looked_at_whatever_came_of_other_waits() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    let mut driver = Driver::new(Duration::from_micros(50));
    let (mut client, socket) = driver.client_by(Teller::at);
    let hear = |driver: &mut Driver| {
        wait(&mut driver.io, is_readable);
        assert!(matches!(driver.io.recv(socket), Recv::Data { bytes: b"x", drained: true, .. }));
    };
    // No bytes follow: they are polled for in vain, and less and less.
    let mut rung = 0;
    for _ in 0..50 {
        driver.poll(Duration::from_millis(1));
        rung += u32::from(client.says());
        hear(&mut driver);
    }
    assert_eq!(rung, 50, "it sleeps by then");
    // Long after, the client asks: the answer is polled for.
    driver.poll(Duration::from_millis(1));
    assert_eq!(driver.io.send(socket, b"y"), Send::Taken(1));
    assert!(!client.says(), "nobody looks for the answer");
    hear(&mut driver);
    // It asks before the driver sleeps: the time begins anew.
    assert_eq!(driver.io.send(socket, b"y"), Send::Taken(1));
    assert!(!client.says(), "nobody looks for the second answer");
    hear(&mut driver);
    // Answers that are always late are polled for less and less, too.
    let mut looked = 0;
    for _ in 0..100 {
        assert_eq!(driver.io.send(socket, b"y"), Send::Taken(1));
        driver.poll(Duration::from_millis(1));
        driver.io.take_looked();
        assert!(client.says(), "it sleeps by then");
        hear(&mut driver);
        assert_eq!(driver.io.send(socket, b"y"), Send::Taken(1));
        driver.poll(Duration::from_micros(1));
        looked += u32::from(driver.io.take_looked() > 0);
        driver.poll(Duration::from_millis(1));
        client.says();
        hear(&mut driver);
    }
    assert!(looked < 20, "{looked} of 100 waits were looked through");
}
