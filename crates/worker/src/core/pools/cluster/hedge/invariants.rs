use super::*;
use crate::core::tests::{client, core_of_kind, output, pass_to};
use keyway_base::BackendFault;
use keyway_net::Socket;
use keyway_resp::Protocol;
use keyway_topology::HedgePolicy;
use keyway_topology::{
    ClusterPool, ClusterView, Discovery, Endpoint, PoolKind, ReadFrom, ReadPolicy, SlotQuery,
    ViewSource,
};

const PORTS: [u16; 3] = [1, 2, 3];

fn endpoint(port: u16) -> Endpoint {
    Endpoint::tcp("h", port).unwrap()
}

/// A core with a connection to a primary and its two replicas, which are read.
fn core(from: ReadFrom, percent: u8, retry_percent: Option<u8>) -> Core {
    let after = HedgeAfter::Fixed(Duration::from_millis(10));
    let hedge = Some(HedgePolicy { after, budget_percent: percent });
    let discovery = Discovery {
        refresh: Duration::from_secs(100),
        redirections_max: 3,
        retry_percent,
        reads: ReadPolicy { from, hedge, ..ReadPolicy::default() },
        ..Discovery::new(vec![endpoint(1)], 4)
    };
    let pool = ClusterPool::new(SlotQuery::Slots, discovery);
    let mut core = core_of_kind(PoolKind::Cluster(pool));
    let node = |port| format!("*2\r\n$1\r\nh\r\n:{port}\r\n");
    let nodes: String = PORTS.map(node).concat();
    let slots = format!("*1\r\n*5\r\n:0\r\n:16383\r\n{nodes}");
    let view =
        ClusterView::from_slots(slots.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap();
    let shared = std::sync::Arc::clone(&core.plane.cluster_state(0).unwrap().shared);
    let _ = shared.learn(&view, crate::cluster::Speaker::ALONE, Time(1));
    core.follow_clusters();
    for port in PORTS {
        let index = link(&core, port);
        core.on_connecting(core.links.key_at(index));
        core.on_connected(core.links.key_at(index), Socket(i32::from(port)));
    }
    pass(&mut core, 1);
    core
}

fn link(core: &Core, port: u16) -> usize {
    let FoundState { servers, cluster, .. } = core.plane.pools[0].found().expect("a cluster");
    let map = &cluster.map;
    servers.link(map.index_of(&endpoint(port)).unwrap(), 0, Protocol::Resp2).index()
}

/// Lets time pass to `millis` after zero.
fn pass(core: &mut Core, millis: u64) {
    pass_to(core, millis);
    if core.plane.next_hedge().is_some_and(|due| due <= core.clock().now) {
        core.send_hedges();
    }
}

/// Returns the requests that each server is sent now, without the one that makes it answer as a
/// replica.
fn sent(core: &mut Core) -> [String; 3] {
    PORTS.map(|port| {
        let index = link(core, port);
        let link = &mut core.links[index].link;
        let bytes = link.unsent().to_vec();
        link.advance(bytes.len());
        let text = String::from_utf8(bytes).unwrap().replace("\r\n", " ");
        for word in ["*1 $8 READONLY ", "*1 $9 READWRITE "] {
            if text.contains(word) {
                core.on_backend_bytes(core.links.key_at(index), b"+OK\r\n").unwrap();
            }
        }
        text.replace("*1 $8 READONLY ", "").replace("*1 $9 READWRITE ", "")
    })
}

/// The port of the one server that was sent something.
fn sent_to(core: &mut Core) -> u16 {
    let sent = sent(core);
    let ports: Vec<u16> =
        (1..).zip(&sent).filter(|(_, it)| !it.is_empty()).map(|it| it.0).collect();
    assert_eq!(ports.len(), 1, "{sent:?}");
    ports[0]
}

fn hear(core: &mut Core, port: u16, reply: &str) {
    let index = link(core, port);
    core.on_backend_bytes(core.links.key_at(index), reply.as_bytes()).unwrap();
}

fn lose(core: &mut Core, port: u16) {
    let index = link(core, port);
    core.on_link_lost(core.links.key_at(index), BackendFault::Closed);
}

fn is_quiet(core: &Core) -> bool {
    core.plane.cluster.hedges.hedges.is_empty()
}

/// A read that two servers were sent: the client, the first and the second.
fn hedged(core: &mut Core) -> (Key<Session>, u16, u16) {
    let client = client(core);
    core.on_client_bytes(client, b"GET a\r\n");
    let first = sent_to(core);
    pass(core, 10);
    assert_eq!(sent(core).concat(), "", "it is not time");
    pass(core, 11);
    let second = sent_to(core);
    assert_ne!(first, second);
    (client, first, second)
}

fn plain() -> Core {
    core(ReadFrom::PreferReplica, 100, None)
}

#[test]
fn a_read_behind_what_makes_its_connection_one_to_a_replica_has_a_timeout() {
    let mut core = plain();
    let timeout = core.plane.link_options(0).timeout.unwrap();
    for millis in [10, 20] {
        pass(&mut core, millis);
        core.plane.next_deadline = None;
        let client = client(&mut core);
        core.on_client_bytes(client, b"GET a\r\n");
        let due = core.plane.next_deadline;
        assert!(due.is_some_and(|due| due <= core.clock().now + timeout), "{due:?}");
        let port = sent_to(&mut core);
        hear(&mut core, port, "$1\r\nx\r\n");
    }
}

#[test]
fn the_first_answer_is_told_and_the_other_is_not() {
    for late_is_first in [false, true] {
        let mut core = plain();
        let (client, first, second) = hedged(&mut core);
        let (early, late) = if late_is_first { (second, first) } else { (first, second) };
        hear(&mut core, early, "$1\r\nx\r\n");
        assert_eq!(output(&core, client), r"$1\r\nx\r\n");
        assert!(is_quiet(&core));
        hear(&mut core, late, "$1\r\ny\r\n");
        assert_eq!(output(&core, client), r"$1\r\nx\r\n");
        pass(&mut core, 1000);
        assert_eq!(sent(&mut core).concat(), "", "no read is sent three times");
    }
}

#[test]
fn replies_keep_their_order_whichever_come_first() {
    let mut core = plain();
    let client = client(&mut core);
    core.on_client_bytes(client, b"GET a\r\nGET b\r\nMGET c\r\n");
    assert_eq!(sent(&mut core)[0], "", "replicas are read in turns");
    pass(&mut core, 11);
    let seconds = sent(&mut core);
    assert_eq!(seconds.concat().matches("GET").count(), 3, "{seconds:?}");
    for port in [3, 2] {
        let asked = seconds[usize::from(port) - 1].clone();
        let count = asked.matches("GET").count();
        // The first request to the server, and then the request to it as the second server.
        for _ in 0..3 - count {
            hear(&mut core, port, "$5\r\nfirst\r\n");
        }
    }
    let replies = output(&core, client);
    assert_eq!(replies, r"$5\r\nfirst\r\n".repeat(3));
    assert!(is_quiet(&core));
}

#[test]
fn what_a_server_says_of_itself_is_not_told_while_the_other_may_answer() {
    for said in ["-LOADING x", "-MOVED 15495 h:1", "-OOM x", "-BUSY x", "-NOPERM x"] {
        for errs_first in [true, false] {
            let mut core = plain();
            let (client, first, second) = hedged(&mut core);
            let (bad, good) = if errs_first { (first, second) } else { (second, first) };
            hear(&mut core, bad, &format!("{said}\r\n"));
            assert_eq!(output(&core, client), "", "{said}");
            assert_eq!(sent(&mut core).concat().matches("GET").count(), 0, "{said}");
            hear(&mut core, good, "$1\r\nx\r\n");
            assert_eq!(output(&core, client), r"$1\r\nx\r\n", "{said}");
            assert!(is_quiet(&core));
        }
    }
}

#[test]
fn an_error_of_the_request_is_told_at_once_and_any_when_the_other_has_failed() {
    let mut core = plain();
    let (client, first, second) = hedged(&mut core);
    hear(&mut core, second, "-WRONGTYPE x\r\n");
    assert_eq!(output(&core, client), r"-WRONGTYPE x\r\n");
    hear(&mut core, first, "$1\r\nx\r\n");
    assert_eq!(output(&core, client), r"-WRONGTYPE x\r\n");

    let mut core = plain();
    let (client, first, second) = hedged(&mut core);
    hear(&mut core, first, "-BUSY x\r\n");
    hear(&mut core, second, "-OOM x\r\n");
    assert_eq!(output(&core, client), r"-OOM x\r\n");
    assert!(is_quiet(&core));

    let mut core = plain();
    let (client, first, second) = hedged(&mut core);
    hear(&mut core, first, "-BUSY x\r\n");
    hear(&mut core, second, "-MOVED 15495 h:1\r\n");
    assert_eq!(sent_to(&mut core), 1, "the last one left is sent on");
    hear(&mut core, 1, "$1\r\nx\r\n");
    assert_eq!(output(&core, client), r"$1\r\nx\r\n");
}

#[test]
fn a_lost_connection_is_told_when_both_are_lost() {
    for second_is_lost_first in [false, true] {
        for both in [false, true] {
            let mut core = plain();
            let (client, first, second) = hedged(&mut core);
            let (bad, good) = if second_is_lost_first { (second, first) } else { (first, second) };
            lose(&mut core, bad);
            assert_eq!(output(&core, client), "");
            match both {
                true => lose(&mut core, good),
                false => hear(&mut core, good, "$1\r\nx\r\n"),
            }
            let told = output(&core, client);
            assert_eq!(told.starts_with(r"$1\r\nx\r\n"), !both, "{told}");
            assert_eq!(told.matches(r"\r\n").count(), if both { 1 } else { 2 }, "{told}");
            assert!(is_quiet(&core));
        }
    }
}

#[test]
fn the_time_of_the_whole_is_that_of_the_first() {
    let mut core = plain();
    let (client, first, second) = hedged(&mut core);
    pass(&mut core, 1001);
    let told = output(&core, client);
    assert!(told.starts_with("-ERR") && told.contains("in time"), "{told}");
    hear(&mut core, second, "$1\r\nx\r\n");
    hear(&mut core, first, "$1\r\ny\r\n");
    assert_eq!(output(&core, client), told);
    assert!(is_quiet(&core));
}

#[test]
fn reads_that_may_not_be_sent_twice_are_not() {
    for lines in [
        "SET a 1\r\n",
        // Its reply would be as if it came behind the write.
        "GET a\r\nSET a 1\r\n",
        "GET a\r\nMULTI\r\nSET a 1\r\nEXEC\r\n",
        "HSCAN a 0\r\n",
        "CLIENT REPLY OFF\r\nGET a\r\n",
        "SCAN 0\r\n",
        "INCR a\r\n",
    ] {
        let mut core = plain();
        let client = client(&mut core);
        core.on_client_bytes(client, lines.as_bytes());
        sent(&mut core);
        pass(&mut core, 500);
        assert_eq!(sent(&mut core).concat(), "", "{lines}");
        assert!(is_quiet(&core));
    }
}

#[test]
fn a_cursor_goes_to_the_server_that_gave_it() {
    let mut core = plain();
    let client = client(&mut core);
    for line in ["HSCAN a 0\r\n", "SSCAN a 7\r\n", "ZSCAN a 9\r\n"] {
        core.on_client_bytes(client, line.as_bytes());
        assert_eq!(sent_to(&mut core), 1, "{line}");
    }
}

#[test]
fn nobody_is_sent_what_policy_health_or_the_budget_forbid() {
    // If only replicas are read, one is left, and then none.
    let mut core = core(ReadFrom::Replica, 100, None);
    let (_, first, second) = hedged(&mut core);
    assert!(first > 1 && second > 1);
    lose(&mut core, second);
    let reader = client(&mut core);
    core.on_client_bytes(reader, b"GET b\r\n");
    sent(&mut core);
    pass(&mut core, 30);
    assert_eq!(sent(&mut core)[0], "", "the primary is not read");

    let mut core = self::core(ReadFrom::PreferReplica, 1, None);
    let clients: Vec<_> = (0..50).map(|_| client(&mut core)).collect();
    for &client in &clients {
        core.on_client_bytes(client, b"GET a\r\n");
    }
    sent(&mut core);
    pass(&mut core, 11);
    assert_eq!(sent(&mut core).concat().matches("GET").count(), 1, "one in any case");
    let totals = &core.plane.cluster_state(0).unwrap().shared.totals;
    assert_eq!((totals.hedged.load(Relaxed), totals.hedges_refused.load(Relaxed)), (1, 49));
}

#[test]
fn a_lost_read_goes_to_another_server_once_and_a_write_does_not() {
    let mut core = plain();
    let client = client(&mut core);
    core.on_client_bytes(client, b"GET a\r\n");
    let first = sent_to(&mut core);
    lose(&mut core, first);
    assert_eq!(output(&core, client), "");
    let second = sent_to(&mut core);
    assert_ne!(first, second);
    pass(&mut core, 100);
    assert_eq!(sent(&mut core).concat(), "", "it was sent twice");
    lose(&mut core, second);
    let told = output(&core, client);
    assert!(told.starts_with("-ERR"), "{told}");

    let mut core = plain();
    let writer = self::client(&mut core);
    core.on_client_bytes(writer, b"GET a\r\nSET a 1\r\n");
    sent(&mut core);
    [2, 3, 1].into_iter().for_each(|port| lose(&mut core, port));
    let told = output(&core, writer);
    assert_eq!(told.matches("-ERR").count(), 2, "{told}");
}

#[test]
fn a_budget_for_retries_bounds_what_is_sent_again() {
    let mut core = core(ReadFrom::PreferReplica, 100, Some(1));
    let clients: Vec<_> = (0..60).map(|_| client(&mut core)).collect();
    for &client in &clients {
        core.on_client_bytes(client, b"GET a\r\n");
    }
    sent(&mut core);
    lose(&mut core, 2);
    assert_eq!(sent(&mut core).concat().matches("GET").count(), 10);
    let failed = clients.iter().filter(|&&it| output(&core, it).starts_with("-ERR")).count();
    assert_eq!(failed, 20);
    // A request that a server does not take also uses the budget.
    hear(&mut core, 3, "-LOADING x\r\n");
    let loading = clients.iter().filter(|&&it| output(&core, it).starts_with("-LOADING")).count();
    assert_eq!(loading, 1);
}
