//! Compares local commands with a real redis-server: both get the same lines. If an answer does not
//! depend on the machine, the bytes must be the same, else its shape: kinds of values, lengths of
//! arrays, names of fields.

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Request};
use keyway_proxy::local::{ClientEntry, ClientRegistry, Facts, LocalContext, answer};
use keyway_proxy::{Identity, ReplyMode};
use keyway_testkit::{Client, RedisServer, Value, encode};
use keyway_users::Users;
use std::collections::BTreeSet;

const PASSWORD: &str = "sesame";

/// The settings of the compared server that do not depend on the machine.
struct SameFacts;

impl Facts for SameFacts {
    fn info(&self, _: u16, _: bool, sections: &[&str], out: &mut String) {
        if sections.contains(&"cluster") {
            out.push_str("# Cluster\r\ncluster_enabled:0\r\n");
        }
    }

    fn settings(&self, _: u16) -> Vec<(&'static str, String)> {
        vec![("appendonly", "no".to_owned()), ("save", String::new()), ("timeout", "0".to_owned())]
    }
}

/// A client of Keyway that is answered without a socket.
struct Local {
    identity: Identity,
    clients: ClientRegistry,
    users: Users,
}

impl Local {
    fn new(id: u64, addr: &str, password: Option<&'static str>) -> Self {
        let clients = ClientRegistry::default();
        let new = Identity::new(id, password.is_none(), Time(0));
        let identity = Identity { addr: addr.into(), ..new };
        let entry = ClientEntry::new(&identity, "127.0.0.1:6380".into(), 0, 0, 0);
        clients.insert(id, entry);
        Self { identity, clients, users: Users::plain(password) }
    }

    /// Returns the bytes of the reply. Empty if there is none.
    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        let mut buf = Vec::new();
        let mut ranges = Vec::new();
        for word in words {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word.as_bytes());
        }
        let args = Args::new(&buf, &ranges);
        let mut out = Vec::new();
        match Request::resolve(args) {
            Ok(request) => {
                let mut context = LocalContext {
                    identity: &mut self.identity,
                    clock: Clock { now: Time(0), unix_micros: 5_000_000 },
                    users: &self.users,
                    databases: 16,
                    clients: &self.clients,
                    facts: &SameFacts,
                    pool: 0,
                    reply_len_max: 1 << 30,
                    cluster: None,
                };
                answer(&request, &mut context, &mut out);
            }
            Err(refusal) => refusal.write_error(args, &mut out),
        }
        out
    }
}

/// Returns a connection to the server, and a client of Keyway with its id and address.
fn pair(server: &RedisServer, password: Option<&'static str>) -> (Client, Local) {
    let mut redis = server.client();
    if let Some(password) = password {
        redis.command(&["AUTH", password]);
    }
    let id = redis.words("CLIENT ID").integer();
    redis.words("RESET");
    let local = Local::new(id as u64, &redis.local_address().to_string(), password);
    (redis, local)
}

/// Splits a line at blanks. `''` represents the empty word and `_` a blank.
fn words(line: &str) -> Vec<String> {
    let word = |word: &str| if word == "''" { String::new() } else { word.replace('_', " ") };
    line.split_whitespace().map(word).collect()
}

/// Sends the lines of one conversation to both, on a separate connection, and compares every reply.
fn same(server: &RedisServer, password: Option<&'static str>, conversation: &str) {
    let (mut redis, mut local) = pair(server, password);
    converse(&mut redis, &mut local, conversation);
}

/// Does the same after a `HELLO 3`.
fn same_in_resp3(server: &RedisServer, conversation: &str) {
    let (mut redis, mut local) = pair(server, None);
    converse(&mut redis, &mut local, &format!("HELLO 3;{conversation}"));
}

fn converse(redis: &mut Client, local: &mut Local, conversation: &str) {
    for line in conversation.split(';') {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        redis.send(&encode(&words));
        let theirs = redis.raw_reply();
        let ours = local.ask(&words);
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{line}");
    }
}

