//! The fleet on the command line.

use super::show::text;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// Returns the order to store a file as the next document.
///
/// # Errors
/// Returns the reason why the file cannot be read.
pub fn order(file: &Path, base: Option<u64>, dry_run: bool) -> Result<Value, String> {
    let document =
        keyway_config::read_file(file).map_err(|why| format!("{}: {why}", file.display()))?;
    Ok(json!({"base": base, "document": document, "dry_run": dry_run}))
}

/// Returns the leader, and a line for each member.
pub fn fleet(body: &Value) -> String {
    let leader = match body["leader"].as_object() {
        Some(leader) => format!("{} in epoch {}", text(&leader["node"]), leader["epoch"]),
        None => "nobody".to_owned(),
    };
    let mut out = format!(
        "cluster {}, asked {}; leader: {leader}; document revision {}\n",
        text(&body["cluster"]),
        text(&body["node"]),
        body["revision"]
    );
    if let Some(fault) = body["fault"].as_str() {
        let _ = writeln!(out, "coordinator: {}", keyway_base::printable(fault.as_bytes()));
    }
    for member in body["members"].as_array().into_iter().flatten() {
        let running = member["running"].as_str().unwrap_or("no document");
        let mut line = format!(
            "{:20} {:8} {:12} {}",
            text(&member["id"]),
            text(&member["state"]),
            running,
            text(&member["version"])
        );
        for (key, word) in [("silent_seconds", "silent"), ("behind_seconds", "behind")] {
            if let Some(seconds) = member[key].as_u64() {
                let _ = write!(line, ", {word} for {seconds} s");
            }
        }
        if let Some(why) = member["refused"].as_str() {
            let _ = write!(line, ", refused {}", keyway_base::printable(why.as_bytes()));
        }
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Returns a line for each document, or one document.
pub fn documents(body: &Value, revision: Option<u64>) -> String {
    let all = body["documents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = String::new();
    for one in all {
        match revision {
            Some(wanted) if one["revision"].as_u64() == Some(wanted) => {
                return one["document"].as_str().unwrap_or_default().to_owned();
            }
            Some(_) => {}
            None => {
                let len = one["document"].as_str().map_or(0, str::len);
                let (stored, by) = (text(&one["stored"]), text(&one["by"]));
                let _ = writeln!(out, "{:6} {stored} {len} bytes by {by}", one["revision"]);
            }
        }
    }
    match revision {
        Some(wanted) => format!("revision {wanted} is not kept\n"),
        None => out,
    }
}

/// Returns what has changed, and the version.
pub fn applied(body: &Value) -> String {
    let mut out = String::new();
    for change in body["changes"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "{}", text(change));
    }
    let _ = match body["version"].as_str() {
        Some(version) => writeln!(out, "stored and published as {version}"),
        None => writeln!(
            out,
            "nothing was stored; the current revision is {base}: apply with --base {base}",
            base = body["base"]
        ),
    };
    out
}
