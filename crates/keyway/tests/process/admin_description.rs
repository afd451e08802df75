//! The admin API beside its description: no request that the description allows or forbids does
//! harm, and no operation is done without the token.

use crate::admin_api::{CHANGE, HERE, SOON, TOKEN, WITHIN, asked};
use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, Value, http_get, schemathesis, wait_until, watchdog,
};
use serde_json::Value as Json;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

#[test]
fn no_request_that_the_description_allows_or_forbids_makes_a_fault() {
    let _watch = watchdog(Duration::from_secs(400), "schemathesis");
    let servers = RedisServer::start_many(2);
    let files = CertificateFiles::default();
    // The notes of its runs stay in this directory.
    let directory = files.write("notes", "").parent().expect("a directory").display().to_string();
    let token = files.write("token", TOKEN);
    // These servers are named in the examples of the description.
    let lines =
        [(0, "alpha"), (1, "beta")].map(|(at, name)| format!("{}:1 {name}", servers[at].address()));
    let pools = vec![Pool::sharded("sessions", &lines), Pool::store("cache")];
    let config = KeywayConfig::new(pools).with_server("admin_token_file", &format!("{token:?}"));
    let mut keyway = Keyway::start(KEYWAY, config);
    let run = |more: &[&str]| {
        let more = [&["--max-examples", "30"], more].concat();
        let output = schemathesis(keyway.admin(), TOKEN, &directory, &more);
        assert!(output.status.success(), "{}", output.text);
    };
    let (drain, upgrade) = ("/v1/drain", "/v1/upgrade");
    run(&["--exclude-path", drain, "--exclude-path", upgrade]);
    // For these paths only wrong requests are sent, so that the process stays.
    for path in [drain, upgrade] {
        run(&["--include-path", path, "--mode", "negative", "--phases", "coverage,fuzzing"]);
    }
    assert!(keyway.process_mut().is_running());
    assert_eq!(http_get(keyway.admin(), "/v1/health").status, 200);
    assert_eq!(keyway.client(1).words("PING"), Value::simple("PONG"));
    let log = keyway.process().log();
    assert!(log.contains("ejected on an operator's word"), "the examples were followed\n{log}");
    assert!(!log.contains("panicked") && !log.contains("open-sesame"), "{log}");
    // With a wrong token, only probes are answered.
    let wrong = TOKEN.replace("sesame", "sesamf");
    let before = changeable(&keyway);
    let report = format!("{directory}/har.json");
    let checks = ["--checks", "not_a_server_error", "--exclude-path-regex", "health|ready"];
    let rest = ["--max-examples", "10", "--report", "har", "--report-har-path", &report];
    let all = [&checks[..], &rest].concat();
    let output = schemathesis(keyway.admin(), &wrong, &directory, &all);
    assert!(output.status.success(), "{}", output.text);
    let report = std::fs::read_to_string(&report).expect("what was asked and answered");
    let report: Json = serde_json::from_str(&report).expect("JSON");
    let entries = report["log"]["entries"].as_array().expect("requests");
    assert!(entries.len() > 100, "{} requests", entries.len());
    for entry in entries {
        let status = entry["response"]["status"].as_u64().expect("a status");
        assert!((400..500).contains(&status), "{entry}");
    }
    assert_eq!(changeable(&keyway), before);
    assert!(keyway.process_mut().is_running());
}

/// Returns everything that requests could have changed without the token: the generation, state and
/// settings of a Keyway, and the servers that are out of use.
fn changeable(keyway: &Keyway) -> String {
    let told = |path: &str| {
        let headers = format!("{HERE}authorization: Bearer {TOKEN}\r\nconnection: close\r\n");
        let (status, reply) = asked(keyway, &format!("GET {path}"), &headers, "");
        assert_eq!(status, 200, "{reply}");
        reply.split_once("\r\n\r\n").expect("a body").1.to_owned()
    };
    let of = |text: &str, fields: &[&str]| -> Vec<String> {
        let body: Json = serde_json::from_str(text).expect("JSON");
        fields.iter().map(|field| format!("{field} {}", body[*field])).collect()
    };
    let status = told("/v1/status");
    let fields = ["pid", "draining", "upgrade"];
    let servers: Json = serde_json::from_str(&told("/v1/servers")).expect("JSON");
    let servers = servers["servers"].as_array().expect("servers");
    let ejected: Vec<String> =
        servers.iter().map(|one| format!("{} {}", one["state"], one["by_hand"])).collect();
    let log = keyway.process().log();
    let words = ["operator's word", " reloaded", "upgrade", "drain"];
    let lines = words.map(|words| log.matches(words).count());
    let metrics = told("/metrics");
    let generation = metrics.lines().find(|line| line.starts_with("keyway_config_generation"));
    let generation = generation.expect("the generation is measured");
    let (status, level) = (of(&status, &fields), told("/v1/log-level"));
    format!("{status:?} {generation} {level} {ejected:?} {lines:?}")
}

