use super::*;
use crate::core::tests::{client, connected_core, connected_core_with, output, pass_to};
use keyway_proxy::WaitFor;
use keyway_proxy::local::{Unblock, UnblockReason};
use keyway_topology::ServerOptions;
use std::time::Duration;

/// The reply to `CLIENT ID`, which is the first on a private link.
const ID: &[u8] = b":7\r\n";

/// The index of the first private link: each server has a shared one for each protocol, and as many
/// for large values.
const PRIVATE: usize = 6;

/// Connects every private link that is about to be. Returns how many are connected.
fn connect_all(core: &mut Core) -> usize {
    let connects = std::mem::take(&mut core.plane.upstream.connects);
    for &index in &connects {
        core.on_connecting(index);
        core.on_connected(index, Socket(index.index() as i32 + 100));
    }
    connects.len()
}

/// Sends the output of a link, and returns it.
fn sent(core: &mut Core, index: usize) -> String {
    let link = &mut core.links[index].link;
    let text = link.unsent().escape_ascii().to_string();
    link.advance(link.unsent().len());
    text
}

/// Does what a worker's turn does after its requests and replies.
fn settle(core: &mut Core) {
    core.resume_sessions(&mut Vec::new());
    while let Some(index) = core.plane.upstream.discards.pop() {
        if core.is_to_be_discarded(index) {
            core.on_link_lost(index, BackendFault::Closed);
        }
    }
}

fn short_timeouts(pool: &mut ServerOptions) {
    pool.timeout = Duration::from_millis(100);
    pool.connect_timeout = Duration::from_secs(1);
}

#[test]
fn an_exec_is_sent_however_many_links_are_idle() {
    let mut core = connected_core();
    let clients: Vec<_> = (0..IDLE_MAX + 8).map(|_| client(&mut core)).collect();
    for &client in &clients {
        core.on_client_bytes(client, b"WATCH k\r\nMULTI\r\nEXEC\r\n");
    }
    assert_eq!(connect_all(&mut core), clients.len());
    for index in PRIVATE..PRIVATE + clients.len() {
        sent(&mut core, index);
        core.on_backend_bytes(core.links.key_at(index), &[ID, b"+OK\r\n"].concat()).unwrap();
        settle(&mut core);
    }
    for index in PRIVATE..PRIVATE + clients.len() {
        assert!(sent(&mut core, index).contains("EXEC"), "link {index}");
        core.on_backend_bytes(core.links.key_at(index), b"+OK\r\n*0\r\n").unwrap();
        settle(&mut core);
    }
    assert!(clients.iter().all(|&client| output(&core, client) == r"+OK\r\n+OK\r\n*0\r\n"));
    assert_eq!((core.leases(), core.private_links()), (0, IDLE_MAX));
}

/// Returns a client whose write after `before` has timed out, and whose server still owes the
/// reply.
fn owed(core: &mut Core, before: &[u8]) -> Key<Session> {
    let client = client(core);
    core.on_client_bytes(client, before);
    if connect_all(core) > 0 {
        sent(core, PRIVATE);
        core.on_backend_bytes(core.links.key_at(PRIVATE), &[ID, b"+OK\r\n"].concat()).unwrap();
        settle(core);
    }
    core.on_client_bytes(client, b"SET k 1\r\n");
    sent(core, 0);
    pass_to(core, 1000);
    settle(core);
    assert!(output(core, client).contains("did not answer in time"));
    client
}

#[test]
fn a_private_link_is_not_used_while_a_shared_one_owes_a_write_that_has_timed_out() {
    for (before, request, what) in [
        (&b""[..], &b"WATCH k\r\n"[..], "WATCH"),
        (b"", b"BLPOP k 0\r\n", "BLPOP"),
        (b"WATCH k\r\n", b"MULTI\r\nSET k 2\r\nEXEC\r\n", "EXEC"),
    ] {
        let mut core = connected_core_with(short_timeouts);
        let client = owed(&mut core, before);
        let private = |core: &mut Core| {
            connect_all(core);
            if core.links.len() > PRIVATE { sent(core, PRIVATE) } else { String::new() }
        };
        core.on_client_bytes(client, request);
        assert_eq!(private(&mut core), "");
        core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n").unwrap();
        settle(&mut core);
        assert!(private(&mut core).contains(what), "once the write was executed");

        let mut core = connected_core_with(short_timeouts);
        let client = owed(&mut core, before);
        core.on_client_bytes(client, request);
        pass_to(&mut core, 1150);
        settle(&mut core);
        let told = output(&core, client);
        assert!(told.ends_with(r"did not answer in time; the request was not sent\r\n"), "{told}");
        assert!(!private(&mut core).contains(what));
    }
}

