//! Laws of links: what a link reports equals what a plain list of its exchanges gives.

mod outcomes;

use super::tests::{at, owner as session};
use super::*;
use keyway_base::Sent;
use keyway_command::Class;
use proptest::prelude::*;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

fn options() -> LinkOptions {
    LinkOptions { in_flight_max: 8, output_len_max: 100, ..tests::options() }
}

fn ready() -> Link {
    let mut link = Link::default();
    link.on_connecting(&options(), at(0));
    link.on_connected(&options(), at(0));
    link
}

fn ask(link: &mut Link, owner: Owner, request: &[u8], now: Time) {
    link.request_buf().extend_from_slice(request);
    link.enqueue(owner, Counted::OWN, request.len(), now);
}

fn send(link: &mut Link) {
    link.advance(link.unsent().len());
}

fn take(link: &mut Link, limits: &Limits, bytes: &[u8], now: Time) -> Vec<(Owner, Vec<u8>)> {
    let mut got = Vec::new();
    let outcome = link.handle_input(bytes, limits, now, |exchange, _, reply| {
        got.push((exchange.owner, reply.to_vec()));
    });
    assert_eq!(outcome, Ok(()));
    got
}

fn replies(link: &mut Link, bytes: &[u8], now: Time) -> Vec<(Owner, Vec<u8>)> {
    take(link, &Limits::default(), bytes, now)
}

/// Owners of all kinds that matter here.
const OWNERS: [Owner; 7] = [
    Owner::Session { session: Key::NONE, sequence: 1 },
    Owner::Operation { operation: Key::NONE, part: 0 },
    Owner::Internal(Internal::Probe),
    Owner::Internal(Internal::Select),
    Owner::Internal(Internal::Replication),
    Owner::Unheard(Key::NONE),
    Owner::None,
];

/// Compares what the link reports with a list of owners, each with the time at which it asked.
fn check(link: &Link, list: &[(Owner, Time)], unsent: usize, now: Time) {
    let options = options();
    let is_own = |owner: Owner| matches!(owner, Owner::None | Owner::Internal(_));
    let count = |is: &dyn Fn(Owner) -> bool| list.iter().filter(|(owner, _)| is(*owner)).count();
    assert_eq!(link.in_flight(), list.len());
    assert_eq!(link.unsent_len(), unsent);
    assert_eq!(link.owned(), count(&|owner| !is_own(owner)));
    let waits = |owner| !is_own(owner) && owner != Owner::Unheard(Key::NONE);
    assert_eq!(link.is_waited_for(), count(&waits) > 0);
    for which in [Internal::Probe, Internal::Select, Internal::Look] {
        let is_owed = |owner| owner == Owner::None || owner == Owner::Internal(which);
        assert_eq!(link.owes(which), count(&is_owed) > 0, "{which:?}");
    }
    assert_eq!(link.has_room(&options), list.len() < 8 && unsent < 100);
    assert_eq!(link.has_drained(&options), list.len() <= 4 && unsent <= 50);
    assert_eq!(link.owes_since(), list.first().map(|(_, asked)| *asked));
    // No large transfer is in progress.
    assert!(!link.is_streaming_reply() && !link.is_at_work(&options, now.max(at(400))));
}

proptest! {
    #[test]
    fn a_link_tells_what_a_list_of_its_exchanges_gives(
        steps in proptest::collection::vec((0..10u8, 0..OWNERS.len()), 1..60),
    ) {
        let mut link = ready();
        let mut list: Vec<(Owner, Time)> = Vec::new();
        let (mut unsent, mut now) = (0, 1_000);
        for (step, which) in steps {
            now += 1;
            match step {
                0..5 => {
                    ask(&mut link, OWNERS[which], PING, at(now));
                    list.push((OWNERS[which], at(now)));
                    unsent += PING.len();
                }
                5 | 6 => {
                    let len = link.unsent().len().min(which * 20);
                    link.advance(len);
                    unsent -= len;
                }
                7 if !list.is_empty() => {
                    let got = replies(&mut link, b"+OK\r\n", at(now));
                    prop_assert_eq!(got, [(list.remove(0).0, b"+OK\r\n".to_vec())]);
                }
                8 if which == 0 => {
                    // The time of all is up.
                    let mut expired = Vec::new();
                    let note = |exchange: &Exchange| expired.push(exchange.owner);
                    link.handle_timeout(&options(), at(now + 400), note).expect("not stuck");
                    now += 400;
                    let has_time = |owner: &Owner| {
                        !matches!(owner, Owner::None | Owner::Internal(Internal::Select))
                    };
                    let timed = list.iter().map(|(owner, _)| *owner).filter(has_time);
                    expired.retain(has_time);
                    prop_assert_eq!(expired, timed.collect::<Vec<_>>());
                    for (owner, _) in &mut list {
                        if *owner != Owner::Internal(Internal::Select) {
                            *owner = Owner::None;
                        }
                    }
                    prop_assert!(!link.is_awaited());
                }
                _ => {}
            }
            check(&link, &list, unsent, at(now));
        }
    }
}

