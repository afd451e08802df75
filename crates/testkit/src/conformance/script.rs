//! The language of `cases/*.txt`.
//!
//! ```text
//! == name : needs          a case, and what the target must serve for it
//! SET @a 1 -> +OK          a command and its reply
//! -> :1                    one more reply to the line before
//! GET @a ~> nil            asked again until the reply is right
//! raw "PING\r\n" -> +PONG  bytes as they are
//! raw "" -> closed         the server has ended the connection
//! ```
//! `@a` is a key of this play; all keys of a play share a hash tag and so a
//! shard. `"..."` quotes, with `\r \n \t \" \\ \xHH` inside.

use super::expect::Expect;

/// A named list of steps on one connection.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub name: String,
    pub needs: Vec<String>,
    pub steps: Vec<Step>,
}

/// Something sent and what must come back.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub line: usize,
    pub text: String,
    pub stimulus: Stimulus,
    pub eventually: bool,
    pub expects: Vec<Expect>,
}

impl Step {
    pub(super) fn closes(&self) -> bool {
        self.expects.contains(&Expect::Closed)
    }
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Stimulus {
    Command(Vec<Word>),
    Raw(Vec<u8>),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Key(String),
    Bytes(Vec<u8>),
}

impl Word {
    pub(super) fn bytes(&self, tag: &str) -> Vec<u8> {
        match self {
            Word::Key(name) => format!("{{{tag}}}{name}").into_bytes(),
            Word::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// Reads a file of cases.
///
/// # Panics
/// When a line makes no sense: the files are ours.
pub(super) fn parse(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix("== ") {
            cases.push(header_case(header));
            continue;
        }
        let case = cases.last_mut().unwrap_or_else(|| panic!("line {}: no case yet", index + 1));
        if let Some(expect) = line.strip_prefix("-> ") {
            let step = case.steps.last_mut().expect("a step before a further reply");
            step.expects.push(Expect::parse(expect.trim()));
        } else {
            case.steps.push(step(index + 1, line));
        }
    }
    cases
}

fn header_case(header: &str) -> Case {
    let (name, needs) = header.split_once(" : ").unwrap_or((header, ""));
    Case {
        name: name.trim().to_owned(),
        needs: needs.split_whitespace().map(str::to_owned).collect(),
        steps: Vec::new(),
    }
}

fn step(line: usize, text: &str) -> Step {
    let (eventually, (left, right)) = match text.split_once(" ~> ") {
        Some(parts) => (true, parts),
        None => (
            false,
            text.split_once(" -> ").unwrap_or_else(|| panic!("line {line}: no `->`: {text}")),
        ),
    };
    let mut words = words(left);
    let is_raw = words.first() == Some(&Word::Bytes(b"raw".to_vec()));
    let stimulus = match (is_raw, words.pop()) {
        (true, Some(Word::Bytes(bytes))) if words.len() == 1 => Stimulus::Raw(bytes),
        (false, Some(last)) => {
            words.push(last);
            Stimulus::Command(words)
        }
        _ => panic!("line {line}: nothing to send: {text}"),
    };
    let expects = vec![Expect::parse(right.trim())];
    Step { line, text: text.to_owned(), stimulus, eventually, expects }
}

/// Splits at blanks outside of quotes.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = closing_quote(quoted);
            words.push(Word::Bytes(unescape(&quoted[..end])));
            rest = quoted[end + 1..].trim_start();
            continue;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let word = &rest[..end];
        match word.strip_prefix('@') {
            Some(name) if !name.is_empty() => words.push(Word::Key(name.to_owned())),
            _ => words.push(Word::Bytes(word.as_bytes().to_vec())),
        }
        rest = rest[end..].trim_start();
    }
    words
}

/// Where the quote that ends `text` is.
pub(super) fn closing_quote(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    assert!(at < bytes.len(), "no closing quote: {text}");
    at
}

/// Undoes `\r \n \t \0 \" \\ \xHH`.
pub(super) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&kind, after) = rest.split_first().expect("something after a backslash");
        rest = after;
        match kind {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'0' => bytes.push(0),
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two hexadecimal digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
                rest = &rest[2..];
            }
            other => bytes.push(other),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_has_its_needs_steps_and_further_replies() {
        let text = "# no\n== one : lists keyless\nSET @a \"x \\x00\" -> +OK\nraw \"PING\\r\\nPING\\r\\n\" -> +PONG\n-> +PONG\nGET @a ~> nil\n";
        let cases = parse(text);
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].needs, ["lists", "keyless"]);
        let steps = &cases[0].steps;
        assert_eq!(steps.len(), 3);
        assert_eq!(
            steps[0].stimulus.bytes_for_test("t"),
            b"*3\r\n$3\r\nSET\r\n$4\r\n{t}a\r\n$3\r\nx \0\r\n"
        );
        assert_eq!(steps[1].expects.len(), 2);
        assert!(steps[2].eventually);
    }

    impl Stimulus {
        fn bytes_for_test(&self, tag: &str) -> Vec<u8> {
            match self {
                Stimulus::Raw(bytes) => bytes.clone(),
                Stimulus::Command(words) => {
                    crate::encode(&words.iter().map(|word| word.bytes(tag)).collect::<Vec<_>>())
                }
            }
        }
    }
}
