use crate::cluster::{Speaker, ViewUpdate};
use crate::core::Core;
use crate::core::pools::FoundState;
use crate::core::pools::cluster::state::Wait;
use crate::core::tests::{client, core_of_kind, output, pass_to, plan_of};
use keyway_base::Key;
use keyway_base::{BackendFault, Fault, Sent, Time};
use keyway_net::{ConnectFault, Socket};
use keyway_proxy::Session;
use keyway_proxy::local::{Unblock, UnblockReason};
use keyway_resp::Protocol;
use keyway_topology::{
    ClusterPool, ClusterView, Discovery, Endpoint, Pool, PoolKind, ReadPolicy, SlotQuery,
    ViewSource,
};
use keyway_topology::{ReadFrom, ServerId};
use std::sync::Arc;
use std::time::Duration;

mod sent_on;
mod waiting;

fn endpoint(port: u16) -> Endpoint {
    Endpoint::tcp("h", port).unwrap()
}

/// Returns a server's answer about a cluster in which these ports have these slots.
fn view(owners: &[(u16, u16, u16)]) -> ClusterView {
    let mut reply = format!("*{}\r\n", owners.len());
    for (first, last, port) in owners {
        reply += &format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:{port}\r\n");
    }
    ClusterView::from_slots(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap()
}

/// A core that knows a cluster, with a connection to each of two servers.
fn core() -> Core {
    core_reading(ReadPolicy::default())
}

fn core_reading(reads: ReadPolicy) -> Core {
    let mut core = core_of(reads, None);
    learn(&mut core, &[(0, 8191, 1), (8192, 16383, 2)]);
    for port in [1, 2] {
        connect(&mut core, port);
    }
    core
}

/// A core that knows no cluster yet and has no connections.
fn core_of(reads: ReadPolicy, wait_for_primary: Option<Duration>) -> Core {
    core_of_kind(cluster_of(reads, wait_for_primary))
}

fn cluster_of(reads: ReadPolicy, wait_for_primary: Option<Duration>) -> PoolKind {
    let discovery = Discovery {
        refresh: Duration::from_secs(1),
        redirections_max: 3,
        wait_for_primary,
        reads,
        ..Discovery::new(vec![endpoint(1)], 3)
    };
    let pool = ClusterPool::new(SlotQuery::Slots, discovery);
    PoolKind::Cluster(pool)
}

fn connect(core: &mut Core, port: u16) {
    let index = link(core, port);
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(i32::from(port)));
}

fn learn(core: &mut Core, owners: &[(u16, u16, u16)]) {
    learn_at(core, owners, Time(1));
}

fn learn_at(core: &mut Core, owners: &[(u16, u16, u16)], now: Time) {
    let shared = Arc::clone(&core.plane.cluster_state(0).unwrap().shared);
    let lesson = shared.learn(&view(owners), Speaker::ALONE, now);
    assert!(matches!(lesson, ViewUpdate::New(_)));
    core.follow_clusters();
}

fn link(core: &Core, port: u16) -> usize {
    let FoundState { servers, cluster, .. } = core.plane.pools[0].found().expect("a cluster");
    let map = &cluster.map;
    servers.link(map.index_of(&endpoint(port)).unwrap(), 0, Protocol::Resp2).index()
}

fn send(core: &mut Core, port: u16) -> String {
    let index = link(core, port);
    let link = &mut core.links[index].link;
    let sent = link.unsent().escape_ascii().to_string();
    let len = link.unsent().len();
    link.advance(len);
    sent
}

fn hear(core: &mut Core, port: u16, reply: &str) {
    let index = link(core, port);
    core.on_backend_bytes(core.links.key_at(index), reply.as_bytes()).unwrap();
}

fn ask(core: &mut Core, client: Key<Session>, lines: &str) {
    core.on_client_bytes(client, lines.as_bytes());
}

