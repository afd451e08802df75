use super::*;
use keyway_base::{ByteRange, Time};
use keyway_command::{Args, COMMANDS, Handling};
use keyway_resp::{Framing, frame_reply};

struct NoFacts;

impl Facts for NoFacts {
    fn info(&self, _: u16, _: &[&str], out: &mut String) {
        out.push_str("# Server\r\n");
    }
    fn settings(&self, _: u16) -> Vec<(&'static str, String)> {
        vec![("save", String::new()), ("maxmemory", "1".to_owned())]
    }
}

fn asked(identity: &mut Identity, password: Option<&str>, line: &[&str]) -> (String, After) {
    let clients = ClientRegistry::default();
    clients.insert(identity.id, entry());
    clients.insert(99, entry());
    let mut frame = Vec::new();
    let mut ranges = Vec::new();
    for word in line {
        ranges.push(ByteRange::new(frame.len(), frame.len() + word.len()));
        frame.extend_from_slice(word.as_bytes());
    }
    let request = Request::resolve(Args::new(&frame, &ranges)).expect("a known command");
    let mut context = LocalContext {
        identity,
        clock: Clock { now: Time(5), unix_micros: 1_700_000_000_000_007 },
        password,
        databases: 4,
        clients: &clients,
        facts: &NoFacts,
        pool: 0,
    };
    let mut out = Vec::new();
    let after = answer(&request, &mut context, &mut out);
    let framed = frame_reply(&out, u32::MAX, 16);
    assert!(
        matches!(framed, Ok(Framing::Ready { len, .. }) if len == out.len()),
        "{line:?}: {}",
        String::from_utf8_lossy(&out)
    );
    (String::from_utf8_lossy(&out).into_owned(), after)
}

fn entry() -> ClientEntry {
    ClientEntry {
        addr: "127.0.0.1:5000".to_owned(),
        laddr: "127.0.0.1:6380".to_owned(),
        worker: 0,
        pool: 0,
        connected_unix: 1_699_999_990,
        name: String::new(),
        lib_name: String::new(),
        lib_ver: String::new(),
        database: 0,
    }
}

fn client() -> Identity {
    Identity::new(7, true, Time(0))
}

fn reply_to(line: &[&str]) -> String {
    asked(&mut client(), None, line).0
}

#[test]
fn every_local_command_has_exactly_one_well_framed_reply() {
    let mut count = 0;
    let all =
        COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    for command in all.filter(|command| command.handling == Handling::Local) {
        let mut line: Vec<&str> = command.name.split('|').collect();
        if line.len() == 1 && !command.subcommands.is_empty() && command.name != "command" {
            continue;
        }
        while !command.accepts(line.len()) {
            line.push("1");
        }
        asked(&mut client(), None, &line);
        line.push("x");
        if command.subcommands.is_empty() && command.accepts(line.len()) {
            asked(&mut client(), None, &line);
        }
        count += 1;
    }
    assert!(count > 30, "only {count} local commands");
}

#[test]
fn a_password_opens_and_a_wrong_one_does_not() {
    let mut identity = Identity::new(7, false, Time(0));
    let mut ask = |line: &[&str]| {
        let (text, _) = asked(&mut identity, Some("secret"), line);
        (text, identity.authenticated)
    };
    assert!(ask(&["AUTH", "Secret"]).0.starts_with("-WRONGPASS"));
    assert!(ask(&["AUTH", "other", "secret"]).0.starts_with("-WRONGPASS"));
    assert!(!ask(&["HELLO", "2"]).1);
    assert_eq!(ask(&["AUTH", "default", "secret"]), ("+OK\r\n".to_owned(), true));
    assert_eq!(ask(&["RESET"]), ("+RESET\r\n".to_owned(), false));
    assert!(ask(&["HELLO", "2", "AUTH", "default", "secret", "SETNAME", "me"]).1);
    assert!(reply_to(&["AUTH", "x"]).starts_with("-ERR AUTH <password> called without"));
}

#[test]
fn hello_is_honest_about_the_protocol() {
    assert_eq!(reply_to(&["HELLO", "3"]), "-NOPROTO unsupported protocol version\r\n");
    assert!(reply_to(&["HELLO"]).starts_with("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n"));
    assert!(reply_to(&["HELLO", "2", "NONSENSE"]).starts_with("-ERR Syntax error in HELLO"));
}

#[test]
fn only_databases_there_are_can_be_selected() {
    let mut identity = client();
    assert_eq!(asked(&mut identity, None, &["SELECT", "3"]).0, "+OK\r\n");
    assert_eq!(identity.database, 3);
    assert_eq!(reply_to(&["SELECT", "4"]), "-ERR DB index is out of range\r\n");
    assert_eq!(reply_to(&["SELECT", "-1"]), "-ERR DB index is out of range\r\n");
    assert!(reply_to(&["SELECT", "x"]).starts_with("-ERR value is not an integer"));
}

#[test]
fn clients_are_listed_and_killed_by_what_they_are() {
    assert_eq!(reply_to(&["CLIENT", "LIST"]).matches("id=").count(), 2);
    assert_eq!(reply_to(&["CLIENT", "LIST", "ID", "99"]).matches("id=").count(), 1);
    let kill = |line: &[&str]| asked(&mut client(), None, line);
    assert_eq!(kill(&["CLIENT", "KILL", "ID", "99"]).1, After::Kill(vec![99]));
    let all = kill(&["CLIENT", "KILL", "ADDR", "127.0.0.1:5000", "SKIPME", "no"]);
    assert_eq!(all, (":2\r\n".to_owned(), After::Kill(vec![7, 99])));
    assert_eq!(kill(&["CLIENT", "KILL", "1.2.3.4:5"]).0, "-ERR No such client\r\n");
    assert_eq!(kill(&["CLIENT", "KILL", "TYPE", "pubsub"]).0, ":0\r\n");
}

#[test]
fn settings_are_found_by_pattern() {
    assert_eq!(reply_to(&["CONFIG", "GET", "SAVE"]), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    assert_eq!(reply_to(&["CONFIG", "GET", "nothing"]), "*0\r\n");
    assert!(reply_to(&["CONFIG", "GET", "max*", "save"]).starts_with("*4\r\n"));
}
