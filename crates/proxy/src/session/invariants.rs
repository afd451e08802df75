//! Laws of sessions: what a session reports about itself, for every combination of what it depends
//! on.

use super::*;
use crate::route_policy::SubRequestFor;
use keyway_base::{Block, ByteRange, Key, Part};
use keyway_command::{Args, Request};
use keyway_users::Users;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn session() -> Session {
    Session::new(3, 0, Identity::new(1, true, Time(0)))
}

/// Returns all combinations of `N` booleans.
fn all<const N: usize>() -> impl Iterator<Item = [bool; N]> {
    (0..1 << N).map(|bits: u32| std::array::from_fn(|at| bits >> at & 1 != 0))
}

/// Returns buffers with a request in flight, output and unparsed input, as wanted.
fn busy([has_request, has_output, has_input]: [bool; 3]) -> Box<Busy> {
    let mut busy = Box::<Busy>::default();
    if has_request {
        busy.order.reserve();
    }
    if has_output {
        busy.output.buf().extend_from_slice(b"+OK\r\n");
    }
    if has_input {
        busy.keep_input(b"*1\r\n");
    }
    busy
}

#[test]
fn a_session_is_at_rest_once_nothing_is_left_and_has_delivered_without_regard_to_input() {
    assert!(session().is_at_rest() && session().has_delivered());
    for has in all::<3>() {
        let session = Session { busy: Some(busy(has)), ..session() };
        assert_eq!(session.is_at_rest(), has == [false; 3], "{has:?}");
        assert_eq!(session.has_delivered(), !has[0] && !has[1], "{has:?}");
    }
}

#[test]
fn a_session_is_quiet_once_no_request_is_on_its_way_heard_or_not() {
    for [has_request, is_unheard] in all() {
        let session = Session { unheard: u32::from(is_unheard), ..session() };
        let busy = busy([has_request, true, true]);
        assert_eq!(session.is_quiet(&busy), !has_request && !is_unheard);
    }
}

#[test]
fn a_paused_session_goes_on_with_room_and_behind_a_fence_when_it_is_quiet() {
    let narrow = Limits { session_in_flight_max: 1, ..Limits::default() };
    assert!(!session().is_waiting_for_itself(&narrow), "it waits for nothing");
    for [has_request, is_unheard, is_fenced, has_room] in all() {
        let session = Session {
            busy: Some(busy([has_request, false, true])),
            unheard: u32::from(is_unheard),
            is_fenced,
            ..session()
        };
        let limits = if has_room { Limits::default() } else { narrow };
        let is_held = is_fenced && (has_request || is_unheard);
        let may_start = has_room || !has_request;
        assert_eq!(session.is_waiting_for_itself(&limits), may_start && !is_held);
    }
}

#[test]
fn output_above_the_hard_bound_or_a_client_that_takes_nothing_ends_a_session() {
    let limits = Limits { session_output_len_hard: 5, ..Limits::default() };
    assert!(!session().is_overgrown(&limits));
    assert!(Session { is_cut: true, ..session() }.is_overgrown(&limits));
    for (len, is_overgrown) in [(0, false), (5, false), (6, true), (50, true)] {
        let mut busy = busy([false; 3]);
        busy.output.buf().resize(len, b'x');
        let session = Session { busy: Some(busy), ..session() };
        assert_eq!(session.is_overgrown(&limits), is_overgrown, "{len} bytes");
        assert!(Session { is_cut: true, ..session }.is_overgrown(&limits));
    }
}

#[test]
fn output_waits_only_for_replies_to_come_and_never_when_it_is_long_or_cannot_be_sent() {
    let (asked, now) = (Time(0), Time(1_000_000));
    assert_eq!(session().held_until(now), None);
    for [has_request, is_long, send_blocked, closing] in all() {
        let mut busy = busy([has_request, true, false]);
        busy.hold.note_asked(asked);
        let len = if is_long { OUTPUT_HELD_MAX } else { OUTPUT_HELD_MAX - 1 };
        busy.output.buf().resize(len, b'x');
        let mut session = Session { busy: Some(busy), send_blocked, closing, ..session() };
        let waits = has_request && !is_long && !send_blocked && !closing;
        // It is half of the time that the first reply took.
        let until = waits.then_some(Time(1_500_000));
        assert_eq!(session.held_until(now), until, "{has_request} {is_long}");
    }
}