#[test]
fn a_server_ejected_by_hand_stays_so_when_it_leaves_and_comes_back_until_it_is_restored() {
    let mut core = core();
    let index_of =
        |core: &Core| core.plane.cluster_state(0).expect("a cluster").map.index_of(&endpoint(2));
    let is_out = |core: &Core| {
        let plan = &core.plane.plan;
        let at = usize::from(index_of(core).expect("it is there"));
        plan.health.is_held(plan.topology.backend_id(0, at))
    };
    let (both, one) = ([(0, 8191, 1), (8192, 16383, 2)], [(0, 16383, 1)]);
    let plan = Arc::clone(&core.plane.plan);
    assert!(plan.eject(plan.topology.backend_id(0, usize::from(index_of(&core).unwrap()))));
    let mut now = Time(1);
    // Longer than the index of an absent server is kept.
    let mut leave = |core: &mut Core| {
        learn_at(core, &one, now);
        now = now + Duration::from_secs(60);
        learn_at(core, &one, now);
        assert_eq!(index_of(core), None, "it has left");
        let held = core.plane.plan.held_servers();
        (now, held.iter().any(|(_, address)| address == "h:2"))
    };
    for _ in 0..2 {
        let (now, is_listed) = leave(&mut core);
        assert!(is_listed, "an upgrade hands it over");
        learn_at(&mut core, &both, now);
        assert!(is_out(&core));
    }
    assert!(plan.restore(plan.topology.backend_id(0, usize::from(index_of(&core).unwrap()))));
    assert!(!is_out(&core));
    let (now, is_listed) = leave(&mut core);
    learn_at(&mut core, &both, now);
    assert!(!is_listed && !is_out(&core), "it was restored");
    assert!(plan.eject(plan.topology.backend_id(0, usize::from(index_of(&core).unwrap()))));
    let (now, _) = leave(&mut core);
    assert!(!plan.restore_absent(0, "h:3"), "nobody has ejected it");
    assert!(plan.restore_absent(0, "h:2"));
    learn_at(&mut core, &both, now);
    assert!(!is_out(&core), "it was restored while it was away");
}

#[test]
fn a_part_that_is_sent_elsewhere_ends_also_when_its_client_has_gone() {
    let mut core = core();
    let client = client(&mut core);
    // Slots 15495 and 3300.
    ask(&mut core, client, "MGET a b\r\n");
    send(&mut core, 1);
    send(&mut core, 2);
    core.remove_session(client, None);
    hear(&mut core, 1, "*1\r\n$1\r\nb\r\n");
    assert_eq!(core.plane.pending.operations(), 1);
    hear(&mut core, 2, "-MOVED 15495 h:1\r\n");
    assert_eq!(core.plane.pending.operations(), 0);
}

#[test]
fn a_transaction_goes_where_its_slot_has_come_to_meanwhile() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "MULTI\r\nSET {a}1 x\r\n");
    learn(&mut core, &[(0, 16383, 1)]);
    ask(&mut core, client, "SET {a}2 y\r\nEXEC\r\n");
    assert_eq!(output(&core, client), r"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert_eq!(send(&mut core, 2), "");
    assert!(send(&mut core, 1).starts_with(r"*1\r\n$5\r\nMULTI\r\n"));
}

#[test]
fn keys_of_other_slots_are_none_of_a_transaction_although_their_server_is_the_same() {
    let mut core = core();
    let client = client(&mut core);
    learn(&mut core, &[(0, 16383, 1)]);
    ask(&mut core, client, "MULTI\r\nSET a x\r\nSET b y\r\n");
    assert!(output(&core, client).contains("-CROSSSLOT"));
}

#[test]
fn what_is_not_sent_yet_does_not_overtake_what_was_sent_before() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "SET a 1\r\n");
    send(&mut core, 2);
    ask(&mut core, client, "SET a 2\r\n");
    learn(&mut core, &[(0, 16383, 1)]);
    assert_eq!(send(&mut core, 1), "");
    // The old server sends both on, in their order.
    send(&mut core, 2);
    hear(&mut core, 2, "-MOVED 15495 h:1\r\n-MOVED 15495 h:1\r\n");
    let sent = send(&mut core, 1);
    assert!(sent.find(r"$1\r\n1").unwrap() < sent.find(r"$1\r\n2\r\n").unwrap(), "{sent}");
}

#[test]
fn who_says_nothing_of_use_is_not_asked_again_while_others_can_be() {
    let mut core = core();
    let index = link(&core, 1);
    let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
    assert!(
        (0..64).any(|_| core.someone_to_ask(0).map(|(_, at)| at) == Some(core.links.key_at(index)))
    );
    core.plane.miss_of_cluster(core.links[index].server_id, 1, fault);
    for _ in 0..32 {
        assert_ne!(core.someone_to_ask(0).map(|(_, at)| at), Some(core.links.key_at(index)));
    }
}