/// Conversations whose replies do not depend on the machine, one for each line.
const SAME: &str = "
    PING
    PING a
    PING a b
    PING ''
    ECHO
    ECHO a
    ECHO a b
    ECHO ''
    AUTH
    AUTH x
    AUTH default x
    AUTH bob x
    AUTH a b c
    SELECT 0
    SELECT 15
    SELECT 16
    SELECT -1
    SELECT x
    SELECT 01
    SELECT +1
    SELECT 3000000000
    SELECT -3000000000
    SELECT 99999999999999999999
    SELECT 1 2
    HELLO
    HELLO 2
    hello 2
    HELLO 3
    HELLO 3; HELLO; HELLO 2; HELLO; CLIENT GETNAME
    HELLO 3; HELLO 4; CLIENT GETNAME; HELLO 3 BAD; HELLO x; CLIENT GETNAME
    HELLO 2; HELLO 3 SETNAME n BAD; CLIENT GETNAME
    HELLO 3 AUTH default x SETNAME n; CLIENT GETNAME; RESET; CLIENT GETNAME; HELLO
    HELLO 3 AUTH bob x; CLIENT GETNAME; HELLO
    HELLO x
    HELLO 1
    HELLO 4
    HELLO -2
    HELLO ''
    HELLO 2 NO
    HELLO 2 AUTH a
    HELLO 2 SETNAME
    HELLO 2 SETNAME n BAD; CLIENT GETNAME
    HELLO 2 SETNAME a_b; CLIENT GETNAME
    HELLO 2 SETNAME n; CLIENT GETNAME
    HELLO 2 AUTH default x SETNAME n; CLIENT GETNAME
    HELLO 2 AUTH bob x SETNAME n; CLIENT GETNAME
    RESET
    RESET x
    SELECT 3; CLIENT SETNAME n; RESET; CLIENT GETNAME
    QUIT
    CLIENT
    CLIENT FOO
    CLIENT FOO BAR
    CLIENT ID
    CLIENT ID 1
    CLIENT UNBLOCK 9 ERROR x
    CLIENT UNBLOCK 9 x y
    CLIENT PAUSE 1 WRITE x
    client pause x y z
    SLOWLOG get 1 2
    CLIENT SETNAME n; CLIENT GETNAME; CLIENT SETNAME ''; CLIENT GETNAME
    CLIENT SETNAME a_b
    CLIENT SETNAME \u{e9}
    CLIENT SETNAME
    CLIENT LIST TYPE x
    CLIENT LIST TYPE replica
    CLIENT LIST TYPE SLAVE
    CLIENT LIST TYPE master
    CLIENT LIST TYPE pubsub
    CLIENT LIST TYPE
    CLIENT LIST TYPE normal extra
    CLIENT LIST ID
    CLIENT LIST ID 1 x
    CLIENT LIST ID 0
    CLIENT LIST ID 99999
    CLIENT LIST ID -1
    CLIENT LIST FOO
    CLIENT LIST FOO BAR
    CLIENT KILL
    CLIENT KILL 1
    CLIENT KILL 1.2.3.4:5
    CLIENT KILL ID 0
    CLIENT KILL ID -1
    CLIENT KILL ID x
    CLIENT KILL ID 99999
    CLIENT KILL TYPE x
    CLIENT KILL TYPE replica
    CLIENT KILL USER x
    CLIENT KILL USER default ID 99999
    CLIENT KILL SKIPME maybe
    CLIENT KILL ID 99999 ADDR
    CLIENT KILL FOO bar
    CLIENT KILL ADDR 1.2.3.4:5 SKIPME no
    CLIENT KILL LADDR 1.2.3.4:5 TYPE normal
    CLIENT REPLY ON
    CLIENT REPLY maybe
    CLIENT REPLY
    CLIENT NO-EVICT on
    CLIENT NO-EVICT OFF
    CLIENT NO-EVICT maybe
    CLIENT NO-EVICT
    CONFIG
    CONFIG FOO
    CONFIG GET
    CONFIG GET nothing
    CONFIG GET save
    CONFIG GET SaVe
    CONFIG GET save save
    CONFIG GET timeout
    CONFIG GET TIMEOU?
    CONFIG GET appendonl[y]
    CONFIG GET sav[a-f]
    CONFIG GET [^a-rt-z]ave
    CONFIG GET sa\\ve
    CONFIG HELP
    CONFIG HELP x
    LATENCY HELP
    LATENCY FOO
    LATENCY HISTOGRAM nothing
    LATENCY LATEST
    LATENCY LATEST x
    LATENCY HISTORY
    LATENCY HISTORY x
    LATENCY RESET
    LATENCY RESET a b
    LATENCY GRAPH x
    SLOWLOG
    SLOWLOG FOO
    SLOWLOG HELP
    SLOWLOG GET
    SLOWLOG GET 5
    SLOWLOG GET -1
    SLOWLOG GET -2
    SLOWLOG GET x
    SLOWLOG GET 1 2
    SLOWLOG LEN
    SLOWLOG LEN x
    SLOWLOG RESET
    MEMORY
    MEMORY FOO
    MEMORY HELP
    MEMORY PURGE
    OBJECT
    OBJECT HELP
    XGROUP
    XGROUP HELP
    XINFO
    XINFO FOO
    XINFO HELP
    TIME x
    INFO nothing
    INFO cluster
