//! The store as the target of a follower.

use crate::absolute::absolute;
use crate::audience::Audience;
use crate::beside;
use keyway_base::{Clock, Time};
use keyway_command::{Args, Refusal, Request, Verb};
use keyway_rdb::Event;
use keyway_replica::{Origin, Position, Remains, Target, TargetError, Unit, UnitCommand};
use keyway_resp::Protocol;
use keyway_script::Registry;
use keyway_store::{Context, Filling, Footprint, Held, NO_WORKER, Store};
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
}

/// Applies a primary's snapshot and stream to a store.
pub(crate) struct StoreTarget {
    place: Place,
    filling: Option<Filling>,
    /// The primary is the store of the process that this one replaces.
    is_twin: bool,
    reply: Vec<u8>,
    unlooked: u32,
}

impl StoreTarget {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, filling: None, is_twin: false, reply: Vec::new(), unlooked: 0 }
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

    /// Holds the shards of all commands of a transaction.
    fn hold<'s>(&self, store: &'s Store, unit: &Unit<'_>) -> Result<Held<'s>, TargetError> {
        loop {
            let mut footprint = Footprint::default();
            for command in unit.commands() {
                if let Ok(request) = Request::resolve(args_of(&command))
                    && store.serves(request.command.verb)
                {
                    footprint.add(store, &request);
                }
            }
            match store.hold(footprint.of_effects(), self.context(0)) {
                Ok(held) => return Ok(held),
                // A script that runs for long holds some of them; it ends at its limit.
                Err(_) if !self.place.counts.is_ending.load(Ordering::Relaxed) => rest(),
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
            if self.place.store.applies(args) {
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

    fn execute(&mut self, command: &UnitCommand<'_>) {
        let args = args_of(command);
        self.place.counts.applied.fetch_add(1, Ordering::Relaxed);
        let request = Request::resolve(args);
        if let Ok(request) = &request
            && beside::serves(request.command.verb)
        {
            let Place { scripts, audience, .. } = &self.place;
            if let Err(text) = beside::execute(request, scripts, &**audience, self.now()) {
                self.note_failed(args, text.as_bytes());
            }
            return;
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
            rest();
        }
    }

    fn check_room(&mut self) -> Result<(), TargetError> {
        self.unlooked += 1;
        if self.unlooked < UNITS_PER_LOOK {
            return Ok(());
        }
        self.unlooked = 0;
        match self.place.store.is_over_full() {
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
        store.begin_loading(origin.len.unwrap_or(0), clock());
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
        filling
            .take(event, clock, &mut library)
            .map_err(|error| TargetError::stop(&format!("the snapshot of the primary: {error}")))
    }

    fn end_snapshot(&mut self, _position: Position) -> Result<(), TargetError> {
        if let Some(filling) = self.filling.take() {
            filling.finish();
        }
        self.place.counts.is_filling.store(false, Ordering::Relaxed);
        self.place.store.end_loading();
        Ok(())
    }

    fn abort_snapshot(&mut self) -> Remains {
        self.filling = None;
        // The store stays in LOADING: an empty one would be taken for a whole one.
        self.clear();
        Remains::Nothing
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let count = unit.commands().len();
        if count == 0 {
            return Ok(());
        }
        self.check(unit)?;
        self.check_room()?;
        let store = Arc::clone(&self.place.store);
        let held = match count {
            1 => None,
            _ => Some(self.hold(&store, unit)?),
        };
        unit.commands().for_each(|command| self.execute(&command));
        drop(held);
        self.tell();
        Ok(())
    }
}

fn args_of<'a>(command: &UnitCommand<'a>) -> Args<'a> {
    let (buf, ranges) = command.frame();
    Args::new(buf, ranges)
}

/// Text that can be shown in a line.
fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(SHOWN_MAX)].trim_ascii();
    keyway_base::printable(text)
}

#[allow(clippy::disallowed_methods, reason = "the follower's thread may wait")]
fn rest() {
    std::thread::sleep(REST);
}
