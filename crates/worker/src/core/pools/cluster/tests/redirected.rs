//! Requests that a server sends on to another one, or has refused for the moment.

use super::*;

#[test]
fn a_part_that_is_sent_elsewhere_ends_also_when_its_client_has_gone() {
    let mut core = core();
    let client = client(&mut core);
    // Slots 15495 and 3300.
    ask(&mut core, client, "MGET a b\r\n");
    send(&mut core, 1);
    send(&mut core, 2);
    core.remove_session(client, None);
    hear(&mut core, 1, "*1\r\n$1\r\nb\r\n");
    assert_eq!(core.plane.pending.operations(), 1);
    hear(&mut core, 2, "-MOVED 15495 h:1\r\n");
    assert_eq!(core.plane.pending.operations(), 0);
}

#[test]
fn a_transaction_goes_where_its_slot_has_come_to_meanwhile() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "MULTI\r\nSET {a}1 x\r\n");
    learn(&mut core, &[(0, 16383, 1)]);
    ask(&mut core, client, "SET {a}2 y\r\nEXEC\r\n");
    assert_eq!(output(&core, client), r"+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert_eq!(send(&mut core, 2), "");
    assert!(send(&mut core, 1).starts_with(r"*1\r\n$5\r\nMULTI\r\n"));
}

#[test]
fn keys_of_other_slots_are_none_of_a_transaction_although_their_server_is_the_same() {
    let mut core = core();
    let client = client(&mut core);
    learn(&mut core, &[(0, 16383, 1)]);
    ask(&mut core, client, "MULTI\r\nSET a x\r\nSET b y\r\n");
    assert!(output(&core, client).contains("-CROSSSLOT"));
}

#[test]
fn what_is_not_sent_yet_does_not_overtake_what_was_sent_before() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "SET a 1\r\n");
    send(&mut core, 2);
    ask(&mut core, client, "SET a 2\r\n");
    learn(&mut core, &[(0, 16383, 1)]);
    assert_eq!(send(&mut core, 1), "");
    // The old server sends both on, in their order.
    send(&mut core, 2);
    hear(&mut core, 2, "-MOVED 15495 h:1\r\n-MOVED 15495 h:1\r\n");
    let sent = send(&mut core, 1);
    assert!(sent.find(r"$1\r\n1").unwrap() < sent.find(r"$1\r\n2\r\n").unwrap(), "{sent}");
}

/// Returns server 1's answer about its cluster, with these ports in it that have no slots.
fn nodes(ports: &[u16]) -> String {
    let mut text = "a h:1@9 myself,master - 0 0 1 connected 0-8191\n".to_owned();
    text += "b h:2@9 master - 0 0 2 connected 8192-16383\n";
    for port in ports {
        text += &format!("n{port} h:{port}@9 master - 0 0 3 connected\n");
    }
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn who_is_sent_to_a_stranger_waits_until_the_cluster_names_it_and_all_keep_their_order() {
    let mut core = core();
    let client = client(&mut core);
    // Slot 3300 of the first server.
    ask(&mut core, client, "SET b 1\r\nSET b 2\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, "-ASK 3300 h:3\r\n-ASK 3300 h:3\r\n");
    assert_eq!(index_of(&core, 3), None);
    // There is one question for both.
    assert_eq!(send(&mut core, 1).matches("NODES").count(), 1);
    ask(&mut core, client, "SET b 3\r\n");
    assert!(send(&mut core, 1).contains(r"$1\r\n3"));
    hear(&mut core, 1, &format!("{}-ASK 3300 h:3\r\n", nodes(&[3])));
    core.follow_clusters();
    let index = link(&core, 3);
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(3));
    let sent = send(&mut core, 3);
    let at = |value: &str| sent.find(&format!(r"b\r\n$1\r\n{value}\r\n")).unwrap();
    assert!(at("1") < at("2") && at("2") < at("3"), "{sent}");
    assert_eq!(sent.matches("ASKING").count(), 3);
    assert_eq!(totals(&core), (0, 3, 0));
}

#[test]
fn who_is_sent_to_a_stranger_that_the_cluster_does_not_name_gets_the_servers_error() {
    let mut core = core();
    let (one, other) = (client(&mut core), client(&mut core));
    ask(&mut core, one, "GET b\r\n");
    ask(&mut core, other, "GET b\r\n");
    send(&mut core, 1);
    core.remove_session(other, None);
    hear(&mut core, 1, "-MOVED 3300 h:3\r\n-MOVED 3300 h:3\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, &nodes(&[4]));
    core.follow_clusters();
    assert_eq!(output(&core, one), r"-MOVED 3300 h:3\r\n");
    assert_eq!((index_of(&core, 3), index_of(&core, 4)), (None, None));
    // A client that has left was told nothing.
    assert_eq!(totals(&core), (0, 0, 1));
    // Soon after it is not asked again.
    ask(&mut core, one, "GET b\r\n");
    send(&mut core, 1);
    hear(&mut core, 1, "-MOVED 3300 h:3\r\n");
    core.tend_clusters();
    assert!(!send(&mut core, 1).contains("NODES"));
    pass_to(&mut core, 200);
    core.tend_clusters();
    assert!(send(&mut core, 1).contains("NODES"));
    hear(&mut core, 1, "-ERR unknown subcommand\r\n");
    core.follow_clusters();
    assert!(output(&core, one).ends_with(r"-MOVED 3300 h:3\r\n"));
}

#[test]
fn a_slot_that_was_not_asked_for_stays_where_it_is() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "GET b\r\n");
    send(&mut core, 1);
    let owner = |core: &Core, slot| core.plane.cluster_state(0).unwrap().map.owners().of(slot);
    let before = owner(&core, 5);
    hear(&mut core, 1, "-MOVED 5 h:2\r\n");
    core.follow_clusters();
    assert_eq!(owner(&core, 5), before);
    assert!(send(&mut core, 2).contains("GET"));
    hear(&mut core, 2, "$1\r\nv\r\n");
    assert_eq!(output(&core, client), r"$1\r\nv\r\n");
}

