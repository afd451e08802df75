//! The members of a fleet as one process: sums, lists and changes through the node that leads.

use crate::stage::{Coordinator, Fleet, KEYWAY, SOON};
use keyway_testkit::{
    Client, ToolOutput, Value, http_get, http_get_with, run_keyway, wait_until, watchdog,
};
use serde_json::Value as Json;
use std::time::{Duration, Instant};

fn json(output: &ToolOutput) -> Json {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.text))
}

#[test]
fn control_answers_for_all_members_and_for_some() {
    let _watchdog = watchdog(Duration::from_secs(120), "members");
    let mut fleet = Fleet::start(Coordinator::Files);
    fleet.wait_current(&[0, 1, 2], 0);
    let leader = fleet.leader();
    let mut clients: Vec<_> =
        fleet.proxies.iter().map(|proxy| Client::connect(proxy.client)).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.words(&format!("SET k{nth} v")), Value::simple("OK"));
    }
    let ctl = |words: &[&str]| fleet.controls[leader].ctl(words);
    let told = |words: &[&str]| ctl(words).expect_success("keyway ctl");

    let status = json(&told(&["--json", "status"]));
    assert_eq!((&status["members"], &status["workers"]), (&3.into(), &3.into()));
    assert_eq!(status["clients"], 3, "{status}");
    assert_eq!(status["zones"].as_array().map(Vec::len), Some(3));
    let lines = told(&["status"]).stdout;
    assert!(lines.contains("members:   3") && lines.contains("z2.proxy.0.2"), "{lines}");
    let one = json(&told(&["--json", "--members", "z2.proxy.0.2", "connections"]));
    assert_eq!((&one["total"], &one["clients"][0]["member"]), (&1.into(), &"z2.proxy.0.2".into()));
    let of_zone = json(&told(&["--json", "--zone", "3", "status"]));
    assert_eq!(of_zone["each"][0]["member"], "z3.proxy.0.3");
    let lines = told(&["pools"]).stdout;
    let main = lines.lines().find(|line| line.starts_with("main ")).unwrap_or_default();
    let words: Vec<&str> = main.split_whitespace().take(4).collect();
    assert_eq!(words, ["main", "sharded", "2", "2"], "{lines}");
    let config = told(&["--zone", "1", "config"]).stdout;
    assert!(config.contains("# member z1.proxy.0.1") && config.contains("[pool.main]"), "{config}");
    for wrong in [["--members", "z9.proxy.0.9"], ["--zone", "77"]] {
        let refused = ctl(&[&wrong[..], &["status"]].concat());
        assert_eq!(refused.status.code(), Some(1), "{}", refused.text);
    }

    // A change at one of three makes the server look different.
    let out = told(&["--members", "z1.proxy.0.1", "eject", "main", "s0"]).stdout;
    assert!(out.starts_with("z1.proxy.0.1: server s0"), "{out}");
    let servers = json(&told(&["--json", "servers"]));
    let server = &servers["servers"][0];
    assert_eq!((&server["name"], &server["state"]), (&"s0".into(), &"mixed".into()), "{servers}");
    assert_eq!(server["states"]["ejected"], 1);
    let out = told(&["restore", "main", "s0"]).stdout;
    assert_eq!(out.lines().count(), 3, "{out}");
    let out = told(&["log-level", "debug"]).stdout;
    assert_eq!(out, "z1.proxy.0.1: debug\nz2.proxy.0.2: debug\nz3.proxy.0.3: debug\n");
    let reloaded = told(&["reload"]).stdout;
    assert_eq!(reloaded.lines().count(), 3, "{reloaded}");
    let unnamed = ctl(&["drain"]);
    assert_eq!(unnamed.status.code(), Some(2), "{}", unnamed.text);
    assert!(unnamed.text.contains("name them with --members"), "{}", unnamed.text);
    let refused = ctl(&["eject", "nowhere", "s0"]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.text);
    assert!(refused.text.contains("z2.proxy.0.2: no pool"), "{}", refused.text);

    let found = json(&told(&["--json", "proxies", "--pool", "main"]));
    let found = found["proxies"].as_array().cloned().unwrap_or_default();
    let addresses: Vec<_> = found.iter().filter_map(|one| one["address"].as_str()).collect();
    let own: Vec<_> = fleet.proxies.iter().map(|proxy| proxy.client.to_string()).collect();
    assert_eq!(addresses, own);
    let none = ctl(&["--json", "proxies", "--pool", "nowhere"]);
    assert_eq!(none.status.code(), Some(1), "{}", none.text);
    assert!(none.text.contains("nowhere"), "{}", none.text);

    lists_of_all(&fleet, leader);
    events_are_streamed(&fleet, leader);
    only_the_leader_is_answered(&fleet, leader);
    shown_by_top(&fleet, leader);
    a_member_that_hangs_is_missing(&mut fleet, leader);
    // It waits when it is drained, can be seen, is no place for clients, and ends by another order.
    let drain = |words: &[&str]| {
        let words = [&["--zone", "2", "drain"], words].concat();
        let out = fleet.controls[leader].ctl(&words).expect_success("keyway ctl");
        assert!(out.stdout.starts_with("z2.proxy.0.2: draining"), "{}", out.text);
    };
    drain(&["--wait"]);
    let log = || fleet.proxies[1].process.as_ref().map(|process| process.log()).unwrap_or_default();
    wait_until("it is drained", SOON, || log().contains("drained: waiting"));
    wait_until("it is no place for clients", SOON, || {
        let proxies = fleet.controls[leader].ctl(&["proxies"]).expect_success("keyway ctl").stdout;
        !proxies.contains("z2.proxy.0.2")
    });
    let status = fleet.controls[leader].ctl(&["--zone", "2", "--json", "status"]);
    let status = json(&status.expect_success("keyway ctl"));
    assert_eq!(status["draining"], 1, "{status}");
    drain(&[]);
    let mut drained = fleet.proxies[1].process.take().expect("it runs");
    assert!(drained.wait_exit(SOON).success(), "{}", drained.log());
    drop(clients.remove(1));
    for client in &mut clients {
        assert_eq!(client.words("GET k1"), Value::bulk("v"));
    }
}

