//! redis-server as a replica of a feed.

#![allow(clippy::disallowed_methods, reason = "servers come and go at a pace of their own")]

mod introduced;

use introduced::introduced;
use keyway_rdb::replication::ReplicationId;
use keyway_rdb::{Crc64, Version, pieces};
use keyway_replica::feed::{
    AttachError, Beginning, Feed, FeedSettings, Parting, Snapshot, SnapshotStep, Source,
    SourceError, Stage, Stream, StreamLost,
};
use keyway_testkit::{RedisServer, Signal, Value, encode, wait_until, watchdog};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
/// Offset at which the stream begins.
const START: u64 = 5000;
/// Bytes of the stream that are kept.
const KEPT: usize = 1 << 20;

/// A history of commands without a store.
#[derive(Default)]
struct History {
    stream: Mutex<Commands>,
    snapshots: AtomicUsize,
    /// Another snapshot is being made.
    is_busy: AtomicBool,
    partings: Mutex<Vec<Parting>>,
    acknowledgements: AtomicUsize,
    /// Held while no parting can be told.
    gate: Mutex<()>,
}

#[derive(Default)]
struct Commands {
    /// Bytes that were dropped.
    dropped: u64,
    bytes: VecDeque<u8>,
}

impl Commands {
    fn end(&self) -> u64 {
        START + self.dropped + self.bytes.len() as u64
    }
}

struct Reading {
    history: Arc<History>,
    offset: u64,
}

impl Stream for Reading {
    fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, StreamLost> {
        let commands = self.history.stream.lock();
        let at = self.offset.checked_sub(START + commands.dropped).ok_or(StreamLost)? as usize;
        let new: Vec<u8> = commands.bytes.iter().skip(at).copied().collect();
        self.offset += new.len() as u64;
        out.extend_from_slice(&new);
        Ok(new.len())
    }

    fn skip(&mut self) -> Result<(), StreamLost> {
        self.offset = self.history.stream.lock().end();
        Ok(())
    }

    fn position(&self) -> Result<u64, StreamLost> {
        Ok(self.offset)
    }
}

/// A snapshot that comes in two pieces, with a wait between.
struct Pieces(VecDeque<Option<Vec<u8>>>);

impl Snapshot for Pieces {
    fn read(&mut self, out: &mut Vec<u8>) -> Result<SnapshotStep, String> {
        match self.0.pop_front() {
            None => Ok(SnapshotStep::End),
            Some(None) => Ok(SnapshotStep::Wait),
            Some(Some(bytes)) => {
                out.extend_from_slice(&bytes);
                Ok(SnapshotStep::More)
            }
        }
    }
}

/// A source has to hand out what outlives the call.
struct Shared(Arc<History>);

impl Source for Shared {
    fn begin(&self, version: Version) -> Result<Beginning, SourceError> {
        if self.0.is_busy.load(Ordering::Relaxed) {
            return Err(SourceError::Busy);
        }
        self.0.snapshots.fetch_add(1, Ordering::Relaxed);
        let mut head = Vec::new();
        pieces::header(version, &mut head);
        // SELECTDB 0, and a string.
        head.extend_from_slice(b"\xfe\x00\x00\x05first\x04here");
        let mut crc = Crc64::default();
        crc.update(&head);
        let mut tail = Vec::new();
        pieces::end(&mut crc, true, &mut tail);
        let pieces = [Some(head), None, Some(tail)];
        let offset = self.0.stream.lock().end();
        Ok(Beginning {
            snapshot: Box::new(Pieces(pieces.into())),
            stream: Box::new(Reading { history: Arc::clone(&self.0), offset }),
        })
    }

    fn resume(&self, offset: u64) -> Option<Box<dyn Stream>> {
        let commands = self.0.stream.lock();
        let kept = START + commands.dropped..=commands.end();
        let reading = Reading { history: Arc::clone(&self.0), offset };
        kept.contains(&offset).then_some(Box::new(reading))
    }

