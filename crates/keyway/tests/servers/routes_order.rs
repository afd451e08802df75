//! The order of one client's requests over pools of pools, while the map of a cluster behind them
//! changes and servers do not read what they are sent.

use keyway_testkit::{
    Action, Keyway, KeywayConfig, Pool, ScriptedBackend, Value, handshake_reply, wait_until,
    watchdog,
};
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(60);

/// The state of two servers of a cluster, one of which has all slots.
#[derive(Default)]
struct Seen {
    /// True if the old owner was sent something: from then on its slots belong to the other.
    has_moved: bool,
    /// How often the new owner was asked for the slots since then.
    told: u32,
    /// True if the old owner may answer.
    is_released: bool,
    /// The commands that the owner has executed, in order.
    executed: Vec<String>,
    /// How many more times the first request is refused.
    refusals: u32,
}

type Shared = Arc<Mutex<Seen>>;

/// Returns the reply about a cluster in which the first of two servers has all slots, and the other
/// is its replica.
fn slots([owner, other]: [SocketAddr; 2]) -> Vec<u8> {
    let node = |of: SocketAddr| format!("*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", of.port());
    format!("*1\r\n*4\r\n:0\r\n:16383\r\n{}{}", node(owner), node(other)).into_bytes()
}

/// Returns the reply about a single server.
fn one_slot_range(owner: SocketAddr) -> Vec<u8> {
    let port = owner.port();
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n").into_bytes()
}

fn word(arguments: &[Vec<u8>], index: usize) -> String {
    arguments.get(index).map_or_else(String::new, |word| String::from_utf8_lossy(word).into_owned())
}

/// Returns the script of the server that has all slots in the end, or from the beginning.
fn owner(seen: &Shared) -> impl FnMut(&[Vec<u8>]) -> Action + Send + 'static + use<> {
    let seen = Arc::clone(seen);
    move |arguments| {
        let mut seen = seen.lock();
        match word(arguments, 0).as_str() {
            "SET" if seen.refusals > 0 && word(arguments, 2) == "1" => {
                seen.refusals -= 1;
                Action::Reply(b"-TRYAGAIN Multiple keys request during rehashing\r\n".to_vec())
            }
            "SET" => {
                seen.executed.push(word(arguments, 2));
                Action::Reply(b"+OK\r\n".to_vec())
            }
            _ => Action::Reply(handshake_reply(arguments).unwrap_or_else(|| b"+OK\r\n".to_vec())),
        }
    }
}

/// Returns the script of the server that loses the slots with the first SET. It sends that SET on
/// when it is told to.
fn loser(
    seen: &Shared,
    [own, other]: [SocketAddr; 2],
) -> impl FnMut(&[Vec<u8>]) -> Action + Send + 'static + use<> {
    let seen = Arc::clone(seen);
    move |arguments| match word(arguments, 0).as_str() {
        "CLUSTER" => {
            let has_moved = seen.lock().has_moved;
            Action::Reply(slots(if has_moved { [other, own] } else { [own, other] }))
        }
        "SET" => {
            seen.lock().has_moved = true;
            wait_until("it may answer", WITHIN / 2, || seen.lock().is_released);
            Action::Reply(format!("-MOVED 15495 127.0.0.1:{}\r\n", other.port()).into_bytes())
        }
        _ => Action::Reply(handshake_reply(arguments).unwrap_or_else(|| b"+OK\r\n".to_vec())),
    }
}

/// Returns the pools that lead to the cluster `c`, each with its kind.
fn leading() -> Vec<Pool> {
    let over = |name: &str, kind: &str, children: &str| {
        Pool::of_kind(name, kind).with("children", children)
    };
    vec![
        Pool::of_kind("prefix", "prefix")
            .with("routes", "[{ prefix = \"zz:\", pool = \"mem\" }]")
            .with("default", "\"c\""),
        over("failover", "failover", "[\"c\", \"mem\"]"),
        over("mirror", "mirror", "[\"mem\", \"c\"]").with("wait", "\"all\""),
        over("first", "mirror", "[\"mem\", \"c\"]").with("wait", "\"first\""),
        over("nested", "failover", "[\"prefix\", \"mem\"]"),
        over("deep", "mirror", "[\"mem\", \"failover\"]").with("wait", "\"first\""),
        Pool::of_kind("shadow", "shadow").with("main", "\"mem\"").with("shadow", "\"c\""),
    ]
}