/// Connects the private link that is about to be, and takes what is sent on it. Its
/// server answers `CLIENT ID`.
fn connect_private(core: &mut Core) -> usize {
    let index = core.plane.upstream.connects.pop().unwrap();
    assert!(core.links[index].is_private);
    core.on_connecting(index);
    core.on_connected(index, Socket(100));
    sent_on(core, index.index());
    core.on_backend_bytes(index, b":7\r\n").unwrap();
    index.index()
}

fn sent_on(core: &mut Core, index: usize) -> String {
    let link = &mut core.links[index].link;
    let sent = link.unsent().escape_ascii().to_string();
    let len = link.unsent().len();
    link.advance(len);
    sent
}

const DEMOTED: &str = "-READONLY You can't write against a read only replica.\r\n";

#[test]
fn a_guarded_transaction_that_a_replica_refused_is_not_sent_again_and_keeps_no_link() {
    let mut core = core();
    let (one, other) = (client(&mut core), client(&mut core));
    ask(&mut core, one, "WATCH a\r\n");
    let index = connect_private(&mut core);
    core.on_backend_bytes(core.links.key_at(index), b"+OK\r\n").unwrap();
    core.resume_sessions(&mut Vec::new());
    ask(&mut core, one, "MULTI\r\nSET a 1\r\nEXEC\r\n");
    assert!(sent_on(&mut core, index).contains("EXEC"));
    // Its server has ended the watch.
    let refused = format!("+OK\r\n{DEMOTED}-EXECABORT because of previous errors.\r\n");
    core.on_backend_bytes(core.links.key_at(index), refused.as_bytes()).unwrap();
    assert!(output(&core, one).contains("-READONLY"), "{}", output(&core, one));
    core.send_retries();
    assert_eq!((core.leases(), sent_on(&mut core, index)), (0, String::new()));
    // The next who has the link gives it back.
    ask(&mut core, other, "BLPOP a 0\r\n");
    assert!(sent_on(&mut core, index).contains("BLPOP"));
    assert_eq!(core.leases(), 1);
    core.on_backend_bytes(core.links.key_at(index), b"*-1\r\n").unwrap();
    assert_eq!(core.leases(), 0);
}

#[test]
fn a_command_that_waits_is_given_its_time_anew_wherever_it_is_sent_again() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "BLPOP a 0.5\r\n");
    let index = connect_private(&mut core);
    let mut millis = 0;
    for _ in 0..3 {
        assert_eq!(core.leases(), 1);
        core.on_backend_bytes(core.links.key_at(index), DEMOTED.as_bytes()).unwrap();
        // While it waits to be sent nothing is late.
        let options = Arc::clone(core.plane.link_options(0));
        assert_eq!(core.links[index].link.deadline(&options), None);
        millis += 200;
        assert_eq!(pass_to(&mut core, millis), []);
        core.send_retries();
        assert!(sent_on(&mut core, index).contains("BLPOP"));
        // Half a second, and one for the answer.
        let until = core.links[index].link.deadline(&options);
        assert_eq!(until, Some(Time((millis + 1500) * 1_000_000)));
    }
}

/// A client whose command that blocks was refused by a replica, and its private link.
fn refused(core: &mut Core) -> (Key<Session>, usize) {
    let client = client(core);
    ask(core, client, "BLPOP a 0\r\n");
    let index = connect_private(core);
    sent_on(core, index);
    core.on_backend_bytes(core.links.key_at(index), DEMOTED.as_bytes()).unwrap();
    (client, index)
}

/// Does the same, and loses the private link before the command is sent again.
fn between_two_tries(core: &mut Core) -> Key<Session> {
    let (client, index) = refused(core);
    core.on_private_lost(core.links.key_at(index), BackendFault::Closed);
    assert_eq!((core.leases(), core.plane.plan.clients.blocked_len()), (0, 1));
    client
}

#[test]
fn a_client_that_leaves_between_two_tries_of_what_it_waits_in_is_noticed() {
    let mut core = core();
    let client = between_two_tries(&mut core);
    assert!(core.may_read(client) && core.note_hangup(client));
    core.remove_session(client, None);
    assert_eq!(core.plane.plan.clients.blocked_len(), 0);
    pass_to(&mut core, 200);
    core.send_retries();
    assert_eq!((core.leases(), core.private_links()), (0, 0));
}

