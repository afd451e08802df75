use super::*;
use SubscriptionKind::{Channel, Pattern};

fn options() -> LinkOptions {
    LinkOptions {
        memcached: None,
        slower_than: Duration::MAX,
        password: None,
        database: 0,
        databases: 1,
        timeout: None,
        connect_timeout: Duration::from_secs(1),
        backoff_min: Duration::from_millis(100),
        backoff_max: Duration::from_secs(1),
        in_flight_max: 10,
        output_len_max: 1000,
    }
}

fn name(text: &str) -> Name {
    Name::from(text.as_bytes())
}

fn connected() -> SubscriberLink {
    let mut link = SubscriberLink::default();
    link.on_connecting(&options(), Time(0));
    link.on_connected(&options(), Time(0));
    link
}

/// Feeds `bytes`, whole or byte by byte, and returns what is reported.
fn hear(link: &mut SubscriberLink, bytes: &str, piece: usize) -> Result<String, BackendFault> {
    let mut heard = String::new();
    for bytes in bytes.as_bytes().chunks(piece) {
        link.handle_input(bytes, &Limits::default(), Time(1), |what| {
            use std::fmt::Write;
            let _ = match what {
                Heard::Message { name, .. } => write!(heard, "m{} ", name.escape_ascii()),
                Heard::Confirmed { name, .. } => write!(heard, "+{} ", name.escape_ascii()),
                Heard::Refused { name, .. } => write!(heard, "-{} ", name.escape_ascii()),
                Heard::Astray { said, .. } => write!(heard, "?{} ", said[0] as char),
            };
        })?;
    }
    Ok(heard)
}

fn change(word: &str, name: &str) -> String {
    format!("*3\r\n${}\r\n{word}\r\n${}\r\n{name}\r\n:1\r\n", word.len(), name.len())
}

#[test]
fn a_shard_channel_that_leaves_its_server_is_asked_for_again() {
    use SubscriptionKind::Shard;
    let mut plain = connected();
    plain.want(Shard, &name("a"), Time(0));
    hear(&mut plain, &change("ssubscribe", "a"), 1000).unwrap();
    let fault = hear(&mut plain, &change("sunsubscribe", "a"), 1000);
    assert_eq!(fault, Err(BackendFault::Protocol));

    let mut link = SubscriberLink::of_cluster();
    link.on_connecting(&options(), Time(0));
    link.on_connected(&options(), Time(0));
    link.want(Shard, &name("a"), Time(0));
    link.want(Shard, &name("b"), Time(0));
    let both = change("ssubscribe", "a") + &change("ssubscribe", "b");
    assert_eq!(hear(&mut link, &both, 1000).unwrap(), "+a +b ");
    link.advance(link.unsent().len());
    // The client's end of one subscription crosses the server's end of both.
    link.unwant(Shard, &name("b"), Time(0));
    link.advance(link.unsent().len());
    let ends = change("sunsubscribe", "a") + &change("sunsubscribe", "b");
    assert_eq!(hear(&mut link, &(ends + &change("sunsubscribe", "b")), 1000).unwrap(), "?* ");
    assert!(link.wants(Shard, b"a") && !link.is_active(Shard, b"a"));
    link.ask_again(Time(0));
    link.ask_again(Time(0));
    let sent = link.unsent().escape_ascii().to_string();
    assert_eq!(sent.matches("ssubscribe").count(), 1, "{sent}");
    link.advance(link.unsent().len());
    assert_eq!(hear(&mut link, "-MOVED 7 h:1\r\n", 1000).unwrap(), "?- ");
    link.ask_again(Time(0));
    assert_eq!(hear(&mut link, &change("ssubscribe", "a"), 1000).unwrap(), "+a ");
    assert!(hear(&mut link, &change("unsubscribe", "a"), 1000).is_err());
}

#[test]
fn a_name_is_active_from_its_confirmation_on_however_it_comes() {
    for piece in [1, 7, 1000] {
        let mut link = connected();
        link.want(Channel, &name("a"), Time(0));
        link.want(Channel, &name("a"), Time(0));
        link.want(Pattern, &name("a"), Time(0));
        let sent = link.unsent().escape_ascii().to_string();
        assert_eq!(sent.matches("subscribe").count(), 2, "{sent}");
        assert!(!link.is_active(Channel, b"a"));
        let bytes = change("subscribe", "a")
            + "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n"
            + &change("psubscribe", "a");
        assert_eq!(hear(&mut link, &bytes, piece).unwrap(), "+a ma +a ");
        assert!(link.is_active(Channel, b"a") && link.is_active(Pattern, b"a"));
    }
}

