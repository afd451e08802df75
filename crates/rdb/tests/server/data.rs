//! Data of every kind in a server, as the server reports it and as it is read from a file.

use keyway_rdb::{Event, Feed, Id, Kind, Part, ReadLimits, Totals, Version, Writer};
use keyway_testkit::{Client, RedisServer, Value};
use std::collections::{BTreeMap, BTreeSet};

type Bytes = Vec<u8>;

/// A library of functions.
pub const LIBRARY: &str = "#!lua name=mylib\nredis.register_function('f', function() return 1 end)";

/// Sends a command to a server. The reply must be no error.
pub fn tell(client: &mut Client, words: &[&[u8]]) -> Value {
    let reply = client.command(words);
    assert!(
        !reply.is_error(),
        "{}: {}",
        String::from_utf8_lossy(&words.join(&b' ')),
        reply.error_text()
    );
    reply
}

fn line(client: &mut Client, text: &str) -> Value {
    tell(client, &text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

fn many(client: &mut Client, command: &str, count: usize, words: impl Fn(usize) -> Vec<String>) {
    for start in (0..count).step_by(500) {
        let mut all: Vec<String> = command.split(' ').map(str::to_owned).collect();
        (start..count.min(start + 500)).for_each(|at| all.extend(words(at)));
        tell(client, &all.iter().map(String::as_bytes).collect::<Vec<_>>());
    }
}

/// Fills a server with values of every kind, small and large, in two databases.
pub fn fill(client: &mut Client) {
    for text in
        ["set number 12345", "set negative -7", "set large 12345678901234", "set short text"]
    {
        line(client, text);
    }
    tell(client, &[b"set", b"", &[0, 255, 13, 10]]);
    tell(client, &[b"set", b"repeated", &b"abcd".repeat(5000)]);
    let long: Bytes =
        (0..300_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    tell(client, &[b"set", b"long", &long]);
    line(client, "set expiring soon pxat 4102444800123");
    for size in [3usize, 3000] {
        let text = |at: usize| match at % 3 {
            0 => at.to_string(),
            1 => format!("element-{at}"),
            _ => "x".repeat(at % 90),
        };
        many(client, &format!("rpush list{size}"), size, |at| vec![text(at)]);
        many(client, &format!("sadd integers{size}"), size, |at| vec![(at * 7).to_string()]);
        many(client, &format!("sadd set{size}"), size, |at| vec![format!("m{at}")]);
        many(client, &format!("zadd sorted{size}"), size, |at| {
            vec![format!("{}", at as f64 / 3.0), format!("m{at}")]
        });
        many(client, &format!("hset hash{size}"), size, |at| vec![format!("f{at}"), text(at)]);
        for at in 0..size {
            let (at, odd) = (at.to_string(), format!("g{at}"));
            let field: &[u8] = if at.len() > 2 { b"field" } else { odd.as_bytes() };
            let key = format!("stream{size}");
            tell(
                client,
                &[b"xadd", key.as_bytes(), format!("{at}0-1").as_bytes(), field, at.as_bytes()],
            );
        }
        line(client, &format!("xdel stream{size} 10-1"));
    }
    line(client, "zadd limits inf a -inf b 1e300 c 0 d -0.5 e");
    tell(client, &[b"rpush", b"wide", &vec![b'w'; 100_000], b"narrow"]);
    for text in [
        "pexpireat hash3 4102444800000",
        "xgroup create stream3000 group 0",
        "xgroup create stream3000 idle $",
        "xreadgroup group group alice count 10 streams stream3000 >",
        "xreadgroup group group bob count 5 streams stream3000 >",
        "xack stream3000 group 30-1 50-1",
        "xgroup createconsumer stream3000 group carol",
        "xgroup create empty group 0 mkstream",
        "select 5",
        "set elsewhere 1",
        "select 0",
    ] {
        line(client, text);
    }
    tell(client, &[b"function", b"load", LIBRARY.as_bytes()]);
}

/// What a server or a file says about all keys, one line after the other.
pub type Told = BTreeMap<(u64, Bytes), Vec<String>>;

fn shown(bytes: &[u8]) -> String {
    // Long values are shown by their sum, which is enough to notice a difference.
    if bytes.len() < 60 {
        format!("{:?}", String::from_utf8_lossy(bytes))
    } else {
        format!("{} bytes {:x}", bytes.len(), keyway_rdb::checksum(bytes))
    }
}

/// Returns all keys as the server reports them.
pub fn told_by(server: &RedisServer) -> Told {
    let (mut client, mut told) = (server.client(), Told::new());
    for database in [0u64, 5] {
        line(&mut client, &format!("select {database}"));
        for key in line(&mut client, "keys *").array() {
            let key = key.bytes();
            let mut lines =
                vec![format!("expires {}", tell(&mut client, &[b"pexpiretime", key]).integer())];
            let kind = tell(&mut client, &[b"type", key]).text();
            lines.push(kind.clone());
            lines.extend(value_of(&mut client, &kind, key));
            told.insert((database, key.to_vec()), lines);
        }
    }
    told
}

fn value_of(client: &mut Client, kind: &str, key: &[u8]) -> Vec<String> {
    let mut ask = |words: &[&[u8]]| tell(client, words);
    let texts =
        |value: &Value| value.array().iter().map(|text| shown(text.bytes())).collect::<Vec<_>>();
    let pairs = |value: &Value| -> Vec<String> {
        let sorted: BTreeSet<String> = value
            .array()
            .chunks(2)
            .map(|pair| format!("{} {}", shown(pair[0].bytes()), shown(pair[1].bytes())))
            .collect();
        sorted.into_iter().collect()
    };
    match kind {
        "string" => vec![shown(ask(&[b"get", key]).bytes())],
        "list" => texts(&ask(&[b"lrange", key, b"0", b"-1"])),
        "set" => {
            let sorted: BTreeSet<String> = texts(&ask(&[b"smembers", key])).into_iter().collect();
            sorted.into_iter().collect()
        }
        "hash" => pairs(&ask(&[b"hgetall", key])),
        "zset" => {
            let all = ask(&[b"zrange", key, b"0", b"-1", b"withscores"]);
            let score = |text: String| text.parse::<f64>().expect("a score");
            let sorted: BTreeSet<String> = all
                .array()
                .chunks(2)
                .map(|pair| format!("{} {:?}", shown(pair[0].bytes()), score(pair[1].text())))
                .collect();
            sorted.into_iter().collect()
        }
        "stream" => {
            let mut lines = Vec::new();
            for entry in ask(&[b"xrange", key, b"-", b"+"]).array() {
                let fields = texts(&entry.array()[1]).join(" ");
                lines.push(format!("{} {fields}", entry.array()[0].text()));
            }
            lines.extend(stream_info(&ask(&[b"xinfo", b"stream", key, b"full", b"count", b"0"])));
            lines
        }
        other => panic!("a key of type {other}"),
    }
}

/// Returns the value of a name in a flat map.
fn get<'a>(map: &'a Value, name: &str) -> &'a Value {
    let pairs = map.array();
    let at = pairs.iter().step_by(2).position(|key| key.text() == name).expect(name);
    &pairs[2 * at + 1]
}

fn stream_info(info: &Value) -> Vec<String> {
    let number = |map: &Value, name: &str| get(map, name).integer();
    let text = |map: &Value, name: &str| get(map, name).text();
    let mut lines = vec![format!(
        "len {} newest {} first {} deleted {} added {}",
        number(info, "length"),
        text(info, "last-generated-id"),
        text(info, "recorded-first-entry-id"),
        text(info, "max-deleted-entry-id"),
        number(info, "entries-added"),
    )];
    for group in get(info, "groups").array() {
        // Servers do not know what some groups have read.
        let read = match get(group, "entries-read") {
            Value::Integer(read) => *read,
            _ => -1,
        };
        lines.push(format!(
            "group {} {} {read}",
            text(group, "name"),
            text(group, "last-delivered-id")
        ));
        for pending in get(group, "pending").array() {
            let [id, _, time, count] = pending.array() else { panic!("a pending entry") };
            lines.push(format!("pending {} {} {}", id.text(), time.integer(), count.integer()));
        }
        for consumer in get(group, "consumers").array() {
            let owned = get(consumer, "pending").array().iter().map(|one| one.array()[0].text());
            let owned: Vec<String> = owned.collect();
            let name = text(consumer, "name");
            lines.push(format!(
                "consumer {name} {} {}",
                number(consumer, "seen-time"),
                owned.join(" ")
            ));
        }
    }
    lines
}

/// The contents of the pieces of a file.
#[derive(Default)]
pub struct Collected {
    pub told: Told,
    pub libraries: Vec<Bytes>,
    pub aux: BTreeMap<String, String>,
    pub is_over: bool,
    database: u64,
    key: Bytes,
    kind: Option<Kind>,
    lines: Vec<String>,
}

impl Collected {
    /// Takes the next piece.
    pub fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(_) | Event::Sizes { .. } | Event::SlotSizes { .. } => {}
            Event::Aux { name, value } => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.aux.insert(text(name), text(value));
            }
            Event::Library(code) => self.libraries.push(code.to_vec()),
            Event::Database(number) => self.database = number,
            Event::Key(key) => {
                self.key = key.name.to_vec();
                self.kind = Some(key.value.kind);
                let expires = key.expires_ms.map_or(-1, |time| time as i64);
                let kind = match key.value.kind {
                    Kind::Text => "string",
                    Kind::List => "list",
                    Kind::Set => "set",
                    Kind::Sorted => "zset",
                    Kind::Hash | Kind::ExpiringHash => "hash",
                    Kind::Stream => "stream",
                };
                self.lines = vec![format!("expires {expires}"), kind.to_owned()];
            }
            Event::Part(part) => self.part(part),
            Event::KeyEnd => {
                let mut lines = std::mem::take(&mut self.lines);
                if !matches!(self.kind, Some(Kind::List | Kind::Stream)) {
                    lines[2..].sort();
                }
                let before =
                    self.told.insert((self.database, std::mem::take(&mut self.key)), lines);
                assert_eq!(before, None, "a key is there twice");
            }
            Event::End { .. } => self.is_over = true,
        }
    }

    fn part(&mut self, part: Part<'_>) {
        let id = |id: Id| format!("{}-{}", id.ms, id.seq);
        let lines = &mut self.lines;
        match part {
            Part::Text(text) | Part::Element(text) | Part::Member(text) => lines.push(shown(text)),
            Part::Scored { member, score } => lines.push(format!("{} {score:?}", shown(member))),
            Part::Field { name, value, .. } => {
                lines.push(format!("{} {}", shown(name), shown(value)))
            }
            Part::Block(_) | Part::BlockField(_) | Part::Consumers(_) => {}
            Part::Entry { id: entry, .. } => lines.push(id(entry)),
            Part::EntryField { name, value } => {
                let line = lines.last_mut().expect("an entry");
                *line += &format!(" {} {}", shown(name), shown(value));
            }
            Part::Totals(Totals { len, newest, history, .. }) => {
                let history = history.expect("a stream of Redis 7");
                let (newest, first, deleted) = (id(newest), id(history.first), id(history.deleted));
                let added = history.added;
                lines.push(format!(
                    "len {len} newest {newest} first {first} deleted {deleted} added {added}"
                ));
            }
            Part::Group { name, last, entries_read, .. } => {
                let (name, last) = (String::from_utf8_lossy(name), id(last));
                lines.push(format!("group {name} {last} {}", entries_read.expect("a counter")));
            }
            Part::Pending { id: entry, delivered_ms, deliveries } => {
                lines.push(format!("pending {} {delivered_ms} {deliveries}", id(entry)));
            }
            Part::Consumer { name, seen_ms, .. } => {
                lines.push(format!("consumer {} {seen_ms} ", String::from_utf8_lossy(name)));
            }
            Part::Owned(entry) => {
                let line = lines.last_mut().expect("a consumer");
                if !line.ends_with(' ') {
                    line.push(' ');
                }
                *line += &id(entry);
            }
        }
    }
}

