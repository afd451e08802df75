//! A directory that lives as long as the value.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static MADE: AtomicU32 = AtomicU32::new(0);

/// The file system of this host that is in memory.
const MEMORY: &str = "/dev/shm";

/// Bytes that must be free there: servers of tests write some MiB each.
const MEMORY_FREE_MIN: u64 = 1 << 30;

/// A fresh directory, removed with everything in it on drop.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes a directory under the system's temporary one.
    ///
    /// # Panics
    /// When the directory cannot be made: no test can go on without it.
    pub fn new() -> TempDir {
        TempDir::below(&std::env::temp_dir())
    }

    /// Makes a directory in memory, where this host has room for it. A test that measures time does not
    /// wait for the disk then: while other programs write, an `fsync` takes seconds.
    ///
    /// # Panics
    /// As [`TempDir::new`].
    pub fn in_memory() -> TempDir {
        let is_named = std::env::var_os("TMPDIR").is_some();
        let has_room = || {
            rustix::fs::statvfs(MEMORY)
                .is_ok_and(|told| told.f_bavail.saturating_mul(told.f_frsize) >= MEMORY_FREE_MIN)
        };
        match !is_named && has_room() {
            true => TempDir::below(Path::new(MEMORY)),
            false => TempDir::new(),
        }
    }

    fn below(parent: &Path) -> TempDir {
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("keyway-test-{}-{nth}", std::process::id());
        let path = parent.join(name);
        // A process of the same id may have been killed here before.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        TempDir { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into it and returns the file's path.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        std::fs::write(&path, text)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }
}

impl Default for TempDir {
    fn default() -> Self {
        TempDir::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
