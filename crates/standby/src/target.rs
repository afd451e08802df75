//! The store as the target of a follower.

use crate::absolute::absolute;
use crate::audience::Audience;
use crate::beside;
use crate::lineage::Lineage;
use keyway_base::{Clock, Time};
use keyway_command::{Args, Refusal, Request, Verb};
use keyway_rdb::Event;
use keyway_rdb::replication::ReplicationId;
use keyway_replica::{Origin, Position, Remains, System, Target, TargetError, Unit, UnitCommand};
use keyway_resp::Protocol;
use keyway_script::Registry;
use keyway_store::{
    Context, Filling, Footprint, HISTORY_COMMAND, Held, HistoryPlace, LoadError, NO_WORKER, Store,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of events that wait for a worker at most. The follower reads no more from the primary
/// beyond that. More takes memory while workers are busy.
const EVENTS_LEN_MAX: usize = 4 << 20;
/// How long the follower rests before it looks again at what it waits for.
const REST: Duration = Duration::from_millis(1);
/// Units between two looks at whether the store still has room.
const UNITS_PER_LOOK: u32 = 256;
/// Bytes of the stream between two looks. More may lie above `memory_max` before it is noticed.
const BYTES_PER_LOOK: u64 = 256 << 10;
/// Bytes of the stream without a command after which the place in it is noted. More may be asked for
/// again after a restart.
const PASSED_LEN_MAX: u64 = 16 << 10;
/// Bytes of a refused command's name and error that are kept.
const SHOWN_MAX: usize = 200;

/// Counts of a target that others read.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Commands of the stream that failed.
    pub(crate) failed: AtomicU64,
    /// Commands of the stream that were executed.
    pub(crate) applied: AtomicU64,
    /// A snapshot replaces the data, and is not whole.
    pub(crate) is_filling: AtomicBool,
    /// The follower is to stop, or the target to wait no longer.
    pub(crate) is_ending: AtomicBool,
}

/// The objects that a target changes.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) store: Arc<Store>,
    pub(crate) scripts: Arc<Registry>,
    pub(crate) audience: Arc<dyn Audience>,
    pub(crate) clock: fn() -> Clock,
    pub(crate) counts: Arc<Counts>,
    pub(crate) lineage: Arc<Lineage>,
    pub(crate) system: Arc<dyn System>,
}

/// Applies a primary's snapshot and stream to a store.
pub(crate) struct StoreTarget {
    place: Place,
    filling: Option<Filling>,
    /// The primary is the store of the process that this one replaces.
    is_twin: bool,
    reply: Vec<u8>,
    unlooked: u32,
    /// Bytes of the stream since the last look.
    unlooked_len: u64,
}

