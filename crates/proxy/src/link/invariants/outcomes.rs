//! Laws of the outcomes of requests: late, lost, refused or redirected. Also of handshakes, and of
//! servers of memcached.

use super::*;

#[test]
fn the_time_of_what_was_just_enqueued_counts_from_an_earlier_one_if_told_so() {
    let mut link = ready();
    for (sequence, now) in [(0, 100), (1, 200), (2, 200), (3, 200)] {
        ask(&mut link, session(sequence), PING, at(now));
    }
    assert!(!link.backdate_last(|_| true, at(50), at(201)), "nothing was enqueued then");
    assert!(!link.backdate_last(|owner| owner == session(2), at(50), at(200)));
    assert!(link.is_awaited());
    assert!(link.backdate_last(|owner| owner != session(1), at(50), at(200)));
    let asked = |link: &Link, at: usize| link.exchange(at).asked();
    let all = [0, 1, 2, 3].map(|at| asked(&link, at));
    assert_eq!(all, [at(100), at(200), at(50), at(50)]);
    assert!(!link.is_awaited());
    let mut expired = Vec::new();
    link.handle_timeout(&options(), at(450), |one| expired.push(one.owner)).expect("alive");
    assert_eq!(expired, [session(2), session(3)]);
    // The time of a request that is held for the connection counts from when it is sent.
    for (held_for, stands, has_effect) in [
        (None, false, true),
        (Some(Duration::from_secs(5)), false, false),
        (Some(Duration::from_secs(5)), true, true),
    ] {
        let mut link = if stands { ready() } else { Link::default() };
        link.hold_unsent(held_for);
        ask(&mut link, session(0), PING, at(200));
        assert_eq!(link.backdate_last(|_| true, at(50), at(200)), has_effect);
        assert_eq!(asked(&link, 0), at(if has_effect { 50 } else { 200 }));
    }
}

#[test]
fn a_link_that_is_given_up_owes_nobody_anything() {
    let mut link = ready();
    (0..3).for_each(|sequence| ask(&mut link, session(sequence), PING, at(u64::from(sequence))));
    link.handle_timeout(&options(), at(400), |_| ()).expect("alive");
    let mut given_up = Vec::new();
    link.abandon(|one| given_up.push(one.owner));
    assert_eq!(given_up, [session(1), session(2)]);
    assert_eq!((link.live(), link.owned(), link.in_flight()), (0, 0, 3));
    link.abandon(|one| panic!("{one:?}"));
}

#[test]
fn what_waits_for_a_connection_can_be_taken_back_and_what_was_sent_cannot() {
    let filled = |mut link: Link| {
        ask(&mut link, session(0), b"GET a\r\n", at(0));
        ask(&mut link, Owner::Internal(Internal::Select), b"SELECT 1\r\n", at(0));
        ask(&mut link, session(1), &[ASKING, b"GET b\r\n"].concat(), at(0));
        link
    };
    let mut link = filled(Link::default());
    let mut taken = Vec::new();
    link.take_back(|one| taken.push(one.owner));
    assert_eq!(taken, [session(0), session(1)]);
    assert_eq!((link.in_flight(), link.unsent_len()), (1, 10));
    let mut link = filled(Link::default());
    let taken: Vec<_> =
        link.take_unsent().into_iter().map(|it| (it.exchange.owner, it.request)).collect();
    let requests = [(session(0), b"GET a\r\n"[..].into()), (session(1), b"GET b\r\n"[..].into())];
    assert_eq!(taken, requests);
    assert_eq!((link.in_flight(), link.unsent_len()), (1, 10));
    let mut link = filled(ready());
    link.take_back(|one| panic!("{one:?}"));
    assert!(link.take_unsent().is_empty() && link.in_flight() == 3);
}

