//! Tests over many generated files: a described configuration reads back, no text crashes the
//! reader, and an import moves no key.

use keyway_config::{Config, PoolKindConfig, describe, import};
use keyway_topology::{Distribution, Hash, HashTag, Password, Server, ServerSet};
use proptest::prelude::*;
use std::fmt::Write;

fn folder_texts(folder: &str, extension: &str) -> Vec<String> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// Returns the configuration as `describe` leaves it: with masked secrets, and without warnings,
/// whose lines differ.
fn masked(mut config: Config) -> Config {
    let mask = |password: &mut Option<Password>| {
        *password = password.as_ref().map(|_| Password::new("********"));
    };
    config.warnings.clear();
    config.listeners.iter_mut().for_each(|listener| mask(&mut listener.password));
    config.users.iter_mut().for_each(|user| mask(&mut user.password));
    for pool in &mut config.pools {
        if let Some((set, _)) = pool.kind.servers_mut() {
            mask(&mut set.options.password);
        }
        if let PoolKindConfig::Store(store) = &mut pool.kind {
            mask(&mut store.replica.password);
        }
    }
    config
}

fn optional(
    key: &'static str,
    value: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just(String::new()),
        2 => value.prop_map(move |value| format!("{key} = {value}\n")),
    ]
}

fn time(max_ms: u64) -> impl Strategy<Value = String> {
    (1..=max_ms).prop_map(|ms| format!("\"{ms}ms\""))
}

fn lines<S: Strategy<Value = String>>(parts: Vec<S>) -> impl Strategy<Value = String> {
    parts.prop_map(|parts| parts.concat())
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(words).prop_map(|word| format!("\"{word}\""))
}

fn server_table() -> impl Strategy<Value = String> {
    let workers = prop_oneof![
        Just("\"auto\"".to_owned()),
        (1u16..=1024).prop_map(|n| n.to_string()),
        (1u16..=512, 0u16..=512)
            .prop_map(|(min, more)| format!("{{ min = {min}, max = {} }}", min + more)),
    ];
    let admin = prop_oneof![
        Just("\"off\"".to_owned()),
        (1u16..).prop_map(|p| format!("\"tcp://127.0.0.9:{p}\""))
    ];
    let log = (word(&["human", "json"]), word(&["error", "warn", "info", "debug", "trace"]))
        .prop_map(|(format, level)| format!("{{ format = {format}, level = {level} }}"));
    lines(vec![
        optional("workers", workers).boxed(),
        optional("admin", admin).boxed(),
        optional("log", log).boxed(),
        optional("drain_timeout", time(3_600_000)).boxed(),
        optional("drain_notice", time(600_000)).boxed(),
        optional("upgrade_grace", time(3_600_000)).boxed(),
    ])
    .prop_map(|keys| format!("[server]\n{keys}"))
}

fn limits_table() -> impl Strategy<Value = String> {
    lines(vec![
        optional("bulk_len_max", (1024u64..=512 << 20).prop_map(|n| format!("\"{n}B\""))).boxed(),
        optional("request_args_max", (64u32..=1 << 24).prop_map(|n| n.to_string())).boxed(),
        optional("session_output_len_soft", (4u32..=1024).prop_map(|n| format!("\"{n}KiB\"")))
            .boxed(),
        optional("session_output_len_hard", (1u32..=4).prop_map(|n| format!("\"{n}GB\""))).boxed(),
    ])
    .prop_map(|keys| format!("[limits]\n{keys}"))
}

/// The distributions that accept every hash and every weight.
const DISTRIBUTIONS: [&str; 8] = [
    "ketama",
    "modula",
    "random",
    "ketama-libmemcached",
    "ketama-weighted-libmemcached",
    "modula-libmemcached",
    "rendezvous",
    "maglev",
];