/// Returns each kind of state that a client can begin.
fn begun() -> [Stateful; 7] {
    let budget = Arc::new(QueueBudget::new(1 << 20));
    let watch = Watch { home: 0, ring: 0, link: Some(ConnectionKey::new(1, 1)) };
    [
        Stateful { transaction: Some(Transaction::new(&budget)), ..Stateful::default() },
        Stateful { watch: Some(watch), ..Stateful::default() },
        Stateful { watched: Some(Box::new(WatchedKeys::new(&budget))), ..Stateful::default() },
        Stateful { blocked_on: vec![ConnectionKey::new(2, 1)], ..Stateful::default() },
        Stateful { waits_on_store: true, ..Stateful::default() },
        Stateful { unsent: 1, ..Stateful::default() },
        Stateful { home: Some(7), ..Stateful::default() },
    ]
}

#[test]
fn what_a_client_has_begun_is_special_and_some_of_it_blocks() {
    assert!(!session().is_special() && !session().is_blocked());
    for (which, stateful) in begun().into_iter().enumerate() {
        assert_eq!((stateful.has_begun(), stateful.is_over()), (which != 6, false), "{which}");
        let session = Session { stateful: Some(Box::new(stateful)), ..session() };
        assert!(session.is_special());
        assert_eq!(session.is_blocked(), (3..6).contains(&which), "{which}");
    }
    let none = Stateful::default();
    assert!(none.is_over() && !none.has_begun());
    let tracks = || Some(Box::<Tracking>::default());
    assert!(Session { tracking: tracks(), ..session() }.is_special());
    let stateful = Some(Box::new(none));
    let both = Session { tracking: tracks(), stateful, ..session() };
    assert!(both.is_special() && !both.is_blocked());
}

#[test]
fn state_of_which_nothing_is_left_is_forgotten_and_all_other_is_kept() {
    for (which, stateful) in begun().into_iter().enumerate() {
        let mut session = Session { stateful: Some(Box::new(stateful)), ..session() };
        session.tidy();
        assert!(session.stateful.is_some(), "{which}");
        // It stays lent to another pool, whatever else ends.
        session.stateful.as_mut().expect("kept").home = Some(7);
        let taken = session.take_stateful().expect("what was begun");
        assert_eq!((taken.has_begun(), taken.home), (which != 6, Some(7)));
        let left = session.stateful.as_deref().expect("where it belongs");
        assert_eq!((left.has_begun(), left.home), (false, Some(7)));
        session.go_home();
        assert_eq!((session.pool, session.stateful.is_some()), (7, false));
        session.go_home();
        assert_eq!(session.pool, 7);
        // State that was begun in its own pool is taken completely.
        session.stateful = Some(Box::new(Stateful { home: None, ..*taken }));
        assert_eq!(session.take_stateful().map(|it| it.has_begun()), Some(which != 6));
        assert!(session.stateful.is_none() && session.take_stateful().is_none());
    }
    let stateful = Stateful { waits_on_store: true, home: Some(7), ..Stateful::default() };
    let mut lent = Session { stateful: Some(Box::new(stateful)), ..session() };
    lent.go_home();
    assert_eq!((lent.pool, lent.is_blocked()), (7, true), "what it waits for is kept");
    let mut over = Session { stateful: Some(Box::default()), ..session() };
    over.tidy();
    assert!(over.stateful.is_none());
}

