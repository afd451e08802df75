use super::*;
use crate::{ListenerPlan, PoolKind, PoolPlan};
use keyway_base::{BackendFault, Limits};
use keyway_metrics::{Layout, PoolLayout, Registry};
use keyway_net::ConnectFault;
use keyway_net::Socket;
use keyway_proxy::Identity;
use keyway_proxy::local::{ClientRegistry, Facts};
use keyway_topology::{
    Ejection, Epoch, FailureReason, FailureTimes, HealthBoard, HealthState, Pool,
    PoolKind as TopologyKind, Rejoin, Server, ServerOptions, ServerSet, Topology,
};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

struct NoFacts;

impl Facts for NoFacts {
    fn info(&self, _pool: u16, _poses: bool, _sections: &[&str], _out: &mut String) {}
    fn settings(&self, _pool: u16) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Returns a core with one pool of one server, whose link is connected.
pub(super) fn connected_core() -> Core {
    connected_core_with(|_| ())
}

pub(super) fn connected_core_with(change: impl FnOnce(&mut ServerOptions)) -> Core {
    let mut core = core_with(change);
    core.on_connecting(core.links.key_at(0));
    core.on_connected(core.links.key_at(0), Socket(1));
    core
}

/// Returns a core with one pool of one server, without a connection.
pub(super) fn core_with(change: impl FnOnce(&mut ServerOptions)) -> Core {
    let (plan, cells) = plan_with(change);
    Core::new(plan, cells, 1)
}

/// Returns what a worker starts from: a plan with one pool of one server.
pub(crate) fn plan_with(change: impl FnOnce(&mut ServerOptions)) -> (Arc<Plan>, WorkerCells) {
    let server = Server::parse("127.0.0.1:1:1 alpha").unwrap();
    let mut pool = ServerSet::new(vec![server]);
    change(&mut pool.options);
    plan_of(vec![Pool { name: "pool".to_owned(), kind: TopologyKind::Sharded(pool) }])
}

/// Returns a core with one pool of this kind, without connections.
pub(super) fn core_of_kind(kind: TopologyKind) -> Core {
    let (plan, cells) = plan_of(vec![Pool { name: "pool".to_owned(), kind }]);
    Core::new(plan, cells, 1)
}

/// Returns the plan of these pools, with servers or leading to others. The first one has a
/// listener.
pub(super) fn plan_of(pools: Vec<Pool>) -> (Arc<Plan>, WorkerCells) {
    let topology = Arc::new(Topology::new(Epoch(1), pools.clone()));
    let registry = Registry::new(Layout {
        classes: &[""; keyway_command::Class::ALL.len()],
        commands: &keyway_command::COUNTED_NAMES,
        pools: pools
            .iter()
            .map(|pool| PoolLayout {
                name: pool.name.clone(),
                backends: vec!["alpha".to_owned(); pool.servers().len()],
                is_retired: false,
            })
            .collect(),
        workers_max: 1,
        version: "0",
        start_unix_micros: 0,
    });
    let plan = Plan {
        generation: 1,
        retired: Vec::new(),
        followers: Default::default(),
        limits: Limits::default(),
        listeners: vec![ListenerPlan {
            is_ended: false,
            pool: 0,
            name: Arc::default(),
            users: Arc::new(keyway_users::Users::plain(None)),
            memcached: None,
            cluster: None,
            read_from: None,
            access: crate::ListenerAccess::default(),
        }],
        user_reads: Vec::new(),
        pools: pools.iter().map(|pool| Arc::new(pool_plan(pool, &pools))).collect(),
        health: Arc::new(HealthBoard::new(&topology)),
        topology,
        clients: Arc::new(ClientRegistry::default()),
        facts: Arc::new(NoFacts),
        next_client_id: Arc::new(AtomicU64::new(1)),
        mailers: Arc::default(),
        relief: Arc::default(),
        drain_timeout: Duration::from_secs(1),
        spin: Duration::ZERO,
        notices: Arc::default(),
        transactions: Arc::new(keyway_proxy::QueueBudget::new(
            Limits::default().transactions_len_max,
        )),
        channels: Arc::default(),
        handouts: Arc::default(),
        invalidations: Arc::default(),
        monitors: Arc::default(),
        redirects: Arc::default(),
    };
    // Every server has answered, so that none gets a first look.
    for id in plan.health.unknown().collect::<Vec<_>>() {
        plan.health.note_success(id);
    }
    (Arc::new(plan), registry.start_worker().unwrap())
}

fn pool_plan(pool: &Pool, pools: &[Pool]) -> PoolPlan {
    PoolPlan {
        name: pool.name.clone(),
        databases: 1,
        clients_max: 0,
        pause: crate::Pause::default(),
        errors: Arc::default(),
        key_stats: Arc::default(),
        slow_log: Arc::default(),
        scripts: Arc::default(),
        role: Default::default(),
        notices: Default::default(),
        kind: PoolKind::new(&pool.kind, pools, Time(0), None, || panic!("a plan without stores")),
    }
}

/// Lets time pass to `millis` after zero, and handles its timeouts.
pub(super) fn pass_to(core: &mut Core, millis: u64) -> Vec<(ConnectionKey, BackendFault)> {
    core.set_clock(Clock { now: Time(millis * 1_000_000), unix_micros: millis * 1000 });
    let mut dead = Vec::new();
    if core.plane.next_deadline.is_some_and(|deadline| deadline <= core.clock().now) {
        core.handle_timeouts(&mut dead);
        core.end_overdue_waits();
    }
    dead
}

pub(super) fn client(core: &mut Core) -> Key<Session> {
    core.add_session(0, 0, Identity::new(1, true, Time(0)))
}

pub(super) fn output(core: &Core, client: Key<Session>) -> String {
    let busy = core.session(client).and_then(|session| session.busy.as_ref());
    busy.map_or(String::new(), |busy| busy.output.unsent().escape_ascii().to_string())
}

#[test]
fn skip_leaves_out_one_reply_whoever_gives_it() {
    for (skipped, backend) in [("GET a", "$1\r\na\r\n"), ("ECHO a", ""), ("NONESUCH", "")] {
        let mut core = connected_core();
        let client = client(&mut core);
        // The second SKIP applies to the request after it, as the first did.
        let lines = format!("CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\n{skipped}\r\nGET b\r\n");
        core.on_client_bytes(client, lines.as_bytes());
        core.on_backend_bytes(core.links.key_at(0), format!("{backend}$1\r\nb\r\n").as_bytes())
            .unwrap();
        assert_eq!(output(&core, client), r"$1\r\nb\r\n", "{skipped}");
    }
}

#[test]
fn nothing_said_of_a_lost_connection_is_taken_for_its_successor() {
    let mut core = connected_core();
    core.on_link_lost(core.links.key_at(0), BackendFault::Closed);
    core.on_connecting(core.links.key_at(0));
    let given_up = core.links[0].generation;
    core.on_link_lost(core.links.key_at(0), BackendFault::Connect);
    assert_ne!(core.links[0].generation, given_up);
}

#[test]
fn a_client_that_waits_for_a_link_goes_on_when_what_it_waits_behind_expires() {
    for stands in [false, true] {
        let mut core = core_with(|pool| {
            pool.link_in_flight_max = 4;
            pool.timeout = Duration::from_millis(100);
            pool.connect_timeout = Duration::from_secs(1);
        });
        let client = client(&mut core);
        core.on_client_bytes(client, b"GET a\r\n".repeat(6).as_slice());
        core.on_connecting(core.links.key_at(0));
        assert_eq!(core.links[0].waiting.len(), 1, "the queue is full");
        if stands {
            // They are late, so that nothing is left to send.
            core.links[0].waiting.clear();
            pass_to(&mut core, 100);
            core.links[0].waiting.push(client);
            core.on_connected(core.links.key_at(0), Socket(1));
        } else {
            pass_to(&mut core, 100);
        }
        assert!(core.links[0].waiting.is_empty());
        let mut unread = Vec::new();
        core.resume_sessions(&mut unread);
        // The new connection also has a PING, because the server had failed.
        let queued = core.links[0].link.in_flight() - usize::from(stands);
        assert_eq!(queued, 2, "its other requests are queued");
    }
}

pub(super) fn with_ejection(pool: &mut ServerOptions) {
    pool.timeout = Duration::from_millis(100);
    pool.ejection =
        Some(Ejection { after_failures: 3, for_: Duration::from_secs(30), rejoin: Rejoin::Serve });
}

fn health(core: &Core) -> HealthState {
    core.plane.plan.health.state(core.links[0].id)
}

#[test]
fn one_stall_is_one_failure_however_many_requests_expire() {
    let mut core = connected_core_with(with_ejection);
    let client = client(&mut core);
    for wave in 0..5 {
        pass_to(&mut core, wave * 10);
        core.on_client_bytes(client, b"GET a\r\n".repeat(10).as_slice());
    }
    for millis in [100, 110, 120, 130, 140, 199] {
        pass_to(&mut core, millis);
    }
    assert_eq!(core.links[0].link.live(), 0, "all have expired");
    assert_eq!(health(&core), HealthState::Failing);
    core.on_backend_bytes(core.links.key_at(0), b"$1\r\na\r\n".repeat(50).as_slice()).unwrap();
    assert_eq!(health(&core), HealthState::Failing, "late replies are no success");
    core.on_client_bytes(client, b"GET a\r\n");
    core.on_backend_bytes(core.links.key_at(0), b"$1\r\na\r\n").unwrap();
    assert_eq!(health(&core), HealthState::Up);
}

#[test]
fn a_server_that_answers_always_late_is_ejected() {
    let mut core = connected_core_with(with_ejection);
    let client = client(&mut core);
    for round in 0..3 {
        assert_eq!(health(&core).is_usable(), round < 3);
        core.on_client_bytes(client, b"GET a\r\n");
        pass_to(&mut core, 150 * round + 100);
        pass_to(&mut core, 150 * round + 150);
        core.on_backend_bytes(core.links.key_at(0), b"$1\r\na\r\n").unwrap();
    }
    assert_eq!(health(&core), HealthState::Ejected);
}

#[test]
fn a_server_that_stays_silent_is_ejected_after_as_many_rounds_as_failures() {
    let mut core = connected_core_with(with_ejection);
    let client = client(&mut core);
    for round in 0..3 {
        assert_eq!(health(&core).is_usable(), round < 3);
        core.on_client_bytes(client, b"GET a\r\nGET b\r\n");
        pass_to(&mut core, 100 * (round + 1));
    }
    assert_eq!(health(&core), HealthState::Ejected);
}

#[test]
fn want_of_descriptors_on_our_side_is_no_failure_of_the_server() {
    for (fault, expected) in
        [(ConnectFault::Exhausted, HealthState::Up), (ConnectFault::Refused, HealthState::Ejected)]
    {
        let mut core = core_with(with_ejection);
        let client = client(&mut core);
        for attempt in 0..3 {
            pass_to(&mut core, 10_000 * (attempt + 1));
            core.on_client_bytes(client, b"GET a\r\n");
            core.on_connecting(core.links.key_at(0));
            core.on_connect_failed(core.links.key_at(0), fault);
            // They are refused at once while the link is down, without an attempt of their own.
            core.on_client_bytes(client, b"GET a\r\nGET a\r\n");
            assert!(attempt == 2 || health(&core).is_usable());
        }
        assert_eq!(health(&core), expected, "{fault:?}");
    }
}

#[test]
fn connections_that_end_together_are_one_failure() {
    let mut core = connected_core_with(with_ejection);
    let clients: Vec<_> = (0..5).map(|_| client(&mut core)).collect();
    for &client in &clients {
        core.on_client_bytes(client, b"BLPOP q 0\r\n");
    }
    let private: Vec<usize> =
        (0..core.links.len()).filter(|&index| core.links[index].is_private).collect();
    assert_eq!(private.len(), clients.len());
    for &index in &private {
        core.on_connecting(core.links.key_at(index));
        core.on_connected(core.links.key_at(index), Socket(2));
        core.on_backend_bytes(core.links.key_at(index), b":7\r\n").unwrap();
    }
    pass_to(&mut core, 60_000);
    for &index in &private {
        core.on_link_lost(core.links.key_at(index), BackendFault::Closed);
    }
    assert_eq!(core.plane.plan.health.failures(core.links[0].id), 1);
    // They try again, all at once.
    let round = |core: &mut Core, millis: u64| {
        pass_to(core, millis);
        for &client in &clients {
            core.on_client_bytes(client, b"BLPOP q 0\r\n");
        }
        for position in 0..core.links.len() {
            let index = core.links.key_at(position);
            if core.links[index].is_private && !core.links[index].is_free {
                core.on_connecting(index);
                core.on_connect_failed(index, ConnectFault::Refused);
            }
        }
        core.plane.plan.health.failures(core.links[0].id)
    };
    assert_eq!(round(&mut core, 60_001), 1, "sooner than any pause between attempts");
    assert_eq!(round(&mut core, 60_100), 2);
    assert_eq!(round(&mut core, 60_101), 2);
    assert_eq!(round(&mut core, 60_200), 3);
    assert_eq!(health(&core), HealthState::Ejected);
}

#[test]
fn a_refusal_in_words_is_told_until_the_server_says_something_else() {
    let mut core = core_with(|pool| pool.password = Some(keyway_topology::Password::new("sesame")));
    let asks = |core: &mut Core| {
        let client = client(core);
        core.on_client_bytes(client, b"GET a\r\n");
        client
    };
    let first = asks(&mut core);
    core.on_connecting(core.links.key_at(0));
    core.on_connected(core.links.key_at(0), Socket(1));
    let fault = core.on_backend_bytes(core.links.key_at(0), b"-WRONGPASS no\r\n").unwrap_err();
    core.on_link_lost(core.links.key_at(0), fault);
    assert!(core.links[0].link.is_down(core.clock().now));
    let second = asks(&mut core);
    assert_eq!(output(&core, first), output(&core, second));
    assert!(
        output(&core, first).contains("(it said \\'WRONGPASS no\\'; check password in [pool."),
        "{}",
        output(&core, first)
    );
    assert_eq!(
        core.plane.plan.health.reason(core.links[0].id),
        Some(keyway_topology::FailureReason::Handshake)
    );
    // It cannot be reached at all now.
    pass_to(&mut core, 60_000);
    asks(&mut core);
    core.on_connecting(core.links.key_at(0));
    core.on_connect_failed(core.links.key_at(0), ConnectFault::Refused);
    let third = asks(&mut core);
    assert!(output(&core, third).contains("cannot be reached"));
    assert!(!output(&core, third).contains("it said"));
}

/// Returns a core with a timeout of 100 ms whose link has room for four requests, the client that
/// has filled it, and one that asks for this 50 ms later.
fn behind_a_full_link(request: &[u8]) -> (Core, [Key<Session>; 2]) {
    let mut core = connected_core_with(|pool| {
        pool.link_in_flight_max = 4;
        pool.timeout = Duration::from_millis(100);
    });
    let [others, own] = [(); 2].map(|()| client(&mut core));
    core.on_client_bytes(others, b"GET a\r\n".repeat(4).as_slice());
    pass_to(&mut core, 50);
    core.on_client_bytes(own, request);
    (core, [others, own])
}

#[test]
fn an_exec_waits_for_room_on_a_link_no_longer_than_the_timeout() {
    let (mut core, [_, own]) = behind_a_full_link(b"MULTI\r\nSET a 1\r\nEXEC\r\nGET b\r\n");
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.resume_sessions(&mut Vec::new());
        output(core, own)
    };
    assert_eq!(told_at(&mut core, 149), r"+OK\r\n+QUEUED\r\n");
    let told = told_at(&mut core, 150);
    assert_eq!(told.matches("; the request was not sent").count(), 2, "{told}");
    assert!(core.session(own).unwrap().stateful.is_none(), "the transaction is over");
    core.on_backend_bytes(core.links.key_at(0), b"$-1\r\n".repeat(4).as_slice()).unwrap();
    core.on_client_bytes(own, b"MULTI\r\nSET a 2\r\nEXEC\r\n");
    let sent = core.links[0].link.unsent().escape_ascii().to_string();
    assert!(sent.contains("EXEC") && !sent.contains(r"\n1\r"), "{sent}");
}

