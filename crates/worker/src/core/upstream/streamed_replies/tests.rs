use super::*;
use crate::core::pools::{BULK, BYPASS};
use crate::core::tests::{client, connected_core, connected_core_with, output, pass_to};
use keyway_command::Counted;
use keyway_net::Socket;
use keyway_proxy::Owner;

/// Receives so much of a large reply that its client must take it first. `behind` has asked after
/// it.
fn hold(core: &mut Core, client: Key<Session>, behind: Option<Key<Session>>) {
    core.on_client_bytes(client, b"GET k\r\n");
    if let Some(behind) = behind {
        core.on_client_bytes(behind, b"GET other\r\n");
    }
    let len = core.links[0].link.unsent_len();
    core.links[0].link.advance(len);
    let mut part = b"$9000000\r\n".to_vec();
    part.resize(core.plane.plan.limits.pass_len() + 100, b'x');
    core.on_backend_bytes(core.links.key_at(0), &part).unwrap();
    assert!(core.is_held(core.links.key_at(0)), "{} bytes", output(core, client).len());
}

#[test]
fn a_link_that_is_lost_while_it_is_held_is_held_and_let_go_anew() {
    let mut core = connected_core();
    let first = client(&mut core);
    hold(&mut core, first, None);
    core.on_link_lost(core.links.key_at(0), BackendFault::Closed);
    pass_to(&mut core, 5000);
    core.plane.upstream.connects.clear();
    core.on_connecting(core.links.key_at(0));
    core.on_connected(core.links.key_at(0), Socket(2));
    // The first exchange checks whether the server serves again.
    core.links[0].link.advance(14);
    core.on_backend_bytes(core.links.key_at(0), b"+PONG\r\n").unwrap();
    let second = client(&mut core);
    let third = client(&mut core);
    hold(&mut core, second, Some(third));
    assert_eq!(core.plane.upstream.streamed_replies.held, [core.links.key_at(0)]);
    assert_eq!(core.links[0].link.in_flight(), 2);
    pass_to(&mut core, 8000);
    core.tend_large();
    assert_eq!((core.next_freed(), core.next_freed()), (Some(core.links.key_at(0)), None));
    assert!(core.plane.upstream.streamed_replies.held.is_empty());
}

#[test]
fn what_a_slow_client_asked_for_itself_waits_until_it_takes_its_reply() {
    let mut core = connected_core();
    let client = client(&mut core);
    core.on_client_bytes(client, b"GET k\r\nGET other\r\nGET third\r\n");
    let len = core.links[0].link.unsent_len();
    core.links[0].link.advance(len);
    let mut part = b"$9000000\r\n".to_vec();
    part.resize(core.plane.plan.limits.pass_len() + 100, b'x');
    core.on_backend_bytes(core.links.key_at(0), &part).unwrap();
    assert!(core.is_held(core.links.key_at(0)));
    pass_to(&mut core, 8000);
    core.tend_large();
    assert_eq!(core.next_freed(), None);
    assert!(core.session(client).unwrap().reply_size.largest() >= 9_000_000);
}