#[test]
fn a_write_by_other_connections_waits_for_one_that_has_timed_out() {
    let at_others = |core: &Core| -> usize {
        (1..core.links.len()).map(|index| core.links[index].link.in_flight()).sum()
    };
    let mut core = connected_core_with(short_timeouts);
    let client = owed(&mut core, b"");
    core.on_client_bytes(client, b"HELLO 3\r\n");
    let before = at_others(&core);
    core.on_client_bytes(client, b"GET k\r\n");
    let asks = at_others(&core);
    assert!(asks > before, "a read does not wait");
    core.on_client_bytes(client, b"SET k 2\r\n");
    settle(&mut core);
    assert_eq!(at_others(&core), asks);
    core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n").unwrap();
    settle(&mut core);
    assert!(at_others(&core) > asks, "once the write was executed");

    let mut core = connected_core_with(short_timeouts);
    let client = owed(&mut core, b"");
    core.on_client_bytes(client, b"HELLO 3\r\nSET k 2\r\n");
    pass_to(&mut core, 1150);
    settle(&mut core);
    let told = output(&core, client);
    assert!(told.ends_with(r"did not answer in time; the request was not sent\r\n"), "{told}");
}

#[test]
fn a_write_waits_for_an_exec_that_has_timed_out_on_a_connection_of_its_own() {
    for (request, waits) in [(&b"SET j 2\r\n"[..], true), (b"GET j\r\n", false)] {
        let mut core = connected_core_with(short_timeouts);
        let client = client(&mut core);
        core.on_client_bytes(client, b"WATCH k\r\n");
        connect_all(&mut core);
        sent(&mut core, PRIVATE);
        core.on_backend_bytes(core.links.key_at(PRIVATE), &[ID, b"+OK\r\n"].concat()).unwrap();
        settle(&mut core);
        core.on_client_bytes(client, b"MULTI\r\nSET j 1\r\nEXEC\r\n");
        assert!(sent(&mut core, PRIVATE).contains("EXEC"));
        assert!(!core.may_change_links(client));
        pass_to(&mut core, 1000);
        settle(&mut core);
        assert!(output(&core, client).contains("did not answer in time"));
        assert!(!core.may_change_links(client), "the server may execute it yet");
        core.on_client_bytes(client, request);
        assert_eq!(sent(&mut core, 0).is_empty(), waits, "{}", request.escape_ascii());
        core.on_backend_bytes(core.links.key_at(PRIVATE), b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")
            .unwrap();
        settle(&mut core);
        assert_eq!(sent(&mut core, 0).contains("SET"), waits, "once it was executed");
        core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n").unwrap();
        core.on_client_bytes(client, b"SET j 3\r\n");
        assert!(sent(&mut core, 0).contains("SET"));
    }
}

#[test]
fn a_client_stays_with_its_worker_until_no_request_of_it_may_be_executed() {
    let mut core = connected_core_with(short_timeouts);
    let late = owed(&mut core, b"");
    let silent = client(&mut core);
    core.on_client_bytes(silent, b"CLIENT REPLY OFF\r\nSET k 2\r\n");
    sent(&mut core, 0);
    for client in [late, silent] {
        assert!(!core.may_change_links(client));
    }
    core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n+OK\r\n").unwrap();
    settle(&mut core);
    for client in [late, silent] {
        assert!(core.may_change_links(client));
    }
}

#[test]
fn a_server_without_room_for_a_private_link_is_quoted_and_not_ejected() {
    let mut core = connected_core_with(crate::core::tests::with_ejection);
    for _ in 0..20 {
        let client = client(&mut core);
        core.on_client_bytes(client, b"BLPOP k 0\r\n");
        let index = *core.plane.upstream.connects.last().unwrap();
        connect_all(&mut core);
        sent(&mut core, index.index());
        let said = core.on_backend_bytes(index, b"-ERR max number of clients reached\r\n");
        core.on_link_lost(index, said.unwrap_err());
        let told = output(&core, client);
        assert!(told.contains("ERR max number of clients reached"), "{told}");
        assert!(told.ends_with(r"not executed\r\n"), "{told}");
    }
    assert!(core.plane.plan.health.is_usable(core.links[0].id));
    assert_eq!((core.leases(), core.private_links()), (0, 0));
}

#[test]
fn the_index_that_a_private_link_has_left_is_never_taken_for_a_shared_link() {
    let mut core = connected_core();
    let client = client(&mut core);
    core.on_client_bytes(client, b"BLPOP k 0\r\n");
    connect_all(&mut core);
    core.on_private_lost(core.links.key_at(PRIVATE), BackendFault::Closed);
    assert!(core.links[PRIVATE].is_private && !core.is_to_be_discarded(core.links.key_at(PRIVATE)));
    assert_eq!((core.private_links(), core.leases()), (0, 0));
}

#[test]
fn a_client_is_unblocked_however_often_that_must_be_asked_for_and_its_link_is_not_used_again() {
    let mut core = connected_core();
    let client = client(&mut core);
    core.on_client_bytes(client, b"BLPOP k 0\r\n");
    connect_all(&mut core);
    core.on_backend_bytes(core.links.key_at(PRIVATE), ID).unwrap();
    core.unblock(Unblock { id: 1, reason: UnblockReason::Timeout });
    for _ in 0..2 {
        // It was received before the command.
        assert!(sent(&mut core, 0).contains("UNBLOCK"));
        core.on_backend_bytes(core.links.key_at(0), b":0\r\n").unwrap();
        core.retry_unblocks();
    }
    core.on_backend_bytes(core.links.key_at(PRIVATE), b"*-1\r\n").unwrap();
    settle(&mut core);
    assert_eq!(output(&core, client), r"*-1\r\n");
    assert_eq!(core.private_links(), 0, "an UNBLOCK on its way is for nobody else");
    sent(&mut core, 0);
    core.retry_unblocks();
    assert_eq!(sent(&mut core, 0), "");
}

#[test]
fn what_expires_before_it_is_sent_has_not_begun() {
    for (command, exec) in [("WATCH k", r"*-1\r\n"), ("BLPOP k 0", r"*0\r\n")] {
        let mut core = connected_core_with(short_timeouts);
        let client = client(&mut core);
        core.on_client_bytes(client, format!("{command}\r\nMULTI\r\nEXEC\r\n").as_bytes());
        core.on_connecting(core.links.key_at(PRIVATE));
        pass_to(&mut core, 100);
        assert!(!core.session(client).unwrap().is_blocked());
        settle(&mut core);
        assert!(output(&core, client).ends_with(exec), "{}", output(&core, client));
        assert_eq!((core.private_links(), core.leases()), (0, 0));
        assert_eq!(core.plane.plan.clients.blocked_len(), 0);
    }
}

#[test]
fn a_client_that_waits_for_a_private_link_goes_on_when_that_is_lost() {
    let mut core = connected_core_with(short_timeouts);
    let client = client(&mut core);
    core.on_client_bytes(client, b"WATCH k\r\n");
    connect_all(&mut core);
    core.links[PRIVATE].waiting.push(client);
    core.sessions.get_mut(client).unwrap().waits_for = Some(WaitFor::Connection);
    core.on_private_lost(core.links.key_at(PRIVATE), BackendFault::Closed);
    assert!(core.session(client).unwrap().waits_for.is_none());
}

#[test]
fn a_watch_in_silence_guards_nothing_so_its_exec_is_refused() {
    let mut core = connected_core();
    let client = client(&mut core);
    let lines = b"CLIENT REPLY SKIP\r\nWATCH k\r\nMULTI\r\nSET k 1\r\nEXEC\r\n";
    core.on_client_bytes(client, lines);
    assert_eq!(output(&core, client), r"+OK\r\n+QUEUED\r\n*-1\r\n");
}

#[test]
fn nothing_blocks_for_a_client_that_sends_no_more() {
    let mut core = connected_core();
    let client = client(&mut core);
    assert!(!core.note_hangup(client));
    core.on_client_bytes(client, b"ECHO a\r\nBLPOP k 0\r\n");
    assert!(output(&core, client).starts_with(r"$1\r\na\r\n-UNBLOCKED "));
    assert_eq!(core.private_links(), 0);
}

#[test]
fn a_held_client_is_looked_at_again_only_when_its_reply_is_here() {
    for waits in ["BLPOP k 0", "CLIENT PAUSE 1000\r\nSET k 1"] {
        let mut core = connected_core();
        let client = client(&mut core);
        core.on_client_bytes(client, format!("ECHO a\r\n{waits}\r\nECHO b\r\n").as_bytes());
        for _ in 0..3 {
            // Its socket takes nothing that it is sent.
            core.plane.clients.resuming.clear();
            assert_eq!(core.after_flush(client), None);
            assert!(core.plane.clients.resuming.is_empty(), "{waits}");
        }
    }
}

#[test]
fn a_client_at_its_end_is_closed_when_the_reply_it_waited_for_has_left_already() {
    let mut core = connected_core_with(short_timeouts);
    let client = client(&mut core);
    core.on_client_bytes(client, b"WATCH k\r\n");
    connect_all(&mut core);
    core.on_client_end(client);
    // This is after the turn's sessions were resumed, and before their output is sent.
    pass_to(&mut core, 100);
    let session = core.sessions.get_mut(client).unwrap();
    session.busy.as_mut().unwrap().output.clear();
    assert_eq!(core.after_flush(client), None);
    settle(&mut core);
    assert!(core.after_flush(client).is_some());
}

#[test]
fn a_transaction_open_for_an_hour_is_executed_and_leaves_nothing() {
    let mut core = connected_core_with(short_timeouts);
    let (plain, watching) = (client(&mut core), client(&mut core));
    core.on_client_bytes(plain, b"MULTI\r\nSET k 1\r\n");
    core.on_client_bytes(watching, b"WATCH k\r\n");
    connect_all(&mut core);
    sent(&mut core, PRIVATE);
    core.on_backend_bytes(core.links.key_at(PRIVATE), &[ID, b"+OK\r\n"].concat()).unwrap();
    settle(&mut core);
    core.on_client_bytes(watching, b"MULTI\r\nSET k 2\r\n");
    for minute in 1..=60 {
        assert!(pass_to(&mut core, minute * 60_000).is_empty(), "minute {minute}");
        settle(&mut core);
    }
    assert_eq!((core.leases(), core.private_links()), (1, 1), "the watch holds its link");
    for (client, index) in [(plain, 0), (watching, PRIVATE)] {
        core.on_client_bytes(client, b"EXEC\r\n");
        settle(&mut core);
        assert!(sent(&mut core, index).contains("EXEC"), "link {index}");
        core.on_backend_bytes(core.links.key_at(index), b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")
            .unwrap();
        settle(&mut core);
        assert!(output(&core, client).ends_with(r"*1\r\n+OK\r\n"), "link {index}");
    }
    assert_eq!(core.leases(), 0);
}

/// Answers the handshake of a tracked client's own link, and `WATCH`.
fn tracked_and_watching(core: &mut Core) -> Key<Session> {
    let client = client(core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON\r\nWATCH k\r\n");
    assert_eq!(connect_all(core), 1);
    for (said, reply) in [("HELLO", "%1\r\n+proto\r\n:3\r\n"), ("TRACKING", OK), ("WATCH", OK)] {
        assert!(sent(core, PRIVATE).contains(said));
        core.on_backend_bytes(core.links.key_at(PRIVATE), reply.as_bytes()).unwrap();
    }
    settle(core);
    client
}

const OK: &str = "+OK\r\n";

#[test]
fn what_was_watched_on_a_link_that_tracking_gives_up_counts_as_changed() {
    let mut core = connected_core();
    let watching = tracked_and_watching(&mut core);
    core.on_client_bytes(watching, b"CLIENT TRACKING OFF\r\n");
    if core.links[PRIVATE].link.in_flight() > 0 {
        core.on_backend_bytes(core.links.key_at(PRIVATE), OK.as_bytes()).unwrap();
    }
    settle(&mut core);
    assert_eq!(core.private_links(), 0);
    // Another one takes the index.
    let other = client(&mut core);
    core.on_client_bytes(other, b"BLPOP k 0\r\n");
    assert_eq!((connect_all(&mut core), core.links[PRIVATE].lease), (1, Some(other)));
    core.on_client_bytes(watching, b"MULTI\r\nSET k 1\r\nEXEC\r\n");
    assert!(output(&core, watching).ends_with(r"+QUEUED\r\n_\r\n"));
    assert!(!sent(&mut core, PRIVATE).contains("EXEC"));
}

#[test]
fn no_transaction_goes_out_on_a_link_that_another_session_has() {
    let mut core = connected_core();
    let watching = tracked_and_watching(&mut core);
    let other = client(&mut core);
    core.links[PRIVATE].lease = Some(other);
    core.on_client_bytes(watching, b"MULTI\r\nSET k 1\r\nEXEC\r\n");
    assert!(output(&core, watching).ends_with(r"+QUEUED\r\n_\r\n"));
    assert_eq!(sent(&mut core, PRIVATE), "", "neither EXEC nor UNWATCH");
    assert_eq!(core.links[PRIVATE].lease, Some(other));
}

#[test]
fn a_watch_of_a_tracked_client_that_expires_unsent_guards_nothing() {
    let mut core = connected_core_with(short_timeouts);
    let client = client(&mut core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON\r\nWATCH k\r\n");
    core.on_connecting(core.links.key_at(PRIVATE));
    pass_to(&mut core, 100);
    settle(&mut core);
    core.on_client_bytes(client, b"MULTI\r\nSET k 1\r\nEXEC\r\n");
    assert!(output(&core, client).ends_with(r"+QUEUED\r\n_\r\n"));
}

#[test]
fn what_must_wait_for_earlier_requests_waits_for_those_without_a_reply() {
    const SILENT: [(&str, &str); 3] =
        [("SET a 1", "+OK\r\n"), ("DBSIZE", ":1\r\n"), ("SCAN 0", "*2\r\n$1\r\n0\r\n*0\r\n")];
    const WAITING: [&str; 5] =
        ["WATCH a", "BLPOP a 0", "WAIT 1 0", "HELLO 3", "CLIENT TRACKING ON BCAST"];
    for (silent, reply) in SILENT {
        for (waiting, expires) in WAITING.iter().flat_map(|one| [(one, false), (one, true)]) {
            let mut core = connected_core_with(short_timeouts);
            let client = client(&mut core);
            let lines = format!("CLIENT REPLY SKIP\r\n{silent}\r\n{waiting}\r\n");
            core.on_client_bytes(client, lines.as_bytes());
            settle(&mut core);
            assert!(output(&core, client).is_empty(), "{silent}, {waiting}");
            assert_eq!((core.private_links(), core.leases()), (0, 0), "{silent}, {waiting}");
            if expires {
                pass_to(&mut core, 100);
            }
            // The late reply to a write that has timed out is awaited.
            if !expires || silent.starts_with("SET") {
                settle(&mut core);
                core.on_backend_bytes(core.links.key_at(0), reply.as_bytes()).unwrap();
            }
            settle(&mut core);
            let has_begun = core.private_links() > 0 || !output(&core, client).is_empty();
            assert!(has_begun, "{silent}, {waiting}");
            assert_eq!(core.session(client).unwrap().unheard, 0);
        }
    }
}

#[test]
fn a_link_whose_server_names_it_late_can_be_unblocked() {
    let mut core = connected_core_with(short_timeouts);
    let client = client(&mut core);
    core.on_client_bytes(client, b"WATCH k\r\n");
    connect_all(&mut core);
    sent(&mut core, PRIVATE);
    pass_to(&mut core, 150);
    core.on_backend_bytes(core.links.key_at(PRIVATE), &[ID, b"+OK\r\n"].concat()).unwrap();
    assert_eq!(core.links[PRIVATE].client_id, Some(7));
}