#[test]
fn what_waits_unread_behind_a_request_without_room_has_no_second_timeout() {
    let (mut core, [others, own]) = behind_a_full_link(b"GET b\r\n");
    pass_to(&mut core, 60);
    assert!(!core.may_read(own), "its next request stays in the socket");
    pass_to(&mut core, 100);
    let mut unread = Vec::new();
    core.on_client_bytes(others, b"GET a\r\n".repeat(4).as_slice());
    let at = |core: &mut Core, unread: &mut Vec<Key<Session>>, millis| {
        pass_to(core, millis);
        core.resume_sessions(unread);
    };
    at(&mut core, &mut unread, 150);
    assert_eq!(output(&core, own).matches("; the request was not sent").count(), 1);
    assert_eq!(unread, [own]);
    core.clear_unread(own);
    core.on_client_bytes(own, b"GET b\r\n");
    core.end_reread(own);
    at(&mut core, &mut unread, 159);
    assert_eq!(output(&core, own).matches("; the request was not sent").count(), 1);
    at(&mut core, &mut unread, 160);
    assert_eq!(output(&core, own).matches("; the request was not sent").count(), 2);
    // Later requests have a timeout of their own.
    core.on_client_bytes(own, b"GET b\r\n");
    at(&mut core, &mut unread, 259);
    assert_eq!(output(&core, own).matches("; the request was not sent").count(), 2);
}

