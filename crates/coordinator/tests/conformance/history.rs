//! Random transactions of several tasks, and the one history that has to explain all of them.

use keyway_coordinator::{
    Batch, Change, Compare, Coordinator, Entry, Event, FaultKind, Key, Listing, Outcome, Prefix,
    Revision, Txn,
};
use keyway_testkit::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Entries by key, at one revision.
type Entries = BTreeMap<Key, Entry>;

/// A transaction as a task asked for it, and how it ended. Values are unique, so that a
/// transaction is known by what it has written.
#[derive(Clone, Debug)]
struct Asked {
    compare: Vec<Compare>,
    puts: Vec<(Key, Vec<u8>)>,
    deletes: Vec<Key>,
    /// `None`: nobody knows.
    outcome: Option<Outcome>,
}

/// What the tasks of a run have seen.
#[derive(Default)]
struct Seen {
    asked: Vec<Asked>,
    listings: Vec<(Prefix, Listing)>,
    unreachable: usize,
}

/// How a run is made.
pub struct Run {
    pub seed: u64,
    /// The coordinators of the tasks.
    pub tasks: Vec<Arc<dyn Coordinator>>,
    /// One that reaches the backend whatever happens to those of the tasks.
    pub observer: Arc<dyn Coordinator>,
    /// Transactions of each task.
    pub steps: usize,
    /// Whether calls may fail, as something is broken meanwhile.
    pub may_fail: bool,
}

/// How a run went.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    pub done: usize,
    pub unknown: usize,
    pub unreachable: usize,
}

fn key(number: usize) -> Key {
    let folder = if number.is_multiple_of(2) { "even" } else { "odd" };
    Key::new(&format!("{folder}/{number}")).expect("a key")
}

