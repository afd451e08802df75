//! `keyway bench report` and `keyway bench compare`: from a measurement of a real server to the
//! output for people and the exit statuses for scripts.

use keyway_testkit::{RedisServer, TempDir, ToolOutput, run_keyway};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn bench(arguments: &[&str]) -> ToolOutput {
    run_keyway(env!("CARGO_BIN_EXE_keyway"), &[&["bench"], arguments].concat())
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a path of plain letters")
}

#[test]
fn what_was_measured_is_what_is_reported() {
    let (directory, server) = (TempDir::new(), RedisServer::start());
    let file = |name: &str| directory.path().join(name);
    let (json, html) = (file("load.json"), file("load.html"));
    let (markdown, csv, again) = (file("load.md"), file("load.csv"), file("again.json"));
    let address = server.address().to_string();
    let load = ["load", &address, "--duration", "1500ms", "--keys", "1000", "--json", name(&json)];
    let _ = bench(&load).expect_success("keyway bench load");

    let report = ["report", name(&json), "--html", name(&html), "--markdown", name(&markdown)];
    let more = ["--csv", name(&csv), "--json", name(&again)];
    let shown = bench(&[&report[..], &more].concat()).expect_success("keyway bench report").stdout;

    let found: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let outcome = &found["outcomes"][0];
    let requests = outcome["totals"]["requests"].as_u64().unwrap();
    assert!(requests > 100, "{found}");
    let rate = requests as f64 / outcome["seconds"].as_f64().unwrap();
    let value = format!("data-value=\"{rate}\"");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains(&value), "{value} is not in the page");
    assert!(page.contains("id=\"heat\""), "no latency over time");
    let p99 = outcome["latency"]["p99_us"].as_f64().unwrap() * 1000.0;
    let csv = std::fs::read_to_string(&csv).unwrap();
    let line = csv.lines().nth(1).unwrap();
    assert!(
        line.contains(&format!(",{requests},")) && line.contains(&format!(",{p99:.0},")),
        "{csv}"
    );
    assert!(shown.contains("Requests/s"), "{shown}");
    let markdown = std::fs::read_to_string(&markdown).unwrap();
    assert!(markdown.contains("| Requests/s |"), "{markdown}");

    // The same result is read from the reports' own form.
    let twice = bench(&["report", name(&again)]).expect_success("keyway bench report");
    assert_eq!(twice.stdout, shown);
    // With one round each, no difference can be shown, which is not a failure.
    let compared = bench(&["compare", name(&json), name(&again)]);
    assert!(compared.stdout.contains("too few rounds"), "{}", compared.text);
    assert_eq!(compared.status.code(), Some(0), "{}", compared.text);
}

/// Writes a result with these numbers of requests in rounds of one second.
fn result(directory: &TempDir, name: &str, item: &str, rounds: &[u64]) -> PathBuf {
    let round = |requests: &u64| {
        let latency = json!({ "buckets_ns": [[1000, requests]], "sum_ns": *requests as f64 * 1e3 });
        json!({ "measured": { "seconds": 1.0, "requests": requests, "latency": latency } })
    };
    let run = json!({
        "format": "keyway-bench",
        "version": 1,
        "scenario": "any",
        "systems": [{ "name": "keyway" }],
        "items": [{ "id": item }],
        "cells": [{
            "system": "keyway",
            "item": item,
            "rounds": rounds.iter().map(round).collect::<Vec<_>>(),
        }],
    });
    directory.write(name, run.to_string())
}

#[test]
fn the_status_says_what_was_shown() {
    let directory = TempDir::new();
    let slow = result(&directory, "slow.json", "get", &[100, 101, 99, 102, 98]);
    let fast = result(&directory, "fast.json", "get", &[120, 121, 119, 122, 118]);
    let other = result(&directory, "other.json", "set", &[100; 5]);
    let status = |old: &Path, new: &Path, more: &[&str]| {
        let output = bench(&[&["compare", name(old), name(new)], more].concat());
        (output.status.code(), output.text)
    };
    let (code, text) = status(&slow, &fast, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("better") && text.contains("1.20"), "{text}");
    let (code, text) = status(&fast, &slow, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("WORSE"), "{text}");
    let (code, text) = status(&fast, &slow, &["--margin", "30"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = status(&slow, &other, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("nothing in common") && text.contains("only in the old run"), "{text}");

    let mut both: Value = serde_json::from_slice(&std::fs::read(&slow).unwrap()).unwrap();
    let more: Value = serde_json::from_slice(&std::fs::read(&other).unwrap()).unwrap();
    for list in ["items", "cells"] {
        both[list].as_array_mut().unwrap().push(more[list][0].clone());
    }
    let both = directory.write("both.json", both.to_string());
    let (code, text) = status(&both, &slow, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("Not compared:"), "{text}");
}

#[test]
fn files_that_are_no_results_are_named() {
    let directory = TempDir::new();
    let good = result(&directory, "good.json", "get", &[100; 5]);
    let later = directory.write("later.json", r#"{"format":"keyway-bench","version":7}"#);
    let later_load = directory.write("later_load.json", r#"{"schema":7,"outcomes":[]}"#);
    let broken = directory.write("broken.json", r#"{"schema":1,"outcomes":[{"seconds":-1}]}"#);
    let empty = directory.write("empty.json", r#"{"schema":1,"outcomes":[]}"#);
    let absent = directory.path().join("absent.json");
    for (file, wanted) in [
        (&later, "version 7"),
        (&later_load, "version 7"),
        (&broken, "no result of keyway bench"),
        (&empty, "it has no outcome"),
        (&absent, "cannot read"),
    ] {
        let output = bench(&["compare", name(&good), name(file)]);
        assert_eq!(output.status.code(), Some(2), "{}", output.text);
        assert!(
            output.text.contains(wanted) && output.text.contains(name(file)),
            "{}",
            output.text
        );
        let output = bench(&["report", name(file)]);
        assert!(!output.status.success() && output.text.contains(wanted), "{}", output.text);
    }
    // The reason of the system is printed once.
    for arguments in [&["compare", name(&good), name(&absent)][..], &["report", name(&absent)]] {
        let text = bench(arguments).text;
        for part in ["cannot read", "No such file or directory", name(&absent)] {
            assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
        }
    }
}