#[test]
fn a_part_for_a_server_that_was_replaced_goes_to_its_heir() {
    let mut core = core();
    let client = client(&mut core);
    ask(&mut core, client, "SCRIPT LOAD x\r\n");
    assert!(send(&mut core, 1).contains("LOAD") && send(&mut core, 2).contains("LOAD"));
    hear(&mut core, 2, "-LOADING\r\n".replace("\r", " it\r").as_str());
    let reply = "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$1\r\nh\r\n:1\r\n*4\r\n:8192\r\n:16383\r\n\
                 *2\r\n$1\r\nh\r\n:3\r\n*2\r\n$1\r\nh\r\n:2\r\n";
    let view =
        ClusterView::from_slots(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap();
    let shared = Arc::clone(&core.plane.cluster_state(0).unwrap().shared);
    assert!(matches!(shared.learn(&view, Speaker::ALONE, Time(2)), ViewUpdate::New(_)));
    core.follow_clusters();
    pass_to(&mut core, 100);
    core.send_retries();
    let index = link(&core, 3);
    core.on_connecting(core.links.key_at(index));
    core.on_connected(core.links.key_at(index), Socket(3));
    assert!(send(&mut core, 3).contains("LOAD"));
    assert!(!send(&mut core, 2).contains("LOAD"));
}

#[test]
fn what_is_due_again_goes_in_its_order_and_the_rest_stays() {
    let mut core = core();
    let clients: Vec<_> = (0..4).map(|_| client(&mut core)).collect();
    for (nth, client) in clients.iter().enumerate() {
        ask(&mut core, *client, &format!("SET b {nth}\r\n"));
        send(&mut core, 1);
        hear(&mut core, 1, "-TRYAGAIN it\r\n");
        pass_to(&mut core, nth as u64 * 3);
    }
    pass_to(&mut core, 13);
    core.send_retries();
    let sent = send(&mut core, 1);
    let at = |value: u16| sent.find(&format!(r"b\r\n$1\r\n{value}\r\n"));
    assert!(at(0).unwrap() < at(1).unwrap() && at(1) < at(2), "{sent}");
    assert_eq!(at(3), None);
    pass_to(&mut core, 100);
    core.send_retries();
    assert!(send(&mut core, 1).contains(r"$1\r\n3"));
}

#[test]
fn a_part_that_was_not_sent_yet_ends_also_when_its_client_has_gone() {
    let mut core = core();
    let client = client(&mut core);
    core.on_link_lost(core.links.key_at(link(&core, 2)), BackendFault::Closed);
    ask(&mut core, client, "MGET a b\r\n");
    core.remove_session(client, None);
    learn(&mut core, &[(0, 16383, 1)]);
    send(&mut core, 1);
    hear(&mut core, 1, "*1\r\n$1\r\nb\r\n");
    assert_eq!(core.plane.pending.operations(), 0);
}
