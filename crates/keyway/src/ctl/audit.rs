//! The audit log and the events of the fleet on the command line.

use super::client::{Client, Unreachable};
use super::show::{one_line, text};
use super::{Ctl, REFUSED, UNREACHABLE, fail, print, tell};
use keyway_fleet::{AuditEntry, AuditHead, AuditLog, Chain, Tampered};
use serde_json::Value;
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Longest line of a file that is read, in bytes. An entry has fewer.
const LINE_LEN_MAX: u64 = 256 << 10;

/// The settings of a question for the audit log.
#[derive(Debug, clap::Args)]
pub struct AuditOf {
    /// Only entries of this time until now, such as 90s, 10m, 1h or 7d.
    #[arg(long, value_name = "TIME", value_parser = ago)]
    since: Option<Duration>,
    /// Check the chain of hashes, and print nothing but the outcome. Status 1 if it is not whole.
    #[arg(long)]
    verify: bool,
    /// Check the lines of an audit_file on this machine in place of the coordinator's entries.
    #[arg(long, value_name = "FILE", requires = "verify")]
    file: Option<PathBuf>,
}

/// The settings of a question for events.
#[derive(Debug, clap::Args)]
pub struct EventsOf {
    /// Only events of this time until now, such as 90s, 10m, 1h or 7d.
    #[arg(long, value_name = "TIME", value_parser = ago)]
    since: Option<Duration>,
    /// Print further events as they happen, until it is interrupted.
    #[arg(long)]
    follow: bool,
}

/// Reads a time until now, such as `7d`.
fn ago(text: &str) -> Result<Duration, String> {
    let what = || "a time is a number with s, m, h or d, such as 1h".to_owned();
    let end = text.len().checked_sub(1).filter(|end| text.is_char_boundary(*end));
    let (number, unit) = text.split_at(end.ok_or_else(what)?);
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let factor = units.into_iter().find(|(name, _)| *name == unit).ok_or_else(what)?.1;
    let number = number.parse::<u32>().map_err(|_| what())?;
    Ok(Duration::from_secs(u64::from(number) * factor))
}

/// Returns the beginning of a time until now, in seconds since 1970.
fn since(ago: Option<Duration>) -> u64 {
    let now = crate::serve::wall_clock().unix_micros / 1_000_000;
    ago.map_or(0, |ago| now.saturating_sub(ago.as_secs()))
}

/// Prints the audit log, or checks it.
pub fn audit(ctl: &Ctl, client: &Client, of: &AuditOf) -> ExitCode {
    if let Some(file) = &of.file {
        return verdict(check_file(file));
    }
    // The chain is checked here, so that no word of the control node has to be believed.
    let path = match of.verify {
        true => "/v1/fleet/audit".to_owned(),
        false => format!("/v1/fleet/audit?since={}", since(of.since)),
    };
    let answer = match client.ask("GET", &path, None) {
        Ok(answer) => answer,
        Err(Unreachable(what)) => return fail(&what, UNREACHABLE),
    };
    match of.verify && answer.status == 200 {
        true => verdict(check(&answer.body).and_then(|whole| match fault(client) {
            None => Ok(whole),
            Some(fault) => Err(format!(
                "the control node cannot read the coordinator, and has the entries from before: \
                 {fault}"
            )),
        })),
        false => tell(ctl, &answer),
    }
}

/// Returns the reason why the control node cannot read the coordinator, if it cannot.
fn fault(client: &Client) -> Option<String> {
    let fleet = client.ask("GET", "/v1/fleet", None).ok().filter(|fleet| fleet.status == 200)?;
    fleet.body["fault"].as_str().map(str::to_owned)
}

fn verdict(checked: Result<String, String>) -> ExitCode {
    match checked {
        Ok(text) => print(&text).map_or_else(|status| status, |()| ExitCode::SUCCESS),
        Err(what) => fail(&what, REFUSED),
    }
}

/// Checks the audit log of an answer. Returns what is proven.
fn check(body: &Value) -> Result<String, String> {
    let head: Option<AuditHead> = serde_json::from_value(body["head"].clone()).ok();
    let all = body["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let entries = all.iter().map(|one| {
        let stored = one["stored"].as_str().unwrap_or_default();
        (one["number"].as_u64().unwrap_or_default(), stored.to_owned())
    });
    let log = AuditLog { head, entries: entries.collect() };
    let count = log.verify().map_err(|tampered| not_whole(&tampered))?;
    let head = head.unwrap_or_default();
    let first = head.anchor.saturating_add(1);
    Ok(match count {
        0 => "the audit log has no entries\n".to_owned(),
        _ => format!(
            "entries {first} to {} are whole\nthe last one has the hash {}\n",
            head.number, head.hash
        ),
    })
}

fn not_whole(tampered: &Tampered) -> String {
    format!("the audit log is not whole: {tampered}")
}

/// Checks the lines of a file: each is the entry behind the one before.
fn check_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let wrong = |error: &dyn std::fmt::Display| format!("{shown}: {error}");
    let mut reader = BufReader::new(File::open(path).map_err(|error| wrong(&error))?);
    let mut chain: Option<Chain> = None;
    let (mut line, mut number, mut first) = (String::new(), 0u64, 0);
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_LEN_MAX).read_line(&mut line);
        if read.map_err(|error| wrong(&error))? == 0 {
            break;
        }
        number += 1;
        let in_line = |what: &dyn std::fmt::Display| format!("{shown}: line {number}: {what}");
        let text = line.strip_suffix('\n').ok_or_else(|| in_line(&"it is not whole"))?;
        let begun = match chain {
            Some(chain) => chain,
            None => {
                let entry = AuditEntry::decode(text.as_bytes());
                let entry = entry.ok_or_else(|| in_line(&"it is no entry of an audit log"))?;
                first = entry.number;
                Chain { number: entry.number.saturating_sub(1), hash: entry.previous }
            }
        };
        let mut next = begun;
        next.follow(text).map_err(|tampered| in_line(&not_whole(&tampered)))?;
        chain = Some(next);
    }
    let Some(Chain { number: last, hash }) = chain else {
        return Err(format!("{shown} is empty: it proves nothing"));
    };
    let begins = match first {
        0 | 1 => "",
        _ => "; earlier ones are not in the file",
    };
    Ok(format!(
        "{shown}: entries {first} to {last} are whole{begins}\nthe last one has the hash {hash}\n"
    ))
}

