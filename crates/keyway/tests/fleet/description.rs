//! The API of a control node with a member beside its description: no request that the description
//! allows or forbids does harm to the fleet.

use crate::stage::{Coordinator, Fleet, SOON};
use keyway_testkit::{Client, Value, schemathesis, wait_until, watchdog};
use serde_json::Value as Json;
use std::time::Duration;

const TOKEN: &str = "a-token-that-is-of-eve";

#[test]
fn no_request_of_the_description_harms_a_fleet() {
    let _watchdog = watchdog(Duration::from_secs(180), "the description of a fleet");
    let mut fleet = Fleet::start_many(Coordinator::Files, 1, 1);
    let document = fleet.document("3s", "");
    fleet.store(&document, 0);
    fleet.wait_current(&[0], 1);
    // The control node starts again with an operator.
    let directory = fleet.directory.path();
    let file = directory.join("control-1.toml");
    let text = std::fs::read_to_string(&file).expect("the settings of the control node");
    let operator = "[[operator]]\nname = \"eve\"\nrole = \"admin\"\ntoken_file = \"eve.token\"\n";
    fleet.directory.write("control-1.toml", text + operator);
    let token = fleet.directory.write("eve.token", TOKEN).display().to_string();
    let control = &mut fleet.controls[0];
    drop(control.process.take());
    control.start(&fleet.directory);
    let control = &fleet.controls[0];
    let id = fleet.proxies[0].id.as_str();
    let is_well = || {
        let told = control.ctl(&["--token-file", &token, "--json", "fleet"]);
        let body: Json = serde_json::from_str(&told.stdout).unwrap_or_default();
        let has_member = |members: &Vec<Json>| members.iter().any(|member| member["id"] == id);
        body["leads"] == true && body["members"].as_array().is_some_and(has_member)
    };
    wait_until("the node leads, and the member is registered", SOON, is_well);
    let notes = directory.display().to_string();
    // A schema cannot tell the members of this fleet, nor the documents that are right.
    let accepted = "[\"2xx\", 400, 401, 403, 404, 409, 422, 503]";
    let settings = format!("[checks.positive_data_acceptance]\nexpected-statuses = {accepted}\n");
    fleet.directory.write("schemathesis.toml", settings);
    let report = format!("{notes}/har.json");
    // These operations end a process. The requests below that name no member stand for them.
    let ending = "^/v1(/fleet)?/(drain|upgrade)$";
    let more = ["--max-examples", "5", "--exclude-path-regex", ending, "--report", "har"];
    let more = [&more[..], &["--report-har-path", &report]].concat();
    let output = schemathesis(control.admin, TOKEN, &notes, &more);
    let logs = || control.process.as_ref().expect("it runs").log() + &fleet.proxies[0].log();
    assert!(output.status.success(), "{}\n{}", output.text, logs());
    check_reached(&report);
    for word in ["drain", "upgrade"] {
        let words = ["--token-file", &token, "--members", "z9.proxy.0.9", word];
        let told = control.ctl(&words);
        assert!(!told.status.success(), "{word}: {}", told.text);
        assert!(told.text.contains("z9.proxy.0.9"), "{word}: {}", told.text);
    }
    wait_until("the node leads, and the member is registered", SOON, is_well);
    let mut client = Client::connect(fleet.proxies[0].client);
    assert_eq!(client.words("PING"), Value::simple("PONG"));
    assert!(!logs().contains("panicked"), "{}", logs());
}

/// Every operation of the fleet was answered by the control node at least once.
fn check_reached(report: &str) {
    let report = std::fs::read_to_string(report).expect("requests and answers");
    let report: Json = serde_json::from_str(&report).expect("JSON");
    let entries = report["log"]["entries"].as_array().expect("requests");
    let description: Json = serde_json::from_str(keyway_control::OPENAPI).expect("JSON");
    for (path, methods) in description["paths"].as_object().expect("paths") {
        let is_ending = path.ends_with("/drain") || path.ends_with("/upgrade");
        if !path.starts_with("/v1/fleet") || is_ending {
            continue;
        }
        for method in methods.as_object().expect("methods").keys() {
            let statuses: Vec<u64> = entries
                .iter()
                .filter(|entry| {
                    let request = &entry["request"];
                    let url = request["url"].as_str().unwrap_or_default();
                    let asked = url.split('?').next().unwrap_or_default();
                    asked.ends_with(path.as_str())
                        && request["method"] == method.to_uppercase().as_str()
                })
                .filter_map(|entry| entry["response"]["status"].as_u64())
                .collect();
            let is_answer = |status: &u64| matches!(status, 200..=299 | 400 | 409 | 422);
            assert!(statuses.iter().any(is_answer), "{method} {path}: {statuses:?}");
        }
    }
}
