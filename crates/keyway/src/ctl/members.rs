//! The members of a fleet on the command line: a control node answers for all of them, or for some.

use super::client::{Answer, Client};
use super::show::{head, list, one_line, table, text};
use clap::Args;
use serde_json::Value;
use std::fmt::Write;

/// The members that a request is for.
#[derive(Debug, Default, Args)]
pub struct MembersOf {
    /// The members that a control node asks, by their ids with commas between, or `all`.
    #[arg(long, global = true, value_name = "IDS", value_parser = ids)]
    members: Option<String>,
    /// The zone whose members a control node asks.
    #[arg(long, global = true, value_name = "NUMBER")]
    zone: Option<u64>,
}

fn ids(text: &str) -> Result<String, String> {
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
    match text.split(',').all(is_id) {
        true => Ok(text.to_owned()),
        false => Err("write ids with commas between, or all: keyway ctl fleet has them".to_owned()),
    }
}

impl MembersOf {
    /// Returns whether the request is for members whatever process is asked.
    pub fn is_given(&self) -> bool {
        self.members.is_some() || self.zone.is_some()
    }

    /// Returns the path at which a control node answers for members.
    ///
    /// # Errors
    /// Returns that a control node answers this one itself.
    pub fn path(&self, path: &str) -> Result<String, String> {
        let of_process = path.strip_prefix("/v1/").filter(|rest| !rest.starts_with("fleet"));
        let is_passed_on = !matches!(of_process, Some("health" | "ready"));
        let rest = of_process.filter(|_| is_passed_on).ok_or_else(|| {
            "a control node answers this itself: leave out --members and --zone".to_owned()
        })?;
        Ok(self.selecting(format!("/v1/fleet/{rest}")))
    }

    /// Adds the selection to a path of a control node.
    fn selecting(&self, mut path: String) -> String {
        let mut sign = if path.contains('?') { '&' } else { '?' };
        if let Some(members) = &self.members {
            let _ = write!(path, "{sign}members={}", super::encoded(members));
            sign = '&';
        }
        if let Some(zone) = self.zone {
            let _ = write!(path, "{sign}zone={zone}");
        }
        path
    }
}

/// The advice for a change that a control node asks no members for unless they are named.
pub const NAME_THEM: &str = "a control node asks its members for it: name them with --members IDS or \
                             --members all, or name a zone with --zone NUMBER; keyway ctl fleet has \
                             the ids";

/// The advice for a question for the level of the log of members.
pub const ASK_EACH: &str = "the level of the log is not read of several members: ask a process \
                            itself, with --admin HOST:PORT and without --members and --zone; with \
                            a level, as in keyway ctl --members all log-level debug, it is set at \
                            all of them";

/// Returns whether an answer has no address of a pool because no member has the pool.
pub fn lack_pool(client: &Client, pool: &str, answer: &Answer) -> bool {
    if answer.status != 200 || !list(&answer.body["proxies"]).is_empty() {
        return false;
    }
    let Ok(fleet) = client.ask("GET", "/v1/fleet", None) else { return false };
    fleet.status == 200 && !has_pool(&fleet.body, pool)
}

fn has_pool(fleet: &Value, pool: &str) -> bool {
    list(&fleet["members"]).iter().any(|one| list(&one["pools"]).iter().any(|its| its == pool))
}

/// Returns the path that a control node names in place of one that it has not, with the query of
/// that one.
pub fn instead(path: &str, body: &Value) -> Option<String> {
    let named = body["instead"].as_str().filter(|named| named.starts_with("/v1/fleet/"))?;
    let query = path.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
    Some(format!("{named}{query}"))
}

/// Returns whether an answer is that of several members.
pub fn is_of_several(body: &Value) -> bool {
    body["missing"].is_array()
}

/// Returns a line for each member that has not answered.
pub fn missing(body: &Value) -> Vec<String> {
    let line = |one: &Value| format!("{}: {}", text(&one["member"]), one_line(&one["why"]));
    list(&body["missing"]).iter().map(line).collect()
}