#[test]
fn a_link_held_for_nobody_is_read_on_in_time_for_others_who_come() {
    // Times at which the other asked, at which its request was added to the link, and at which the
    // link is read again: half of the timeout after 30, or sooner for a request that has waited
    // elsewhere.
    let cases = [(40, 40, 92), (100, 100, 100), (0, 40, 74), (0, 80, 80)];
    for (has_room, (asked, comes_at, freed_at)) in
        [true, false].into_iter().flat_map(|has_room| cases.map(|case| (has_room, case)))
    {
        let mut core = connected_core_with(|pool| {
            pool.timeout = Duration::from_millis(124);
            pool.link_in_flight_max = if has_room { 64 } else { 1 };
        });
        let [reader, other] = [(); 2].map(|()| client(&mut core));
        pass_to(&mut core, 30);
        hold(&mut core, reader, None);
        pass_to(&mut core, comes_at);
        // A check that finds no waiting client discards the time of the next one.
        core.plane.next_deadline = None;
        core.tend_large();
        assert_eq!(core.plane.next_deadline, None);
        let (now, asked) = (core.clock().now, Time(asked * 1_000_000));
        let Core { sessions, links, plane } = &mut core;
        if has_room {
            let link = &mut links[0].link;
            link.request_buf().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            let owner = Owner::Session { session: other, sequence: 0 };
            link.enqueue(owner, Counted::OWN, 14, now);
            link.backdate_last(|its| its == owner, asked, now);
            core.look_at_hold(core.links.key_at(0));
        } else {
            sessions.get_mut(other).unwrap().full_since = Some(asked);
            assert_eq!(plane.lateness(&mut links[0], sessions.get(other).unwrap()), None);
            links[0].waiting.push(other);
            pass_to(&mut core, comes_at);
        }
        let case = format!("room {has_room}, asked {asked:?}, comes at {comes_at}");
        if freed_at > comes_at {
            pass_to(&mut core, freed_at - 1);
            assert_eq!(core.next_freed(), None, "{case}");
            pass_to(&mut core, freed_at);
        }
        assert_eq!(core.next_freed(), Some(core.links.key_at(0)), "{case}");
        assert!(core.plane.upstream.streamed_replies.held.is_empty());
    }
}

/// Receives all but 50 bytes of a reply that is streamed. Returns its length.
fn begin_large(core: &mut Core) -> usize {
    let value_len = core.plane.plan.limits.pass_len() + 100;
    let mut part = format!("${value_len}\r\n").into_bytes();
    let whole_len = part.len() + value_len + 2;
    part.resize(whole_len - 50, b'x');
    core.on_backend_bytes(core.links.key_at(0), &part).unwrap();
    whole_len
}

#[test]
fn what_a_client_is_told_unasked_comes_behind_the_reply_that_passes() {
    let mut core = connected_core();
    let client = client(&mut core);
    core.on_client_bytes(client, b"GET k\r\n");
    let len = core.links[0].link.unsent_len();
    core.links[0].link.advance(len);
    let whole_len = begin_large(&mut core);
    assert!(core.session(client).unwrap().streamed_reply.is_some());
    let told = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nz\r\n";
    core.plane.keep_behind(client, Protocol::Resp3, told);
    for _ in 0..BEHIND_LEN_MAX / 20 {
        core.plane.keep_behind(client, Protocol::Resp3, told);
        assert!(core.plane.upstream.streamed_replies.behind[0].1.len() <= BEHIND_LEN_MAX);
    }
    let mut end = vec![b'x'; 48];
    end.extend_from_slice(b"\r\n");
    core.on_backend_bytes(core.links.key_at(0), &end).unwrap();
    assert!(core.session(client).unwrap().streamed_reply.is_none());
    assert!(core.plane.upstream.streamed_replies.behind.is_empty());
    let busy = core.session(client).unwrap().busy.as_ref().unwrap();
    let (reply, behind) = busy.output.unsent().split_at(whole_len);
    assert!(reply.starts_with(b"$") && reply.ends_with(b"x\r\n"));
    // If there is more than is kept, it is told that everything may have changed.
    assert!(behind.starts_with(b">2\r\n$10\r\ninvalidate\r\n_\r\n"), "{}", behind.escape_ascii());
    assert!(behind.ends_with(told));
}

#[test]
fn a_client_cut_off_has_a_while_to_take_the_replies_before() {
    let mut core = connected_core();
    let client = client(&mut core);
    hold(&mut core, client, None);
    core.on_link_lost(core.links.key_at(0), BackendFault::Closed);
    assert!(core.session(client).unwrap().closing);
    assert_eq!(core.after_flush(client), None, "nothing was taken yet");
    core.tend_large();
    pass_to(&mut core, 1900);
    assert_eq!(core.after_flush(client), None);
    pass_to(&mut core, 2100);
    core.plane.clients.dirty.clear();
    core.sessions.get_mut(client).unwrap().is_dirty = false;
    core.tend_large();
    assert!(core.plane.clients.dirty.contains(&client), "it is looked at again");
    assert_eq!(core.after_flush(client), Some(keyway_metrics::CloseReason::Backend));
}

