//! Groups of servers on the command line.

use super::show::text;
use serde_json::Value;
use std::fmt::Write;

/// Returns every group with its servers.
pub fn all(body: &Value) -> String {
    let groups = body["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    match groups {
        [] => "no group: the document has no pool with failover\n".to_owned(),
        groups => groups.iter().map(group).collect(),
    }
}

/// Returns the group that has failed over.
pub fn failed_over(body: &Value, pool: &str) -> String {
    let mut groups = body["groups"].as_array().into_iter().flatten();
    groups.find(|group| group["pool"] == pool).map(group).unwrap_or_default()
}

fn group(group: &Value) -> String {
    let mut out = format!("{} {}", text(&group["pool"]), text(&group["state"]));
    if let Some(seconds) = group["state_seconds"].as_u64() {
        let _ = write!(out, " for {seconds} s");
    }
    if group["state"] != "healthy" {
        let _ = write!(out, ": {}", text(&group["says"]));
    }
    out.push('\n');
    match group["primary"].as_str() {
        Some(primary) => {
            let why = group["why"].as_str().unwrap_or_default();
            let _ = writeln!(
                out,
                "  primary {} since {}, epoch {}: {}",
                keyway_base::printable(primary.as_bytes()),
                text(&group["decided"]),
                group["epoch"],
                keyway_base::printable(why.as_bytes())
            );
        }
        None => out.push_str("  no primary is decided\n"),
    }
    for server in group["servers"].as_array().into_iter().flatten() {
        out += &line(server);
    }
    out
}

fn line(server: &Value) -> String {
    let mut out = format!("  {:24} {:8}", text(&server["server"]), text(&server["role"]));
    if let Some(offset) = server["offset"].as_u64() {
        let _ = write!(out, " offset {offset}");
    }
    if let Some(lag) = server["lag_bytes"].as_u64().filter(|_| server["role"] == "replica") {
        let _ = write!(out, ", lacks {lag} bytes");
    }
    if server["role"] == "replica" && server["linked"] == false {
        out += ", not connected to its primary";
    }
    if let Some(seconds) = server["silent_seconds"].as_u64() {
        let _ = write!(out, ", silent for {seconds} s");
    }
    let _ = writeln!(out, ", down for {} of {} observers", server["down"], server["observers"]);
    out
}