fn pool_keys() -> impl Strategy<Value = String> {
    let rejoin = word(&["serve", "flush", "quarantine", "quarantine 90s"]);
    let ejection = (1u32..=100_000, time(86_400_000), rejoin).prop_map(|(n, time, rejoin)| {
        format!("{{ after_failures = {n}, for = {time}, rejoin = {rejoin} }}")
    });
    let sharded = lines(vec![
        Just("kind = \"sharded\"\n".to_owned()).boxed(),
        (1u32..=5, 1u32..=i32::MAX as u32)
            .prop_map(|(count, weight)| {
                let servers = (0..count).map(|i| format!("\"10.0.0.{i}:6379:{weight} s{i}\""));
                format!("servers = [{}]\n", servers.collect::<Vec<_>>().join(", "))
            })
            .boxed(),
        optional(
            "hash",
            prop::sample::select(&Hash::ALL[..]).prop_map(|h| format!("\"{}\"", h.name())),
        )
        .boxed(),
        optional("distribution", word(&DISTRIBUTIONS)).boxed(),
        optional("hash_tag", word(&["", "{}", "$$", "<>"])).boxed(),
        optional("timeout", time(3_600_000)).boxed(),
        optional("connect_timeout", time(3_600_000)).boxed(),
        optional("server_connections", (1u8..=64).prop_map(|n| n.to_string())).boxed(),
        optional("preconnect", any::<bool>().prop_map(|b| b.to_string())).boxed(),
        optional("slowlog_log_slower_than", time(3_600_000)).boxed(),
        optional("slowlog_max_len", (0..10_000u32).prop_map(|n| n.to_string())).boxed(),
        optional("allow_flush", any::<bool>().prop_map(|b| b.to_string())).boxed(),
        optional("password", "[a-z]{1,20}".prop_map(|p| format!("\"{p}\""))).boxed(),
        optional("client_password", "[a-z]{1,20}".prop_map(|p| format!("\"{p}\""))).boxed(),
        optional("database", (0u16..).prop_map(|n| n.to_string())).boxed(),
        optional("databases", (1u16..=1024).prop_map(|n| n.to_string())).boxed(),
        optional("ejection", ejection).boxed(),
        optional(
            "reconnect",
            (time(1000), 1u32..=60)
                .prop_map(|(min, max)| format!("{{ min = {min}, max = \"{max}s\" }}")),
        )
        .boxed(),
        optional("clients_max", (1u32..=100_000).prop_map(|n| n.to_string())).boxed(),
        optional("queue_len_max", (16u32..=65_536).prop_map(|n| n.to_string())).boxed(),
    ]);
    let store = lines(vec![
        Just("kind = \"store\"\n".to_owned()).boxed(),
        optional("memory_max", (1u64..=1 << 20).prop_map(|n| format!("\"{n}MiB\""))).boxed(),
        optional("eviction", word(&["allkeys-lru", "volatile-random", "noeviction"])).boxed(),
        optional("slowlog_log_slower_than", time(3_600_000)).boxed(),
        optional("slowlog_max_len", (0..10_000u32).prop_map(|n| n.to_string())).boxed(),
        optional("databases", (1u16..=1024).prop_map(|n| n.to_string())).boxed(),
    ]);
    prop_oneof![3 => sharded, 1 => store]
}

fn listener_keys() -> impl Strategy<Value = String> {
    lines(vec![
        optional("backlog", (1u16..).prop_map(|n| n.to_string())).boxed(),
        optional(
            "tcp_keepalive",
            prop_oneof![
                Just("\"off\"".to_owned()),
                (1u32..=9000).prop_map(|s| format!("\"{s}s\""))
            ],
        )
        .boxed(),
    ])
}

/// Generates a valid file in which every listener has a pool of its own.
fn valid_file() -> impl Strategy<Value = String> {
    let pair = (listener_keys(), pool_keys());
    (server_table(), limits_table(), prop::collection::vec(pair, 1..4)).prop_map(
        |(server, limits, pairs)| {
            let mut text = format!("{server}\n{limits}");
            for (index, (listener, pool)) in pairs.iter().enumerate() {
                let _ = write!(
                    text,
                    "\n[[listener]]\nbind = \"tcp://127.0.0.1:{}\"\npool = \"p.{index}\"\n{listener}\
                     \n[pool.\"p.{index}\"]\n{pool}",
                    7000 + index
                );
            }
            text
        },
    )
}

fn assert_reads_back(text: &str) {
    let config = Config::from_str(text, "original").unwrap_or_else(|e| panic!("{text}\n{e:#?}"));
    let described = describe(&config);
    let read =
        Config::from_str(&described, "described").unwrap_or_else(|e| panic!("{described}\n{e:#?}"));
    assert_eq!(describe(&read), described);
    assert_eq!(masked(read), masked(config), "{described}");
}

