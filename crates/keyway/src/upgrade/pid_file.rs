//! A file with the id of the process that serves, for programs that send it signals.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest content of a file that holds a process id: twenty digits, with blanks around them.
const ID_LEN_MAX: u64 = 32;

/// A file with the id of this process.
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file in one step: a reader sees either process id, but never a part.
    ///
    /// # Errors
    /// Returns an error if it cannot be written, or as [`PidFile::check`] does.
    pub fn write(path: &Path) -> Result<PidFile> {
        PidFile::check(path)?;
        let id = std::process::id();
        let next = path.with_extension(format!("{id}.new"));
        let written = write_new(&next, &format!("{id}\n")).and_then(|()| fs::rename(&next, path));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(PidFile(path.to_owned()))
    }

    /// Checks that the file may be written: it is new, empty, or holds a process id, such as one
    /// left by an earlier process.
    ///
    /// # Errors
    /// Returns an error if it holds anything else, such as a configuration.
    pub fn check(path: &Path) -> Result<()> {
        let shown = path.display();
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("--pid-file {shown}")),
            Ok(found) if !found.is_file() => {
                bail!("--pid-file {shown}: this is no file; name one that may be written")
            }
            Ok(_) => {}
        }
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(ID_LEN_MAX + 1).read_to_end(&mut text));
        read.with_context(|| format!("--pid-file {shown}"))?;
        let text = text.trim_ascii();
        if text.len() as u64 > ID_LEN_MAX || !text.iter().all(u8::is_ascii_digit) {
            bail!(
                "--pid-file {shown}: the file is there and does not hold a process id; name another \
                 file, or remove this one"
            );
        }
        Ok(())
    }

    /// Removes the file, unless another process has taken over.
    pub fn remove(self) {
        let ours = format!("{}\n", std::process::id());
        if fs::read_to_string(&self.0).is_ok_and(|text| text == ours) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Writes a new file. Through a link that another user has left, another file would be written.
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

    #[test]
    fn only_a_file_with_a_process_id_is_replaced() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("keyway.toml");
        for text in ["[[listener]]\n", "12 34\n", "12\n34\n", "-1\n", &"1".repeat(40)] {
            fs::write(&path, text).unwrap();
            let why = PidFile::write(&path).err().expect(text).to_string();
            assert!(why.ends_with("name another file, or remove this one"), "{why}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert!(PidFile::write(folder.path()).is_err());
        for text in ["", "123\n", " 4194304 \n\n"] {
            fs::write(&path, text).unwrap();
            PidFile::write(&path).unwrap();
        }
    }
}
