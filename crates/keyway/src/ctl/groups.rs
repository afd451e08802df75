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
        out += &line(server, &group["primary"]);
    }
    out
}

/// Returns the line of a server. `primary` is the server that is decided to be the primary.
fn line(server: &Value, primary: &Value) -> String {
    let (down, observers) = (server["down"].as_u64(), server["observers"].as_u64());
    // What it was when it was last heard of may be wrong by now.
    let is_down = down == observers && observers.is_some_and(|observers| observers > 0);
    let role = if is_down { "down".to_owned() } else { text(&server["role"]) };
    let mut out = format!("  {:24} {role:8}", text(&server["server"]));
    if server["role"] == "primary" && server["server"] != *primary {
        out += if is_down { " was primary," } else { " says that it is the primary," };
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_primary_that_is_down_or_replaced_is_not_shown_as_the_primary() {
        let server = |name: &str, role: &str, down: u64| json!({ "server": name, "role": role, "offset": 7, "down": down, "observers": 3 });
        let shown = |down: u64| {
            let servers = [server("a:1", "primary", down), server("b:1", "primary", 0)];
            let group = json!({
                "pool": "main", "state": "healthy", "primary": "b:1", "decided": "now",
                "epoch": 2, "why": "it lacked the least", "servers": servers
            });
            all(&json!({ "groups": [group] }))
                .lines()
                .skip(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let now = "  b:1                      primary  offset 7, down for 0 of 3 observers";
        let dead =
            "  a:1                      down     was primary, offset 7, down for 3 of 3 observers";
        assert_eq!(shown(3), [dead, now]);
        let other = "  a:1                      primary  says that it is the primary, offset 7, down \
                     for 1 of 3 observers";
        assert_eq!(shown(1), [other, now]);
    }
}
