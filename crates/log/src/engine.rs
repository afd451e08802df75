//! The thread of a log.
//!
//! ```text
//!  loading ─► open ◄──────────┐
//!  beginning (a base) ─► open │
//!             open ─► lost ─► beginning: a fault of the disk, or effects that were lost
//!             open ─► open, with a base that is being written: a compaction
//!             open ─► paused ─► beginning: a replica takes a snapshot of its primary
//! ```
//! *Beginning* and a compaction are the same but for what counts meanwhile. In a compaction the
//! manifest has the base before, all segments since, and those behind the cut. At a beginning it
//! has nothing of them until the base is whole.

use crate::base::NewBase;
use crate::directory::Directory;
use crate::fault::LogFault;
use crate::gate::Gate;
use crate::load;
use crate::manifest::Numbered;
use crate::retries::{RETRY_AFTER, Retries};
use crate::settings::{Fsync, Notice, Settings};
use crate::syncing::Syncing;
use crate::writer::Writer;
use keyway_base::Time;
use keyway_store::{Compaction, EffectLimits, EffectReader, Keeping, LogState, Overrun, Store};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of units from which on a record is written. Smaller takes more calls, larger makes
/// workers wait for longer.
const RECORD_LEN: usize = 256 << 10;
/// Records that are written before it is looked at the time.
const RECORDS_MAX: usize = 64;
/// How long the thread rests while there is something to write. Longer makes larger records, and
/// loses more when the process is killed.
const REST: Duration = Duration::from_millis(5);
/// How long it rests while there is nothing. A worker wakes it.
const IDLE_REST: Duration = Duration::from_millis(100);
/// Rounds with nothing to write from which on it is idle.
const IDLE_ROUNDS: u32 = 20;
/// When a compaction that failed is tried again.
const COMPACT_AFTER: Duration = Duration::from_secs(60);
/// How often it is looked whether the first base is whole.
const BASE_REST: Duration = Duration::from_millis(1);

/// The units that the store tells, and the files they go to.
pub(crate) struct Following {
    reader: EffectReader,
    pub(crate) writer: Writer,
    /// The segments since the cut of the base that is being written, or of the last one.
    segments: Vec<Numbered>,
    /// Bytes of those that are complete.
    complete_len: u64,
    /// True if the manifest has them.
    is_listed: bool,
    base: Option<Rebase>,
    /// Units below this number are written.
    told: u64,
    /// When the oldest write that is not on the disk was made.
    pub(crate) unsynced_since: Option<Time>,
}

/// A base that is being written.
struct Rebase {
    file: NewBase,
    base: Numbered,
    began: Time,
}

