//! A strict reader of the Prometheus text format, version 0.0.4. It panics with the line at the
//! first deviation from the format.

use std::collections::BTreeMap;

/// One `# TYPE` and the samples under it.
#[derive(Debug, Default)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Sample {
    /// Returns the sample in one line, with its value as the bits of an f64.
    pub fn canonical(&self, kind: &str) -> String {
        let labels: Vec<String> =
            self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{kind}|{}|{}|{:016x}", self.name, labels.join(","), self.value.to_bits())
    }
}

pub fn parse(text: &str) -> Vec<Family> {
    assert!(text.ends_with('\n'), "the last line is cut off");
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            assert!(families.iter().all(|family| family.name != name), "again: {line}");
            families.push(Family { name: name.into(), help: help.into(), ..Family::default() });
            continue;
        }
        let family = families.last_mut().expect(line);
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert!(name == family.name && family.kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            family.kind = kind.into();
            continue;
        }
        assert!(!family.kind.is_empty(), "a sample before its type: {line}");
        let sample = parse_sample(line);
        let suffix = sample.name.strip_prefix(&family.name).expect(line);
        let suffixes: &[&str] =
            if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "outside its family: {line}");
        family.samples.push(sample);
    }
    families
}

fn parse_sample(line: &str) -> Sample {
    let name_len = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(name_len);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, behind) = rest.split_once("=\"").expect(line);
            assert!(is_name(label), "{line}");
            let (value, behind) = unescape(behind);
            assert!(labels.insert(label.to_string(), value).is_none(), "{line}");
            rest = behind;
            if let Some(behind) = rest.strip_prefix('}') {
                rest = behind;
                break;
            }
            rest = rest.strip_prefix(',').expect(line);
        }
    }
    let number = rest.strip_prefix(' ').expect(line);
    let value = number.parse().expect(line);
    Sample { name: name.into(), labels, value }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads a quoted value up to its closing quote. Returns the value and the rest.
fn unescape(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some(c @ ('\\' | '"')) => value.push(c),
                other => panic!("no such escape: {other:?} in {text}"),
            },
            c => value.push(c),
        }
    }
    panic!("no closing quote: {text}")
}
