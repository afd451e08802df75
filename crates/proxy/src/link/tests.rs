use super::*;
use keyway_base::Sent;

pub(super) fn options() -> LinkOptions {
    LinkOptions {
        password: None,
        memcached: None,
        database: 0,
        databases: 1,
        timeout: Some(Duration::from_millis(400)),
        connect_timeout: Duration::from_secs(1),
        backoff_min: Duration::from_millis(50),
        backoff_max: Duration::from_secs(2),
        in_flight_max: 64 << 10,
        output_len_max: 16 << 20,
        slower_than: Duration::MAX,
    }
}

pub(super) fn at(millis: u64) -> Time {
    Time(millis * 1_000_000)
}

pub(super) fn owner(sequence: u32) -> Owner {
    Owner::Session { session: Key::NONE, sequence }
}

fn ready_link() -> Link {
    let mut link = Link::default();
    link.on_connecting(&options(), at(0));
    link.on_connected(&options(), at(0));
    link
}

fn ask(link: &mut Link, sequence: u32, now: Time) {
    link.request_buf().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    link.enqueue(owner(sequence), Counted::OWN, 14, now);
}

fn replies(link: &mut Link, bytes: &[u8], now: Time) -> Vec<(Owner, Vec<u8>)> {
    let mut got = Vec::new();
    link.handle_input(bytes, &Limits::default(), now, |exchange, _, reply| {
        got.push((exchange.owner, reply.to_vec()));
    })
    .unwrap();
    got
}

#[test]
fn a_request_that_times_out_fails_alone_and_its_late_reply_is_skipped() {
    let mut link = ready_link();
    ask(&mut link, 0, at(0));
    ask(&mut link, 1, at(300));
    let mut expired = Vec::new();
    link.handle_timeout(&options(), at(400), |exchange| expired.push(exchange.owner)).unwrap();
    assert_eq!(expired, [owner(0)]);
    assert_eq!(link.deadline(&options()), Some(at(700)));
    let got = replies(&mut link, b"+late\r\n+mine\r\n", at(500));
    assert_eq!(got, [(Owner::None, b"+late\r\n".to_vec()), (owner(1), b"+mine\r\n".to_vec())]);
    assert_eq!(link.in_flight(), 0);
}

const SELECT_3: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n";

/// Returns a link that has sent SELECT 3 and a request.
fn selecting_link() -> Link {
    let mut link = ready_link();
    link.select(0, &options(), at(0));
    assert_eq!(link.in_flight(), 0, "the handshake's database needs no SELECT");
    link.select(3, &options(), at(0));
    assert_eq!(link.unsent(), SELECT_3);
    ask(&mut link, 1, at(0));
    link.advance(link.unsent().len());
    link
}

#[test]
fn what_follows_a_refused_select_gets_the_refusal_and_the_next_selects_again() {
    for is_late in [false, true] {
        let mut link = selecting_link();
        if is_late {
            link.handle_timeout(&options(), at(400), |_| ()).unwrap();
        }
        ask(&mut link, 2, at(400));
        let got = replies(&mut link, b"-BUSY script\r\n", at(450));
        assert_eq!(got, [(Owner::Internal(Internal::Select), b"-BUSY script\r\n".to_vec())]);
        link.advance(link.unsent().len());
        link.select(3, &options(), at(460));
        assert_eq!(link.unsent(), SELECT_3);
        ask(&mut link, 3, at(460));
        let got = replies(&mut link, b"+1\r\n+2\r\n+OK\r\n+3\r\n", at(500));
        let first = if is_late { Owner::None } else { owner(1) };
        assert_eq!((got[0].0, got[1].0), (first, owner(2)));
        for (_, reply) in &got[..2] {
            assert!(reply.starts_with(b"-BUSY script (said to SELECT;"), "{reply:?}");
            assert!(reply.ends_with(b"\r\n"));
        }
        assert_eq!(got[3], (owner(3), b"+3\r\n".to_vec()));
        link.select(3, &options(), at(600));
        assert_eq!(link.in_flight(), 0, "it is selected now");
    }
}

#[test]
fn a_refusal_holds_up_to_the_select_behind_it() {
    let mut link = selecting_link();
    link.select(4, &options(), at(0));
    ask(&mut link, 2, at(0));
    let got = replies(&mut link, b"-ERR no\r\n+1\r\n+OK\r\n+2\r\n", at(1));
    assert!(got[1].1.starts_with(b"-ERR no "));
    assert_eq!(got[3], (owner(2), b"+2\r\n".to_vec()));
}

