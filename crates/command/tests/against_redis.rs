//! Compares the table with a real redis-server 7.0. If it is not installed, these tests say so and
//! pass. Under `make test` they fail.

use keyway_base::ByteRange;
use keyway_command::{Args, BeginSearch, COMMANDS, Command, FindKeys, KeyFlags, Request, Verb};
use keyway_testkit::{Client, RedisServer, Value, skipped_for_want_of};
use std::collections::BTreeSet;
use std::process::Command as Process;

/// Returns a server of the version that the table describes. Returns `None` and prints a message if
/// there is none.
///
/// # Panics
/// Panics under `make test`, which installs one.
fn server() -> Option<RedisServer> {
    let version = Process::new("redis-server").arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    if !version.as_ref().is_ok_and(|version| version.contains("v=7.0.")) {
        skipped_for_want_of("redis-server 7.0", &format!("the command table, found {version:?}"));
        return None;
    }
    Some(RedisServer::start())
}

/// Arguments in a buffer of their own.
struct Line {
    words: Vec<String>,
    buf: Vec<u8>,
    ranges: Vec<ByteRange>,
}

impl Line {
    fn new(words: impl IntoIterator<Item = impl Into<String>>) -> Line {
        let words: Vec<String> = words.into_iter().map(Into::into).collect();
        let (mut buf, mut ranges) = (Vec::new(), Vec::new());
        for word in &words {
            ranges.push(ByteRange::new(buf.len(), buf.len() + word.len()));
            buf.extend_from_slice(word.as_bytes());
        }
        Line { words, buf, ranges }
    }

    fn parse(line: &str) -> Line {
        Line::new(line.split(' ').map(|word| if word == "''" { "" } else { word }))
    }

    fn args(&self) -> Args<'_> {
        Args::new(&self.buf, &self.ranges)
    }

    fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

fn printed_by_generator(argument: &str) -> String {
    let out = Process::new(env!("CARGO_BIN_EXE_command-table")).arg(argument).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Returns the commands of the server's version.
fn all_commands() -> impl Iterator<Item = &'static Command> {
    let is_newer =
        |command: &&Command| ["7.4.", "8."].iter().any(|it| command.since.starts_with(it));
    let commands = COMMANDS.iter().filter(move |command| !is_newer(command));
    commands.flat_map(|command| [command].into_iter().chain(command.subcommands))
}

#[test]
fn the_checked_in_table_is_what_the_server_describes() {
    let Some(redis) = server() else { return };
    let generated = printed_by_generator(&redis.address().to_string());
    let differs =
        generated.lines().zip(include_str!("../src/table.rs").lines()).find(|it| it.0 != it.1);
    assert_eq!(differs, None, "run `make command-table`");
    assert_eq!(generated.len(), include_str!("../src/table.rs").len(), "run `make command-table`");
}

#[test]
fn the_checked_in_support_table_is_what_the_generator_prints() {
    let printed = printed_by_generator("--docs");
    assert!(printed == include_str!("../../../docs/commands.md"), "run `make command-table`");
}

