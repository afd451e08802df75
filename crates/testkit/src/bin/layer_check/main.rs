//! Keeps the house in order: which crate may import which, where `unsafe` may
//! be, how long a file may grow, which room of a worker may call which.
//!
//! Reads `cargo metadata`, so a new edge is seen the moment it is in a
//! `Cargo.toml`. Dev-dependencies are exempt: a test may look at anything.
//! Run by `make check`; exits with an error and says what to do.

#![forbid(unsafe_code)]

mod rooms;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;

/// Every crate and its layer. A crate imports lower layers only.
const LAYERS: &[(&str, u8)] = &[
    ("base", 0),
    ("metrics", 0),
    ("resp", 1),
    ("memcache", 1),
    ("command", 1),
    ("tls", 1),
    ("ring", 1),
    ("memory", 1),
    ("rdb", 1),
    ("topology", 2),
    ("route", 2),
    ("store", 2),
    ("bus", 2),
    ("client", 2),
    ("users", 2),
    ("proxy", 3),
    ("script", 3),
    ("config", 3),
    ("coordinator", 3),
    ("fleet", 3),
    ("log", 3),
    ("net", 4),
    ("channel", 4),
    ("replica", 4),
    ("mover", 5),
    ("worker", 4),
    ("control", 5),
    ("standby", 5),
    ("client-c", 5),
    ("bus-bench", 5),
    ("load", 5),
    ("bench", 5),
    ("report", 5),
    ("top", 5),
    ("scenario", 5),
    ("testkit", 5),
    ("sim", 6),
    ("keyway", 6),
];

/// The edges within a layer that are part of the design.
const SAME_LAYER: &[(&str, &str)] = &[
    ("metrics", "base"),
    ("rdb", "resp"),
    ("route", "topology"),
    ("worker", "net"),
    ("scenario", "load"),
    ("scenario", "report"),
    ("scenario", "bus-bench"),
    ("bench", "load"),
    ("bench", "report"),
    ("bench", "scenario"),
];

/// Edges that go down and are still wrong, and where the two may meet.
const NEVER: &[(&str, &str, &str)] = &[
    ("proxy", "store", "worker"),
    ("proxy", "bus", "worker"),
    ("bus", "store", "worker"),
    // The control plane knows the data plane by a trait alone.
    ("control", "worker", "keyway"),
    ("control", "proxy", "keyway"),
    ("control", "store", "keyway"),
    // Nothing on a request's path waits for a coordinator.
    ("coordinator", "store", "keyway"),
    ("net", "coordinator", "keyway"),
    ("fleet", "coordinator", "control"),
    ("worker", "coordinator", "keyway"),
    // It measures the product from outside, as any other server.
    ("load", "worker", "keyway"),
    ("load", "proxy", "keyway"),
    ("load", "store", "keyway"),
];

/// Crates whose roots need not forbid `unsafe`.
const UNSAFE_ALLOWED: &[&str] = &["base", "ring", "memory", "store", "net", "client-c"];

/// Crates with async code: the control plane, and what it asks. No data plane imports them.
const ASYNC_ALLOWED: &[&str] = &["control", "coordinator"];

/// Longer than this without its test modules, a file holds more than one
/// thing.
const FILE_LINES_MAX: usize = 800;