#[test]
fn a_queue_that_was_deep_gives_its_room_back_once_empty() {
    let mut link = ready_link();
    for count in [60_000, 100] {
        (0..count).for_each(|sequence| ask(&mut link, sequence, at(0)));
        replies(&mut link, &b"+1\r\n".repeat(count as usize - 1), at(1));
        assert!(link.fifo.capacity() >= count as usize, "it is in use");
        replies(&mut link, b"+1\r\n", at(1));
        assert!(link.fifo.capacity() <= FIFO_KEPT_MAX);
    }
    (0..60_000).for_each(|sequence| ask(&mut link, sequence, at(2)));
    link.on_lost(false, |_| ());
    assert!(link.fifo.capacity() <= FIFO_KEPT_MAX);
}

#[test]
fn only_a_long_silence_ends_the_connection() {
    let mut link = ready_link();
    ask(&mut link, 0, at(0));
    assert!(link.handle_timeout(&options(), at(9_999), |_| ()).is_ok());
    ask(&mut link, 1, at(9_999));
    assert_eq!(link.handle_timeout(&options(), at(10_000), |_| ()), Err(BackendFault::Timeout));
}

#[test]
fn replies_are_framed_however_they_are_split() {
    let bytes = b"$5\r\nhello\r\n*2\r\n:1\r\n$-1\r\n-ERR no\r\n";
    for split in 0..bytes.len() {
        let mut link = ready_link();
        (0..3).for_each(|sequence| ask(&mut link, sequence, at(0)));
        let mut got = replies(&mut link, &bytes[..split], at(1));
        got.extend(replies(&mut link, &bytes[split..], at(2)));
        assert_eq!(got.len(), 3, "split at {split}");
        assert_eq!(got.iter().flat_map(|(_, reply)| reply.clone()).collect::<Vec<_>>(), bytes);
    }
}

#[test]
fn a_lost_connection_keeps_what_it_has_not_sent() {
    for taken in 0..=42 {
        let mut link = ready_link();
        (0..3).for_each(|sequence| ask(&mut link, sequence, at(0)));
        link.advance(taken);
        let mut lost = Vec::new();
        link.on_lost(true, |one| lost.push((one.exchange.owner, one.sent)));
        let begun = taken.div_ceil(14) as u32;
        let expected: Vec<_> = (0..begun).map(|i| (owner(i), Sent::Maybe)).collect();
        assert_eq!(lost, expected, "{taken} bytes taken");
        link.on_connecting(&options(), at(5));
        link.on_connected(&options(), at(6));
        assert_eq!(link.unsent().len(), 42 - begun as usize * 14);
        assert_eq!(link.in_flight(), 3 - begun as usize);
    }
}

#[test]
fn a_request_that_times_out_before_the_connection_stands_is_never_sent() {
    let mut link = Link::default();
    link.on_connecting(&options(), at(0));
    let select = b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n";
    ask(&mut link, 0, at(0));
    link.request_buf().extend_from_slice(select);
    link.enqueue(Owner::Internal(Internal::Select), Counted::OWN, select.len(), at(0));
    ask(&mut link, 1, at(0));
    ask(&mut link, 2, at(300));
    let mut expired = Vec::new();
    link.handle_timeout(&options(), at(400), |exchange| expired.push(exchange.owner)).unwrap();
    assert_eq!(expired, [owner(0), owner(1)]);
    assert_eq!(link.deadline(&options()), Some(at(700)));
    link.on_connected(&options(), at(500));
    assert_eq!(link.unsent(), [&select[..], b"*1\r\n$4\r\nPING\r\n"].concat());
    let got = replies(&mut link, b"+OK\r\n+mine\r\n", at(600));
    assert_eq!(got[0].0, Owner::Internal(Internal::Select));
    assert_eq!(got[1], (owner(2), b"+mine\r\n".to_vec()));
}

#[test]
fn what_is_kept_for_the_next_connection_is_whole() {
    let unanswered = Owner::None;
    let probe = Owner::Internal(Internal::Probe);
    for (owners, kept) in [
        ([owner(0), unanswered, owner(2)], 3),
        ([owner(0), probe, owner(2)], 1),
        ([owner(0), owner(1), probe], 0),
    ] {
        let mut link = ready_link();
        for (number, owner) in owners.into_iter().enumerate() {
            link.request_buf().extend_from_slice(format!("+{number}\r\n").as_bytes());
            link.enqueue(owner, Counted::OWN, 4, at(0));
        }
        let mut lost = 0;
        link.on_lost(true, |one| {
            assert_eq!(one.sent, Sent::No);
            lost += 1;
        });
        assert_eq!((link.in_flight(), lost), (kept, 3 - kept));
        link.on_connecting(&options(), at(1));
        link.on_connected(&options(), at(1));
        let all = b"+0\r\n+1\r\n+2\r\n";
        assert_eq!(link.unsent(), &all[12 - 4 * kept..]);
    }
}

