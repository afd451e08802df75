//! The crate as the replica of a server.

use crate::data::{Collected, fill, tell, told_by};
use keyway_base::Limits;
use keyway_rdb::replication::{
    Body, CommandKind, CommandStep, CommandStream, HandshakeEvent, HandshakeStage, HandshakeStep,
    HandshakeWrong, ReplicaHandshake, ReplicaSettings, ReplicationId, Resume, Transfer,
    TransferStep,
};
use keyway_rdb::{Feed, ReadLimits};
use keyway_resp::ParseLimits;
use keyway_testkit::{RedisServer, Value, encode, wait_until, watchdog};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(20);

/// A connection, with the bytes that have arrived and were not consumed.
struct Link {
    socket: TcpStream,
    kept: Vec<u8>,
    /// Number of bytes that are read from the socket at once.
    size: usize,
}

impl Link {
    fn new(server: &RedisServer, size: usize) -> Self {
        let socket = TcpStream::connect(server.address()).expect("a connection");
        socket.set_read_timeout(Some(BOUND)).expect("a bound");
        Self { socket, kept: Vec::new(), size }
    }

    fn more(&mut self) {
        let mut piece = vec![0; self.size];
        let len = self.socket.read(&mut piece).expect("bytes of the server");
        assert!(len > 0, "the server has closed the connection");
        self.kept.extend_from_slice(&piece[..len]);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("a server that reads");
    }

    /// Returns the next event of a handshake.
    fn event(
        &mut self,
        handshake: &mut ReplicaHandshake,
    ) -> Result<HandshakeEvent, HandshakeWrong> {
        loop {
            let mut out = Vec::new();
            handshake.take_output(&mut out);
            self.send(&out);
            let step = handshake.read(&self.kept).map_err(|fault| fault.wrong().clone())?;
            match step {
                HandshakeStep::Event { consumed, event } => {
                    self.kept.drain(..consumed);
                    if event != HandshakeEvent::Alive {
                        return Ok(event);
                    }
                }
                HandshakeStep::More { consumed } => {
                    self.kept.drain(..consumed);
                    let mut out = Vec::new();
                    handshake.take_output(&mut out);
                    self.send(&out);
                    self.more();
                }
            }
        }
    }

    /// Returns everything that a snapshot contains.
    fn snapshot(&mut self, mut transfer: Transfer) -> Collected {
        let (mut feed, mut collected) = (Feed::new(ReadLimits::default()), Collected::default());
        loop {
            match transfer.read(&self.kept) {
                TransferStep::Data { len } => {
                    let fed = feed.feed(&self.kept[..len], &mut |event| {
                        collected.add(event);
                        Ok::<(), ()>(())
                    });
                    assert_eq!(fed, Ok(len));
                    self.kept.drain(..len);
                }
                TransferStep::More { at_least } => {
                    assert!(at_least > self.kept.len());
                    self.more();
                }
                TransferStep::End { consumed } => {
                    self.kept.drain(..consumed);
                    feed.finish().expect("a whole snapshot");
                    return collected;
                }
            }
        }
    }

    /// Reads commands until `is_last` returns true. Returns the words of those that change data.
    fn commands(
        &mut self,
        stream: &mut CommandStream,
        mut is_last: impl FnMut(CommandKind, u64) -> bool,
    ) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            match stream.read(&self.kept).expect("commands") {
                CommandStep::Command { consumed, command } => {
                    let words: Vec<_> = command.words().map(String::from_utf8_lossy).collect();
                    let database = command.database().map_or(-1, |number| number as i64);
                    if !matches!(command.kind(), CommandKind::Ping | CommandKind::GetAck) {
                        found.push(format!("{database}: {}", words.join(" ")));
                    }
                    let (kind, end) = (command.kind(), command.end());
                    self.kept.drain(..consumed);
                    if is_last(kind, end) {
                        return found;
                    }
                }
                CommandStep::More { .. } => self.more(),
            }
        }
    }

    fn acknowledge(&mut self, stream: &CommandStream) {
        let offset = stream.settled().to_string();
        self.send(&encode(&["REPLCONF", "ACK", &offset]));
    }
}

fn stream_at(offset: u64, database: Option<u64>) -> CommandStream {
    CommandStream::new(offset, database, ParseLimits::of(&Limits::default()))
}

/// Returns the offset that the server reports.
fn offset_of(server: &RedisServer) -> u64 {
    let info = tell(&mut server.client(), &[b"info", b"replication"]).text();
    let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
    line.and_then(|offset| offset.trim().parse().ok()).expect("an offset")
}

fn attached(server: &RedisServer) -> bool {
    let info = tell(&mut server.client(), &[b"info", b"replication"]).text();
    info.contains("state=online")
}