impl StoreTarget {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            filling: None,
            is_twin: false,
            reply: Vec::new(),
            unlooked: 0,
            unlooked_len: 0,
        }
    }

    /// Of a store that takes over from that of another process.
    pub(crate) fn of_twin(place: Place) -> Self {
        Self { is_twin: true, ..Self::new(place) }
    }

    fn now(&self) -> Time {
        (self.place.clock)().now
    }

    fn context(&self, database: u32) -> Context {
        let (clock, protocol) = ((self.place.clock)(), Protocol::default());
        Context { database, clock, protocol, worker: NO_WORKER }
    }

    /// Empties the store and the pool's functions.
    fn clear(&self) {
        self.place.store.clear((self.place.clock)());
        self.place.scripts.flush_libraries();
        self.place.audience.changed();
    }

    /// Holds the shards of all commands of a unit.
    fn hold<'s>(&self, store: &'s Store, unit: &Unit<'_>) -> Result<Held<'s>, TargetError> {
        loop {
            let mut footprint = Footprint::default();
            for command in unit.commands() {
                footprint.add_effect(store, args_of(&command));
            }
            match store.hold(footprint.of_effects(), self.context(0)) {
                Ok(held) => return Ok(held),
                // A script that runs for long holds some of them; it ends at its limit.
                Err(_) if !self.place.counts.is_ending.load(Ordering::Relaxed) => {
                    self.place.system.sleep(REST)
                }
                Err(_) => return Err(TargetError::stop("the replica stops")),
            }
        }
    }

    /// Looks whether the store can execute all commands of a unit, before the first of them.
    fn check(&self, unit: &Unit<'_>) -> Result<(), TargetError> {
        unit.commands().try_for_each(|command| {
            let databases = self.place.store.config().databases;
            if command.database() >= u64::from(databases) {
                return Err(TargetError::stop(&format!(
                    "the primary uses database {}, and the pool has {databases} databases: raise \
                     `databases`",
                    command.database()
                )));
            }
            let args = args_of(&command);
            if self.place.store.applies(args) || self.passes_over(args) {
                return Ok(());
            }
            match Request::resolve(args) {
                Ok(request) if beside::serves(request.command.verb) => Ok(()),
                // Redis answers a wrong number of arguments with an error, and goes on.
                Err(Refusal::Arity(_)) => Ok(()),
                Ok(Request { command, .. })
                    if matches!(command.verb, Verb::Eval | Verb::Evalsha | Verb::Fcall) =>
                {
                    Err(TargetError::stop(
                        "the primary replicates scripts and not what they write: set \
                         `lua-replicate-commands yes` there",
                    ))
                }
                _ => Err(TargetError::stop(&format!(
                    "offset {}: the store does not have the command '{}' that the primary has \
                     executed",
                    unit.start(),
                    shown(args.get(0).unwrap_or_default())
                ))),
            }
        })
    }

    fn execute_all(&mut self, store: &Store, unit: &Unit<'_>) -> Result<(), TargetError> {
        let count = unit.commands().len();
        let keeps_history = store.keeps_history() && !self.is_twin;
        let _held = match count {
            0 => return Ok(()),
            1 if !keeps_history => None,
            _ => Some(self.hold(store, unit)?),
        };
        unit.commands().for_each(|command| self.execute(&command));
        if keeps_history {
            store.set_history_place(place_of(unit.behind()));
        }
        Ok(())
    }

    /// Returns whether a command is for the log of the process before alone.
    fn passes_over(&self, args: Args<'_>) -> bool {
        self.is_twin && args.get(0) == Some(HISTORY_COMMAND)
    }

    fn execute(&mut self, command: &UnitCommand<'_>) {
        let args = args_of(command);
        if self.passes_over(args) {
            return;
        }
        self.place.counts.applied.fetch_add(1, Ordering::Relaxed);
        let request = Request::resolve(args);
        if let Ok(request) = &request
            && beside::serves(request.command.verb)
        {
            return self.execute_beside(request);
        }
        let context = self.context(command.database() as u32);
        let rewritten = request.ok().and_then(|it| absolute(&it, context.clock.unix_millis()));
        let args = rewritten.as_ref().map_or(args, |words| words.args());
        self.reply.clear();
        let mut reply = std::mem::take(&mut self.reply);
        match self.place.store.apply(args, context, &mut reply) {
            Ok(()) if reply.first() == Some(&b'-') => self.note_failed(args, &reply[1..]),
            Ok(()) => {}
            Err(_) => self.note_failed(args, b"ERR wrong number of arguments"),
        }
        self.reply = reply;
        // A reply may be a whole collection.
        self.reply.shrink_to(64 << 10);
    }

    /// Executes a command that is not about keys. What it does to functions is told to the log.
    fn execute_beside(&self, request: &Request<'_>) {
        let Place { store, scripts, audience, .. } = &self.place;
        let mut outcome = Ok(());
        let mut execute = || {
            outcome = beside::execute(request, scripts, &**audience, self.now());
            outcome.is_ok()
        };
        if beside::is_of_functions(request.command.verb) {
            let words: Vec<&[u8]> = request.args.from(0).collect();
            store.tell_beside(&words, execute);
        } else {
            execute();
        }
        if let Err(text) = outcome {
            self.note_failed(request.args, text.as_bytes());
        }
    }

    /// A unit without a command has passed.
    fn pass(&self, unit: &Unit<'_>) {
        let store = &self.place.store;
        let is_far = |place: HistoryPlace| unit.end().saturating_sub(place.offset) > PASSED_LEN_MAX;
        if store.history_place().is_some_and(is_far) {
            store.set_history_place(place_of(unit.behind()));
        }
    }

    /// Waits while the log, or the copy for the next process, has no room for more.
    fn await_room(&self) {
        let Place { store, counts, system, .. } = &self.place;
        let is_full = || store.effects_are_full() && !counts.is_ending.load(Ordering::Relaxed);
        match store.log() {
            Some(log) if is_full() => log.await_room(&is_full),
            _ => {
                while is_full() {
                    system.sleep(REST);
                }
            }
        }
    }

    #[cold]
    fn note_failed(&self, args: Args<'_>, error: &[u8]) {
        self.place.counts.failed.fetch_add(1, Ordering::Relaxed);
        let name = shown(args.get(0).unwrap_or_default());
        self.place.audience.failed(&name, &shown(error));
    }

    /// Has clients be told of what has changed, and waits while they have much to be told.
    fn tell(&self) {
        if !self.place.store.notifies() {
            return;
        }
        if self.is_twin {
            // The clients of the process before were told there, and nobody else is here yet.
            return self.place.store.take_events(NO_WORKER, &mut Vec::new());
        }
        self.place.audience.changed();
        while self.place.store.untaken_len(NO_WORKER) > EVENTS_LEN_MAX
            && !self.place.counts.is_ending.load(Ordering::Relaxed)
        {
            self.place.system.sleep(REST);
        }
    }

    /// Looks now and then whether there is room for a unit of `len` bytes.
    fn check_room(&mut self, len: u64) -> Result<(), TargetError> {
        self.unlooked += 1;
        self.unlooked_len = self.unlooked_len.saturating_add(len);
        if self.unlooked < UNITS_PER_LOOK && self.unlooked_len < BYTES_PER_LOOK {
            return Ok(());
        }
        (self.unlooked, self.unlooked_len) = (0, 0);
        self.look_for_room(len)
    }

    fn look_for_room(&self, len: u64) -> Result<(), TargetError> {
        match self.place.store.is_over_full_with(len) {
            false => Ok(()),
            true => Err(TargetError::stop(
                "the data of the primary has outgrown the pool's memory_max: raise it above the \
                 primary's maxmemory",
            )),
        }
    }
}