/// The reply to a command that blocks and is ended for each reason while no server has it.
const ENDS: [(UnblockReason, &str); 3] = [
    (UnblockReason::Timeout, r"*-1\r\n"),
    (UnblockReason::Error, "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    (UnblockReason::Stopping, "-UNBLOCKED Keyway is stopping"),
];

#[test]
fn a_client_that_is_unblocked_between_two_tries_is_answered_at_once() {
    for (reason, reply) in ENDS {
        for is_lost in [false, true] {
            let mut core = core();
            let client = match is_lost {
                true => between_two_tries(&mut core),
                false => refused(&mut core).0,
            };
            let id = core.session(client).unwrap().identity.id;
            assert!(core.unblock(Unblock { id, reason }));
            assert!(output(&core, client).starts_with(reply), "{reason:?} {is_lost}");
            assert_eq!((core.leases(), core.plane.plan.clients.blocked_len()), (0, 0));
            pass_to(&mut core, 200);
            core.send_retries();
            send(&mut core, 2);
            core.retry_unblocks();
            assert_eq!((core.leases(), send(&mut core, 2)), (0, String::new()));
            assert!(!core.session(client).unwrap().is_special());
        }
    }
}

/// A server may refuse a command although it was to end it: it has become a replica meanwhile.
#[test]
fn a_command_that_is_to_end_is_not_sent_again_once_a_server_has_refused_it() {
    for (reason, reply) in ENDS {
        let mut core = core();
        let client = client(&mut core);
        ask(&mut core, client, "BLPOP a 0\r\n");
        let index = connect_private(&mut core);
        let id = core.session(client).unwrap().identity.id;
        assert!(core.unblock(Unblock { id, reason }));
        core.on_backend_bytes(core.links.key_at(index), DEMOTED.as_bytes()).unwrap();
        assert!(output(&core, client).starts_with(reply), "{reason:?}");
        assert_eq!((core.leases(), core.plane.plan.clients.blocked_len()), (0, 0));
        pass_to(&mut core, 200);
        core.send_retries();
        assert!(!sent_on(&mut core, index).contains("BLPOP"));
    }
}

#[test]
fn a_client_whose_command_is_given_up_between_two_tries_waits_no_more() {
    let mut core = core();
    let client = between_two_tries(&mut core);
    learn(&mut core, &[(0, 8191, 1)]);
    pass_to(&mut core, 200);
    core.send_retries();
    assert!(output(&core, client).starts_with("-READONLY"));
    assert!(!core.session(client).unwrap().is_special());
    assert_eq!(core.plane.plan.clients.blocked_len(), 0);
}

/// A client that waits for a key of the server at 2, which then has no slots any more.
fn displaced(core: &mut Core, words: &str) -> (Key<Session>, usize) {
    let client = client(core);
    ask(core, client, words);
    let index = connect_private(core);
    assert_eq!(core.leases(), 1);
    pass_to(core, 200);
    learn(core, &[(0, 16383, 1)]);
    assert!(send(core, 2).contains("UNBLOCK\\r\\n$1\\r\\n7\\r\\n$5\\r\\nERROR"));
    (client, index)
}

#[test]
fn who_waits_at_a_server_that_lost_its_slots_waits_on_for_what_is_left_at_the_next() {
    for words in ["BLPOP a 0\r\n", "BLPOP a 1.5\r\n", "BLMPOP 1.5 1 a LEFT\r\n"] {
        let mut core = core();
        let (client, index) = displaced(&mut core, words);
        core.on_backend_bytes(
            core.links.key_at(index),
            b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n",
        )
        .unwrap();
        assert_eq!(output(&core, client), "");
        let next = *core.plane.upstream.connects.last().unwrap();
        assert_eq!(core.links[next].server_id.server, core.links[link(&core, 1)].server_id.server);
        core.on_connecting(next);
        core.on_connected(next, Socket(101));
        let sent = sent_on(&mut core, next.index());
        let left = if words.contains("1.5") { "1.300" } else { "$1\\r\\n0\\r\\n" };
        assert!(sent.contains(left), "{sent}");
        core.on_backend_bytes(next, b":8\r\n*2\r\n$1\r\na\r\n$1\r\nv\r\n").unwrap();
        assert_eq!(output(&core, client), r"*2\r\n$1\r\na\r\n$1\r\nv\r\n");
        assert_eq!(core.leases(), 0);
    }
}

#[test]
fn what_was_given_out_before_a_server_lost_its_slots_is_delivered() {
    let mut core = core();
    let (client, index) = displaced(&mut core, "BLPOP a 0\r\n");
    core.on_backend_bytes(core.links.key_at(index), b"*2\r\n$1\r\na\r\n$1\r\nv\r\n").unwrap();
    assert_eq!(output(&core, client), r"*2\r\n$1\r\na\r\n$1\r\nv\r\n");
    pass_to(&mut core, 5000);
    core.send_retries();
    assert_eq!((core.leases(), core.plane.upstream.connects.len()), (0, 0));
}

#[test]
fn who_waits_at_a_deposed_server_that_is_silent_leaves_it() {
    let mut core = core();
    let (client, index) = displaced(&mut core, "BLPOP a 0\r\n");
    pass_to(&mut core, 1100);
    core.send_retries();
    assert_eq!(core.plane.upstream.connects.len(), 0, "it has a second");
    pass_to(&mut core, 1300);
    core.send_retries();
    assert_eq!((core.leases(), core.plane.upstream.connects.len()), (1, 1));
    assert!(
        core.plane.upstream.discards.contains(&core.links.key_at(index))
            && core.is_to_be_discarded(core.links.key_at(index))
    );
    let next = core.plane.upstream.connects[0];
    assert!(core.links[next].link.is_blocking);
    // The late answer of the silent server is ignored.
    core.on_backend_bytes(core.links.key_at(index), b"*2\r\n$1\r\na\r\n$1\r\nx\r\n").unwrap();
    assert_eq!(output(&core, client), "");
}

#[test]
fn a_client_reads_where_it_writes_from_the_reply_to_a_write_on() {
    let pin_after_write = Some(Duration::from_millis(100));
    let from = ReadFrom::PreferReplica;
    let mut core = core_reading(ReadPolicy { from, pin_after_write, ..ReadPolicy::default() });
    let until = |core: &Core, client| {
        core.session(client).unwrap().identity.reads_primary_until.since(Time(0)).as_millis()
    };
    // A client that waits for long.
    let waiter = client(&mut core);
    ask(&mut core, waiter, "BLPOP a 0\r\n");
    let index = connect_private(&mut core);
    assert_eq!(until(&core, waiter), 100);
    pass_to(&mut core, 400);
    core.on_backend_bytes(core.links.key_at(index), b"*2\r\n$1\r\na\r\n$1\r\nv\r\n").unwrap();
    assert_eq!(until(&core, waiter), 500);
    // A client whose server was slow, and that reads around it.
    let other = client(&mut core);
    ask(&mut core, other, "SET a 1\r\nGET a\r\n");
    send(&mut core, 2);
    assert_eq!(until(&core, other), 500);
    pass_to(&mut core, 700);
    hear(&mut core, 2, "+OK\r\n");
    assert_eq!(until(&core, other), 800);
    pass_to(&mut core, 750);
    hear(&mut core, 2, "$1\r\n1\r\n");
    ask(&mut core, other, "GET a\r\n");
    send(&mut core, 2);
    pass_to(&mut core, 790);
    hear(&mut core, 2, "$1\r\n1\r\n");
    assert_eq!(until(&core, other), 800);
}

/// Returns server 1's answer about its cluster, with these ports in it that have no slots.
fn nodes(ports: &[u16]) -> String {
    let mut text = "a h:1@9 myself,master - 0 0 1 connected 0-8191\n".to_owned();
    text += "b h:2@9 master - 0 0 2 connected 8192-16383\n";
    for port in ports {
        text += &format!("n{port} h:{port}@9 master - 0 0 3 connected\n");
    }
    format!("${}\r\n{text}\r\n", text.len())
}

fn totals(core: &Core) -> (u64, u64, u64) {
    let totals = &core.plane.cluster_state(0).unwrap().shared.totals;
    let read =
        |total: &std::sync::atomic::AtomicU64| total.load(std::sync::atomic::Ordering::Relaxed);
    (read(&totals.moved), read(&totals.asked), read(&totals.given_up))
}

fn index_of(core: &Core, port: u16) -> Option<u16> {
    core.plane.cluster_state(0).unwrap().map.index_of(&endpoint(port))
}

#[test]
fn who_is_sent_to_a_stranger_waits_until_the_cluster_names_it_and_all_keep_their_order() {
    let mut core = core();
    let client = client(&mut core);
    // Slot 3300 of the first server.
    ask(&mut core, client, "SET b 1\r\nSET b 2\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, "-ASK 3300 h:3\r\n-ASK 3300 h:3\r\n");
    assert_eq!(index_of(&core, 3), None);
    // There is one question for both.
    assert_eq!(send(&mut core, 1).matches("NODES").count(), 1);
    ask(&mut core, client, "SET b 3\r\n");
    assert!(send(&mut core, 1).contains(r"$1\r\n3"));
    hear(&mut core, 1, &format!("{}-ASK 3300 h:3\r\n", nodes(&[3])));
    core.follow_clusters();
    let index = link(&core, 3);
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(3));
    let sent = send(&mut core, 3);
    let at = |value: &str| sent.find(&format!(r"b\r\n$1\r\n{value}\r\n")).unwrap();
    assert!(at("1") < at("2") && at("2") < at("3"), "{sent}");
    assert_eq!(sent.matches("ASKING").count(), 3);
    assert_eq!(totals(&core), (0, 3, 0));
}

#[test]
fn who_is_sent_to_a_stranger_that_the_cluster_does_not_name_gets_the_servers_error() {
    let mut core = core();
    let (one, other) = (client(&mut core), client(&mut core));
    ask(&mut core, one, "GET b\r\n");
    ask(&mut core, other, "GET b\r\n");
    send(&mut core, 1);
    core.remove_session(other, None);
    hear(&mut core, 1, "-MOVED 3300 h:3\r\n-MOVED 3300 h:3\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, &nodes(&[4]));
    core.follow_clusters();
    assert_eq!(output(&core, one), r"-MOVED 3300 h:3\r\n");
    assert_eq!((index_of(&core, 3), index_of(&core, 4)), (None, None));
    // A client that has left was told nothing.
    assert_eq!(totals(&core), (0, 0, 1));
    // Soon after it is not asked again.
    ask(&mut core, one, "GET b\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, "-MOVED 3300 h:3\r\n");
    core.tend_clusters();
    assert!(!send(&mut core, 1).contains("NODES"));
    pass_to(&mut core, 200);
    core.tend_clusters();
    assert!(send(&mut core, 1).contains("NODES"));
    hear(&mut core, 1, "-ERR unknown subcommand\r\n");
    core.follow_clusters();
    assert!(output(&core, one).ends_with(r"-MOVED 3300 h:3\r\n"));
}

#[test]
fn a_slot_that_was_not_asked_for_stays_where_it_is() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "GET b\r\n");
    send(&mut core, 1);
    let owner = |core: &Core, slot| core.plane.cluster_state(0).unwrap().map.owners().of(slot);
    let before = owner(&core, 5);
    hear(&mut core, 1, "-MOVED 5 h:2\r\n");
    core.follow_clusters();
    assert_eq!(owner(&core, 5), before);
    assert!(send(&mut core, 2).contains("GET"));
    hear(&mut core, 2, "$1\r\nv\r\n");
    assert_eq!(output(&core, client), r"$1\r\nv\r\n");
}

#[test]
fn a_part_for_a_server_that_was_replaced_goes_to_its_heir() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "SCRIPT LOAD x\r\n");
    assert!(send(&mut core, 1).contains("LOAD") && send(&mut core, 2).contains("LOAD"));
    hear(&mut core, 2, "-LOADING\r\n".replace("\r", " it\r").as_str());
    let reply = "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$1\r\nh\r\n:1\r\n*4\r\n:8192\r\n:16383\r\n\
                 *2\r\n$1\r\nh\r\n:3\r\n*2\r\n$1\r\nh\r\n:2\r\n";
    let view =
        ClusterView::from_slots(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap();
    let shared = Arc::clone(&core.plane.cluster_state(0).unwrap().shared);
    assert!(matches!(shared.learn(&view, Speaker::ALONE, Time(2)), ViewUpdate::New(_)));
    core.follow_clusters();
    pass_to(&mut core, 100);
    core.send_retries();
    let index = link(&core, 3);
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(3));
    assert!(send(&mut core, 3).contains("LOAD"));
    assert!(!send(&mut core, 2).contains("LOAD"));
}