#[test]
fn a_request_whose_time_is_nearly_over_when_it_can_be_sent_has_a_little_left() {
    let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(400));
    pass_to(&mut core, 1000);
    let at = |millis: u64| Time(millis * 1_000_000);
    assert_eq!(core.plane.counts_from(0, at(651)), at(651));
    for asked in [0, 100, 600, 601] {
        assert_eq!(core.plane.counts_from(0, at(asked)), at(650), "50 ms are left");
    }
}

#[test]
fn what_stays_in_the_socket_while_others_are_read_from_it_has_no_second_timeout_either() {
    let (mut core, [others, own]) = behind_a_full_link(b"GET b\r\n");
    pass_to(&mut core, 60);
    assert!(!core.may_read(own));
    pass_to(&mut core, 100);
    core.on_client_bytes(others, b"GET a\r\n".repeat(4).as_slice());
    let refused_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        let mut unread = Vec::new();
        core.resume_sessions(&mut unread);
        let refused = output(core, own).matches("; the request was not sent").count();
        (refused, unread.contains(&own))
    };
    assert_eq!(refused_at(&mut core, 150), (1, true));
    // One request is read, and another one stays in the socket.
    core.clear_unread(own);
    core.on_client_bytes(own, b"GET c\r\n");
    assert!(!core.may_read(own));
    core.note_left_unread(own);
    core.end_reread(own);
    assert_eq!(refused_at(&mut core, 160), (2, true));
    core.clear_unread(own);
    core.on_client_bytes(own, b"GET d\r\n");
    core.end_reread(own);
    assert_eq!(output(&core, own).matches("; the request was not sent").count(), 3);
}