#[test]
fn what_a_client_has_begun_is_told_until_it_has_ended() {
    let mut session = session();
    let told = |session: &mut Session| {
        session.note_state();
        session.identity.live.get()
    };
    assert_eq!(told(&mut session), ClientState::default());
    for (which, stateful) in begun().into_iter().enumerate() {
        session.stateful = Some(Box::new(stateful));
        let multi = (which == 0).then_some(0);
        let is_watching = which == 1 || which == 2;
        let state = ClientState { multi, is_watching, ..ClientState::default() };
        assert_eq!(told(&mut session), state, "{which}");
        let stateful = session.stateful.as_mut().expect("begun");
        if let Some(watch) = &mut stateful.watch {
            watch.link = None;
        }
        if let Some(watched) = &stateful.watched {
            watched.mark.store(true, Ordering::Relaxed);
        }
        assert_eq!(told(&mut session), ClientState { is_dirty: is_watching, ..state }, "{which}");
        session.stateful = None;
        assert_eq!(told(&mut session), ClientState::default());
    }
    session.is_monitor = true;
    assert_eq!(told(&mut session), ClientState { is_monitor: true, ..ClientState::default() });
    session.is_monitor = false;
    assert_eq!(told(&mut session), ClientState::default());
    let mut subscriptions = Subscriptions::default();
    for (count, kind) in SubscriptionKind::ALL.into_iter().enumerate() {
        for nth in 0..=count {
            subscriptions.add(kind, &format!("name {nth}").as_bytes().into());
        }
    }
    session.subscriptions = Some(Box::new(subscriptions));
    let state = ClientState { subscriptions: [1, 2, 3], ..ClientState::default() };
    assert_eq!(told(&mut session), state);
    session.subscriptions = None;
    assert_eq!(told(&mut session), ClientState::default());
    // Only state that is read is written.
    session.identity.live.set(&state);
    assert_eq!(told(&mut session), state);
}

#[test]
fn a_sub_request_keeps_the_fault_that_its_reply_tells_of_and_a_client_has_none() {
    let fault = Fault::Denied;
    let mut client = session();
    client.note_fault(fault);
    assert!(client.sub_request.is_none());
    let sub_request = SubRequest::new(SubRequestFor::Nobody, Key::NONE, 0);
    let mut session = Session { sub_request: Some(sub_request), ..session() };
    session.note_fault(fault);
    assert_eq!(session.sub_request.and_then(|sub_request| sub_request.fault), Some(fault));
}

/// Returns the reply `ten bytes!`, which is stored elsewhere.
fn part() -> Part {
    let block: Block = Arc::from(&b"ten bytes!"[..]);
    Part::of(&block, &block[..]).expect("it lies in the block")
}

#[test]
fn what_is_undelivered_is_in_the_output_or_waits_for_replies_before_it() {
    let mut busy = Box::<Busy>::default();
    let replies = [(); 3].map(|()| busy.order.reserve());
    busy.output.buf().extend_from_slice(b"12345");
    assert_eq!((busy.undelivered(), busy.parts_count()), (5, 0));
    busy.order.complete(replies[1], &mut busy.output, |out| out.extend_from_slice(b"678"));
    assert_eq!((busy.undelivered(), busy.parts_count()), (8, 0));
    let before = busy.undelivered();
    busy.order.complete_with(replies[2], &mut busy.output, part());
    assert_eq!((busy.undelivered() >= before + 10, busy.parts_count()), (true, 1));
    busy.output.append(part());
    assert_eq!(busy.parts_count(), 2);
    busy.order.complete(replies[0], &mut busy.output, |_| ());
    assert_eq!((busy.undelivered(), busy.parts_count()), (5 + 10 + 3 + 10, 2));
    for (soft, has_room) in [(28, false), (29, true)] {
        let limits = Limits { session_output_len_soft: soft, ..Limits::default() };
        assert_eq!(busy.has_room(&limits, ReplySize::default()), has_room, "{soft}");
    }
}

