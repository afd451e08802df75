//! Effects: each write as the deterministic commands that repeat it, in Redis's words
//! and in one total order.
//!
//! ```text
//!  a write, with its shards held ──► Unit ──► Lane (one of some) ─┐  ticket drawn
//!  another thread's write ────────► Unit ──► Lane ────────────────┤  in the lane's lock
//!                                                                 ▼
//!                                    readers ◄── Backlog: merged by ticket, SELECT added
//! ```
//! A *unit* is one command, or MULTI, several commands and EXEC. A unit gets its ticket
//! while the shards of its keys are held. Two units that touch the same key are therefore
//! in the order in which the store executed them.
//!
//! The writer of a unit waits for nothing but a lane's lock, which is held for one copy.
//! The backlog is filled by whoever reads, and by a writer whose lane is long, if nobody
//! else does it at that time.
//!
//! Architecture invariant: with no reader there is no buffer, and a write pays one branch.
//! With readers that may be lost, lanes, backlog and units together never take more than the
//! room that the readers asked for. With a reader that keeps all, they take half of it and one
//! request of each thread, in three copies: writers wait for more. While writers wait, that
//! reader has something to read: once it has read everything, less than half of the room is taken
//! beside units that are open. This folder knows no command and no shard.

mod account;
mod backlog;
mod lane;
mod relay;
mod unit;

pub(crate) use backlog::Lost;
pub use backlog::{EffectLimits, Keeping};
pub(crate) use unit::Unit;
use unit::command_len_max;

use account::Account;
use backlog::Backlog;
use keyway_memory::{Holder, Lock};
use lane::{Head, Lane, Units};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Lanes of a store. More threads than that share lanes, and wait for each other's copy.
const LANES: usize = 32;

/// Length of a lane in bytes from which its writer fills the backlog. Larger keeps more
/// memory in lanes that nobody reads; smaller makes writers meet in the backlog more often.
const LANE_LEN: usize = 32 << 10;

/// A lane on cache lines of its own: neighbours are prefetched in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Padded(Lane);

/// The effects of a store's writes, and their readers.
pub(crate) struct Effects {
    /// True if there is a reader. Changed with the backlog locked.
    is_on: AtomicBool,
    /// True if a reader has its cut. From then on no effect may be missing.
    is_cut: AtomicBool,
    /// True if the stream is that of a primary: nothing is told then. It changes with the backlog
    /// locked.
    is_relaying: AtomicBool,
    /// Held while a unit of the primary is executed, and while a cut is made.
    relay_order: Lock<()>,
    /// Counts how often reading was begun, to tell a unit that is left over.
    life: AtomicU64,
    /// Counts cuts.
    cuts: AtomicU64,
    /// Held by a command that changes something beside the keys.
    beside: Lock<()>,
    /// The ticket of the next unit. Changed in a lane's lock alone.
    tickets: AtomicU64,
    account: Account,
    /// True if a reader must not lose anything.
    has_keeper: AtomicBool,
    lanes: Box<[Padded]>,
    backlog: Lock<Backlog>,
}

thread_local! {
    /// The changes of this thread's request, script or transaction so far.
    static UNIT: RefCell<Unit> = const { RefCell::new(Unit::new()) };
}