fn serve(seeds: &[SocketAddr]) -> Keyway {
    let seeds: Vec<String> = seeds.iter().map(|seed| format!("\"{seed}\"")).collect();
    let cluster = Pool::of_kind("c", "cluster")
        .with("servers", &format!("[{}]", seeds.join(", ")))
        .with("refresh", "\"100ms\"")
        .with("timeout", "\"20s\"");
    let mut pools = vec![cluster, Pool::store("mem")];
    pools.extend(leading());
    Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "1"))
}

fn executed(seen: &Shared) -> Vec<String> {
    seen.lock().executed.clone()
}

/// Returns the listeners that lead to the cluster: the position and the name of each.
fn listeners() -> Vec<(usize, String)> {
    let names = ["cluster", "prefix", "failover", "mirror", "first", "nested", "deep", "shadow"];
    let at = |index: usize| if index == 0 { 0 } else { index + 1 };
    names.iter().enumerate().map(|(index, name)| (at(index), (*name).to_owned())).collect()
}

#[test]
fn what_is_sent_after_a_slot_has_moved_does_not_overtake_what_its_old_owner_has() {
    let _watch = watchdog(WITHIN, "a slot moves");
    for (listener, name) in listeners() {
        let seen = Shared::default();
        let new = ScriptedBackend::start(|_| Action::Silence);
        let old = ScriptedBackend::start(|_| Action::Silence);
        let both = [old.address(), new.address()];
        old.set_script(loser(&seen, both));
        let (mut script, shared) = (owner(&seen), Arc::clone(&seen));
        new.set_script(move |arguments| match word(arguments, 0).as_str() {
            "CLUSTER" => {
                let mut seen = shared.lock();
                seen.told += u32::from(seen.has_moved);
                let [old, new] = both;
                Action::Reply(slots(if seen.has_moved { [new, old] } else { both }))
            }
            _ => script(arguments),
        });
        let keyway = serve(&both);
        let mut client = keyway.client(listener);
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n");
        // The new map is known, and the first request is still with the old owner.
        wait_until("the map is known", WITHIN, || seen.lock().told >= 2);
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n2\r\n");
        // A request that overtakes it reaches the server before later requests of other clients.
        let mut other = keyway.client(0);
        (0..3).for_each(|_| assert_eq!(other.words("GET a"), Value::simple("OK")));
        assert_eq!(executed(&seen), [""; 0], "{name}");
        seen.lock().is_released = true;
        assert_eq!(client.replies(2), [Value::simple("OK"), Value::simple("OK")], "{name}");
        wait_until("both are executed", WITHIN, || executed(&seen).len() == 2);
        assert_eq!(executed(&seen), ["1", "2"], "{name}");
    }
}

#[test]
fn what_is_tried_again_is_not_overtaken_by_what_comes_behind_it() {
    let _watch = watchdog(WITHIN, "a request is tried again");
    for (listener, name) in listeners() {
        let seen = Shared::default();
        let server = ScriptedBackend::start(|_| Action::Silence);
        let address = server.address();
        let mut script = owner(&seen);
        server.set_script(move |arguments| match word(arguments, 0).as_str() {
            "CLUSTER" => Action::Reply(one_slot_range(address)),
            _ => script(arguments),
        });
        let keyway = serve(&[address]);
        let mut client = keyway.client(listener);
        assert_eq!(client.words("SET a 0"), Value::simple("OK"), "{name}");
        wait_until("the first is executed", WITHIN, || executed(&seen) == ["0"]);
        seen.lock().refusals = 4;
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n");
        wait_until("it was refused", WITHIN, || seen.lock().refusals < 4);
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n2\r\n");
        assert_eq!(client.replies(2), [Value::simple("OK"), Value::simple("OK")], "{name}");
        wait_until("all are executed", WITHIN, || executed(&seen).len() == 3);
        assert_eq!(executed(&seen), ["0", "1", "2"], "{name}");
    }
}
