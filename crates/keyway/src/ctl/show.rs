//! Formats replies of the API for people.

use keyway_control::AWAY;
use serde_json::Value;
use std::fmt::Write;

/// Returns a value without quotes; `-` for null.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        // The name that a client gives itself must not move the cursor.
        Value::String(text) => keyway_base::printable(text.as_bytes()),
        other => other.to_string(),
    }
}

/// Returns the lines of a text, such as reasons, without control characters and empty lines.
pub fn lines_of(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| keyway_base::printable(line.as_bytes())).collect()
}

/// Returns the lines of a value in one line.
pub fn one_line(value: &Value) -> String {
    lines_of(value.as_str().unwrap_or_default()).join("; ")
}

/// Returns a line for each field of an object.
pub fn fields(body: &Value) -> String {
    let all = body.as_object().into_iter().flatten();
    let rows = all.map(|(name, value)| vec![format!("{name}:"), text(value)]);
    table(rows.collect())
}

/// Returns a line that says "ready", and one for each pool with servers that fail or are unknown.
pub fn ready(body: &Value) -> String {
    let lines = ["failing", "unknown"].into_iter().flat_map(|of| list(&body[of])).map(text);
    ["ready".to_owned()].into_iter().chain(lines).map(|line| line + "\n").collect()
}

/// Returns the settings, below a line that names their file.
pub fn config(body: &Value) -> String {
    let from = match body["file"].as_str() {
        Some(_) => text(&body["file"]),
        None => "no file: defaults".to_owned(),
    };
    // The lines are Keyway's own TOML, in which control characters are escaped.
    format!("# {from}\n{}", body["toml"].as_str().unwrap_or_default())
}

/// Returns a line for each pool. Servers in use are up, failing or unknown.
pub fn pools(body: &Value) -> String {
    let names = ["pool", "kind", "servers", "in use", "up", "failing", "unknown"];
    let mut rows = vec![head(&names)];
    for pool in list(&body["pools"]) {
        let is_there = |server: &&Value| server["state"] != AWAY;
        let servers = list(&pool["servers"]).iter().filter(is_there);
        let [mut up, mut failing, mut unknown, mut out] = [0; 4];
        for server in servers {
            match server["state"].as_str().unwrap_or_default() {
                "ejected" | "rejoining" | "quarantined" => out += 1,
                "unknown" => unknown += 1,
                // An outlier serves writes, and a primary without replicas serves.
                "up" | "outlier" | "no-replica" => up += 1,
                _ => failing += 1,
            }
        }
        let in_use = up + failing + unknown;
        let counts = match pool["kind"].as_str() {
            Some("store") => ["-"; 5].map(str::to_owned),
            _ => [in_use + out, in_use, up, failing, unknown].map(|count| count.to_string()),
        };
        rows.push([text(&pool["name"]), text(&pool["kind"])].into_iter().chain(counts).collect());
    }
    table(rows)
}

/// Returns a line for each server.
pub fn servers(body: &Value) -> String {
    const FIELDS: [&str; 8] =
        ["pool", "name", "address", "state", "reason", "since", "links", "in_flight"];
    const ROLE_FIELDS: [&str; 5] = ["role", "of", "slots", "zone", "lag_ms"];
    let servers = list(&body["servers"]);
    let has_role = servers.iter().any(|server| server["role"].is_string());
    let status = ROLE_FIELDS.iter().filter(|_| has_role);
    // Several members may see a server differently.
    let is_mixed = servers.iter().any(|server| server["state"] == "mixed");
    let states = ["states"].into_iter().filter(|_| is_mixed);
    let fields: Vec<&str> = FIELDS.iter().chain(status).copied().chain(states).collect();
    let mut rows = vec![head(&fields)];
    rows.extend(servers.iter().map(|one| fields.iter().map(|name| text(&one[*name])).collect()));
    table(rows)
}

/// Returns a line for each address at which clients find a pool.
pub fn proxies(body: &Value) -> String {
    const FIELDS: [&str; 5] = ["pool", "protocol", "address", "member", "zone"];
    let mut rows = vec![head(&FIELDS)];
    let row = |one: &Value| FIELDS.iter().map(|name| text(&one[*name])).collect();
    rows.extend(list(&body["proxies"]).iter().map(row));
    table(rows)
}

/// Returns a line for each client, and one for those left out.
pub fn connections(body: &Value) -> String {
    const FIELDS: [&str; 8] =
        ["id", "address", "listener", "pool", "user", "name", "since", "worker"];
    let clients = list(&body["clients"]);
    let fields = with_member(&FIELDS, clients);
    let mut rows = vec![head(&fields)];
    rows.extend(clients.iter().map(|one| fields.iter().map(|name| text(&one[*name])).collect()));
    let mut shown = table(rows);
    let total = body["total"].as_u64().unwrap_or_default();
    if total > clients.len() as u64 {
        let _ = writeln!(shown, "({} of {total})", clients.len());
    }
    shown
}

/// Returns a line for each request.
pub fn slow_log(body: &Value) -> String {
    const FIELDS: [&str; 10] = [
        "at",
        "trace",
        "pool",
        "server",
        "queue_us",
        "server_us",
        "receive_us",
        "write_us",
        "total_us",
        "client",
    ];
    let requests = list(&body["requests"]);
    let fields = with_member(&FIELDS, requests);
    let mut rows = vec![head(&fields)];
    rows[0].push("request".to_owned());
    for request in requests {
        let mut row: Vec<String> = fields.iter().map(|name| text(&request[*name])).collect();
        let words: Vec<String> = list(&request["arguments"]).iter().map(text).collect();
        row.push(words.join(" "));
        rows.push(row);
    }
    table(rows)
}

