//! A file with the id of the process that serves, for who sends it signals.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Such a file.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes it, in one step: whoever reads it sees one process or the other.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(path: &Path) -> Result<PidFile> {
        let id = std::process::id();
        let next = path.with_extension(format!("{id}.new"));
        let written = write_new(&next, &format!("{id}\n")).and_then(|()| fs::rename(&next, path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(PidFile(path.to_owned()))
    }

    /// Removes it, unless another process has taken over.
    pub fn remove(self) {
        let ours = format!("{}\n", std::process::id());
        if fs::read_to_string(&self.0).is_ok_and(|text| text == ours) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Writes a file that was not there: by a link that somebody else has left, another would be
/// written.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path)?.write_all(text.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_process_stays() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("keyway.pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        let other = folder.path().join("other");
        fs::write(&other, "untouched").unwrap();
        let id = std::process::id();
        std::os::unix::fs::symlink(&other, path.with_extension(format!("{id}.new"))).unwrap();
        PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(path.exists());
        PidFile::write(&path).unwrap().remove();
        assert!(!path.exists());
        assert!(PidFile::write(&folder.path().join("no/such")).is_err());
    }
}
