use super::*;
use keyway_base::Time;
use keyway_metrics::{HealthLevel, Layout, PoolLayout};
use keyway_store::DatabaseStats;

const START: u64 = 1_700_000_000_000_000;

fn an_hour_later() -> Clock {
    Clock { now: Time(0), unix_micros: START + 3_600_000_000 }
}

fn pool(name: &str, store: Option<StoreFacts>, port: u16) -> PoolFacts {
    PoolFacts {
        role: Default::default(),
        kind: "store",
        name: name.to_owned(),
        store,
        databases: 16,
        clients_max: 500,
        bulk_len_max: 512 << 20,
        request_len_max: 600 << 20,
        output_limits: settings::output_limits(&keyway_base::Limits::default()),
        tracking_keys_max: 1_000_000,
        listening: Listening {
            tcp: vec![SocketAddr::from(([127, 0, 0, 1], port))],
            unix: vec![],
            backlog: 511,
            keepalive: Some(Duration::from_secs(300)),
        },
        past: Arc::default(),
        slow_log: None,
        errors: Arc::default(),
        key_stats: Arc::default(),
    }
}

fn stats() -> StoreStats {
    let database = |items, volatile| DatabaseStats { items, volatile };
    StoreStats {
        databases: vec![database(7, 2), database(0, 0), database(1, 0)],
        memory_used: 3 << 20,
        memory_idle: 1 << 20,
        memory_peak: 5 << 20,
        memory_max: 1 << 30,
        hits: 30,
        misses: 20,
        expired: 4,
        evicted: 5,
        ..StoreStats::default()
    }
}

/// Returns facts in which pool 0 is a store, and pool 1 has two servers of which the second is
/// ejected.
fn facts() -> ProcessFacts {
    let registry = Registry::new(Layout {
        classes: &["read", "write"],
        commands: &["get", "set"],
        pools: vec![
            PoolLayout { name: "cache".into(), backends: vec![], is_retired: false },
            PoolLayout {
                name: "sessions".into(),
                backends: vec!["alpha".into(), "beta".into()],
                is_retired: false,
            },
        ],
        workers_max: 4,
        version: "9.9.9",
        start_unix_micros: START,
    });
    let store = StoreFacts {
        policy: "allkeys-lru",
        notify: "xE".to_owned(),
        read: Box::new(stats),
        snapshot: Box::new(|| SnapshotStatus { saved_changes: 1, ..SnapshotStatus::default() }),
        log: Box::new(|| None),
        scripts: Arc::default(),
    };
    ProcessFacts {
        start_unix_micros: START,
        run_id: run_id(an_hour_later()),
        wall_clock: an_hour_later,
        pools: vec![pool("cache", Some(store), 6380), pool("sessions", None, 6381)],
        registry,
        clients: Arc::default(),
        channels: Arc::default(),
        invalidations: Arc::default(),
    }
}

fn info(facts: &ProcessFacts, pool: u16, sections: &[&str]) -> String {
    let mut text = String::new();
    facts.info(pool, false, sections, &mut text);
    text
}

/// Returns the value of a field.
#[track_caller]
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let values = text.split("\r\n").filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let values: Vec<&str> = values.collect();
    assert_eq!(values.len(), 1, "{name} in {text}");
    values[0]
}

