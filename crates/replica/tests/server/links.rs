//! What ends a link or keeps it from being made, in words; and stopping.

use crate::replayer::Replayer;
use crate::servers::{BOUND, assert_same, await_reason, await_state, settings, words};
use keyway_rdb::Event;
use keyway_replica::{
    Cause, Follower, FollowerSettings, Origin, Position, Remains, Stage, State, Target,
    TargetError, Unit,
};
use keyway_testkit::certificates::{Authority, CertificateFiles};
use keyway_testkit::{
    RedisServer, TempDir, Value, encode_words, free_address, wait_until, watchdog,
};
use keyway_tls::{ClientSettings, ClientTls, MinVersion, Trust};
use keyway_topology::Endpoint;
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DISKLESS: [&str; 4] = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];

/// A target that takes everything, or refuses at some point.
#[derive(Default)]
struct Sink {
    refuse_begin: Option<TargetError>,
    refuse_apply: Arc<Mutex<Option<TargetError>>>,
    commands: Arc<Mutex<Vec<String>>>,
}

impl Target for Sink {
    fn begin_snapshot(&mut self, _: &Origin) -> Result<(), TargetError> {
        self.refuse_begin.take().map_or(Ok(()), Err)
    }

    fn take(&mut self, _: Event<'_>) -> Result<(), TargetError> {
        Ok(())
    }

    fn end_snapshot(&mut self, _: Position) -> Result<(), TargetError> {
        Ok(())
    }

    fn abort_snapshot(&mut self) -> Remains {
        Remains::Nothing
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let mut commands = unit.commands().peekable();
        if commands.peek().is_some()
            && let Some(error) = self.refuse_apply.lock().take()
        {
            return Err(error);
        }
        for command in commands {
            let words: Vec<_> = command.words().map(String::from_utf8_lossy).collect();
            self.commands.lock().push(words.join(" "));
        }
        Ok(())
    }
}

fn sink(settings: FollowerSettings) -> Follower {
    Follower::start(settings, Box::new(Sink::default())).expect("a thread")
}

#[test]
fn a_wrong_password_is_told_and_the_right_one_is_taken() {
    let _watchdog = watchdog(Duration::from_secs(60), "passwords");
    let server = RedisServer::start_with(&DISKLESS);
    let mut client = server.client();
    words(&mut client, "ACL SETUSER copy on >secret +psync +replconf +ping");
    words(&mut client, "CONFIG SET requirepass pass");
    let text = |text: &str| Some(text.to_owned());
    let with =
        |username, password| FollowerSettings { username, password, ..settings(server.address()) };
    for right in [with(None, text("pass")), with(text("copy"), text("secret"))] {
        await_state(&sink(right), State::Online);
    }
    let told = format!("primary {}: replication handshake, byte ", server.address());
    for (wrong, words) in [
        (with(None, text("wrong")), "the primary refuses AUTH: WRONGPASS"),
        (with(text("copy"), text("wrong")), "the primary refuses AUTH: WRONGPASS"),
        (with(None, None), "the primary refuses PING: NOAUTH"),
    ] {
        assert!(!format!("{wrong:?}").contains("wrong"), "the password is secret");
        let follower = sink(wrong);
        let status = await_reason(&follower, words);
        let reason = status.reason.expect("a reason");
        assert!(reason.to_string().starts_with(&told), "{reason}");
        assert!(matches!(reason.cause(), Cause::Handshake(_)), "{reason:?}");
    }
    // The follower goes on trying, and is let in once it may.
    let follower = sink(with(None, text("later")));
    await_reason(&follower, "WRONGPASS");
    words(&mut client, "CONFIG SET requirepass later");
    await_state(&follower, State::Online);
}

#[test]
fn a_server_that_is_no_redis_is_told_as_such() {
    let _watchdog = watchdog(Duration::from_secs(60), "no redis");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let _ = client.read(&mut [0; 100]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\x1b[2J\r\n\r\n");
        }
    });
    let status = await_reason(&sink(settings(address)), "HTTP/1.1 400 Bad Request");
    let reason = status.reason.expect("a reason").to_string();
    assert!(!reason.contains('\x1b'), "{reason:?}");
    let status = await_reason(&sink(settings(free_address())), "nobody listens there");
    assert_eq!(status.reason.map(|reason| reason.stage()), Some(Stage::Connect));
    let nowhere = Endpoint::unix("/nonexistent/keyway.sock").expect("a path");
    await_reason(&sink(FollowerSettings::new(nowhere)), "nobody listens there");
    let shm = "shm:///tmp/keyway.shm".parse().expect("an endpoint");
    await_reason(&sink(FollowerSettings::new(shm)), "replication needs a TCP address");
}