#[test]
fn the_next_request_needs_no_look_at_its_time_while_an_earlier_one_is_awaited() {
    let mut link = Link::default();
    link.on_connecting(&options(), at(0));
    ask(&mut link, session(0), PING, at(0));
    assert!(!link.is_awaited(), "the connection does not stand");
    link.on_connected(&options(), at(0));
    assert!(link.is_awaited());
    link.handle_timeout(&options(), at(400), |_| ()).expect("alive");
    assert!(!link.is_awaited(), "it is overdue");
    ask(&mut link, session(1), PING, at(500));
    assert!(link.is_awaited());
    ask(&mut link, session(2), &[b'x'; TRANSFER_LEN], at(500));
    assert!(!link.is_awaited(), "a large request has a time of its own");
    assert!(!ready().is_awaited());
}

#[test]
fn a_link_connects_when_it_is_idle_or_its_pause_is_over_and_is_down_only_in_between() {
    let mut link = Link::new(Protocol::Resp3);
    assert_eq!(link.protocol(), Protocol::Resp3);
    let wants = |link: &Link, now| (link.wants_connection(now), link.is_down(now));
    assert_eq!(wants(&link, at(0)), (true, false));
    link.on_connecting(&options(), at(7));
    assert_eq!(link.state(), LinkState::Connecting { deadline: at(1_007) });
    assert_eq!(link.deadline(&options()), Some(at(1_007)));
    assert_eq!(wants(&link, at(7)), (false, false));
    assert!(link.handle_timeout(&options(), at(1_006), |_| ()).is_ok());
    let late = link.handle_timeout(&options(), at(1_007), |_| ());
    assert_eq!(late, Err(BackendFault::Connect));
    link.on_connected(&options(), at(8));
    assert_eq!(link.state(), LinkState::Handshaking { left: 1, deadline: at(1_008) });
    assert_eq!(link.deadline(&options()), Some(at(1_008)));
    assert_eq!(wants(&link, at(8)), (false, false));
    link.on_lost(false, |_| ());
    assert_eq!(wants(&link, at(9)), (true, false));
    link.on_backoff(&options(), at(10), 0);
    assert_eq!(link.state(), LinkState::Backoff { until: at(35) });
    let around = [at(10), Time(at(35).0 - 1), at(35), at(36)].map(|now| wants(&link, now));
    assert_eq!(around, [(false, true), (false, true), (true, false), (true, false)]);
    assert_eq!(Link::default().protocol(), Protocol::Resp2);
    let mut link = ready();
    assert_eq!(wants(&link, at(0)), (false, false));
    assert!(!link.has_answered());
    ask(&mut link, session(0), PING, at(0));
    replies(&mut link, b"+PONG\r\n", at(1));
    assert!(link.has_answered());
    link.on_lost(false, |_| ());
    assert!(!link.has_answered());
}

#[test]
fn a_pause_is_spread_over_its_second_half_by_any_random_number() {
    for jitter in [0, 1, 24_999_999, 25_000_000, 25_000_001, u64::MAX] {
        let mut link = Link::default();
        link.on_backoff(&options(), at(0), jitter);
        let until = Time(25_000_000 + jitter % 25_000_000);
        assert_eq!(link.state(), LinkState::Backoff { until }, "{jitter}");
    }
}

