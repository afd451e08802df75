use std::fmt;
use std::path::{Path, PathBuf};

/// One thing wrong with a configuration file, and what to write instead.
///
/// Displays as `path:line: what; hint`. Holds no secret: values of password
/// keys are never quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as the caller named it.
    pub path: String,
    /// Line of the mistake, from 1; 0 if it concerns the whole file.
    pub line: usize,
    /// Column of the mistake in characters, from 1; 0 with line 0.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub hint: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name of a file may hold any characters.
        let path = keyway_base::printable(self.path.as_bytes());
        match self.line {
            0 => write!(f, "{path}: {}; {}", self.what, self.hint),
            line => write!(f, "{path}:{line}: {}; {}", self.what, self.hint),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A mistake in one value, without its place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

/// Mistakes that are kept. A file of another program may have one for each of its bytes.
const KEPT_MAX: usize = 1000;

/// Consequences that are kept. A file may have tens of thousands of pools, each with one.
const CONSEQUENCES_MAX: usize = 100_000;

/// Collects all mistakes in one file.
pub(crate) struct Report<'a> {
    path: &'a str,
    /// The folder to which relative paths refer.
    folder: PathBuf,
    text: &'a str,
    /// The name of the document that the text goes on with, and where that begins.
    document: Option<(&'a str, usize)>,
    line_starts: Vec<usize>,
    /// True if there are more errors than were kept.
    has_more: bool,
    /// Places that are not TOML and were not kept.
    more_syntax: usize,
    syntax: Vec<ConfigError>,
    mistakes: Vec<ConfigError>,
    consequences: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        let after_newlines = text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let line_starts = std::iter::once(0).chain(after_newlines.map(|(at, _)| at + 1)).collect();
        Self {
            path,
            folder: Path::new(path).parent().unwrap_or(Path::new("")).to_owned(),
            text,
            document: None,
            line_starts,
            has_more: false,
            more_syntax: 0,
            syntax: Vec::new(),
            mistakes: Vec::new(),
            consequences: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Makes relative paths refer to the folder of the file. The folder is resolved now, so a later
    /// change of the working directory does not matter.
    pub(crate) fn in_folder_of(mut self, file: &Path) -> Self {
        if let Ok(file) = std::path::absolute(file) {
            self.folder = file.parent().unwrap_or(Path::new("/")).to_owned();
        }
        self
    }

    /// Tells that a document of the control plane begins at byte `at` of the text.
    pub(crate) fn with_document(mut self, name: &'a str, at: usize) -> Self {
        self.document = Some((name, at));
        self
    }

    /// Returns the absolute path of a file that the configuration names.
    pub(crate) fn in_folder(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Reports a place that is not TOML. Of several errors on one line only the first is kept,
    /// because the others follow from it.
    pub(crate) fn syntax(&mut self, at: usize, problem: Problem) {
        let error = self.locate(at, problem);
        match self.syntax.iter_mut().find(|known| known.line == error.line) {
            Some(known) if known.column <= error.column => {}
            Some(known) => *known = error,
            None => self.syntax.push(error),
        }
    }

    /// Tells of places that are not TOML and are not reported each.
    pub(crate) fn more_syntax(&mut self, count: usize) {
        self.more_syntax += count;
    }

    /// Returns whether no further mistake is kept, so that nobody has to explain one.
    pub(crate) fn is_full(&mut self) -> bool {
        let is_full = self.mistakes.len() >= KEPT_MAX;
        self.has_more |= is_full;
        is_full
    }

    /// Reports a key or value that is wrong in itself.
    pub(crate) fn mistake(&mut self, at: usize, problem: Problem) {
        if !self.is_full() {
            let error = self.locate(at, problem);
            self.mistakes.push(error);
        }
    }

    /// Reports that something is missing or does not fit something else. These errors are dropped
    /// if there are syntax errors, which may be their cause.
    pub(crate) fn consequence(&mut self, at: usize, problem: Problem) {
        match self.consequences.len() < CONSEQUENCES_MAX {
            true => {
                let error = self.locate(at, problem);
                self.consequences.push(error);
            }
            false => self.has_more = true,
        }
    }

    /// Reports something suspicious in a file that can be used.
    pub(crate) fn warning(&mut self, at: usize, problem: Problem) {
        let warning = self.locate(at, problem);
        self.warnings.push(warning);
    }

    /// Returns the name of the file, as the caller gave it.
    pub(crate) fn path(&self) -> &'a str {
        self.path
    }

    /// Returns the line that holds byte `at`, from 1.
    pub(crate) fn line_number(&self, at: usize) -> usize {
        self.line_index(at) + 1
    }

    /// Returns the start of the line that holds byte `at`.
    pub(crate) fn line_start(&self, at: usize) -> usize {
        self.line_starts[self.line_index(at)]
    }

    /// Returns words for the line that holds byte `at`, such as `line 7`, or `line 3 of document 1.2`.
    pub(crate) fn line_text_of(&self, at: usize) -> String {
        let line = self.line_number(at);
        match self.document.filter(|(_, begins)| at >= *begins) {
            Some((name, begins)) => {
                format!("line {} of {name}", line + 1 - self.line_number(begins))
            }
            None => format!("line {line}"),
        }
    }

    /// Returns the text of the line that holds byte `at`, without its line end.
    pub(crate) fn line_text(&self, at: usize) -> &'a str {
        let line = self.line_index(at);
        let end = self.line_starts.get(line + 1).map_or(self.text.len(), |next| *next);
        self.text[self.line_starts[line]..end].trim_end_matches(['\r', '\n'])
    }

    /// Returns the warnings if nothing is wrong, else all errors in line order.
    pub(crate) fn finish(mut self) -> Result<Vec<ConfigError>, Vec<ConfigError>> {
        let mut errors = std::mem::take(&mut self.mistakes);
        if self.syntax.is_empty() {
            errors.append(&mut self.consequences);
        } else if self.syntax.iter().any(|error| self.is_header(error.line)) {
            // The keys below a broken header were assigned to the table above it.
            errors.clear();
        } else {
            errors.retain(|error| self.syntax.iter().all(|syntax| syntax.line != error.line));
        }
        if let Some(last) = self.syntax.last_mut() {
            let more = match self.more_syntax {
                0 => String::new(),
                more => format!("{} not shown; ", crate::value::counted(more, "more place")),
            };
            last.hint.push_str(&format!(" ({more}more mistakes may show once this is TOML)"));
        }
        errors.append(&mut self.syntax);
        if errors.is_empty() {
            return Ok(in_line_order(self.warnings));
        }
        let mut errors = in_line_order(errors);
        if let Some(last) = errors.last_mut().filter(|_| self.has_more) {
            last.hint.push_str(" (more mistakes are there, and are not shown)");
        }
        Err(errors)
    }

    fn is_header(&self, line: usize) -> bool {
        self.line_text(self.line_starts[line - 1]).trim_start().starts_with('[')
    }

    fn line_index(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at) - 1
    }

    fn locate(&self, at: usize, problem: Problem) -> ConfigError {
        let line = self.line_index(at);
        let before = self.text.get(self.line_starts[line]..at).unwrap_or_default();
        ConfigError {
            path: self.path.to_owned(),
            line: line + 1,
            column: before.chars().count() + 1,
            what: problem.what,
            hint: problem.hint,
        }
    }
}