#[test]
fn requests_wait_for_the_handshake() {
    let options = LinkOptions { password: Some("secret".into()), database: 3, ..options() };
    let mut link = Link::default();
    link.on_connecting(&options, at(0));
    ask(&mut link, 0, at(0));
    link.on_connected(&options, at(1));
    assert!(link.unsent().starts_with(b"*2\r\n$4\r\nAUTH\r\n"));
    link.advance(link.unsent().len());
    assert!(link.unsent().is_empty());
    assert!(replies(&mut link, b"+OK\r\n+OK\r\n", at(2)).is_empty());
    assert_eq!(link.state(), LinkState::Ready);
    assert_eq!(link.unsent(), b"*1\r\n$4\r\nPING\r\n");
    let refused = |link: &mut Link| {
        link.on_lost(false, |_| ());
        link.on_connecting(&options, at(3));
        link.on_connected(&options, at(3));
        link.handle_input(b"-WRONGPASS no\r\n", &Limits::default(), at(4), |_, _, _| ())
    };
    assert_eq!(refused(&mut link), Err(BackendFault::Handshake));
}

#[test]
fn a_server_that_is_not_ready_is_told_from_one_that_refuses() {
    let options = LinkOptions { database: 3, ..options() };
    for (line, fault) in [
        ("-BUSY a script runs", BackendFault::NotReady),
        ("-LOADING the data", BackendFault::NotReady),
        ("-NOAUTH Authentication required.", BackendFault::Handshake),
        ("-ERR DB index is out of range", BackendFault::Handshake),
        (":1", BackendFault::Handshake),
    ] {
        let mut link = Link::default();
        link.on_connecting(&options, at(0));
        link.on_connected(&options, at(0));
        link.advance(link.unsent().len());
        let bytes = format!("{line}\r\n");
        let outcome = link.handle_input(bytes.as_bytes(), &Limits::default(), at(1), |_, _, _| ());
        assert_eq!(outcome, Err(fault));
        assert_eq!(link.handshake_refusal(), line.as_bytes());
        link.on_lost(false, |_| ());
        assert!(link.handshake_refusal().is_empty());
    }
}

#[test]
fn a_server_without_room_says_so_only_on_a_connection_that_never_worked() {
    const SAID: &[u8] = b"-ERR max number of clients reached\r\n";
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut link = Link::new(protocol);
        link.on_connecting(&options(), at(0));
        link.on_connected(&options(), at(0));
        ask(&mut link, 0, at(0));
        let refused = link.handle_input(SAID, &Limits::default(), at(1), |_, _, _| panic!());
        assert_eq!(refused, Err(BackendFault::Full), "{protocol:?}");
        assert_eq!(link.handshake_refusal(), SAID.trim_ascii_end());
        link.on_lost(false, |_| ());
        link.on_connected(&options(), at(2));
        let asks_again = link.unsent().starts_with(b"*2\r\n$5\r\nHELLO");
        assert_eq!(asks_again, protocol == Protocol::Resp3, "it did not refuse HELLO");
    }
    let mut link = ready_link();
    ask(&mut link, 0, at(0));
    ask(&mut link, 1, at(0));
    assert_eq!(replies(&mut link, b"+PONG\r\n", at(1)).len(), 1);
    assert_eq!(replies(&mut link, SAID, at(1)).len(), 1, "what a request was answered with");
}