#[test]
fn an_answer_too_long_ends_the_connection_and_still_counts_as_one() {
    for (limits, fault) in [
        (Limits { reply_len_max: 10, ..Limits::default() }, ReplyBound::Len),
        (Limits { reply_depth_max: 1, ..Limits::default() }, ReplyBound::Depth),
    ] {
        let mut link = ready();
        link.on_backoff(&options(), at(0), 0);
        link.on_connecting(&options(), at(0));
        link.on_connected(&options(), at(0));
        ask(&mut link, session(0), PING, at(0));
        let long = b"*1\r\n*1\r\n*1\r\n$20\r\n";
        let outcome = link.handle_input(long, &limits, at(1), |_, _, _| panic!("no reply"));
        assert_eq!((outcome, link.has_answered()), (Err(BackendFault::Reply(fault)), true));
        link.on_lost(false, |_| ());
        link.on_backoff(&options(), at(0), 0);
        assert_eq!(link.state(), LinkState::Backoff { until: at(25) }, "the first pause again");
    }
    // In its handshake a server has answered nothing.
    let mut link = Link::new(Protocol::Resp3);
    link.on_connecting(&options(), at(0));
    link.on_connected(&options(), at(0));
    let limits = Limits { reply_len_max: 10, ..Limits::default() };
    assert!(link.handle_input(b"$20\r\n", &limits, at(1), |_, _, _| ()).is_err());
    assert!(!link.has_answered());
}

#[test]
fn the_memory_of_an_output_that_is_sent_is_given_back_and_none_that_is_not() {
    let mut link = ready();
    ask(&mut link, session(0), &[b'x'; 10_000], at(0));
    link.give_back_memory();
    assert_eq!(link.unsent_len(), 10_000);
    send(&mut link);
    assert!(link.output.capacity() >= 10_000);
    link.give_back_memory();
    assert_eq!((link.output.capacity(), link.unsent_len()), (0, 0));
    assert_eq!(link.in_flight(), 1);
    let mut link = ready();
    link.follow_redirections();
    ask(&mut link, session(0), b"GET k\r\n", at(0));
    send(&mut link);
    link.give_back_memory();
    assert_eq!(link.request(0, 0), b"GET k\r\n", "it may be sent again");
}

#[test]
fn the_part_of_a_reply_that_is_kept_is_told_with_what_is_missing() {
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    assert!(!link.has_part() && !link.has_part_of(0) && link.input_len() == 0);
    assert!(replies(&mut link, b"$100\r\nabc", at(1)).is_empty());
    assert!(link.has_part() && link.input_len() == 9);
    // The header, its value and the line end.
    assert!(link.has_part_of(108) && !link.has_part_of(109));
    let rest = [&[b'x'; 97][..], b"\r\n"].concat();
    assert_eq!(replies(&mut link, &rest, at(2)).len(), 1);
    assert!(!link.has_part() && !link.has_part_of(1) && link.input_len() == 0);
}

