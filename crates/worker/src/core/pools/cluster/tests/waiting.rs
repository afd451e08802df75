//! Requests that wait for a server, an owner or a primary.

use super::*;
use crate::core::pools::cluster::state::Wait;
use crate::core::tests::plan_of;
use keyway_net::ConnectFault;
use keyway_topology::Pool;

/// Nobody has the slots of the second server.
const HOLE: &[(u16, u16, u16)] = &[(0, 8191, 1)];

#[test]
fn who_asks_for_a_slot_that_nobody_has_waits_until_somebody_has_it() {
    let mut core = core();
    let client = client(&mut core);
    learn(&mut core, HOLE);
    // Later requests wait as well, which keeps the order.
    ask(&mut core, client, "GET a\r\nGET b\r\n");
    pass_to(&mut core, 500);
    core.tend_clusters();
    core.resume_sessions(&mut Vec::new());
    let sent = send(&mut core, 1);
    assert!(sent.contains("CLUSTER") && !sent.contains("GET"), "the cluster is asked: {sent}");
    learn(&mut core, &[(0, 8191, 1), (8192, 16383, 2)]);
    core.resume_sessions(&mut Vec::new());
    assert!(send(&mut core, 2).contains(r"\na\r"));
    assert!(send(&mut core, 1).contains(r"\nb\r"));
    assert_eq!(output(&core, client), "");
    assert_eq!(totals(&core), (0, 0, 0));
}

#[test]
fn who_asks_for_a_slot_that_nobody_has_gets_an_error_when_the_time_is_up() {
    let mut core = core();
    let client = client(&mut core);
    learn(&mut core, HOLE);
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.tend_clusters();
        core.resume_sessions(&mut Vec::new());
        output(core, client).matches("CLUSTERDOWN").count()
    };
    // A pipeline waits once.
    ask(&mut core, client, "MGET a b\r\nGET a\r\n");
    assert_eq!(told_at(&mut core, 900), 0);
    assert_eq!(told_at(&mut core, 1001), 2);
    assert_eq!(told_at(&mut core, 1500), 2);
    ask(&mut core, client, "GET a\r\n");
    assert_eq!(told_at(&mut core, 2400), 2);
    assert_eq!(told_at(&mut core, 2501), 3);
}

#[test]
fn a_command_whose_key_has_no_server_is_refused_in_a_transaction_in_the_words_of_outside() {
    let crowded = &[(0, 4095, 1), (4096, 8191, 2), (8192, 12287, 3), (12288, 16383, 4)];
    for (owners, words) in
        [(HOLE, "-CLUSTERDOWN Hash slot not served"), (crowded, "-ERR nodes_max in [pool.")]
    {
        let mut core = core();
        let client = client(&mut core);
        learn(&mut core, owners);
        ask(&mut core, client, "MULTI\r\nSET a 1\r\nSPUBLISH a x\r\nEXEC\r\n");
        let told = output(&core, client);
        assert_eq!(told.matches(words).count(), 2, "{told}");
        assert!(told.contains("-EXECABORT"), "{told}");
        pass_to(&mut core, 1100);
        ask(&mut core, client, "GET a\r\n");
        pass_to(&mut core, 2300);
        core.tend_clusters();
        core.resume_sessions(&mut Vec::new());
        assert_eq!(output(&core, client).matches(words).count(), 3, "{words}");
    }
}

#[test]
fn a_request_that_waits_for_a_server_waits_no_longer_when_the_worker_looks_late() {
    let mut core = core();
    let client = client(&mut core);
    learn(&mut core, HOLE);
    ask(&mut core, client, "GET a\r\n");
    pass_to(&mut core, 1500);
    core.tend_clusters();
    core.resume_sessions(&mut Vec::new());
    assert_eq!(output(&core, client).matches("CLUSTERDOWN").count(), 1);
}

#[test]
fn a_request_that_waits_for_a_server_is_refused_at_its_time_and_not_at_the_next_upkeep() {
    let mut core = core();
    let client = client(&mut core);
    learn(&mut core, HOLE);
    ask(&mut core, client, "GET a\r\n");
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.end_overdue_waits_for_maps();
        core.resume_sessions(&mut Vec::new());
        output(core, client).matches("CLUSTERDOWN").count()
    };
    assert_eq!(told_at(&mut core, 999), 0);
    let due = core.plane.next_deadline;
    assert!(due.is_some_and(|due| due <= Time(1_000_000_000)), "{due:?}");
    assert_eq!(told_at(&mut core, 1000), 1);
}