#[test]
fn each_good_file_is_described_as_itself() {
    folder_texts("good", "toml").iter().for_each(|text| assert_reads_back(text));
    assert_reads_back(&describe(&Config::default_store()));
}

#[derive(Clone, Debug)]
enum Edit {
    Remove(usize, usize),
    Insert(usize, String),
    Swap(usize, usize),
    Double(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let scraps = prop::sample::select(
        &[
            "\"",
            "[",
            "]",
            "{",
            "}",
            "=",
            "\n",
            ",",
            "'",
            "\"\"\"",
            "#",
            ".",
            "-",
            "0x",
            "é",
            "\u{0}",
            "[[listener]]\n",
            "[pool]\n",
            "[pool.x]\n",
            "kind = \"store\"\n",
            "= {",
            " = [",
            "\r\n",
            "99999999999999999999",
            "-1",
            "true",
            "inf",
            "nan",
            "1979-05-27",
            "\\u",
            "&a ",
            "*a",
            ": ",
            "- ",
            "|",
            "? ",
            "!!str ",
            "\t",
            "%",
            "---\n",
            "...\n",
        ][..],
    );
    prop_oneof![
        (any::<usize>(), 0usize..40).prop_map(|(at, len)| Edit::Remove(at, len)),
        (any::<usize>(), scraps).prop_map(|(at, scrap)| Edit::Insert(at, scrap.to_owned())),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::Swap(a, b)),
        any::<usize>().prop_map(Edit::Double),
    ]
}

fn apply(text: &str, edits: &[Edit]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for edit in edits {
        let len = chars.len().max(1);
        match edit {
            Edit::Remove(at, count) => {
                let at = at % len;
                let end = (at + count).min(chars.len());
                chars.drain(at.min(end)..end);
            }
            Edit::Insert(at, scrap) => {
                let at = (at % len).min(chars.len());
                chars.splice(at..at, scrap.chars());
            }
            Edit::Swap(a, b) if !chars.is_empty() => chars.swap(a % len, b % len),
            Edit::Swap(..) => {}
            Edit::Double(line) => {
                let text: String = chars.iter().collect();
                let lines: Vec<&str> = text.split_inclusive('\n').collect();
                let chosen = lines.get(line % lines.len().max(1)).copied().unwrap_or_default();
                let doubled =
                    lines.iter().flat_map(|l| [*l, if std::ptr::eq(*l, chosen) { *l } else { "" }]);
                chars = doubled.collect::<String>().chars().collect();
            }
        }
    }
    chars.into_iter().collect()
}

/// Checks that a text is either accepted, or refused with a place and a remedy for each mistake.
fn assert_taken_or_explained(text: &str) {
    match Config::from_str(text, "f") {
        Ok(config) => {
            assert!(!config.listeners.is_empty());
            assert_reads_back(text);
        }
        Err(errors) => {
            let line_count = text.split('\n').count();
            assert!(!errors.is_empty());
            for error in &errors {
                assert!((1..=line_count).contains(&error.line), "{error}");
                assert!(error.column >= 1 && !error.what.is_empty() && !error.hint.is_empty());
                assert!(!error.to_string().contains('\n'), "{error}");
            }
            assert!(errors.is_sorted_by_key(|error| (error.line, error.column)));
        }
    }
}

