use super::super::tests::{client, connected_core, output};
use super::*;
use crate::core::Core;
use keyway_base::Time;
use keyway_net::Socket;
use keyway_proxy::Identity;
use keyway_proxy::local::ClientEntry;
use std::sync::Arc;

/// The first private link: each server has a shared one per protocol.
const OWN: LinkIndex = 2;

/// What a server says to `HELLO 3`.
const HELLO: &str = "%1\r\n+proto\r\n:3\r\n";
const OK: &str = "+OK\r\n";

/// Makes a client known to others of its pool.
fn register(core: &Core, id: u64) {
    let identity = Identity::new(id, true, Time(0));
    let entry = ClientEntry {
        addr: String::new(),
        laddr: String::new(),
        worker: core.plane.worker(),
        pool: 0,
        connected_unix: 0,
        name: String::new(),
        lib_name: String::new(),
        lib_ver: String::new(),
        database: 0,
        protocol: Protocol::Resp3,
        live: Arc::clone(&identity.live),
        tracking: None,
    };
    core.plane.plan.clients.insert(id, entry);
}

/// Leaves room for so many links of tracked clients.
fn leave_room(core: &mut Core, links: usize) {
    while core.plane.has_own(links + 1) {
        core.plane.private.own += 1;
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
    assert!(!tracking.optin && tracking.way.is_some());
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
