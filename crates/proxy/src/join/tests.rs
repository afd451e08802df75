use super::*;
use keyway_base::{BackendFault, Sent};

fn join(rule: Rule, keys: &[u32]) -> Join {
    let mut join = Join { command: "mset", ..Join::default() };
    join.restart(rule);
    for (backend, &keys) in keys.iter().enumerate() {
        join.add_fragment(backend as u16, keys);
    }
    join
}

#[test]
fn names_of_all_servers_come_once_and_their_counts_are_added_up() {
    let mut union = join(Rule::Union, &[1, 1]);
    union.on_reply(1, Kind::Array, b"*2\r\n$1\r\nb\r\n$1\r\na\r\n");
    assert!(union.on_reply(0, Kind::Array, b"*2\r\n$1\r\nc\r\n$1\r\nb\r\n"));
    assert_eq!(written(&mut union), "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
    let mut counts = join(Rule::Counts, &[1, 1]);
    counts.on_reply(0, Kind::Array, b"*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n:0\r\n");
    counts.on_reply(1, Kind::Array, b"*4\r\n$1\r\na\r\n:2\r\n$1\r\nb\r\n:5\r\n");
    assert_eq!(written(&mut counts), "*4\r\n$1\r\na\r\n:3\r\n$1\r\nb\r\n:5\r\n");
    let mut none = join(Rule::Counts, &[1, 1]);
    none.on_reply(0, Kind::Array, b"*0\r\n");
    none.on_reply(1, Kind::Array, b"*0\r\n");
    assert_eq!(written(&mut none), "*0\r\n");
    let mut most = join(Rule::Max, &[1, 1]);
    most.on_reply(0, Kind::Integer, b":3\r\n");
    most.on_reply(1, Kind::Integer, b":2\r\n");
    assert_eq!(written(&mut most), ":3\r\n");
}

#[test]
fn the_least_of_all_servers_counts_and_an_end_put_to_it_is_told_as_it_came() {
    let mut least = join(Rule::Min, &[1, 1, 1]);
    least.on_reply(1, Kind::Integer, b":0\r\n");
    least.on_reply(0, Kind::Integer, b":2\r\n");
    assert!(least.on_reply(2, Kind::Integer, b":1\r\n"));
    assert_eq!(written(&mut least), ":0\r\n");
    let mut ended = join(Rule::Min, &[1, 1]);
    ended.on_reply(1, Kind::Integer, b":1\r\n");
    ended.on_reply(0, Kind::Error, b"-UNBLOCKED by somebody\r\n");
    assert_eq!(written(&mut ended), "-UNBLOCKED by somebody\r\n");
}

#[test]
fn a_report_has_the_text_of_each_answer_and_the_reason_of_each_that_is_missing() {
    let mut report = join(Rule::Each, &[1, 1, 1, 1]);
    let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
    report.on_reply(2, Kind::Verbatim, b"=7\r\ntxt:b:2\r\n");
    report.on_reply(0, Kind::Bulk, b"$3\r\na:1\r\n");
    report.on_fault(1, fault);
    assert!(report.on_reply(3, Kind::Error, b"-LOADING wait\r\n"));
    let answers: Vec<_> = report.answers().collect();
    assert_eq!(answers[0], (0, Ok(&b"a:1"[..])));
    assert_eq!(answers[1], (1, Err(NoAnswer::Fault(fault))));
    assert_eq!(answers[2], (2, Ok(&b"b:2"[..])));
    assert_eq!(answers[3], (3, Err(NoAnswer::Refused(b"LOADING wait"))));
}

fn written(join: &mut Join) -> String {
    let mut out = Vec::new();
    join.write_reply(
        &mut out,
        |backend| ["alpha", "beta", "gamma"][backend as usize],
        |_, _| "timed out".to_owned(),
    );
    String::from_utf8(out).unwrap()
}

#[test]
fn array_elements_come_in_the_order_of_the_request() {
    let mut join = join(Rule::Array, &[2, 1]);
    for owner in [0, 1, 0] {
        join.add_owner(owner);
    }
    assert!(!join.on_reply(1, Kind::Array, b"*1\r\n$-1\r\n"));
    assert!(join.on_reply(0, Kind::Array, b"*2\r\n$1\r\na\r\n$2\r\nbb\r\n"));
    assert_eq!(written(&mut join), "*3\r\n$1\r\na\r\n$-1\r\n$2\r\nbb\r\n");
}

#[test]
fn counts_are_added() {
    let mut join = join(Rule::Sum, &[2, 3]);
    join.on_reply(0, Kind::Integer, b":2\r\n");
    join.on_reply(1, Kind::Integer, b":1\r\n");
    assert_eq!(written(&mut join), ":3\r\n");
}

#[test]
fn a_partly_failed_write_says_which_part_failed() {
    let mut join = join(Rule::AllOk, &[2, 3, 1]);
    join.on_reply(0, Kind::Simple, b"+OK\r\n");
    join.on_reply(1, Kind::Error, b"-OOM command not allowed\r\n");
    let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
    assert!(join.on_fault(2, fault));
    assert_eq!(
        written(&mut join),
        "-OOM MSET failed on 2 of 3 servers: beta (3 of the keys): command not allowed; \
             gamma (1 of the keys): timed out; the other keys were written\r\n"
    );
    assert_eq!(join.fault(), Some(fault));
}

#[test]
fn a_server_with_many_fragments_is_told_of_once() {
    let mut join = join(Rule::Array, &[]);
    for nth in 0..9000 {
        join.add_fragment(nth % 3, 2);
    }
    let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
    for nth in 0..9000 {
        match nth % 3 {
            0 => join.on_reply(nth, Kind::Array, b"*2\r\n$-1\r\n$-1\r\n"),
            1 => join.on_fault(nth, fault),
            _ => join.on_reply(nth, Kind::Error, b"-LOADING wait\r\n"),
        };
    }
    assert_eq!(
        written(&mut join),
        "-LOADING MSET failed on 2 of 3 servers: beta (6000 of the keys): timed out; gamma \
             (6000 of the keys): wait; nothing is returned for the other keys\r\n"
    );
}

#[test]
fn an_error_of_many_servers_and_many_words_is_bounded() {
    let mut join = join(Rule::Sum, &[1; 1000]);
    let words = format!("-ERR {}\r\n", "x".repeat(5000));
    for nth in 0..1000 {
        join.on_reply(nth, Kind::Error, words.as_bytes());
    }
    let mut out = Vec::new();
    join.write_reply(&mut out, |_| "server", |_, _| String::new());
    let told = String::from_utf8(out).unwrap();
    assert!(told.len() < 3500 && told.ends_with("...; and 992 more\r\n"), "{told}");
    assert!(told.starts_with("-ERR MSET failed on 1000 of 1000 servers: server (1 of"));
}

#[test]
fn a_request_sent_whole_to_every_server_speaks_of_servers_not_of_keys() {
    let fault = Fault::Backend { fault: BackendFault::Timeout, sent: Sent::Maybe };
    for (rule, kind, reply, rest) in [
        (Rule::Sum, Kind::Integer, &b":2\r\n"[..], "nothing is returned for the other servers"),
        (Rule::AllOk, Kind::Simple, b"+OK\r\n", "done on the other servers"),
    ] {
        let mut join = join(rule, &[1, 1]);
        join.is_whole = true;
        join.on_reply(0, kind, reply);
        join.on_fault(1, fault);
        assert_eq!(
            written(&mut join),
            format!("-ERR MSET failed on 1 of 2 servers: beta: timed out; {rest}\r\n")
        );
    }
}

#[test]
fn what_every_server_refuses_in_the_same_words_is_refused_in_theirs() {
    for (second, expected) in [
        (&b"-ERR no\r\n"[..], "-ERR no\r\n"),
        (b"-ERR x\r\n", "-ERR MSET failed on 2 of 2 servers: alpha: no; beta: x\r\n"),
    ] {
        let mut join = join(Rule::AllOk, &[1, 1]);
        join.is_whole = true;
        join.on_reply(0, Kind::Error, b"-ERR no\r\n");
        assert!(join.on_reply(1, Kind::Error, second));
        assert_eq!(written(&mut join), expected);
    }
}

#[test]
fn joins_at_rest_hold_little_however_large_they_were() {
    let mut pool = JoinPool::default();
    let mut joins: Vec<_> = (0..2000).map(|_| pool.take()).collect();
    for (number, join) in joins.iter_mut().enumerate() {
        let keys = if number % 2 == 0 { 20_000 } else { 300 };
        join.restart(Rule::Array);
        join.add_fragment(0, keys);
        (0..keys).for_each(|_| join.add_owner(0));
        let reply = [format!("*{keys}\r\n"), "$-1\r\n".repeat(keys as usize)].concat();
        assert!(join.on_reply(0, Kind::Array, reply.as_bytes()));
        assert!(join.held() > keys as usize * 10);
    }
    joins.drain(..).for_each(|join| pool.give(join));
    let held = |pool: &JoinPool| pool.free.iter().map(|join| join.held()).sum::<usize>();
    assert_eq!(pool.held, held(&pool));
    assert!(pool.held <= POOL_KEPT_MAX && pool.free.len() > 100, "{}", pool.free.len());
    let taken: Vec<_> = (0..50).map(|_| pool.take()).collect();
    assert_eq!(pool.held, held(&pool));
    assert!(taken.iter().all(|join| join.held() <= size_of::<Join>() + 5 * KEPT_MAX));
}

#[test]
fn an_answer_of_the_wrong_shape_is_a_failure_not_a_reply() {
    for bytes in [
        &b"*1\r\n$1\r\na\r\n"[..],
        b"*2\r\n$1\r\na\r\n",
        b"*2\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        b"*2\r\n$1\r\na\r\n*2\r\n$1\r\nb\r\n",
        b"*-1\r\n",
        b"*3\r\n$1\r\na\r\n$-1\r\n$-1\r\n",
    ] {
        let mut join = join(Rule::Array, &[2, 1]);
        (0..3).for_each(|owner| join.add_owner(owner / 2));
        assert!(!join.on_reply(0, Kind::Array, bytes));
        assert!(join.on_reply(1, Kind::Array, b"*1\r\n$1\r\nc\r\n"));
        let text = written(&mut join);
        assert!(text.starts_with("-ERR MSET failed on 1 of 2 servers: alpha"), "{text}");
    }
}

#[test]
fn arrays_of_all_servers_make_one() {
    let mut join = join(Rule::Concat, &[1, 1, 1]);
    join.on_reply(2, Kind::Array, b"*1\r\n$1\r\nc\r\n");
    join.on_reply(0, Kind::Array, b"*0\r\n");
    join.on_reply(1, Kind::Array, b"*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(written(&mut join), "*3\r\n$1\r\nc\r\n$1\r\na\r\n$1\r\nb\r\n");
}

#[test]
fn what_any_server_lacks_is_lacking_unless_it_is_certain() {
    let mut join = join(Rule::AllOnes, &[1, 1]);
    join.certain = vec![false, true];
    join.on_reply(0, Kind::Array, b"*3\r\n:1\r\n:0\r\n:1\r\n");
    join.on_reply(1, Kind::Array, b"*3\r\n:0\r\n:0\r\n:1\r\n");
    assert_eq!(written(&mut join), "*3\r\n:0\r\n:1\r\n:1\r\n");
}

#[test]
fn a_server_out_of_reach_keeps_nobody_from_agreeing_but_an_error_does() {
    let fault = Fault::Backend { fault: BackendFault::Connect, sent: Sent::No };
    let mut agreed = join(Rule::Same, &[1, 1]);
    agreed.on_reply(0, Kind::Bulk, b"$1\r\na\r\n");
    agreed.on_fault(1, fault);
    assert_eq!(written(&mut agreed), "$1\r\na\r\n");
    for (kind, other) in [(Kind::Error, &b"-ERR no\r\n"[..]), (Kind::Bulk, b"$1\r\nb\r\n")] {
        let mut join = join(Rule::Same, &[1, 1]);
        join.on_reply(0, Kind::Bulk, b"$1\r\na\r\n");
        join.on_reply(1, kind, other);
        assert!(written(&mut join).starts_with("-ERR MSET failed on 1 of 2 servers: beta"));
    }
    let mut none = join(Rule::Same, &[1]);
    none.on_fault(0, fault);
    assert!(written(&mut none).starts_with("-ERR"));
}

#[test]
fn an_element_is_handed_on_whatever_is_in_it() {
    let mut join = join(Rule::Array, &[2, 1]);
    [0, 1, 0].into_iter().for_each(|owner| join.add_owner(owner));
    join.on_reply(0, Kind::Array, b"*2\r\n*2\r\n:1\r\n*1\r\n+x\r\n*0\r\n");
    join.on_reply(1, Kind::Array, b"*1\r\n:7\r\n");
    assert_eq!(written(&mut join), "*3\r\n*2\r\n:1\r\n*1\r\n+x\r\n:7\r\n*0\r\n");
}
