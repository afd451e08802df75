//! The fleet on the command line.

use super::show::{lines_of, one_line, text};
use crate::control_node::changes;
use keyway_fleet::Document;
use keyway_fleet::limits::{WATCH_MAX, WATCH_MIN};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings of an order to store a document.
#[derive(Clone, Copy, Debug)]
pub struct Storing {
    pub base: Option<u64>,
    pub dry_run: bool,
    /// The share of the members that get it first, in percent.
    pub share: Option<u8>,
    /// The time for which these are watched.
    pub watch: Option<Duration>,
}

impl Storing {
    fn order(&self) -> Value {
        let rollout = self.share.map(|percent| {
            json!({"percent": percent, "watch_seconds": self.watch.map(|watch| watch.as_secs())})
        });
        json!({"base": self.base, "dry_run": self.dry_run, "rollout": rollout})
    }

    /// Returns the order to store a file as the next document.
    ///
    /// # Errors
    /// Returns the reason why the file cannot be read, or that it is too long.
    pub fn of_file(&self, file: &Path) -> Result<Value, String> {
        let mut order = self.order();
        let text = read(file)?;
        // A longer one would not be read to its end, and no answer would come.
        if let Some(what) = Document::too_long(text.len()) {
            return Err(format!("{}: {what}", file.display()));
        }
        order["document"] = text.into();
        Ok(order)
    }

    /// Returns the order to store the document of an earlier revision again.
    pub fn of_revision(&self, revision: u64) -> Value {
        let mut order = self.order();
        order["revision"] = revision.into();
        order
    }
}

fn read(file: &Path) -> Result<String, String> {
    keyway_config::read_file(file).map_err(|why| format!("{}: {why}", file.display()))
}

/// Reads a share, such as `10%`.
pub fn share(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<u8>().ok();
    let is_share = |percent: &u8| (1..=99).contains(percent);
    number.filter(is_share).ok_or_else(|| "a share is 1% to 99%".to_owned())
}

