//! Files of snapshots: how they are opened, and how one takes the place of another.

use crate::directories::directory_of;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Bytes that are gathered before they are written.
const GATHERED_LEN: usize = 1 << 20;
/// Bytes after which the system is told to put them on the disk: with more, the end of a snapshot
/// waits for all of it at once, and other writers with it.
const SYNC_EVERY: u64 = 32 << 20;

/// Opens a snapshot to be loaded, with its length; none where there is no file.
///
/// # Errors
/// The error says what is wrong with the file or its directory, and what to do.
pub(super) fn open(path: &Path) -> Result<Option<(File, u64)>, String> {
    let directory = directory_of(path);
    if !directory.is_dir() {
        return Err(format!("no directory {}; create it", directory.display()));
    }
    remove_left_over(path);
    let told = |error: io::Error| {
        let what = format!("cannot read the snapshot {}: {error}", path.display());
        match error.kind() {
            ErrorKind::PermissionDenied => {
                format!("{what}; let the user that keyway runs as read it")
            }
            _ => what,
        }
    };
    // To open a pipe would wait for its other end.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(format!("{} is no file; name another, or remove it", path.display()));
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(told(error)),
    };
    let metadata = file.metadata().map_err(told)?;
    if !metadata.is_file() {
        return Err(format!("{} is no file; name another, or remove it", path.display()));
    }
    Ok(Some((file, metadata.len())))
}

/// The name of a file that a process writes beside another one.
fn temporary_of(path: &Path, pid: u32) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{pid}.tmp"));
    path.with_file_name(name)
}

/// Removes the files of processes that were killed while they wrote.
fn remove_left_over(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let Ok(entries) = fs::read_dir(directory_of(path)) else { return };
    for entry in entries.flatten() {
        let other = entry.file_name();
        let pid = other.to_str().and_then(|other| {
            let rest = other.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".tmp")?;
            rest.parse::<u32>().ok()
        });
        let has_ended = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
        if pid.is_some_and(has_ended) {
            // It takes room, and does no other harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A snapshot that is being written. Dropped before [`NewFile::commit`], it is removed.
pub(super) struct NewFile<'p> {
    path: &'p Path,
    temporary: PathBuf,
    file: File,
    gathered: Vec<u8>,
    unsynced: u64,
    is_in_place: bool,
}

impl<'p> NewFile<'p> {
    /// A file beside `path`.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn create(path: &'p Path) -> io::Result<Self> {
        let temporary = temporary_of(path, std::process::id());
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
        Ok(Self {
            path,
            temporary,
            file,
            gathered: Vec::with_capacity(GATHERED_LEN),
            unsynced: 0,
            is_in_place: false,
        })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.gathered.len() + bytes.len() > GATHERED_LEN {
            self.flush()?;
        }
        if bytes.len() >= GATHERED_LEN {
            self.file.write_all(bytes)?;
            self.unsynced += bytes.len() as u64;
        } else {
            self.gathered.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.gathered)?;
        self.unsynced += self.gathered.len() as u64;
        self.gathered.clear();
        if self.unsynced >= SYNC_EVERY {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Puts the file, whole on the disk, in the place of the old one.
    ///
    /// # Errors
    /// Errors of the system. The old file stays then.
    pub(super) fn commit(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, self.path)?;
        self.is_in_place = true;
        // The name is on the disk once the directory is.
        File::open(directory_of(self.path))?.sync_all()
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            // It takes room, and does no other harm.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Returns the text about a snapshot that could not be written.
pub(super) fn write_failure(path: &Path, error: &io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::StorageFull => "free room on the disk for a second snapshot beside the old one",
        ErrorKind::QuotaExceeded => "raise the quota of the user that keyway runs as",
        ErrorKind::FileTooLarge => "raise the limit of a file's size (ulimit -f)",
        ErrorKind::PermissionDenied => {
            "let the user that keyway runs as create files in the directory"
        }
        ErrorKind::ReadOnlyFilesystem => "mount the file system to be written to",
        ErrorKind::NotFound => "create the directory",
        _ => "see what is wrong with the disk",
    };
    format!(
        "cannot write the snapshot {}: {error}; {hint}; the file that is there stays as it was",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_the_place_of_another_only_when_it_is_whole() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("a.rdb");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        fs::write(&path, "old").unwrap();
        let mut new = NewFile::create(&path).unwrap();
        new.write(b"ne").unwrap();
        drop(new);
        assert_eq!((fs::read(&path).unwrap(), names()), (b"old".to_vec(), 1));
        let mut new = NewFile::create(&path).unwrap();
        let long = vec![7; 3 * GATHERED_LEN];
        [&b"new"[..], &long, b"er"].iter().for_each(|part| new.write(part).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        new.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&b"new"[..], &long, b"er"].concat());
        assert_eq!(names(), 1);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else_is() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("a.rdb");
        let own = std::process::id();
        let others = [format!("a.rdb.{own}.tmp"), "a.rdb.tmp".into(), "b.rdb.4194305.tmp".into()];
        for name in others.iter().map(String::as_str).chain(["a.rdb.4194305.tmp"]) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(open(&path).unwrap().is_none());
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = others.to_vec();
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn what_is_in_the_way_is_told_with_what_to_do() {
        let folder = keyway_testkit::TempDir::new();
        let lost = open(&folder.path().join("none/a.rdb")).unwrap_err();
        assert!(lost.contains("no directory") && lost.ends_with("create it"), "{lost}");
        fs::create_dir(folder.path().join("a.rdb")).unwrap();
        let wrong = open(&folder.path().join("a.rdb")).unwrap_err();
        assert!(wrong.contains("is no file"), "{wrong}");
    }
}