/// Returns the indices of the links with unsent requests.
fn with_unsent(core: &Core) -> Vec<usize> {
    (0..core.links.len()).filter(|&index| core.links[index].link.unsent_len() > 0).collect()
}

#[test]
fn others_go_around_a_large_reply_and_come_back_behind_it() {
    let mut core = connected_core();
    let [reader, at_rest, waiting] = [(); 3].map(|()| client(&mut core));
    core.on_client_bytes(reader, b"GET k\r\n");
    core.on_client_bytes(waiting, b"GET before\r\n");
    let len = core.links[0].link.unsent_len();
    core.links[0].link.advance(len);
    begin_large(&mut core);

    core.on_client_bytes(at_rest, b"GET a\r\nGET b\r\n");
    let bypass = with_unsent(&core);
    assert!(matches!(bypass[..], [index] if core.links[index].is_bypass), "{bypass:?}");
    assert_eq!(core.links[bypass[0]].link.in_flight(), 2);
    // A client that waits for a reply stays, so that its requests keep their order.
    core.on_client_bytes(waiting, b"GET c\r\n");
    assert_eq!(core.links[bypass[0]].link.in_flight(), 2);
    assert_eq!(core.links[0].link.in_flight(), 2);

    let mut end = vec![b'x'; 48];
    end.extend_from_slice(b"\r\n$1\r\n1\r\n");
    core.on_backend_bytes(core.links.key_at(0), &end).unwrap();
    assert_eq!(output(&core, waiting), r"$1\r\n1\r\n");
    // A client stays there for as long as it waits for a reply on the bypass.
    core.on_client_bytes(at_rest, b"GET d\r\n");
    assert_eq!(core.links[0].link.in_flight(), 0);
    let new = client(&mut core);
    core.on_client_bytes(new, b"GET e\r\n");
    assert_eq!((core.links[0].link.in_flight(), with_unsent(&core).len()), (1, 2));
    assert!(core.plane.upstream.blocked.is_empty());
}

#[test]
fn a_reply_behind_one_that_was_read_on_holds_the_link_no_longer_than_any() {
    let mut core = connected_core();
    let [first, second, third] = [(); 3].map(|()| client(&mut core));
    core.on_client_bytes(first, b"GET k\r\n");
    let len = core.links[0].link.unsent_len();
    core.links[0].link.advance(len);
    let value_len = core.plane.plan.limits.pass_len() + 100;
    let mut part = format!("${value_len}\r\n").into_bytes();
    part.resize(part.len() + value_len - 48, b'x');
    core.on_backend_bytes(core.links.key_at(0), &part).unwrap();
    assert!(core.is_held(core.links.key_at(0)));
    // The client takes a little, and the server has sent something.
    let session = core.sessions.get_mut(first).unwrap();
    session.busy.as_mut().unwrap().output.advance(200);
    assert!(!core.is_held(core.links.key_at(0)));
    core.on_backend_bytes(core.links.key_at(0), &[&[b'x'; 48][..], b"\r\n"].concat()).unwrap();
    core.tend_large();
    hold(&mut core, second, Some(third));
    assert_eq!(core.plane.upstream.streamed_replies.held, [core.links.key_at(0)]);
    pass_to(&mut core, 8000);
    core.tend_large();
    assert_eq!(core.next_freed(), Some(core.links.key_at(0)));
}

#[test]
fn a_reply_that_nobody_waits_for_any_more_is_read_on() {
    let mut core = connected_core();
    let client = client(&mut core);
    hold(&mut core, client, None);
    core.links[0].link.abandon(|_| ());
    core.tend_large();
    assert_eq!(core.next_freed(), Some(core.links.key_at(0)));
    assert!(!core.is_held(core.links.key_at(0)));
}

