//! Commands that block, and guarded transactions, on servers that are demoted or lose their slots.

use super::*;
use keyway_proxy::local::{Unblock, UnblockReason};
use keyway_topology::ReadFrom;

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
