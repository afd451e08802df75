//! Compares users with those of a real redis-server 7.0: both get the same rules, and both are
//! asked about the same commands. If the server is not installed, these tests say so and pass.
//! Under `make test` they fail.

use keyway_base::ByteRange;
use keyway_command::{Args, COMMANDS, Categories, Command, Request};
use keyway_testkit::{Client, RedisServer, Value, skipped_for_want_of};
use keyway_users::{Denied, User};
use std::collections::BTreeSet;
use std::process::Command as Process;

fn server() -> Option<RedisServer> {
    let version = Process::new("redis-server").arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    if !version.as_ref().is_ok_and(|version| version.contains("v=7.0.")) {
        skipped_for_want_of("redis-server 7.0", &format!("users, found {version:?}"));
        return None;
    }
    Some(RedisServer::start())
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

/// Returns the commands and subcommands of the server's version.
fn commands() -> Vec<&'static Command> {
    let is_known =
        |command: &&Command| !["7.2.", "7.4.", "8."].iter().any(|it| command.since.starts_with(it));
    let all = COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands));
    all.filter(is_known).collect()
}

const KEYS: &[&str] = &["app:1", "app:", "ro:x", "wo:y", "a", "ab", "h?", "x{app:}", "[a"];

fn one_rule(chance: &mut Chance, commands: &[&Command]) -> String {
    let sign = if chance.below(3) == 0 { '-' } else { '+' };
    match chance.below(12) {
        0..=2 => format!("{sign}@{}", chance.of(Categories::WORDS)),
        3..=5 => format!("{sign}{}", chance.of(commands).name),
        6 => format!("{sign}@all"),
        7 => chance.of(&["~app:*", "~a", "~?b", "~[ab]*", "~h\\?", "~*:*", "~x{app:}"]).to_string(),
        8 => chance.of(&["%R~ro:*", "%W~wo:*", "%RW~a*", "%R~a*", "%W~a*", "%r~*"]).to_string(),
        9 => chance.of(&["&app:*", "&a", "&*", "&?b", "allchannels"]).to_string(),
        10 => chance.of(&["resetkeys", "resetchannels", "allkeys", "~*", "reset"]).to_string(),
        _ => chance.of(&["+select|0", "+object|encoding", "+get|a", "-config|get"]).to_string(),
    }
}

/// Returns words for `ACL SETUSER`, one for each rule and selector.
fn some_rules(chance: &mut Chance, commands: &[&Command]) -> Vec<String> {
    let mut rules: Vec<String> =
        (0..1 + chance.below(7)).map(|_| one_rule(chance, commands)).collect();
    for _ in 0..chance.below(3) {
        let inner: Vec<String> = (0..1 + chance.below(5))
            .map(|_| one_rule(chance, commands))
            .filter(|rule| rule != "reset")
            .collect();
        if !inner.is_empty() {
            rules.push(format!("({})", inner.join(" ")));
        }
    }
    rules
}

const SHAPES: &[&str] = &[
    "mget K K K",
    "mset K 1 K 2",
    "msetnx K 1 K 2",
    "del K K",
    "copy K K",
    "rename K K",
    "set K 1",
    "set K 1 get",
    "set K 1 ex 5",
    "getset K v",
    "getdel K",
    "bitfield K get u8 0",
    "bitfield K set u8 0 1",
    "bitop and K K K",
    "sort K",
    "sort K store K",
    "sort K limit 0 1 store K",
    "sort_ro K",
    "eval x 0",
    "eval x 2 K K a",
    "eval_ro x 1 K",
    "evalsha x 1 K",
    "fcall f 2 K K",
    "fcall_ro f 1 K",
    "eval x 9 K",
    "eval x -1 K",
    "lmpop 2 K K left",
    "blmpop 0 2 K K left",
    "zmpop 1 K min",
    "bzmpop 0 1 K max",
    "sintercard 2 K K",
    "zunionstore K 2 K K",
    "zinter 2 K K",
    "zdiffstore K 1 K",
    "xread streams K 0",
    "xread count 1 streams K K 0 0",
    "xread block 0 streams K 0",
    "xreadgroup group g c streams K >",
    "georadius K 0 0 1 m",
    "georadius K 0 0 1 m store K",
    "georadiusbymember K a 1 m storedist K",
    "geosearchstore K K fromlonlat 0 0 bybox 1 1 m",
    "pfcount K K",
    "pfmerge K K",
    "smove K K m",
    "sinterstore K K K",
    "lmove K K left right",
    "blpop K K 0",
    "brpoplpush K K 0",
    "zrangestore K K 0 1",
    "object encoding K",
    "object freq K",
    "memory usage K",
    "watch K K",
    "publish K m",
    "spublish K m",
    "subscribe K K",
    "psubscribe K K",
    "ssubscribe K K",
    "unsubscribe K",
    "punsubscribe K",
    "select 0",
    "select 1",
    "config get K",
    "client list",
    "scan 0",
    "keys K",
    "exists K",
    "touch K",
    "type K",
    "ttl K",
    "dump K",
    "expire K 1",
    "append K v",
    "strlen K",
    "xgroup create K g 0",
    "xinfo stream K",
    "hscan K 0",
    "lcs K K",
    "acl whoami",
    "auth a b",
    "hello 3",
    "quit",
    "reset",
    "migrate h 1 K 0 1",
    "get K",
    "xadd K * a b",
];

