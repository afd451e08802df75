//! Files that are no results: each is refused with words that say where and why.

mod sample;

use keyway_report::{FILE_LEN_MAX, ReadError, html, markdown, read, read_slice, terminal};
use keyway_testkit::TempDir;
use proptest::prelude::*;
use serde_json::{Value, json};

fn good() -> Value {
    serde_json::to_value(sample::proxies(1)).unwrap()
}

fn refused(value: &Value) -> String {
    refused_text(&value.to_string())
}

fn refused_text(text: &str) -> String {
    let error = read_slice(text.as_bytes(), "run.json").expect_err("it is no result");
    let said = error.to_string();
    assert!(said.starts_with("run.json"), "it does not say which file: {said}");
    assert!(said.len() < 1000, "too long to read: {said}");
    said
}

#[test]
fn values_that_were_never_measured_are_refused_where_they_are() {
    assert!(read_slice(good().to_string().as_bytes(), "run.json").is_ok());
    let round = "/cells/0/rounds/0/measured";
    let cases = [
        ("/seconds", json!(-1.0), "cells[0].rounds[0].seconds"),
        ("/seconds", json!(0), "takes some time"),
        ("/seconds", json!(1e300), "was never measured"),
        ("/seconds", json!(null), "cells[0].rounds[0].measured.seconds"),
        ("/requests", json!(-5), "cells[0].rounds[0].measured.requests"),
        ("/requests", json!(1.5), "cells[0].rounds[0].measured.requests"),
        ("/requests", json!(u64::MAX), "is no count"),
        ("/latency/buckets_ns", json!([[2, 1], [1, 1]]), "do not ascend"),
        ("/latency/buckets_ns", json!([[5, 9_007_199_254_740_992_u64], [6, 1]]), "is no count"),
        ("/latency/sum_ns", json!(-1e9), "no sum"),
        ("/latency/sum_ns", json!(1e30), "no sum"),
        ("/processes/0/user_seconds", json!(-0.5), "user_seconds"),
        ("/processes/0/role", json!("king"), "unknown variant"),
        ("/series/0/at", json!(1e9), "series[0].at"),
        ("/series/1/at", json!(0.5), "not after the one before"),
        ("/errors", json!({ "a\u{1b}[2J": 1 }), "control character"),
    ];
    for (at, value, wanted) in cases {
        let mut bad = good();
        *bad.pointer_mut(&format!("{round}{at}")).unwrap_or_else(|| panic!("{at}")) = value.clone();
        let said = refused(&bad);
        assert!(said.contains(wanted), "{at} = {value}: {said}");
    }
}

#[test]
fn numbers_that_json_does_not_have_are_refused() {
    let good = good().to_string();
    let place = "\"seconds\":12.0";
    assert!(good.contains(place), "the place is in {}", &good[..200]);
    for number in ["NaN", "Infinity", "-Infinity", "1e999", "0x10"] {
        refused_text(&good.replacen(place, &format!("\"seconds\":{number}"), 1));
    }
}

#[test]
fn names_must_fit_together() {
    let change = |at: &str, value: Value| {
        let mut bad = good();
        *bad.pointer_mut(at).unwrap() = value;
        refused(&bad)
    };
    assert!(change("/systems/1/name", json!("twemproxy")).contains("there twice"));
    assert!(change("/systems/1/name", json!("")).contains("no name"));
    assert!(change("/cells/0/system", json!("nobody")).contains("no system \"nobody\""));
    assert!(change("/cells/0/item", json!("nothing")).contains("no item \"nothing\""));
    let mut bad = good();
    bad["baseline"] = json!("nobody");
    assert!(refused(&bad).contains("baseline"));
    let mut bad = good();
    let again = bad["cells"][0].clone();
    bad["cells"].as_array_mut().unwrap().push(again);
    assert!(refused(&bad).contains("already"));
}

#[test]
fn too_much_is_refused() {
    let mut bad = good();
    bad["items"] = (0..1001).map(|nth| json!({ "id": nth.to_string() })).collect();
    bad["cells"] = json!([]);
    assert!(refused(&bad).contains("more than 1000"));
    let mut bad = good();
    bad["title"] = json!("x".repeat(5000));
    assert!(refused(&bad).contains("title"));
    refused_text(&"[".repeat(100_000));

    let directory = TempDir::new();
    let file = directory.path().join("long.json");
    std::fs::File::create(&file).unwrap().set_len(FILE_LEN_MAX + 1).unwrap();
    assert!(matches!(read(&file), Err(ReadError::Long { .. })));
}

#[test]
fn other_files_and_other_versions_are_told_apart() {
    for text in ["", "{", "[]", "{}", "null", "{\"format\":\"hyperfine\"}", "\u{0}\u{1}"] {
        assert!(refused_text(text).contains("no result of keyway bench"), "{text}");
    }
    let mut other = good();
    other["version"] = json!(2);
    let said = refused(&other);
    assert!(said.contains("version 2") && said.contains("newer keyway"), "{said}");
    other["version"] = json!(0);
    assert!(refused(&other).contains("run the benchmark again"));
    // A later version may have changed everything but its number.
    let said = refused(&json!({ "format": "keyway-bench", "version": 9, "all": "else" }));
    assert!(said.contains("version 9"), "{said}");
}

#[test]
fn fields_that_are_new_are_no_fault() {
    let mut newer = good();
    newer["cells"][0]["rounds"][0]["measured"]["temperature"] = json!(61.5);
    assert!(read_slice(newer.to_string().as_bytes(), "run.json").is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever one value is changed to: the file is refused, or all that is made of it can be
    /// made.
    #[test]
    fn a_changed_value_is_refused_or_harmless(
        nth in any::<prop::sample::Index>(),
        value in prop_oneof![
            Just(json!(null)), Just(json!(-1)), Just(json!(0)), Just(json!(1e308)), Just(json!(u64::MAX)),
            Just(json!("")), Just(json!("\u{0}")), Just(json!([])), Just(json!({})), Just(json!(1e-300)),
        ],
    ) {
        let mut run = sample::proxies(1);
        run.items.truncate(1);
        run.cells.retain(|cell| cell.item == run.items[0].id);
        let mut bad = serde_json::to_value(run).unwrap();
        let paths = paths(&bad);
        *bad.pointer_mut(&paths[nth.index(paths.len())]).unwrap() = value;
        if let Ok(run) = read_slice(bad.to_string().as_bytes(), "run.json") {
            html(&run).unwrap();
            markdown(&run);
            terminal(&run, 80);
            keyway_report::csv(&run);
            keyway_report::compare(&run, &run, keyway_report::Settings::default()).table();
        }
    }
}

/// Where the values are: the first few of long lists.
fn paths(value: &Value) -> Vec<String> {
    let mut all = Vec::new();
    let mut left = vec![(String::new(), value)];
    while let Some((at, value)) = left.pop() {
        match value {
            Value::Array(list) => {
                left.extend(list.iter().take(3).enumerate().map(|(n, v)| (format!("{at}/{n}"), v)));
            }
            Value::Object(map) => {
                let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
                left.extend(map.iter().map(|(n, v)| (format!("{at}/{}", escaped(n)), v)));
            }
            _ => {}
        }
        if !at.is_empty() {
            all.push(at);
        }
    }
    all
}