impl Target for StoreTarget {
    fn begin_snapshot(&mut self, origin: &Origin) -> Result<(), TargetError> {
        let Place { store, counts, clock, .. } = &self.place;
        // A snapshot that is being written would hold all that is removed, beside what comes.
        store.give_up_snapshot();
        while store.is_saving() && !counts.is_ending.load(Ordering::Relaxed) {
            self.place.system.sleep(REST);
        }
        // Until the snapshot is whole, a restart finds what the store holds now.
        store.log().into_iter().for_each(|log| log.pause());
        store.leave_history();
        store.begin_loading(origin.len.unwrap_or(0), clock());
        if !self.is_twin {
            self.place.lineage.begin_snapshot();
        }
        counts.is_filling.store(true, Ordering::Relaxed);
        self.clear();
        self.filling = Some(match self.is_twin {
            true => Filling::of_twin(store),
            false => Filling::new(store),
        });
        Ok(())
    }

    fn take(&mut self, event: Event<'_>) -> Result<(), TargetError> {
        let Place { scripts, clock, .. } = &self.place;
        let Some(filling) = &mut self.filling else { return Ok(()) };
        let clock = clock();
        let mut library = |code: &[u8]| beside::load_library(scripts, code, clock.now);
        filling.take(event, clock, &mut library).map_err(|error| {
            TargetError::stop(&format!("the snapshot of the primary: {}", fault(&error)))
        })
    }

    fn end_snapshot(&mut self, position: Position) -> Result<(), TargetError> {
        let store = &self.place.store;
        if let Some(filling) = self.filling.take() {
            filling.finish();
        }
        match self.is_twin {
            true => self.place.lineage.copied(position),
            false => self.place.lineage.took_snapshot(position),
        }
        self.place.counts.is_filling.store(false, Ordering::Relaxed);
        if store.keeps_history() && !self.is_twin {
            store.set_history_place(place_of(position));
        }
        store.end_loading();
        store.log().into_iter().for_each(|log| log.begin_anew());
        Ok(())
    }

    fn abort_snapshot(&mut self) -> Remains {
        self.filling = None;
        // The store stays in LOADING: an empty one would be taken for a whole one.
        self.clear();
        Remains::Nothing
    }

    fn renamed(&mut self, before: ReplicationId, position: Position) {
        if self.is_twin {
            return;
        }
        if self.place.store.keeps_history() {
            self.place.store.set_history_place(place_of(position));
        }
        self.place.lineage.renamed(before, position);
    }

    fn pending(&mut self, len: usize) -> Result<(), TargetError> {
        self.look_for_room(len as u64)
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let has_commands = unit.commands().len() > 0;
        if has_commands {
            self.check(unit)?;
            self.check_room(unit.end().saturating_sub(unit.start()))?;
        }
        let selected = unit.selected().and_then(|database| u32::try_from(database).ok());
        let store = Arc::clone(&self.place.store);
        // Commands that only concern the stream go to replicas of this replica, too.
        store.relay(unit.raw(), || self.execute_all(&store, unit).map(|()| selected))?;
        if self.is_twin {
            // The history is told with the role.
            self.tell();
            return Ok(());
        }
        self.place.lineage.look(unit.behind());
        if has_commands {
            self.tell();
            self.await_room();
        } else {
            self.pass(unit);
        }
        Ok(())
    }
}

/// A position of the stream, as the store remembers it.
pub(crate) fn place_of(position: Position) -> HistoryPlace {
    let Position { id, offset, database } = position;
    HistoryPlace { id, offset, database }
}

fn args_of<'a>(command: &UnitCommand<'a>) -> Args<'a> {
    let (buf, ranges) = command.frame();
    Args::new(buf, ranges)
}

/// The fault in a snapshot. An `eviction` is no help: a replica evicts nothing.
fn fault(error: &LoadError) -> String {
    match error {
        LoadError::Full { memory_max } => format!(
            "its data does not fit into the pool's memory_max of {memory_max} bytes: raise it \
             above the primary's maxmemory"
        ),
        error => error.to_string(),
    }
}

/// Text that can be shown in a line.
fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(SHOWN_MAX)].trim_ascii();
    keyway_base::printable(text)
}