fn in_line_order(mut errors: Vec<ConfigError>) -> Vec<ConfigError> {
    errors.sort_by_key(|error| (error.line, error.column));
    errors.dedup();
    errors
}

/// Returns text from a file for an error message, in quotes. Only its first line is shown, because
/// an open string may reach over the next keys and their secrets. Long text is cut. Text that may
/// hold a password (`user:password@host`) is never shown.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains('@') {
        return "the value (not shown: what stands before @ may be a password)".to_owned();
    }
    let line = text.split(['\r', '\n']).next().unwrap_or_default();
    let shown: String = line.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    let cut = line.len() < text.len() || line.chars().nth(SHOWN_CHARS_MAX).is_some();
    format!("\"{}{}\"", shown.replace("\\'", "'"), if cut { "…" } else { "" })
}

/// Longest text shown in messages, in characters: enough for any address, and short enough to keep
/// the hint on the screen.
const SHOWN_CHARS_MAX: usize = 80;

/// Returns `"a"`, `"a" or "b"` or `"a", "b" or "c"`.
pub(crate) fn any_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("\"{word}\"")).collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// Returns the known word that is most similar to `word`, if any is similar enough.
pub(crate) fn nearest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Computing the distance takes time quadratic in the length, and no known word is half this
    // long.
    if word.len() > 64 {
        return None;
    }
    let folded = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    let meant = folded(word);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&meant, &folded(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns text such as "3 servers are listed".
pub(crate) fn listed(what: &str, count: usize) -> String {
    let (plural, are) = if count == 1 { ("", "is") } else { ("s", "are") };
    format!("{count} {what}{plural} {are} listed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_place_fault_and_remedy_on_one_line() {
        let error = ConfigError {
            path: "keyway.toml".into(),
            line: 12,
            column: 1,
            what: "unknown key \"timout\" in [pool.sessions]".into(),
            hint: "did you mean \"timeout\"?".into(),
        };
        assert_eq!(
            error.to_string(),
            "keyway.toml:12: unknown key \"timout\" in [pool.sessions]; did you mean \"timeout\"?"
        );
    }

    #[test]
    fn a_column_counts_characters_not_bytes() {
        let text = "a = 1\nämp = \"x\"\n";
        let mut report = Report::new("f", text);
        report.mistake(text.find('"').unwrap(), Problem::new("w", "h"));
        let errors = report.finish().unwrap_err();
        assert_eq!((errors[0].line, errors[0].column), (2, 7));
    }

    #[test]
    fn a_missing_key_is_not_reported_while_the_syntax_is_broken() {
        let mut report = Report::new("f", "a = \nb = 2\n");
        report.syntax(4, Problem::new("no value", "write one"));
        report.consequence(0, Problem::new("c is missing", "add it"));
        report.mistake(5, Problem::new("b is unknown", "remove it"));
        let lines: Vec<usize> = report.finish().unwrap_err().iter().map(|e| e.line).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn what_may_be_a_password_is_not_quoted() {
        assert!(!quoted("redis://:hunter2@10.0.0.1:6379").contains("hunter2"));
    }

    #[test]
    fn only_close_words_are_suggested() {
        assert_eq!(nearest("timout", ["timeout", "hash"]), Some("timeout"));
        assert_eq!(nearest("connect-timeout", ["connect_timeout"]), Some("connect_timeout"));
        assert_eq!(nearest("fnv1a64", ["fnv1_64", "fnv1a_64"]), Some("fnv1a_64"));
        assert_eq!(nearest("colour", ["timeout", "hash"]), None);
    }
}
