//! Slots that move between groups of real servers while clients use them.

use crate::stage::{Coordinator, Fleet, SOON};
use keyway_testkit::{
    CheckedLoad, Client, LoadShape, Replicated, Value, encode_words, wait_until, watchdog,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Two groups of a primary and a replica, and a fleet that serves by them.
struct Stage {
    groups: [Replicated; 2],
    fleet: Fleet,
}

const LISTS: [&str; 2] = ["0-511", "512-1023"];

fn quoted(servers: &Replicated) -> String {
    let all = servers.addresses().into_iter().map(|at| format!("\"{at}\""));
    all.collect::<Vec<_>>().join(", ")
}

impl Stage {
    fn start() -> Stage {
        let groups = [Replicated::start(1), Replicated::start(1)];
        let fleet = Fleet::start(Coordinator::Files);
        fleet.wait_current(&[0, 1, 2], 0);
        let stage = Stage { groups, fleet };
        stage.fleet.store(&stage.document(""), 0);
        stage.fleet.wait_current(&[0, 1, 2], 1);
        for name in ["main:a", "main:b"] {
            wait_until("the groups are healthy", SOON, || {
                let leader = &stage.fleet.controls[stage.fleet.leader()];
                leader.group(name).is_some_and(|group| group["state"] == "healthy")
            });
        }
        stage
    }

    fn document(&self, more: &str) -> String {
        let [a, b] = [quoted(&self.groups[0]), quoted(&self.groups[1])];
        let [first, second] = LISTS;
        format!(
            "[pool.main]\nkind = \"slots\"\nslots = 1024\ntimeout = \"2s\"\nfailover = {{ \
             down_after = \"2s\" }}\ngroups = [{{ name = \"a\", servers = [{a}], slots = \
             \"{first}\" }}, {{ name = \"b\", servers = [{b}], slots = \"{second}\" }}]\n{more}"
        )
    }

    fn client(&self, nth: usize) -> Client {
        Client::connect(self.fleet.proxies[nth].client)
    }

    fn at(&self, nth: usize) -> SocketAddr {
        self.fleet.proxies[nth].client
    }

    /// Carries out `keyway ctl slots` at the node that leads. Returns the status and what was printed.
    fn ctl(&self, words: &[&str]) -> (bool, String) {
        let all: Vec<&str> = ["slots"].iter().chain(words).copied().collect();
        let told = self.fleet.controls[self.fleet.leader()].ctl(&all);
        (told.status.success(), told.text)
    }

    /// Moves slots, and waits until the plan is done.
    fn moved(&self, slots: &str, to: &str) -> String {
        let (is_done, told) = self.ctl(&["move", "main", slots, "--to", to, "--wait"]);
        assert!(is_done, "{told}");
        told
    }

    /// Returns what the groups' servers have of a key, in the order of the groups.
    fn holders(&self, key: &str) -> [bool; 2] {
        [0, 1].map(|nth| self.groups[nth].ask(0, &format!("EXISTS {key}")) == Value::Integer(1))
    }

    /// Returns the latest plan, as the node that leads tells it.
    fn plan(&self) -> serde_json::Value {
        let leader = &self.fleet.controls[self.fleet.leader()];
        let told = leader.ctl(&["--json", "slots"]);
        let body: serde_json::Value = serde_json::from_str(&told.stdout).unwrap_or_default();
        let plans = body["pools"][0]["plans"].as_array().cloned().unwrap_or_default();
        plans.last().cloned().unwrap_or_default()
    }
}

fn loads(stage: &Stage) -> Vec<CheckedLoad> {
    let load = |nth: usize| {
        let prefix = format!("load{nth}:");
        let shape = LoadShape { clients: 2, prefix, seed: nth as u64 + 1, ..LoadShape::default() };
        CheckedLoad::start(stage.at(nth), shape)
    };
    (0..3).map(load).collect()
}

/// Every kind of value arrives with its time to live, and the source has nothing left.
#[test]
fn slots_move_with_everything_that_they_hold() {
    let _watchdog = watchdog(Duration::from_secs(120), "slots that move");
    let stage = Stage::start();
    let mut client = stage.client(0);
    // The slot of `foo` is 289, which is the first group's.
    let writes = [
        "SET {foo}text value",
        "SET {foo}expiring value PX 3600000",
        "RPUSH {foo}list a b c",
        "SADD {foo}set a b c",
        "ZADD {foo}sorted 1.5 a -inf b +inf c",
        "HSET {foo}hash a 1 b 2",
        "XADD {foo}stream 1-1 field value",
        "XADD {foo}stream 2-1 field value",
        "XGROUP CREATE {foo}stream group 0",
        "XREADGROUP GROUP group me COUNT 1 STREAMS {foo}stream >",
        "PFADD {foo}counter a b c",
        "SETBIT {foo}bits 77 1",
    ];
    for words in writes {
        assert!(!client.words(words).is_error(), "{words}");
    }
    let reads = [
        "GET {foo}text",
        "LRANGE {foo}list 0 -1",
        "ZRANGE {foo}sorted 0 -1 WITHSCORES",
        "HGET {foo}hash b",
        "XRANGE {foo}stream - +",
        "XPENDING {foo}stream group",
        "PFCOUNT {foo}counter",
        "GETBIT {foo}bits 77",
        "SCARD {foo}set",
        "GET {foo}expiring",
    ];
    let before = reads.map(|words| client.words(words));
    let told = stage.moved("289", "b");
    assert!(told.contains("done"), "{told}");
    let mut other = stage.client(1);
    for (words, before) in reads.iter().zip(&before) {
        assert_eq!(
            (other.words(words), client.words(words)),
            (before.clone(), before.clone()),
            "{words}"
        );
    }
    let Value::Integer(left) = client.words("PTTL {foo}expiring") else {
        panic!("no time to live")
    };
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    assert_eq!(stage.holders("{foo}text"), [false, true]);
    assert_eq!(stage.groups[0].ask(0, "DBSIZE"), Value::Integer(0));
    // A proxy that starts anew, by its own file, obeys the map.
    let (_, told) = stage.ctl(&[]);
    assert!(told.contains("289,512-1023") && told.contains("0-288,290-511"), "{told}");
    // Back again.
    stage.moved("289", "a");
    assert_eq!(stage.holders("{foo}text"), [true, false]);
    assert_eq!(other.words("GET {foo}text"), before[0]);
}

/// Slots go back and forth under a load of every proxy. No reply is wrong, lost or an error.
#[test]
fn slots_move_back_and_forth_under_load() {
    let _watchdog = watchdog(Duration::from_secs(240), "slots under load");
    let stage = Stage::start();
    let loads = loads(&stage);
    loads.iter().for_each(|load| load.wait_replies(200));
    let since = Instant::now();
    let mut moves = 0;
    while since.elapsed() < Duration::from_secs(15) {
        stage.moved("0-511", "b");
        loads.iter().for_each(|load| load.wait_replies(50));
        stage.moved("0-511", "a");
        loads.iter().for_each(|load| load.wait_replies(50));
        moves += 2;
    }
    println!("{moves} moves in {:?}", since.elapsed());
    loads.into_iter().for_each(|load| load.stop().assert_clean());
}

/// Transactions, scripts, commands that wait and messages go on while their slot moves.
#[test]
fn what_lasts_longer_than_a_request_outlives_a_move() {
    let _watchdog = watchdog(Duration::from_secs(180), "what lasts longer");
    let stage = Stage::start();
    // The keys of the tag `foo` are of slot 289.
    let waiting = std::thread::spawn({
        let mut client = stage.client(1);
        move || client.words("BLPOP {foo}queue 30")
    });
    let mut listener = stage.client(2);
    listener.words("SUBSCRIBE foo");
    let mut watcher = stage.client(0);
    watcher.words("SET {foo}watched 1");
    watcher.words("WATCH {foo}watched");
    let mut opened = stage.client(0);
    opened.words("MULTI");
    assert_eq!(opened.words("SET {foo}a 1"), Value::simple("QUEUED"));
    stage.moved("289", "b");
    // A watch is lost, so the transaction is not executed.
    watcher.words("MULTI");
    watcher.words("SET {foo}watched 2");
    assert_eq!(watcher.words("EXEC"), Value::NilArray);
    assert_eq!(opened.words("SET {foo}b 2"), Value::simple("QUEUED"));
    let executed = opened.words("EXEC");
    assert_eq!(executed, Value::Array(vec![Value::simple("OK"), Value::simple("OK")]));
    let mut client = stage.client(0);
    assert_eq!(
        client.words("MGET {foo}a {foo}b"),
        Value::Array(vec![Value::bulk("1"), Value::bulk("2")])
    );
    client.words("RPUSH {foo}queue x");
    let popped = waiting.join().expect("it has a reply");
    assert_eq!(popped, Value::Array(vec![Value::bulk("{foo}queue"), Value::bulk("x")]));
    wait_until("a message is heard", SOON, || {
        client.words("PUBLISH foo hello") == Value::Integer(1)
    });
    assert!(format!("{:?}", listener.reply()).contains("hello"));
    assert_eq!(
        client.words("EVAL return{redis.call('get',KEYS[1])} 1 {foo}a"),
        Value::Array(vec![Value::bulk("1")])
    );
}

/// The leader, and with it the mover, is killed at any moment; a proxy too. The plan ends all the same.
#[test]
fn a_plan_goes_on_when_the_leader_or_a_proxy_is_killed() {
    let _watchdog = watchdog(Duration::from_secs(240), "killed movers");
    let mut stage = Stage::start();
    let mut client = stage.client(0);
    let writes: Vec<u8> =
        (0..20_000).flat_map(|nth| encode_words(&format!("SET key:{nth} value"))).collect();
    client.send(&writes);
    (0..20_000).for_each(|_| assert_eq!(client.reply(), Value::simple("OK")));
    let loads = loads(&stage);
    loads.iter().for_each(|load| load.wait_replies(100));
    for (nth, to) in [(0, "b"), (1, "a")] {
        let (is_done, told) =
            stage.ctl(&["move", "main", "0-511", "--to", to, "--keys-per-second", "20000"]);
        assert!(is_done, "{told}");
        std::thread::sleep(Duration::from_millis(150 + 200 * nth));
        let leader = stage.fleet.leader();
        if let Some(mut process) = stage.fleet.controls[leader].process.take() {
            process.kill();
        }
        wait_until("the plan is done", Duration::from_secs(60), || stage.plan()["step"] == "done");
        let Stage { fleet, .. } = &mut stage;
        fleet.controls[leader].start(&fleet.directory);
    }
    for nth in (0..20_000).step_by(97) {
        assert_eq!(client.words(&format!("GET key:{nth}")), Value::bulk("value"), "{nth}");
    }
    loads.into_iter().for_each(|load| load.stop().assert_clean());
}

/// A wrong order is refused with a sentence, and leaves everything as it was.
#[test]
fn orders_that_cannot_work_are_refused_and_change_nothing() {
    let _watchdog = watchdog(Duration::from_secs(120), "wrong orders");
    let stage = Stage::start();
    let refused = [
        (&["move", "main", "0-9", "--to", "x"][..], "pool main has no group x; it has a, b"),
        (&["move", "other", "0-9", "--to", "b"], "pool other of the document is no pool of kind"),
        (&["move", "main", "0-2000", "--to", "b"], "pool main has the slots 0-1023"),
        (&["move", "main", "0-9", "--to", "a"], "group a has these slots already"),
        (&["cancel", "main", "7"], "pool main has no plan 7"),
        (&["evacuate", "main", "x"], "it has no group x; it has a, b"),
    ];
    for (words, why) in refused {
        let (is_done, told) = stage.ctl(words);
        assert!(!is_done && told.contains(why), "{words:?}: {told}");
    }
    // A target that has keys of the slots already.
    stage.groups[1].ask(0, "SET {foo}strange 1");
    let (is_done, told) = stage.ctl(&["move", "main", "289", "--to", "b", "--wait"]);
    assert!(!is_done && told.contains("has 1 keys of these slots already"), "{told}");
    assert_eq!(stage.groups[1].ask(0, "GET {foo}strange"), Value::bulk("1"));
    // A document without a group that has slots.
    stage.groups[1].ask(0, "DEL {foo}strange");
    stage.moved("289", "b");
    let lacking = stage.document("").replace("slots = \"512-1023\"", "slots = \"0-1023\"");
    let lacking =
        lacking.replace("slots = \"0-511\" }, {", "slots = \"\" }, {").replace("\"b\"", "\"c\"");
    let told = stage.fleet.apply(&lacking, 1);
    assert!(told.text.contains("group b has slots"), "{}", told.text);
}

/// Keys that are at two groups for a while are told of once.
#[test]
fn keys_are_told_of_once_while_they_are_in_two_places() {
    let _watchdog = watchdog(Duration::from_secs(120), "keys in two places");
    let stage = Stage::start();
    let mut client = stage.client(0);
    for nth in 0..200 {
        assert_eq!(client.words(&format!("SET key:{nth} v")), Value::simple("OK"));
    }
    // A copy that has not got its slots.
    for nth in 0..200 {
        stage.groups[1].ask(0, &format!("SET key:{nth} v"));
    }
    let count = |client: &mut Client, words: &str| match client.words(words) {
        Value::Array(all) => all.len(),
        other => panic!("{words}: {other:?}"),
    };
    assert_eq!(count(&mut client, "KEYS *"), 200);
    let mut seen = 0;
    let mut cursor = "0".to_owned();
    loop {
        let Value::Array(page) = client.words(&format!("SCAN {cursor} COUNT 50")) else {
            panic!("no page")
        };
        let Value::Array(keys) = &page[1] else { panic!("no keys") };
        seen += keys.len();
        cursor = page[0].text();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen, 200);
    for _ in 0..50 {
        let key = client.words("RANDOMKEY").text();
        assert_eq!(client.words(&format!("GET {key}")), Value::bulk("v"), "{key}");
    }
}