#[test]
fn what_is_due_again_goes_in_its_order_and_the_rest_stays() {
    let mut core = core();
    let clients: Vec<_> = (0..4).map(|_| client(&mut core)).collect();
    for (nth, client) in clients.iter().enumerate() {
        ask(&mut core, *client, &format!("SET b {nth}\r\n"));
        send(&mut core, 1);
        hear(&mut core, 1, "-TRYAGAIN it\r\n");
        pass_to(&mut core, nth as u64 * 3);
    }
    pass_to(&mut core, 13);
    core.send_retries();
    let sent = send(&mut core, 1);
    let at = |value: u16| sent.find(&format!(r"b\r\n$1\r\n{value}\r\n"));
    assert!(at(0).unwrap() < at(1).unwrap() && at(1) < at(2), "{sent}");
    assert_eq!(at(3), None);
    pass_to(&mut core, 100);
    core.send_retries();
    assert!(send(&mut core, 1).contains(r"$1\r\n3"));
}

#[test]
fn a_command_that_waits_and_is_given_up_keeps_no_link() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "BLPOP a 0\r\n");
    let index = connect_private(&mut core);
    core.on_backend_bytes(core.links.key_at(index), b"-CLUSTERDOWN The cluster is down\r\n")
        .unwrap();
    assert_eq!(core.leases(), 1);
    learn(&mut core, &[(0, 8191, 1)]);
    pass_to(&mut core, 200);
    core.send_retries();
    assert_eq!(output(&core, client), r"-CLUSTERDOWN The cluster is down\r\n");
    assert_eq!(core.leases(), 0);
}

