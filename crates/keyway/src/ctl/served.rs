//! Members after a document was stored: `keyway ctl apply` and `rollback` tell whether they serve by it.

use super::client::{Answer, Client};
use super::show::text;
use serde_json::Value;
use std::fmt::Write;
use std::time::Duration;

/// Time for which members are waited for. Most serve by a document within a tenth of a second.
const WITHIN: Duration = Duration::from_secs(2);

/// Time between two looks at the members.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The members that serve by a version, and those that refuse it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    members: usize,
    serving: usize,
    /// A member and its reason, each.
    refused: Vec<(String, String)>,
}

impl Outcome {
    /// Reads an answer of `/v1/fleet`. Members that are not on the bus do not count.
    fn of(fleet: &Value, version: &str) -> Outcome {
        let mut outcome = Outcome::default();
        for member in fleet["members"].as_array().into_iter().flatten() {
            if member["state"] == "silent" {
                continue;
            }
            outcome.members += 1;
            outcome.serving += usize::from(member["running"] == version);
            let refusal = member["refused"].as_str().and_then(|why| why.strip_prefix(version));
            if let Some(why) = refusal.and_then(|why| why.strip_prefix(": ")) {
                outcome.refused.push((text(&member["id"]), why.to_owned()));
            }
        }
        outcome
    }

    fn is_whole(&self) -> bool {
        self.serving + self.refused.len() == self.members
    }

    /// Returns it for people.
    fn shown(&self) -> String {
        let Outcome { members, serving, refused } = self;
        let mut out = format!("{serving} of {members} members serve by it");
        match self.is_whole() {
            true => out.push('\n'),
            false => out.push_str("; keyway ctl fleet tells about the others\n"),
        }
        for (member, why) in refused {
            let mut lines = why.lines();
            let first = lines.next().unwrap_or_default();
            let _ = writeln!(out, "{member} refuses it: {first}");
            for line in lines {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }
}

/// Waits until members serve by the version of an answer, or refuse it. Returns the lines that tell it,
/// and whether nobody refuses it; `None` if nothing was stored, or nobody is there.
pub fn await_members(client: &Client, answer: &Answer) -> Option<(String, bool)> {
    let version = answer.body["version"].as_str()?;
    let mut left = WITHIN;
    loop {
        let fleet = client.ask("GET", "/v1/fleet", None).ok()?;
        let outcome = Outcome::of(&fleet.body, version);
        if outcome.members == 0 {
            return None;
        }
        if outcome.is_whole() || left.is_zero() {
            return Some((outcome.shown(), outcome.refused.is_empty()));
        }
        std::thread::park_timeout(LOOK_EVERY);
        left = left.saturating_sub(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_serve_by_a_version_or_refuse_it() {
        let member = |id: &str, state: &str, running: &str, refused: Option<&str>| json!({"id": id, "state": state, "running": running, "refused": refused});
        let fleet = json!({"members": [
            member("a", "current", "1.2", None),
            member("b", "refused", "1.1", Some("1.2: pool p: no\npool q: no")),
            member("c", "silent", "1.1", None),
        ]});
        let outcome = Outcome::of(&fleet, "1.2");
        assert!(outcome.is_whole());
        let told = "1 of 2 members serve by it\nb refuses it: pool p: no\n  pool q: no\n";
        assert_eq!(outcome.shown(), told);
        // A refusal of an earlier version tells nothing about this one.
        let outcome = Outcome::of(&fleet, "1.3");
        assert!(!outcome.is_whole() && outcome.refused.is_empty());
        assert!(outcome.shown().starts_with("0 of 2 members serve by it; keyway ctl fleet"));
    }
}