#[test]
fn a_server_that_cannot_serve_replicas_now_is_asked_again() {
    let _watchdog = watchdog(Duration::from_secs(60), "servers that are not ready");
    let mut loads = RedisServer::start_with(
        &[
            &DISKLESS[..],
            &["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"],
        ]
        .concat(),
    );
    words(&mut loads.client(), "DEBUG POPULATE 400 key 20");
    words(&mut loads.client(), "SAVE");
    let follower = sink(settings(loads.address()));
    await_state(&follower, State::Online);
    loads.restart();
    await_reason(&follower, "the primary cannot serve replicas now, try again later: LOADING");
    await_state(&follower, State::Online);
    assert_eq!(follower.status().full_resyncs, 2);

    let orphan = RedisServer::start_with(&DISKLESS);
    let mut client = orphan.client();
    words(&mut client, &format!("REPLICAOF 127.0.0.1 {}", free_address().port()));
    let follower = sink(settings(orphan.address()));
    await_reason(&follower, "try again later: NOMASTERLINK");
    words(&mut client, "CONFIG SET replica-serve-stale-data no");
    await_reason(&follower, "try again later: MASTERDOWN");
    words(&mut client, "REPLICAOF NO ONE");
    await_state(&follower, State::Online);
}

#[test]
fn a_primary_that_falls_silent_is_left() {
    let _watchdog = watchdog(Duration::from_secs(60), "silence");
    let server =
        RedisServer::start_with(&[&DISKLESS[..], &["--repl-ping-replica-period", "1"]].concat());
    let timeout = Duration::from_millis(1500);
    let follower = sink(FollowerSettings { timeout, ..settings(server.address()) });
    await_state(&follower, State::Online);
    // Its PINGs are enough, and there is nothing else.
    let offset = follower.status().offset;
    wait_until("three PINGs", BOUND, || follower.status().offset >= offset + 3 * 14);
    assert_eq!(follower.status().failures, 0);
    assert!(follower.status().since_last_io < Some(timeout));
    server.process().pause();
    let status = await_reason(&follower, "the primary sent nothing for 1.5 s");
    assert!(status.down_for.is_some());
    server.process().resume();
    await_state(&follower, State::Online);
    assert_eq!(follower.status().full_resyncs, 1);
}

#[test]
fn the_primary_knows_how_far_the_replica_is() {
    let _watchdog = watchdog(Duration::from_secs(60), "acknowledgements");
    let server = RedisServer::start_with(&DISKLESS);
    let follower = sink(FollowerSettings {
        listening_port: Some(7777),
        announced_address: Some("10.0.0.9".to_owned()),
        ..settings(server.address())
    });
    await_state(&follower, State::Online);
    let mut client = server.client();
    let listed = |client: &mut keyway_testkit::Client, text: &str| {
        words(client, "INFO replication").text().contains(text)
    };
    let line = "slave0:ip=10.0.0.9,port=7777,state=online";
    wait_until("the replica is listed", BOUND, || listed(&mut client, line));
    words(&mut client, "SET a 1");
    client.send(&encode_words("WAIT 1 20000"));
    assert_eq!(client.reply(), Value::Integer(1));
    // Also where nobody asks.
    words(&mut client, "SET a 2");
    wait_until("an acknowledgement", BOUND, || {
        let offset = crate::servers::offset(&mut client);
        listed(&mut client, &format!("offset={offset},lag="))
    });
}

