//! Commands of every type by chance at a pool whose store is a primary. A redis-server, another
//! Keyway, and a redis-server that follows that have the same data when all is quiet.

use crate::common::Reply;
use crate::digest::{Digest, Holder, digest};
use crate::writer::{Writer, play};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, encode, wait_until, watchdog,
};
use std::net::SocketAddr;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const BOUND: Duration = Duration::from_secs(60);
/// Sequences that are written before the first replica comes, and after the last one has come.
const SEQUENCES: u64 = 40;

struct Server(Client);

impl Holder for Server {
    fn ask(&mut self, database: u32, words: &[&[u8]]) -> Reply {
        self.0.command(&["SELECT", &database.to_string()]);
        self.0.send(&encode(words));
        let reply = self.0.raw_reply();
        Reply::read(&mut &reply[..])
    }
}

impl Server {
    fn info(&mut self, name: &str) -> String {
        let info = self.0.words("INFO replication").text();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }

    fn is_at(&mut self, offset: &str) -> bool {
        self.info("master_link_status") == "up" && self.info("master_repl_offset") == offset
    }

    fn digest(&mut self) -> Digest {
        digest(self, false)
    }
}

fn start(pool: Pool) -> Keyway {
    let pool = pool.with("memory_max", "\"256MiB\"").with("databases", "16");
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "2"))
}

fn redis_of(address: SocketAddr) -> RedisServer {
    RedisServer::start_with(&["--replicaof", "127.0.0.1", &address.port().to_string()])
}

#[test]
fn what_clients_write_to_a_store_is_at_all_its_replicas() {
    let _watch = watchdog(Duration::from_secs(240), "writes of every type at a primary");
    let primary = start(Pool::store("main"));
    (0..SEQUENCES).for_each(|seed| play(primary.address(0), seed));
    let follower = start(
        Pool::store("main").with("replica_of", &format!("\"redis://{}\"", primary.address(0))),
    );
    let direct = redis_of(primary.address(0));
    let chained = redis_of(follower.address(0));
    let writer = Writer::start(primary.address(0), 20_000, || {});
    wait_until("sequences beside the snapshots", BOUND, || writer.played() >= SEQUENCES);
    writer.end();
    let mut from = Server(primary.client(0));
    // The last sequences may have removed everything.
    for number in 0..30 {
        let lines = [
            format!("SET last:s{number} v"),
            format!("RPUSH last:l{number} a b"),
            format!("ZADD last:z{number} 1.5 a"),
        ];
        from.0.pipeline(&lines.each_ref().map(String::as_str));
    }
    assert!(from.digest().len() >= 90, "there is data to compare");
    let mut replicas = [direct.client(), follower.client(0), chained.client()].map(Server);
    for (index, replica) in replicas.iter_mut().enumerate() {
        for attempt in 0.. {
            wait_until("the replica has caught up", BOUND, || {
                let offset = from.info("master_repl_offset");
                replica.is_at(&offset)
            });
            let (expected, found) = (from.digest(), replica.digest());
            if expected == found {
                break;
            }
            // A key may have expired between the two looks.
            let lacks = expected.iter().find(|line| !found.contains(line));
            let has = found.iter().find(|line| !expected.contains(line));
            assert!(attempt < 20, "replica {index} lacks {lacks:#?} and has {has:#?}");
        }
    }
}
