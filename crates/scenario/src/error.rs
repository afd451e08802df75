//! Why there is no result.

use std::fmt;

/// One thing wrong with a scenario's file: `path:line: what; hint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file, as the caller named it.
    pub path: String,
    /// Line of the mistake, from 1; 0 when the file as a whole is meant.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub hint: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}; {}", self.path, self.what, self.hint),
            line => write!(f, "{}:{line}: {}; {}", self.path, self.what, self.hint),
        }
    }
}

/// Why a scenario was not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is wrong: every mistake, in the order of lines.
    #[error("{}", lines(.0))]
    File(Vec<FileError>),
    /// What was asked for cannot be done: the text says what to change.
    #[error("{0}")]
    Asked(String),
    /// What was to be measured is not on this machine: how to get it.
    #[error("{0}")]
    Absent(String),
    /// The system refused something.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// In the system's words.
        why: String,
    },
}

impl Error {
    pub(crate) fn system(what: impl Into<String>, why: impl fmt::Display) -> Error {
        Error::System { what: what.into(), why: why.to_string() }
    }
}

fn lines(errors: &[FileError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