#[test]
fn a_large_reply_that_is_no_sessions_has_its_time_from_the_last_movement_as_well() {
    let mut link = ready();
    ask(&mut link, Owner::Operation { operation: Key::NONE, part: 0 }, PING, at(0));
    send(&mut link);
    let part = [&b"$200000\r\n"[..], &[b'x'; TRANSFER_LEN]].concat();
    replies(&mut link, &part, at(300));
    assert_eq!((link.deadline(&options()), link.live()), (Some(at(700)), 1));
    link.handle_timeout(&options(), at(699), |one| panic!("{one:?}")).expect("alive");
    let mut expired = 0;
    link.handle_timeout(&options(), at(700), |_| expired += 1).expect("alive");
    assert_eq!((expired, link.live()), (1, 0));
}

#[test]
fn a_server_is_dead_after_ten_timeouts_and_ten_seconds() {
    for (timeout, dead_at) in
        [(None, 300_000), (Some(400), 10_000), (Some(1_000), 10_000), (Some(3_000), 30_000)]
    {
        let options = LinkOptions { timeout: timeout.map(Duration::from_millis), ..options() };
        let mut link = ready();
        ask(&mut link, session(0), PING, at(0));
        assert!(link.handle_timeout(&options, Time(at(dead_at).0 - 1), |_| ()).is_ok());
        let dead = link.handle_timeout(&options, at(dead_at), |_| ());
        assert_eq!(dead, Err(BackendFault::Timeout), "{timeout:?}");
    }
}

#[test]
fn a_link_is_uneven_as_long_as_something_has_a_time_of_its_own() {
    let mut link = ready();
    link.follow_redirections();
    let first = Exchange { owner: session(1), started: at(280), ..Exchange::PUSH };
    link.enqueue_redirected(&first, PING, at(280));
    assert!(link.is_awaited(), "it has not waited");
    send(&mut link);
    assert_eq!(replies(&mut link, b"+OK\r\n", at(280)).len(), 1);
    link.enqueue_redirected(&Exchange { started: at(100), ..first }, PING, at(280));
    ask(&mut link, session(0), PING, at(290));
    for (now, is_even) in [(310, false), (499, false), (500, true)] {
        link.handle_timeout(&options(), at(now), |_| ()).expect("alive");
        assert_eq!(link.is_awaited(), is_even, "at {now}");
    }
    // A question of the worker also has a timeout, unless later requests rely on the answer.
    for (which, due) in [(Internal::Probe, 400), (Internal::Select, 500)] {
        let mut link = ready();
        ask(&mut link, Owner::Internal(which), PING, at(0));
        ask(&mut link, session(0), &[b'x'; TRANSFER_LEN], at(100));
        assert_eq!(link.deadline(&options()), Some(at(due)), "{which:?}");
    }
}

#[test]
fn requests_of_the_workers_own_have_their_length_wherever_they_begin() {
    type Ask = fn(&mut Link);
    let asks: [Ask; 3] = [
        |link| link.select(5, &options(), at(0)),
        |link| link.read_replica(true, at(0)),
        |link| {
            link.ask_memcached(Dialect::Text, keyway_memcache::Verb::Version, Internal::Look, at(0))
        },
    ];
    for own in asks {
        let mut link = ready();
        ask(&mut link, session(0), PING, at(0));
        own(&mut link);
        assert_eq!(link.in_flight(), 2);
        assert_eq!(link.exchange(1).len as usize, link.unsent_len() - PING.len());
    }
}

#[test]
fn a_refusal_or_a_redirection_before_the_reply_answers_it_once() {
    let moved = &b"-MOVED 7 h:1\r\n"[..];
    for (follows, said, is_aside) in [
        (true, moved, true),
        (false, moved, false),
        (true, b"-NOPERM no\r\n", false),
        (false, b"-NOPERM no\r\n", false),
    ] {
        let mut link = ready();
        if follows {
            link.follow_redirections();
        }
        link.is_blocking = true;
        ask(&mut link, session(0), PING, at(0));
        link.precede_last(b"PRECEDING\r\n");
        send(&mut link);
        let got = replies(&mut link, &[said, b"+OK\r\n"].concat(), at(1));
        let aside = link.take_redirected();
        assert_eq!((aside.len(), got.len()), (usize::from(is_aside), usize::from(!is_aside)));
        assert!(aside.iter().all(|it| &*it.reply == said));
        let text = [said.trim_ascii_end(), b" (said to what must be sent before the command)\r\n"];
        assert!(got.iter().all(|(_, reply)| *reply == text.concat()));
        assert!(!link.refuses_once && link.refusal.is_empty());
    }
}

