//! The crate as the primary of a server.

use crate::data::tell;
use keyway_base::{ByteRange, Limits};
use keyway_rdb::replication::{
    Answer, Decision, FullReason, History, MARK_LEN, ReplicaProfile, ReplicationId, Request,
    write_continue, write_full_resync, write_length, write_mark,
};
use keyway_rdb::{Event, Key, Kind, Opened, Part, Writer};
use keyway_resp::{ParseLimits, Parsed, parse_request};
use keyway_testkit::{RedisServer, Value, encode, wait_until, watchdog};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(20);

/// A connected replica.
struct Follower {
    socket: TcpStream,
    kept: Vec<u8>,
    profile: ReplicaProfile,
}

impl Follower {
    fn accept(listener: &TcpListener) -> Self {
        let (socket, _) = listener.accept().expect("a replica");
        socket.set_read_timeout(Some(BOUND)).expect("a bound");
        Self { socket, kept: Vec::new(), profile: ReplicaProfile::default() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("a replica that reads");
    }

    /// Returns the next command.
    fn command(&mut self) -> Vec<Vec<u8>> {
        let limits = ParseLimits::of(&Limits::default());
        let (mut args, mut inline) = (Vec::<ByteRange>::new(), Vec::new());
        loop {
            let parsed = parse_request(&self.kept, &limits, &mut args, &mut inline);
            if let Parsed::Ready { consumed } = parsed.expect("a command") {
                let words = args.iter().map(|range| range.of(&self.kept).to_vec()).collect();
                self.kept.drain(..consumed);
                return words;
            }
            let mut piece = [0; 1000];
            let len = self.socket.read(&mut piece).expect("bytes of the replica");
            assert!(len > 0, "the replica has closed the connection");
            self.kept.extend_from_slice(&piece[..len]);
        }
    }

    /// Answers everything up to a PSYNC.
    fn request(&mut self) -> Request {
        loop {
            let words = self.command();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            match words[0].to_ascii_lowercase().as_slice() {
                b"ping" => self.send(b"+PONG\r\n"),
                b"replconf" => {
                    let answer = self.profile.replconf(&words[1..]);
                    assert_eq!(answer, Ok(Answer::Ok), "{words:?}");
                    self.send(b"+OK\r\n");
                }
                b"psync" => return Request::parse(&words[1..]).expect("a request"),
                other => panic!("{}", String::from_utf8_lossy(other)),
            }
        }
    }

    /// Waits until the replica has acknowledged this offset.
    fn await_acknowledged(&mut self, offset: u64) {
        while self.profile.acknowledged() != Some(offset) {
            let words = self.command();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert_eq!(self.profile.replconf(&words[1..]), Ok(Answer::Acknowledged));
            assert!(self.profile.acknowledged() <= Some(offset), "more than was sent");
        }
    }
}

/// Returns a snapshot of one list, one key that expires and a library.
fn snapshot(follower: &Follower) -> Vec<u8> {
    let mut writer = Writer::new(follower.profile.snapshot_version());
    let opened = Opened { kind: Kind::Text, count: None, earliest_ms: None };
    let list = Event::Key(Key::new(b"list", Opened::new(Kind::List, 2)));
    let key = Key { expires_ms: Some(4_102_444_800_000), ..Key::new(b"text", opened) };
    for event in [
        Event::Aux { name: b"repl-stream-db", value: b"0" },
        Event::Library(crate::data::LIBRARY.as_bytes()),
        Event::Database(0),
        Event::Sizes { keys: 2, expiring: 1 },
        list,
        Event::Part(Part::Element(b"one")),
        Event::Part(Part::Element(b"2")),
        Event::KeyEnd,
        Event::Key(key),
        Event::Part(Part::Text(b"value")),
        Event::KeyEnd,
        Event::End { checked: true },
    ] {
        writer.write(&event).expect("a snapshot");
    }
    let mut file = Vec::new();
    writer.take_output(&mut file);
    file
}

fn leads(has_mark: bool) {
    let _watchdog = watchdog(Duration::from_secs(60), "a server as the replica");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let server = RedisServer::start_with(&["--repl-diskless-load", "swapdb"]);
    let mut client = server.client();
    tell(&mut client, &[b"SET", b"before", b"1"]);
    tell(&mut client, &[b"REPLICAOF", b"127.0.0.1", port.as_bytes()]);

    let id = ReplicationId::of_random([0x5a; 20]);
    let start = 1_000_000_000_000;
    let mut history = History::new(id, start, start);
    let mut follower = Follower::accept(&listener);
    // The server was a primary with a history of its own.
    let decision = history.decide(&follower.request());
    assert_eq!(decision, Decision::Full(FullReason::OtherHistory));
    let profile = &follower.profile;
    assert!(profile.takes_mark() && profile.takes_new_id());
    assert_eq!(profile.listening_port(), Some(server.port()));
    let file = snapshot(&follower);
    let mut out = Vec::new();
    write_full_resync(&id, history.end(), &mut out);
    // These bytes keep the connection alive while the snapshot is created.
    out.extend_from_slice(b"\n\n");
    if has_mark {
        let mark = [b'm'; MARK_LEN];
        write_mark(&mark, &mut out);
        out.extend_from_slice(&file);
        out.extend_from_slice(&mark);
    } else {
        write_length(file.len() as u64, &mut out);
        out.extend_from_slice(&file);
    }
    follower.send(&out);
    follower.await_acknowledged(start);
    let commands = [encode(&["SELECT", "0"]), encode(&["RPUSH", "list", "three"])].concat();
    follower.send(&commands);
    follower.send(&encode(&["REPLCONF", "GETACK", "*"]));
    // It acknowledges everything before the question.
    let end = start + commands.len() as u64;
    follower.await_acknowledged(end);
    let list = tell(&mut client, &[b"LRANGE", b"list", b"0", b"-1"]);
    let texts: Vec<String> = list.array().iter().map(Value::text).collect();
    assert_eq!(texts, ["one", "2", "three"]);
    assert_eq!(tell(&mut client, &[b"GET", b"text"]), Value::bulk("value"));
    assert_eq!(tell(&mut client, &[b"GET", b"before"]), Value::Nil);
    assert_eq!(tell(&mut client, &[b"PEXPIRETIME", b"text"]).integer(), 4_102_444_800_000);
    let libraries = tell(&mut client, &[b"FUNCTION", b"LIST"]);
    assert_eq!(libraries.array().len(), 1);
    drop(follower);

    // It returns for the rest, with another id by now.
    let asked = end + encode(&["REPLCONF", "GETACK", "*"]).len() as u64;
    let more = encode(&["SET", "later", "1"]);
    let new_id = ReplicationId::of_random([0xa5; 20]);
    history = History::new(new_id, start, asked + more.len() as u64).with_second(id, asked);
    let mut follower = Follower::accept(&listener);
    let request = follower.request();
    assert_eq!(request.resume(), Some((id, asked)));
    assert_eq!(history.decide(&request), Decision::Continue { offset: asked });
    let mut out = Vec::new();
    write_continue(&history, &follower.profile, &mut out);
    out.extend_from_slice(&more);
    follower.send(&out);
    follower.await_acknowledged(history.end());
    let has_come = || tell(&mut server.client(), &[b"GET", b"later"]) == Value::bulk("1");
    wait_until("the rest has come", BOUND, has_come);
    let info = tell(&mut client, &[b"INFO", b"replication"]).text();
    assert!(info.contains(&format!("master_replid:{new_id}")), "{info}");
}

#[test]
fn a_server_takes_a_snapshot_with_a_mark_and_comes_back_for_the_rest() {
    leads(true);
}

#[test]
fn a_server_takes_a_snapshot_of_known_length_and_comes_back_for_the_rest() {
    leads(false);
}