fn some_command(chance: &mut Chance, commands: &[&Command]) -> Vec<String> {
    let key = |chance: &mut Chance| (*chance.of(KEYS)).to_owned();
    if chance.below(3) > 0 {
        let shape = chance.of(SHAPES).split(' ');
        return shape.map(|word| if word == "K" { key(chance) } else { word.to_owned() }).collect();
    }
    let command = chance.of(commands);
    let mut words: Vec<String> = command.name.split('|').map(str::to_owned).collect();
    let len =
        command.arity.unsigned_abs() as usize + chance.below(2) * usize::from(command.arity < 0);
    while words.len() < len {
        words.push(key(chance));
    }
    words
}

/// Returns Keyway's answer in the form of `ACL DRYRUN`, or `None` if there is no such request.
fn our_word(user: &User, words: &[String]) -> Option<String> {
    let buf: Vec<u8> = words.concat().into_bytes();
    let mut end = 0;
    let ranges: Vec<_> = words
        .iter()
        .map(|word| {
            end += word.len();
            ByteRange::new(end - word.len(), end)
        })
        .collect();
    let request = Request::resolve(Args::new(&buf, &ranges)).ok()?;
    let begin = "This user has no permissions to";
    Some(match user.judge(&request) {
        // Redis checks no key if it does not know which arguments are keys, and then refuses the
        // request for that. SORT checks by itself.
        Ok(()) | Err(Denied::Keys(_) | Denied::Pattern(_)) => "OK".to_owned(),
        Err(Denied::Command) => format!("{begin} run the '{}' command", request.command.name),
        Err(Denied::Key(at)) => format!("{begin} access the '{}' key", words[at]),
        Err(Denied::Channel(at)) => format!("{begin} access the '{}' channel", words[at]),
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Error(text) | Value::Bulk(text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => format!("{other:?}"),
    }
}

fn ask(client: &mut Client, first: &[&str], rest: &[String]) -> String {
    let words: Vec<&str> = first.iter().copied().chain(rest.iter().map(String::as_str)).collect();
    text(&client.command(&words))
}

#[test]
fn the_same_rules_allow_the_same_commands() {
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    let commands = commands();
    let mut denials = BTreeSet::new();
    let (mut users, mut judged) = (0, 0);
    for seed in 1..=700u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let rules = some_rules(&mut chance, &commands);
        client.command(&["ACL", "DELUSER", "u"]);
        let theirs = ask(&mut client, &["ACL", "SETUSER", "u", "on"], &rules);
        let ours = User::new("u", &rules.join(" "));
        assert_eq!(theirs == "OK", ours.is_ok(), "seed {seed}, {rules:?}: {theirs} {ours:?}");
        let Ok(user) = ours else { continue };
        users += 1;
        for _ in 0..60 {
            let words = some_command(&mut chance, &commands);
            let Some(ours) = our_word(&user, &words) else { continue };
            let theirs = ask(&mut client, &["ACL", "DRYRUN", "u"], &words);
            if theirs.starts_with("ERR") {
                continue;
            }
            assert_eq!(ours, theirs, "seed {seed}, {rules:?}, {words:?}");
            judged += 1;
            denials.insert(
                ours.split('\'').next().unwrap_or_default().to_owned()
                    + ours.rsplit('\'').next().unwrap_or_default(),
            );
        }
    }
    assert!(users > 400 && judged > 20_000, "{users} users, {judged} commands");
    assert_eq!(denials.len(), 4, "{denials:?}");
}

#[test]
fn every_category_has_the_commands_it_has_there() {
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    let commands = commands();
    let Value::Array(words) = client.words("ACL CAT") else { panic!("a list") };
    let theirs: Vec<String> = words.iter().map(text).collect();
    assert_eq!(theirs, Categories::WORDS);
    for word in Categories::WORDS {
        let Value::Array(names) = client.words(&format!("ACL CAT {word}")) else {
            panic!("a list")
        };
        let theirs: BTreeSet<String> = names.iter().map(text).collect();
        let category = Categories::parse(word.as_bytes()).unwrap();
        let ours: BTreeSet<String> = commands
            .iter()
            .filter(|command| command.acl.contains(category))
            .map(|command| command.name.to_owned())
            .collect();
        assert_eq!(ours, theirs, "{word}");
    }
}

#[test]
fn what_is_shown_of_a_user_makes_the_same_user_again() {
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    let commands = commands();
    for seed in 1..=200u64 {
        let mut chance = Chance(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
        let rules = some_rules(&mut chance, &commands).join(" ");
        let Ok(user) = User::new("u", &rules) else { continue };
        let again = User::new("u", &user.rules()).expect("rules of our own");
        assert_eq!(again.rules(), user.rules(), "{rules}");
        client.command(&["ACL", "DELUSER", "u"]);
        let (root, selectors) = user.rules().split_once(" (").map_or_else(
            || (user.rules(), Vec::new()),
            |(root, rest)| {
                let all = rest.split(" (").map(|selector| format!("({selector}")).collect();
                (root.to_owned(), all)
            },
        );
        let words: Vec<String> = root.split(' ').map(str::to_owned).chain(selectors).collect();
        assert_eq!(ask(&mut client, &["ACL", "SETUSER", "u"], &words), "OK", "{words:?}");
        for _ in 0..30 {
            let words = some_command(&mut chance, &commands);
            let theirs = ask(&mut client, &["ACL", "DRYRUN", "u"], &words);
            let (Some(ours), false) = (our_word(&user, &words), theirs.starts_with("ERR")) else {
                continue;
            };
            assert_eq!(ours, theirs, "{rules}: {words:?}");
        }
    }
}