#[test]
fn a_large_reply_passes_only_where_nothing_of_it_is_looked_at() {
    const LARGE: &[u8] = b"$100\r\nabc";
    let begun = |link: &mut Link, bytes: &[u8]| {
        ask(link, session(0), PING, at(0));
        send(link);
        assert!(replies(link, bytes, at(1)).is_empty());
    };
    let mut link = ready();
    begun(&mut link, LARGE);
    assert_eq!((link.large_reply(108), link.large_reply(109)), (Some(session(0)), None));
    link.is_blocking = true;
    assert_eq!(link.large_reply(50), None);
    link.is_blocking = false;
    link.refusal = b"-ERR\r\n".to_vec();
    assert_eq!(link.large_reply(50), None);
    link.refusal.clear();
    link.refuses_once = true;
    assert_eq!(link.large_reply(50), None);
    link.refuses_once = false;
    link.translates = true;
    assert_eq!(link.large_reply(50), None);
    link.translates = false;
    link.fifo[0].replies_before = 1;
    assert_eq!(link.large_reply(50), None);
    link.fifo[0].replies_before = 0;
    assert!(!link.is_streaming_reply());
    assert_eq!(link.begin_streamed_reply(), (LARGE.to_vec(), 108));
    assert!(link.is_streaming_reply() && !link.has_part() && link.has_answered());
    assert_eq!((link.large_reply(0), link.streamed_owner()), (None, Some(session(0))));

    // Only its line end is missing, or also a byte before it.
    for (missing, is_large) in [(1, false), (2, true), (3, true)] {
        let whole = [&b"$100\r\n"[..], &[b'x'; 100], b"\r\n"].concat();
        let mut link = ready();
        begun(&mut link, &whole[..108 - missing]);
        assert_eq!(link.large_reply(50).is_some(), is_large, "{missing}");
    }
    let mut link = ready();
    begun(&mut link, b"*2\r\n$100\r\nabc");
    assert_eq!(link.large_reply(50), None, "it has elements");
    // In the handshake it has no owner.
    let mut link = Link::new(Protocol::Resp3);
    link.on_connecting(&options(), at(0));
    link.on_connected(&options(), at(0));
    ask(&mut link, session(0), PING, at(0));
    send(&mut link);
    link.translates = false;
    assert!(replies(&mut link, LARGE, at(1)).is_empty());
    assert!(link.has_part_of(108) && link.large_reply(50).is_none());
    // A request is redirected only as a whole.
    let mut link = ready();
    link.follow_redirections();
    ask(&mut link, session(0), PING, at(0));
    link.advance(5);
    assert!(replies(&mut link, LARGE, at(1)).is_empty());
    assert_eq!(link.large_reply(50), None);
    send(&mut link);
    assert_eq!(link.large_reply(50), Some(session(0)));
}

#[test]
fn a_request_that_comes_in_parts_is_one_and_has_a_time_of_its_own_once_it_is_large() {
    let mut link = ready();
    ask(&mut link, session(0), b"begun ", at(0));
    link.extend_last(b"and ended");
    assert_eq!((link.unsent(), link.fifo[0].len), (&b"begun and ended"[..], 15));
    assert!(link.is_awaited());
    link.extend_last(&[b'x'; TRANSFER_LEN - 16]);
    assert!(link.is_awaited());
    link.extend_last(b"x");
    assert!(!link.is_awaited() && link.fifo[0].len as usize == TRANSFER_LEN);
    link.extend_last(b"");
    assert!(!link.is_awaited());
    let mut none = ready();
    none.extend_last(b"nothing");
    assert_eq!(none.unsent_len(), 0);
}

#[test]
fn what_moved_while_a_link_was_held_is_not_the_servers_fault() {
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    send(&mut link);
    replies(&mut link, b"$100\r\nabc", at(1));
    link.begin_streamed_reply();
    let most = Duration::from_secs(1);
    let patience = Patience { most, others_within: None, others_since: Some(at(100)) };
    assert_eq!(link.owes_since(), Some(at(1)));
    link.let_go(patience.most, at(50));
    assert_eq!(link.owes_since(), Some(at(1)), "it was not held");
    assert_eq!(link.hold(patience, at(100)), Held::On(Some(at(1_100))));
    assert!(link.is_held());
    link.let_go(patience.most, at(300));
    assert!(!link.is_held());
    assert_eq!(link.owes_since(), Some(at(300)));
}

#[test]
fn the_workers_own_requests_and_the_clients_next_ones_wait_for_a_large_reply_without_complaint() {
    for (behind, others_wait) in [
        (session(1), false),
        (Owner::None, false),
        (Owner::Internal(Internal::Probe), false),
        (Owner::Operation { operation: Key::NONE, part: 0 }, true),
        (Owner::Unheard(Key::NONE), true),
    ] {
        let mut link = ready();
        ask(&mut link, session(0), PING, at(0));
        ask(&mut link, behind, PING, at(0));
        send(&mut link);
        replies(&mut link, b"$100\r\nabc", at(1));
        link.begin_streamed_reply();
        let most = Duration::from_secs(1);
        let patience = Patience { most, others_within: None, others_since: None };
        let until = others_wait.then_some(at(1_100));
        assert_eq!(link.hold(patience, at(100)), Held::On(until), "{behind:?}");
    }
}

