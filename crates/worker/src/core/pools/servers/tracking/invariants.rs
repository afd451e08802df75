use super::*;
use crate::core::Core;
use crate::core::tests::{client, connected_core, connected_core_with, output, pass_to};
use keyway_base::{BackendFault, Key, Time};
use keyway_net::Socket;
use keyway_proxy::Identity;
use keyway_proxy::local::ClientEntry;
use keyway_topology::{HealthState, ServerOptions};
use std::time::Duration;

/// The first private link: each server has a shared one per protocol, and as many for large values.
const OWN: usize = 6;

/// A server's reply to `HELLO 3`.
const HELLO: &str = "%1\r\n+proto\r\n:3\r\n";
const OK: &str = "+OK\r\n";

/// Makes a client known to others of its pool.
fn register(core: &Core, id: u64) {
    let identity = Identity::new(id, true, Time(0));
    let entry = ClientEntry::new(&identity, "".into(), core.plane.worker(), 0, 0);
    core.plane.plan.clients.insert(id, entry);
}

/// Leaves room for so many links of tracked clients.
fn leave_room(core: &mut Core, links: usize) {
    while core.plane.has_own(links + 1) {
        core.plane.upstream.leases.own += 1;
    }
}

#[test]
fn who_finds_no_room_to_be_tracked_otherwise_is_tracked_as_before() {
    let mut core = connected_core();
    let client = client(&mut core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
    leave_room(&mut core, 0);
    core.on_client_bytes(client, b"CLIENT TRACKING ON OPTIN\r\n");
    assert!(output(&core, client).contains("-ERR too many clients"));
    let tracking = core.session(client).unwrap().tracking.as_ref().unwrap();
    assert!(!tracking.optin && tracking.links.is_some());
    assert_eq!(core.links[OWN].lease, Some(client));
}

#[test]
fn who_finds_no_room_to_be_tracked_in_another_protocol_is_closed() {
    let mut core = connected_core();
    register(&core, 1);
    let client = client(&mut core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON REDIRECT 1\r\n");
    leave_room(&mut core, 1);
    core.on_client_bytes(client, b"HELLO 2\r\n");
    assert!(output(&core, client).contains("-ERR too many clients"));
    let session = core.session(client).unwrap();
    assert!(session.closing && session.tracking.is_none());
}

#[test]
fn however_many_are_tracked_others_may_watch_keys() {
    let mut core = connected_core();
    leave_room(&mut core, 0);
    let client = client(&mut core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
    assert!(output(&core, client).contains("-ERR too many clients"));
    core.on_client_bytes(client, b"WATCH k\r\n");
    assert_eq!(core.leases(), 1);
}

/// Connects a link and has its server say so much, to one request after the
/// other.
fn stand(core: &mut Core, index: usize, replies: &[&str]) {
    core.plane.upstream.connects.retain(|&one| one != core.links.key_at(index));
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(index as i32 + 100));
    for reply in replies {
        let link = &mut core.links[index].link;
        link.advance(link.unsent().len());
        core.on_backend_bytes(core.links.key_at(index), reply.as_bytes()).unwrap();
    }
}

#[test]
fn who_is_named_to_be_told_in_place_of_itself_is_told_behind_its_replies() {
    let mut core = connected_core();
    register(&core, 1);
    let client = client(&mut core);
    core.on_client_bytes(
        client,
        b"HELLO 3\r\nCLIENT TRACKING ON REDIRECT 1\r\nGET a\r\nECHO b\r\n",
    );
    stand(&mut core, OWN, &[HELLO, OK]);
    let before = output(&core, client);
    core.on_backend_bytes(core.links.key_at(OWN), b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nz\r\n")
        .unwrap();
    assert_eq!(output(&core, client), before, "replies wait that came before it");
    core.on_backend_bytes(core.links.key_at(OWN), b"$1\r\nv\r\n").unwrap();
    let Core { sessions, plane, .. } = &mut core;
    plane.release_pushes(client, sessions.get_mut(client).unwrap());
    let told = output(&core, client);
    assert!(told[before.len()..].starts_with(r"$1\r\nv\r\n$1\r\nb\r\n>2\r\n"), "{told}");
}

#[test]
fn a_link_that_is_to_end_with_another_and_ended_before_ends_once() {
    let mut core = connected_core();
    register(&core, 1);
    let client = client(&mut core);
    core.on_client_bytes(client, b"CLIENT TRACKING ON REDIRECT 1\r\n");
    let receiver = OWN + 1;
    for ends_first in [false, true] {
        core.on_link_lost(core.links.key_at(receiver), BackendFault::Closed);
        if ends_first {
            core.on_link_lost(core.links.key_at(OWN), BackendFault::Closed);
        }
        assert_eq!(core.next_loss().is_none(), ends_first);
    }
}

#[test]
fn what_a_client_sent_before_it_left_is_executed_although_nobody_is_told_any_more() {
    let mut core = connected_core();
    register(&core, 1);
    let client = client(&mut core);
    let lines = b"CLIENT TRACKING ON REDIRECT 1\r\nCLIENT REPLY OFF\r\nSET a 1\r\n";
    core.on_client_bytes(client, lines);
    // A turn does this with links that need a connection.
    assert!(core.plane.upstream.connects.contains(&core.links.key_at(OWN)));
    core.plane.upstream.connects.clear();
    assert!(
        !core.wants_connection(core.links.key_at(OWN)),
        "its server has not named the receiver"
    );
    core.remove_session(client, None);
    assert!(
        core.plane.upstream.connects.contains(&core.links.key_at(OWN))
            && core.wants_connection(core.links.key_at(OWN))
    );
    stand(&mut core, OWN, &[OK]);
    assert!(core.links[OWN].link.unsent().ends_with(b"$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"));
}

#[test]
fn a_receiver_that_is_named_late_is_named_in_time_for_the_next_request() {
    let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(100));
    register(&core, 1);
    let client = client(&mut core);
    core.on_client_bytes(client, b"CLIENT TRACKING ON REDIRECT 1\r\n");
    let receiver = OWN + 1;
    stand(&mut core, receiver, &[HELLO]);
    pass_to(&mut core, 150);
    core.on_client_bytes(client, b"GET a\r\n");
    assert!(!core.wants_connection(core.links.key_at(OWN)));
    core.on_backend_bytes(core.links.key_at(receiver), b":9\r\n").unwrap();
    assert!(core.wants_connection(core.links.key_at(OWN)));
}

/// The session's own link, standing, on which one key was read, when its server
/// falls silent at so many milliseconds.
fn silent_from(change: impl FnOnce(&mut ServerOptions), millis: u64) -> (Core, Key<Session>) {
    let mut core = connected_core_with(change);
    pass_to(&mut core, millis);
    let client = client(&mut core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON\r\nGET a\r\n");
    stand(&mut core, OWN, &[HELLO, OK, "$1\r\nv\r\n"]);
    core.tell_forgetful();
    (core, client)
}

/// Lets upkeep happen until something ends a link, or to the end; returns when.
fn tend_to(core: &mut Core, from: u64, end: u64) -> Option<(u64, usize)> {
    for millis in (from..end).step_by(100) {
        assert_eq!(pass_to(core, millis), [], "the link is not at its end for others");
        core.tend_tracking();
        if let Some((index, BackendFault::Timeout)) = core.next_loss() {
            return Some((millis, index.index()));
        }
        let link = &mut core.links[OWN].link;
        link.advance(link.unsent().len());
    }
    None
}

#[test]
fn a_link_that_gives_no_sign_ends_within_the_bound_and_its_client_forgets() {
    for asks in [false, true] {
        let short = |pool: &mut ServerOptions| pool.timeout = Duration::from_secs(2);
        let (mut core, client) = silent_from(short, 0);
        if asks {
            core.on_client_bytes(client, b"GET b\r\n");
        }
        // Past the sign that is asked for first, which it is too early to miss.
        let (millis, index) = tend_to(&mut core, 100, 20_100).unwrap();
        assert!((10_000..=20_000).contains(&millis), "{millis}");
        assert_eq!(index, OWN);
        let before = output(&core, client).len();
        core.on_link_lost(core.links.key_at(OWN), BackendFault::Timeout);
        core.tell_forgetful();
        assert!(output(&core, client)[before..].ends_with(r"invalidate\r\n_\r\n"));
        let health = core.plane.plan.health.state(core.links[0].id);
        assert_eq!(health == HealthState::Up, !asks, "{health:?}");
    }
}

#[test]
fn who_waits_for_a_slow_reply_is_told_within_the_bound_and_keeps_the_link() {
    let long = |pool: &mut ServerOptions| pool.timeout = Duration::from_secs(60);
    let (mut core, client) = silent_from(long, 0);
    core.on_client_bytes(client, b"GET b\r\n");
    assert_eq!(tend_to(&mut core, 100, 20_000), None);
    let before = output(&core, client).len();
    core.tell_forgetful();
    assert!(output(&core, client)[before..].ends_with(r"invalidate\r\n_\r\n"));
    core.on_backend_bytes(core.links.key_at(OWN), b"$1\r\nw\r\n").unwrap();
    assert!(output(&core, client).ends_with(r"$1\r\nw\r\n"));
}

#[test]
fn a_tracked_client_waits_for_room_on_its_link_as_long_as_that_moves_and_then_for_the_timeout() {
    let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(100));
    let client = client(&mut core);
    core.on_client_bytes(client, b"HELLO 3\r\nCLIENT TRACKING ON\r\n");
    stand(&mut core, OWN, &[HELLO, OK]);
    let greeted = output(&core, client);
    let value = "v".repeat(UNSENT_MAX + 1);
    let large = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len());
    core.on_client_bytes(client, large.as_bytes());
    let told_at = |core: &mut Core, millis| {
        pass_to(core, millis);
        core.resume_sessions(&mut Vec::new());
        output(core, client)[greeted.len()..].to_owned()
    };
    pass_to(&mut core, 10);
    core.on_client_bytes(client, b"MULTI\r\nGET a\r\n");
    pass_to(&mut core, 60);
    let moved_at = core.clock().now;
    core.links[OWN].link.note_progress(moved_at);
    assert_eq!(told_at(&mut core, 159), "");
    let told = told_at(&mut core, 160);
    assert_eq!(told.matches("; the request").count(), 3, "{told}");
    assert!(core.session(client).unwrap().stateful.is_none(), "{told}");
}