/// Returns the part of the description that a reference names.
fn resolved<'d>(description: &'d Json, at: &'d Json) -> &'d Json {
    match at["$ref"].as_str() {
        Some(path) => description.pointer(path.trim_start_matches('#')).expect("it is there"),
        None => at,
    }
}

/// Returns every operation of the description with a valid request for it: its line, its body, and
/// whether it needs the token.
fn operations() -> Vec<(String, String, bool)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let text = std::fs::read_to_string(path).expect("the description");
    let description: Json = serde_json::from_str(&text).expect("JSON");
    let mut found = Vec::new();
    for (path, methods) in description["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let content = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = match (content, path.as_str()) {
                (Json::Null, _) => String::new(),
                (_, "/v1/log-level" | "/v1/fleet/log-level") => "{\"level\": \"debug\"}".to_owned(),
                (_, "/v1/drain" | "/v1/fleet/drain") => "{\"then\": \"wait\"}".to_owned(),
                (schema, _) => resolved(&description, schema)["examples"][0].to_string(),
            };
            assert_ne!(body, "null", "{path} has an example");
            // An empty requirement is met by no request.
            let is_open = operation["security"] == serde_json::json!([{}]);
            found.push((format!("{} {path}", method.to_uppercase()), body, !is_open));
        }
    }
    assert!(found.len() >= 15, "{found:?}");
    found
}

#[test]
fn no_operation_is_done_without_the_token() {
    let _watch = watchdog(WITHIN, "without the token");
    let servers = RedisServer::start_many(2);
    let files = CertificateFiles::default();
    let token = files.write("token", TOKEN);
    // These servers are named in the examples of the description.
    let lines =
        [(0, "alpha"), (1, "beta")].map(|(at, name)| format!("{}:1 {name}", servers[at].address()));
    let pools = vec![Pool::sharded("sessions", &lines), Pool::store("cache")];
    let config = KeywayConfig::new(pools).with_server("admin_token_file", &format!("{token:?}"));
    let mut keyway = Keyway::start(KEYWAY, config);
    let shorter = &TOKEN[..TOKEN.len() - 1];
    let wrong = [
        String::new(),
        "authorization: Bearer wrong-wrong-wrong-wrong\r\n".to_owned(),
        format!("authorization: Bearer {shorter}\r\n"),
        format!("authorization: Bearer {TOKEN}x\r\n"),
        format!("authorization: Bearer {}\r\n", TOKEN.to_uppercase()),
        "authorization: Bearer \r\n".to_owned(),
        "authorization: Bearer\r\n".to_owned(),
        format!("authorization: {TOKEN}\r\n"),
        format!("authorization: Basic {TOKEN}\r\n"),
        format!("token: {TOKEN}\r\ncookie: token={TOKEN}\r\n"),
        // If there are two headers, the first counts.
        format!("authorization: Bearer x\r\nauthorization: Bearer {TOKEN}\r\n"),
    ];
    // Each server is asked once at the start.
    wait_until("servers are known", SOON, || !changeable(&keyway).contains("unknown"));
    let before = changeable(&keyway);
    let operations = operations();
    for (line, body, is_guarded) in &operations {
        for header in &wrong {
            let headers = format!("{CHANGE}connection: close\r\n{header}");
            let (status, reply) = asked(&keyway, line, &headers, body);
            match is_guarded {
                true => assert!([401, 403].contains(&status), "{line} {header}: {reply}"),
                false => assert!([200, 503].contains(&status), "{line} {header}: {reply}"),
            }
            assert!(!reply.contains(TOKEN), "{reply}");
        }
    }
    assert_eq!(changeable(&keyway), before, "nothing was done");
    // The token alone was the reason for the refusals: with it each request is accepted.
    let headers = format!("{CHANGE}connection: close\r\nauthorization: Bearer {TOKEN}\r\n");
    let ends = |line: &str| line.ends_with("/drain") || line.ends_with("/upgrade");
    for (line, body, _) in operations.iter().filter(|(line, ..)| !ends(line)) {
        let (status, reply) = asked(&keyway, line, &headers, body);
        assert!([200, 404, 409].contains(&status), "{line}: {reply}");
    }
    assert_ne!(changeable(&keyway), before, "and would have changed something");
    assert!(keyway.process_mut().is_running());
}