#[test]
fn what_is_put_aside_is_somebodys_and_sent_elsewhere() {
    let mut sessions = keyway_base::Slab::default();
    let identity = crate::Identity::new(1, true, at(0));
    let key = sessions.insert(Session::new(0, 0, identity));
    const MOVED: &[u8] = b"-MOVED 7 h:1\r\n";
    const ENDED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";
    for (owner, is_moving, reply, is_aside) in [
        (session(0), false, MOVED, true),
        (Owner::Unheard(key), false, MOVED, true),
        (Owner::Unheard(Key::NONE), false, MOVED, false),
        (Owner::Internal(Internal::Probe), false, MOVED, false),
        (Owner::None, false, MOVED, false),
        (session(0), true, ENDED, true),
        (session(0), false, ENDED, false),
        (Owner::None, true, ENDED, false),
        (session(0), true, b"-ERR no\r\n", false),
    ] {
        let mut link = ready();
        link.follow_redirections();
        link.set_moving(is_moving);
        ask(&mut link, owner, PING, at(0));
        send(&mut link);
        assert_eq!(replies(&mut link, reply, at(1)).len(), usize::from(!is_aside), "{owner:?}");
        assert_eq!(link.take_redirected().len(), usize::from(is_aside), "{owner:?}");
    }
    // In a transaction, a redirection inside counts if nothing of it was executed.
    let aborted = &b"-EXECABORT discarded\r\n"[..];
    for (exec, is_lost, is_aside) in [
        (aborted, false, true),
        (b"-ERR other\r\n", false, false),
        // The redirection was received on another connection.
        (aborted, true, false),
    ] {
        let mut link = ready();
        link.follow_redirections();
        let transaction = |link: &mut Link, count: u16| {
            link.request_buf().extend_from_slice(PING);
            link.enqueue_batch(session(0), Counted::OWN, PING.len(), count, at(0));
            send(link);
        };
        transaction(&mut link, 2);
        assert!(replies(&mut link, &[b"+OK\r\n", MOVED].concat(), at(1)).is_empty());
        if is_lost {
            link.on_lost(false, |_| ());
            link.on_connecting(&options(), at(2));
            link.on_connected(&options(), at(2));
            transaction(&mut link, 0);
        }
        assert_eq!(replies(&mut link, exec, at(3)).len(), usize::from(!is_aside));
        assert_eq!(link.take_redirected().len(), usize::from(is_aside));
    }
}

#[test]
fn what_goes_out_again_after_a_loss_is_what_somebody_waits_for() {
    let mut link = ready();
    ask(&mut link, session(0), PING, at(0));
    ask(&mut link, session(1), PING, at(300));
    link.handle_timeout(&options(), at(400), |_| ()).expect("alive");
    let mut lost = Vec::new();
    link.on_lost(true, |one| lost.push((one.exchange.owner, one.sent)));
    assert_eq!((lost, link.in_flight()), (vec![(Owner::None, Sent::No)], 1));
    link.on_connecting(&options(), at(401));
    link.on_connected(&options(), at(401));
    assert!(!link.is_awaited(), "what comes behind may have an earlier end");
    // On an uneven link any request may be expired.
    let mut link = ready();
    ask(&mut link, session(0), &[b'x'; TRANSFER_LEN], at(300));
    ask(&mut link, session(1), PING, at(0));
    ask(&mut link, session(2), PING, at(300));
    link.handle_timeout(&options(), at(400), |_| ()).expect("alive");
    let mut lost = Vec::new();
    link.on_lost(true, |one| lost.push(one.exchange.owner));
    assert_eq!((lost, link.in_flight()), (vec![session(0), Owner::None], 1));
    let mut link = ready();
    link.on_lost(true, |_| ());
    link.on_connecting(&options(), at(401));
    link.on_connected(&options(), at(401));
    assert_eq!((link.is_uneven, link.live()), (false, 0));
}

