//! TOML, read strictly: what is not known is a mistake, and every mistake has its line.

use crate::error::FileError;
use crate::model::Scaled;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file and what is wrong with it.
pub struct Reader<'t> {
    path: &'t str,
    text: &'t str,
    errors: RefCell<Vec<FileError>>,
}

/// One table of it. A key that cannot be read is noted, and read as left out.
pub struct Table<'r, 't> {
    reader: &'r Reader<'t>,
    header: String,
    at: usize,
    entries: &'r DeTable<'t>,
}

/// How far a suggestion may be from what was typed: a third of its letters.
const DISTANCE_SHARE: usize = 3;

/// The known word that was most likely meant.
pub fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let folded = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    let meant: String = folded(word).chars().take(64).collect();
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&meant, &folded(known)), known))
        .filter(|(distance, known)| *distance <= known.len().max(DISTANCE_SHARE) / DISTANCE_SHARE)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// What to write instead of a word that is none of these.
pub fn instead(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None if known.is_empty() => "there is none to name".to_owned(),
        None => format!("known are {}", known.join(", ")),
    }
}

impl<'t> Reader<'t> {
    pub fn new(path: &'t str, text: &'t str) -> Reader<'t> {
        Reader { path, text, errors: RefCell::default() }
    }

    /// Notes a mistake at a byte of the text.
    pub fn wrong_at(&self, at: usize, what: impl Into<String>, hint: impl Into<String>) {
        let line = self.text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        let (path, what, hint) = (self.path.to_owned(), what.into(), hint.into());
        self.errors.borrow_mut().push(FileError { path, line, what, hint });
    }

    /// All mistakes, in the order of lines.
    pub fn errors(self) -> Vec<FileError> {
        let mut errors = self.errors.into_inner();
        errors.sort_by_key(|error| error.line);
        errors.dedup();
        errors
    }

    /// The whole file.
    pub fn top<'r>(&'r self, entries: &'r DeTable<'t>, known: &[&str]) -> Table<'r, 't> {
        let table = Table { reader: self, header: "the file".to_owned(), at: 0, entries };
        table.check(known);
        table
    }
}

impl<'r, 't> Table<'r, 't> {
    fn check(&self, known: &[&str]) {
        for key in self.entries.keys() {
            let name: &str = key.as_ref();
            if !known.contains(&name) {
                let what = format!("unknown key \"{name}\" in {}", self.header);
                self.reader.wrong_at(key.span().start, what, instead(name, known));
            }
        }
    }

    fn value(&self, key: &str) -> Option<&'r Spanned<DeValue<'t>>> {
        self.entries.iter().find(|(name, _)| name.as_ref() == key).map(|(_, value)| value)
    }

    /// Returns whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Notes that the value of `key`, or the table where it is missing, is wrong.
    pub fn wrong(&self, key: &str, what: impl Into<String>, hint: impl Into<String>) {
        let at = self.value(key).map_or(self.at, |value| value.span().start);
        self.reader.wrong_at(at, what, hint);
    }

    fn not_a(&self, key: &str, wanted: &str) {
        self.wrong(key, format!("{key} in {} is no {wanted}", self.header), example(wanted));
    }