    fn anchor(&self) -> Option<Box<dyn Stream>> {
        let end = self.0.stream.lock().end();
        self.resume(end)
    }

    fn tell(&self, words: &[&[u8]]) {
        let mut commands = self.0.stream.lock();
        commands.bytes.extend(encode(words));
        let excess = commands.bytes.len().saturating_sub(KEPT);
        commands.bytes.drain(..excess);
        commands.dropped += excess as u64;
    }

    fn on_acknowledged(&self) {
        self.0.acknowledgements.fetch_add(1, Ordering::Relaxed);
    }

    fn on_parting(&self, address: &str, parting: &Parting) {
        assert_eq!(address, "127.0.0.1");
        drop(self.0.gate.lock());
        self.0.partings.lock().push(parting.clone());
    }
}

/// A primary: what stands in front of a feed, with clients that only replicate.
struct Primary {
    history: Arc<History>,
    feed: Arc<Feed>,
    address: SocketAddr,
    /// Connections of replicas, to cut them.
    connections: Arc<Mutex<Vec<TcpStream>>>,
    refused: Arc<Mutex<Vec<AttachError>>>,
}

impl Primary {
    fn start(settings: FeedSettings) -> Primary {
        let history = Arc::new(History::default());
        let id = ReplicationId::of_random([7; 20]);
        let source = Arc::new(Shared(Arc::clone(&history)));
        let feed = Arc::new(Feed::start(source, id, settings).expect("a feed"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let refused = Arc::new(Mutex::new(Vec::new()));
        let (fed, kept, noted) =
            (Arc::downgrade(&feed), Arc::clone(&connections), Arc::clone(&refused));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                kept.lock().push(stream.try_clone().expect("a descriptor"));
                let Some(candidate) = introduced(stream) else { continue };
                let Some(feed) = fed.upgrade() else { return };
                if let Err(error) = feed.attach(candidate) {
                    noted.lock().push(error);
                }
            }
        });
        Primary { history, feed, address, connections, refused }
    }

    fn replica(&self) -> RedisServer {
        let port = self.address.port().to_string();
        RedisServer::start_with(&["--replicaof", "127.0.0.1", &port])
    }

    fn tell(&self, words: &[&[u8]]) {
        Shared(Arc::clone(&self.history)).tell(words);
    }

    /// Breaks all connections.
    fn cut(&self) {
        for connection in self.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    fn snapshots(&self) -> usize {
        self.history.snapshots.load(Ordering::Relaxed)
    }

    fn is_online(&self) -> bool {
        let replicas = self.feed.replicas();
        !replicas.is_empty() && replicas.iter().all(|replica| replica.stage == Stage::Online)
    }
}