#[test]
fn what_waits_unread_behind_a_refused_request_has_no_second_timeout_if_another_one_has_started() {
    let (mut core, [others, own]) = behind_a_full_link(b"GET b\r\nPING\r\n");
    pass_to(&mut core, 60);
    assert!(!core.may_read(own));
    pass_to(&mut core, 100);
    core.on_client_bytes(others, b"GET a\r\n".repeat(4).as_slice());
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.resume_sessions(&mut Vec::new());
        output(core, own).matches("; the request was not sent").count()
    };
    assert_eq!(told_at(&mut core, 150), 1);
    assert!(output(&core, own).contains("PONG"));
    core.clear_unread(own);
    core.on_client_bytes(own, b"GET c\r\n");
    core.end_reread(own);
    assert_eq!((told_at(&mut core, 159), told_at(&mut core, 160)), (1, 2));
}

#[test]
fn an_answer_to_an_earlier_question_brings_no_server_back_that_was_not_emptied() {
    let second = Duration::from_secs(1);
    let mut core = connected_core_with(|pool| {
        pool.ejection = Some(Ejection { after_failures: 2, for_: second, rejoin: Rejoin::Flush });
        pool.timeout = Duration::MAX;
    });
    let sent = |core: &mut Core| {
        let link = &mut core.links[0].link;
        let sent = link.unsent().escape_ascii().to_string();
        link.advance(link.unsent().len());
        sent
    };
    let id = core.links[0].id;
    let fail = |core: &mut Core, seconds: u64| {
        pass_to(core, seconds * 1000);
        let now = core.plane.clock.now;
        core.plane.plan.health.note_failure(
            id,
            FailureReason::Timeout,
            FailureTimes { began: now, now },
        );
    };
    fail(&mut core, 10);
    core.tend_health();
    assert!(sent(&mut core).contains("PING"), "a failing server is asked whether it answers");
    fail(&mut core, 20);
    pass_to(&mut core, 30_000);
    core.tend_health();
    assert_eq!(core.plane.plan.health.state(id), HealthState::Ejected);
    core.on_backend_bytes(core.links.key_at(0), b"+PONG\r\n").unwrap();
    assert!(!core.plane.plan.health.is_usable(id), "it was not emptied");
    core.tend_health();
    assert!(sent(&mut core).contains("FLUSH"));
    core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n+PONG\r\n").unwrap();
    assert!(core.plane.plan.health.is_usable(id));
}