#[test]
fn a_slow_reply_of_a_lost_connection_is_not_told() {
    let options = LinkOptions { slower_than: Duration::from_millis(10), ..options() };
    let mut link = Link::default();
    let connect = |link: &mut Link, now| {
        link.on_connecting(&options, now);
        link.on_connected(&options, now);
    };
    connect(&mut link, at(0));
    ask(&mut link, session(0), b"*1\r\n$4\r\nKEYS\r\n", at(0));
    send(&mut link);
    replies(&mut link, b"*0\r\n", at(30));
    link.on_lost(false, |_| ());
    assert!(link.take_slow().is_none());
    connect(&mut link, at(40));
    ask(&mut link, session(0), b"*1\r\n$4\r\nSORT\r\n", at(40));
    send(&mut link);
    replies(&mut link, b"*0\r\n", at(90));
    let slow = link.take_slow().expect("it took long");
    assert!(slow.request.starts_with(b"*1\r\n$4\r\nSORT"), "{slow:?}");
}

#[test]
fn what_is_announced_is_said_behind_the_handshake_and_pushes_are_heard_after_it() {
    const TRACKING: &[u8] = b"*2\r\n$6\r\nCLIENT\r\n$2\r\nID\r\n";
    const PUSH: &[u8] = b">1\r\n+x\r\n";
    let mut link = Link::new(Protocol::Resp3);
    link.announce(Announcement { requests: TRACKING.to_vec(), count: 1 });
    link.on_connecting(&options(), at(0));
    link.on_connected(&options(), at(0));
    send(&mut link);
    assert_eq!(
        replies(&mut link, PUSH, at(1)),
        [(Owner::Internal(Internal::Unasked), PUSH.to_vec())]
    );
    assert!(replies(&mut link, b"%0\r\n", at(1)).is_empty());
    assert_eq!(link.unsent(), TRACKING);
    assert_eq!(link.state(), LinkState::Handshaking { left: 1, deadline: at(1_000) });
    send(&mut link);
    assert!(replies(&mut link, b"+OK\r\n", at(2)).is_empty());
    assert_eq!(replies(&mut link, PUSH, at(3)), [(Owner::Internal(Internal::Push), PUSH.to_vec())]);
    // The last database is selected, and then the first one again.
    for (database, databases, selects) in
        [(0, 1, vec![]), (0, 3, vec![2, 0]), (4, 1, vec![4]), (4, 3, vec![6, 4])]
    {
        let mut link = Link::default();
        let options = LinkOptions { database, databases, ..options() };
        link.on_connecting(&options, at(0));
        link.on_connected(&options, at(0));
        let select = |number: &u32| format!("*2\r\n$6\r\nSELECT\r\n$1\r\n{number}\r\n");
        let expected: String = selects.iter().map(select).collect();
        let said = String::from_utf8_lossy(link.unsent()).into_owned();
        assert_eq!(said, expected);
    }
}

#[test]
fn room_for_translated_replies_is_kept_unless_one_was_long() {
    let mut link = ready();
    link.translates = true;
    for (len, is_kept) in [(10, true), (framing::INPUT_KEPT_MAX * 2, false), (10, true)] {
        ask(&mut link, session(0), PING, at(0));
        let reply = format!("${len}\r\n{}\r\n", "x".repeat(len)).into_bytes();
        assert_eq!(replies(&mut link, &reply, at(1)), [(session(0), reply)]);
        assert_eq!(link.translated.capacity() > 0, is_kept, "{len}");
    }
}

#[test]
fn a_read_is_overdue_though_what_is_no_read_came_at_the_same_time() {
    let mut link = ready();
    link.follow_redirections();
    ask(&mut link, session(0), PING, at(20));
    ask(&mut link, session(1), PING, at(20));
    link.note_read();
    ask(&mut link, session(2), PING, at(21));
    link.note_read();
    assert_eq!(link.next_overdue(0, at(20)), Some(1));
    assert_eq!(link.next_overdue(2, at(20)), None);
    assert_eq!((link.next_overdue(0, at(19)), link.next_overdue(2, at(21))), (None, Some(2)));
}

