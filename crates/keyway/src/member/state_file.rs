//! The files in which a member keeps its documents, and the decided primaries.

use keyway_fleet::limits::{GROUPS_LEN_MAX, SAVED_LEN_MAX};
use keyway_fleet::{Decisions, Saved};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Reads the file. Returns `None` if there is none.
///
/// # Errors
/// Returns the reason why it cannot be used.
pub fn read(path: &Path) -> Result<Option<Saved>, String> {
    let Some(bytes) = bytes_of(path, SAVED_LEN_MAX)? else { return Ok(None) };
    Saved::decode(&bytes).map(Some).map_err(|fault| fault.to_string())
}

fn bytes_of(path: &Path, len_max: usize) -> Result<Option<Vec<u8>>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    file.take(len_max as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot be read: {error}"))?;
    Ok(Some(bytes))
}

/// Returns the file of the decided primaries, which is beside that of the documents.
fn decisions_path(state_file: &Path) -> PathBuf {
    let mut name = state_file.file_name().unwrap_or_default().to_owned();
    name.push(".groups");
    state_file.with_file_name(name)
}

/// Reads the decided primaries. Returns `None` if there are none.
///
/// # Errors
/// Returns the reason why they cannot be used, with the name of the file.
pub fn read_decisions(state_file: &Path) -> Result<Option<Decisions>, String> {
    let path = decisions_path(state_file);
    let named = |why: String| format!("{}: {why}", path.display());
    let Some(bytes) = bytes_of(&path, 2 * GROUPS_LEN_MAX).map_err(named)? else {
        return Ok(None);
    };
    let decisions = Decisions::decode(&bytes);
    decisions.map(Some).ok_or_else(|| named("it is damaged, or of another program".to_owned()))
}

/// Replaces the decided primaries, as [`write`] does.
///
/// # Errors
/// Returns the reason why they are not known to be on the disk.
pub fn write_decisions(state_file: &Path, bytes: &[u8]) -> Result<(), String> {
    let path = decisions_path(state_file);
    replace(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Replaces the file: a crash at any point leaves the old one or the new one.
///
/// # Errors
/// Returns the reason why it is not known to be on the disk.
pub fn write(path: &Path, saved: &Saved) -> Result<(), String> {
    replace(path, &saved.encode()).map_err(|error| format!("{}: {error}", path.display()))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let other: PathBuf = path.with_file_name(name);
    // A document may have secrets in it.
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&other)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&other, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_fleet::{Document, Version};

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nobody_else_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("state");
        assert_eq!(read(&path), Ok(None));
        for revision in 1..4 {
            let version = Version { epoch: 1, revision };
            let newest = Document { version, text: "# text".into() };
            let saved = Saved { cluster: "c".to_owned(), newest, good: None };
            write(&path, &saved).unwrap();
            assert_eq!(read(&path), Ok(Some(saved)));
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, b"something else").unwrap();
        assert!(read(&path).unwrap_err().contains("damaged"));
        assert!(
            write(
                Path::new("/proc/nowhere/state"),
                &Saved {
                    cluster: "c".to_owned(),
                    newest: Document { version: Version::default(), text: "".into() },
                    good: None,
                }
            )
            .is_err()
        );
    }
}