/// Returns the entries, a line or more for each.
pub fn entries(body: &Value) -> String {
    let mut out = String::new();
    let printed = |value: &Value| keyway_base::printable(text(value).as_bytes()).to_string();
    for one in body["entries"].as_array().into_iter().flatten() {
        if one["by"].is_null() {
            let _ = writeln!(out, "{:6} cannot be read", one["number"]);
            continue;
        }
        let by = Some(printed(&one["by"])).filter(|by| !by.is_empty());
        let mut line = format!(
            "{:6} {} {} {}",
            one["number"],
            text(&one["time"]),
            by.as_deref().unwrap_or("unknown"),
            printed(&one["what"])
        );
        if let (Some(before), Some(after)) = (one["before"].as_u64(), one["after"].as_u64()) {
            let _ = write!(line, ", document {before} to {after}");
        }
        if one["outcome"] == "refused" {
            line += ", refused";
        }
        for (key, word) in [("from", "from"), ("node", "at")] {
            let value = printed(&one[key]);
            if !value.is_empty() {
                let _ = write!(line, ", {word} {value}");
            }
        }
        let why = one_line(&one["why"]);
        if !why.is_empty() {
            let _ = write!(line, ": {why}");
        }
        let _ = writeln!(out, "{line}");
        for change in one["changes"].as_array().into_iter().flatten() {
            let _ = writeln!(out, "       {}", printed(change));
        }
        for (key, words) in [
            ("changes_left_out", "more differences are not in the entry"),
            ("unlisted", "other requests were refused before, without an entry"),
        ] {
            if let Some(count) = one[key].as_u64().filter(|count| *count > 0) {
                let _ = writeln!(out, "       {count} {words}");
            }
        }
    }
    if let Some(tampered) = body["tampered"].as_str() {
        let tampered = keyway_base::printable(tampered.as_bytes());
        let _ = writeln!(out, "THE AUDIT LOG IS NOT WHOLE: {tampered}");
    }
    if out.is_empty() { "no entries\n".to_owned() } else { out }
}

/// Prints events, and with `--follow` goes on.
pub fn events(ctl: &Ctl, client: &Client, of: &EventsOf) -> ExitCode {
    let mut path = format!("/v1/fleet/events?since={}", since(of.since));
    loop {
        let answer = match client.ask_long("GET", &path) {
            Ok(answer) => answer,
            Err(Unreachable(what)) => return fail(&what, UNREACHABLE),
        };
        if !of.follow || answer.status != 200 {
            return tell(ctl, &answer);
        }
        let all = answer.body["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = match ctl.json {
            true => all.iter().map(|event| format!("{event}\n")).collect(),
            false => lines(&answer.body),
        };
        if !all.is_empty()
            && let Err(status) = print(&text)
        {
            return status;
        }
        let latest = answer.body["latest"].as_u64().unwrap_or_default();
        path = format!("/v1/fleet/events?after={latest}&wait=20");
    }
}

/// Returns a line for each event.
pub fn lines(body: &Value) -> String {
    let mut out = String::new();
    let printed = |value: &Value| keyway_base::printable(text(value).as_bytes()).to_string();
    for one in body["events"].as_array().into_iter().flatten() {
        let _ = write!(
            out,
            "{} {:7} {:16} {:22}",
            text(&one["time"]),
            printed(&one["severity"]),
            printed(&one["member"]),
            printed(&one["kind"]),
        );
        for key in ["pool", "server"] {
            if one[key].is_string() {
                let _ = write!(out, " {key}={}", printed(&one[key]));
            }
        }
        let _ = writeln!(out, " {}", one_line(&one["text"]));
    }
    if out.is_empty() { "no events\n".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_until_now_have_units() {
        assert_eq!(ago("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(ago("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in ["", "h", "5", "-1h", "1w", "é", "99999999999d"] {
            assert!(ago(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_empty_file_is_no_proof() {
        let folder = keyway_testkit::TempDir::new();
        let told = check_file(&folder.write("audit.log", "")).expect_err("it is empty");
        assert!(told.contains("is empty"), "{told}");
        assert!(check_file(&folder.write("other.log", "\n")).is_err());
    }

    #[test]
    fn a_reason_of_several_lines_is_one_line_of_the_list() {
        let why = "one\n two\u{1b}\n";
        let entry =
            json!({"number": 3, "by": "ann", "what": "apply", "outcome": "refused", "why": why});
        let shown = entries(&json!({"entries": [entry]}));
        assert!(shown.ends_with(": one; two\\x1b\n"), "{shown}");
        let shown = lines(&json!({"events": [{"kind": "document-refused", "text": why}]}));
        assert!(shown.ends_with(" one; two\\x1b\n"), "{shown}");
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_shown_as_such() {
        let body = serde_json::json!({"entries": [{"number": 3, "by": null}], "tampered": "x"});
        let shown = entries(&body);
        assert!(shown.contains("3 cannot be read") && shown.contains("NOT WHOLE"), "{shown}");
    }
}