/// Returns a link to a server of memcached that is ready.
fn memcached(dialect: Dialect) -> Link {
    let user = String::new();
    let options = LinkOptions { memcached: Some(MemcachedOptions { dialect, user }), ..options() };
    let mut link = Link::default();
    assert!(!link.is_of_memcached());
    link.on_connecting(&options, at(0));
    link.on_connected(&options, at(0));
    assert!(link.is_of_memcached());
    if dialect != Dialect::Binary {
        send(&mut link);
        assert!(replies(&mut link, b"VERSION 1.6.38\r\n", at(0)).is_empty());
    }
    link
}

#[test]
fn a_large_item_passes_in_text_alone_and_the_next_element_is_looked_at() {
    let mut link = memcached(Dialect::Binary);
    ask(&mut link, session(0), b"packet", at(0));
    let head = [&[0x81, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1, 4][..], &[0; 20]].concat();
    assert!(replies(&mut link, &head, at(1)).is_empty());
    assert!(link.has_part_of(200) && link.large_reply(50).is_none());

    let small = &b"VALUE a 0 1\r\nx\r\n"[..];
    for (expect, before, ends) in
        [(Expect::One, &b""[..], true), (Expect::List, b"", false), (Expect::List, small, false)]
    {
        let mut link = memcached(Dialect::Text);
        ask(&mut link, session(0), b"get k\r\n", at(0));
        link.set_expect(expect);
        send(&mut link);
        let limits = Limits { big_values_from: 10, ..Limits::default() };
        assert!(
            take(&mut link, &limits, &[before, b"VALUE k 0 100\r\nabc"].concat(), at(1)).is_empty()
        );
        assert_eq!(link.large_reply(50), Some(session(0)));
        link.begin_streamed_reply();
        let rest = [&[b'x'; 97][..], b"\r\nEND\r\n"].concat();
        let passed = link.pass(&rest, at(2)).expect("well ended");
        assert_eq!((passed.answered.is_some(), passed.rest), (ends, &b"END\r\n"[..]));
        if !ends {
            assert_eq!(replies(&mut link, b"END\r\n", at(3)), [(session(0), b"END\r\n".to_vec())]);
        }
        assert_eq!(link.in_flight(), 0);
    }
}

#[test]
fn large_replies_of_memcached_are_told_as_well() {
    let mut link = memcached(Dialect::Text);
    let limits = Limits { big_values_from: 1_000, ..Limits::default() };
    let from = limits.big_reply_len();
    for (len, is_told) in [(3, false), (from, true), (3, false)] {
        ask(&mut link, session(0), b"get k\r\n", at(0));
        link.set_expect(Expect::List);
        send(&mut link);
        let item = format!("VALUE k 0 {len}\r\n{}\r\nEND\r\n", "v".repeat(len));
        assert_eq!(take(&mut link, &limits, item.as_bytes(), at(1)).len(), 1);
        assert_eq!(link.take_big().is_some(), is_told, "{len}");
    }
}

#[test]
fn a_record_ends_where_requests_end_and_is_as_long_as_a_read() {
    let max = Link::RECORD_LEN_MAX;
    for (lens, records) in [
        (vec![max], vec![max]),
        (vec![max / 2, max / 2, 1], vec![max, 1]),
        (vec![max / 2 + 1, max / 2, 1], vec![max / 2 + 1, max / 2 + 1]),
        (vec![10, max, 10], vec![10, max, 10]),
        (vec![max + 1, 5], vec![max / 2, max / 2, 1, 5]),
    ] {
        let mut link = memcached(Dialect::Text);
        for len in &lens {
            ask(&mut link, session(0), &vec![b'x'; *len], at(0));
            link.set_expect(Expect::List);
        }
        let mut cut = link.first_record();
        let mut found = Vec::new();
        loop {
            match link.next_record(&mut cut) {
                0 => break,
                len => found.push(len),
            }
            assert!(found.len() < 10, "{found:?}");
        }
        assert_eq!(found, records, "{lens:?}");
    }
}
