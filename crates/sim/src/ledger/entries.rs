//! Entries of streams of the embedded store: which were added, which clients have read them, and to
//! which consumer a group gave each.

use super::*;

/// The two numbers of an entry's id.
pub type EntryId = (u64, u64);

/// The entries of a stream that one request of a client read.
pub struct StreamRead {
    /// The pool.
    pub pool: usize,
    /// The name of the stream.
    pub stream: Vec<u8>,
    /// The entry after which it had to begin. `None`: the last entry at that time.
    pub after: Option<EntryId>,
    /// The ids of the entries.
    pub ids: Vec<EntryId>,
    /// When it was asked.
    pub asked_at: Nanos,
}

/// The contents of a stream at rest.
pub struct StreamAtRest {
    /// The ids of its entries.
    pub ids: Vec<EntryId>,
    /// The last entry that its group has given to a consumer.
    pub given: Option<EntryId>,
}

#[derive(Default)]
struct Stream {
    /// When each entry that was confirmed to a client was asked, and when it was confirmed.
    told: BTreeMap<EntryId, (Nanos, Nanos)>,
    /// The entries that the group has given to clients.
    given: BTreeSet<EntryId>,
    /// The latest time up to which a consumer waited without result.
    idle_until: Nanos,
}

/// Streams by pool and name, and what was read of them.
#[derive(Default)]
pub(super) struct Streams {
    all: BTreeMap<(usize, Vec<u8>), Stream>,
    reads: Vec<StreamRead>,
}

impl Ledger {
    fn stream(&mut self, pool: usize, name: &[u8]) -> &mut Stream {
        self.streams.all.entry((pool, name.to_vec())).or_default()
    }

    /// Notes that a client was told that its entry is in a stream: when it had asked, and when it
    /// was told.
    ///
    /// # Errors
    /// Returns an error if another entry has that id.
    pub fn on_entry_told(
        &mut self,
        pool: usize,
        stream: &[u8],
        id: EntryId,
        times: (Nanos, Nanos),
    ) -> Result<(), String> {
        match self.stream(pool, stream).told.insert(id, times) {
            Some(_) => Err("an id that another entry has".into()),
            None => Ok(()),
        }
    }

    /// Returns whether an entry after `after` certainly existed at some time.
    pub fn has_entry(&self, pool: usize, stream: &[u8], after: EntryId, by: Nanos) -> bool {
        let stream = self.streams.all.get(&(pool, stream.to_vec()));
        let is_it = |(id, (_, told)): (&EntryId, &(Nanos, Nanos))| *id > after && *told < by;
        stream.is_some_and(|stream| stream.told.iter().any(is_it))
    }

    /// Notes that a client has read entries.
    pub fn on_entries_read(&mut self, read: StreamRead) {
        self.entries += read.ids.len() as u64;
        self.streams.reads.push(read);
    }

    /// Notes that a client was given entries as a consumer.
    ///
    /// # Errors
    /// Returns an error if one of them was given before.
    pub fn on_entries_given(
        &mut self,
        pool: usize,
        stream: &[u8],
        ids: &[EntryId],
    ) -> Result<(), String> {
        self.entries += ids.len() as u64;
        let given = &mut self.stream(pool, stream).given;
        match ids.iter().all(|id| given.insert(*id)) {
            true => Ok(()),
            false => Err("an entry that was given to somebody before".into()),
        }
    }

    /// Notes that a consumer has waited without result, at least until `end`.
    pub fn on_group_idle(&mut self, pool: usize, stream: &[u8], end: Nanos) {
        let stream = self.stream(pool, stream);
        stream.idle_until = stream.idle_until.max(end);
    }

    /// Checks that clients have read what the streams hold, without a gap, that each entry that a
    /// group has given reached one client or one that had left, and that no entry is left for which
    /// a client waited.
    pub fn check_streams(&mut self, pool: usize, at_rest: impl Fn(&[u8]) -> StreamAtRest) {
        let streams = std::mem::take(&mut self.streams);
        let of_pool = streams.all.iter().filter(|((of, _), _)| *of == pool);
        for ((_, name), stream) in of_pool {
            let held = at_rest(name);
            let reads = streams.reads.iter();
            let wrong_read = reads
                .filter(|read| read.pool == pool && read.stream == *name)
                .find_map(|read| wrong_with(read, stream, &held.ids));
            let wrong = wrong_read.or_else(|| self.wrong_with_stream(name, stream, &held));
            if let Some(wrong) = wrong {
                self.fail(|| format!("of the stream {}: {wrong}", clip(name)));
                break;
            }
        }
        self.streams = streams;
    }