/// Slow requests and keys of all members are in one list.
fn lists_of_all(fleet: &Fleet, leader: usize) {
    let server = fleet.servers[0].process();
    for proxy in &fleet.proxies {
        let mut client = Client::connect(proxy.client);
        let large = "v".repeat(100_000);
        assert_eq!(client.command(&["SET", &proxy.id, &large]), Value::simple("OK"));
        server.pause();
        let keys: Vec<String> = (0..20).map(|nth| format!("slow{nth}")).collect();
        let get: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        let waiting = std::thread::spawn({
            let get: Vec<String> = get.iter().map(|word| (*word).to_owned()).collect();
            move || {
                let words: Vec<&str> = get.iter().map(String::as_str).collect();
                drop(client.command(&words));
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        server.resume();
        waiting.join().expect("a reply");
    }
    let ctl = |words: &[&str]| json(&fleet.controls[leader].ctl(words).expect_success("ctl"));
    let slow = ctl(&["--json", "slow-log"]).to_string();
    let hot = ctl(&["--json", "hot-keys"]).to_string();
    for proxy in &fleet.proxies {
        assert!(slow.contains(&proxy.id), "{}: {slow}", proxy.id);
        assert!(hot.contains(&proxy.id), "{}: {hot}", proxy.id);
    }
}

/// Events come as server-sent events, and a client goes on behind the last one that it has.
fn events_are_streamed(fleet: &Fleet, leader: usize) {
    let admin = fleet.controls[leader].admin;
    let ask = |more: &str| {
        let headers = format!("Accept: text/event-stream\r\n{more}");
        http_get_with(admin, "/v1/fleet/events?since=0&wait=0", &headers)
    };
    let all = ask("");
    assert!(all.headers.contains("text/event-stream"), "{}", all.headers);
    let ids = |text: &str| -> Vec<u64> {
        text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
    };
    let known = ids(&all.body);
    assert!(known.len() > 1 && known.is_sorted(), "{}", all.body);
    let kinds = all.body.lines().filter(|line| line.starts_with("event: "));
    assert_eq!(kinds.count(), known.len(), "{}", all.body);
    let rest = ask(&format!("Last-Event-ID: {}\r\n", known[0]));
    assert_eq!(ids(&rest.body), known[1..], "{}", rest.body);
}

/// The other control node names the leader, and passes nothing on.
fn only_the_leader_is_answered(fleet: &Fleet, leader: usize) {
    wait_until("the other one follows", SOON, || {
        fleet.controls[1 - leader].fleet().is_some_and(|seen| seen["leader"].is_object())
    });
    let other = fleet.controls[1 - leader].ctl(&["status"]);
    assert_eq!(other.status.code(), Some(1), "{}", other.text);
    assert!(other.text.contains(&fleet.controls[leader].admin.to_string()), "{}", other.text);
}

fn shown_by_top(fleet: &Fleet, leader: usize) {
    let admin = fleet.controls[leader].admin;
    let page = http_get(admin, "/v1/fleet/page?members=z1.proxy.0.1&page=/metrics");
    assert!(
        page.status == 200 && page.body.contains("keyway_pool_requests_total"),
        "{}",
        page.body
    );
    let page = http_get(admin, "/v1/fleet/page?members=z1.proxy.0.1&page=/etc/passwd");
    assert_eq!(page.status, 400, "{}", page.body);
    let address = admin.to_string();
    let words = ["top", "--once", "--interval", "200ms", "--fleet", "--address", &address];
    let shown = run_keyway(KEYWAY, &words).expect_success("keyway top").stdout;
    assert!(
        ["z1.proxy.0.1", "z3.proxy.0.3", "main"].iter().all(|it| shown.contains(it)),
        "{shown}"
    );
    let shown = run_keyway(KEYWAY, &[&words[..], &["--zone", "2"]].concat());
    let shown = shown.expect_success("keyway top").stdout;
    assert!(shown.contains("z2.proxy.0.2") && !shown.contains("z1.proxy.0.1"), "{shown}");
}

/// The others are answered for, and the one that hangs is named within some seconds.
fn a_member_that_hangs_is_missing(fleet: &mut Fleet, leader: usize) {
    fleet.proxies[2].process.as_ref().expect("it runs").pause();
    let since = Instant::now();
    let status = fleet.controls[leader].ctl(&["--json", "status"]).expect_success("keyway ctl");
    let whole = json(&status);
    assert_eq!(whole["members"], 2, "{whole}");
    assert_eq!(whole["missing"][0]["member"], "z3.proxy.0.3", "{whole}");
    assert!(since.elapsed() < Duration::from_secs(9), "{:?}", since.elapsed());
    fleet.proxies[2].process.as_ref().expect("it runs").resume();
    wait_until("it answers again", SOON, || {
        let status = fleet.controls[leader].ctl(&["--json", "status"]);
        status.status.success() && json(&status)["members"] == 3
    });
}