/// Returns the elements of an array, or none of an error.
fn items(reply: Value) -> Vec<Value> {
    match reply {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// Returns the keys of `line` as the server reports them, with what is done with each, or `None` if
/// it reports none or finds a fault.
fn keys_by_server(client: &mut Client, line: &Line) -> Option<Vec<(String, String)>> {
    let request = [vec!["COMMAND", "GETKEYSANDFLAGS"], line.words()].concat();
    let key = |pair: &Value| {
        let flags: Vec<_> = pair.array()[1].array().iter().map(Value::text).collect();
        (pair.array()[0].text(), flags.join(" "))
    };
    let keys: Vec<_> = items(client.command(&request)).iter().map(key).collect();
    let names = client.command(&[vec!["COMMAND", "GETKEYS"], line.words()].concat());
    assert!(items(names).iter().map(Value::text).eq(keys.iter().map(|key| key.0.clone())));
    // If a key spec fails, the server uses older code that reports no flags and accepts `01` or
    // `1x` as a count. The command itself then refuses what that code accepted.
    let counted = keys.iter().any(|(_, flags)| flags.is_empty());
    (!keys.is_empty() && !counted).then_some(keys)
}

/// Returns the same keys as Keyway finds them.
fn keys_by_table(line: &Line) -> Option<Vec<(String, String)>> {
    let request = Request::resolve(line.args()).ok()?;
    let (mut indexes, mut flagged) = (Vec::new(), Vec::new());
    let fault = request.keys(&mut indexes).err();
    assert_eq!(request.keys_and_flags(&mut flagged).err(), fault);
    assert!(indexes.iter().eq(flagged.iter().map(|(index, _)| index)));
    assert_eq!(request.first_key(), indexes.first().map(|index| *index as usize));
    let key = |(index, flags): &(u32, KeyFlags)| {
        (line.words[*index as usize].clone(), flags.words().collect::<Vec<_>>().join(" "))
    };
    (!flagged.is_empty()).then(|| flagged.iter().map(key).collect())
}

/// Returns lines for a command whose keys are where its key specs say: with the fewest arguments
/// and with more, and up to three keys if keys are counted.
fn lines_for(command: &Command) -> Vec<Line> {
    let name: Vec<&str> = command.name.split('|').collect();
    let at_least = command.arity.unsigned_abs() as usize;
    let most = if command.arity > 0 { at_least } else { at_least + 6 };
    let mut lines = Vec::new();
    for len in at_least..=most {
        for count in 1..=3 {
            let mut words: Vec<String> = (0..len).map(|index| format!("w{index}")).collect();
            words.splice(..name.len(), name.iter().map(|word| (*word).to_owned()));
            for spec in command.key_specs {
                let begin = match spec.begin {
                    BeginSearch::Index(index) => index as usize,
                    BeginSearch::Keyword { keyword, start_from } => {
                        let at = start_from.max(1) as usize + count - 1;
                        if at + 1 >= len {
                            continue;
                        }
                        words[at] = keyword.to_ascii_lowercase();
                        at + 1
                    }
                    BeginSearch::Unknown => continue,
                };
                if let FindKeys::KeyNum { key_num_index, .. } = spec.find {
                    words[begin + key_num_index as usize] = count.to_string();
                }
            }
            lines.push(Line::new(words));
        }
    }
    lines
}

/// Returns whether `line` is an MSET without its last value. The server reports its keys although
/// it then refuses the command.
fn lacks_a_value(line: &Line) -> bool {
    line.words[0].eq_ignore_ascii_case("mset") && line.words.len().is_multiple_of(2)
}

/// Lines whose keys depend on more than their position, and lines that are wrong.
const PARTICULAR_LINES: &str = "\
GET k
SET k v
SET k v GET
set k v ex 10 get
MSET a 1 b 2 c 3
MSETNX a 1 b 2
MGET a b c
BITOP AND d a b
BITFIELD k
BITFIELD k GET u8 0
BITFIELD k GET u8 0 GET u8 8
BITFIELD k GET u8 0 SET u8 0 1
BITFIELD k OVERFLOW WRAP INCRBY u8 0 1
BITFIELD k OVERFLOW WRAP
BITFIELD k nonsense
EVAL s 0
EVAL s 0 a
EVAL s 1 a
EVAL s 2 a b v
EVAL s 3 a b
EVAL s -1 a
EVAL s x a
EVAL s '' a
EVAL s 01 a
EVAL s +1 a
EVAL s 99999999999999999999 a
EVAL_RO s 2 a b
EVALSHA sha 2 a b v
EVALSHA_RO sha 0
FCALL f 2 a b v
FCALL_RO f 1 a
FCALL f 0
ZUNIONSTORE d 2 a b
ZUNIONSTORE d 2 a b WEIGHTS 1 2
ZUNIONSTORE d 0 a
ZUNIONSTORE d 5 a
ZINTERSTORE d 1 a
ZDIFFSTORE d 2 a b
ZUNION 2 a b WITHSCORES
ZUNION x a
ZINTER 0 a
ZINTERCARD 2 a b LIMIT 1
SINTERCARD 2 a b
SINTERCARD 3 a b
LMPOP 2 a b LEFT
LMPOP 2 a b LEFT COUNT 3
BLMPOP 0 2 a b LEFT
ZMPOP 1 a MIN
BZMPOP 1 1 a MIN
XREAD STREAMS a 0
XREAD COUNT 2 STREAMS a b 0 0
XREAD COUNT 2 BLOCK 100 streams a b c 0 0 0
XREAD STREAMS a b 0
XREAD COUNT 2 a 0
XREAD COUNT 2 BLOCK STREAMS
XREADGROUP GROUP g c STREAMS a >
XREADGROUP GROUP g c COUNT 1 NOACK STREAMS a b > >
XREADGROUP GROUP streams c STREAMS a >
GEORADIUS k 1 2 3 m
GEORADIUS k 1 2 3 m STORE d
GEORADIUS k 1 2 3 m STOREDIST d
GEORADIUS k 1 2 3 m STORE d STOREDIST e
GEORADIUS k 1 2 3 m COUNT 3 ASC store d
GEORADIUS k 1 2 3 m STORE
GEORADIUS_RO k 1 2 3 m
GEORADIUSBYMEMBER k e 3 m STORE d
GEORADIUSBYMEMBER k STORE 3 m STORE d
GEORADIUSBYMEMBER_RO k e 3 m
GEOSEARCHSTORE d k FROMMEMBER e BYRADIUS 3 m
SORT k
SORT k STORE d
SORT k BY w_* LIMIT 0 10 GET # GET o_* ALPHA STORE d
SORT k BY STORE
SORT k GET STORE STORE d
SORT k LIMIT STORE STORE STORE d
SORT k STORE d STORE e
SORT k STORE
SORT k DESC store d
SORT_RO k BY w_* GET o_*
MIGRATE h 1 k 0 10
MIGRATE h 1 k 0 10 COPY REPLACE
MIGRATE h 1 '' 0 10 KEYS a b c
MIGRATE h 1 '' 0 10 COPY keys a b
MIGRATE h 1 '' 0 10 AUTH keys KEYS a b
MIGRATE h 1 '' 0 10 AUTH2 u keys KEYS a
MIGRATE h 1 '' 0 10 KEYS
MIGRATE h 1 k 0 10 KEYS a b
MIGRATE h 1 '' 0 10
BLPOP a b 0
BLPOP a 0
BRPOPLPUSH a b 0
BLMOVE a b LEFT RIGHT 0
LMOVE a b LEFT RIGHT
OBJECT ENCODING k
OBJECT HELP
MEMORY USAGE k
MEMORY USAGE k SAMPLES 5
XGROUP CREATE k g $
XINFO STREAM k FULL
SPUBLISH ch m
SSUBSCRIBE ch
WATCH a b
PFCOUNT a b
PFMERGE d a b
PFDEBUG ENCODING k
LCS a b LEN
COPY a b DB 1
RENAME a b
RESTORE-ASKING k 0 v
PING
SCAN 0
DEBUG OBJECT k
CLIENT LIST
CONFIG GET x
PUBLISH ch m
KEYS *
SUNIONSTORE d a b c
TOUCH a b a
HSET k f v
XADD k * f v
XAUTOCLAIM k g c 0 0
";

/// Returns whether one word occurs before two keys that are to be written. The server uses the last
/// and reports the first, and Keyway reports both.
fn stores_twice(line: &Line) -> bool {
    let count =
        |name: &str| line.words.iter().filter(|word| word.eq_ignore_ascii_case(name)).count();
    line.words[0].to_ascii_lowercase().starts_with("georadius")
        && (count("store") > 1 || count("storedist") > 1)
}

#[test]
fn keys_are_those_the_server_names() {
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    let keyed: Vec<_> = all_commands().filter(|command| !command.key_specs.is_empty()).collect();
    let generated = keyed.iter().flat_map(|command| lines_for(command));
    let mut lines: Vec<_> = PARTICULAR_LINES.lines().map(Line::parse).chain(generated).collect();
    lines.retain(|line| !lacks_a_value(line));
    let mut answered = BTreeSet::new();
    for line in &lines {
        let by_server = keys_by_server(&mut client, line);
        assert_eq!(keys_by_table(line), by_server, "{:?}", line.words);
        if by_server.is_some() {
            let request = Request::resolve(line.args()).unwrap();
            answered.insert(request.command.name);
        }
    }
    assert!(lines.len() > 150);
    let has_keys = |command: &&&Command| {
        command.key_specs.iter().any(|spec| !spec.flags.contains(KeyFlags::NOT_KEY))
    };
    assert_eq!(answered.len(), keyed.iter().filter(has_keys).count(), "each command has a line");
}

/// Returns whether the first STREAMS of a reader of streams is the value of an option, or is where
/// the server does not look. COMMAND GETKEYS accepts the first from a fixed index on, whatever it
/// is. XREAD itself reads one option after the other, as Keyway does.
fn hides_its_streams(line: &Line) -> bool {
    let words: Vec<String> = line.words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let first = match words[0].as_str() {
        "xread" => 1,
        "xreadgroup" => 4,
        _ => return false,
    };
    let is_value =
        |pair: &[String]| pair[1] == "streams" && ["count", "block"].contains(&pair[0].as_str());
    words.windows(2).any(is_value) || words[1..first].iter().any(|word| word == "streams")
}

#[test]
fn keys_of_any_words_are_those_the_server_names() {
    const WORDS: [&str; 24] = [
        "",
        "0",
        "1",
        "2",
        "3",
        "-1",
        "7",
        "99",
        "a",
        "b",
        "get",
        "SET",
        "incrby",
        "streams",
        "COUNT",
        "store",
        "STOREDIST",
        "by",
        "limit",
        "KEYS",
        "auth",
        "auth2",
        "u8",
        "block",
    ];
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    // MIGRATE is left to the particular lines: what the server reports for a malformed one follows
    // no rule.
    let keyed: Vec<_> = all_commands()
        .filter(|command| !command.key_specs.is_empty() && command.verb != Verb::Migrate)
        .collect();
    let mut state: u64 = 0x5eed;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 33) as usize % bound
    };
    for _ in 0..20_000 {
        let command = keyed[below(keyed.len())];
        let mut words: Vec<&str> = command.name.split('|').collect();
        let len = command.arity.unsigned_abs() as usize + below(8);
        while words.len() < len {
            words.push(WORDS[below(WORDS.len())]);
        }
        let line = Line::new(words);
        if lacks_a_value(&line) || stores_twice(&line) || hides_its_streams(&line) {
            continue;
        }
        assert_eq!(keys_by_table(&line), keys_by_server(&mut client, &line), "{:?}", line.words);
    }
}