#[test]
fn unparsed_input_is_what_came_but_for_what_was_parsed() {
    let mut busy = Box::<Busy>::default();
    let (mut all, mut parsed) = (Vec::new(), 0);
    for step in 0..200_usize {
        let bytes: Vec<u8> = (0..step % 7).map(|at| (step * 7 + at) as u8).collect();
        busy.keep_input(&bytes);
        all.extend_from_slice(&bytes);
        assert_eq!((busy.unparsed(), busy.parsed), (&all[parsed..], 0));
        let more = (step * 5 % 11).min(busy.unparsed().len());
        (busy.parsed, parsed) = (busy.parsed + more, parsed + more);
        assert_eq!(busy.unparsed(), &all[parsed..]);
        assert_eq!(busy.is_empty(), parsed == all.len());
    }
}

#[test]
fn buffers_are_used_again_and_their_memory_is_counted_and_bounded() {
    let mut pool = BusyPool::default();
    let with = |capacity: usize| {
        let mut busy = Box::<Busy>::default();
        busy.input.reserve_exact(capacity);
        busy.order.reserve();
        busy.order.complete(0, &mut busy.output, |out| out.reserve_exact(300));
        let held = busy.input.capacity() + busy.order.capacity() + busy.output.capacity();
        assert!(busy.order.capacity() > 0 && busy.output.capacity() >= 300);
        (busy, held + size_of::<Busy>())
    };
    let (mut first, first_len) = with(1_000);
    (first.parsed, first.input_needed, first.counted) = (3, 9, 7);
    first.input.extend_from_slice(b"all");
    let (second, second_len) = with(2_000);
    let addresses = [&raw const *first, &raw const *second];
    pool.give(first);
    assert_eq!(pool.held(), first_len);
    pool.give(second);
    assert_eq!(pool.held(), first_len + second_len);
    let second = pool.take();
    assert_eq!((&raw const *second, pool.held()), (addresses[1], first_len));
    let first = pool.take();
    assert_eq!((&raw const *first, pool.held()), (addresses[0], 0));
    assert!(first.is_empty() && (first.parsed, first.input_needed, first.counted) == (0, 0, 0));
    assert!(pool.take().input.capacity() == 0, "none is left");
    // One set of buffers is kept up to a length, and all of them up to another.
    pool.give(with(64 << 10).0);
    assert_eq!(pool.held(), 0);
    let mut given = 0;
    for _ in 0..200 {
        let (busy, len) = with(20_000);
        pool.give(busy);
        given += len;
        let most = (1 << 20) / len * len;
        assert_eq!(pool.held(), given.min(most), "{len} each");
    }
    pool.trim();
    assert_eq!((pool.held(), pool.take().input.capacity()), (0, 0));
}

#[test]
fn a_client_that_wrote_reads_where_it_writes_until_so_long_after_the_last_reply() {
    let second = Duration::from_secs(1);
    let at = |seconds: u64| Time(seconds * 1_000_000_000);
    let mut identity = Identity::new(1, true, Time(0));
    identity.pin(at(5));
    identity.pin(at(3));
    assert_eq!(identity.reads_primary_until, at(5));
    identity.pin_anew(at(100));
    assert_eq!(identity.reads_primary_until, at(5), "nothing is due");
    identity.pin_for(2 * second, 7, at(10));
    assert_eq!(identity.reads_primary_until, at(12));
    identity.pin_anew(at(11));
    assert_eq!(identity.reads_primary_until, at(13));
    // The longest of those in flight counts for all.
    identity.pin_for(second, 9, at(20));
    assert_eq!(identity.reads_primary_until, at(21));
    identity.on_reply(10, false, at(30));
    assert_eq!(identity.reads_primary_until, at(21), "it is to a request behind the write");
    identity.on_reply(9, false, at(30));
    assert_eq!(identity.reads_primary_until, at(32));
    identity.on_reply(8, true, at(40));
    assert_eq!(identity.reads_primary_until, at(42));
    identity.on_reply(8, true, at(50));
    assert_eq!(identity.reads_primary_until, at(42), "none is on its way");
    // Indices start again.
    identity.pin_for(second, 1, at(60));
    identity.on_reply(u32::MAX, false, at(70));
    assert_eq!(identity.reads_primary_until, at(71));
}