/// Tests a full sync, commands after it, a cut, and a partial sync.
fn follows(server: &RedisServer, is_diskless: bool, size: usize) {
    let _watchdog = watchdog(Duration::from_secs(60), "a replica of a server");
    let settings = ReplicaSettings { listening_port: Some(7), ..ReplicaSettings::default() };
    let mut link = Link::new(server, size);
    let mut handshake = ReplicaHandshake::new(settings.clone());
    let Ok(HandshakeEvent::Full { id, offset }) = link.event(&mut handshake) else {
        panic!("no full sync")
    };
    let Ok(HandshakeEvent::Snapshot(transfer)) = link.event(&mut handshake) else {
        panic!("no snapshot")
    };
    assert_eq!(matches!(transfer.body(), Body::Mark(_)), is_diskless);
    let told = told_by(server);
    let collected = link.snapshot(transfer);
    assert_eq!(collected.told, told);
    assert_eq!(collected.aux["repl-id"], id.to_string());
    let mut stream = stream_at(offset, None);
    // After a mark, the server waits for this before it sends commands.
    link.acknowledge(&stream);

    let mut client = server.client();
    for line in ["SELECT 3", "SET a 1", "MULTI", "INCR a", "LPUSH l x", "EXEC", "PUBLISH c m"] {
        tell(&mut client, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    }
    let last = offset_of(server);
    let commands = link.commands(&mut stream, |_, end| end >= last);
    let expected =
        ["3: SELECT 3", "3: SET a 1", "3: MULTI", "3: INCR a", "3: LPUSH l x", "3: EXEC"];
    assert_eq!(commands[..6], expected);
    assert!(commands[6].ends_with("PUBLISH c m"), "{commands:?}");
    assert_eq!(stream.offset(), stream.settled());
    // The server asks for the offset, and believes the answer.
    link.acknowledge(&stream);
    wait_until("the server counts the replica in", BOUND, || attached(server));
    tell(&mut client, &[b"SET", b"b", b"2"]);
    client.send(&encode(&["WAIT", "1", "20000"]));
    link.commands(&mut stream, |kind, _| kind == CommandKind::GetAck);
    link.acknowledge(&stream);
    assert_eq!(client.reply(), Value::Integer(1));
    drop(link);

    tell(&mut client, &[b"SET", b"c", b"3"]);
    let resume = Resume { id, offset: stream.settled() };
    let mut link = Link::new(server, size);
    let mut handshake =
        ReplicaHandshake::new(ReplicaSettings { resume: Some(resume), ..settings.clone() });
    let goes_on = HandshakeEvent::Continue { id: None, offset: resume.offset };
    assert_eq!(link.event(&mut handshake), Ok(goes_on));
    let mut stream = stream_at(resume.offset, stream.database());
    let last = offset_of(server);
    let commands = link.commands(&mut stream, |_, end| end >= last);
    // The server does not select the database again: the replica must know it.
    assert_eq!(commands, ["3: SET c 3"]);
    assert_eq!(stream.offset(), last);

    // Another history, and an offset in the future.
    let other = ReplicationId::of_random([7; 20]);
    for resume in [Resume { id: other, offset: 5 }, Resume { id, offset: last + 1000 }] {
        let mut link = Link::new(server, size);
        let mut handshake =
            ReplicaHandshake::new(ReplicaSettings { resume: Some(resume), ..settings.clone() });
        let event = link.event(&mut handshake);
        assert!(matches!(event, Ok(HandshakeEvent::Full { .. })), "{event:?}");
    }
}

#[test]
fn a_snapshot_with_a_mark_and_the_commands_behind_it_are_followed() {
    let options = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
    let server = RedisServer::start_with(&options);
    fill(&mut server.client());
    follows(&server, true, 4096);
}

#[test]
fn a_snapshot_of_known_length_and_the_commands_behind_it_are_followed() {
    let server = RedisServer::start_with(&["--repl-diskless-sync", "no"]);
    fill(&mut server.client());
    follows(&server, false, 100_000);
}

#[test]
fn a_password_is_given_and_a_wrong_one_is_refused() {
    let server = RedisServer::start_with(&["--repl-diskless-sync", "no"]);
    let mut client = server.client();
    let user: [&[u8]; 8] =
        [b"ACL", b"SETUSER", b"copy", b"on", b">secret", b"+psync", b"+replconf", b"+ping"];
    tell(&mut client, &user);
    tell(&mut client, &[b"CONFIG", b"SET", b"requirepass", b"pass"]);
    let text = |text: &str| Some(text.to_owned());
    for (username, password, is_taken) in [
        (None, text("pass"), true),
        (text("copy"), text("secret"), true),
        (None, text("wrong"), false),
        (None, None, false),
    ] {
        let settings = ReplicaSettings { username, password, ..ReplicaSettings::default() };
        let mut link = Link::new(&server, 1);
        match link.event(&mut ReplicaHandshake::new(settings.clone())) {
            Ok(HandshakeEvent::Full { .. }) => assert!(is_taken, "{settings:?}"),
            Err(HandshakeWrong::Refused(text)) => assert!(!is_taken, "{settings:?}: {text}"),
            other => panic!("{other:?}"),
        }
    }
    let mut handshake = ReplicaHandshake::new(ReplicaSettings {
        password: text("wrong"),
        ..ReplicaSettings::default()
    });
    handshake.read(b"-NOAUTH Authentication required.\r\n").expect("a password is asked for");
    let fault = handshake.read(b"-WRONGPASS no\r\n").expect_err("a refusal");
    assert_eq!((fault.stage(), fault.offset()), (HandshakeStage::Auth, 34));
}
