//! Files to which results are written. An existing file is replaced only if it holds an earlier
//! result: a name typed in the wrong place must not destroy a configuration.

use anyhow::{Result, bail};
use keyway_report::ReadError;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The first line of tables written as Markdown.
pub const MARKDOWN_MARK: &str = "<!-- written by keyway bench -->\n";

/// The form of a written result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON, of `bench load` or of a whole benchmark.
    Json,
    /// A page with plots.
    Html,
    /// Tables.
    Markdown,
    /// A line for each round.
    Csv,
}

/// Length of a file's head that is enough to tell its form, in bytes.
const HEAD_LEN: u64 = 512;

impl Form {
    fn flag(self) -> &'static str {
        match self {
            Form::Json => "--json",
            Form::Html => "--html",
            Form::Markdown => "--markdown",
            Form::Csv => "--csv",
        }
    }

    /// Returns whether the file holds a result in this form.
    fn is_in(self, file: &Path) -> bool {
        if self == Form::Json {
            // A file of another version, or with a value out of range, is still a result.
            return matches!(
                keyway_scenario::read(file),
                Ok(_) | Err(ReadError::Version { .. } | ReadError::Value { .. })
            );
        }
        let mut head = Vec::new();
        let read = File::open(file).and_then(|file| file.take(HEAD_LEN).read_to_end(&mut head));
        if read.is_err() {
            return false;
        }
        let head = String::from_utf8_lossy(&head);
        match self {
            Form::Markdown => head.starts_with(MARKDOWN_MARK),
            Form::Csv => head.starts_with("scenario,system,version,item,title,group"),
            Form::Html | Form::Json => {
                head.starts_with("<!DOCTYPE html>") && head.contains("default-src 'none'")
            }
        }
    }
}

/// Checks that the files may be written. None of them may be the `input`, and none may be named
/// twice. Each must be new, empty or an earlier result of its form. A path that is not a regular
/// file, such as a pipe, may be written.
///
/// # Errors
/// Returns the file that may not be written, and the reason.
pub fn check<'f>(
    files: impl IntoIterator<Item = (Form, &'f Path)>,
    input: Option<&Path>,
) -> Result<()> {
    let identity = |file: &Path| {
        let found = fs::metadata(file).ok().filter(|found| found.is_file())?;
        Some((found.dev(), found.ino(), found.len()))
    };
    let input = input.and_then(identity);
    let mut known: Vec<(Form, &Path)> = Vec::new();
    for (form, file) in files {
        let (flag, shown) = (form.flag(), file.display());
        if let Some((other, _)) = known.iter().find(|(_, other)| *other == file) {
            bail!("{flag} and {} both name {shown}; give each a file of its own", other.flag());
        }
        known.push((form, file));
        let found = identity(file);
        if found.is_some() && found == input {
            bail!("{flag} {shown}: this is the result that is read; name another file");
        }
        if found.is_some_and(|(.., len)| len > 0) && !form.is_in(file) {
            bail!(
                "{flag} {shown}: the file is there and holds no earlier result of {flag}; name \
                 another file, or remove this one"
            );
        }
    }
    Ok(())
}