#[test]
fn a_pin_is_kept_in_milliseconds_and_never_shorter_than_asked() {
    let start = Time(1_000_000_000);
    for (asked, kept) in [
        (Duration::from_millis(1), Duration::from_millis(1)),
        (Duration::from_micros(1500), Duration::from_millis(2)),
        (Duration::from_secs(3600), Duration::from_secs(3600)),
        (Duration::MAX, Duration::from_millis(u64::from(u32::MAX))),
    ] {
        let mut identity = Identity::new(1, true, Time(0));
        identity.pin_for(asked, 1, Time(0));
        identity.reads_primary_until = Time(0);
        identity.pin_anew(start);
        assert_eq!(identity.reads_primary_until, start + kept, "{asked:?}");
    }
}

#[test]
fn a_client_passes_once_it_is_let_in_unless_its_requests_must_be_looked_at() {
    let ranges = [ByteRange::new(0, 3), ByteRange::new(3, 4)];
    let request = Request::resolve(Args::new(b"GETk", &ranges)).expect("a known command");
    let open = Users::plain(None);
    let mut identity = Identity::new(1, false, Time(0));
    assert!(!identity.passes(&request));
    identity.begin(&open);
    assert!(identity.authenticated && identity.is_free && !identity.is_bound);
    assert!(identity.passes(&request));
    identity.authenticated = false;
    assert!(!identity.passes(&request));
    identity.authenticated = true;
    identity.is_bound = true;
    assert!(!identity.passes(&request));
    identity.begin(&Users::plain(Some("secret")));
    assert!(!identity.authenticated && !identity.is_free && !identity.passes(&request));
    assert_eq!(
        (identity.user_name(), Identity::new(1, true, Time(0)).passes(&request)),
        ("default", false)
    );
}

#[test]
fn a_client_is_free_if_its_user_may_do_everything_and_its_logins_lead_nowhere() {
    for (rules, pool, is_free) in [
        ("on nopass +@all ~* &*", None, true),
        ("on nopass +@all ~* &*", Some(1), false),
        ("on nopass +get ~*", None, false),
    ] {
        let user = keyway_users::User::new("default", rules).expect("these are rules");
        let (user, is_bound) = (user.of_pool(pool), pool.is_some());
        let users = Users::new(vec![Arc::new(user)]);
        let mut identity = Identity::new(1, false, Time(0));
        identity.begin(&users);
        assert_eq!((identity.authenticated, identity.is_bound), (true, is_bound));
        assert_eq!(identity.is_free, is_free, "{rules}");
    }
}

#[test]
fn a_budget_counts_what_is_taken_and_refused() {
    let budget = Arc::new(QueueBudget::new(100));
    let mut share = Share::new(&budget);
    assert!(share.grow(60) && !share.grow(41) && share.grow(40));
    assert_eq!((budget.taken(), budget.refused()), (100, 1));
    budget.set_len_max(150);
    assert_eq!(budget.len_max(), 150);
    let mut other = Share::new(&budget);
    assert!(other.grow(50) && !other.grow(1) && !share.grow(1));
    assert_eq!((budget.taken(), budget.refused()), (150, 3));
    drop(share);
    assert_eq!(budget.taken(), 50);
}

#[test]
fn a_refused_command_refuses_the_transaction_if_there_is_one() {
    let [mut stateful, mut watching, ..] = begun();
    stateful.refuse();
    assert!(stateful.transaction.is_some_and(|it| it.is_refused()));
    watching.refuse();
    assert!(watching.transaction.is_none() && watching.watch.is_some());
    let mut size = ReplySize::default();
    assert_eq!(size.largest(), 0);
    size.note(1_600);
    size.note(5);
    assert_eq!(size.largest(), 1_500);
    let mut hold = Hold::default();
    hold.note_asked(Time(5));
    assert_eq!(hold.took(Time(12)), Duration::from_nanos(7));
}