#[test]
fn an_old_confirmation_does_not_stand_for_a_new_subscription() {
    let mut link = connected();
    link.want(Channel, &name("a"), Time(0));
    link.unwant(Channel, &name("a"), Time(0));
    link.want(Channel, &name("a"), Time(0));
    let old = change("subscribe", "a") + &change("unsubscribe", "a");
    assert_eq!(hear(&mut link, &old, 1000).unwrap(), "");
    assert!(!link.is_active(Channel, b"a"));
    assert_eq!(hear(&mut link, &change("subscribe", "a"), 1000).unwrap(), "+a ");
}

#[test]
fn after_a_loss_everything_is_subscribed_anew() {
    let mut link = connected();
    link.want(Channel, &name("a"), Time(0));
    hear(&mut link, &change("subscribe", "a"), 1000).unwrap();
    link.on_lost(&options(), Time(5), 0);
    assert!(!link.is_active(Channel, b"a"));
    assert!(link.wants_connection(Time(5)), "it had worked: at once");
    link.on_connecting(&options(), Time(5));
    link.on_lost(&options(), Time(5), 0);
    assert!(link.is_down(Time(5)), "it never stood: after a pause");
    link.on_connecting(&options(), Time(6));
    link.on_connected(&options(), Time(6));
    assert!(link.unsent().windows(9).any(|bytes| bytes == b"subscribe"));
}

#[test]
fn a_refusal_belongs_to_its_name() {
    let mut link = connected();
    link.want(Channel, &name("a"), Time(0));
    link.want(Channel, &name("b"), Time(0));
    let bytes = "-NOPERM no\r\n".to_owned() + &change("subscribe", "b");
    assert_eq!(hear(&mut link, &bytes, 1000).unwrap(), "-a +b ");
    assert!(!link.wants(Channel, b"a") && link.is_active(Channel, b"b"));
}

#[test]
fn a_server_without_room_refuses_no_name() {
    let mut link = connected();
    link.want(Channel, &name("a"), Time(0));
    let said = "-ERR max number of clients reached\r\n";
    assert_eq!(hear(&mut link, said, 1000), Err(BackendFault::Full));
    assert!(link.wants(Channel, b"a"), "it is asked for again");
    let mut link = SubscriberLink::default();
    link.want(Channel, &name("a"), Time(0));
    link.on_connecting(&options(), Time(0));
    let options = LinkOptions { password: Some("p".to_owned()), ..options() };
    link.on_connected(&options, Time(0));
    assert_eq!(hear(&mut link, said, 1000), Err(BackendFault::Full));
}

#[test]
fn what_was_not_asked_for_breaks_the_connection() {
    for bytes in [change("subscribe", "x"), ":1\r\n".to_owned(), "-ERR x\r\n".to_owned()] {
        let mut link = connected();
        assert_eq!(hear(&mut link, &bytes, 1000), Err(BackendFault::Protocol), "{bytes:?}");
    }
    let mut link = connected();
    link.want(Channel, &name("a"), Time(0));
    assert!(hear(&mut link, &change("subscribe", "b"), 1000).is_err(), "of another name");
}

#[test]
fn a_silent_server_is_asked_and_given_up_when_it_stays_silent() {
    let mut link = connected();
    link.want(Channel, &name("a"), Time(0));
    hear(&mut link, &change("subscribe", "a"), 1000).unwrap();
    link.advance(link.unsent().len());
    let asked = Time(1) + PING_AFTER;
    assert_eq!(link.handle_timeout(asked), Ok(()));
    assert_eq!(link.unsent(), b"*1\r\n$4\r\nPING\r\n");
    assert_eq!(link.handle_timeout(asked + SILENT_MAX), Err(BackendFault::Timeout));
    hear(&mut link, "*2\r\n$4\r\npong\r\n$0\r\n\r\n", 1000).unwrap();
    assert_eq!(link.handle_timeout(Time(1) + SILENT_MAX), Ok(()));
}