fn assert_imported_or_explained(text: &str) {
    match import::twemproxy(text, "f") {
        Ok(imported) => assert_reads_back(&imported.toml),
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in &errors {
                assert!(error.line >= 1 && !error.hint.is_empty(), "{error}\n{text}");
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
}

fn nutcracker_pool() -> impl Strategy<Value = (String, ServerSet)> {
    let servers = prop::collection::btree_map("[a-z]{1,12}", (1u16.., 1u32..1000), 1..6);
    let settings = (
        prop::sample::select(&Hash::TWEMPROXY[..]),
        prop::sample::select(&[Distribution::Ketama, Distribution::Modula][..]),
        prop::sample::select(&["", "{}", "$$"][..]),
        any::<bool>(),
    );
    let numbers = prop::collection::vec(0u32..=i32::MAX as u32, 5);
    (servers, settings, numbers).prop_map(|(servers, (hash, distribution, tag, named), n)| {
        let servers: Vec<String> = servers
            .iter()
            .map(|(name, (port, weight))| {
                let end = if named { format!(" {name}") } else { String::new() };
                format!("{name}.example:{port}:{weight}{end}")
            })
            .collect();
        let mut text = format!(
            "pool one:\n  listen: 127.0.0.1:22121\n  redis: true\n  hash: {}\n  distribution: {}\n",
            hash.name(),
            distribution.name()
        );
        if !tag.is_empty() {
            let _ = writeln!(text, "  hash_tag: \"{tag}\"");
        }
        let _ = write!(
            text,
            "  auto_eject_hosts: {named}\n  timeout: {}\n  backlog: {}\n  server_connections: {}\n  \
             server_retry_timeout: {}\n  server_failure_limit: {}\n  servers:\n",
            n[0], n[1], n[2].max(1), n[3], n[4]
        );
        servers.iter().for_each(|server| {
            let _ = writeln!(text, "   - {server}");
        });
        let servers = servers.iter().map(|server| Server::parse(server).unwrap()).collect();
        let mut pool = ServerSet::new(servers);
        pool.hash = hash;
        pool.distribution = distribution;
        pool.hash_tag = HashTag::parse(tag);
        (text, pool)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_described_reads_back_as_itself(text in valid_file()) {
        assert_reads_back(&text);
    }

    #[test]
    fn any_text_is_taken_or_explained(text in "(?s)[\\x00-\\x7f]{0,300}|.{0,100}") {
        assert_taken_or_explained(&text);
        assert_imported_or_explained(&text);
    }

    #[test]
    fn a_damaged_file_is_taken_or_explained(
        text in prop::sample::select(folder_texts("good", "toml")),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        assert_taken_or_explained(&apply(&text, &edits));
    }

    #[test]
    fn no_damage_around_a_password_brings_it_into_a_message(
        text in prop::sample::select(folder_texts("good", "toml")),
        at in any::<prop::sample::Index>(),
        before in prop::collection::vec(edit(), 0..4),
        after in prop::collection::vec(edit(), 0..4),
    ) {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let (head, tail) = lines.split_at(at.index(lines.len()));
        let (head, tail) = (apply(&head.concat(), &before), apply(&tail.concat(), &after));
        for line in ["password = \"hunter2\"", "client_password = hunter2", "password = [\"hunter2\"]"] {
            let without = |text: &str| text.replace("hunter", "");
            let text = format!("{}\n{line}\n{}", without(&head), without(&tail));
            for error in Config::from_str(&text, "f").err().unwrap_or_default() {
                prop_assert!(!error.to_string().contains("hunter"), "{}", error);
            }
        }
    }

    #[test]
    fn a_damaged_bad_file_is_taken_or_explained(
        text in prop::sample::select(folder_texts("bad", "toml")),
        edits in prop::collection::vec(edit(), 1..4),
    ) {
        assert_taken_or_explained(&apply(&text, &edits));
    }

    #[test]
    fn a_damaged_twemproxy_file_is_imported_or_explained(
        text in prop::sample::select(
            [folder_texts("import/good", "yml"), folder_texts("import/bad", "yml")].concat()
        ),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        assert_imported_or_explained(&apply(&text, &edits));
    }

    #[test]
    fn an_import_moves_no_key(
        (text, expected) in nutcracker_pool(),
        keys in prop::collection::vec("[a-z${}]{0,20}", 50),
    ) {
        let imported = import::twemproxy(&text, "f").unwrap();
        let config = Config::from_str(&imported.toml, "f").unwrap();
        let Some((set, _)) = config.pools[0].kind.servers() else { panic!("no servers") };
        let (before, after) = (expected.ring(|_| true), set.ring(|_| true));
        for key in keys {
            let server = |pool: &ServerSet, index: Option<u16>| {
                pool.servers[usize::from(index.unwrap())].clone()
            };
            let at_first = server(&expected, before.pick(expected.hash_key(key.as_bytes()), 0));
            let now = server(set, after.pick(set.hash_key(key.as_bytes()), 0));
            prop_assert_eq!(at_first, now);
        }
    }
}