#[test]
fn the_largest_reply_is_told_once_with_its_request() {
    let limits = Limits { big_values_from: 10, ..Limits::default() };
    let value = |len: usize| format!("${len}\r\n{}\r\n", "v".repeat(len)).into_bytes();
    let mut link = ready();
    let answer = |link: &mut Link, owner: Owner, request: &[u8], len: usize| {
        ask(link, owner, request, at(0));
        send(link);
        assert_eq!(take(link, &limits, &value(len), at(1)).len(), 1);
    };
    let from = limits.big_reply_len();
    answer(&mut link, session(0), b"GET small\r\n", 1);
    assert_eq!(link.take_big(), None);
    let told = |link: &mut Link| link.take_big().map(|big| (big.request.clone(), big.whole));
    let whole = |len: usize| value(len).len() as u64;
    answer(&mut link, session(0), b"GET a\r\n", from);
    answer(&mut link, session(0), b"GET b\r\n", from + 20);
    answer(&mut link, session(0), b"GET c\r\n", from + 20);
    answer(&mut link, session(0), b"GET d\r\n", from + 10);
    answer(&mut link, Owner::Internal(Internal::Probe), b"PROBE\r\n", from + 100);
    assert_eq!(told(&mut link), Some((b"GET b\r\n".to_vec(), whole(from + 20))));
    assert_eq!(told(&mut link), None, "it was told");
    // After that, a smaller one is new.
    answer(&mut link, Owner::Internal(Internal::Probe), b"PROBE\r\n", from + 100);
    assert_eq!(told(&mut link), None);
    answer(&mut link, session(0), b"GET e\r\n", from);
    assert_eq!(told(&mut link), Some((b"GET e\r\n".to_vec(), whole(from))));
}

#[test]
fn room_for_requests_under_way_is_made_by_those_that_were_answered() {
    let limits = Limits { big_values_from: 100, ..Limits::default() };
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    send(&mut link);
    take(&mut link, &limits, b"+OK\r\n", at(0));
    ask(&mut link, session(0), &[b'a'; 10_000], at(0));
    ask(&mut link, session(1), &[b'b'; 1_000], at(0));
    send(&mut link);
    take(&mut link, &limits, b"+OK\r\n", at(0));
    let request = [b'c'; 8_000];
    ask(&mut link, session(2), &request, at(0));
    send(&mut link);
    take(&mut link, &limits, b"+OK\r\n", at(0));
    let value = format!("$1000\r\n{}\r\n", "v".repeat(1_000));
    assert_eq!(take(&mut link, &limits, value.as_bytes(), at(0)).len(), 1);
    assert!(link.take_big().is_some_and(|big| big.request == request));
}

#[test]
fn a_slow_reply_is_told_once() {
    let mut link = Link::default();
    let options = LinkOptions { slower_than: Duration::from_millis(10), ..options() };
    link.on_connecting(&options, at(0));
    link.on_connected(&options, at(0));
    ask(&mut link, session(0), b"*2\r\n$4\r\nKEYS\r\n$1\r\n*\r\n", at(0));
    send(&mut link);
    assert!(link.take_slow().is_none());
    replies(&mut link, b"*0\r\n", at(30));
    let slow = link.take_slow().expect("it took long");
    assert_eq!(slow.took, Duration::from_millis(30));
    assert!(link.take_slow().is_none());
}

#[test]
fn a_command_that_waits_is_taken_whole_to_wait_elsewhere() {
    let mut link = ready();
    assert!(link.take_waiting().is_none() && !link.is_moving());
    link.set_moving(true);
    assert!(!link.is_moving(), "it follows no redirections");
    link.follow_redirections();
    assert!(!link.is_moving());
    link.set_moving(true);
    assert!(link.is_moving());
    link.set_moving(false);
    assert!(!link.is_moving());
    ask(&mut link, Owner::Internal(Internal::ClientId), b"CLIENT ID\r\n", at(0));
    ask(&mut link, session(4), b"BLPOP k 0\r\n", at(0));
    ask(&mut link, Owner::Internal(Internal::Probe), b"PING\r\n", at(0));
    let waiting = link.take_waiting().expect("it waits");
    assert_eq!((waiting.exchange.owner, &*waiting.request), (session(4), &b"BLPOP k 0\r\n"[..]));
    assert_eq!((link.live(), link.in_flight()), (0, 3));
    assert!(link.take_waiting().is_none());
}