#[test]
fn a_client_whose_write_has_timed_out_goes_around_nothing_until_that_is_answered() {
    for is_write in [false, true] {
        let mut core = connected_core_with(|pool| pool.timeout = Duration::from_millis(100));
        let [reader, writer, other] = [(); 3].map(|()| client(&mut core));
        core.on_client_bytes(reader, b"GET k\r\n");
        let request: &[u8] = if is_write { b"SET a 1\r\n" } else { b"GET a\r\n" };
        core.on_client_bytes(writer, request);
        let len = core.links[0].link.unsent_len();
        core.links[0].link.advance(len);
        begin_large(&mut core);
        pass_to(&mut core, 1000);
        assert!(output(&core, writer).contains("did not answer in time"));

        core.on_client_bytes(other, b"SET b 1\r\n");
        let bypass = with_unsent(&core);
        assert!(matches!(bypass[..], [index] if core.links[index].is_bypass), "{bypass:?}");
        core.on_client_bytes(writer, b"SET a 2\r\n");
        let bypass = &core.links[bypass[0]];
        assert_eq!(bypass.link.in_flight(), if is_write { 1 } else { 2 });
        assert_eq!(core.links[0].link.in_flight(), if is_write { 3 } else { 2 });
    }
}

#[test]
fn a_question_of_the_worker_goes_by_a_connection_that_no_large_reply_obstructs() {
    let mut core = connected_core();
    let Some(state) = core.plane.pools[0].servers() else { panic!("a pool with servers") };
    let beside = |lane| state.link(0, lane, keyway_resp::Protocol::Resp2);
    let (bypass, bulk) = (beside(BYPASS), beside(BULK));
    let mut part = b"$9000000\r\n".to_vec();
    part.resize(core.plane.plan.limits.pass_len() + 100, b'x');
    for (index, lane, next) in
        [(0, 0, bypass), (bypass.index(), BYPASS, bulk), (bulk.index(), BULK, core.links.key_at(0))]
    {
        if index > 0 {
            core.on_connecting(core.links.key_at(index));
            core.on_connected(core.links.key_at(index), Socket(index as i32 + 1));
        }
        let client = client(&mut core);
        core.sessions.get_mut(client).unwrap().lane = lane;
        core.links[index].link.request_buf().extend_from_slice(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        let owner = Owner::Session { session: client, sequence: 0 };
        core.links[index].link.enqueue(owner, Counted::OWN, 20, Time(0));
        let len = core.links[index].link.unsent_len();
        core.links[index].link.advance(len);
        core.on_backend_bytes(core.links.key_at(index), &part).unwrap();
        assert_eq!(core.clear_link(core.links.key_at(0)), next);
    }
}

#[test]
fn a_client_that_stays_on_its_connection_is_looked_after_while_it_gets_a_large_reply() {
    let mut core = connected_core();
    let client = client(&mut core);
    core.on_client_bytes(client, b"GET k\r\n");
    let write = Counted::of_memcached(keyway_command::Class::Write, "set");
    core.links[0].link.request_buf().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    core.links[0].link.enqueue(Owner::None, write, 14, Time(0));
    let len = core.links[0].link.unsent_len();
    core.links[0].link.advance(len);
    core.sessions.get_mut(client).unwrap().has_late_write = true;
    core.links[0].late_of.push((client, u64::MAX));
    let mut part = b"$9000000\r\n".to_vec();
    part.resize(core.plane.plan.limits.pass_len() + 100, b'x');
    core.on_backend_bytes(core.links.key_at(0), &part).unwrap();
    let session = core.session(client).unwrap();
    assert!(
        session.streamed_reply.is_some() && session.lane != BULK && gets_large_replies(session)
    );
    assert_eq!(core.plane.upstream.streamed_replies.bulk, [client]);
}
