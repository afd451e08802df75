//! Faults of a log, and their repair.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A fault of a log. Its text says what to do.
#[derive(Debug)]
pub enum LogFault {
    /// The system refuses something.
    Io {
        /// The attempt, as a verb.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The directory is not there.
    NoDirectory(PathBuf),
    /// Another process has the log.
    InUse(PathBuf),
    /// The manifest is no manifest, or was changed.
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The fault.
        what: String,
    },
    /// The directory had a manifest, and has none.
    NoManifest(PathBuf),
    /// A file of the manifest is not there.
    Missing(PathBuf),
    /// A record is wrong that was on the disk.
    Damaged {
        /// The segment.
        path: PathBuf,
        /// The place in the file.
        at: u64,
        /// The offset of the stream there.
        offset: u64,
    },
    /// A segment does not begin where the one before it ends.
    Gap {
        /// The segment that ends.
        path: PathBuf,
        /// The offset of the stream at which it ends.
        ends: u64,
        /// The offset at which the next one begins.
        next: u64,
    },
    /// The base cannot be loaded.
    Base {
        /// The base.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The units of a segment cannot be executed.
    Units {
        /// The segment.
        path: PathBuf,
        /// The place in the file behind the record.
        at: u64,
        /// Why.
        what: String,
    },
    /// Effects were lost before they were written.
    Lost(&'static str),
    /// No base can be written.
    NoBase(String),
    /// The process ends.
    Ends,
}

impl LogFault {
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound if doing == "read" => Self::Missing(path.into()),
            _ => Self::Io { doing, path: path.into(), error },
        }
    }
}

/// Returns the repair of an error of the system.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull => "free room on the disk",
        ErrorKind::QuotaExceeded => "raise the quota of the user that keyway runs as",
        ErrorKind::FileTooLarge => "raise the limit of a file's size (ulimit -f)",
        ErrorKind::PermissionDenied => {
            "let the user that keyway runs as read and write files in the directory"
        }
        ErrorKind::ReadOnlyFilesystem => "mount the file system to be written to",
        _ => "see what is wrong with the disk",
    }
}

/// The repair of files that cannot be loaded.
const REPAIR: &str = "nothing was changed: restore the directory from a copy, or move it away to \
                      start without its data";

impl fmt::Display for LogFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, error } => {
                write!(f, "cannot {doing} {}: {error}; {}", path.display(), hint(error))
            }
            Self::NoDirectory(path) => {
                write!(f, "no directory {}; create it", path.display())
            }
            Self::InUse(path) => write!(
                f,
                "another process has the log in {}; stop that process first, or name another \
                 directory",
                path.display()
            ),
            Self::Manifest { path, what } => {
                write!(f, "the manifest {} is damaged: {what}; {REPAIR}", path.display())
            }
            Self::NoManifest(path) => {
                write!(f, "the manifest of the log in {} is missing; {REPAIR}", path.display())
            }
            Self::Missing(path) => {
                write!(f, "the file {} of the log is missing; {REPAIR}", path.display())
            }
            Self::Damaged { path, at, offset } => write!(
                f,
                "{} is damaged at byte {at} (offset {offset} of the stream), before records that \
                 were on the disk; {REPAIR}; to keep what is in front of the damage, see \
                 docs/log.md",
                path.display()
            ),
            Self::Gap { path, ends, next } => write!(
                f,
                "{} ends at offset {ends} of the stream, and the next segment begins at {next}; \
                 {REPAIR}",
                path.display()
            ),
            Self::Base { path, what } => {
                write!(f, "cannot load the base {}: {what}; {REPAIR}", path.display())
            }
            Self::Units { path, at, what } => write!(
                f,
                "the record of {} that ends at byte {at} cannot be executed: {what}; {REPAIR}",
                path.display()
            ),
            Self::Lost(why) => write!(f, "writes were lost before they were logged: {why}"),
            Self::NoBase(why) => write!(f, "no base of the log: {why}"),
            Self::Ends => f.write_str("the process ends"),
        }
    }
}

impl std::error::Error for LogFault {}