    fn wrong_with_stream(
        &self,
        name: &[u8],
        stream: &Stream,
        held: &StreamAtRest,
    ) -> Option<String> {
        let there: BTreeSet<_> = held.ids.iter().copied().collect();
        if let Some(id) = stream.told.keys().chain(&stream.given).find(|id| !there.contains(id)) {
            return Some(format!("the entry {id:?} got lost"));
        }
        for id in &held.ids {
            let times = stream.told.get(id);
            let is_given = held.given.is_some_and(|last| *id <= last);
            if !is_given && stream.given.contains(id) {
                return Some(format!("the entry {id:?} was given to a client, says not the group"));
            }
            let is_meant = |(names, _, until): &(Vec<Vec<u8>>, Nanos, Nanos)| {
                let asked_at = times.map_or(0, |(asked_at, _)| *asked_at);
                names.iter().any(|of| of == name) && *until >= asked_at
            };
            if is_given && !stream.given.contains(id) && !self.departures.iter().any(is_meant) {
                return Some(format!("the entry {id:?} was given to nobody, says the group"));
            }
            let is_in_time = times.is_some_and(|(_, told)| *told < stream.idle_until);
            if !is_given && is_in_time {
                return Some(format!("a consumer waited in vain although {id:?} was there"));
            }
        }
        None
    }
}

/// Returns what is wrong with what a client read.
fn wrong_with(read: &StreamRead, stream: &Stream, held: &[EntryId]) -> Option<String> {
    let first = read.ids[0];
    let from = match read.after {
        Some(after) => held.partition_point(|id| *id <= after),
        None => held.partition_point(|id| *id < first),
    };
    let StreamRead { after, ids, asked_at, .. } = read;
    if held.get(from..from + ids.len()) != Some(&ids[..]) {
        return Some(format!("behind {after:?} were read {ids:?}, which is no part of {held:?}"));
    }
    let is_older = |(id, (_, told)): (&EntryId, &(Nanos, Nanos))| *id >= first && told < asked_at;
    if after.is_none() && stream.told.iter().any(is_older) {
        return Some(format!("{ids:?} were read, which were not behind the last entry"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::{Epoch, Pool, PoolKind, Topology};

    const NAME: &[u8] = b"t";

    /// The expected message of the check, and the change that causes it.
    type Wrong = (&'static str, fn(&mut Ledger));

    /// Creates the ledger of a pool that is a store.
    fn ledger() -> Ledger {
        let topology = Topology::new(Epoch::default(), Vec::new());
        let pool = Pool { name: String::new(), kind: PoolKind::Store };
        Ledger::new(&[pool], 0, Arc::new(HealthBoard::new(&topology)))
    }

    /// Returns the verdict on a stream with three entries, of which the first two were given.
    fn verdict(prepare: impl FnOnce(&mut Ledger)) -> Option<String> {
        let mut ledger = ledger();
        for number in 1..=3 {
            assert_eq!(ledger.on_entry_told(0, NAME, (number, 0), (number, number + 10)), Ok(()));
        }
        prepare(&mut ledger);
        let ids = vec![(1, 0), (2, 0), (3, 0)];
        ledger.check_streams(0, |_| StreamAtRest { ids: ids.clone(), given: Some((2, 0)) });
        ledger.violation.take()
    }

    fn give(ledger: &mut Ledger, ids: &[EntryId]) {
        assert_eq!(ledger.on_entries_given(0, NAME, ids), Ok(()));
    }

    fn read(ledger: &mut Ledger, after: Option<EntryId>, ids: &[EntryId], asked_at: Nanos) {
        let (stream, ids) = (NAME.to_vec(), ids.to_vec());
        ledger.on_entries_read(StreamRead { pool: 0, stream, after, ids, asked_at });
    }

    #[test]
    fn what_goes_well_is_no_violation() {
        let verdict = verdict(|ledger| {
            give(ledger, &[(1, 0), (2, 0)]);
            read(ledger, Some((0, 0)), &[(1, 0), (2, 0)], 5);
            read(ledger, None, &[(2, 0)], 11);
            ledger.on_group_idle(0, NAME, 12);
        });
        assert_eq!(verdict, None);
    }

    #[test]
    fn whatever_goes_wrong_is_found() {
        let given = [(1, 0), (2, 0)];
        let wrongs: [Wrong; 6] = [
            ("was given to nobody", |ledger| give(ledger, &[(1, 0)])),
            ("says not the group", |ledger| give(ledger, &[(3, 0)])),
            ("is no part of", |ledger| read(ledger, Some((0, 0)), &[(2, 0)], 5)),
            ("not behind the last", |ledger| read(ledger, None, &[(2, 0)], 40)),
            ("waited in vain", |ledger| ledger.on_group_idle(0, NAME, 40)),
            ("got lost", |ledger| {
                assert_eq!(ledger.on_entry_told(0, NAME, (9, 0), (1, 2)), Ok(()));
            }),
        ];
        for (wanted, wrong) in wrongs {
            let verdict = verdict(|ledger| {
                if wanted != "was given to nobody" {
                    give(ledger, &given);
                }
                wrong(ledger);
            });
            assert!(verdict.as_ref().is_some_and(|text| text.contains(wanted)), "{verdict:?}");
        }
        let mut ledger = ledger();
        give(&mut ledger, &given);
        assert!(ledger.on_entries_given(0, NAME, &given).is_err());
        assert!(!ledger.has_entry(0, NAME, (0, 0), 5));
    }
}