/// Returns the server's error for `line`, if it refuses it.
fn refusal_by_table(line: &Line) -> Option<String> {
    let mut out = Vec::new();
    Request::resolve(line.args()).err()?.write_error(line.args(), &mut out);
    let line = String::from_utf8_lossy(&out).into_owned();
    Some(line.strip_prefix('-')?.strip_suffix("\r\n")?.to_owned())
}

#[test]
fn requests_that_are_none_are_refused_in_the_words_of_the_server() {
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    let long = "x".repeat(200);
    let mut lines: Vec<Line> = [
        vec!["foo"],
        vec!["foo", "a", "b"],
        vec!["FOO", "A\r\nB", "\r\n", "\n"],
        vec!["fo\r\no\r\n", "a"],
        vec!["fo\0o", "a\0b", "c"],
        vec!["", ""],
        vec!["get ", "a"],
        vec![&long],
        vec![&long, &long],
        vec!["foo", &long, "b"],
        vec!["foo", &long[..120], "b", "c"],
        vec!["foo", &long[..122], "bcdefgh", "c"],
        vec!["foo", &long[..124], "bcdefgh", "c"],
        vec!["foo", &long[..125], "bcdefgh", "c"],
        vec!["foo", &long[..100], &long[..20], &long[..30]],
        vec!["foo", "'%s'", "\u{1}\u{1b}[0m\u{7f}"],
        vec!["client", "nonsense"],
        vec!["cLiEnT", "non\r\nsense", "a"],
        vec!["client", &long],
        vec!["client", ""],
        vec!["client", "client|list"],
        vec!["command", "nonsense"],
        vec!["memory", "usage"],
        vec!["client|list"],
    ]
    .map(Line::new)
    .into();
    for command in all_commands() {
        let name: Vec<&str> = command.name.split('|').collect();
        for len in name.len()..8 {
            let mut words = name.clone();
            words.resize(len, "a");
            lines.push(Line::new(words));
        }
    }
    let mut refused = 0;
    for line in &lines {
        // The server does not know the subcommands of later versions.
        let later = ["NO-TOUCH", "SETINFO", "MYSHARDID"]
            .map(|name| line.words.iter().any(|word| word.eq_ignore_ascii_case(name)));
        if later.contains(&true) {
            continue;
        }
        if let Some(refusal) = refusal_by_table(line) {
            let reply = client.command(&line.words());
            assert_eq!(reply, Value::Error(refusal.into_bytes()), "{:?}", line.words);
            refused += 1;
        }
    }
    assert!(refused > 700, "{refused} refusals compared");
}

#[test]
fn the_server_accepts_every_number_of_arguments_the_table_accepts() {
    let Some(redis) = server() else { return };
    let mut client = redis.client();
    for command in all_commands().filter(|command| !command.key_specs.is_empty()) {
        for line in lines_for(command) {
            let request = [vec!["COMMAND", "GETKEYS"], line.words()].concat();
            let reply = client.command(&request).error_text();
            let refused = "ERR Invalid number of arguments specified for command";
            assert_ne!(reply, refused, "{:?}", line.words);
        }
    }
}