fn main() -> ExitCode {
    let metadata = match metadata() {
        Ok(metadata) => metadata,
        Err(what) => {
            eprintln!("layer check: {what}");
            return ExitCode::FAILURE;
        }
    };
    let mut faults = Vec::new();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for package in packages {
        check_package(package, &mut faults);
    }
    rooms::check(Path::new(metadata["workspace_root"].as_str().unwrap_or(".")), &mut faults);
    for fault in &faults {
        eprintln!("layer check: {fault}");
    }
    if faults.is_empty() && !packages.is_empty() {
        println!(
            "layer check: {} crates keep to their layers, and a worker's rooms to theirs",
            packages.len()
        );
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}

fn metadata() -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn check_package(package: &Value, faults: &mut Vec<String>) {
    let name = short(package["name"].as_str().unwrap_or_default());
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    for dependency in dependencies.iter().filter(|one| one["kind"].as_str() != Some("dev")) {
        let on = dependency["name"].as_str().unwrap_or_default();
        faults.extend(edge_fault(name, on));
    }
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
    let directory = manifest.parent().unwrap_or(Path::new("."));
    check_roots(name, package, faults);
    check_lengths(&directory.join("src"), faults);
}

/// What is wrong with `from` depending on the package `on`, if anything.
fn edge_fault(from: &str, on: &str) -> Option<String> {
    let Some(from_layer) = layer(from) else {
        return Some(format!(
            "`{from}` is not in the table of layers: decide where it belongs in DESIGN terms and \
             add it to LAYERS in crates/testkit/src/bin/layer_check/main.rs"
        ));
    };
    if !on.starts_with("keyway") {
        return external_fault(from, on);
    }
    let on = short(on);
    let Some(on_layer) = layer(on) else {
        return Some(format!("`{from}` imports `{on}`, which is not in the table of layers"));
    };
    let edge = (from, on);
    if on == "testkit" {
        return Some(format!(
            "`{from}` imports `testkit` in its product: make it a [dev-dependencies] entry"
        ));
    }
    if let Some((.., meet)) = NEVER.iter().find(|(a, b, _)| (*a, *b) == edge) {
        return Some(format!(
            "`{from}` imports `{on}`: they must not know each other; join them in `{meet}`"
        ));
    }
    if on_layer < from_layer || SAME_LAYER.contains(&edge) {
        return None;
    }
    Some(format!(
        "`{from}` (L{from_layer}) imports `{on}` (L{on_layer}): a crate imports lower layers only; \
         move what it needs down, or pass it in from above"
    ))
}

fn external_fault(from: &str, on: &str) -> Option<String> {
    if from == "base" {
        return Some(format!(
            "`base` depends on `{on}`: it depends on nothing; write it or move it"
        ));
    }
    let is_async = matches!(on, "tokio" | "async-std" | "smol" | "hyper" | "futures");
    if is_async && !ASYNC_ALLOWED.contains(&from) {
        return Some(format!(
            "`{from}` depends on `{on}`: async code lives in {ASYNC_ALLOWED:?} only"
        ));
    }
    None
}

/// Crate roots outside of the few that may use `unsafe` forbid it; the
/// compiler does the rest.
fn check_roots(name: &str, package: &Value, faults: &mut Vec<String>) {
    if UNSAFE_ALLOWED.contains(&name) {
        return;
    }
    let targets = package["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    for target in targets {
        let kinds = target["kind"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_product = kinds.iter().any(|kind| matches!(kind.as_str(), Some("lib" | "bin")));
        let path = target["src_path"].as_str().unwrap_or_default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if is_product && !text.contains("#![forbid(unsafe_code)]") {
            faults.push(format!(
                "{path} lacks #![forbid(unsafe_code)]: only {UNSAFE_ALLOWED:?} may do without"
            ));
        }
    }
}

fn check_lengths(directory: &Path, faults: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            check_lengths(&path, faults);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = product_lines(&std::fs::read_to_string(&path).unwrap_or_default());
            if lines > FILE_LINES_MAX {
                faults.push(format!(
                    "{} has {lines} lines without its tests, {FILE_LINES_MAX} is the limit: \
                     split it by sub-state",
                    path.display()
                ));
            }
        }
    }
}

/// Lines outside test modules; none for a generated file. Reads the layout of
/// `cargo fmt`: a module ends with a brace as deep as its attribute.
fn product_lines(text: &str) -> usize {
    if text.starts_with("// Generated ") {
        return 0;
    }
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        count += 1;
        if line.trim() != "#[cfg(test)]" {
            continue;
        }
        let attributes =
            std::iter::from_fn(|| lines.next_if(|next| next.trim().starts_with("#["))).count();
        let Some(module) = lines.next_if(|next| next.trim().starts_with("mod ")) else {
            count += attributes;
            continue;
        };
        count -= 1;
        if module.ends_with('{') {
            let end = line.replace("#[cfg(test)]", "}");
            let _ = lines.by_ref().find(|inside| *inside == end);
        }
    }
    count
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

fn short(package: &str) -> &str {
    package.strip_prefix("keyway-").unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_down_and_the_named_ones_within_a_layer_are_right() {
        for (from, on) in [
            ("proxy", "keyway-route"),
            ("worker", "keyway-net"),
            ("route", "keyway-topology"),
            ("metrics", "keyway-base"),
            ("keyway", "keyway-control"),
            ("control", "tokio"),
            ("control", "keyway-coordinator"),
            ("coordinator", "tokio"),
            ("resp", "memchr"),
        ] {
            assert_eq!(edge_fault(from, on), None, "{from} -> {on}");
        }
    }

    #[test]
    fn edges_up_across_and_to_the_harness_are_named() {
        for (from, on) in [
            ("resp", "keyway-proxy"),
            ("net", "keyway-worker"),
            ("topology", "keyway-route"),
            ("proxy", "keyway-store"),
            ("control", "keyway-worker"),
            ("control", "keyway-proxy"),
            ("control", "keyway-store"),
            ("coordinator", "keyway-store"),
            ("worker", "keyway-coordinator"),
            ("proxy", "keyway-net"),
            ("keyway", "keyway-testkit"),
            ("base", "memchr"),
            ("worker", "tokio"),
            ("stranger", "memchr"),
            ("keyway", "keyway-stranger"),
        ] {
            let fault = edge_fault(from, on).unwrap_or_else(|| panic!("{from} -> {on} passed"));
            assert!(fault.contains(from), "{fault}");
        }
    }

    #[test]
    fn test_modules_do_not_count_and_what_is_behind_them_does() {
        let tests = "#[cfg(test)]\nmod tests {\n    fn a() {\n    }\n}\n";
        for (text, lines) in [
            (format!("a\nb\n{tests}"), 2),
            (format!("a\nb\n{tests}c\nd\n"), 4),
            (format!("a\n{tests}b\n{tests}c\n"), 3),
            ("a\n#[cfg(test)]\nmod tests;\nb\n".to_owned(), 2),
            ("a\n#[cfg(test)]\nuse b;\nc\n".to_owned(), 4),
            ("a {\n    #[cfg(test)]\n    mod b {\n    }\n    c\n}\n".to_owned(), 3),
            ("// Generated from x\na\nb\n".to_owned(), 0),
        ] {
            assert_eq!(product_lines(&text), lines, "{text}");
        }
    }
}
