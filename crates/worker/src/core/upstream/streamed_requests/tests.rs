use super::*;
use crate::core::Core;
use crate::core::tests::{client, connected_core, connected_core_with, output, pass_to};
use keyway_base::{BackendFault, Time};
use keyway_net::Socket;
use keyway_proxy::LinkState;

/// The index of the first private link.
const PRIVATE: usize = 6;

/// The reply to `CLIENT ID`, which is the first on a private link.
const ID: &[u8] = b":7\r\n";

fn frame(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Begins to send a request. Its link is connected, and has answered `CLIENT ID`.
fn begin(core: &mut Core, client: Key<Session>, part: &[u8]) {
    core.on_client_bytes(client, part);
    assert_eq!(core.leases(), 1, "it is sent as it comes");
    for index in std::mem::take(&mut core.plane.upstream.connects) {
        core.on_connecting(index);
        core.on_connected(index, Socket(index.index() as i32 + 100));
    }
    assert!(core.links[PRIVATE].link.state() == LinkState::Ready);
}

fn sent(core: &mut Core, index: usize) -> Vec<u8> {
    let link = &mut core.links[index].link;
    let bytes = link.unsent().to_vec();
    link.advance(bytes.len());
    core.release_waiting(core.links.key_at(index));
    core.resume_sessions(&mut Vec::new());
    bytes
}

#[test]
fn what_has_many_arguments_is_kept_until_it_is_whole() {
    let large = vec![b'v'; 600 << 10];
    let mut of_small = vec![&b"RPUSH"[..], b"k"];
    of_small.resize(110_000, b"x");
    let mut with_large = vec![&b"RPUSH"[..], b"k"];
    with_large.resize(10_010, b"x");
    with_large[1000] = &large;
    for (args, count, beyond) in [(&of_small, 1099, 0), (&with_large, 1000, 20)] {
        let whole = frame(args);
        let digits = args.len().to_string().len();
        let of_those = frame(&args[..count]).len() - count.to_string().len() + digits;
        let (first, rest) = whole.split_at(of_those + beyond);
        let mut core = connected_core();
        let client = client(&mut core);
        core.on_client_bytes(client, first);
        assert_eq!((core.leases(), core.links[0].link.unsent_len()), (0, 0));
        core.on_client_bytes(client, rest);
        assert!(core.links[0].link.unsent() == whole);
    }
}

#[test]
fn only_a_value_whose_end_is_told_is_sent_as_it_comes() {
    let look = |bytes: &[u8], args: &[(usize, usize)], end| {
        let args: Vec<_> = args.iter().map(|&(from, to)| ByteRange::new(from, to)).collect();
        tail_of(bytes, &args, end, 100)
    };
    let head = b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\nvv";
    let args = [(8, 11), (17, 18)];
    assert_eq!(look(head, &args, 27 + 1002), Some((2, 1000)));
    assert_eq!(look(head, &args, 27 + 1003), None, "another end than that of the value");
    assert_eq!(look(&head[..26], &args, 27), None, "its head is not here");
    assert_eq!(look(head, &args[..1], 27 + 1002), None, "nor its key");
}

#[test]
fn what_comes_behind_the_value_may_be_long_and_cut_anywhere() {
    let (value, other) = (vec![b'v'; 600 << 10], vec![b'o'; 3000]);
    let whole = frame(&[b"SET", b"k", &value, b"IFEQ", &other]);
    for cut in [whole.len() - 3060, whole.len() - 2900, whole.len() - 1] {
        let mut core = connected_core();
        let client = client(&mut core);
        begin(&mut core, client, &whole[..300_000]);
        let mut all = sent(&mut core, PRIVATE);
        for part in [&whole[300_000..cut], &whole[cut..]] {
            core.on_client_bytes(client, part);
            all.extend(sent(&mut core, PRIVATE));
        }
        assert!(all.ends_with(&whole), "cut at {cut}");
        let session = core.session(client).unwrap();
        assert!(!session.closing && session.streaming.is_none());
        core.on_backend_bytes(core.links.key_at(PRIVATE), &[ID, b"+OK\r\n"].concat()).unwrap();
        assert_eq!(output(&core, client), r"+OK\r\n");
        assert_eq!((core.leases(), core.private_links()), (0, 1));
    }
}

#[test]
fn a_server_that_takes_no_more_of_a_value_is_given_up_and_a_slow_client_is_not() {
    let whole = frame(&[b"SET", b"k", &vec![b'v'; 3 << 20]]);
    let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(100));
    let client = client(&mut core);
    begin(&mut core, client, &whole[..300_000]);
    sent(&mut core, PRIVATE);
    core.on_backend_bytes(core.links.key_at(PRIVATE), ID).unwrap();
    // The client is slow.
    for millis in (0..5000).step_by(50) {
        assert!(pass_to(&mut core, millis).is_empty());
    }
    core.on_client_bytes(client, &whole[300_000..600_000]);
    // The server takes some.
    for millis in (5000..6000).step_by(50) {
        assert!(pass_to(&mut core, millis).is_empty(), "at {millis}");
        core.links[PRIVATE].link.advance(10);
        core.links[PRIVATE].link.note_progress(core.plane.clock.now);
    }
    assert!(pass_to(&mut core, 6040).is_empty());
    assert_eq!(pass_to(&mut core, 6200), [(core.links.key_at(PRIVATE), BackendFault::Timeout)]);
    core.on_link_lost(core.links.key_at(PRIVATE), BackendFault::Timeout);
    assert!(output(&core, client).starts_with("-"), "{}", output(&core, client));
    // The rest of it is dropped, and the next requests are served.
    core.on_client_bytes(client, &whole[600_000..]);
    core.on_client_bytes(client, b"PING\r\n");
    assert!(output(&core, client).ends_with(r"\r\n+PONG\r\n"), "{}", output(&core, client));
}

