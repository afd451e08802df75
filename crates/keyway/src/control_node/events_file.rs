//! `events_file`: every event that this node takes, one JSON text a line, as the API has it.
//!
//! A thread appends, so a slow disk holds up nobody. It reads from the events that the node keeps in
//! memory, which bounds what waits for the disk. When the file has been moved or removed, as
//! tools that rotate logs do, the next event begins a new one.

use anyhow::{Context, Result, bail};
use keyway_control::{EventLog, EventStatus};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Thread;
use std::time::Duration;

/// Events that are appended at a time, and then synced.
const BATCH_MAX: usize = 256;

/// Time between two looks for new events.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time until events are written again that could not be, as when the disk was full.
const AGAIN: Duration = Duration::from_secs(5);

/// Longest wait at the end for events that are being written.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The thread that writes the file. Dropping it writes what is there, and ends the thread.
pub struct EventsFile {
    is_over: Arc<AtomicBool>,
    ended: Receiver<()>,
    thread: Thread,
}

impl EventsFile {
    /// Opens the file, and starts the thread. The file is made if it is not there. Events that were
    /// taken before are not written.
    ///
    /// # Errors
    /// Returns why the file cannot be used: it cannot be opened, or another process has it.
    pub fn start(path: &Path, events: Arc<EventLog>) -> Result<EventsFile> {
        let file = open(path).with_context(|| format!("events_file {}", path.display()))?;
        let (end, ended) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let last = events.latest();
        let path = path.to_owned();
        let mut writing = Writing { file: Some(file), path, last, events, is_failing: false };
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("keyway-events".to_owned())
            .spawn(move || {
                writing.run(&over);
                drop(end);
            })
            .context("cannot start a thread")?;
        Ok(EventsFile { is_over, ended, thread: thread.thread().clone() })
    }
}

impl Drop for EventsFile {
    fn drop(&mut self) {
        // ORDER: the flag itself is the only data
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.unpark();
        // The thread sends nothing: the end of its sender is the signal.
        if self.ended.recv_timeout(END_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("events_file is not complete: the disk does not answer");
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let file = File::options().append(true).create(true).mode(0o640).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => bail!("another process writes it"),
        Err(error) => Err(error.into()),
    }
}

/// The thread's side.
struct Writing {
    /// The file; `None` if it could not be opened again.
    file: Option<File>,
    path: PathBuf,
    /// The number of the last event that is in the file.
    last: u64,
    events: Arc<EventLog>,
    /// True if the fault was told, and still is.
    is_failing: bool,
}

impl Writing {
    fn run(&mut self, is_over: &AtomicBool) {
        loop {
            // ORDER: the flag itself is the only data. Events of before are written at the end.
            let ends = is_over.load(Ordering::Relaxed);
            let has_written = self.write_all();
            if ends {
                return;
            }
            std::thread::park_timeout(if has_written { LOOK_EVERY } else { AGAIN });
        }
    }

    /// Writes the events that are new. Returns false if that failed, which is told once.
    fn write_all(&mut self) -> bool {
        while self.events.latest() > self.last {
            let batch = self.events.list(Some(self.last), 0, BATCH_MAX);
            let Some(last) = batch.last().map(|event| event.number) else { break };
            if let Err(error) = self.write(&batch) {
                if !self.is_failing {
                    let shown = self.path.display();
                    tracing::error!("events_file {shown}: {error:#}; tried again every 5 s");
                }
                self.is_failing = true;
                return false;
            }
            if self.is_failing {
                tracing::info!("events_file {}: events are written again", self.path.display());
            }
            self.is_failing = false;
            let lost = batch.first().map_or(0, |first| first.number - self.last - 1);
            if lost > 0 {
                tracing::error!("events_file lacks {lost} events: the disk was too slow for them");
            }
            self.last = last;
        }
        true
    }

    fn write(&mut self, batch: &[EventStatus]) -> Result<()> {
        if !self.file.as_ref().is_some_and(|file| is_at(file, &self.path)) {
            self.file = None;
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.path)?),
        };
        let mut lines = Vec::new();
        for event in batch {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
        }
        let len = file.metadata()?.len();
        let written = file.write_all(&lines).and_then(|()| file.sync_data());
        written.or_else(|error| {
            // Part of the lines may be there.
            file.set_len(len)?;
            Err(error.into())
        })
    }
}

/// Returns whether a path names this file.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(one), Ok(other)) = (file.metadata(), path.metadata()) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_fleet::{Event, Severity};
    use keyway_testkit::{TempDir, wait_until};

    const SOON: Duration = Duration::from_secs(10);

    fn take(events: &EventLog, text: &str) {
        events.take("z1.proxy.0.1", Event::new(7, "test", Severity::Info, text), 7);
    }

    fn texts(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["text"].as_str().unwrap().to_owned()
        });
        lines.collect()
    }

    #[test]
    fn each_event_is_appended_once_whatever_becomes_of_the_file() {
        let folder = TempDir::new();
        let path = folder.path().join("logs").join("events.log");
        let events = Arc::new(EventLog::new(1));
        take(&events, "before");
        assert!(EventsFile::start(&path, Arc::clone(&events)).is_err());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let file = EventsFile::start(&path, Arc::clone(&events)).unwrap();
        assert!(EventsFile::start(&path, Arc::clone(&events)).is_err(), "it is in use");
        (0..BATCH_MAX + 5).for_each(|at| take(&events, &at.to_string()));
        wait_until("all are there", SOON, || texts(&path).len() == BATCH_MAX + 5);
        assert_eq!(texts(&path)[7], "7");
        // It is moved, and then gone with its folder.
        let other = folder.path().join("moved");
        std::fs::rename(&path, &other).unwrap();
        take(&events, "after");
        wait_until("a new one begins", SOON, || texts(&path) == ["after"]);
        assert_eq!(texts(&other).len(), BATCH_MAX + 5);
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        take(&events, "late");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        take(&events, "last");
        drop(file);
        assert_eq!(texts(&path), ["late", "last"]);
    }

    #[test]
    fn what_fails_is_tried_again_and_leaves_no_part_of_a_line() {
        let events = Arc::new(EventLog::new(1));
        let last = events.latest();
        let folder = TempDir::new();
        let path = folder.path().join("events.log");
        std::fs::write(&path, "{\"text\":\"old\"}\n").unwrap();
        let full = File::options().append(true).open("/dev/full").unwrap();
        let mut writing =
            Writing { file: Some(full), path: "/dev/full".into(), last, events, is_failing: false };
        take(&writing.events, "one");
        assert!(!writing.write_all() && writing.is_failing && writing.last == last);
        (writing.file, writing.path) = (None, path.clone());
        assert!(writing.write_all() && !writing.is_failing);
        assert_eq!(texts(&path), ["old", "one"]);
    }
}
