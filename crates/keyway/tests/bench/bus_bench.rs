//! `keyway bus bench`, run for a short time: every channel carries every message whole and in
//! order.

use keyway_testkit::TempDir;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyway"));
    command.args(["bus", "bench"]).args(arguments).output().expect("the program that was built")
}

#[test]
fn every_channel_carries_everything() {
    let directory = TempDir::new();
    let file = directory.path().join("bench.json");
    let short = ["--seconds", "0.2", "--rounds", "2", "--senders", "1,5", "--json"];
    let output = bench(&[&short[..], &[file.to_str().unwrap()]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("No message was lost, doubled, out of order or changed."), "{text}");
    for channel in ["shm", "unix", "tcp6"] {
        let head = format!("| {channel} |");
        let rows = text.lines().filter(|line| line.starts_with(&head) && line.contains("B/s"));
        assert_eq!(rows.count(), 4, "{text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let trips = json["round_trips"].as_array().unwrap();
    assert!(trips.len() == 3 && trips.iter().all(|one| one["per_second"].as_f64() > Some(10.0)));
    let rows = json["flows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    for row in rows {
        assert!(row["messages_per_second"].as_f64().unwrap() > 100.0, "{row}");
        assert_eq!((&row["lost"], &row["wrong"]), (&0.into(), &0.into()), "{row}");
    }
}

#[test]
fn what_cannot_be_measured_is_told() {
    for (arguments, told) in [
        (["--channels", "pipe"], "is no channel: shm, unix and tcp6 are"),
        (["--sizes", "4-128"], "is no range of lengths"),
        (["--sizes", "128-8"], "is no range of lengths"),
        (["--senders", "65"], "from 1 to 64"),
        (["--senders", "0"], "from 1 to 64"),
        (["--seconds", "0"], "seconds are from"),
        (["--rounds", "0"], "0 is not in"),
        (["--ring", "1000"], "a power of two"),
    ] {
        let output = bench(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(told), "{arguments:?}: {text}");
    }
}