pub(crate) struct Engine {
    store: Arc<Store>,
    pub(crate) settings: Settings,
    directory: Directory,
    pub(crate) gate: Arc<Gate>,
    pub(crate) following: Option<Following>,
    pub(crate) syncing: Syncing,
    /// The offset of the log behind all that was written.
    offset: u64,
    base_len: u64,
    retries: Retries,
    compact_at: Time,
    idle_rounds: u32,
    is_compaction_asked: bool,
    /// The data is being replaced: nothing is followed.
    is_paused: bool,
    /// The data was replaced, and is not in the log yet.
    is_replaced: bool,
    /// A thread has had the engine: what there was to load is loaded.
    has_run: bool,
    /// Clients are served while the first base is written, which is to be told.
    is_told_of_base: bool,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<Store>,
        settings: Settings,
        directory: Directory,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            store,
            settings,
            directory,
            gate,
            following: None,
            syncing: Syncing::default(),
            offset: 0,
            base_len: 0,
            retries: Retries::new(),
            compact_at: Time(0),
            idle_rounds: 0,
            is_compaction_asked: false,
            is_paused: false,
            is_replaced: false,
            is_told_of_base: false,
            has_run: false,
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.directory.manifest().is_some()
    }

    pub(crate) fn now(&self) -> Time {
        (self.settings.monotonic)()
    }

    fn limits(&self) -> EffectLimits {
        EffectLimits { room: self.settings.effects_room, history: 0 }
    }

    /// Begins without a thread, and waits for the first base.
    pub(crate) fn begin_now(&mut self) -> Result<(), LogFault> {
        if self.has_data() {
            return Ok(());
        }
        if self.store.is_loading() {
            // Until there is a base, a restart finds what the snapshot has, and nothing that is
            // written.
            self.store.refuse_writes(self.settings.fsync == Fsync::Always);
            self.is_told_of_base = true;
            return Ok(());
        }
        self.await_base()
    }

    /// Begins, unless that was begun before, and waits for the base.
    fn await_base(&mut self) -> Result<(), LogFault> {
        while !self.is_open() {
            match &self.following {
                None => self.begin()?,
                Some(_) => self.step()?,
            }
            std::thread::park_timeout(BASE_REST);
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.following.as_ref().is_some_and(|following| following.is_listed)
    }

    /// The thread. Returns the engine once it has ended behind all that was told.
    pub(crate) fn run(mut self) -> Option<Self> {
        let _over = SaysOver(Arc::clone(&self.gate));
        let is_first = !std::mem::replace(&mut self.has_run, true);
        if is_first
            && self.has_data()
            && !self.is_open()
            && self.gate.status_mut().state != LogState::Lost
        {
            if let Err(fault) = self.load() {
                match fault {
                    LogFault::Ends => {}
                    fault => (self.settings.notify)(Notice::CannotLoad(fault)),
                }
                return None;
            }
            if !self.store.is_replica() {
                // Clients write from here on.
                self.store.leave_history();
            }
            self.store.end_loading();
        }
        loop {
            let step = match &self.following {
                Some(_) => self.step(),
                None => self.try_begin(),
            };
            if let Err(fault) = step {
                self.lose(fault);
            }
            self.note_status();
            let orders = self.rest();
            self.is_compaction_asked |= orders.compacts;
            if orders.is_ending {
                self.end();
                return Some(self);
            }
            self.follow_pause(orders.pauses);
        }
    }

    /// Stops taking units before the data is replaced, or lets the log begin anew.
    fn follow_pause(&mut self, pauses: bool) {
        if pauses == self.is_paused {
            return;
        }
        self.is_paused = pauses;
        if pauses {
            if let Err(fault) = self.settle() {
                self.lose(fault);
            }
            // What is written from here on is not in the log until it has begun anew.
            self.store.refuse_writes(self.settings.fsync == Fsync::Always);
            self.following = None;
            let mut status = self.gate.status_mut();
            if status.state == LogState::Open {
                status.state = LogState::Loading;
            }
        }
        self.is_replaced = !pauses;
        self.retries.hurry();
        self.gate.set_paused(pauses);
    }

    fn load(&mut self) -> Result<(), LogFault> {
        let loaded = load::load(&self.store, &self.directory, &self.settings, &self.gate)?;
        self.base_len = loaded.base_len;
        // Nobody is served, and nothing expires: the cut is at the end of what was loaded.
        let reader = self.store.follow(self.limits(), Keeping::All, |_| ());
        let mut following = self.write_from(reader, loaded.offset)?;
        for segment in &following.segments {
            self.directory.add_segment(*segment)?;
        }
        following.is_listed = true;
        following.complete_len = loaded.segments_len;
        let told = following.reader.told().map_err(lost)?;
        self.following = Some(following);
        self.gate.open(told);
        Ok(())
    }

    /// Writes what a reader gets to a new segment, which begins at an offset of the log.
    fn write_from(&mut self, reader: EffectReader, offset: u64) -> Result<Following, LogFault> {
        self.offset = offset;
        let (segment, writer) = self.directory.create_segment(offset)?;
        Ok(Following {
            reader,
            writer,
            segments: vec![segment],
            complete_len: 0,
            is_listed: false,
            base: None,
            told: 0,
            unsynced_since: None,
        })
    }

    /// Begins anew when it is time.
    fn try_begin(&mut self) -> Result<(), LogFault> {
        match self.is_paused || !self.retries.is_due(self.now()) || self.store.is_loading() {
            true => Ok(()),
            false => self.begin(),
        }
    }

    /// Begins with a base of what the store holds now.
    fn begin(&mut self) -> Result<(), LogFault> {
        self.directory.remove_others();
        self.retries.begin(self.now());
        let Some((reader, base)) = self.cut()? else {
            self.retries.put_off(self.now());
            return Ok(());
        };
        let mut following = self.write_from(reader, self.offset)?;
        following.base = Some(base);
        self.following = Some(following);
        if self.is_told_of_base {
            let refuses = self.store.refuses_writes();
            (self.settings.notify)(Notice::Beginning { refuses });
        }
        Ok(())
    }

    /// Makes the cut of a base, and begins to write it; none while a snapshot is written, or a
    /// script runs.
    fn cut(&mut self) -> Result<Option<(EffectReader, Rebase)>, LogFault> {
        if self.store.has_script() {
            // A worker that waits for the log would wait for the script.
            return Ok(None);
        }
        let (clock, buffer) = ((self.settings.wall_clock)(), self.settings.snapshot_buffer);
        let cut = self.store.follow_with_snapshot(self.limits(), Keeping::All, clock, buffer);
        let Some((reader, saving)) = cut else { return Ok(None) };
        let number = self.directory.take_number();
        let file = NewBase::begin(self.directory.base_path(number), saving, &self.settings)?;
        self.gate.status_mut().compaction_began = clock.unix_millis() / 1000;
        let base = Numbered { number, offset: 0 };
        Ok(Some((reader, Rebase { file, base, began: self.now() })))
    }

    /// Writes what there is, sees to the disk, and to the base that is being written.
    fn step(&mut self) -> Result<(), LogFault> {
        let is_idle = !self.drain()?;
        self.idle_rounds = if is_idle { self.idle_rounds.saturating_add(1) } else { 0 };
        self.sync_due()?;
        self.publish()?;
        self.rotate()?;
        self.settle_base()?;
        self.compact_if_worth()
    }

    /// Writes what there is; whether there was something.
    fn drain(&mut self) -> Result<bool, LogFault> {
        let now = self.now();
        let Some(following) = &mut self.following else { return Ok(false) };
        let mut has_any = false;
        for _ in 0..RECORDS_MAX {
            let is_over = following.fill()?;
            let written = following.writer.write()?;
            if written > 0 {
                has_any = true;
                following.unsynced_since.get_or_insert(now);
                self.offset = following.writer.offset();
                let mut status = self.gate.status_mut();
                status.written += written as u64;
                status.records += 1;
            }
            if is_over {
                break;
            }
            self.gate.note_room();
        }
        following.told = following.reader.told().map_err(lost)?;
        Ok(has_any)
    }

    /// Lets workers go whose units are where they are to be.
    fn publish(&mut self) -> Result<(), LogFault> {
        let Some(following) = &self.following else { return Ok(()) };
        if following.is_listed {
            self.gate.note_done(following.told);
        }
        Ok(())
    }

    /// Begins another segment if this one is long.
    fn rotate(&mut self) -> Result<(), LogFault> {
        let segment_len = self.settings.segment_len;
        match &self.following {
            Some(following) if following.writer.len() >= segment_len => {}
            _ => return Ok(()),
        }
        match self.is_nearly_synced()? {
            true => self.next_segment(),
            false => Ok(()),
        }
    }

    fn next_segment(&mut self) -> Result<(), LogFault> {
        self.sync()?;
        let (segment, writer) = self.directory.create_segment(self.offset)?;
        let Some(following) = &mut self.following else { return Ok(()) };
        if following.is_listed {
            self.directory.add_segment(segment)?;
        }
        following.complete_len += following.writer.len();
        following.segments.push(segment);
        following.writer = writer;
        Ok(())
    }

    /// Begins a compaction if it is worth its while, or was asked for.
    fn compact_if_worth(&mut self) -> Result<(), LogFault> {
        let now = self.now();
        let Some(following) = &self.following else { return Ok(()) };
        let len = following.complete_len + following.writer.len();
        let is_worth = len >= self.settings.compact_from.max(self.base_len);
        let is_due = is_worth && now >= self.compact_at || self.is_compaction_asked;
        if !is_due || following.base.is_some() || !following.is_listed {
            return Ok(());
        }
        if !self.is_nearly_synced()? {
            return Ok(());
        }
        let Some((reader, base)) = self.cut_for_compaction()? else { return Ok(()) };
        self.is_compaction_asked = false;
        self.switch(reader, base)
    }

    /// As [`Engine::cut`]. If no base can be begun, the log goes on as it is.
    fn cut_for_compaction(&mut self) -> Result<Option<(EffectReader, Rebase)>, LogFault> {
        match self.cut() {
            Ok(Some(cut)) => Ok(Some(cut)),
            Ok(None) => {
                self.compact_at = self.now() + RETRY_AFTER;
                Ok(None)
            }
            Err(fault) => {
                self.not_compacted(fault);
                Ok(None)
            }
        }
    }

    /// Goes on with the reader of a cut: what is behind the cut goes to a segment of its own.
    fn switch(&mut self, reader: EffectReader, mut base: Rebase) -> Result<(), LogFault> {
        let cut = reader.start();
        loop {
            let Some(following) = &mut self.following else { return Ok(()) };
            let is_complete = following.fill_up_to(cut)?;
            following.writer.write()?;
            self.offset = following.writer.offset();
            if is_complete {
                break;
            }
        }
        self.sync()?;
        let Some(before) = &self.following else { return Ok(()) };
        let complete_len = before.complete_len + before.writer.len();
        let told = before.told;
        let mut following = self.write_from(reader, self.offset)?;
        for segment in &following.segments {
            self.directory.add_segment(*segment)?;
        }
        base.base.offset = self.offset;
        following.is_listed = true;
        following.told = told;
        following.complete_len = complete_len;
        following.base = Some(base);
        self.following = Some(following);
        Ok(())
    }

    /// Puts a base into its place once it is whole.
    fn settle_base(&mut self) -> Result<(), LogFault> {
        let is_over =
            |following: &Following| following.base.as_ref().is_some_and(|base| base.file.is_over());
        if !self.following.as_ref().is_some_and(is_over) || !self.is_nearly_synced()? {
            return Ok(());
        }
        let Some(following) = &mut self.following else { return Ok(()) };
        let Some(outcome) = following.base.as_mut().and_then(|base| base.file.outcome()) else {
            return Ok(());
        };
        let Some(base) = following.base.take() else { return Ok(()) };
        let len = match outcome {
            Ok(len) => len,
            Err(fault) if following.is_listed => {
                // It takes room, and does no other harm.
                let _ = fs::remove_file(self.directory.base_path(base.base.number));
                self.not_compacted(fault);
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        self.take_base(base, len)
    }

    fn take_base(&mut self, base: Rebase, len: u64) -> Result<(), LogFault> {
        // The writes behind the cut are on the disk before the base replaces those in front of it.
        self.sync()?;
        let took = self.now().since(base.began);
        let Some(following) = &mut self.following else { return Ok(()) };
        let segments = following.segments.clone();
        let offset = segments.first().map_or(0, |first| first.offset);
        self.directory.replace(Numbered { offset, ..base.base }, segments)?;
        let was_listed = std::mem::replace(&mut following.is_listed, true);
        following.complete_len =
            self.directory.len_of(&following.segments[..following.segments.len() - 1]);
        self.base_len = len;
        {
            let mut status = self.gate.status_mut();
            status.compactions += 1;
            status.last_compaction_failed = false;
            status.last_compaction_seconds = Some(took.as_secs());
        }
        if was_listed {
            (self.settings.notify)(Notice::Compacted { base_len: len, took });
            return Ok(());
        }
        // All units that were told until now are written and on the disk.
        self.retries.succeed();
        self.is_compaction_asked = false;
        self.gate.open(following.told);
        let has_failed = self.gate.status_mut().state == LogState::Lost;
        self.gate.status_mut().state = LogState::Open;
        self.store.refuse_writes(false);
        let is_replaced = std::mem::take(&mut self.is_replaced);
        let is_first = std::mem::take(&mut self.is_told_of_base);
        if has_failed {
            (self.settings.notify)(Notice::Healed);
        } else if is_replaced {
            (self.settings.notify)(Notice::Replaced { base_len: len, took });
        } else if is_first {
            (self.settings.notify)(Notice::Begun { base_len: len, took });
        }
        Ok(())
    }

    fn not_compacted(&mut self, fault: LogFault) {
        self.is_compaction_asked = false;
        self.compact_at = self.now() + COMPACT_AFTER;
        {
            let mut status = self.gate.status_mut();
            status.compactions_failed += 1;
            status.last_compaction_failed = true;
            status.last_fault = fault.to_string();
        }
        (self.settings.notify)(Notice::NotCompacted(fault));
    }

    /// The log has lost writes, or will: it takes none until it has begun anew.
    fn lose(&mut self, fault: LogFault) {
        let refuses = self.settings.fsync == Fsync::Always;
        // Writes are refused from here on, or their workers learn of the loss behind them.
        self.store.refuse_writes(refuses);
        let following = self.following.take();
        let now = self.now();
        let is_attempt = following.as_ref().is_some_and(|following| !following.is_listed);
        let after = self.retries.fail(now, is_attempt);
        let is_first = {
            let mut status = self.gate.status_mut();
            let is_first = std::mem::replace(&mut status.state, LogState::Lost) != LogState::Lost;
            status.losses += u64::from(is_first);
            status.failed_attempts += u64::from(!is_first);
            status.last_compaction_failed |= is_attempt;
            status.last_fault = fault.to_string();
            is_first
        };
        let is_to_tell = self.retries.is_to_tell(now, is_first);
        match is_first {
            true => (self.settings.notify)(Notice::Failed { fault, refuses }),
            false if is_to_tell => (self.settings.notify)(Notice::NotBegun { fault, after }),
            false => {}
        }
        self.gate.lose();
        // Only now: without a reader nothing is told, and nobody waits for it.
        drop(following);
        // A part of a base takes room that the next attempt, and other programs, may need.
        self.directory.remove_others();
    }

    fn note_status(&self) {
        let has_base = self.following.as_ref().is_some_and(|following| following.base.is_some());
        self.gate.note_compaction(match (has_base, self.is_compaction_asked) {
            (true, _) => Compaction::Running,
            (false, true) => Compaction::Scheduled,
            (false, false) => Compaction::Idle,
        });
        let mut status = self.gate.status_mut();
        let Some(following) = &self.following else { return };
        if status.state == LogState::Loading && following.is_listed {
            status.state = LogState::Open;
        }
        status.base_len = self.base_len;
        status.segments_len = following.complete_len + following.writer.len();
        status.is_unsynced = following.writer.is_unsynced();
    }

    /// Waits until there is something to do.
    fn rest(&self) -> crate::gate::Orders {
        let is_idle = self.idle_rounds >= IDLE_ROUNDS;
        let (done, time) = match &self.following {
            None => (u64::MAX, RETRY_AFTER.min(IDLE_REST)),
            Some(following) if following.base.is_some() => (following.told, REST),
            Some(following) if is_idle => (following.told, IDLE_REST),
            Some(following) => (following.told, REST),
        };
        self.gate.await_work(done, time, is_idle)
    }

    /// Ends behind all that was told.
    fn end(&mut self) {
        if self.store.is_loading() {
            return;
        }
        if let Err(fault) = self.finish() {
            self.lose(fault);
        }
        self.note_status();
    }

    /// Has the log end in an empty segment, which says at which offset another process goes on.
    /// All that was told is on the disk.
    pub(crate) fn close(&mut self) -> Result<(), LogFault> {
        if !self.is_open() {
            return Err(LogFault::Lost("the log has not begun, or has failed and begins anew"));
        }
        if let Some(following) = &mut self.following {
            // A base that is being written is given up.
            following.base = None;
        }
        self.next_segment()
    }

    /// Goes on with a log that was closed, whose data the store holds. Nobody uses the store, and
    /// nothing expires in it.
    pub(crate) fn go_on(&mut self) -> Result<(), LogFault> {
        let Some(manifest) = self.directory.manifest() else {
            return Err(LogFault::Lost("the process before has left no log"));
        };
        let (base, segments) = (manifest.base, manifest.segments.clone());
        let last = segments.last().copied();
        let Some(last) = last.filter(|last| self.directory.is_empty(*last)) else {
            return Err(LogFault::Lost("the process before has not ended its log"));
        };
        self.base_len =
            self.directory.base_path(base.number).metadata().map_or(0, |file| file.len());
        let segments_len = self.directory.len_of(&segments);
        let reader = self.store.follow(self.limits(), Keeping::All, |_| ());
        let mut following = self.write_from(reader, last.offset)?;
        for segment in &following.segments {
            self.directory.add_segment(*segment)?;
        }
        following.is_listed = true;
        following.complete_len = segments_len;
        following.told = following.reader.told().map_err(lost)?;
        let told = following.told;
        self.following = Some(following);
        self.gate.status_mut().state = LogState::Open;
        self.gate.open(told);
        Ok(())
    }

    /// Writes all that was told, and puts it on the disk.
    fn finish(&mut self) -> Result<(), LogFault> {
        self.await_base()?;
        self.settle()
    }

    /// Writes all that was told, and puts it on the disk with a mark that says so.
    fn settle(&mut self) -> Result<(), LogFault> {
        while self.drain()? {}
        self.sync()?;
        if let Some(following) = &mut self.following {
            following.writer.mark_synced()?;
        }
        self.publish()
    }
}

/// Says that the thread has ended, however it does.
struct SaysOver(Arc<Gate>);

impl Drop for SaysOver {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Following {
    /// Adds to the next record what was told; whether that is all.
    fn fill(&mut self) -> Result<bool, LogFault> {
        let mut units = self.writer.units();
        while units.len() < RECORD_LEN {
            if self.reader.read(units.bytes()).map_err(lost)? == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same, up to an offset of the reader; whether it is reached.
    fn fill_up_to(&mut self, cut: u64) -> Result<bool, LogFault> {
        self.fill()?;
        let behind = self.reader.offset().map_err(lost)?.saturating_sub(cut);
        self.writer.units().take_back(behind);
        Ok(self.reader.offset().map_err(lost)? >= cut)
    }
}

fn lost(_: Overrun) -> LogFault {
    LogFault::Lost(
        "more was written at once than the log has room for in memory, or a write was in flight \
         at its cut; raise `buffer` if this comes back",
    )
}