/// Returns the names of columns, that of the member first if objects are of several members.
fn with_member<'n>(names: &[&'n str], of: &[Value]) -> Vec<&'n str> {
    let has_member = of.iter().any(|one| one["member"].is_string());
    ["member"].into_iter().filter(|_| has_member).chain(names.iter().copied()).collect()
}

/// Returns a line for each hot key, and below them one for each key with a large value.
pub fn hot_keys(body: &Value) -> String {
    let mut hot = vec![head(&["pool", "access", "share", "+-", "per second", "key"])];
    let mut big = vec![head(&["pool", "bytes", "command", "in", "at", "key"])];
    for pool in list(&body["pools"]) {
        let name = text(&pool["pool"]);
        for (kind, access) in [("reads", "read"), ("writes", "write")] {
            hot.extend(list(&pool[kind]["keys"]).iter().map(|it| {
                let share = [percent(&it["share"]), percent(&it["share_error"])];
                let rate = format!("{:.1}", it["rate"].as_f64().unwrap_or_default());
                let [share, error] = share;
                vec![name.clone(), access.to_owned(), share, error, rate, text(&it["key"])]
            }));
        }
        big.extend(list(&pool["big"]).iter().map(|it| {
            let fields = ["bytes", "command", "direction", "at", "key"];
            [name.clone()].into_iter().chain(fields.map(|field| text(&it[field]))).collect()
        }));
    }
    let none = |rows: &[Vec<String>], setting: &str, what: &str| match body[setting].as_u64() {
        Some(0) => format!("({setting} is 0: nothing is looked for)\n"),
        _ if rows.len() == 1 => format!("({what})\n"),
        _ => String::new(),
    };
    let no_hot = none(&hot, "hot_keys_every", "no key stands out");
    let no_big = none(&big, "big_values_from", "no value was that large in the last hour");
    format!("{}{no_hot}\n{}{no_big}", table(hot), table(big))
}

fn percent(share: &Value) -> String {
    format!("{:.2}%", share.as_f64().unwrap_or_default() * 100.0)
}

/// Returns what a reload has changed.
pub fn reloaded(body: &Value) -> String {
    let lines = |name: &str, before: &str| -> String {
        list(&body[name]).iter().map(|line| format!("{before}{}\n", text(line))).collect()
    };
    let (changed, warnings) = (lines("changed", ""), lines("warnings", "warning: "));
    if changed.is_empty() { format!("nothing changed\n{warnings}") } else { changed + &warnings }
}

/// Returns the items of an array; none if it is none.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns the first row of a table.
pub fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Formats rows with aligned columns.
pub fn table(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let len = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |it| it.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().map(|row| len(row, at)).max().unwrap_or(0)).collect();
    let mut shown = String::new();
    for row in &rows {
        let fields: Vec<String> =
            row.iter().zip(&widths).map(|(field, &width)| format!("{field:width$}")).collect();
        let _ = writeln!(shown, "{}", fields.join("  ").trim_end());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_is_a_line_and_no_name_moves_the_cursor() {
        let body = json!({"servers": [
            {"pool": "p", "name": "a\u{1b}[2J", "address": "10.0.0.1:1", "state": "up",
             "reason": null, "since": "2026-01-01T00:00:00Z", "links": 1, "in_flight": 0}
        ]});
        let shown = servers(&body);
        let lines: Vec<Vec<&str>> = shown.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0].len(), 8, "no roles where there are none");
        assert_eq!(lines[1][..5], ["p", "a\\x1b[2J", "10.0.0.1:1", "up", "-"]);
    }

    #[test]
    fn keys_that_stand_out_are_lines_and_their_absence_is_told() {
        let key = json!({"key": "a\\x1b b", "share": 0.25, "share_error": 0.015, "rate": 1234.56});
        let big = json!({"key": "v", "bytes": 70000, "command": "set", "direction": "request",
                         "at": "2026-01-01T00:00:00Z"});
        let empty = json!({"rate": 0.0, "keys": []});
        let pool = json!({"pool": "p", "reads": {"rate": 5.0, "keys": [key]}, "writes": empty,
                          "big": [big]});
        let body = json!({"hot_keys_every": 100, "big_values_from": 65536, "pools": [pool]});
        let shown = hot_keys(&body);
        assert!(shown.contains("p     read    25.00%  1.50%  1234.6      a\\x1b b\n"), "{shown}");
        assert!(
            shown.contains("p     70000  set      request  2026-01-01T00:00:00Z  v\n"),
            "{shown}"
        );
        let shown = hot_keys(&json!({"hot_keys_every": 0, "big_values_from": 65536, "pools": []}));
        assert!(shown.contains("(hot_keys_every is 0: nothing is looked for)"), "{shown}");
        assert!(shown.contains("(no value was that large in the last hour)"), "{shown}");
    }

    #[test]
    fn pools_count_the_servers_in_use() {
        let server = |state: &str| json!({"state": state});
        let body = json!({"pools": [
            {"name": "p", "kind": "sharded", "servers": [server("up"), server("ejected"),
             server("circuit-open"), server("failing"), server("unknown"), server("away")]},
            {"name": "s", "kind": "store", "servers": []}
        ]});
        let shown = pools(&body);
        assert!(shown.contains("p     sharded  5        4       1   2        1\n"), "{shown}");
        assert!(shown.contains("s     store    -        -       -   -        -\n"), "{shown}");
    }
}