/// Returns the contents of a file that is read in pieces of `size`.
pub fn collect(file: &[u8], size: usize) -> Collected {
    let (mut feed, mut collected) = (Feed::new(ReadLimits::default()), Collected::default());
    for piece in file.chunks(size) {
        let fed = feed.feed(piece, &mut |event| {
            collected.add(event);
            Ok::<(), ()>(())
        });
        assert_eq!(fed, Ok(piece.len()));
    }
    feed.finish().expect("a whole file");
    collected
}

/// Returns the file that a writer creates from another file.
pub fn rewritten(file: &[u8], version: Version) -> Bytes {
    let (mut feed, mut writer, mut out) =
        (Feed::new(ReadLimits::default()), Writer::new(version), Vec::new());
    // The elements of a list in nodes, which have not been counted.
    let mut list: Option<(Bytes, Option<u64>, Vec<Bytes>)> = None;
    let fed = feed.feed(file, &mut |event| {
        match (event, &mut list) {
            (Event::Key(key), _) if key.value.count.is_none() && key.value.kind == Kind::List => {
                list = Some((key.name.to_vec(), key.expires_ms, Vec::new()));
            }
            (Event::Part(Part::Element(element)), Some((.., elements))) => {
                elements.push(element.to_vec())
            }
            (Event::KeyEnd, Some((name, expires_ms, elements))) => {
                let opened = keyway_rdb::Opened::new(Kind::List, elements.len() as u64);
                let key = keyway_rdb::Key {
                    expires_ms: *expires_ms,
                    ..keyway_rdb::Key::new(name, opened)
                };
                writer.write(&Event::Key(key))?;
                for element in elements {
                    writer.write(&Event::Part(Part::Element(element)))?;
                }
                writer.write(&Event::KeyEnd)?;
                list = None;
            }
            (event, _) => writer.write(&event)?,
        }
        writer.take_output(&mut out);
        Ok::<(), keyway_rdb::WriteFault>(())
    });
    assert_eq!(fed, Ok(file.len()));
    out
}
