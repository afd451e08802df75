//! Latencies by class: INFO latencies, INFO latencystats, LATENCY HISTOGRAM and `/metrics` agree
//! with the requests that were sent.

use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, Value, encode_words, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SECONDS: Duration = Duration::from_secs(20);

/// Returns a number from the line of a class in INFO latencies; `None` if there is no such line.
fn share(info: &str, class: &str, name: &str) -> Option<f64> {
    let start = format!("latencies_{class}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&start))?;
    let mut fields = line.split(',').filter_map(|field| field.split_once('='));
    fields.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Returns the structure of a reply, without the content of numbers and texts.
fn shape(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let mut shapes: Vec<_> = items.iter().map(shape).collect();
            // A histogram has as many pairs as it needs.
            let is_numbers = !shapes.is_empty() && shapes.iter().all(|shape| shape == "i");
            if is_numbers {
                assert!(shapes.len().is_multiple_of(2));
                shapes.truncate(2);
            }
            format!("[{}]", shapes.join(" "))
        }
        Value::Integer(_) => "i".to_owned(),
        Value::Bulk(_) => "b".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_slow_command_shows_in_its_class_and_in_those_behind_it() {
    let _watch = watchdog(Duration::from_secs(60), "shares of slow requests");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("cache")]));
    let mut client = keyway.client(0);
    let words: String = (0..20_000).map(|nth| format!(" {}", nth * 7919 % 20_011)).collect();
    client.words(&format!("RPUSH list{words}"));
    client.send(&encode_words("SORT_RO list LIMIT 0 1"));
    client.reply();
    let slow = client.pipeline(&["SORT_RO list LIMIT 0 1", "SET behind 1", "GET behind"]);
    assert_eq!(slow[2], Value::bulk("1"));
    for _ in 0..50 {
        client.words("GET behind");
    }
    let info = client.words("INFO latencies").text();
    assert!(info.starts_with("# Latencies\r\nlatencies_window_seconds:"), "{info}");
    let read = |name| share(&info, "read", name).unwrap_or_else(|| panic!("no {name} in {info}"));
    assert_eq!(read("requests"), 53.0);
    assert_eq!(read("window_requests"), 53.0);
    // Both SORTs count, and the GET that waited behind one of them.
    assert!(read("over_1ms") >= 300.0 / 53.0 - 0.001, "{info}");
    assert!(read("over_1ms") <= 100.0 && read("over_64ms") <= read("over_8ms"), "{info}");
    assert!(share(&info, "write", "over_1ms").is_some_and(|percent| percent >= 50.0), "{info}");
    let slow = |over: &str| {
        let labels = ["pool=\"cache\"", "command=\"read\"", over];
        keyway.metrics().sum("keyway_pool_slow_requests_total", &labels)
    };
    assert!(slow("over=\"1ms\"") >= 3.0);
    assert!(
        slow("over=\"64ms\"") <= slow("over=\"8ms\"")
            && slow("over=\"8ms\"") <= slow("over=\"1ms\"")
    );
    // After ten seconds without any, the window has forgotten them.
    wait_until("the window to pass", SECONDS, || {
        let info = client.words("INFO latencies").text();
        share(&info, "read", "window_requests") == Some(0.0)
    });
    let all = client.words("INFO everything").text();
    assert_eq!(share(&all, "read", "requests"), Some(53.0));
    assert_eq!(share(&all, "read", "window_over_1ms"), Some(0.0));
    assert!(all.contains("\r\nlatency_percentiles_usec_read:p50="), "{all}");
    assert!(!client.words("INFO").text().contains("latencies_"));
}

#[test]
fn histograms_have_the_form_of_redis_and_count_every_request() {
    let _watch = watchdog(Duration::from_secs(60), "LATENCY HISTOGRAM");
    let server = RedisServer::start();
    let servers = [RedisServer::start()];
    let pools = vec![Pool::store("cache"), Pool::over("main", &servers)];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut direct = server.client();
    direct.words("SET a 1");
    direct.words("SET a 1");
    let expected = shape(&direct.words("LATENCY HISTOGRAM set"));
    for pool in 0..2 {
        let mut client = keyway.client(pool);
        for _ in 0..30 {
            client.words("SET a 1");
            client.words("GET a");
        }
        let histogram = |reply: &Value| -> (Value, i64, Vec<i64>) {
            let Value::Array(items) = reply else { panic!("{reply:?}") };
            let Value::Array(fields) = &items[1] else { panic!("{reply:?}") };
            let Value::Array(pairs) = &fields[3] else { panic!("{reply:?}") };
            let number = |value: &Value| match value {
                Value::Integer(number) => *number,
                other => panic!("{other:?}"),
            };
            (items[0].clone(), number(&fields[1]), pairs.iter().map(number).collect())
        };
        let reply = client.words("LATENCY HISTOGRAM set");
        assert_eq!(shape(&reply), expected);
        let (class, calls, pairs) = histogram(&reply);
        assert_eq!((class, calls), (Value::bulk("write"), 30));
        let (bounds, counts): (Vec<_>, Vec<_>) =
            pairs.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
        assert!(bounds.is_sorted() && counts.is_sorted(), "{pairs:?}");
        assert_eq!(counts.last(), Some(&30));
        // A class is counted under its own name, once however often it is named. Other names and
        // unknown ones are ignored.
        let reply = client.words("LATENCY HISTOGRAM read GET hget nothing config|nothing");
        assert_eq!(histogram(&reply).1, 30);
        let Value::Array(items) = &reply else { panic!("{reply:?}") };
        assert_eq!(items.len(), 2);
        let all = client.words("LATENCY HISTOGRAM");
        assert!(matches!(&all, Value::Array(items) if items.len() >= 4), "{all:?}");
        client.words("HELLO 3");
        let map = client.words("LATENCY HISTOGRAM set");
        assert!(matches!(map, Value::Map(_)), "{map:?}");
    }
}