#[test]
fn the_handshake_makes_sure_of_the_last_database() {
    let options = LinkOptions { database: 3, databases: 16, ..options() };
    let mut link = Link::default();
    link.on_connecting(&options, at(0));
    link.on_connected(&options, at(0));
    let (last, own) = (b"*2\r\n$6\r\nSELECT\r\n$2\r\n18\r\n", b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n");
    assert_eq!(link.unsent(), [&last[..], own].concat());
    let refused = link.handle_input(b"-ERR\r\n", &Limits::default(), at(1), |_, _, _| ());
    assert_eq!(refused, Err(BackendFault::Handshake));
}

#[test]
fn a_large_request_has_its_time_from_the_last_movement_and_small_ones_have_their_own() {
    let mut link = ready_link();
    ask(&mut link, 0, at(0));
    link.request_buf().extend_from_slice(&[b'x'; 2 * TRANSFER_LEN]);
    link.enqueue(owner(1), Counted::OWN, 2 * TRANSFER_LEN, at(0));
    ask(&mut link, 2, at(100));
    for (now, len) in [(40, 1000), (90, 1000), (91, TRANSFER_LEN)] {
        link.advance(len);
        link.note_progress(at(now));
        assert_eq!(link.deadline(&options()), Some(at(400)), "at {now}");
    }
    link.advance(link.unsent_len());
    let mut expired = Vec::new();
    for (now, due) in [(399, 400), (400, 490), (490, 500), (500, 10_090)] {
        let note = |exchange: &Exchange| expired.push((now, exchange.owner));
        link.handle_timeout(&options(), at(now), note).expect("alive");
        assert_eq!(link.deadline(&options()), Some(at(due)), "at {now}");
    }
    assert_eq!(expired, [(400, owner(0)), (490, owner(1)), (500, owner(2))]);
    assert_eq!(link.live(), 0);
}

#[test]
fn a_request_that_comes_from_another_link_brings_the_time_it_has_waited() {
    let mut link = ready_link();
    link.follow_redirections();
    ask(&mut link, 0, at(290));
    let first = Exchange { owner: owner(1), started: at(100), ..Exchange::PUSH };
    link.enqueue_redirected(&first, b"GET", at(300));
    assert_eq!(link.deadline(&options()), Some(at(500)));
    assert!(!link.is_awaited(), "the next may have an earlier end");
    let mut expired = Vec::new();
    link.handle_timeout(&options(), at(500), |one| expired.push(one.owner)).expect("alive");
    assert_eq!(expired, [owner(1)]);
    assert_eq!(link.deadline(&options()), Some(at(690)));
}

#[test]
fn what_is_held_outlasts_lost_connections_and_its_time_counts_from_when_it_is_sent() {
    let mut link = Link::default();
    link.hold_unsent(Some(Duration::from_secs(5)));
    ask(&mut link, 0, at(0));
    let len = link.request_buf().len();
    link.request_buf().extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
    link.enqueue(Owner::Internal(Internal::Probe), Counted::OWN, 14, at(1));
    ask(&mut link, 1, at(100));
    for attempt in 0..3 {
        link.on_connecting(&options(), at(1000 * attempt));
        let mut questions = 0;
        link.take_back_questions(|_| questions += 1);
        assert_eq!(questions, u32::from(attempt == 0), "only what is nobody's is taken back");
        link.on_lost(true, |one| panic!("{one:?}"));
        assert_eq!((link.in_flight(), link.unsent_len()), (2, 2 * len));
        link.on_backoff(&options(), at(1000 * attempt), 0);
        let none = |one: &Exchange| panic!("{one:?}");
        link.handle_timeout(&options(), at(1000 * attempt + 999), none).expect("alive");
        assert_eq!(link.deadline(&options()), Some(at(5000)));
    }
    let mut expired = Vec::new();
    link.handle_timeout(&options(), at(5050), |one| expired.push(one.owner)).expect("alive");
    assert_eq!(expired, [owner(0)]);
    link.on_connecting(&options(), at(5060));
    link.on_connected(&options(), at(5060));
    link.begin_held(at(5060));
    assert_eq!(link.deadline(&options()), Some(at(5460)));
}

#[test]
fn what_was_left_on_a_link_long_before_its_connection_does_not_end_that() {
    let mut link = Link::default();
    link.read_replica(true, at(0));
    ask(&mut link, 0, at(600_000));
    link.on_connecting(&options(), at(600_000));
    link.on_connected(&options(), at(600_010));
    link.begin_held(at(600_010));
    let none = |one: &Exchange| panic!("{one:?}");
    link.handle_timeout(&options(), at(600_020), none).expect("alive");
    assert_eq!(link.deadline(&options()), Some(at(600_400)));
}

#[test]
fn pauses_between_attempts_double_and_are_bounded() {
    let mut link = Link::default();
    for attempt in 0..10u32 {
        link.on_backoff(&options(), at(0), 12_345_678_901);
        let LinkState::Backoff { until } = link.state() else { panic!("no backoff") };
        let most = Duration::from_millis(50 * (1 << attempt)).min(Duration::from_secs(2));
        let pause = until - at(0);
        assert!(pause >= most / 2 && pause <= most, "attempt {attempt}: {pause:?}");
    }
}