";

fn conversations(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

#[test]
fn answers_are_redis_answers_to_the_byte() {
    let server = RedisServer::start_with(&["--timeout", "0", "--slowlog-log-slower-than", "-1"]);
    conversations(SAME).for_each(|conversation| same(&server, None, conversation));
    conversations(SAME).for_each(|conversation| same_in_resp3(&server, conversation));
}

#[test]
fn passwords_are_asked_for_in_redis_words() {
    let server = RedisServer::start_with(&["--requirepass", PASSWORD]);
    let text = "
        AUTH x
        AUTH ''
        AUTH sesam
        AUTH sesame; PING
        AUTH default sesame; PING
        AUTH bob sesame
        AUTH Default sesame
        AUTH sesame; AUTH x; PING
        HELLO
        HELLO x
        HELLO 2
        HELLO 2 SETNAME n; AUTH sesame; CLIENT GETNAME
        HELLO 2 AUTH default x
        HELLO 2 AUTH bob sesame
        HELLO 4 AUTH default sesame
        HELLO 3; HELLO
        HELLO 3 AUTH default x; HELLO; HELLO 3 AUTH default sesame; CLIENT GETNAME; HELLO
        HELLO 3 AUTH default sesame SETNAME n; CLIENT GETNAME; RESET; HELLO
        HELLO 2 AUTH default sesame SETNAME n; CLIENT GETNAME; RESET; HELLO
        HELLO 2 AUTH default sesame BAD; PING
        RESET
    ";
    conversations(text).for_each(|conversation| same(&server, Some(PASSWORD), conversation));
}

/// Returns kinds and lengths, without the content of texts and numbers.
fn shape(value: &Value) -> String {
    match value {
        Value::Simple(_) => "simple".to_owned(),
        Value::Error(_) => "error".to_owned(),
        Value::Integer(_) => "integer".to_owned(),
        Value::Bulk(_) => "bulk".to_owned(),
        Value::Nil | Value::NilArray => "nil".to_owned(),
        Value::Array(items) => format!("{:?}", items.iter().map(shape).collect::<Vec<_>>()),
        Value::Null => "null".to_owned(),
        Value::Verbatim(text) => format!("verbatim {}", text[..4].escape_ascii()),
        Value::Map(pairs) => format!("map of {}", pairs.len()),
        other => panic!("not in use: {other:?}"),
    }
}

/// Parses Keyway's bytes with the harness, over a connection that contains nothing else.
fn parse(bytes: &[u8]) -> Value {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut client = Client::connect(listener.local_addr().expect("bound"));
    let (mut peer, _) = listener.accept().expect("the connection");
    std::io::Write::write_all(&mut peer, bytes).expect("a connection that takes bytes");
    client.reply()
}

#[test]
fn answers_about_the_machine_have_redis_shapes() {
    let server = RedisServer::start();
    for line in [
        "TIME",
        "INFO",
        "INFO server",
        "CLIENT INFO",
        "CLIENT LIST",
        "CLIENT LIST TYPE normal",
        "LATENCY DOCTOR",
        "MEMORY DOCTOR",
        "MEMORY MALLOC-STATS",
    ] {
        for version in ["2", "3"] {
            let (mut redis, mut local) = pair(&server, None);
            redis.command(&["HELLO", version]);
            local.ask(&["HELLO", version]);
            let words: Vec<&str> = line.split(' ').collect();
            let (theirs, ours) = (redis.command(&words), parse(&local.ask(&words)));
            assert_eq!(shape(&ours), shape(&theirs), "{line}: {ours:?}, not {theirs:?}");
        }
    }
}

/// Returns the names in a line of CLIENT LIST.
fn names(line: &str) -> BTreeSet<String> {
    line.split_whitespace().filter_map(|field| Some(field.split_once('=')?.0.to_owned())).collect()
}

#[test]
fn client_lines_have_redis_fields_but_for_buffer_sizes() {
    let server = RedisServer::start();
    let (mut redis, mut local) = pair(&server, None);
    let theirs = redis.words("CLIENT INFO").text();
    let ours = parse(&local.ask(&["CLIENT", "INFO"])).text();
    assert!(ours.ends_with('\n') && ours.lines().count() == 1);
    let missing: Vec<String> = names(&theirs).difference(&names(&ours)).cloned().collect();
    let sizes = [
        "argv-mem",
        "multi-mem",
        "obl",
        "oll",
        "omem",
        "qbuf",
        "qbuf-free",
        "rbp",
        "rbs",
        "tot-mem",
    ];
    assert_eq!(missing, sizes);
    for field in ["id=", "addr=", "name=", "db=0", "flags=N", "user=default", "cmd=client|info"] {
        let of = |text: &str| {
            let found = text.split_whitespace().find(|part| part.starts_with(field));
            found.map(str::to_owned)
        };
        assert_eq!(of(&ours), of(&theirs), "{field}");
        assert!(of(&ours).is_some(), "{field}");
    }
}

#[test]
fn fields_of_memory_stats_are_among_redis_fields() {
    let server = RedisServer::start();
    let (mut redis, mut local) = pair(&server, None);
    let fields = |value: Value| -> BTreeSet<String> {
        value.plain().array().chunks(2).map(|pair| pair[0].text()).collect()
    };
    for version in ["2", "3"] {
        redis.command(&["HELLO", version]);
        local.ask(&["HELLO", version]);
        let (theirs, ours) = (redis.words("MEMORY STATS"), local.ask(&["MEMORY", "STATS"]));
        assert_eq!(ours[0], if version == "2" { b'*' } else { b'%' });
        let (theirs, ours) = (fields(theirs), fields(parse(&ours)));
        assert!(ours.len() >= 4 && ours.is_subset(&theirs), "{ours:?}");
    }
}

#[test]
fn silence_is_redis_silence() {
    let server = RedisServer::start();
    for conversation in [
        "CLIENT REPLY SKIP;PING;PING",
        "CLIENT REPLY SKIP;CLIENT REPLY ON;PING",
        "CLIENT REPLY OFF;PING;CLIENT REPLY SKIP;PING;CLIENT REPLY ON;PING",
        "CLIENT REPLY OFF;RESET;PING",
    ] {
        let (mut redis, mut local) = pair(&server, None);
        let mut ours = Vec::new();
        for line in conversation.split(';') {
            let words: Vec<&str> = line.split(' ').collect();
            redis.send(&encode(&words));
            let before = local.identity.reply_mode;
            let reply = local.ask(&words);
            // The worker does the rest: a silent client gets no reply, and one that skips a reply
            // has skipped it.
            match (before, local.identity.reply_mode) {
                (ReplyMode::SkipNext, ReplyMode::SkipNext) => {
                    local.identity.reply_mode = ReplyMode::On;
                }
                (_, ReplyMode::On) => ours.extend_from_slice(&reply),
                _ => {}
            }
        }
        redis.send(&encode(&["ECHO", "end"]));
        let mut theirs = Vec::new();
        while !theirs.ends_with(b"end\r\n") {
            theirs.extend(redis.raw_reply());
        }
        theirs.truncate(theirs.len() - b"$3\r\nend\r\n".len());
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string());
    }
}