impl Effects {
    pub(crate) fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_relaying: AtomicBool::new(false),
            relay_order: Lock::new(()),
            life: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            beside: Lock::new(()),
            tickets: AtomicU64::new(0),
            account: Account::default(),
            has_keeper: AtomicBool::new(false),
            lanes: (0..LANES).map(|_| Padded::default()).collect(),
            backlog: Lock::new(Backlog::default()),
        }
    }

    /// Returns whether effects are noted. The load is relaxed: [`Effects::cut`] says why a
    /// write that finds no reader here is never missed by one.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns whether a change that is not told would be missed.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Returns whether there is a stream that readers may join.
    fn has_stream(&self) -> bool {
        self.is_cut() || self.is_relaying()
    }

    /// Bytes of all buffers.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.account.held()
    }

    /// Bytes of what is there with no reader, too.
    pub(crate) fn own_bytes(&self) -> usize {
        self.lanes.len() * size_of::<Padded>()
    }

    /// Returns whether a reader that must not lose anything is so late that writers are to
    /// wait.
    pub(crate) fn is_full(&self) -> bool {
        self.has_keeper() && self.account.is_full()
    }

    fn has_keeper(&self) -> bool {
        self.has_keeper.load(Ordering::Relaxed)
    }

    /// How often buffers have taken more than their room, as a reader must not lose anything.
    pub(crate) fn beyond(&self) -> u64 {
        self.account.beyond()
    }

    /// Returns whether the unit of this thread alone is longer than the room.
    pub(crate) fn is_unit_long(&self) -> bool {
        self.is_on() && self.with_unit(|unit| unit.counted()) > self.account.room()
    }

    /// Lets `work` change the unit of this thread. `work` must not execute anything.
    pub(crate) fn with_unit<R>(&self, work: impl FnOnce(&mut Unit) -> R) -> R {
        UNIT.with_borrow_mut(|unit| {
            let owner = std::ptr::from_ref(self) as usize;
            // Effects that are left over from readers that are gone were counted here.
            let before = if unit.is_of(owner) { unit.counted() } else { 0 };
            unit.belong_to((owner, self.life.load(Ordering::Relaxed)));
            let result = work(unit);
            if unit.counted() > self.account.room() && !self.has_keeper() {
                unit.lose();
            }
            self.account.change_open(before, unit.counted());
            result
        })
    }

    /// Ends the unit of this thread: its commands get their ticket. The shards of all keys
    /// in it are still held.
    pub(crate) fn close_unit(&self) {
        let is_told = self.with_unit(|unit| {
            let is_told = unit.is_empty() || !unit.is_lost() && self.append(unit);
            unit.clear();
            is_told
        });
        if !is_told {
            self.overrun();
        }
    }

    /// Tells one command that is a unit of its own. The shard of its key is locked.
    pub(crate) fn tell_alone<'a>(
        &self,
        database: u32,
        words: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        let mut unit = Unit::new();
        unit.push(database, words);
        if !self.append(&unit) {
            self.overrun();
        }
    }

    /// The same without a copy in between, for the commonest commands.
    pub(crate) fn tell_command(&self, database: u32, words: &[&[u8]]) {
        let len = command_len_max(words);
        let is_told = self.append_by(len, |lane, ticket| {
            lane.push_command(ticket, database, words, len);
        });
        if !is_told {
            self.overrun();
        }
    }

    /// Tells a command that changes something beside the keys, if `work` says that it did.
    /// Returns whether no reader has made its cut meanwhile.
    pub(crate) fn tell_beside(&self, words: &[&[u8]], work: impl FnOnce() -> bool) -> bool {
        let cuts = self.cuts.load(Ordering::Relaxed);
        let _order = self.beside.lock();
        if !work() {
            return true;
        }
        if self.is_on() {
            self.tell_alone(0, words.iter().copied());
        }
        self.cuts.load(Ordering::Relaxed) == cuts
    }

    /// Appends a unit to a lane; returns whether there was room.
    fn append(&self, unit: &Unit) -> bool {
        self.append_by(unit.bytes().len(), |lane, ticket| {
            lane.push(Head::new(ticket, unit), unit.bytes());
        })
    }

    /// Lets `push` append a unit of at most `len` bytes, with its ticket, to a lane; returns whether
    /// there was room.
    #[inline]
    fn append_by(&self, len: usize, push: impl FnOnce(&mut Units, u64)) -> bool {
        let index = Holder::of_thread().number() as usize % self.lanes.len();
        let mut lane = self.lanes[index].0.lock();
        if !self.is_on() {
            return true;
        }
        let growth = lane.growth(len);
        if growth > 0 && !self.account.try_take(growth) {
            if !self.has_keeper() {
                return false;
            }
            self.account.take_beyond(growth);
        }
        let before = lane.capacity();
        // Drawn in the lane's lock: tickets of a lane ascend, and none is missing in it.
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        push(&mut lane, ticket);
        self.account.change(before + growth, lane.capacity());
        let is_long = lane.len() >= LANE_LEN;
        drop(lane);
        if is_long && let Some(mut backlog) = self.backlog.try_lock() {
            return self.merge(&mut backlog);
        }
        true
    }

    /// Moves units from the lanes to the backlog, in the order of their tickets. A unit
    /// whose predecessor is in a lane that was looked at before stays for the next time.
    /// Returns whether there was room.
    fn merge(&self, backlog: &mut Backlog) -> bool {
        for (lane, staged) in self.lanes.iter().zip(&mut backlog.staged) {
            staged.take_from(&mut lane.0.lock(), &self.account);
        }
        let has_merged = backlog.merge_staged(&self.account);
        self.trim(backlog);
        has_merged
    }

    /// Frees what all readers have read, and the oldest effects beyond the soft bound.
    fn trim(&self, backlog: &mut Backlog) {
        backlog.trim(&self.account);
        self.note_keepers(backlog);
    }

    fn note_keepers(&self, backlog: &Backlog) {
        self.has_keeper.store(backlog.has_keeper(), Ordering::Relaxed);
    }

    /// Notes effects from now on for a reader that is to come, until [`Effects::expect_less`].
    /// Returns whether a write may be under way that does not know it: unless a cut was made since
    /// they are noted.
    pub(crate) fn expect(&self, limits: EffectLimits) -> bool {
        let mut backlog = self.backlog.lock();
        backlog.expected += 1;
        let may_be_unknown = !self.is_cut() && !self.is_relaying();
        self.begin_with(&mut backlog, limits);
        may_be_unknown
    }

    fn begin_with(&self, backlog: &mut Backlog, limits: EffectLimits) {
        if self.is_on() || self.is_relaying() {
            self.account.set_room(limits.room.max(self.account.room()));
            backlog.keep_history(limits.history);
            return;
        }
        self.account.set_room(limits.room);
        backlog.begin(self.tickets.load(Ordering::Relaxed), self.lanes.len(), &self.account);
        backlog.keep_history(limits.history);
        self.life.fetch_add(1, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Ends what [`Effects::expect`] has begun, unless there is a reader, or another one is to come.
    pub(crate) fn expect_less(&self) {
        let mut backlog = self.backlog.lock();
        backlog.expected = backlog.expected.saturating_sub(1);
        if backlog.is_unread() && (self.is_on() || self.is_relaying()) {
            self.end(&mut backlog);
        }
    }

    /// Makes the cut of a new reader, with all shards locked: the reader gets the effects of
    /// everything that is executed from now on. Returns the number of the reader and the
    /// offset of the cut.
    ///
    /// A write that saw no reader before [`Effects::expect`] may still wait for a shard. If
    /// it locks that shard after the cut, it finds [`Effects::is_cut`] set, as the lock of
    /// the shard orders the two. Its change is then not told, and all readers are lost.
    pub(crate) fn cut(&self, limits: EffectLimits, keeping: Keeping) -> (u64, u64) {
        let mut backlog = self.backlog.lock();
        self.begin_with(&mut backlog, limits);
        if !self.merge(&mut backlog) {
            self.lose_all(&mut backlog);
            self.begin_with(&mut backlog, limits);
        }
        if !self.is_relaying() {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        self.cuts.fetch_add(1, Ordering::Relaxed);
        let joined = match self.is_relaying() {
            true => backlog.join_relayed(keeping),
            false => backlog.join(keeping),
        };
        self.note_keepers(&backlog);
        joined
    }

    /// Adds a reader that goes on at `offset`, if all effects from there on are kept.
    pub(crate) fn join_at(&self, offset: u64, keeping: Keeping) -> Option<u64> {
        let mut backlog = self.backlog.lock();
        if !self.has_stream() || !self.merge_or_end(&mut backlog) {
            return None;
        }
        let reader = backlog.join_at(offset, keeping);
        self.note_keepers(&backlog);
        reader
    }

    /// Adds a reader that goes on at the end, if there is another one. Returns its number and
    /// offset.
    pub(crate) fn join_on(&self, keeping: Keeping) -> Option<(u64, u64)> {
        let mut backlog = self.backlog.lock();
        if !self.has_stream() || !self.merge_or_end(&mut backlog) {
            return None;
        }
        let joined = match self.is_relaying() {
            true => backlog.join_relayed(keeping),
            false => backlog.join(keeping),
        };
        self.note_keepers(&backlog);
        Some(joined)
    }

    /// Appends whole units that a reader did not get yet to `out`: some tens of kilobytes,
    /// or one unit if that is longer.
    pub(crate) fn read(&self, reader: u64, out: &mut Vec<u8>) -> Result<usize, Lost> {
        let mut backlog = self.backlog.lock();
        self.merge_or_end(&mut backlog);
        let read = backlog.read(reader, out)?;
        if read > 0 {
            self.trim(&mut backlog);
        }
        Ok(read)
    }

    /// Merges, or loses all readers if there is no room.
    fn merge_or_end(&self, backlog: &mut Backlog) -> bool {
        let has_merged = self.merge(backlog);
        if !has_merged {
            self.lose_all(backlog);
        }
        has_merged
    }

    /// The offset behind what a reader got.
    pub(crate) fn position(&self, reader: u64) -> Result<u64, Lost> {
        self.backlog.lock().position(reader)
    }

    /// The ticket below which a reader has all units.
    pub(crate) fn told(&self, reader: u64) -> Result<u64, Lost> {
        self.backlog.lock().told(reader)
    }

    /// The ticket of the next unit. All units that this thread has told have lower ones.
    #[inline]
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets.load(Ordering::Relaxed)
    }

    /// Takes a reader out; returns whether it was the last one.
    pub(crate) fn leave(&self, reader: u64) -> bool {
        let mut backlog = self.backlog.lock();
        backlog.leave(reader);
        let is_last = backlog.is_unread();
        if is_last {
            self.end(&mut backlog);
        } else {
            self.trim(&mut backlog);
        }
        is_last
    }

    /// Loses all readers: an effect is missing. Everything is freed.
    #[cold]
    pub(crate) fn overrun(&self) {
        self.lose_all(&mut self.backlog.lock());
    }

    /// Loses all readers. The unit that is missing counts as told, so that whoever waits until
    /// a log has all units learns that it never will.
    fn lose_all(&self, backlog: &mut Backlog) {
        backlog.lose_all();
        self.tickets.fetch_add(1, Ordering::Relaxed);
        match backlog.expected > 0 && self.is_on() {
            true => self.begin_anew(backlog),
            false => self.end(backlog),
        }
    }

    /// Frees all buffers, and goes on noting effects for a reader that is to come. At no moment does
    /// a write find that there is none.
    fn begin_anew(&self, backlog: &mut Backlog) {
        self.is_cut.store(false, Ordering::Relaxed);
        // Tickets are drawn in the locks of lanes: none is between the buffers and the number.
        let mut lanes: Vec<_> = self.lanes.iter().map(|lane| lane.0.lock()).collect();
        lanes.iter_mut().for_each(|lane| lane.free(&self.account));
        let history = backlog.history();
        backlog.free(&self.account);
        backlog.begin(self.tickets.load(Ordering::Relaxed), lanes.len(), &self.account);
        backlog.keep_history(history);
        drop(lanes);
        self.note_keepers(backlog);
    }

    /// Ends noting effects, and frees all buffers.
    fn end(&self, backlog: &mut Backlog) {
        self.is_on.store(false, Ordering::Relaxed);
        self.is_cut.store(false, Ordering::Relaxed);
        self.is_relaying.store(false, Ordering::Relaxed);
        for lane in &self.lanes {
            // A thread that appends later takes this lock later, and sees that there is no reader.
            lane.0.lock().free(&self.account);
        }
        backlog.free(&self.account);
        self.note_keepers(backlog);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const LIMITS: EffectLimits = EffectLimits { room: 1 << 20, history: 0 };

    fn tell(effects: &Effects, words: &[&[u8]]) {
        effects.tell_alone(0, words.iter().copied());
    }

    fn read_all(effects: &Effects, reader: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while effects.read(reader, &mut out).expect("nothing is lost") > 0 {}
        out
    }

    #[test]
    fn nothing_is_kept_before_the_first_reader_and_after_the_last() {
        let effects = Effects::new();
        tell(&effects, &[b"DEL", b"a"]);
        assert_eq!(effects.held(), 0);
        let (reader, _) = effects.cut(LIMITS, Keeping::Newest);
        (0..10_000).for_each(|_| tell(&effects, &[b"SET", b"a", &[b'v'; 100]]));
        assert!(effects.held() > 0);
        assert!(effects.leave(reader));
        assert_eq!(effects.held(), 0);
        tell(&effects, &[b"DEL", b"a"]);
        assert_eq!(effects.held(), 0);
    }

    #[test]
    fn units_of_all_threads_come_in_the_order_of_their_tickets() {
        const EACH: u32 = 20_000;
        const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
        let effects = Effects::new();
        let (reader, _) = effects.cut(EffectLimits { room: 64 << 20, history: 0 }, Keeping::All);
        let order = Lock::new(Vec::new());
        let read = std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let (effects, order) = (&effects, &order);
                scope.spawn(move || {
                    for nth in 0..EACH {
                        let word = (thread * EACH + nth).to_be_bytes();
                        // As a shard's lock orders the writes of its keys.
                        let mut order = order.lock();
                        effects.tell_alone(0, [&word[..]].into_iter());
                        order.push(word);
                    }
                });
            }
            let mut read = Vec::new();
            while read.len() < SELECT.len() + 4 * EACH as usize * 14 {
                effects.read(reader, &mut read).expect("nothing is lost");
            }
            read
        });
        let frames = read.strip_prefix(SELECT).expect("a SELECT");
        let told: Vec<[u8; 4]> =
            frames.chunks(14).map(|frame| frame[8..12].try_into().expect("four bytes")).collect();
        assert_eq!(told, *order.lock());
    }

    #[test]
    fn a_slow_reader_is_lost_and_memory_stays_within_its_room() {
        let effects = Effects::new();
        let (slow, _) = effects.cut(LIMITS, Keeping::Newest);
        let (quick, _) = effects.cut(LIMITS, Keeping::Newest);
        for _ in 0..50_000 {
            tell(&effects, &[b"SET", b"key", &[b'v'; 100]]);
            assert!(effects.held() <= LIMITS.room, "{}", effects.held());
            effects.read(quick, &mut Vec::new()).expect("it keeps up");
        }
        assert_eq!(effects.read(slow, &mut Vec::new()), Err(Lost));
        assert!(effects.is_on() && !effects.is_full());
        effects.leave(slow);
        effects.leave(quick);
        assert_eq!(effects.held(), 0);
    }

    #[test]
    fn a_keeper_that_does_not_read_makes_the_store_full_and_is_never_lost() {
        let effects = Effects::new();
        let (keeper, _) = effects.cut(LIMITS, Keeping::All);
        let mut told = 0;
        while effects.beyond() == 0 {
            tell(&effects, &[b"SET", b"key", &[b'v'; 100]]);
            told += 1;
        }
        assert!(effects.is_full());
        let frame = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\n".len() + 102;
        let select = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n".len();
        assert_eq!(read_all(&effects, keeper).len(), select + told * frame);
        assert!(!effects.is_full() && effects.held() <= LIMITS.room / 2);
        effects.leave(keeper);
        assert_eq!(effects.held(), 0);
    }

    #[test]
    fn a_unit_that_is_open_lets_no_writer_wait_and_is_given_back_though_readers_are_gone() {
        let effects = Effects::new();
        let (keeper, _) = effects.cut(LIMITS, Keeping::All);
        for _ in 0..3 {
            let word = vec![b'v'; LIMITS.room];
            effects.with_unit(|unit| unit.push(0, [&word[..], &word].into_iter()));
            assert!(!effects.is_full() && effects.held() > LIMITS.room && effects.is_unit_long());
            effects.close_unit();
            assert!(effects.is_full() && !effects.is_unit_long());
            read_all(&effects, keeper);
            assert!(!effects.is_full());
        }
        effects.with_unit(|unit| unit.push(0, [&[b'v'; 10_000][..]].into_iter()));
        effects.leave(keeper);
        assert!(effects.held() > 0);
        effects.cut(LIMITS, Keeping::Newest);
        effects.with_unit(|_| ());
        assert!(effects.held() < 10_000, "{}", effects.held());
    }

    /// A law: with everything read, no writer waits, whatever the units were.
    #[test]
    fn writers_wait_only_while_a_keeper_has_something_to_read() {
        for seed in 0..20u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut next = |bound: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % bound
            };
            let effects = Effects::new();
            let (keeper, _) = effects.cut(LIMITS, Keeping::All);
            let mut told = 0;
            for _ in 0..40 {
                // Each thread has another lane.
                let lens: Vec<Vec<usize>> = (0..1 + next(3))
                    .map(|_| (0..next(12)).map(|_| 1 << next(22)).collect())
                    .collect();
                told += lens.iter().flatten().count();
                std::thread::scope(|scope| {
                    for lens in &lens {
                        let effects = &effects;
                        scope.spawn(move || {
                            for len in lens {
                                tell(effects, &[b"SET", &vec![b'v'; *len]]);
                            }
                        });
                    }
                });
                let read = read_all(&effects, keeper);
                let expected: usize = lens.iter().flatten().sum();
                assert!(read.len() >= expected, "seed {seed}");
                assert!(!effects.is_full(), "seed {seed}: {} are held", effects.held());
            }
            assert_eq!(effects.next_ticket(), told as u64, "seed {seed}: something was lost");
        }
    }

    #[test]
    fn a_reader_goes_on_from_any_offset_that_is_kept() {
        let effects = Effects::new();
        let limits = EffectLimits { room: 1 << 20, history: 1 << 18 };
        let (first, start) = effects.cut(limits, Keeping::Newest);
        let mut offsets = BTreeMap::new();
        let mut stream = Vec::new();
        for _ in 0..30_000 {
            tell(&effects, &[b"SET", b"key", &[b'v'; 100]]);
            effects.read(first, &mut stream).expect("it keeps up");
            offsets.insert(effects.position(first).expect("it is there"), stream.len());
        }
        let (last, _) = offsets.last_key_value().expect("some");
        assert_eq!(*last - start, stream.len() as u64);
        let mut kept = 0;
        for (offset, at) in &offsets {
            let Some(reader) = effects.join_at(*offset, Keeping::Newest) else { continue };
            kept += 1;
            assert_eq!(read_all(&effects, reader), stream[*at..]);
            effects.leave(reader);
        }
        let history_min = 1000;
        assert!(kept > history_min && kept < offsets.len(), "{kept}");
        assert_eq!(effects.join_at(last + 1, Keeping::Newest), None);
    }
}