    pub fn text(&self, key: &str) -> Option<String> {
        match self.value(key)?.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            _ => {
                self.not_a(key, "text");
                None
            }
        }
    }

    /// A text that must be there.
    pub fn required(&self, key: &str) -> String {
        if !self.has(key) {
            let what = format!("{} has no {key}", self.header);
            self.wrong(key, what, format!("write {key} = \"...\""));
        }
        self.text(key).unwrap_or_default()
    }

    /// A text or a list of texts.
    pub fn texts(&self, key: &str) -> Option<Vec<String>> {
        let texts = match self.value(key)?.get_ref() {
            DeValue::String(text) => Some(vec![text.to_string()]),
            DeValue::Array(list) => list
                .iter()
                .map(|one| match one.get_ref() {
                    DeValue::String(text) => Some(text.to_string()),
                    _ => None,
                })
                .collect(),
            _ => None,
        };
        if texts.is_none() {
            self.not_a(key, "list of texts");
        }
        texts
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)?.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => {
                self.not_a(key, "flag");
                None
            }
        }
    }

    pub fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let number = integer(self.value(key)?.get_ref()).filter(|number| range.contains(number));
        if number.is_none() {
            self.out_of(key, range.start(), range.end());
        }
        number
    }

    pub fn number(&self, key: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.value(key)?.get_ref();
        let number = match value {
            DeValue::Float(float) => float.as_str().replace('_', "").parse().ok(),
            _ => integer(value).map(|number| number as f64),
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.out_of(key, range.start(), range.end());
        }
        number
    }

    fn out_of(&self, key: &str, from: impl std::fmt::Display, to: impl std::fmt::Display) {
        let what = format!("{key} in {} is no number in its range", self.header);
        self.wrong(key, what, format!("from {from} to {to} is possible"));
    }

    /// A number that may depend on the machine.
    pub fn scaled(&self, key: &str) -> Option<Scaled> {
        self.scaled_of(key, self.value(key)?)
    }

    /// One such number, or a list.
    pub fn scaled_list(&self, key: &str) -> Option<Vec<Scaled>> {
        match self.value(key)?.get_ref() {
            DeValue::Array(list) => list.iter().map(|one| self.scaled_of(key, one)).collect(),
            _ => self.scaled(key).map(|one| vec![one]),
        }
    }

    fn scaled_of(&self, key: &str, value: &'r Spanned<DeValue<'t>>) -> Option<Scaled> {
        const KNOWN: &[&str] = &["usual", "per_core", "per_gib", "least", "most", "full"];
        const NUMBERS: RangeInclusive<u64> = 0..=1_000_000_000;
        match value.get_ref() {
            DeValue::Table(entries) => {
                let (header, at) = (format!("{key} in {}", self.header), value.span().start);
                let table = Table { reader: self.reader, header, at, entries };
                table.check(KNOWN);
                let whole = |name: &str| table.whole(name, NUMBERS);
                let scaled = Scaled {
                    usual: whole("usual"),
                    per_core: whole("per_core"),
                    per_gib: whole("per_gib"),
                    least: whole("least"),
                    most: whole("most"),
                    full: whole("full"),
                };
                if !["usual", "per_core", "per_gib"].iter().any(|name| table.has(name)) {
                    let what = format!("{key} does not say how many there are without --full");
                    self.reader.wrong_at(at, what, "give usual, per_core or per_gib");
                }
                Some(scaled)
            }
            _ => match integer(value.get_ref()).filter(|number| NUMBERS.contains(number)) {
                Some(number) => Some(Scaled::from(number)),
                None => {
                    let what = format!("{key} in {} is no number", self.header);
                    let hint = "as 4, or { per_core = 2, least = 4, full = 16 }";
                    self.reader.wrong_at(value.span().start, what, hint);
                    None
                }
            },
        }
    }

    /// A table within this one.
    pub fn table(&self, key: &str, known: &[&str]) -> Option<Table<'r, 't>> {
        let value = self.value(key)?;
        let DeValue::Table(entries) = value.get_ref() else {
            self.not_a(key, "table");
            return None;
        };
        let table = Table { entries, ..self.within(key, value.span().start) };
        table.check(known);
        Some(table)
    }

    fn within(&self, key: &str, at: usize) -> Table<'r, 't> {
        let header = match self.header.strip_suffix(']') {
            Some(outer) => format!("{outer}.{key}]"),
            None => format!("[{key}]"),
        };
        Table { reader: self.reader, header, at, entries: self.entries }
    }

    /// `[[key]]`, in order.
    pub fn tables(&self, key: &str, known: &[&str]) -> Vec<Table<'r, 't>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Array(list) = value.get_ref() else {
            self.wrong(key, format!("[{key}] is one of several"), format!("write [[{key}]]"));
            return Vec::new();
        };
        let table = |one: &'r Spanned<DeValue<'t>>| match one.get_ref() {
            DeValue::Table(entries) => {
                let (header, at) = (format!("[[{key}]]"), one.span().start);
                let table = Table { reader: self.reader, header, at, entries };
                table.check(known);
                Some(table)
            }
            _ => {
                self.not_a(key, "table");
                None
            }
        };
        list.iter().filter_map(table).collect()
    }

    /// Every key with its text.
    pub fn pairs(&self, key: &str) -> Vec<(String, String)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let DeValue::Table(entries) = value.get_ref() else {
            self.not_a(key, "table");
            return Vec::new();
        };
        let table = Table { entries, ..self.within(key, value.span().start) };
        let pair = |one: &Spanned<Cow<'t, str>>| {
            let name: &str = one.as_ref();
            Some((name.to_owned(), table.text(name)?))
        };
        entries.keys().filter_map(pair).collect()
    }
}

fn example(wanted: &str) -> &'static str {
    match wanted {
        "text" => "write it in quotes",
        "flag" => "true or false",
        "table" => "it has keys of its own",
        _ => "as [\"one\", \"two\"]",
    }
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => {
            u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
        }
        _ => None,
    }
}