#[test]
fn a_request_runs_a_script_unless_it_loads_one() {
    let runs = |class: Class, request: &[u8]| {
        let counted = Counted::of_memcached(class, "get");
        let exchange = Exchange { counted, ..Exchange::PUSH };
        assert_eq!(exchange.is_of_scripts(), class == Class::Script);
        let redirected = Redirected { exchange, reply: Box::default(), request: request.into() };
        redirected.runs_scripts()
    };
    assert!(runs(Class::Script, b"*3\r\n$4\r\nEVAL\r\n$1\r\nx\r\n$1\r\n0\r\n"));
    assert!(runs(Class::Script, b"*3\r\n$5\r\nFCALL\r\n$1\r\nf\r\n$1\r\n0\r\n"));
    assert!(!runs(Class::Script, b"*3\r\n$6\r\nscript\r\n$4\r\nLOAD\r\n$1\r\nx\r\n"));
    assert!(!runs(Class::Script, b"*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n$1\r\nx\r\n"));
    assert!(!runs(Class::Read, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"));
}

#[test]
fn the_time_that_an_exchange_has_waited_moves_with_it_to_the_nearest_millisecond_below() {
    let exchange = |waited| Exchange { started: at(1_000), waited, ..Exchange::PUSH };
    assert_eq!(exchange(0).waited_until(at(1_000)), 0);
    assert_eq!(exchange(0).waited_until(Time(at(1_007).0 - 1)), 6);
    assert_eq!(exchange(300).waited_until(at(1_200)), 500);
    // The last value means that its time is up.
    let forever = at(1_000 + u64::from(u32::MAX));
    for now in [Time(forever.0 - 1), forever, at(u64::MAX / 1_000_000)] {
        assert_eq!(exchange(0).waited_until(now), Exchange::OVER - 1, "{now:?}");
    }
    assert_eq!(exchange(0).waited_until(Time(forever.0 - 1_000_001)), Exchange::OVER - 2);
}

#[test]
fn the_second_of_two_equal_requests_brings_the_time_that_the_first_has_waited() {
    for (waits, is_even) in [(0, true), (5, false)] {
        let (mut first, mut second) = (ready(), ready());
        ask(&mut first, session(0), PING, at(100));
        let original = *first.exchange(0);
        let owner = Owner::Hedged { hedge: Key::NONE, is_second: true };
        second.enqueue_second(&original, owner, PING, at(100 + waits));
        assert_eq!((second.unsent(), second.exchange(0).owner), (PING, owner));
        assert_eq!(second.is_awaited(), is_even);
        assert_eq!(second.deadline(&options()), Some(at(500)));
        // A link that was uneven stays so.
        second.enqueue_second(&Exchange { started: at(200), ..original }, owner, PING, at(200));
        assert_eq!(second.is_awaited(), is_even);
    }
}

#[test]
fn a_transaction_is_known_by_the_reply_to_multi_that_is_to_come() {
    let mut link = ready();
    link.request_buf().extend_from_slice(PING);
    link.enqueue_batch(session(0), Counted::OWN, PING.len(), 2, at(0));
    assert!(!link.exchange(0).is_transaction());
    link.set_transaction();
    assert!(link.exchange(0).is_transaction());
    // Replies to more requests, which precede all of it, are skipped as well.
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    link.note_before_last(2);
    link.note_before_last(1);
    assert_eq!(link.exchange(0).replies_before, 3);
    assert_eq!(
        replies(&mut link, b"+1\r\n+2\r\n+3\r\n+4\r\n", at(1)),
        [(session(0), b"+4\r\n".to_vec())]
    );
}

#[test]
fn a_deadline_that_may_be_earlier_is_told_once_when_the_served_client_changes() {
    let mut link = ready();
    assert!(!link.take_sooner());
    ask(&mut link, session(0), PING, at(0));
    replies(&mut link, b"$100\r\nabc", at(1));
    link.begin_streamed_reply();
    assert!(link.take_sooner() && !link.take_sooner());
    // The same client is served again, so nothing changes.
    let rest = [&[b'x'; 97][..], b"\r\n"].concat();
    assert!(link.pass(&rest, at(2)).expect("well ended").answered.is_some());
    ask(&mut link, session(1), PING, at(3));
    replies(&mut link, b"$100\r\nabc", at(4));
    link.begin_streamed_reply();
    assert!(!link.take_sooner());
}

#[test]
fn a_client_that_is_served_a_large_reply_has_its_next_time_from_the_end_of_it() {
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    ask(&mut link, session(1), PING, at(0));
    ask(&mut link, Owner::Operation { operation: Key::NONE, part: 0 }, PING, at(10));
    send(&mut link);
    // It is large because of the received part, although it is not streamed.
    let part = [&b"$200000\r\n"[..], &[b'x'; TRANSFER_LEN]].concat();
    replies(&mut link, &part, at(300));
    assert_eq!(link.deadline(&options()), Some(at(410)));
    let mut expired = Vec::new();
    link.handle_timeout(&options(), at(650), |one| expired.push(one.owner)).expect("alive");
    assert_eq!(expired, [Owner::Operation { operation: Key::NONE, part: 0 }]);
    assert_eq!(link.deadline(&options()), Some(at(700)));
}

#[test]
fn a_command_that_blocks_may_go_on_as_long_as_was_said_and_as_the_server_takes_it() {
    let mut link = ready();
    link.is_blocking = true;
    assert_eq!(link.deadline(&options()), None);
    ask(&mut link, session(0), PING, at(100));
    assert_eq!(link.deadline(&options()), Some(at(500)), "the server takes none of it");
    link.note_progress(at(300));
    assert_eq!(link.deadline(&options()), Some(at(700)));
    send(&mut link);
    assert_eq!(link.deadline(&options()), None, "it may take for ever");
    assert!(link.handle_timeout(&options(), at(1_000_000), |_| ()).is_ok());
    link.blocks_until = Some(at(600));
    assert_eq!(link.deadline(&options()), Some(at(700)));
    link.blocks_until = Some(at(5_000));
    assert_eq!(link.deadline(&options()), Some(at(5_000)));
    assert!(link.handle_timeout(&options(), Time(at(5_000).0 - 1), |_| ()).is_ok());
    let over = link.handle_timeout(&options(), at(5_000), |_| ());
    assert_eq!(over, Err(BackendFault::Timeout));
}

#[test]
fn a_link_is_at_work_for_one_timeout_after_a_large_transfer_moved() {
    let mut link = ready();
    ask(&mut link, session(0), &[b'x'; 2 * TRANSFER_LEN], at(1_000));
    link.advance(10);
    link.note_progress(at(2_000));
    assert_eq!(link.at_work_until(&options()), Some(at(2_400)));
    let at_work = |now| link.is_at_work(&options(), now);
    assert_eq!([at(2_000), Time(at(2_400).0 - 1), at(2_400)].map(at_work), [true, true, false]);
    let patient = LinkOptions { timeout: None, ..options() };
    assert_eq!(link.at_work_until(&patient), None);
    assert!(!link.is_at_work(&patient, at(2_000)));
}

#[test]
fn the_time_of_a_request_that_was_held_counts_from_when_it_is_sent() {
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    ask(&mut link, session(1), PING, at(0));
    link.begin_last_anew(at(250));
    assert_eq!((link.exchange(0).started, link.exchange(1).started), (at(0), at(250)));
    assert_eq!(link.deadline(&options()), Some(at(400)));
    link.handle_timeout(&options(), at(400), |_| ()).expect("alive");
    assert_eq!(link.deadline(&options()), Some(at(650)));
}

#[test]
fn what_was_not_sent_to_a_lost_server_is_nobodys_fault() {
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    ask(&mut link, session(1), PING, at(0));
    link.advance(PING.len());
    let mut lost = Vec::new();
    link.on_lost(false, |one| lost.push((one.exchange.owner, one.sent)));
    assert_eq!(lost, [(session(0), Sent::Maybe), (session(1), Sent::No)]);
    assert_eq!((link.in_flight(), link.unsent_len()), (0, 0));
}
