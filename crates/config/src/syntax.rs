//! Explains syntax errors of TOML in plain words.

use crate::error::{Problem, Report};
use std::collections::BTreeSet;
use toml::de::Error;

/// Lines that are not TOML and are reported. A file of another program has more.
const LINES_MAX: usize = 20;

/// Reports each syntax error that is not merely the result of another. Of several errors on one line
/// the first is reported. Takes time in proportion to the text and the errors, of which each byte may
/// have one.
pub(crate) fn report_all(text: &str, errors: &[Error], report: &mut Report<'_>) {
    let mut places: Vec<(usize, usize, &str)> = errors
        .iter()
        .map(|error| {
            let span = error.span().unwrap_or(0..0);
            (span.start.min(text.len()), span.end.min(text.len()), error.message())
        })
        .collect();
    places.sort_unstable();
    let headers = if places.is_empty() { Vec::new() } else { headers(text) };
    let mut repeated_headers = BTreeSet::new();
    let mut lines = 0;
    let mut last_line = None;
    for (nth, (start, end, message)) in places.iter().copied().enumerate() {
        let line_start = report.line_start(start);
        if message == "duplicate key" {
            let header = header_above(&headers, start);
            if header == Some(line_start) {
                repeated_headers.insert(line_start);
            } else if header.is_some_and(|header| repeated_headers.contains(&header)) {
                // The table is there twice, so its keys are too.
                continue;
            }
        }
        if last_line == Some(line_start) {
            continue;
        }
        if lines == LINES_MAX {
            report.more_syntax(places.len() - nth);
            return;
        }
        (lines, last_line) = (lines + 1, Some(line_start));
        let rest = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let found = text.get(start..end).unwrap_or_default();
        let line = report.line_text(start);
        let problem =
            of_line(line.trim(), rest, found).unwrap_or_else(|| explain(message, found, line));
        report.syntax(start, problem);
    }
}

/// Returns the start of each line that begins with `[`.
fn headers(text: &str) -> Vec<usize> {
    let mut line_start = 0;
    let mut headers = Vec::new();
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            headers.push(line_start);
        }
        line_start += line.len();
    }
    headers
}

/// Returns the last of the headers that is at or above the line of `at`.
fn header_above(headers: &[usize], at: usize) -> Option<usize> {
    let above = headers.partition_point(|header| *header <= at);
    headers.get(above.checked_sub(1)?).copied()
}

/// Explains an error. `found` is the text at which the parser points, `line` the line that holds
/// it.
fn explain(message: &str, found: &str, line: &str) -> Problem {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let trimmed = line.trim();
    let key = trimmed.split('=').next().unwrap_or_default().trim();
    match what {
        "duplicate key" if trimmed.starts_with('[') => Problem::new(
            format!("{trimmed} is there twice"),
            "put all its keys under one header, or rename one",
        ),
        "duplicate key" => {
            Problem::new(format!("{found} is given twice in one table"), "keep one of the two")
        }
        "string values must be quoted" | "invalid boolean" => unquoted(found, key),
        "invalid unquoted key" if found == ":" => {
            Problem::new("a key is followed by = in TOML, not by :", "write KEY = VALUE")
        }
        "key with no value" if trimmed.contains(':') && !trimmed.contains('=') => {
            Problem::new("a key is followed by = in TOML, not by :", "write KEY = VALUE")
        }
        "key with no value" if trimmed.contains(' ') && !trimmed.contains('=') => Problem::new(
            "this line is neither KEY = VALUE nor a [HEADER]",
            "remove it, or put # before it as a comment",
        ),
        "key with no value" => Problem::new("a key stands without a value", "write KEY = VALUE"),
        "invalid basic string" | "invalid literal string" if expected.len() <= 3 => {
            Problem::new("a string is not closed", format!("end it with {expected}"))
        }
        "unclosed array" => Problem::new("a list is not closed", "end it with ]"),
        "unclosed inline table" => Problem::new("a table is not closed", "end it with }"),
        "unclosed table" | "unclosed array table" => Problem::new(
            format!("the header {} is not closed", shown_header(trimmed)),
            "write [NAME], or [[listener]] for listeners",
        ),
        what if what.starts_with("missing comma") => {
            Problem::new("a comma is missing", "put a comma after each element but the last")
        }
        "unexpected key or value" => Problem::new(
            "something follows where the line should end",
            "put every key on a line of its own",
        ),
        "unexpected leading zero" => {
            Problem::new("a number starts with 0", "remove the zero, or put the value in quotes")
        }
        what if expected.is_empty() => {
            Problem::new(what, "write KEY = VALUE lines as in docs/config.md")
        }
        "missing escaped value" => Problem::new(
            "a backslash in a string is not followed by a known letter",
            "write \\\\ for a backslash",
        ),
        what => Problem::new(what, format!("expected here: {expected}")),
    }
}