/// Reads a time, such as `90s`.
pub fn watch(text: &str) -> Result<Duration, String> {
    let what = || "a time is a number with s, m or h, from 1s to 24h".to_owned();
    let end = text.len().checked_sub(1).filter(|end| text.is_char_boundary(*end));
    let (number, unit) = text.split_at(end.ok_or_else(what)?);
    let factor = [("s", 1), ("m", 60), ("h", 3600)].into_iter().find(|(name, _)| *name == unit);
    let seconds =
        factor.zip(number.parse::<u64>().ok()).map(|((_, factor), n)| n.saturating_mul(factor));
    let watch = seconds.map(Duration::from_secs).ok_or_else(what)?;
    (WATCH_MIN..=WATCH_MAX).contains(&watch).then_some(watch).ok_or_else(what)
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
    if let Some(revision) = body["rollout"].as_u64() {
        let _ = writeln!(out, "document {revision} is rolled out: see keyway ctl rollout");
    }
    if body["fault"].is_string() {
        let _ = writeln!(out, "coordinator: {}", one_line(&body["fault"]));
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
        if member["in_share"] == true {
            line += ", of the share";
        }
        let reasons = lines_of(member["refused"].as_str().unwrap_or_default());
        match &reasons[..] {
            [] => {}
            [reason] => line += &format!(", refused {reason}"),
            [first, further @ ..] => {
                line += &format!(", refused {first}");
                further.iter().for_each(|reason| line += &format!("\n    {reason}"));
            }
        }
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Returns a line for each document, or one document.
///
/// # Errors
/// Returns that the revision is not kept.
pub fn documents(body: &Value, revision: Option<u64>) -> Result<String, String> {
    match revision {
        Some(wanted) => Ok(of_revision(body, wanted)?.to_owned()),
        None => Ok(all(body).map(|one| line(one) + "\n").collect()),
    }
}

fn all(body: &Value) -> impl Iterator<Item = &Value> {
    body["documents"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn line(one: &Value) -> String {
    let len = one["document"].as_str().map_or(0, str::len);
    let (stored, by) = (text(&one["stored"]), text(&one["by"]));
    let revision = one["revision"].as_u64().unwrap_or_default();
    format!("{revision:6} {stored} {len} bytes by {by}")
}

/// Returns a document that is kept. Revision 0 is empty.
fn of_revision(body: &Value, revision: u64) -> Result<&str, String> {
    let found = all(body).find(|one| one["revision"].as_u64() == Some(revision));
    match (found.and_then(|one| one["document"].as_str()), revision) {
        (Some(document), _) => Ok(document),
        (None, 0) => Ok(""),
        (None, _) => {
            Err(format!("revision {revision} is not kept: keyway ctl history tells which"))
        }
    }
}

/// Returns every document with its changes, the latest first.
pub fn history(body: &Value) -> String {
    let mut out = String::new();
    for (at, one) in all(body).enumerate() {
        let _ = writeln!(out, "{}", line(one));
        let document = one["document"].as_str().unwrap_or_default();
        let is_first = one["revision"].as_u64() == Some(1);
        match (all(body).nth(at + 1), is_first) {
            (Some(before), _) => {
                let before = before["document"].as_str().unwrap_or_default();
                difference(before, document, &mut out);
            }
            (None, true) => difference("", document, &mut out),
            (None, false) => {}
        }
    }
    out
}

fn difference(old: &str, new: &str, out: &mut String) {
    // A document that is kept was right when it was stored, by a version that may be another one.
    let lines = changes(old, new).unwrap_or_else(|errors| errors);
    for line in &lines {
        let _ = writeln!(out, "       {}", keyway_base::printable(line.as_bytes()));
    }
    if lines.is_empty() {
        out.push_str("       nothing differs\n");
    }
}

/// One side of a difference: a revision, or a file.
#[derive(Clone, Debug)]
pub enum Side {
    Revision(u64),
    File(PathBuf),
}

impl std::str::FromStr for Side {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Side, Self::Err> {
        Ok(text.parse().map_or_else(|_| Side::File(text.into()), Side::Revision))
    }
}

impl Side {
    fn read(&self, body: &Value) -> Result<String, String> {
        match self {
            Side::Revision(revision) => of_revision(body, *revision).map(str::to_owned),
            Side::File(file) => read(file),
        }
    }
}

/// Returns the differences between two documents. Without a second one it is the latest one, and
/// without a first one it is the one before that. A file alone is the new side.
///
/// # Errors
/// Returns what cannot be read.
pub fn diff(body: &Value, from: Option<&Side>, to: Option<&Side>) -> Result<String, String> {
    let nth = |nth: usize| {
        let revision = all(body).nth(nth).and_then(|one| one["revision"].as_u64());
        Side::Revision(revision.unwrap_or_default())
    };
    let (from, to) = match (from, to) {
        (Some(from), Some(to)) => (from.clone(), to.clone()),
        (Some(file @ Side::File(_)), None) => (nth(0), file.clone()),
        (Some(from), None) => (from.clone(), nth(0)),
        (None, _) => (nth(1), nth(0)),
    };
    let mut out = String::new();
    for line in changes(&from.read(body)?, &to.read(body)?).map_err(|errors| errors.join("\n"))? {
        let _ = writeln!(out, "{}", keyway_base::printable(line.as_bytes()));
    }
    Ok(if out.is_empty() { "nothing differs\n".to_owned() } else { out })
}

/// Returns the rollout, and the sums of its share and of the rest.
pub fn rollout(body: &Value) -> String {
    let one = &body["rollout"];
    if one.is_null() {
        return "there was no rollout\n".to_owned();
    }
    let printed = |value: &Value| keyway_base::printable(text(value).as_bytes()).to_string();
    let mut out = format!(
        "document {} over {}: {}, {} % of the members ({}), begun {} by {}\n",
        one["revision"],
        one["base"],
        text(&one["phase"]),
        one["percent"],
        one["chosen"],
        text(&one["started"]),
        printed(&one["by"]),
    );
    if let Some(end) = one["end"].as_u64() {
        let _ = writeln!(
            out,
            "all members get document {end}: keyway ctl fleet tells who serves by it"
        );
    }
    if let Some(watched) = one["watched_seconds"].as_u64() {
        let _ = writeln!(out, "watched for {watched} s of {} s", one["watch_seconds"]);
    }
    for line in lines_of(one["says"].as_str().unwrap_or_default()) {
        let _ = writeln!(out, "{line}");
    }
    for (name, of) in [("share", &one["share"]), ("rest", &one["rest"])] {
        if of["members"].as_u64().is_some_and(|members| members > 0) {
            let _ = writeln!(
                out,
                "{name:6} {} of {} members serve by it, {} requests, {} errors, p99 {:.3} ms",
                of["serving"],
                of["members"],
                of["requests"],
                of["errors"],
                of["p99_ms"].as_f64().unwrap_or_default(),
            );
        }
    }
    out
}

/// Returns what has changed, and the version.
pub fn applied(body: &Value, is_rollout: bool) -> String {
    let mut out = String::new();
    for change in body["changes"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "{}", text(change));
    }
    let _ = match body["version"].as_str() {
        Some(version) if is_rollout => {
            writeln!(out, "stored as {version}, for a share first: see keyway ctl rollout")
        }
        Some(version) => writeln!(out, "stored and published as {version}"),
        None => writeln!(
            out,
            "nothing was stored; the current revision is {base}: apply with --base {base}",
            base = body["base"]
        ),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_times_have_units_and_bounds() {
        assert_eq!(share("10%"), Ok(10));
        assert_eq!(share("99"), Ok(99));
        assert!(["0%", "100%", "", "%", "-1", "ten"].iter().all(|text| share(text).is_err()));
        assert_eq!(watch("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(watch("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(watch("24h"), Ok(Duration::from_secs(86400)));
        for text in ["", "s", "0s", "25h", "5", "5é", "99999999999999999999s", "1d"] {
            assert!(watch(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_not_sent() {
        let folder = keyway_testkit::TempDir::new();
        let storing = Storing { base: Some(0), dry_run: true, share: None, watch: None };
        let longest = folder.write("longest.toml", "#".repeat(262_144));
        assert!(storing.of_file(&longest).is_ok());
        let longer = folder.write("longer.toml", "#".repeat(262_145));
        let told = storing.of_file(&longer).expect_err("it is too long");
        assert!(told.contains("has 262145 bytes, and may have 262144"), "{told}");
    }

    #[test]
    fn each_reason_of_a_refusal_has_a_line() {
        let member = |why: &str| {
            let one = json!({"id": "z1.proxy.0.1", "state": "refusing", "refused": why});
            fleet(&json!({"members": [one], "fault": "a\nb"}))
        };
        let told = member("3.7: a.toml:1: one\na.toml:2: two\u{1b}\n");
        assert!(told.contains(", refused 3.7: a.toml:1: one\n    a.toml:2: two\\x1b\n"), "{told}");
        assert!(told.contains("coordinator: a; b\n"), "{told}");
        assert!(member("one").ends_with(", refused one\n"));
        let told = rollout(&json!({"rollout": {"says": "it goes back: x\ny"}}));
        assert!(told.contains("it goes back: x\ny\n"), "{told}");
    }

    fn kept() -> Value {
        let of = |servers: &str| format!("[pool.a]\nkind = \"sharded\"\nservers = [{servers}]\n");
        let one = |revision: u64, document: String| json!({"revision": revision, "stored": "then", "by": "me", "document": document});
        let (first, second) = (of("\"127.0.0.1:7001:1\""), of("\"127.0.0.1:7002:1\""));
        json!({"documents": [one(3, first.clone()), one(2, second), one(1, first)]})
    }

    #[test]
    fn a_difference_is_between_what_is_named_or_the_latest_two() {
        let body = kept();
        let all = [(None, None), (Some(2), None), (Some(2), Some(3)), (Some(2), Some(1))];
        for (from, to) in all.map(|(a, b)| (a.map(Side::Revision), b.map(Side::Revision))) {
            let text = diff(&body, from.as_ref(), to.as_ref()).expect("they are kept");
            assert!(text.contains("127.0.0.1:7001"), "{text}");
        }
        let same = diff(&body, Some(&Side::Revision(1)), None);
        assert_eq!(same.as_deref(), Ok("nothing differs\n"));
        let from_nothing = diff(&body, Some(&Side::Revision(0)), None).expect("it is empty");
        assert!(from_nothing.contains("added"), "{from_nothing}");
        assert!(diff(&body, Some(&Side::Revision(7)), None).is_err());
    }

    #[test]
    fn the_history_tells_the_changes_of_each_document() {
        let text = history(&kept());
        assert_eq!(text.matches("by me").count(), 3, "{text}");
        assert!(text.contains("pool a: added"), "{text}");
    }

    /// A rollout over no document goes back to none.
    #[test]
    fn a_document_without_pools_removes_those_before() {
        let mut body = kept();
        body["documents"][0]["document"] = "".into();
        let text = diff(&body, None, None).expect("they are kept");
        assert_eq!(text, "pool a: removed\n");
    }
}
