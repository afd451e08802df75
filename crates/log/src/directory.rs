//! The directory of a log: its lock, its manifest, and the files that count.

use crate::disk::{self, open_regular};
use crate::fault::LogFault;
use crate::manifest::{self, Manifest, Numbered, base_name, number_of, segment_name};
use crate::record::SegmentHead;
use crate::writer::Writer;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The file that the process which has the log has locked.
const LOCK_NAME: &str = "lock";

pub(crate) struct Directory {
    path: PathBuf,
    id: u64,
    /// The files that are on the disk; none before the first base.
    manifest: Option<Manifest>,
    next_number: u64,
    /// Locked as long as it is open. It has a byte once there was a manifest.
    lock: File,
}

impl Directory {
    /// Opens the directory, and removes files that do not count.
    pub(crate) fn open(path: &Path) -> Result<Self, LogFault> {
        if !path.is_dir() {
            return Err(LogFault::NoDirectory(path.into()));
        }
        let lock = lock(path)?;
        let manifest = read_manifest(path)?;
        let id = match &manifest {
            Some(manifest) => manifest.id,
            None => RandomState::new().hash_one(std::process::id()),
        };
        let next_number = manifest.as_ref().map_or(1, Manifest::next_number);
        let directory = Self { path: path.into(), id, manifest, next_number, lock };
        directory.check_files()?;
        Ok(directory)
    }

    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    pub(crate) fn base_path(&self, number: u64) -> PathBuf {
        self.path.join(base_name(number))
    }

    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.path.join(segment_name(number))
    }

    pub(crate) fn head(&self, segment: Numbered) -> SegmentHead {
        SegmentHead { id: self.id, number: segment.number, offset: segment.offset }
    }

    /// A number for a file, which no other has had.
    pub(crate) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Creates a segment, which does not count yet.
    pub(crate) fn create_segment(&mut self, offset: u64) -> Result<(Numbered, Writer), LogFault> {
        let segment = Numbered { number: self.take_number(), offset };
        let writer = Writer::create(self.segment_path(segment.number), self.head(segment))?;
        disk::sync_directory(&self.path)?;
        Ok((segment, writer))
    }

    /// Has a segment count, behind the others.
    pub(crate) fn add_segment(&mut self, segment: Numbered) -> Result<(), LogFault> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let mut manifest = manifest.clone();
        manifest.segments.push(segment);
        self.replace_manifest(manifest)
    }

    /// Has this base and these segments count, and removes all other files.
    pub(crate) fn replace(
        &mut self,
        base: Numbered,
        segments: Vec<Numbered>,
    ) -> Result<(), LogFault> {
        self.replace_manifest(Manifest { id: self.id, base, segments })?;
        self.remove_others();
        Ok(())
    }

    fn replace_manifest(&mut self, manifest: Manifest) -> Result<(), LogFault> {
        disk::replace(&self.path, manifest::NAME, manifest.encode().as_bytes())?;
        if self.manifest.is_none() {
            let noted = self.lock.set_len(1).and_then(|()| self.lock.sync_all());
            noted.map_err(|error| LogFault::io("write", &self.path.join(LOCK_NAME), error))?;
        }
        self.manifest = Some(manifest);
        Ok(())
    }

    /// Removes files that do not count. They take room, and do no other harm.
    pub(crate) fn remove_others(&self) {
        for (path, number) in self.numbered_files() {
            if !self.counts(number) {
                let _ = fs::remove_file(path);
            }
        }
        let _ = fs::remove_file(self.path.join(format!("{}.tmp", manifest::NAME)));
    }

    fn counts(&self, number: u64) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| {
            manifest.base.number == number
                || manifest.segments.iter().any(|segment| segment.number == number)
        })
    }

    /// Looks whether all files are there.
    fn check_files(&self) -> Result<(), LogFault> {
        let Some(manifest) = &self.manifest else {
            if self.lock.metadata().is_ok_and(|lock| lock.len() > 0) {
                return Err(LogFault::NoManifest(self.path.clone()));
            }
            // A process was killed before its first base was whole.
            self.remove_others();
            return Ok(());
        };
        let segments = manifest.segments.iter().map(|segment| self.segment_path(segment.number));
        for path in std::iter::once(self.base_path(manifest.base.number)).chain(segments) {
            if !path.is_file() {
                return Err(LogFault::Missing(path));
            }
        }
        self.remove_others();
        Ok(())
    }

    /// Bytes of some segments.
    pub(crate) fn len_of(&self, segments: &[Numbered]) -> u64 {
        let len = |segment: &Numbered| self.segment_path(segment.number).metadata().ok();
        segments.iter().filter_map(len).map(|metadata| metadata.len()).sum()
    }

    fn numbered_files(&self) -> Vec<(PathBuf, u64)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let numbered = |entry: fs::DirEntry| {
            let number = number_of(entry.file_name().to_str()?)?;
            Some((entry.path(), number))
        };
        entries.filter_map(numbered).collect()
    }
}

fn lock(directory: &Path) -> Result<File, LogFault> {
    let path = directory.join(LOCK_NAME);
    let file = open_regular(&path, OpenOptions::new().write(true).create(true).truncate(false));
    let file = file.map_err(|error| LogFault::io("write", &path, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
            Err(LogFault::InUse(directory.into()))
        }
        Err(error) => Err(LogFault::io("lock", &path, error.into())),
    }
}

fn read_manifest(directory: &Path) -> Result<Option<Manifest>, LogFault> {
    let path = directory.join(manifest::NAME);
    let mut bytes = Vec::new();
    let read = open_regular(&path, OpenOptions::new().read(true))
        .and_then(|file| file.take(manifest::LEN_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LogFault::io("read", &path, error)),
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is no text".to_owned());
    match text.and_then(Manifest::decode) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(what) => Err(LogFault::Manifest { path, what }),
    }
}