#[test]
fn no_more_than_a_window_of_a_value_waits_for_its_server() {
    let whole = frame(&[b"SET", b"k", &vec![b'v'; 3 << 20]]);
    let mut core = connected_core();
    let client = client(&mut core);
    begin(&mut core, client, &whole[..900_000]);
    assert!(!core.session(client).unwrap().paused);
    core.on_client_bytes(client, &whole[900_000..900_100]);
    assert!(core.session(client).unwrap().paused);
    let window = core.plane.plan.limits.pass_len();
    let is_paused = |core: &mut Core, unsent: usize| {
        let link = &mut core.links[PRIVATE].link;
        link.advance(link.unsent_len() - unsent);
        core.release_waiting(core.links.key_at(PRIVATE));
        core.resume_sessions(&mut Vec::new());
        core.session(client).unwrap().paused
    };
    assert!(is_paused(&mut core, window / 2 + 1));
    assert!(!is_paused(&mut core, window / 2));
}

#[test]
fn so_many_large_requests_have_connections_of_their_own_and_no_more() {
    let whole = frame(&[b"SET", b"k", &vec![b'v'; 600 << 10]]);
    let mut core = connected_core();
    for _ in 0..PER_SERVER_MAX + 3 {
        let client = client(&mut core);
        core.on_client_bytes(client, &whole[..300_000]);
    }
    assert_eq!(core.leases(), PER_SERVER_MAX);
}

#[test]
fn a_large_request_is_kept_whole_while_a_server_owes_a_write_that_has_timed_out() {
    let whole = frame(&[b"SET", b"k", &vec![b'v'; 600 << 10]]);
    for (request, is_write) in [(&b"GET k\r\n"[..], false), (b"SET k 1\r\n", true)] {
        let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(100));
        let client = client(&mut core);
        core.on_client_bytes(client, request);
        sent(&mut core, 0);
        core.on_client_bytes(client, &whole[..300_000]);
        pass_to(&mut core, 1000);
        core.resume_sessions(&mut Vec::new());
        assert!(output(&core, client).contains("did not answer in time"));
        assert_eq!(core.leases(), usize::from(!is_write));
        if !is_write {
            continue;
        }
        core.on_client_bytes(client, &whole[300_000..]);
        assert!(core.links[0].link.unsent() == whole, "it goes behind the late write");
        sent(&mut core, 0);
        core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n+OK\r\n").unwrap();
        // The late write is executed.
        begin(&mut core, client, &whole[..300_000]);
    }
}

