//! A file with the id of the process that serves, for who sends it signals.

use anyhow::{Context, Result};
use std::fs;
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
        let written = fs::write(&next, format!("{id}\n")).and_then(|()| fs::rename(&next, path));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_process_stays() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("keyway.pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(path.exists());
        PidFile::write(&path).unwrap().remove();
        assert!(!path.exists());
        assert!(PidFile::write(&folder.path().join("no/such")).is_err());
    }
}