/// Returns the sums, and a line for each zone and each member.
pub fn status(body: &Value) -> String {
    let sums = ["members", "draining", "workers", "clients"];
    let rows = sums.map(|name| vec![format!("{name}:"), text(&body[name])]);
    let mut out = table(rows.to_vec());
    let versions = body["versions"].as_object().into_iter().flatten();
    let versions = versions.map(|(version, count)| {
        format!("{} ({count})", keyway_base::printable(version.as_bytes()))
    });
    let _ = writeln!(out, "versions: {}\n", versions.collect::<Vec<_>>().join(", "));
    const OF_ZONE: [&str; 5] = ["zone", "members", "draining", "workers", "clients"];
    out += &columns(&OF_ZONE, &body["zones"]);
    const OF_MEMBER: [&str; 7] =
        ["member", "version", "pid", "uptime_seconds", "draining", "workers", "clients"];
    let _ = write!(out, "\n{}", columns(&OF_MEMBER, &body["each"]));
    out
}

/// Returns a table of the fields of each object of a list.
fn columns(names: &[&str], of: &Value) -> String {
    let mut rows = vec![head(names)];
    let row = |one: &Value| names.iter().map(|name| text(&one[*name])).collect();
    rows.extend(list(of).iter().map(row));
    table(rows)
}

/// Returns the settings of each member, one file after the other.
pub fn configs(body: &Value) -> String {
    let one = |of: &Value| format!("# member {}\n{}", text(&of["member"]), super::show::config(of));
    list(&body["each"]).iter().map(one).collect::<Vec<_>>().join("\n")
}

/// Returns a line for each member that has done it.
pub fn changed(body: &Value) -> String {
    let line = |one: &Value| {
        let words = match (one["message"].as_str(), one["level"].as_str()) {
            (Some(message), _) => keyway_base::printable(message.as_bytes()),
            (None, Some(level)) => keyway_base::printable(level.as_bytes()),
            (None, None) if one["changed"].is_array() => {
                super::show::reloaded(one).trim_end().replace('\n', "; ")
            }
            (None, None) if one["draining"] == true => "draining".to_owned(),
            (None, None) if one["state"].is_string() => format!("upgrade {}", text(&one["state"])),
            (None, None) => "done".to_owned(),
        };
        format!("{}: {words}\n", text(&one["member"]))
    };
    list(&body["each"]).iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selection_is_part_of_the_path() {
        let of = |members: Option<&str>, zone| MembersOf { members: members.map(Into::into), zone };
        let path = |of: &MembersOf, path| of.path(path).unwrap_or_else(|why| why);
        let both = of(Some("a,b"), Some(3));
        assert_eq!(path(&both, "/v1/pools"), "/v1/fleet/pools?members=a%2Cb&zone=3");
        let zone = of(None, Some(3));
        assert_eq!(path(&zone, "/v1/slow-log?limit=5"), "/v1/fleet/slow-log?limit=5&zone=3");
        for itself in ["/v1/fleet", "/v1/fleet/rollout", "/v1/health", "/v1/ready"] {
            assert!(zone.path(itself).is_err(), "{itself}");
        }
        assert!(ids("a,,b").is_err() && ids("").is_err() && ids("a b").is_err());
    }

    #[test]
    fn a_control_node_names_the_path_in_place() {
        let body = json!({"instead": "/v1/fleet/slow-log"});
        let found = instead("/v1/slow-log?limit=5", &body);
        assert_eq!(found.as_deref(), Some("/v1/fleet/slow-log?limit=5"));
        for body in [json!({}), json!({"instead": "http://example.org/"}), json!({"instead": 5})] {
            assert_eq!(instead("/v1/pools", &body), None);
        }
    }

    #[test]
    fn a_pool_is_known_if_a_member_has_it() {
        let fleet = json!({"members": [{"pools": ["a"]}, {"pools": []}, {}]});
        assert!(has_pool(&fleet, "a") && !has_pool(&fleet, "b") && !has_pool(&json!({}), "a"));
    }

    #[test]
    fn each_member_has_a_line() {
        let body = json!({"each": [{"member": "a", "message": "done\u{1b}"},
                                   {"member": "b", "changed": ["pool p"], "warnings": []}],
                          "missing": [{"member": "c", "why": "no answer"}], "failed": 1});
        assert_eq!(changed(&body), "a: done\\x1b\nb: pool p\n");
        assert_eq!(missing(&body), ["c: no answer"]);
        let body = json!({"members": 2, "clients": 5, "versions": {"1": 2}, "each": [],
                          "zones": [{"zone": 1, "members": 2}], "missing": []});
        assert!(status(&body).contains("versions: 1 (2)\n"), "{}", status(&body));
    }
}