/// Returns the mistake that the line shows by itself, whatever the parser reports first. `rest` is
/// the line from the error on.
fn of_line(line: &str, rest: &str, found: &str) -> Option<Problem> {
    const MARKS: [&str; 3] = ["<<<<<<<", "=======", ">>>>>>>"];
    const CURLY: [char; 4] = ['\u{201c}', '\u{201d}', '\u{201e}', '\u{201f}'];
    if MARKS.iter().any(|mark| line.starts_with(mark)) {
        return Some(Problem::new(
            "this line is a mark of a merge conflict",
            "keep one of the two versions, and remove the three marks",
        ));
    }
    let begins = |text: &str| text.starts_with("//") || text.starts_with(';');
    if let Some(comment) = [line, rest.trim_start()].into_iter().find(|text| begins(text)) {
        let mark = if comment.starts_with('/') { "//" } else { ";" };
        return Some(Problem::new(
            format!("a comment begins with # in TOML, not with \"{mark}\""),
            "write # in place of it",
        ));
    }
    if line.contains(CURLY) && !line.starts_with('#') {
        let key = line.split('=').next().unwrap_or_default();
        let is_secret = key.contains("pass") || line.contains('@');
        let straight = line.replace(CURLY, "\"");
        let hint = match is_secret || straight.chars().count() > 80 {
            true => "write straight quotes: \"".to_owned(),
            false => format!("write {straight}"),
        };
        return Some(Problem::new("the quotes are curly, and TOML has straight ones", hint));
    }
    if let Some(name) = name_with_blank(line) {
        let hint = match name.split_once(' ') {
            Some(("pool", rest)) => format!("did you mean [pool.{}]?", rest.replace(' ', "-")),
            _ => format!("write a hyphen in place of it: [{}]", name.replace(' ', "-")),
        };
        return Some(Problem::new(format!("there is a blank in the name of [{name}]"), hint));
    }
    if line.contains("==") && found.starts_with('=') {
        return Some(Problem::new("there are two = in place of one", "write KEY = VALUE"));
    }
    None
}

/// Returns the name between the brackets of a header, if it has a blank and no quotes.
fn name_with_blank(line: &str) -> Option<String> {
    let inner = line.strip_prefix('[')?.split(']').next()?.trim_start_matches('[').trim();
    let is_plain = |c: char| c.is_alphanumeric() || "_-. ".contains(c);
    let is_name = inner.contains(' ') && inner.len() <= 60 && inner.chars().all(is_plain);
    let words: Vec<&str> = inner.split_whitespace().collect();
    is_name.then(|| words.join(" "))
}

fn shown_header(line: &str) -> String {
    line.chars().take(60).collect()
}

/// Explains a value that would be a string if it had quotes.
fn unquoted(found: &str, key: &str) -> Problem {
    if found.is_empty() {
        return Problem::new("a key stands without a value", "write KEY = VALUE");
    }
    if key.contains("pass") || found.contains('@') {
        let key: String = key.chars().take(60).collect();
        return Problem::new(
            format!("the value of {key} is not in quotes"),
            "put it in double quotes",
        );
    }
    let bool_like = ["yes", "no", "on", "off", "true", "false"];
    if bool_like.iter().any(|word| word.eq_ignore_ascii_case(found)) {
        let what = format!("{found} is not a value of TOML");
        return Problem::new(what, "write true or false, or a word in double quotes");
    }
    let shown: String = found.chars().take_while(|c| !c.is_control()).take(60).collect();
    let hint = if shown.len() == found.len() && !found.contains(['"', '\\']) {
        format!("write \"{found}\"")
    } else {
        "put it in double quotes".to_owned()
    };
    Problem::new(format!("{shown} is not in quotes"), hint)
}
