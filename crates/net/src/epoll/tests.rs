use super::*;
use crate::ListenerOptions;
use rustix::net::sockopt;
use std::net::TcpStream;

/// Returns a driver with one listener, and the listener's address.
fn listening(tcp_keepalive: Option<Duration>) -> (EpollIo, SocketAddr) {
    let options = ListenerOptions {
        address: Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        backlog: 16,
        unix_mode: None,
        unix_owner: (None, None),
        tcp_keepalive,
        door: None,
        only_v6: false,
    };
    let listener = Listener::bind(&options).expect("a free port");
    let addr = listener.local_addr().expect("TCP has an address");
    let mailbox = Mailbox::<()>::new(1).expect("a descriptor");
    (EpollIo::new(vec![listener], &mailbox).expect("a descriptor"), addr)
}

fn wait_for_events(io: &mut EpollIo) -> Vec<Event> {
    let mut events = Vec::new();
    io.poll(Some(Duration::from_secs(10)), &mut events);
    assert!(!events.is_empty(), "nothing happened in 10 s");
    events
}

#[test]
fn a_poll_slept_only_if_it_had_to_wait() {
    let (mut io, addr) = listening(None);
    let mut events = Vec::new();
    assert!(io.poll(Some(Duration::from_millis(1)), &mut events), "nothing happened");
    assert!(!io.poll(Some(Duration::ZERO), &mut events), "it was not to wait");
    let _client = TcpStream::connect(addr).expect("it listens");
    // Now and then a busy machine takes long for a call that need not wait.
    let slept = (0..100).filter(|_| io.poll(None, &mut events)).count();
    assert!(slept < 50, "slept {slept} times in 100, with a client waiting");
}

#[test]
fn a_connection_given_up_leaves_nothing_behind() {
    let (mut io, addr) = listening(None);
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: addr.port() };
    let name = Address::Tcp { host: "localhost".to_owned(), port: addr.port() };
    for (given_up, address) in [(Token(1), address.clone()), (Token(2), name)] {
        io.connect(&address, given_up);
        io.cancel_connect(given_up);
        assert!(io.connecting.iter().all(Option::is_none), "its socket is closed");
        assert!(io.resolving.is_empty());
    }
    io.connect(&address, Token(3));
    let mut told = Vec::new();
    while !told.iter().any(|event| matches!(event, Event::Connected { .. })) {
        told.extend(wait_for_events(&mut io));
    }
    let about_others = |event: &Event| match event {
        Event::Connected { token, .. } | Event::ConnectFailed { token, .. } => token.0 != 3,
        _ => false,
    };
    assert!(!told.iter().any(about_others), "{told:?}");
}

#[test]
fn accepted_connections_are_kept_alive_as_asked() {
    let cases = [
        (Some(300_000), Some((300, 100))),
        (Some(60_000), Some((60, 20))),
        (Some(1_500), Some((2, 1))),
        (None, None),
    ];
    for (silence, expected) in cases {
        let (mut io, addr) = listening(silence.map(Duration::from_millis));
        let _client = TcpStream::connect(addr).expect("it listens");
        wait_for_events(&mut io);
        let Accept::Client { socket, .. } = io.accept(ListenerIndex(0)) else {
            panic!("a client waits");
        };
        let fd = borrow(&socket);
        assert!(sockopt::tcp_nodelay(fd).unwrap());
        assert_eq!(sockopt::tcp_congestion(fd).unwrap(), "reno", "it is on loopback");
        let asked = sockopt::socket_keepalive(fd).unwrap().then(|| {
            let idle = sockopt::tcp_keepidle(fd).unwrap().as_secs();
            assert_eq!(sockopt::tcp_keepcnt(fd).unwrap(), 3);
            (idle, sockopt::tcp_keepintvl(fd).unwrap().as_secs())
        });
        assert_eq!(asked, expected, "{silence:?}");
        io.close(socket);
    }
}
