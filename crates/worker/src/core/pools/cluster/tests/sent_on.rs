//! The order of a client's requests for a slot that moves again and again.

use super::*;

/// Servers that know of no other than each other, one of which all slots are moved to.
fn core_of_three() -> Core {
    let mut core = core_of(ReadPolicy::default(), None);
    learn(&mut core, &[(0, 8191, 1), (8192, 16382, 2), (16383, 16383, 3)]);
    for port in [1, 2, 3] {
        connect(&mut core, port);
    }
    core
}

const TO_1: &str = "-MOVED 15495 h:1\r\n";
const TO_3: &str = "-MOVED 15495 h:3\r\n";

/// Two requests for a slot were sent to the server at 2, and the slot moves to 1 between them.
fn sent_on_between(core: &mut Core, words: [&str; 2]) -> Key<Session> {
    let client = client(core);
    ask(core, client, words[0]);
    ask(core, client, words[1]);
    send(core, 2);
    hear(core, 2, TO_1);
    client
}

#[test]
fn a_request_follows_the_earlier_one_of_its_client_through_two_moves_of_their_slot() {
    for words in [["SET a 1\r\n", "SET a 2\r\n"], ["MSET a 1 b 1\r\n", "MSET a 2 b 2\r\n"]] {
        let mut core = core_of_three();
        sent_on_between(&mut core, words);
        hear(&mut core, 2, TO_3);
        assert_eq!(send(&mut core, 3), "", "the earlier one is still at 1");
        assert_eq!(send(&mut core, 1).matches(r"\na\r").count(), 2);
        hear(&mut core, 1, &[TO_3, TO_3].concat());
        let sent = send(&mut core, 3);
        assert!(sent.find(r"$1\r\n1").unwrap() < sent.find(r"$1\r\n2\r\n").unwrap(), "{sent}");
    }
}

/// A session at rest gives its buffers back, and those of another session count the next replies.
#[test]
fn a_request_follows_the_earlier_one_also_after_its_client_was_at_rest() {
    let mut core = core_of_three();
    let client = client(&mut core);
    ask(&mut core, client, "PING\r\nPING\r\nPING\r\nPING\r\nSET a 0\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, TO_1);
    send(&mut core, 1);
    hear(&mut core, 1, "+OK\r\n");
    let output = &mut core.sessions.get_mut(client).unwrap().busy.as_mut().unwrap().output;
    let len = output.len();
    output.advance(len);
    assert!(core.after_flush(client).is_none());
    assert!(core.session(client).unwrap().busy.is_none(), "it is at rest");
    core.plane.clients.busy_pool.trim();
    learn(&mut core, &[(0, 8191, 1), (8192, 16382, 2), (16383, 16383, 3)]);
    ask(&mut core, client, "SET a 1\r\nSET a 2\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, &[TO_1, TO_3].concat());
    assert_eq!(send(&mut core, 3), "", "the earlier one is still at 1");
    assert_eq!(send(&mut core, 1).matches(r"\na\r").count(), 2);
}

#[test]
fn a_request_goes_where_it_is_sent_once_the_earlier_one_is_answered() {
    let mut core = core_of_three();
    sent_on_between(&mut core, ["SET a 1\r\n", "SET a 2\r\n"]);
    send(&mut core, 1);
    hear(&mut core, 1, "+OK\r\n");
    hear(&mut core, 2, TO_3);
    assert!(send(&mut core, 3).contains(r"\na\r"));
}

#[test]
fn a_request_follows_no_other_clients_nor_one_for_another_slot() {
    let mut core = core_of_three();
    let others = [client(&mut core), client(&mut core)];
    ask(&mut core, others[0], "SET a 1\r\n");
    ask(&mut core, others[1], "SET a 2\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, &[TO_1, TO_3].concat());
    assert_eq!(send(&mut core, 1).matches(r"\na\r").count(), 1);
    assert_eq!(send(&mut core, 3).matches(r"\na\r").count(), 1);
}

#[test]
fn a_request_that_nobody_hears_follows_as_well() {
    let mut core = core_of_three();
    let client = client(&mut core);
    ask(&mut core, client, "CLIENT REPLY OFF\r\nSET a 1\r\nSET a 2\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, &[TO_1, TO_3].concat());
    assert_eq!(send(&mut core, 3), "");
    send(&mut core, 1);
    hear(&mut core, 1, &[TO_3, TO_3].concat());
    let sent = send(&mut core, 3);
    assert!(sent.find(r"$1\r\n1").unwrap() < sent.find(r"$1\r\n2\r\n").unwrap(), "{sent}");
}

#[test]
fn a_new_request_does_not_overtake_one_that_is_sent_on() {
    let mut core = core_of_three();
    let client = client(&mut core);
    ask(&mut core, client, "SET a 1\r\n");
    send(&mut core, 2);
    hear(&mut core, 2, TO_1);
    learn(&mut core, &[(0, 8191, 1), (8192, 16382, 2), (16383, 16383, 3)]);
    ask(&mut core, client, "SET a 2\r\n");
    assert_eq!(send(&mut core, 2), "");
}

#[test]
fn a_request_follows_an_earlier_one_that_has_come_back_behind_it() {
    let mut core = core_of(ReadPolicy::default(), None);
    let of_two = [(0, 8191, 1), (8192, 16383, 2)];
    learn(&mut core, &of_two);
    [1, 2].into_iter().for_each(|port| connect(&mut core, port));
    let client = client(&mut core);
    ask(&mut core, client, "GET a\r\nSET a 1\r\n");
    send(&mut core, 2);
    learn(&mut core, &[(0, 8191, 1), (8192, 16382, 2), (16383, 16383, 3)]);
    hear(&mut core, 2, TO_3);
    // There is no connection to the server at 3 yet when it is said to have no slots any more.
    learn(&mut core, &of_two);
    assert!(send(&mut core, 2).contains("GET"));
    hear(&mut core, 2, TO_3);
    let sent = send(&mut core, 2);
    assert!(sent.contains("SET"), "{sent}");
}

#[test]
fn nothing_is_kept_of_requests_that_were_sent_on() {
    let mut core = core_of_three();
    for _ in 0..1000 {
        let client = sent_on_between(&mut core, ["SET a 1\r\n", "SET a 2\r\n"]);
        hear(&mut core, 2, TO_3);
        send(&mut core, 1);
        hear(&mut core, 1, "+OK\r\n+OK\r\n");
        core.remove_session(client, None);
        learn(&mut core, &[(0, 8191, 1), (8192, 16382, 2), (16383, 16383, 3)]);
    }
    assert!(core.plane.cluster.sent_on.len() < 64, "{}", core.plane.cluster.sent_on.len());
}
