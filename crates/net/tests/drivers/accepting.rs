//! Clients that wait at listeners.

use super::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::AsRawFd;

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
        let name = "accepting::without_descriptors_who_waits_is_told_of_and_nobody_else";
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
