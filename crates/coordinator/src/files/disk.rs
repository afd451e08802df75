//! The directory of a cluster.

use crate::clock::Moment;
use crate::state::{Full, HEADER_LEN, STATE_LEN_MAX, State, header};
use crate::{Fault, FaultKind, Mark, SessionId};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a session's file: the end of its lease, and a checksum.
const SESSION_LEN: usize = 12;

/// How often a session's file is read again while its owner writes it.
const READS_MAX: usize = 3;

#[derive(Debug)]
pub(super) struct Disk {
    dir: PathBuf,
    /// What was read or written last. The file is read only if its header says otherwise.
    latest: Mutex<Option<Arc<State>>>,
}

impl Disk {
    pub(super) fn new(dir: PathBuf) -> Disk {
        Disk { dir, latest: Mutex::new(None) }
    }

    /// The directory, for faults.
    pub(super) fn place(&self) -> String {
        self.dir.display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn session_path(&self, id: SessionId) -> PathBuf {
        self.path("sessions").join(id.to_string())
    }

    fn fault(&self, tried: &'static str, error: &io::Error) -> Fault {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultKind::Full,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                FaultKind::Denied
            }
            _ => FaultKind::Unreachable,
        };
        Fault::new(kind, self.place(), tried, error.to_string())
    }

    pub(super) fn full(&self, _: Full) -> Fault {
        let what = "the cluster would have too many entries or bytes";
        Fault::new(FaultKind::Full, self.place(), "transaction", what)
    }

    /// Entries may be secrets: nobody else may read them.
    pub(super) fn make_directories(&self) -> Result<(), Fault> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(self.path("sessions"));
        made.map_err(|error| self.fault("make the directory", &error))
    }

    /// Returns the lock of all writers, or nothing if somebody else has it.
    pub(super) fn try_lock(&self) -> Result<Option<File>, Fault> {
        let fault = |error: io::Error| self.fault("lock", &error);
        let file = private().create(true).truncate(false).open(self.path("lock")).map_err(fault)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // For the fault of somebody who waits in vain.
                let _ = file.write_all_at(format!("{:<10}", std::process::id()).as_bytes(), 0);
                Ok(Some(file))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(fault(error.into())),
        }
    }

    /// Returns the process that has the lock, as far as it is known.
    pub(super) fn lock_owner(&self) -> Option<u32> {
        let mut text = String::new();
        File::open(self.path("lock")).ok()?.take(10).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }

    pub(super) fn has_state(&self) -> Result<bool, Fault> {
        let exists = self.path("state").try_exists();
        exists.map_err(|error| self.fault("look for the state", &error))
    }

    fn open_state(&self) -> Result<File, Fault> {
        File::open(self.path("state")).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let what = "there is no state, and there was one";
                Fault::new(FaultKind::RolledBack, self.place(), "read the state", what)
            }
            _ => self.fault("read the state", &error),
        })
    }

    fn damaged(&self, what: &str) -> Fault {
        let path = self.path("state").display().to_string();
        Fault::new(FaultKind::Damaged, path, "read the state", what)
    }

    /// Returns which state is the current one.
    pub(super) fn mark(&self) -> Result<Mark, Fault> {
        self.mark_of(&self.open_state()?)
    }

    fn mark_of(&self, file: &File) -> Result<Mark, Fault> {
        let mut start = [0; HEADER_LEN];
        match file.read_exact_at(&mut start, 0) {
            Ok(()) => header(&start).ok_or_else(|| self.damaged("the file is of another kind")),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged("the file is too short"))
            }
            Err(error) => Err(self.fault("read the state", &error)),
        }
    }

    /// Returns the current state.
    pub(super) fn read(&self) -> Result<Arc<State>, Fault> {
        // A file is never changed, another takes its place: the header and the rest belong
        // together.
        let file = self.open_state()?;
        let mark = self.mark_of(&file)?;
        if let Some(latest) = self.latest.lock().as_ref().filter(|latest| latest.mark == mark) {
            return Ok(Arc::clone(latest));
        }
        let mut bytes = Vec::new();
        let read = file.take(STATE_LEN_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.fault("read the state", &error))?;
        let state = if bytes.len() > STATE_LEN_MAX { None } else { State::decode(&bytes) };
        let state = Arc::new(state.ok_or_else(|| self.damaged("the checksum is wrong"))?);
        *self.latest.lock() = Some(Arc::clone(&state));
        Ok(state)
    }

    /// Replaces the state. The lock is held.
    pub(super) fn write(&self, state: &State) -> Result<Arc<State>, Fault> {
        let (old, new) = (self.path("state"), self.path("state.new"));
        let write = || {
            let mut file = private().create(true).truncate(true).open(&new)?;
            file.write_all(&state.encode())?;
            file.sync_all()?;
            std::fs::rename(&new, &old)
        };
        write().map_err(|error| self.fault("write the state", &error))?;
        let state = Arc::new(state.clone());
        *self.latest.lock() = Some(Arc::clone(&state));
        // Others see the new state already; after a crash of the machine it may be the old one.
        let synced = File::open(&self.dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| {
            Fault::new(FaultKind::Unknown, self.place(), "write the state", error.to_string())
        })?;
        Ok(state)
    }

    /// Makes the file of a session, locked. The lock of all writers is held.
    pub(super) fn make_session(&self, id: SessionId, until: Moment) -> Result<File, Fault> {
        let path = self.session_path(id);
        let hidden = self.path("sessions").join(format!(".{id}"));
        let make = || {
            let file = private().create_new(true).open(&hidden)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            write_lease(&file, until)?;
            // Nobody sees it before it is locked.
            std::fs::rename(&hidden, &path)?;
            Ok(file)
        };
        make().map_err(|error: io::Error| {
            let _ = std::fs::remove_file(&hidden);
            self.fault("begin a session", &error)
        })
    }

    /// Writes a session's lease without the lock of all writers, while the lease that the file has,
    /// which ends at `held`, is not over. Returns false if another process may have found the session
    /// dead: then [`Disk::renew_session`] tells.
    ///
    /// A process that finds it dead has looked at the clock behind `held`, and then has read that
    /// lease. So the lease was written after `held`, which this call sees by the clock afterwards.
    pub(super) fn extend_session(
        &self,
        id: SessionId,
        file: &File,
        held: Moment,
        until: Moment,
    ) -> Result<bool, Fault> {
        if held.has_passed() || !self.session_path(id).exists() {
            return Ok(false);
        }
        let written = write_lease(file, until);
        written.map_err(|error| self.fault("renew the session", &error))?;
        Ok(!held.has_passed())
    }

    /// Writes a session's lease, if the session still exists. The lock of all writers is held.
    pub(super) fn renew_session(
        &self,
        id: SessionId,
        file: &File,
        until: Moment,
    ) -> Result<bool, Fault> {
        if !self.is_alive(id) {
            return Ok(false);
        }
        let written = write_lease(file, until);
        written.map_err(|error| self.fault("renew the session", &error))?;
        Ok(true)
    }

    /// Returns whether a session exists and its lease is not over.
    pub(super) fn is_alive(&self, id: SessionId) -> bool {
        !is_dead(&self.session_path(id))
    }

    pub(super) fn count_sessions(&self) -> Result<usize, Fault> {
        Ok(self.session_names()?.count())
    }

    /// Returns sessions that have ended: those of files, and those of entries that have no file.
    pub(super) fn dead_sessions(&self, state: &State) -> Result<BTreeSet<SessionId>, Fault> {
        let is_dead = |id: &SessionId| is_dead(&self.session_path(*id));
        let mut dead: BTreeSet<SessionId> = self.session_names()?.filter(is_dead).collect();
        dead.extend(state.sessions().into_iter().filter(is_dead));
        Ok(dead)
    }

    pub(super) fn remove_sessions(&self, dead: &BTreeSet<SessionId>) {
        for id in dead {
            let _ = std::fs::remove_file(self.session_path(*id));
        }
    }

    fn session_names(&self) -> Result<impl Iterator<Item = SessionId>, Fault> {
        let entries = std::fs::read_dir(self.path("sessions"))
            .map_err(|error| self.fault("look for sessions", &error))?;
        // Other names are those of sessions that are being made, or not ours.
        Ok(entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            (name.len() == 16).then_some(())?;
            u64::from_str_radix(&name, 16).ok().map(SessionId)
        }))
    }
}

/// A file that only its owner may read, open for reading and writing.
fn private() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options
}

fn write_lease(file: &File, until: Moment) -> io::Result<()> {
    let nanos = until.as_nanos().to_be_bytes();
    let sum = crc32c::crc32c(&nanos).to_be_bytes();
    file.write_all_at(&[&nanos[..], &sum].concat(), 0)
}

fn read_lease(file: &File) -> Option<Moment> {
    (0..READS_MAX).find_map(|_| {
        let mut bytes = [0; SESSION_LEN];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (nanos, sum) = bytes.split_last_chunk::<4>()?;
        (crc32c::crc32c(nanos) == u32::from_be_bytes(*sum)).then_some(())?;
        Some(Moment::from_nanos(u64::from_be_bytes(nanos.try_into().ok()?)))
    })
}

/// Returns whether the session of a file has ended: nobody holds the file, or its lease is over.
fn is_dead(path: &Path) -> bool {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return true;
    }
    // The clock comes before the lease: see `extend_session`.
    let now = Moment::now();
    // Its owner may be writing: it is alive then.
    read_lease(&file).is_some_and(|until| until <= now)
}
