//! A store that is filled from a file.

use super::batch::{LoadBatch, Manner, StringHead};
use super::{
    FLUSH_FIELD, HISTORY_ID_FIELD, HISTORY_OFFSET_FIELD, NUMBERS_FIELD, STREAM_DATABASE_FIELD,
};
use crate::collections::Boxed;
use crate::collections::sorted::Sorted;
use crate::collections::stream::Stream;
use crate::collections::timed::TIME_MAX;
use crate::cut::{META_FIELD, read_meta};
use crate::dump::{Refusal, StreamBuilder, Strings, Value};
use crate::edits::fill;
use crate::entry::{Editor, Entry};
use crate::items::{Encoding, Meta, STRING_LEN_MAX};
use crate::store::{Context, HistoryPlace, Mode, NO_WORKER, Store, Turn};
use keyway_base::Clock;
use keyway_memory::nodes;
use keyway_rdb::replication::ReplicationId;
use keyway_rdb::{Event, Fault, Feed, FeedError, Key, Kind, Part, ReadLimits};
use keyway_resp::Protocol;
use std::fmt;
use std::sync::Arc;

/// Bytes and elements of a collection that are read before they are put into the store. More takes
/// memory, less looks the key up more often.
const BATCH_LEN: usize = 64 << 10;
const BATCH_ELEMENTS: usize = 512;
/// Numbers of values that a shard may have given in a millisecond since the cut, and at least:
/// far more than it can.
const NUMBERS_PER_MILLI: u64 = 1 << 10;
const NUMBERS_MIN: u64 = 1 << 20;