#[test]
fn a_target_that_refuses_is_given_a_snapshot_or_stops_the_follower() {
    let _watchdog = watchdog(Duration::from_secs(60), "a target that refuses");
    let server = RedisServer::start_with(&DISKLESS);
    let sink = Sink { refuse_begin: Some(TargetError::resync("no room\n")), ..Sink::default() };
    let (refuse, commands) = (Arc::clone(&sink.refuse_apply), Arc::clone(&sink.commands));
    let follower = Follower::start(settings(server.address()), Box::new(sink)).expect("a thread");
    await_state(&follower, State::Online);
    let reason = follower.status().reason.expect("a reason").to_string();
    assert!(reason.ends_with("the replica cannot take the data: no room\\n"), "{reason}");
    let mut client = server.client();
    *refuse.lock() = Some(TargetError::resync("not this one"));
    words(&mut client, "SET a 1");
    await_reason(&follower, "not this one");
    wait_until("a second snapshot", BOUND, || follower.status().full_resyncs == 2);
    words(&mut client, "SET b 1");
    wait_until("the next command", BOUND, || *commands.lock() == ["SET b 1"]);
    let before = follower.status().offset;
    *refuse.lock() = Some(TargetError::stop("this ends it"));
    words(&mut client, "SET c 1");
    let status = await_state(&follower, State::Stopped);
    assert!(status.reason.is_some_and(|reason| reason.to_string().ends_with("this ends it")));
    // In front of the command that was refused; a SELECT or a PING may be between.
    assert!(follower.stop().is_some_and(|position| position.offset >= before));
    assert_eq!(*commands.lock(), ["SET b 1"]);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long stopping takes is measured")]
fn a_follower_stops_at_once_whatever_it_waits_for() {
    let _watchdog = watchdog(Duration::from_secs(60), "stopping");
    let stops = |follower: Follower, what: &str| {
        let start = Instant::now();
        follower.stop();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "{what}: {took:?}");
    };
    // A pause.
    let minute = Duration::from_secs(60);
    let patient =
        FollowerSettings { pause_min: minute, pause_max: minute, ..settings(free_address()) };
    let follower = sink(patient);
    await_state(&follower, State::Connect);
    stops(follower, "a pause");
    // A server that says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = listener.local_addr().expect("an address");
    let follower = sink(settings(silent));
    await_state(&follower, State::Handshake);
    stops(follower, "a handshake");
    // A snapshot that stalls.
    let (mut held, _) = listener.accept().expect("a connection");
    drop(held);
    let follower = sink(settings(silent));
    (held, _) = listener.accept().expect("a connection");
    let full = format!("+FULLRESYNC {} 0\r\n$1000\r\nREDIS0010", "a".repeat(40));
    held.write_all(format!("+PONG\r\n+OK\r\n+OK\r\n{full}").as_bytes()).expect("a reader");
    wait_until("a transfer", BOUND, || {
        follower.status().state == State::Transfer { received: 9, len: Some(1000) }
    });
    stops(follower, "a transfer");
    // A connection that nobody accepts: the backlog is full.
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .expect("a socket");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    rustix::net::bind(&socket, &any).expect("a free port");
    rustix::net::listen(&socket, 0).expect("a listener");
    let full = TcpListener::from(socket);
    let address = full.local_addr().expect("an address");
    let queued: Vec<Follower> = (0..4).map(|_| sink(settings(address))).collect();
    wait_until("one that connects", BOUND, || {
        queued.iter().any(|follower| follower.status().state == State::Connecting)
    });
    queued.into_iter().for_each(|follower| stops(follower, "connecting"));
    // A name, wherever the resolver is.
    let nowhere = Endpoint::tcp("nowhere.invalid", 6379).expect("a name");
    stops(sink(FollowerSettings::new(nowhere)), "a look-up");
    // A primary that is online and one under load.
    let server = RedisServer::start_with(&DISKLESS);
    let follower = sink(settings(server.address()));
    await_state(&follower, State::Online);
    stops(follower, "the stream");
    let follower = sink(settings(server.address()));
    await_state(&follower, State::Online);
    let writer = crate::writer::Writer::start(server.address(), 1, || {});
    wait_until("some writes", BOUND, || writer.played() > 5);
    stops(follower, "the stream under writes");
}

#[test]
fn a_primary_is_followed_by_tls_and_through_a_unix_socket() {
    let _watchdog = watchdog(Duration::from_secs(60), "TLS");
    let files = CertificateFiles::default();
    let path = |name: &str| files.path(name).display().to_string();
    let (ca, certificate, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let directory = TempDir::new();
    let unix = directory.path().join("redis.sock").display().to_string();
    let secured = free_address();
    let tls_port = secured.port().to_string();
    let server = RedisServer::start_with(
        &[
            &DISKLESS[..],
            &["--tls-port", &tls_port, "--tls-cert-file", &certificate, "--tls-key-file", &key],
            &["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no", "--unixsocket", &unix],
        ]
        .concat(),
    );
    crate::writer::play(server.address(), 8);
    let load = |ca: &str| {
        let settings = ClientSettings {
            trust: Trust::Authorities(ca.into()),
            server_name: None,
            identity: None,
            min_version: MinVersion::default(),
        };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
        ClientTls::load(&settings, &read).expect("files").tls
    };
    let by_tls = |tls: ClientTls| FollowerSettings { tls: Some(tls), ..settings(secured) };
    let endpoint = Endpoint::unix(&unix).expect("a path");
    for settings in [by_tls(load(&ca)), FollowerSettings::new(endpoint)] {
        let to = RedisServer::start();
        let replayer = Replayer::new(&to);
        let seen = replayer.seen();
        let follower = Follower::start(settings, Box::new(replayer)).expect("a thread");
        await_state(&follower, State::Online);
        (100..110).for_each(|seed| crate::writer::play(server.address(), seed));
        // Longer than any record.
        let long = "x".repeat(300_000);
        words(&mut server.client(), &format!("SET long {long}"));
        assert_same(&follower, &seen, &mut server.client(), &mut to.client());
    }
    files.write("other.pem", &Authority::new("other").certificate);
    let status = await_reason(
        &sink(by_tls(load(&path("other.pem")))),
        "no TLS: its certificate is not issued",
    );
    assert!(status.reason.is_some_and(|reason| reason.address() == secured.to_string()));
    // A server of no TLS waits for the end of a line.
    let connect_timeout = Duration::from_millis(300);
    let tls = Some(load(&ca));
    let plain = FollowerSettings { tls, connect_timeout, ..settings(server.address()) };
    await_reason(&sink(plain), "the handshake was not over after 0.3 s");
}
