//! Loading a store from its log.

use crate::directory::Directory;
use crate::fault::LogFault;
use crate::gate::Gate;
use crate::segment::{Cut, Segment};
use crate::settings::{Functions, Notice, Settings};
use keyway_base::Time;
use keyway_store::{Loading, Replay, Store};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the base that are read at once.
const READ_LEN: usize = 1 << 20;
/// How often it is told how far loading is.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// The outcome of loading.
pub(crate) struct Loaded {
    /// The offset of the stream behind the last record.
    pub(crate) offset: u64,
    pub(crate) base_len: u64,
    pub(crate) segments_len: u64,
}

/// Loads the store with what the manifest names. The last segment is cut behind its last whole
/// record.
pub(crate) fn load(
    store: &Arc<Store>,
    directory: &Directory,
    settings: &Settings,
    gate: &Gate,
) -> Result<Loaded, LogFault> {
    let began = (settings.monotonic)();
    let (read, len) = (0, len_of(directory)?);
    let mut loader =
        Loader { store, directory, settings, gate, began, told: began, read, len, keys: 0 };
    loader.base()?;
    let base_len = loader.read;
    let replay = loader.segments()?;
    let (count, first) = replay.refused();
    let took = (settings.monotonic)().since(began);
    (settings.notify)(Notice::Loaded {
        keys: loader.keys,
        commands: replay.commands(),
        refused: (count, first.map(str::to_owned)),
        took,
    });
    let segments_len = loader.len - base_len;
    Ok(Loaded { offset: replay.offset(), base_len, segments_len })
}

/// Bytes of all files that count.
pub(crate) fn len_of(directory: &Directory) -> Result<u64, LogFault> {
    let Some(manifest) = directory.manifest() else { return Ok(0) };
    let segments = manifest.segments.iter().map(|segment| directory.segment_path(segment.number));
    let mut len = 0;
    for path in std::iter::once(directory.base_path(manifest.base.number)).chain(segments) {
        let metadata = path.metadata().map_err(|error| LogFault::io("read", &path, error))?;
        len += metadata.len();
    }
    Ok(len)
}

struct Loader<'l> {
    store: &'l Arc<Store>,
    directory: &'l Directory,
    settings: &'l Settings,
    gate: &'l Gate,
    began: Time,
    told: Time,
    /// Bytes that were read, of so many.
    read: u64,
    len: u64,
    keys: u64,
}

impl Loader<'_> {
    fn base(&mut self) -> Result<(), LogFault> {
        let Some(manifest) = self.directory.manifest() else { return Ok(()) };
        let path = self.directory.base_path(manifest.base.number);
        let failed = |error| LogFault::io("read", &path, error);
        let refused = |what: String| LogFault::Base { path: path.clone(), what };
        let mut file = File::open(&path).map_err(failed)?;
        let mut loading = Loading::of_base(self.store);
        let functions = Arc::clone(&self.settings.functions);
        let mut library = |code: &[u8]| functions.load(code);
        let mut buffer = vec![0; READ_LEN];
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            let clock = (self.settings.wall_clock)();
            let fed = loading.feed(&buffer[..count], clock, &mut library);
            fed.map_err(|error| refused(error.to_string()))?;
            self.read += count as u64;
            self.keys = self.store.snapshot_status().load_keys;
            self.tell(0)?;
        }
        let (keys, _) = loading.finish().map_err(|error| refused(error.to_string()))?;
        self.keys = keys;
        Ok(())
    }

    fn segments(&mut self) -> Result<Replay, LogFault> {
        let directory = self.directory;
        let segments = directory.manifest().map_or(&[][..], |manifest| &manifest.segments);
        let offset = segments.first().map_or(0, |first| first.offset);
        let mut replay = Replay::new(self.store, offset);
        for (index, numbered) in segments.iter().enumerate() {
            let path = directory.segment_path(numbered.number);
            let next = segments.get(index + 1).map(|next| next.offset);
            let mut segment = Segment::open(&path, directory.head(*numbered), next.is_none())?;
            self.replay(&mut segment, &path, &mut replay)?;
            let cut = segment.end()?;
            if let Some(next) = next.filter(|next| *next != segment.offset()) {
                let ends = segment.offset();
                return Err(LogFault::Gap { path: path.clone(), ends, next });
            }
            if let Some(cut) = cut {
                self.cut(path.clone(), cut)?;
            }
        }
        Ok(replay)
    }

    fn replay(
        &mut self,
        segment: &mut Segment<'_>,
        path: &std::path::Path,
        replay: &mut Replay,
    ) -> Result<(), LogFault> {
        let functions: Arc<dyn Functions> = Arc::clone(&self.settings.functions);
        let before = self.read;
        while let Some(units) = segment.next()? {
            let clock = (self.settings.wall_clock)();
            let applied = replay.apply(units, clock, &mut |words| functions.execute(words));
            if let Err(error) = applied {
                let (at, what) = (segment.position(), error.to_string());
                return Err(LogFault::Units { path: path.into(), at, what });
            }
            self.read = before + segment.position();
            self.tell(replay.commands())?;
        }
        self.read = before + segment.position();
        Ok(())
    }

    /// Cuts the torn tail of the last segment.
    fn cut(&mut self, path: PathBuf, cut: Cut) -> Result<(), LogFault> {
        let file = OpenOptions::new().write(true).open(&path);
        let done = file.and_then(|file| file.set_len(cut.at).and_then(|()| file.sync_all()));
        done.map_err(|error| LogFault::io("cut", &path, error))?;
        self.len -= cut.len;
        (self.settings.notify)(Notice::TornTail { path, cut });
        Ok(())
    }

    /// Tells how far it is, and ends if the process does.
    fn tell(&mut self, commands: u64) -> Result<(), LogFault> {
        let expired = 0;
        self.store.note_loaded(self.read, self.keys, expired);
        let now = (self.settings.monotonic)();
        if now.since(self.told) >= TOLD_EVERY {
            self.told = now;
            let (percent, keys) = (self.read * 100 / self.len.max(1), self.keys);
            let took = now.since(self.began);
            (self.settings.notify)(Notice::Loading { percent, keys, commands, took });
        }
        match self.gate.is_ending() {
            true => Err(LogFault::Ends),
            false => Ok(()),
        }
    }
}
