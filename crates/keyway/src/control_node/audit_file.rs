//! `audit_file`: every entry of the audit log, one a line, as the coordinator has it.
//!
//! A thread appends and syncs, so a slow disk does not hold up the leader. Entries that wait are in
//! the coordinator as well: if there is no room for more, they are taken later. When the file has
//! been moved or removed, as tools that rotate logs do, the next entry begins a new one.

use super::events_file::is_at;
use anyhow::{Context, Result, bail};
use keyway_fleet::{AuditEntry, AuditLog, Chain, Hash};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread::Thread;
use std::time::Duration;

/// Entries that wait for the disk. More stay in the coordinator until there is room.
const WAITING_MAX: usize = 256;

/// Bytes at the end of the file that are read for its last line. An entry has fewer.
const TAIL_LEN: u64 = 256 << 10;

/// Time until an entry is written again that could not be, as when the disk was full.
const AGAIN: Duration = Duration::from_secs(5);

/// Longest wait at the end for entries that are being written.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The file, and the thread that writes it.
pub struct AuditFile {
    /// The last entry that was given to the thread.
    last: Chain,
    is_behind: bool,
    entries: Option<SyncSender<String>>,
    is_over: Arc<AtomicBool>,
    ended: Receiver<()>,
    thread: Thread,
}

/// The state of the file at the start.
struct Opened {
    file: File,
    len: u64,
    last: Chain,
}

impl AuditFile {
    /// Opens the file, and starts the thread. The file is made if it is not there.
    ///
    /// # Errors
    /// Returns why the file cannot be used: it cannot be opened, another process has it, or its last
    /// line is no entry.
    pub fn open(path: &Path) -> Result<AuditFile> {
        let Opened { file, len, last } =
            open(path).with_context(|| format!("audit_file {}", path.display()))?;
        let (entries, waiting) = sync_channel(WAITING_MAX);
        let (end, ended) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let path = path.to_owned();
        let mut writing = Writing { file: Some(file), path, len, is_over: Arc::clone(&is_over) };
        let thread = std::thread::Builder::new()
            .name("keyway-audit".to_owned())
            .spawn(move || {
                writing.run(&waiting);
                drop(end);
            })
            .context("cannot start a thread")?;
        let (thread, is_behind, entries) = (thread.thread().clone(), false, Some(entries));
        Ok(AuditFile { last, is_behind, entries, is_over, ended, thread })
    }

    /// Returns whether entries wait in the coordinator for room.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Gives the thread every entry that the file does not have.
    pub fn follow(&mut self, log: &AuditLog) {
        self.find_place(log);
        self.is_behind = false;
        let Some(entries) = &self.entries else { return };
        let last = self.last.number;
        for (number, text) in log.entries.iter().filter(|(it, _)| *it > last) {
            match entries.try_send(text.clone()) {
                Ok(()) => {
                    self.last = Chain { number: *number, hash: Hash::of(text.as_bytes()) };
                }
                Err(TrySendError::Full(_)) => {
                    self.is_behind = true;
                    return;
                }
                // The thread has failed, which the panic hook has told.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }

    /// Finds the entry from which on the file goes on. If the coordinator has another chain than the
    /// file, as after a restored backup, all of that follows.
    fn find_place(&mut self, log: &AuditLog) {
        let Some(head) = log.head else { return };
        let Chain { number, hash } = self.last;
        let found = log.entries.iter().find(|(it, _)| *it == number);
        let is_same = match found {
            Some((_, text)) => Hash::of(text.as_bytes()) == hash,
            None if number == head.anchor => hash == head.anchor_hash,
            // Entries behind it have left the coordinator while this node did not run.
            None if number < head.anchor => {
                if number > 0 {
                    tracing::warn!(
                        "audit_file lacks entries {} to {}: they left the coordinator while this \
                         node did not run",
                        number + 1,
                        head.anchor
                    );
                }
                true
            }
            None => false,
        };
        if !is_same {
            tracing::error!(
                "audit_file has entry {number}, and the coordinator has another chain: it went \
                 back, or was changed; all entries that it has follow in the file"
            );
            self.last = Chain { number: head.anchor, hash: head.anchor_hash };
        }
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        self.entries = None;
        // ORDER: the flag itself is the only data
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
        // The thread sends nothing: the end of its sender is the signal.
        if self.ended.recv_timeout(END_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("audit_file is not complete: the disk does not answer");
        }
    }
}

fn open(path: &Path) -> Result<Opened> {
    let mut file = File::options().read(true).append(true).create(true).mode(0o640).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => bail!("another process writes it"),
        Err(error) => return Err(error.into()),
    }
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_LEN)))?;
    let mut tail = Vec::new();
    (&file).take(TAIL_LEN).read_to_end(&mut tail)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = (tail.len() - whole) as u64;
    if torn > 0 && torn < TAIL_LEN {
        tracing::warn!("{}: its last line is not whole and is cut: {torn} bytes", path.display());
        file.set_len(len - torn)?;
    }
    let lines = tail.get(..whole.saturating_sub(1)).unwrap_or_default();
    let Some(line) = lines.rsplit(|byte| *byte == b'\n').next().filter(|line| !line.is_empty())
    else {
        return match len - torn {
            0 => Ok(Opened { file, len: 0, last: Chain::default() }),
            _ => bail!("its last line is no entry of an audit log: name another file"),
        };
    };
    let Some(entry) = AuditEntry::decode(line) else {
        bail!("its last line is no entry of an audit log: name another file");
    };
    let last = Chain { number: entry.number, hash: Hash::of(line) };
    Ok(Opened { file, len: len - torn, last })
}