#[test]
fn a_pipeline_waits_once_for_a_server_that_does_not_answer_also_if_another_one_does_in_between() {
    let (mut core, [_, own]) = behind_a_full_link(b"GET b\r\nPING\r\nGET c\r\nPING\r\nGET d\r\n");
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.resume_sessions(&mut Vec::new());
        output(core, own).matches("; the request was not sent").count()
    };
    assert_eq!((told_at(&mut core, 149), told_at(&mut core, 150)), (0, 3));
    // The server answers again: later requests have a timeout of their own.
    core.on_backend_bytes(core.links.key_at(0), b"$-1\r\n").unwrap();
    core.on_client_bytes(own, b"GET e\r\nGET f\r\n");
    assert_eq!((told_at(&mut core, 249), told_at(&mut core, 250)), (3, 4));
}

#[test]
fn a_request_of_a_pipeline_has_its_time_from_the_last_answer_of_its_server() {
    let (mut core, [_, own]) = behind_a_full_link(b"GET b\r\nGET c\r\n");
    pass_to(&mut core, 140);
    core.on_backend_bytes(core.links.key_at(0), b"$-1\r\n").unwrap();
    core.resume_sessions(&mut Vec::new());
    let waits_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.resume_sessions(&mut Vec::new());
        core.session(own).unwrap().paused
    };
    assert_eq!((waits_at(&mut core, 239), waits_at(&mut core, 240)), (true, false));
}

#[test]
fn a_request_of_a_pipeline_has_its_whole_time_where_the_server_has_just_been_asked() {
    let (mut core, [others, own]) = behind_a_full_link(b"GET b\r\nGET c\r\n");
    // All requests are answered, and the link is filled again at once.
    pass_to(&mut core, 140);
    core.on_backend_bytes(core.links.key_at(0), b"$-1\r\n".repeat(4).as_slice()).unwrap();
    pass_to(&mut core, 148);
    core.on_client_bytes(others, b"GET a\r\n".repeat(4).as_slice());
    let mut waits_at = |millis| {
        pass_to(&mut core, millis);
        core.resume_sessions(&mut Vec::new());
        core.session(own).unwrap().paused
    };
    assert_eq!((waits_at(149), waits_at(247)), (true, true));
}