#[test]
fn a_part_that_was_not_sent_yet_ends_also_when_its_client_has_gone() {
    let mut core = core();
    let client = client(&mut core);
    core.on_link_lost(core.links.key_at(link(&core, 2)), BackendFault::Closed);
    ask(&mut core, client, "MGET a b\r\n");
    core.remove_session(client, None);
    learn(&mut core, &[(0, 16383, 1)]);
    send(&mut core, 1);
    hear(&mut core, 1, "*1\r\n$1\r\nb\r\n");
    assert_eq!(core.plane.pending.operations(), 0);
}

/// Nobody has the slots of the second server.
const HOLE: &[(u16, u16, u16)] = &[(0, 8191, 1)];

#[test]
fn one_that_is_silent_for_300_ms_has_another_asked_whose_answer_counts() {
    let mut core = core();
    let asked = |core: &mut Core| [1, 2].map(|port| send(core, port).contains("CLUSTER"));
    core.tend_clusters();
    let first = asked(&mut core);
    assert!(first[0] != first[1], "{first:?}");
    pass_to(&mut core, 299);
    core.tend_clusters();
    assert_eq!(asked(&mut core), [false, false]);
    pass_to(&mut core, 301);
    core.tend_clusters();
    let second = asked(&mut core);
    assert_eq!(second, [!first[0], !first[1]]);
    // The answer of the second server counts, and a later answer of the first does not.
    let slots = |last: u16| format!("*1\r\n*3\r\n:0\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:1\r\n");
    let ports = if second[0] { [1, 2] } else { [2, 1] };
    hear(&mut core, ports[0], &slots(16383));
    core.follow_clusters();
    let owned = |core: &Core| {
        core.plane.cluster_state(0).unwrap().map.owned_by(usize::from(index_of(core, 1).unwrap()))
    };
    assert_eq!(owned(&core), 16384);
    hear(&mut core, ports[1], &slots(5460));
    core.follow_clusters();
    assert_eq!(owned(&core), 16384);
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
fn nothing_that_is_known_of_a_pool_that_ends_is_known_of_the_next_at_its_position() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "GET a\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, "-TRYAGAIN later\r\n");
    assert_eq!((output(&core, client), core.plane.cluster.retries.len()), (String::new(), 1));
    core.plane.begin_round(0);
    core.plane.note_question(0, 1, super::state::About::Role);
    core.plane.cluster.silent.insert((0, 1), Time(u64::MAX));
    core.plane.cluster.unanswered.push((ServerId { pool: 0, server: 1 }, 1));
    core.plane.cluster.told_about.push(0);
    core.plane.cluster.note_unnamed(ServerId { pool: 0, server: 1 });
    core.end_cluster(0);
    assert_eq!(output(&core, client), r"-TRYAGAIN later\r\n");
    let cluster = &core.plane.cluster;
    assert!(cluster.pools.is_empty() && cluster.rounds.is_empty() && cluster.silent.is_empty());
    assert!(cluster.retries.is_empty() && !core.has_heard_of_clusters());
    assert!(!core.plane.owes_answers(0, 1) && !core.plane.is_round_over(0));
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