/// Why a file is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// It is no whole RDB file, or has what the store has not.
    File(Fault),
    /// It has a database that the store has not.
    Database {
        /// The database's number.
        number: u64,
        /// Databases that the store has.
        databases: u32,
    },
    /// A key's value contradicts itself.
    Value(Box<[u8]>),
    /// It has a key twice.
    Twice(Box<[u8]>),
    /// The store has no room for it.
    Full {
        /// The bound of the store, in bytes.
        memory_max: u64,
    },
    /// A library of functions is refused.
    Library(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(fault) => write!(f, "{fault}"),
            Self::Database { number, databases } => write!(
                f,
                "it has keys of database {number}, and the pool has {databases} databases: raise \
                 `databases`"
            ),
            Self::Value(key) => {
                write!(f, "the value of key \"{}\" is damaged", key.escape_ascii())
            }
            Self::Twice(key) => write!(f, "it has key \"{}\" twice", key.escape_ascii()),
            Self::Full { memory_max } => write!(
                f,
                "its data does not fit into the pool's memory_max of {memory_max} bytes: raise \
                 `memory_max`, or set an `eviction` that makes room"
            ),
            Self::Library(reason) => write!(f, "its functions cannot be loaded: {reason}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Takes the source code of a library of functions, or says why not.
pub type TakeLibrary<'l> = dyn FnMut(&[u8]) -> Result<(), String> + 'l;

/// Takes a batch of strings that is full, and leaves an empty one.
pub type TakeBatch<'b> = dyn FnMut(&mut LoadBatch) -> Result<(), LoadError> + 'b;

/// A store that is being loaded. Feed it the file, piece by piece.
///
/// It holds one batch of short strings, and one long string or one piece of a collection, besides
/// what is in the store.
pub struct Loading {
    feed: Feed,
    state: State,
}

/// A store that is filled from the snapshot of its primary. Give it the snapshot's events, one
/// by one.
///
/// It differs from [`Loading`] as a replica differs from a primary. Keys that have expired are
/// kept until the primary deletes them, and nothing is evicted: a snapshot that does not fit
/// is refused.
pub struct Filling {
    state: State,
}

struct State {
    store: Arc<Store>,
    clock: Clock,
    /// The snapshot is that of a primary.
    is_replica: bool,
    /// The primary is the store of the process that this one replaces.
    is_twin: bool,
    database: u32,
    /// The memcached state of the next key.
    meta: Meta,
    reading: Reading,
    /// The name of the string that is read.
    name: Vec<u8>,
    batch: LoadBatch,
    keys: u64,
    expired: u64,
    numbers: u64,
    cut_millis: Option<u64>,
    /// Effects follow: what has expired is kept, for one of them may have kept it.
    is_base: bool,
    /// The file is of a store that is a replica, and goes on where the file ends.
    is_resumed: bool,
    history: FileHistory,
}

/// The fields of a file about the history of its data.
#[derive(Default)]
struct FileHistory {
    id: Option<ReplicationId>,
    offset: Option<u64>,
    database: Option<u64>,
}

impl FileHistory {
    fn place(&self) -> Option<HistoryPlace> {
        Some(HistoryPlace { id: self.id?, offset: self.offset?, database: self.database })
    }
}

/// The key that is read.
enum Reading {
    Nothing,
    /// A key that has expired, and is passed over.
    Expired,
    String(StringHead),
    Collection(Box<Building>),
}

/// The collection that is read.
struct Building {
    key: Box<[u8]>,
    expiry: Option<u64>,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
    meta: Meta,
    kind: Kind,
    /// Its first elements were evicted: the others are of no use.
    is_skipped: bool,
    parts: Parts,
    /// Elements that were put into the store.
    count: usize,
}

/// The result of putting parts into the store.
enum Put {
    Done,
    Evicted,
    Twice,
    Damaged,
}

/// Parts that wait to be put into the store.
enum Parts {
    Strings { strings: Strings, scores: Vec<f64>, times: Vec<u64> },
    Stream(Box<StreamBuilder>),
}

impl Parts {
    fn strings() -> Self {
        let strings = Strings::new(usize::MAX);
        Self::Strings { strings, scores: Vec::new(), times: Vec::new() }
    }
}

impl Parts {
    /// Adds a part of a value of this kind.
    fn push(&mut self, kind: Kind, part: Part<'_>) -> Result<(), Refusal> {
        let (strings, scores, times) = match self {
            Self::Stream(builder) => return builder.part(part),
            Self::Strings { strings, scores, times } => (strings, scores, times),
        };
        match part {
            Part::Element(text) | Part::Member(text) => strings.push(text),
            Part::Scored { member, score } => {
                scores.push(score);
                strings.push(member)
            }
            Part::Field { name, value, expires_ms } => {
                if kind == Kind::ExpiringHash {
                    let time = expires_ms.unwrap_or(0);
                    times.push(if time <= TIME_MAX { time } else { return Err(Refusal::Form) });
                }
                strings.push(name)?;
                strings.push(value)
            }
            _ => Err(Refusal::Form),
        }
    }

    /// Returns whether they are to be put into the store before there are more.
    fn is_full(&self) -> bool {
        match self {
            Self::Strings { strings, .. } => {
                strings.len() >= BATCH_ELEMENTS || strings.bytes_len() >= BATCH_LEN
            }
            _ => false,
        }
    }
}

/// Adds what was read to a collection; whether it fits there.
fn add(editor: &mut Editor<'_, '_>, value: Value<'_>, now_millis: u64) -> bool {
    if let Value::Sorted(members, scores) = &value {
        let means = editor.means();
        let set = editor.view::<Sorted<'_>>();
        let is_there = |member: &[u8]| set.is_some_and(|set| set.score(member).is_some());
        if scores.len() != members.len()
            || members.iter().any(is_there)
            || !value.is_sound(&|text| means.hash(text).into())
        {
            return false;
        }
    }
    fill::fill(editor, value, now_millis);
    true
}

impl From<Fault> for LoadError {
    fn from(fault: Fault) -> Self {
        Self::File(fault)
    }
}

impl Loading {
    /// Of a store that nobody uses meanwhile.
    pub fn new(store: &Arc<Store>) -> Self {
        let limits = Self::limits();
        let mut state = State::new(store, false);
        state.is_resumed = store.is_replica();
        Self { feed: Feed::new(limits), state }
    }

    /// The longest strings that a store can hold.
    pub fn limits() -> ReadLimits {
        ReadLimits { string_len_max: STRING_LEN_MAX, block_len_max: STRING_LEN_MAX }
    }

    /// The same for the base of a log. Keys and fields that have expired are loaded: an effect
    /// that follows may have made them persist. They expire when the store is served.
    pub fn of_base(store: &Arc<Store>) -> Self {
        let mut loading = Self::new(store);
        loading.state.is_base = true;
        loading
    }

    /// Takes the next bytes of the file; libraries of functions in it go to `library`.
    ///
    /// # Errors
    /// [`LoadError`]; a part of the file is in the store then.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        clock: Clock,
        library: &mut TakeLibrary<'_>,
    ) -> Result<(), LoadError> {
        self.feed_batches(bytes, clock, library, &mut LoadBatch::put)
    }

    /// The same for a caller that puts strings into the store elsewhere. `put` gets each batch of
    /// them, the last one with the end of the file. [`LoadBatch::put`] must have returned for all
    /// of them before [`Loading::finish`] is called.
    ///
    /// # Errors
    /// [`LoadError`], that of `put` included; a part of the file is in the store then.
    pub fn feed_batches(
        &mut self,
        bytes: &[u8],
        clock: Clock,
        library: &mut TakeLibrary<'_>,
        put: &mut TakeBatch<'_>,
    ) -> Result<(), LoadError> {
        let state = &mut self.state;
        state.clock = clock;
        let fed = self.feed.feed(bytes, &mut |event| state.take(event, library, put));
        state.store.note_loaded(self.feed.reader().offset(), state.keys, state.expired);
        match fed {
            Ok(_) => Ok(()),
            Err(FeedError::Fault(fault)) => Err(fault.into()),
            Err(FeedError::Visitor(error)) => Err(error),
        }
    }

    /// Ends loading: the file is over. Keys that were loaded, and those that had expired.
    ///
    /// # Errors
    /// [`LoadError::File`] unless the file is whole.
    pub fn finish(self) -> Result<(u64, u64), LoadError> {
        self.feed.finish()?;
        self.state.settle();
        if self.state.is_resumed || self.state.is_base {
            self.state.store.history.set(self.state.history.place());
        }
        Ok((self.state.keys, self.state.expired))
    }
}

impl Filling {
    /// Begins to fill a store that is empty and that nobody uses meanwhile.
    pub fn new(store: &Arc<Store>) -> Self {
        Self { state: State::new(store, true) }
    }

    /// Takes what comes next; a library of functions goes to `library`.
    ///
    /// # Errors
    /// [`LoadError`]; a part of the snapshot is in the store then.
    pub fn take(
        &mut self,
        event: Event<'_>,
        clock: Clock,
        library: &mut TakeLibrary<'_>,
    ) -> Result<(), LoadError> {
        let is_key = matches!(event, Event::KeyEnd);
        self.state.clock = clock;
        self.state.take(event, library, &mut LoadBatch::put)?;
        if is_key {
            self.state.store.note_loaded(0, self.state.keys, 0);
        }
        Ok(())
    }

    /// The same for the store of the process that this one replaces. The snapshot has the data of
    /// a store of the same bound, which may lie in memory in another way: it may pass the bound by
    /// as much as [`Store::is_over_full`] lets it. Flushes that are still to come are taken over.
    pub fn of_twin(store: &Arc<Store>) -> Self {
        let mut filling = Self::new(store);
        filling.state.is_twin = true;
        filling
    }

    /// Ends loading: the snapshot is whole. The number of keys.
    ///
    /// Readers of effects that came meanwhile are lost: what is loaded is not told.
    pub fn finish(self) -> u64 {
        self.state.settle();
        self.state.store.lose_followers_if_cut();
        self.state.keys
    }
}

impl State {
    fn new(store: &Arc<Store>, is_replica: bool) -> Self {
        Self {
            store: Arc::clone(store),
            clock: Clock::default(),
            is_replica,
            is_twin: false,
            database: 0,
            meta: Meta::new(Encoding::Text, None),
            reading: Reading::Nothing,
            name: Vec::new(),
            batch: LoadBatch::new(store),
            keys: 0,
            expired: 0,
            numbers: 0,
            cut_millis: None,
            is_base: false,
            is_resumed: false,
            history: FileHistory::default(),
        }
    }

    /// Returns whether effects follow: the data is to be as the other side had it.
    fn is_followed(&self) -> bool {
        self.is_replica || self.is_base || self.is_resumed
    }

    fn turn(&self) -> Turn {
        let protocol = Protocol::default();
        let context =
            Context { database: self.database, clock: self.clock, protocol, worker: NO_WORKER };
        let turn = if self.is_followed() { Turn::of_effect(context) } else { Turn::of(context) };
        turn.with(Mode::LOADED)
    }

    /// Returns how keys are put into the store.
    fn manner(&self) -> Manner {
        let turn = self.turn();
        Manner { turn, is_base: self.is_base, is_twin: self.is_twin, clock: self.clock }
    }

    /// Returns the time by which keys and fields that have expired are left out.
    fn expires_by(&self) -> u64 {
        if self.is_followed() { 0 } else { self.clock.unix_millis() }
    }

    fn take(
        &mut self,
        event: Event<'_>,
        library: &mut TakeLibrary<'_>,
        put: &mut TakeBatch<'_>,
    ) -> Result<(), LoadError> {
        match event {
            Event::Key(key) => self.begin(&key),
            Event::Part(Part::Text(text)) => self.string(text, put)?,
            Event::Part(part) => self.part(part)?,
            Event::KeyEnd => self.end()?,
            Event::Aux { name, value } => self.aux(name, value),
            Event::Library(code) => library(code).map_err(LoadError::Library)?,
            Event::Database(number) => {
                let databases = self.store.database_count();
                let known = u32::try_from(number).ok().filter(|number| *number < databases);
                let database = known.ok_or(LoadError::Database { number, databases })?;
                self.hand_over(put)?;
                self.database = database;
            }
            Event::End { .. } => self.hand_over(put)?,
            Event::Sizes { keys, .. } => self.store.expect_keys(self.database, keys),
            Event::Start(_) | Event::SlotSizes { .. } => {}
        }
        Ok(())
    }

    /// Passes on the strings that wait.
    fn hand_over(&mut self, put: &mut TakeBatch<'_>) -> Result<(), LoadError> {
        if self.batch.is_empty() { Ok(()) } else { put(&mut self.batch) }
    }

    /// Reads a field about the file itself or about the next key. A field that a store's own file
    /// does not have, or has in another form, is ignored.
    fn aux(&mut self, name: &[u8], value: &[u8]) {
        let numbers = || {
            let (first, second) = std::str::from_utf8(value).ok()?.split_once(' ')?;
            Some((first.parse().ok()?, second.parse().ok()?))
        };
        let number = || std::str::from_utf8(value).ok()?.parse().ok();
        if name == META_FIELD {
            let mut meta = Meta::new(Encoding::Text, None);
            if read_meta(value, &mut meta).is_some() {
                self.meta = meta;
            }
        } else if name == NUMBERS_FIELD {
            if let Some((greatest, millis)) = numbers() {
                (self.numbers, self.cut_millis) = (greatest, Some(millis));
            }
        } else if name == HISTORY_ID_FIELD {
            self.history.id = ReplicationId::parse(value);
        } else if name == HISTORY_OFFSET_FIELD {
            self.history.offset = number();
        } else if name == STREAM_DATABASE_FIELD {
            self.history.database = number();
        } else if name == FLUSH_FIELD
            && (!self.is_replica || self.is_twin)
            && let Some((database, at)) = numbers()
            && let Ok(database) = u32::try_from(database)
            && database < self.store.database_count()
        {
            self.store.flushes.set(database, Some(at));
        }
    }

    fn begin(&mut self, key: &Key<'_>) {
        let meta = std::mem::replace(&mut self.meta, Meta::new(Encoding::Text, None));
        let now_millis = self.expires_by();
        if key.expires_ms.is_some_and(|millis| millis <= now_millis) {
            self.reading = Reading::Expired;
            return;
        }
        let (idle_seconds, frequency) = (key.idle_seconds, key.frequency);
        let parts = match key.value.kind {
            Kind::Text => {
                self.name.clear();
                self.name.extend_from_slice(key.name);
                let meta = Meta { expiry: key.expires_ms, ..meta };
                self.reading = Reading::String(StringHead { meta, idle_seconds, frequency });
                return;
            }
            Kind::Stream => Parts::Stream(Box::new(StreamBuilder::new(usize::MAX))),
            _ => Parts::strings(),
        };
        self.reading = Reading::Collection(Box::new(Building {
            key: key.name.into(),
            expiry: key.expires_ms,
            idle_seconds,
            frequency,
            meta,
            kind: key.value.kind,
            is_skipped: false,
            parts,
            count: 0,
        }));
    }

    /// Takes the value of a string: a short one waits for others.
    fn string(&mut self, text: &[u8], put: &mut TakeBatch<'_>) -> Result<(), LoadError> {
        let Reading::String(head) = &self.reading else { return Ok(()) };
        self.numbers = self.numbers.max(Store::count_of_number(head.meta.cas));
        if text.len() > LoadBatch::LONGEST {
            return self.manner().put_string(&self.store, &self.name, text, head);
        }
        if self.batch.is_full_with(self.name.len() + text.len()) {
            put(&mut self.batch)?;
        }
        if self.batch.is_empty() {
            self.batch.begin(self.manner());
        }
        self.batch.push(&self.name, text, head);
        Ok(())
    }

    fn part(&mut self, part: Part<'_>) -> Result<(), LoadError> {
        let Reading::Collection(mut building) =
            std::mem::replace(&mut self.reading, Reading::Nothing)
        else {
            return Ok(());
        };
        if !building.is_skipped {
            let refused = building.parts.push(building.kind, part).is_err();
            if refused {
                return Err(LoadError::Value(building.key));
            }
            if building.parts.is_full() {
                self.put_parts(&mut building)?;
            }
        }
        self.reading = Reading::Collection(building);
        Ok(())
    }

    fn make_room(&self, len: usize) -> Result<(), LoadError> {
        self.manner().make_room(&self.store, len)
    }

    fn with_entry<R>(&self, building: &Building, work: impl FnOnce(Entry<'_>) -> R) -> R {
        self.store.with_key(self.turn(), &building.key, work)
    }

    /// Puts the parts that were read into the store.
    fn put_parts(&mut self, building: &mut Building) -> Result<(), LoadError> {
        let parts = std::mem::replace(&mut building.parts, Parts::strings());
        let Parts::Strings { strings, scores, times } = parts else {
            building.parts = parts;
            return Ok(());
        };
        let width = if matches!(building.kind, Kind::Hash | Kind::ExpiringHash) { 2 } else { 1 };
        let added = strings.len() / width;
        if added == 0 {
            return Ok(());
        }
        self.make_room(building.key.len() + strings.bytes_len())?;
        let now_millis = self.expires_by();
        let is_first = building.count == 0;
        let expired = times.iter().filter(|time| **time != 0 && **time <= now_millis).count();
        let value = match building.kind {
            Kind::List => Value::List(strings),
            Kind::Set => Value::Set(strings),
            Kind::Hash => Value::Hash(strings),
            Kind::ExpiringHash => Value::Timed(strings, times),
            Kind::Sorted => Value::Sorted(strings, scores),
            Kind::Text | Kind::Stream => return Ok(()),
        };
        let put = self.with_entry(building, |mut entry| match (is_first, entry.exists()) {
            (true, true) => Put::Twice,
            (false, false) => Put::Evicted,
            _ if entry.extend(|editor| add(editor, value, now_millis)) => Put::Done,
            _ => Put::Damaged,
        });
        match put {
            Put::Done => building.count += added - expired,
            // Room was made with what it had: the rest is of no use.
            Put::Evicted => building.is_skipped = true,
            Put::Twice => return Err(LoadError::Twice(building.key.clone())),
            Put::Damaged => return Err(LoadError::Value(building.key.clone())),
        }
        Ok(())
    }

    /// Ends a key: its value is whole.
    fn end(&mut self) -> Result<(), LoadError> {
        match std::mem::replace(&mut self.reading, Reading::Nothing) {
            Reading::Nothing => {}
            Reading::Expired => self.expired += 1,
            Reading::String(_) => self.keys += 1,
            Reading::Collection(building) => self.end_collection(*building)?,
        }
        Ok(())
    }

    fn end_collection(&mut self, mut building: Building) -> Result<(), LoadError> {
        if building.is_skipped {
            self.expired += 1;
            return Ok(());
        }
        match std::mem::replace(&mut building.parts, Parts::strings()) {
            Parts::Stream(builder) => {
                let stream = builder.finish();
                let stream = stream.map_err(|_| LoadError::Value(building.key.clone()))?;
                self.put_stream(&building, stream)?;
            }
            parts => {
                building.parts = parts;
                self.put_parts(&mut building)?;
            }
        }
        self.numbers = self.numbers.max(Store::count_of_number(building.meta.cas));
        if self.finish_key(&building) {
            self.keys += 1;
            return Ok(());
        }
        Err(LoadError::Value(building.key))
    }

    /// Gives a key, whose value is whole, all else that is known of it; whether it has as many
    /// elements as were read.
    fn finish_key(&self, building: &Building) -> bool {
        let manner = self.manner();
        self.with_entry(building, |mut entry| {
            // Room may have been made with it, or its last fields have expired.
            if building.is_skipped || !entry.exists() {
                return true;
            }
            let (expiry, loaded) = (building.expiry, building.meta);
            let meta = entry.look().map(|item| item.meta());
            let Meta { flags, cas, marks, .. } = loaded;
            meta.into_iter().for_each(|meta| {
                entry.set_meta(&Meta { expiry, flags, cas, marks, ..meta });
            });
            manner.set_use(&mut entry, building.idle_seconds, building.frequency);
            match building.kind {
                // Fields may have expired since they were read.
                Kind::Text | Kind::Stream | Kind::ExpiringHash => true,
                _ => entry.element_count() == building.count,
            }
        })
    }

    fn put_stream(&mut self, building: &Building, stream: Stream) -> Result<(), LoadError> {
        self.make_room(building.key.len() + stream.bytes())?;
        let stream = Boxed::Stream(nodes::boxed(stream));
        let is_new = self.with_entry(building, |mut entry| {
            let is_new = !entry.exists();
            entry.extend(|editor| editor.store_boxed(Encoding::StreamBoxed, stream));
            is_new
        });
        if is_new { Ok(()) } else { Err(LoadError::Twice(building.key.clone())) }
    }

    /// Does the rest of the work once all keys are there.
    fn settle(&self) {
        let since = self.cut_millis.map_or(0, |cut| self.clock.unix_millis().saturating_sub(cut));
        let numbers = since.saturating_mul(NUMBERS_PER_MILLI).saturating_add(NUMBERS_MIN);
        let numbers = self.numbers.saturating_add(numbers);
        if self.numbers > 0 || self.cut_millis.is_some() {
            self.store.raise_numbers(numbers);
        }
        if !self.is_followed() {
            self.store.settle_all_quotas(self.turn());
        }
    }
}