#[test]
fn a_write_waits_for_a_large_one_that_has_timed_out() {
    let whole = frame(&[b"SET", b"k", &vec![b'v'; 600 << 10]]);
    let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(100));
    let client = begun(&mut core, &whole, 300_000);
    core.on_client_bytes(client, &whole[300_000..]);
    sent(&mut core, PRIVATE);
    pass_to(&mut core, 5_200);
    core.resume_sessions(&mut Vec::new());
    assert!(output(&core, client).contains("did not answer in time"), "{}", output(&core, client));
    assert!(core.plane.upstream.discards.is_empty(), "the connection stays");
    core.on_client_bytes(client, b"SET k 2\r\n");
    assert!(sent(&mut core, 0).is_empty());
    core.on_backend_bytes(core.links.key_at(PRIVATE), &[ID, b"+OK\r\n"].concat()).unwrap();
    core.resume_sessions(&mut Vec::new());
    assert!(!sent(&mut core, 0).is_empty(), "once the large one was executed");
    assert_eq!((core.leases(), core.private_links()), (0, 1));
    assert!(!core.links[PRIVATE].takes_large, "it does not count among large requests any more");
    // The next client on the connection times out as usual.
    core.on_backend_bytes(core.links.key_at(0), b"+OK\r\n").unwrap();
    core.resume_sessions(&mut Vec::new());
    core.on_client_bytes(client, b"WATCH k\r\n");
    assert!(!core.links[PRIVATE].link.stays_when_late && core.leases() == 1);
}

#[test]
fn a_request_that_ends_in_a_pause_is_not_executed_and_its_client_is_told() {
    let value = vec![b'v'; 600 << 10];
    for args in [&[&b"SET"[..], b"k", &value][..], &[b"SET", b"k", &value, b"KEEPTTL"]] {
        let whole = frame(args);
        let mut core = connected_core();
        let client = client(&mut core);
        begin(&mut core, client, &whole[..300_000]);
        let mut all = sent(&mut core, PRIVATE);
        core.plane.plan.pools[0].pause.extend(Time(1 << 40), true, Time(0));
        core.on_client_bytes(client, &whole[300_000..]);
        all.extend(sent(&mut core, PRIVATE));
        assert!(!all.ends_with(&whole));
        assert_eq!(core.plane.upstream.discards, [core.links.key_at(PRIVATE)]);
        core.on_link_lost(core.links.key_at(PRIVATE), BackendFault::Closed);
        assert!(output(&core, client).starts_with('-'), "{}", output(&core, client));
        let session = core.session(client).unwrap();
        assert!(!session.closing && session.streaming.is_none());
    }
}

/// Creates a client that sends `bytes`, of which `core` has taken the first `count`.
fn begun(core: &mut Core, bytes: &[u8], count: usize) -> Key<Session> {
    let client = client(core);
    begin(core, client, &bytes[..count]);
    sent(core, PRIVATE);
    client
}

#[test]
fn a_client_that_ends_within_a_request_has_no_reply_to_it() {
    let whole = frame(&[b"SET", b"k", &vec![b'v'; 600 << 10]]);
    let mut core = connected_core();
    let client = begun(&mut core, &whole, 300_000);
    core.on_client_end(client);
    assert_eq!(core.plane.upstream.discards, [core.links.key_at(PRIVATE)]);
    core.on_link_lost(core.links.key_at(PRIVATE), BackendFault::Closed);
    assert_eq!(output(&core, client), "");
    let session = core.session(client).unwrap();
    assert!(session.closing && session.busy.as_ref().is_none_or(|busy| busy.order.is_empty()));
}

#[test]
fn what_is_broken_behind_a_value_is_told() {
    let mut whole = frame(&[b"SET", b"k", &vec![b'v'; 600 << 10], b"KEEPTTL"]);
    let at = whole.len() - "$7\r\nKEEPTTL\r\n".len();
    whole[at] = b'!';
    let mut core = connected_core();
    let client = begun(&mut core, &whole, 300_000);
    core.on_client_bytes(client, &whole[300_000..]);
    assert_eq!(core.plane.upstream.discards, [core.links.key_at(PRIVATE)]);
    core.on_link_lost(core.links.key_at(PRIVATE), BackendFault::Closed);
    let told = output(&core, client);
    assert!(
        told.starts_with("-ERR Protocol error: expected") && told.ends_with("!\\'\\r\\n"),
        "{told}"
    );
    assert!(core.session(client).unwrap().closing);
}
