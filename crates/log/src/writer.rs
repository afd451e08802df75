//! Writing a segment.

use crate::disk;
use crate::fault::LogFault;
use crate::record::{self, RECORD_HEAD_LEN, SEGMENT_HEAD_LEN, SegmentHead};
use crate::syncer::Job;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of its buffer that a writer keeps.
const KEPT_LEN: usize = 1 << 20;

/// A segment that is being written.
pub(crate) struct Writer {
    path: PathBuf,
    file: Arc<File>,
    head: SegmentHead,
    /// Bytes of whole records, head included.
    len: u64,
    /// The offset of the stream behind the last record.
    offset: u64,
    /// The offset up to which all is on the disk.
    synced: u64,
    /// The next record: room for its head, and its units.
    record: Vec<u8>,
}

impl Writer {
    /// Creates a segment; its head is on the disk. Everything in front of it is, too.
    pub(crate) fn create(path: PathBuf, head: SegmentHead) -> Result<Self, LogFault> {
        let mut file = disk::create(&path)?;
        let written = file.write_all(&head.encode()).and_then(|()| file.sync_all());
        written.map_err(|error| LogFault::io("write", &path, error))?;
        let offset = head.offset;
        let (len, record) = (SEGMENT_HEAD_LEN as u64, vec![0; RECORD_HEAD_LEN]);
        let file = Arc::new(file);
        Ok(Self { path, file, head, len, offset, synced: offset, record })
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.synced < self.offset
    }

    /// Bytes of units that may not be on the disk.
    pub(crate) fn unsynced_len(&self) -> u64 {
        self.offset - self.synced
    }

    /// What is to be put onto the disk by another thread.
    pub(crate) fn job(&self) -> Job {
        Job { file: Arc::clone(&self.file), offset: self.offset }
    }

    /// Notes the outcome of a job, unless it was for another file.
    pub(crate) fn note_synced(
        &mut self,
        (job, outcome): (Job, io::Result<()>),
    ) -> Result<(), LogFault> {
        if Arc::ptr_eq(&job.file, &self.file) {
            outcome.map_err(|error| LogFault::io("sync", &self.path, error))?;
            self.synced = self.synced.max(job.offset);
        }
        Ok(())
    }

    /// The buffer for the units of the next record.
    pub(crate) fn units(&mut self) -> Units<'_> {
        Units(&mut self.record)
    }

    /// Writes the next record, unless it is empty; the length of its units.
    pub(crate) fn write(&mut self) -> Result<usize, LogFault> {
        match self.record.len() - RECORD_HEAD_LEN {
            0 => Ok(0),
            len => self.write_record().map(|()| len),
        }
    }

    /// Writes that all is on the disk, which it is: a fault before that is damage then.
    pub(crate) fn mark_synced(&mut self) -> Result<(), LogFault> {
        self.sync()?;
        self.write_record()?;
        let synced = self.file.sync_data();
        synced.map_err(|error| LogFault::io("sync", &self.path, error))
    }

    fn write_record(&mut self) -> Result<(), LogFault> {
        record::seal(&mut self.record, self.head.id, self.offset, self.synced);
        let written = (&*self.file).write_all(&self.record);
        let (len, units) = (self.record.len() as u64, self.record.len() - RECORD_HEAD_LEN);
        self.record.truncate(RECORD_HEAD_LEN);
        self.record.shrink_to(KEPT_LEN);
        if let Err(error) = written {
            // A part of it may be there. If it cannot be cut, it is cut at the next start.
            let _ = self.file.set_len(self.len);
            let _ = (&*self.file).seek(SeekFrom::Start(self.len));
            return Err(LogFault::io("write", &self.path, error));
        }
        self.len += len;
        self.offset += units as u64;
        Ok(())
    }

    /// Puts all that was written onto the disk.
    pub(crate) fn sync(&mut self) -> Result<(), LogFault> {
        if self.is_unsynced() {
            let synced = self.file.sync_data();
            synced.map_err(|error| LogFault::io("sync", &self.path, error))?;
            self.synced = self.offset;
        }
        Ok(())
    }
}

/// The units of a record.
pub(crate) struct Units<'w>(&'w mut Vec<u8>);

impl Units<'_> {
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() - RECORD_HEAD_LEN
    }

    /// Takes bytes off the end again.
    pub(crate) fn take_back(&mut self, len: u64) {
        let kept = (self.len() as u64).saturating_sub(len) as usize;
        self.0.truncate(RECORD_HEAD_LEN + kept);
    }
}
