//! Servers, and what is common to tests of them.

use crate::replayer::Seen;
use keyway_replica::{Follower, FollowerSettings, State, Status};
use keyway_testkit::{Client, Value, wait_for};
use keyway_topology::Endpoint;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::time::Duration;

pub const BOUND: Duration = Duration::from_secs(20);

pub fn words(client: &mut Client, line: &str) -> Value {
    let reply = client.words(line);
    assert!(!reply.is_error(), "{line}: {}", reply.error_text());
    reply
}

/// Settings without long pauses.
pub fn settings(address: SocketAddr) -> FollowerSettings {
    let endpoint = Endpoint::tcp(&address.ip().to_string(), address.port()).expect("an address");
    FollowerSettings {
        pause_min: Duration::from_millis(2),
        pause_max: Duration::from_millis(20),
        ..FollowerSettings::new(endpoint)
    }
}

pub fn await_state(follower: &Follower, state: State) -> Status {
    let what = format!("the follower is {state:?}");
    wait_for(&what, BOUND, || Some(follower.status()).filter(|status| status.state == state))
}

/// Waits until a link has failed for a reason with these words in it.
pub fn await_reason(follower: &Follower, text: &str) -> Status {
    let mut last = None;
    let found = |status: &Status| {
        last = status.reason.as_ref().map(ToString::to_string);
        last.as_ref().is_some_and(|reason| reason.contains(text))
    };
    let mut found = found;
    wait_for(&format!("a reason with {text:?}"), BOUND, || {
        Some(follower.status()).filter(&mut found)
    })
}

fn info(client: &mut Client, name: &str) -> String {
    let info = words(client, "INFO replication").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

pub fn offset(client: &mut Client) -> u64 {
    info(client, "master_repl_offset").parse().expect("an offset")
}

pub fn id(client: &mut Client) -> String {
    info(client, "master_replid")
}

/// Waits until the follower has applied all that the server has; the offset of
/// both.
pub fn await_same_offset(follower: &Follower, client: &mut Client) -> u64 {
    wait_for("the follower has caught up", BOUND, || {
        let status = follower.status();
        assert!(status.state != State::Stopped, "stopped: {:?}", status.reason);
        let id_now = status.id.map(|id| id.to_string());
        let is_same = status.state == State::Online
            && status.offset == offset(client)
            && id_now.as_deref() == Some(&id(client));
        is_same.then_some(status.offset)
    })
}

/// The digest of all data of a server, with what the digest leaves out: the
/// times at which keys expire.
pub fn digest(client: &mut Client) -> (String, Vec<String>) {
    let sum = words(client, "DEBUG DIGEST").text();
    let mut times = Vec::new();
    for database in 0..16 {
        words(client, &format!("SELECT {database}"));
        let mut keys: Vec<Vec<u8>> =
            words(client, "KEYS *").array().iter().map(|key| key.bytes().to_vec()).collect();
        keys.sort();
        for key in keys {
            let time = client.command(&[&b"PEXPIRETIME"[..], &key]).integer();
            times.push(format!("{database} {} {time}", key.escape_ascii()));
        }
    }
    (sum, times)
}

/// Waits until all is applied, and compares.
pub fn assert_same(follower: &Follower, seen: &Mutex<Seen>, from: &mut Client, to: &mut Client) {
    // What clients have sent before they left may still be executed.
    for _ in 0..20 {
        let before = await_same_offset(follower, from);
        let (expected, copied) = (digest(from), digest(to));
        if offset(from) == before {
            assert_eq!(expected.1, copied.1, "keys and their times");
            assert_eq!(expected.0, copied.0, "the digest of the data");
            let wrong = seen.lock().wrong.clone();
            assert!(wrong.is_empty(), "{wrong:?}");
            return;
        }
    }
    panic!("the primary does not come to rest");
}
