//! Files: how they are created, and how their names get onto the disk.

use crate::fault::LogFault;
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts the names in a directory onto the disk.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), LogFault> {
    let synced = File::open(directory).and_then(|file| file.sync_all());
    synced.map_err(|error| LogFault::io("sync", directory, error))
}

/// Creates a file, which must not be there.
pub(crate) fn create(path: &Path) -> Result<File, LogFault> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.map_err(|error| LogFault::io("create", path, error))
}

/// Puts a whole file in the place of another, or none.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), LogFault> {
    let (path, temporary) = (directory.join(name), directory.join(format!("{name}.tmp")));
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().map_err(|error| LogFault::io("write", &path, error))?;
    sync_directory(directory)
}

/// Opens a file that must be one: to open a pipe would wait for its other end.
pub(crate) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}
