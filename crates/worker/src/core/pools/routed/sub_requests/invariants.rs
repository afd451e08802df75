use super::*;
use crate::core::tests::{output, pass_to, plan_of};
use keyway_net::Socket;
use keyway_topology::{
    FailoverPool, MirrorPool, Pool, PoolKind, RoutedPool, Server, ServerSet, Wait,
};
use std::time::Duration;

const TIMEOUT: u64 = 100;

/// The links of the two pools that are led to; each server has a shared one per protocol, and as
/// many for large values.
const FIRST: usize = 0;
const SECOND: usize = 6;

/// A core with a pool that leads to two with a server each. The link to the first has room for two
/// requests.
fn core(leading: RoutedPool) -> Core {
    let leaf = |name: &str, in_flight_max| {
        let mut pool = ServerSet::new(vec![Server::parse("127.0.0.1:9:1 it").unwrap()]);
        pool.options.timeout = Duration::from_millis(TIMEOUT);
        pool.options.link_in_flight_max = in_flight_max;
        Pool { name: name.to_owned(), kind: PoolKind::Sharded(pool) }
    };
    let top = Pool { name: "top".to_owned(), kind: PoolKind::Routed(leading) };
    let (plan, cells) = plan_of(vec![leaf("first", 2), leaf("second", 100), top]);
    let mut core = Core::new(plan, cells, 1);
    for index in [FIRST, SECOND] {
        core.on_connecting(core.links.key_at(index));
        core.on_connected(core.links.key_at(index), Socket(index as i32));
    }
    assert_eq!(core.links[SECOND].server_id.pool, 1);
    core
}

fn turn(core: &mut Core, millis: u64) {
    pass_to(core, millis);
    core.resume_sessions(&mut Vec::new());
    if core.plane.routes.has_steps() {
        core.continue_routes();
    }
}

fn play(leading: RoutedPool, request: &[u8]) -> (Core, usize) {
    let mut core = core(leading);
    let client = core.add_session(2, 0, Identity::new(1, true, Time(0)));
    core.on_client_bytes(client, &request.repeat(10));
    for millis in [0, 1, TIMEOUT - 1] {
        turn(&mut core, millis);
    }
    assert_eq!(core.links[FIRST].link.in_flight(), 2);
    // The turns of one moment.
    (0..3).for_each(|_| turn(&mut core, TIMEOUT));
    let told = output(&core, client).matches(r"\r\n").count();
    (core, told)
}

#[test]
fn requests_that_wait_behind_a_stalled_one_are_refused_by_their_own_time() {
    let failover = FailoverPool { children: vec![0, 1], gutter: None };
    let (core, _) = play(RoutedPool::Failover(failover), b"GET a\r\n");
    assert_eq!(core.links[SECOND].link.in_flight(), 10, "all go on to the second child");
    let mirror = MirrorPool { children: vec![0, 1], read_from: 0, wait: Wait::All };
    let (_, told) = play(RoutedPool::Mirror(mirror), b"SET a 1\r\n");
    assert_eq!(told, 10, "neither child answers any in time");
}

#[test]
fn a_client_that_finds_no_room_among_routed_requests_is_told_within_the_timeout() {
    for (listener, expected) in [(2, 0), (2, 1)] {
        let mut core =
            core(RoutedPool::Failover(FailoverPool { children: vec![0, 1], gutter: None }));
        let client = core.add_session(listener, 0, Identity::new(1, true, Time(0)));
        // As much is held as may be.
        core.plane.routes.held = usize::MAX / 2;
        core.on_client_bytes(client, b"GET a\r\nGET b\r\n");
        assert_eq!(core.plane.routes.waiting.len(), 1);
        turn(&mut core, TIMEOUT - 1);
        core.release_crowded();
        assert_eq!(output(&core, client), "");
        if expected == 0 {
            core.plane.routes.held = 0;
        }
        pass_to(&mut core, TIMEOUT);
        core.release_crowded();
        core.resume_sessions(&mut Vec::new());
        let told = output(&core, client);
        let refused = told.matches("; the request was not sent").count();
        assert_eq!(refused, 2 * expected, "{told}");
        assert_eq!(core.plane.pending.count::<RoutedRequest>(), 2 - 2 * expected);
        assert!(core.plane.routes.waiting.is_empty());
    }
}