#[test]
fn a_command_with_a_connection_of_its_own_waits_for_a_primary_that_cannot_be_reached() {
    for words in ["BLPOP a 0\r\n", "WATCH a\r\n", "WAIT 1 0\r\n"] {
        let mut core = core_of(ReadPolicy::default(), Some(Duration::from_secs(3)));
        learn(&mut core, &[(0, 16383, 1)]);
        let client = client(&mut core);
        ask(&mut core, client, words);
        let index = link(&core, 1);
        assert_eq!(core.plane.upstream.connects, [core.links.key_at(index)], "{words}");
        core.plane.upstream.connects.clear();
        core.on_connecting(core.links.key_at(index));
        core.on_connect_failed(core.links.key_at(index), ConnectFault::Refused);
        for millis in [10, 1500] {
            pass_to(&mut core, millis);
            core.resume_sessions(&mut Vec::new());
            assert_eq!((output(&core, client), core.leases()), (String::new(), 0), "{words}");
        }
        learn(&mut core, &[(0, 16383, 2)]);
        core.resume_sessions(&mut Vec::new());
        connect(&mut core, 2);
        core.resume_sessions(&mut Vec::new());
        assert_eq!((output(&core, client), core.leases()), (String::new(), 1), "{words}");
    }
}

#[test]
fn a_short_wait_for_a_primary_ends_no_request_earlier_than_without_it() {
    let short = Some(Duration::from_millis(20));
    let mut core = core_of(ReadPolicy::default(), short);
    let client = client(&mut core);
    ask(&mut core, client, "SET a 1\r\n");
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.end_overdue_waits_for_maps();
        core.resume_sessions(&mut Vec::new());
        output(core, client)
    };
    assert_eq!(told_at(&mut core, 500), "", "the first map is waited for");
    learn(&mut core, &[(0, 16383, 1)]);
    assert_eq!(told_at(&mut core, 510), "");
    let index = link(&core, 1);
    assert_eq!(core.plane.upstream.connects, [core.links.key_at(index)]);
    core.on_connecting(core.links.key_at(index));
    assert_eq!(told_at(&mut core, 600), "", "the first connection is waited for");
    core.on_connect_failed(core.links.key_at(index), ConnectFault::Refused);
    assert!(told_at(&mut core, 700).contains("waited"), "the primary is gone");
}

#[test]
fn a_request_that_is_sent_when_its_wait_is_over_leaves_the_next_one_a_wait_of_its_own() {
    let mut core = core_of(ReadPolicy::default(), Some(Duration::from_secs(3)));
    learn(&mut core, &[(0, 16383, 1)]);
    connect(&mut core, 1);
    let (client, index) = (client(&mut core), link(&core, 1));
    core.on_link_lost(core.links.key_at(index), BackendFault::Closed);
    ask(&mut core, client, "SET a 1\r\n");
    pass_to(&mut core, 3001);
    connect(&mut core, 1);
    core.resume_sessions(&mut Vec::new());
    assert!(send(&mut core, 1).contains("SET"));
    hear(&mut core, 1, "+OK\r\n");
    core.on_link_lost(core.links.key_at(index), BackendFault::Closed);
    ask(&mut core, client, "SET a 2\r\n");
    for millis in [3010, 5000] {
        pass_to(&mut core, millis);
        core.resume_sessions(&mut Vec::new());
        assert_eq!(output(&core, client), r"+OK\r\n");
    }
    pass_to(&mut core, 7000);
    core.resume_sessions(&mut Vec::new());
    assert!(output(&core, client).contains("waited"), "{}", output(&core, client));
}