fn get(server: &RedisServer, key: &str) -> Option<String> {
    match server.client().command(&["GET", key]) {
        Value::Bulk(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}

#[test]
fn a_redis_server_follows_a_feed_and_goes_on_after_cuts() {
    let _watch = watchdog(Duration::from_secs(120), "a replica of a feed");
    let primary = Primary::start(FeedSettings {
        ping_period: Duration::from_millis(300),
        ..FeedSettings::default()
    });
    primary.history.is_busy.store(true, Ordering::Relaxed);
    let server = primary.replica();
    wait_until("a replica that waits", SOON, || {
        primary.feed.replicas().first().is_some_and(|replica| replica.stage == Stage::Waiting)
    });
    primary.history.is_busy.store(false, Ordering::Relaxed);
    wait_until("the snapshot", SOON, || get(&server, "first").as_deref() == Some("here"));
    let end = primary.history.stream.lock().end();
    wait_until("the snapshot is acknowledged", SOON, || primary.feed.acknowledged(end) == 1);
    primary.tell(&[b"SELECT", b"0"]);
    for round in 0..5 {
        for nth in 0..200 {
            let key = format!("key:{round}:{nth}");
            primary.tell(&[b"SET", key.as_bytes(), &vec![b'v'; nth * 10]]);
        }
        let last = format!("key:{round}:199");
        wait_until("the last key", SOON, || get(&server, &last).is_some());
        primary.feed.ask_for_offsets();
        let end = primary.history.stream.lock().end();
        wait_until("an acknowledgement", SOON, || primary.feed.acknowledged(end) == 1);
        assert!(primary.is_online());
        assert_eq!(primary.feed.replicas()[0].port, Some(server.port()));
        primary.cut();
        wait_until("a parting", SOON, || primary.history.partings.lock().len() > round);
    }
    assert_eq!(primary.snapshots(), 1, "every cut is followed by a partial resync");
    let partings = primary.history.partings.lock().clone();
    assert!(partings.iter().all(|parting| *parting == Parting::Closed), "{partings:?}");
    assert!(primary.history.acknowledgements.load(Ordering::Relaxed) >= 5);
    let sent = primary.history.stream.lock().bytes.clone();
    let sent: Vec<u8> = sent.into();
    assert!(sent.windows(4).any(|four| four == b"PING"));
    assert_eq!(server.client().command(&["DBSIZE"]), Value::Integer(1001));
}

#[test]
fn a_replica_that_is_silent_is_left_and_gets_a_snapshot_when_too_much_is_gone() {
    let _watch = watchdog(Duration::from_secs(120), "a silent replica");
    let settings = FeedSettings {
        timeout: Duration::from_millis(1500),
        replicas_max: 1,
        ..FeedSettings::default()
    };
    let primary = Primary::start(settings);
    let server = primary.replica();
    wait_until("an online replica", SOON, || primary.is_online());
    let other = primary.replica();
    wait_until("a refusal", SOON, || {
        let refused = primary.refused.lock();
        refused.iter().any(|error| matches!(error, AttachError::Full { replicas_max: 1 }))
    });
    drop(other);
    server.process().signal(Signal::STOP);
    wait_until("a parting", SOON, || primary.feed.replicas().is_empty());
    assert_eq!(primary.history.partings.lock()[..], [Parting::Silent]);
    primary.tell(&[b"SELECT", b"0"]);
    for _ in 0..3 * KEPT / 1000 {
        primary.tell(&[b"SET", b"much", &[b'v'; 1000]]);
    }
    // The copies of its connection are closed as well.
    primary.cut();
    server.process().signal(Signal::CONT);
    wait_until("another snapshot", SOON, || primary.snapshots() == 2 && primary.is_online());
    primary.tell(&[b"SET", b"last", b"here"]);
    wait_until("the last key", SOON, || get(&server, "last").is_some());
}

#[test]
fn a_feed_that_ends_leaves_no_thread_and_takes_nobody_in() {
    let _watch = watchdog(Duration::from_secs(60), "the end of a feed");
    let primary = Primary::start(FeedSettings::default());
    let servers: Vec<_> = (0..3).map(|_| primary.replica()).collect();
    wait_until("three replicas", SOON, || {
        primary.feed.replicas().len() == servers.len() && primary.is_online()
    });
    let Primary { history, feed, .. } = primary;
    feed.end();
    drop(feed);
    let partings = history.partings.lock().clone();
    assert_eq!(partings, vec![Parting::Stopped; 3]);
    // The threads of the feed had the source.
    assert_eq!(Arc::strong_count(&history), 1);
}

/// A worker may hold a feed for a moment, and let it go last.
#[test]
fn whoever_lets_a_feed_go_last_does_not_wait_for_its_threads() {
    let _watch = watchdog(Duration::from_secs(60), "a feed that is let go");
    let primary = Primary::start(FeedSettings::default());
    let _server = primary.replica();
    wait_until("a replica", SOON, || primary.is_online());
    let Primary { history, feed, .. } = primary;
    let gate = history.gate.lock();
    let feed = Arc::into_inner(feed).expect("nobody else has the feed");
    drop(feed);
    assert_eq!(history.partings.lock().len(), 0);
    drop(gate);
    wait_until("its threads have ended", SOON, || Arc::strong_count(&history) == 1);
    assert_eq!(history.partings.lock()[..], [Parting::Stopped]);
}