#[test]
fn every_line_is_a_head_a_field_or_empty_and_no_field_is_there_twice() {
    let facts = facts();
    for pool in 0..2 {
        let text = info(&facts, pool, &["everything"]);
        assert!(text.ends_with("\r\n") && !text.replace("\r\n", "").contains(['\r', '\n']));
        let mut names = Vec::new();
        for line in text.split("\r\n").filter(|line| !line.is_empty()) {
            match line.strip_prefix("# ") {
                Some(_) => {}
                None => names.push(line.split_once(':').expect("a field").0),
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

#[test]
fn sections_come_in_redis_order_whoever_asks() {
    let heads = |text: &str| {
        let heads = text.split("\r\n").filter_map(|line| line.strip_prefix("# "));
        heads.map(str::to_owned).collect::<Vec<_>>()
    };
    let facts = facts();
    assert_eq!(heads(&info(&facts, 0, &["cpu", "SERVER", "nothing"])), ["Server", "CPU"]);
    assert_eq!(info(&facts, 0, &["nothing"]), "");
    assert_eq!(heads(&info(&facts, 0, &["default"])).len(), Section::ALL.len() - 3);
    assert_eq!(heads(&info(&facts, 0, &["all"])).len(), Section::ALL.len());
    let more = ["default", "commandstats", "latencystats", "latencies"];
    assert_eq!(heads(&info(&facts, 0, &more)).len(), Section::ALL.len());
}

#[test]
fn a_store_tells_of_its_memory_and_keys() {
    let facts = facts();
    let text = info(&facts, 0, &["default"]);
    for (name, value) in [
        ("used_memory", "4194304"),
        ("used_memory_human", "4.00M"),
        ("used_memory_peak", "5242880"),
        ("used_memory_dataset", "3145728"),
        ("maxmemory", "1073741824"),
        ("maxmemory_human", "1.00G"),
        ("maxmemory_policy", "allkeys-lru"),
        ("keyspace_hits", "30"),
        ("keyspace_misses", "20"),
        ("expired_keys", "4"),
        ("evicted_keys", "5"),
        ("db0", "keys=7,expires=2,avg_ttl=0"),
        ("db2", "keys=1,expires=0,avg_ttl=0"),
        ("uptime_in_seconds", "3600"),
        ("tcp_port", "6380"),
        ("loading", "0"),
        ("role", "master"),
        ("redis_mode", "standalone"),
        ("cluster_enabled", "0"),
        ("maxclients", "500"),
        ("keyway_version", "9.9.9"),
        ("keyway_pool_kind", "store"),
    ] {
        assert_eq!(field(&text, name), value, "{name}");
    }
    assert!(!text.contains("db1:"));
    assert!(info(&facts, 1, &["memory"]).contains("used_memory_peak:"));
    let id = field(&text, "run_id");
    assert!(id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert!(field(&text, "used_memory_rss").parse::<u64>().expect("a number") > 100 << 10);
}

#[test]
fn a_sharded_pool_tells_of_its_servers() {
    let facts = facts();
    let cells = facts.registry.start_worker().expect("a free place");
    let beta = cells.pool(1).backend(1);
    beta.requests.add(9);
    beta.in_flight.raise(2);
    beta.set_health(HealthLevel::Ejected);
    let get = cells.pool(1).requests(0, 0);
    (0..8).for_each(|_| get.call());
    get.latency(Time(0), Time(1_000_000));
    let text = info(&facts, 1, &["everything"]);
    assert_eq!(field(&text, "keyway_workers"), "1");
    assert_eq!(
        field(&text, "backend1"),
        "name=beta,state=ejected,links=0,in_flight=2,requests=9,errors=0,error_replies=0,\
         ejections=0"
    );
    assert!(field(&text, "backend0").starts_with("name=alpha,state=unknown,"));
    assert_eq!(field(&text, "total_commands_processed"), "8");
    assert!(field(&text, "cmdstat_get").starts_with("calls=8,usec=1000,usec_per_call=1000.00,"));
    assert!(!text.contains("keyspace_hits") && !text.contains("cmdstat_set"));
    assert_eq!(field(&text, "maxmemory"), "0");
}

#[test]
fn settings_answer_what_tools_ask_for() {
    let facts = facts();
    let settings = facts.settings(0);
    let value = |name: &str| {
        let found = settings.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no {name}")).1.as_str()
    };
    for (name, expected) in [
        ("save", ""),
        ("appendonly", "no"),
        ("maxmemory", "1073741824"),
        ("maxmemory-policy", "allkeys-lru"),
        ("maxclients", "500"),
        ("databases", "16"),
        ("timeout", "0"),
        ("port", "6380"),
        ("bind", "127.0.0.1"),
        ("proto-max-bulk-len", "536870912"),
        ("tcp-keepalive", "300"),
        ("tracking-table-max-keys", "1000000"),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let names: Vec<_> = settings.iter().map(|(name, _)| *name).collect();
    assert!(names.is_sorted());
    assert_eq!(facts.settings(1).len(), settings.len());
    assert!(facts.settings(9).is_empty());
}

#[test]
fn sizes_read_as_in_redis() {
    for (bytes, text) in
        [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (12 << 30, "12.00G"), (3 << 50, "3.00P")]
    {
        assert_eq!(Human(bytes).to_string(), text);
    }
}