#[test]
fn a_client_that_waits_for_room_waits_for_the_primary_when_its_connection_is_lost() {
    let mut kind = cluster_of(ReadPolicy::default(), Some(Duration::from_secs(3)));
    let PoolKind::Cluster(pool) = &mut kind else { panic!("a cluster") };
    let options = &mut pool.servers.options;
    (options.timeout, options.link_in_flight_max) = (Duration::MAX, 16);
    let mut core = core_of_kind(kind);
    learn(&mut core, &[(0, 16383, 1)]);
    connect(&mut core, 1);
    let (client, index) = (client(&mut core), link(&core, 1));
    ask(&mut core, client, "SET a 1\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, "+OK\r\n");
    ask(&mut core, client, &"SET a 1\r\n".repeat(17));
    send(&mut core, 1);
    assert_eq!(core.links[index].waiting, [client], "there is no room for the last request");
    core.on_link_lost(core.links.key_at(index), BackendFault::Closed);
    assert_eq!(core.links[index].link.in_flight(), 0);
    core.resume_sessions(&mut Vec::new());
    assert_eq!(
        core.plane.upstream.connects,
        [core.links.key_at(index)],
        "the worker sees to the link"
    );
    core.plane.upstream.connects.clear();
    core.on_connecting(core.links.key_at(index));
    core.on_connect_failed(core.links.key_at(index), ConnectFault::Refused);
    pass_to(&mut core, 3001);
    core.handle_timeouts(&mut Vec::new());
    core.resume_sessions(&mut Vec::new());
    assert!(output(&core, client).contains("waited"), "the wait has an end");
}

#[test]
fn a_request_put_aside_is_sent_once_more_when_its_worker_drains_and_then_answered() {
    for (reply, told) in [("-TRYAGAIN once more\r\n", "-TRYAGAIN once more"), ("+OK\r\n", "+OK")] {
        let mut core = core();
        let client = client(&mut core);
        ask(&mut core, client, "SET b 1\r\n");
        send(&mut core, 1);
        hear(&mut core, 1, "-TRYAGAIN it\r\n");
        assert_eq!(output(&core, client), "", "the next try is to come");
        core.end_waits_for_primaries();
        core.send_retries();
        assert!(send(&mut core, 1).contains("SET"), "without a pause");
        hear(&mut core, 1, reply);
        assert_eq!(output(&core, client), format!(r"{told}\r\n"));
    }
}

#[test]
fn who_waits_for_an_owner_is_remembered_no_longer_than_its_client_stays() {
    let mut core = core();
    // Slot 15495 is nobody's.
    learn(&mut core, &[(0, 8191, 1)]);
    for words in ["GET a\r\n", "PUBLISH a x\r\n", "SPUBLISH a x\r\n", "DEL a b\r\n"] {
        for _ in 0..100 {
            let one = client(&mut core);
            ask(&mut core, one, words);
            assert_eq!(output(&core, one), "", "{words} waits");
            assert_eq!(core.plane.cluster.unowned.len(), 1, "{words}");
            core.remove_session(one, None);
            assert_eq!(core.plane.cluster.unowned.len(), 0, "{words}");
        }
        core.end_waits_for_maps();
        assert_eq!(core.plane.cluster.waiting.len(), 0, "{words}");
    }
    // A client that stays is remembered once, whatever it asks for.
    let one = client(&mut core);
    ask(&mut core, one, &"PUBLISH a x\r\n".repeat(50));
    for _ in 0..10 {
        core.end_waits_for_maps();
        core.resume_sessions(&mut Vec::new());
    }
    assert_eq!((core.plane.cluster.unowned.len(), core.plane.cluster.waiting.len()), (1, 1));
    learn(&mut core, &[(0, 16383, 1)]);
    core.resume_sessions(&mut Vec::new());
    assert_eq!(send(&mut core, 1).matches("PUBLISH").count(), 50);
    assert_eq!(core.plane.cluster.waiting.len(), 0);
    pass_to(&mut core, 60_000);
    core.end_waits_for_maps();
    assert_eq!(core.plane.cluster.unowned.len(), 0);
}

#[test]
fn a_client_that_waits_for_a_primary_waits_on_in_the_pool_that_replaces_its_own() {
    let seconds = Duration::from_secs;
    let pools = ["old", "new"].map(|name| Pool {
        name: name.to_owned(),
        kind: cluster_of(ReadPolicy::default(), Some(seconds(5))),
    });
    let (mut plan, cells) = plan_of(pools.into());
    Arc::get_mut(&mut plan).unwrap().retired.push(crate::Retired {
        pool: 0,
        generation: 1,
        is_replaced: true,
        until: Time(0) + seconds(60),
        left: Arc::default(),
    });
    let mut core = Core::new(plan, cells, 1);
    let client = client(&mut core);
    let state = core.plane.cluster_state(1).map(|state| Arc::clone(&state.shared));
    let wait = Wait::new(Time(0), 0, seconds(1), Duration::ZERO, state.as_ref());
    core.plane.cluster.unowned.insert(client.to_bits(), wait);
    assert!(core.plane.waited_in_vain(client).is_some(), "its own pool has ended");
    core.plane.bring_wait(client, 1);
    assert!(core.plane.waited_in_vain(client).is_none());
    core.plane.clock.now = Time(0) + seconds(5);
    assert!(core.plane.waited_in_vain(client).is_some(), "no longer than it would have");
}