/// The thread's side.
struct Writing {
    /// The file; `None` if it could not be opened again.
    file: Option<File>,
    path: PathBuf,
    /// Bytes of whole lines.
    len: u64,
    /// True if the node ends: an entry that cannot be written is given up.
    is_over: Arc<AtomicBool>,
}

impl Writing {
    fn run(&mut self, waiting: &Receiver<String>) {
        while let Ok(text) = waiting.recv() {
            let line = text + "\n";
            let shown = self.path.display().to_string();
            let mut is_told = false;
            while let Err(error) = self.append(line.as_bytes()) {
                if !is_told {
                    tracing::error!("audit_file {shown}: {error:#}; tried again every 5 s");
                    is_told = true;
                }
                std::thread::park_timeout(AGAIN);
                // ORDER: the flag itself is the only data
                if self.is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
            if is_told {
                tracing::info!("audit_file {shown}: entries are written again");
            }
        }
    }

    /// Appends a line to the file. A file that was moved or removed is begun anew.
    fn append(&mut self, line: &[u8]) -> Result<()> {
        if !self.file.as_ref().is_some_and(|file| is_at(file, &self.path)) {
            self.file = None;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let Opened { file, len, .. } = open(&self.path)?;
                self.len = len;
                none.insert(file)
            }
        };
        let written = file.write_all(line).and_then(|()| file.sync_data());
        match written {
            Ok(()) => {
                self.len += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Part of the line may be there.
                file.set_len(self.len)?;
                Err(match error.kind() {
                    ErrorKind::WriteZero => std::io::Error::from(ErrorKind::StorageFull).into(),
                    _ => error.into(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_fleet::AuditHead;
    use keyway_testkit::{TempDir, wait_until};

    const SOON: Duration = Duration::from_secs(10);

    /// An entry behind `last`, as the coordinator has it.
    fn entry(last: &mut Chain) -> (u64, String) {
        let number = last.number + 1;
        let text = serde_json::json!({
            "number": number, "previous": last.hash, "at": 7, "node": "z1.control.0.1",
            "by": "ann", "what": "apply", "outcome": "done",
        });
        let text = text.to_string();
        *last = Chain { number, hash: Hash::of(text.as_bytes()) };
        (number, text)
    }

    fn numbers(path: &Path) -> Vec<u64> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| AuditEntry::decode(line.as_bytes()).unwrap().number).collect()
    }

    #[test]
    fn each_entry_is_appended_once_whatever_becomes_of_the_file() {
        let folder = TempDir::new();
        let path = folder.path().join("audit.log");
        let mut file = AuditFile::open(&path).unwrap();
        assert!(AuditFile::open(&path).is_err(), "it is in use");
        let (mut last, mut entries) = (Chain::default(), Vec::new());
        let mut follow = |file: &mut AuditFile| {
            entries.push(entry(&mut last));
            let Chain { number, hash } = last;
            let head = AuditHead { number, hash, ..AuditHead::default() };
            file.follow(&AuditLog { head: Some(head), entries: entries.clone() });
        };
        follow(&mut file);
        follow(&mut file);
        wait_until("both are there", SOON, || numbers(&path) == [1, 2]);
        let moved = folder.path().join("audit.1");
        std::fs::rename(&path, &moved).unwrap();
        follow(&mut file);
        wait_until("a new file begins", SOON, || numbers(&path) == [3]);
        assert_eq!(numbers(&moved), [1, 2]);
        std::fs::remove_file(&path).unwrap();
        follow(&mut file);
        follow(&mut file);
        drop(file);
        assert_eq!(numbers(&path), [4, 5]);
        // The next start goes on with the file that is there.
        let mut file = AuditFile::open(&path).unwrap();
        follow(&mut file);
        drop(file);
        assert_eq!(numbers(&path), [4, 5, 6]);
    }
}