/// Runs and checks.
pub async fn run(run: Run) -> Tally {
    let Run { seed, tasks, observer, steps, may_fail } = run;
    let start = observer.list(&Prefix::all()).await.expect("the observer reaches the backend");
    let prefixes = ["", "even/", "odd/1"].map(|text| Prefix::new(text).expect("a prefix"));
    let mut watches: Vec<_> =
        prefixes.iter().map(|prefix| observer.watch(prefix, start.revision)).collect();
    // One is in the midst of what is broken.
    watches.push(tasks[0].watch(&prefixes[0], start.revision));
    let followers: Vec<_> = watches.into_iter().map(|watch| tokio::spawn(follow(watch))).collect();
    let workers: Vec<_> = (tasks.into_iter().enumerate())
        .map(|(number, task)| tokio::spawn(work(task, seed, number, steps, may_fail)))
        .collect();
    let mut seen = Seen::default();
    for worker in workers {
        let theirs = worker.await.expect("a task ends");
        seen.asked.extend(theirs.asked);
        seen.listings.extend(theirs.listings);
        seen.unreachable += theirs.unreachable;
    }
    // What is unknown may still be executed, until its server has given it up.
    let is_unknown = |one: &Asked| one.outcome.is_none();
    let unknown = seen.asked.iter().filter(|one| is_unknown(one)).count();
    if unknown > 0 {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let last = commit_last(&observer).await;
    let mut histories = Vec::new();
    for follower in followers {
        let batches = tokio::time::timeout(Duration::from_secs(20), follower).await;
        histories.push(batches.expect("a watch sees the last transaction").expect("a watch ends"));
    }
    // The watch of the task first, then those of the prefixes, from the second on.
    let history = histories.swap_remove(0);
    histories.push(history.clone());
    let end = observer.list(&Prefix::all()).await.expect("a listing");
    check_watches(&history, &histories, &prefixes);
    let states = replay(&start, &history);
    assert_eq!(end.entries, states.values().next_back().map(values).unwrap_or_default());
    assert!(end.revision >= last);
    check_transactions(&seen.asked, &history, &states);
    for (prefix, listing) in &seen.listings {
        check_listing(prefix, listing, &states);
    }
    let done = seen.asked.iter().filter(|one| matches!(one.outcome, Some(Outcome::Done { .. })));
    Tally { done: done.count(), unknown, unreachable: seen.unreachable }
}

fn last_key() -> Key {
    Key::new("odd/1-even/last").expect("a key")
}

/// Makes the last revision, which every watch but that of `even/` sees.
async fn commit_last(observer: &Arc<dyn Coordinator>) -> Revision {
    let even = Key::new("even/last").expect("a key");
    let txn = Txn::new().put(&last_key(), b"last".to_vec()).put(&even, b"last".to_vec());
    let outcome = observer.txn(txn).await.expect("the observer reaches the backend");
    outcome.done().expect("it compares nothing")
}

async fn follow(mut watch: keyway_coordinator::Watch) -> Vec<Batch> {
    let mut batches = Vec::new();
    loop {
        let batch = match watch.next().await {
            Ok(Event::Changes(batch)) => batch,
            Ok(Event::ListAgain) => panic!("the history is long enough"),
            Err(fault) if fault.kind() == FaultKind::Unreachable => continue,
            Err(fault) => panic!("{fault}"),
        };
        let is_last =
            |change: &Change| matches!(change, Change::Put(entry) if *entry.value == *b"last");
        let is_end = batch.changes.iter().any(is_last);
        batches.push(batch);
        if is_end {
            return batches;
        }
    }
}

async fn work(
    task: Arc<dyn Coordinator>,
    seed: u64,
    number: usize,
    steps: usize,
    may_fail: bool,
) -> Seen {
    let mut random = Random::new(seed ^ (number as u64) << 32);
    let mut seen = Seen::default();
    let mut known: BTreeMap<Key, Option<Entry>> = BTreeMap::new();
    for step in 0..steps {
        if random.below(8) == 0 {
            let prefix = Prefix::new(["", "even/", "odd/"][random.below(3)]).expect("a prefix");
            match task.list(&prefix).await {
                Ok(listing) => {
                    for entry in &listing.entries {
                        known.insert(entry.key.clone(), Some(entry.clone()));
                    }
                    seen.listings.push((prefix, listing));
                }
                Err(fault) => {
                    assert!(may_fail && fault.kind() == FaultKind::Unreachable, "{fault}");
                    seen.unreachable += 1;
                }
            }
        }
        let mut asked = draw(&mut random, &known, number, step);
        match task.txn(txn_of(&asked)).await {
            Ok(outcome) => {
                if let Outcome::Refused { found, .. } = &outcome {
                    known.extend(found.iter().cloned());
                }
                asked.outcome = Some(outcome);
                seen.asked.push(asked);
            }
            Err(fault) if fault.kind() == FaultKind::Unknown => {
                assert!(may_fail, "{fault}");
                seen.asked.push(asked);
            }
            Err(fault) => {
                assert!(may_fail && fault.kind() == FaultKind::Unreachable, "{fault}");
                seen.unreachable += 1;
                // It was not executed: the history must not have it.
            }
        }
    }
    seen
}

fn draw(
    random: &mut Random,
    known: &BTreeMap<Key, Option<Entry>>,
    number: usize,
    step: usize,
) -> Asked {
    let mut compare = Vec::new();
    for _ in 0..random.below(3) {
        let key = key(random.below(8));
        let entry = known.get(&key).cloned().flatten();
        compare.push(match (random.below(4), entry) {
            (0, _) => Compare::Absent(key),
            (1, Some(entry)) => Compare::Modified(key, entry.modified),
            (2, Some(entry)) => Compare::Value(key, entry.value),
            _ => Compare::Exists(key),
        });
    }
    // The first put has a value that nobody else writes.
    let first = random.below(8);
    let value = format!("{number}-{step}").into_bytes();
    let mut asked =
        Asked { compare, puts: vec![(key(first), value)], deletes: Vec::new(), outcome: None };
    for other in 0..8 {
        if other == first {
            continue;
        }
        match random.below(12) {
            0 => asked.puts.push((key(other), random.bytes(20))),
            1 | 2 => asked.deletes.push(key(other)),
            _ => {}
        }
    }
    asked
}

fn txn_of(asked: &Asked) -> Txn {
    let mut txn = Txn::new();
    for compare in &asked.compare {
        txn = txn.when(compare.clone());
    }
    for (key, value) in &asked.puts {
        txn = txn.put(key, value.clone());
    }
    for key in &asked.deletes {
        txn = txn.delete(key);
    }
    txn
}

/// The states behind each revision, from the start on. Checks revisions of entries on the way.
fn replay(start: &Listing, history: &[Batch]) -> BTreeMap<Revision, Entries> {
    let first: Entries =
        start.entries.iter().map(|entry| (entry.key.clone(), entry.clone())).collect();
    let mut states = BTreeMap::from([(start.revision, first.clone())]);
    let (mut revision, mut state) = (start.revision, first);
    for batch in history {
        assert!(batch.revision > revision, "revisions grow");
        revision = batch.revision;
        for change in &batch.changes {
            match change {
                Change::Put(entry) => {
                    assert_eq!(entry.modified, revision);
                    let before = state.insert(entry.key.clone(), entry.clone());
                    assert_eq!(entry.created, before.map_or(revision, |entry| entry.created));
                }
                Change::Deleted(key) => assert!(state.remove(key).is_some(), "{key} existed"),
            }
        }
        states.insert(revision, state.clone());
    }
    states
}

fn values(entries: &Entries) -> Vec<Entry> {
    entries.values().cloned().collect()
}

/// The state that a revision shows. Revisions of others make none.
fn state_at(states: &BTreeMap<Revision, Entries>, revision: Revision) -> &Entries {
    states.range(..=revision).next_back().expect("no answer is from before the run").1
}

fn check_listing(prefix: &Prefix, listing: &Listing, states: &BTreeMap<Revision, Entries>) {
    let expected: Vec<Entry> = state_at(states, listing.revision)
        .values()
        .filter(|entry| prefix.holds(&entry.key))
        .cloned()
        .collect();
    assert_eq!(listing.entries, expected, "a listing is of one revision");
}

/// Every watch sees the part of the history that is its own.
fn check_watches(history: &[Batch], others: &[Vec<Batch>], prefixes: &[Prefix; 3]) {
    let sorted = |batch: &Batch, prefix: &Prefix| {
        let mut changes: Vec<Change> =
            batch.changes.iter().filter(|one| prefix.holds(one.key())).cloned().collect();
        changes.sort_by(|a, b| a.key().cmp(b.key()));
        (batch.revision, changes)
    };
    // The order of `others`: see `run`.
    assert_eq!(others.len(), 4);
    let theirs = [&prefixes[0], &prefixes[1], &prefixes[2], &prefixes[0]];
    for (prefix, seen) in theirs.into_iter().zip(others) {
        let expected: Vec<_> = history
            .iter()
            .map(|batch| sorted(batch, prefix))
            .filter(|(_, changes)| !changes.is_empty())
            .collect();
        let seen: Vec<_> = seen.iter().map(|batch| sorted(batch, prefix)).collect();
        assert_eq!(seen, expected, "the watch of {:?}", prefix.as_str());
    }
}

/// Each revision is one transaction, and each transaction that was done one revision, at which its
/// comparisons held.
fn check_transactions(asked: &[Asked], history: &[Batch], states: &BTreeMap<Revision, Entries>) {
    let mut by_value: BTreeMap<Vec<u8>, &Asked> = BTreeMap::new();
    for one in asked {
        by_value.insert(one.puts[0].1.clone(), one);
    }
    let mut explained = 0;
    for batch in history {
        let of_batch = batch.changes.iter().find_map(|change| match change {
            Change::Put(entry) => by_value.get(&*entry.value),
            Change::Deleted(_) => None,
        });
        let is_last = batch.changes.iter().any(|change| *change.key() == last_key());
        let Some(one) = of_batch else {
            assert!(is_last, "nobody asked for {batch:?}");
            continue;
        };
        explained += 1;
        match &one.outcome {
            Some(Outcome::Done { revision }) => assert_eq!(*revision, batch.revision),
            Some(refused) => panic!("executed at {}, and {refused:?}", batch.revision),
            None => {}
        }
        let before = state_at(states, Revision(batch.revision.0 - 1));
        for compare in &one.compare {
            assert!(compare.holds(before.get(compare.key())), "{compare:?} at {}", batch.revision);
        }
        let mut expected: BTreeMap<Key, Option<Vec<u8>>> =
            one.puts.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        let deleted = one.deletes.iter().filter(|key| before.contains_key(key));
        expected.extend(deleted.map(|key| (key.clone(), None)));
        let seen: BTreeMap<Key, Option<Vec<u8>>> = batch
            .changes
            .iter()
            .map(|change| match change {
                Change::Put(entry) => (entry.key.clone(), Some(entry.value.to_vec())),
                Change::Deleted(key) => (key.clone(), None),
            })
            .collect();
        assert_eq!(seen, expected, "all of a transaction is at {}", batch.revision);
    }
    let done = asked.iter().filter(|one| matches!(one.outcome, Some(Outcome::Done { .. }))).count();
    let unknown = asked.iter().filter(|one| one.outcome.is_none()).count();
    assert!(
        (done..=done + unknown).contains(&explained),
        "{done} done, {explained} in the history"
    );
    for one in asked {
        let Some(Outcome::Refused { revision, found }) = &one.outcome else { continue };
        let state = state_at(states, *revision);
        assert!(!found.is_empty());
        for (key, entry) in found {
            assert_eq!(state.get(key), entry.as_ref(), "{key} at {revision}");
            let is_false =
                |compare: &&Compare| compare.key() == key && !compare.holds(entry.as_ref());
            assert!(one.compare.iter().any(|compare| is_false(&compare)));
        }
    }
}
