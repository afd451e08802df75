//! Redis itself is the oracle: generated sequences over several connections run against a bare
//! server and against the store and pools of one and four servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::conformance::sequences::{
    DIFFERENCES, Outcome, Reach, Stage, Tally, document, play_seeds, written,
};
use keyway_testkit::{Keyway, KeywayConfig, Pool, RedisServer, watchdog};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Sequences on each system, unless `KEYWAY_ORACLE_SEQUENCES` sets another number.
const QUICK: u64 = 100;

const ALL: [Reach; 3] = [Reach::Store, Reach::One, Reach::Four];

struct Systems {
    keyway: Keyway,
    bare: RedisServer,
    servers: Vec<Vec<RedisServer>>,
}

impl Systems {
    fn start() -> Systems {
        let servers = vec![vec![], RedisServer::start_many(1), RedisServer::start_many(4)];
        let pool = |name, servers: &[RedisServer]| {
            Pool::over(name, servers)
                .with("databases", "16")
                .with("allow_flush", "true")
                .with("timeout", "\"20s\"")
        };
        let pools = vec![Pool::store("local"), pool("one", &servers[1]), pool("four", &servers[2])];
        let config = KeywayConfig::new(pools).with_server("workers", "2");
        Systems { keyway: Keyway::start(KEYWAY, config), bare: RedisServer::start(), servers }
    }

    fn stage(&self, reach: Reach) -> Stage {
        let nth = ALL.iter().position(|one| *one == reach).unwrap_or_default();
        let servers: Vec<SocketAddr> = self.servers[nth].iter().map(RedisServer::address).collect();
        Stage::new(reach, self.bare.address(), self.keyway.address(nth), &servers)
    }
}

/// Returns a number from the environment: `make oracle` sets them.
#[allow(clippy::disallowed_methods, reason = "how long a test runs is chosen from outside")]
fn chosen(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn play(reach: Reach) {
    let count = chosen("KEYWAY_ORACLE_SEQUENCES").unwrap_or(QUICK);
    let _watch = watchdog(Duration::from_secs(120 + count), "sequences");
    let systems = Systems::start();
    let first = chosen("KEYWAY_ORACLE_FROM").unwrap_or(0);
    let tally = play_seeds(&mut systems.stage(reach), first, count);
    println!("{reach:?}: {tally:?}");
    assert!(tally.frames > tally.requests / 2, "hardly anything was answered");
}

#[test]
fn the_store_answers_sequences_as_redis_does() {
    play(Reach::Store);
}

#[test]
fn a_pool_of_one_server_answers_sequences_as_redis_does() {
    play(Reach::One);
}

#[test]
fn a_pool_of_four_servers_answers_sequences_as_redis_does() {
    play(Reach::Four);
}

#[test]
fn every_known_difference_is_still_one() {
    let _watch = watchdog(Duration::from_secs(120), "differences");
    let systems = Systems::start();
    let mut met: BTreeMap<&str, Vec<Reach>> = BTreeMap::new();
    for reach in ALL {
        let mut stage = systems.stage(reach);
        for difference in DIFFERENCES {
            let steps = written(difference.example);
            // If an order is random, the two systems may agree by chance.
            for _ in 0..20 {
                let mut tally = Tally::default();
                let outcome = stage.play(&steps, &mut tally);
                let is_known = !matches!(outcome, Outcome::Differs { .. });
                let is_here = difference.systems.contains(&reach);
                assert!(is_known || !is_here, "{} on {reach:?}: {outcome:?}", difference.name);
                if tally.differences.contains_key(difference.name) {
                    met.entry(difference.name).or_default().push(reach);
                    break;
                }
            }
        }
    }
    for difference in DIFFERENCES {
        let met = met.get(difference.name).map_or(&[][..], |met| met);
        if difference.is_by_chance {
            assert!(met.iter().all(|reach| difference.systems.contains(reach)), "{met:?}");
        } else {
            assert_eq!(met, difference.systems, "where '{}' is met", difference.name);
        }
    }
}

#[test]
fn the_page_of_differences_is_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences.md");
    if chosen("KEYWAY_WRITE_DOCS").is_some() {
        std::fs::write(page, document()).expect("docs can be written");
    }
    let text = std::fs::read_to_string(page).unwrap_or_default();
    assert!(text == document(), "docs/differences.md is stale: make differences");
}
