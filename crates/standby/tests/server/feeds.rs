//! A redis-server comes to the data of a store that feeds it.

use crate::introduced::introduced;
use crate::place::{BOUND, Place, clock, info};
use keyway_rdb::replication::ReplicationId;
use keyway_replica::feed::{Feed, FeedSettings, Parting};
use keyway_standby::{SourceParts, StoreSource};
use keyway_store::EffectLimits;
use keyway_testkit::{Random, RedisServer, wait_until, watchdog};
use parking_lot::Mutex;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A store that feeds replicas.
struct Primary {
    place: Place,
    feed: Arc<Feed>,
    address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    partings: Arc<Mutex<Vec<Parting>>>,
}

impl Primary {
    fn start(limits: EffectLimits) -> Self {
        let place = Place::new();
        let partings = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&partings);
        let source = StoreSource::new(SourceParts {
            store: Arc::clone(&place.store),
            libraries: Box::new(Vec::new),
            clock,
            limits,
            snapshot_buffer: 64 << 20,
            twin: None,
            acknowledged: Box::new(|| ()),
            parted: Box::new(move |_, parting| noted.lock().push(parting.clone())),
        });
        let id = ReplicationId::of_random([9; 20]);
        let settings = FeedSettings::default();
        let feed = Arc::new(Feed::start(Arc::new(source), id, settings).expect("a feed"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (fed, kept) = (Arc::downgrade(&feed), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                kept.lock().push(stream.try_clone().expect("a descriptor"));
                let Some(candidate) = introduced(stream) else { continue };
                let Some(feed) = fed.upgrade() else { return };
                feed.attach(candidate).expect("a place for a replica");
            }
        });
        Self { place, feed, address, connections, partings }
    }

    fn replica(&self) -> RedisServer {
        RedisServer::start_with(&["--replicaof", "127.0.0.1", &self.address.port().to_string()])
    }

    fn cut(&self) {
        for connection in self.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Executes random commands of every type.
    fn work(&self, seed: u64, commands: usize) {
        let mut random = Random::new(seed);
        for _ in 0..commands {
            let (key, other) = (random.below(50), random.below(50));
            let number = random.below(1000);
            let line = match random.below(22) {
                0..=3 => format!("SET s{key} {number}"),
                4 => format!("SET s{key} {number} PX {}", 1 + random.below(300)),
                5 => format!("INCRBYFLOAT f{key} 0.{number}"),
                6 => format!("APPEND a{key} {}", "x".repeat(number)),
                7 => format!("RPUSH l{key} {number} {other}"),
                8 => format!("LPOP l{key}"),
                9 => format!("SADD m{key} {number} {other}"),
                10 => format!("SPOP m{key}"),
                11 => format!("ZADD z{key} {number} {other}"),
                12 => format!("ZPOPMIN z{key}"),
                13 => format!("HSET h{key} {other} {number}"),
                14 => format!("HINCRBYFLOAT h{key} {other} 1.5"),
                15 => format!("XADD x{key} MAXLEN 20 * f {number}"),
                16 => format!("SUNIONSTORE m{key} m{other} m{number}"),
                17 => format!("RENAME s{key} s{other}"),
                18 => format!("EXPIRE l{key} {}", 1 + random.below(2)),
                19 => format!("SETRANGE a{key} {number} yy"),
                20 => format!("PFADD p{key} {number}"),
                _ => format!("DEL s{key} l{other} m{number} h{other}"),
            };
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            self.place.ask_in(random.below(3) as u32, &words);
        }
    }

    /// Waits until the replica has executed all that was told, and compares.
    #[allow(clippy::disallowed_methods, reason = "keys expire at their time")]
    fn assert_same(&self, replica: &RedisServer) {
        // Nothing is due to expire on one side alone.
        std::thread::sleep(Duration::from_millis(2500));
        while self.place.store.tick(clock()) {}
        self.feed.ask_for_offsets();
        let end = self.place.store.follow_on(keyway_store::Keeping::Newest);
        let end = end.expect("a replica follows").offset().expect("it is there");
        wait_until("an acknowledgement", BOUND, || self.feed.acknowledged(end) == 1);
        self.place.assert_equal(replica);
    }
}

#[test]
fn a_redis_server_comes_to_the_data_of_a_store_under_writes_and_through_cuts() {
    let _watchdog = watchdog(Duration::from_secs(120), "a replica of a store");
    let primary = Primary::start(EffectLimits { room: 64 << 20, history: 8 << 20 });
    primary.work(1, 5000);
    let replica = primary.replica();
    let is_linked = || info(&mut replica.client(), "master_link_status") == "up";
    std::thread::scope(|scope| {
        for seed in 2..4 {
            let primary = &primary;
            scope.spawn(move || primary.work(seed, 20_000));
        }
        wait_until("a link", BOUND, is_linked);
    });
    primary.assert_same(&replica);
    // A write that was under way when the stream began may have cost another snapshot.
    let resyncs = || replica.process().log().matches("Full resync from master").count();
    let (before, partings) = (resyncs(), primary.partings.lock().len());
    for seed in 5..10 {
        primary.cut();
        primary.work(seed, 2000);
    }
    wait_until("a parting", BOUND, || primary.partings.lock().len() > partings);
    wait_until("a link again", BOUND, is_linked);
    primary.assert_same(&replica);
    assert_eq!(resyncs(), before, "what was missed is kept");
    assert!(replica.process().log().contains("Successful partial resynchronization"));
}

#[test]
fn a_replica_that_was_away_for_more_than_is_kept_gets_a_snapshot() {
    let _watchdog = watchdog(Duration::from_secs(120), "a replica that was away");
    let primary = Primary::start(EffectLimits { room: 4 << 20, history: 64 << 10 });
    primary.work(1, 1000);
    let replica = primary.replica();
    wait_until("a link", BOUND, || info(&mut replica.client(), "master_link_status") == "up");
    replica.process().signal(keyway_testkit::Signal::STOP);
    primary.cut();
    wait_until("a parting", BOUND, || !primary.partings.lock().is_empty());
    primary.work(2, 60_000);
    replica.process().signal(keyway_testkit::Signal::CONT);
    wait_until("another snapshot", BOUND, || {
        replica.process().log().matches("Full resync from master").count() == 2
    });
    wait_until("a link", BOUND, || info(&mut replica.client(), "master_link_status") == "up");
    primary.assert_same(&replica);
}
