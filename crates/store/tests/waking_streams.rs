//! Streams that many threads read for groups while others write: once all is
//! quiet nobody waits for an entry that is there, and each group has had every
//! entry once.

mod common;

use common::{Random, at_once, clock_at, context_of, run, with_request};
use keyway_store::{Context, Store, StoreConfig, Waited, Waiter, Who};
use std::collections::BTreeSet;
use std::sync::Arc;

const START: u64 = 1_700_000_000_000;
const WORKERS: u16 = 3;
const ROUNDS: u64 = 1_000;
/// Short, so that what comes last, which nothing heals, is seen often.
const STEPS: usize = 24;
const STREAMS: [&str; 2] = ["s", "t"];
const GROUPS: [&str; 2] = ["g", "h"];

fn context(worker: u16) -> Context {
    context_of(worker, START)
}

/// The entries in a reply, the value of each of which begins with `e`.
fn entries(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(reply);
    text.split("\r\n").filter(|line| line.starts_with('e')).map(str::to_owned).collect()
}

/// A command that waits or has waited.
struct Begun {
    waiter: Arc<Waiter>,
    /// Position of its group; none for one that reads what comes to all.
    group: Option<usize>,
    streams: Vec<&'static str>,
}

/// One thread that serves clients, as a worker does.
struct Worker<'a> {
    store: &'a Store,
    index: u16,
    random: Random,
    next: u64,
    added: Vec<(&'static str, String)>,
    /// By group.
    taken: [Vec<String>; GROUPS.len()],
    begun: Vec<Begun>,
}

/// Returns the client's number, which tells the group for which it reads.
fn client_of(worker: u16, number: u64, group: Option<usize>) -> u64 {
    u64::from(worker) << 32 | number << 2 | group.map_or(3, |group| group as u64)
}

impl Worker<'_> {
    fn step(&mut self) {
        match self.random.below(10) {
            0..4 => {
                let stream = *self.random.pick(&STREAMS);
                self.next += 1;
                let entry = format!("e{}:{}", self.index, self.next);
                self.execute(&format!("XADD {stream} * v {entry}"));
                self.added.push((stream, entry));
            }
            4 if !self.begun.is_empty() => {
                let begun = self.begun.swap_remove(self.random.below(self.begun.len()));
                self.store.cancel(&begun.waiter);
            }
            _ => self.wait(),
        }
        let mut served = Vec::new();
        self.store.serve_ready(self.index, clock_at(START), |waiter, reply| {
            served.push((waiter.who.client & 3, reply));
        });
        for (group, reply) in served {
            self.take(usize::try_from(group).expect("small"), &reply);
        }
    }

    fn take(&mut self, group: usize, reply: &[u8]) {
        assert!(!reply.starts_with(b"-"), "{}", reply.escape_ascii());
        if let Some(taken) = self.taken.get_mut(group) {
            taken.extend(entries(reply));
        }
    }

    fn execute(&self, line: &str) {
        let mut out = Vec::new();
        with_request(line, |request| self.store.execute(request, context(self.index), &mut out));
        assert!(!out.starts_with(b"-"), "{line}: {}", out.escape_ascii());
    }

    fn wait(&mut self) {
        let streams = match self.random.below(3) {
            0 => STREAMS.to_vec(),
            _ => vec![*self.random.pick(&STREAMS)],
        };
        let group = (self.random.below(5) > 0).then(|| self.random.below(GROUPS.len()));
        let names = streams.join(" ");
        let ids = |id: &str| vec![id; streams.len()].join(" ");
        let line = match group {
            Some(group) => {
                let (group, ids) = (GROUPS[group], ids(">"));
                format!("XREADGROUP GROUP {group} c COUNT 2 BLOCK 0 NOACK STREAMS {names} {ids}")
            }
            None => format!("XREAD BLOCK 0 STREAMS {names} {}", ids("$")),
        };
        self.next += 1;
        let client = client_of(self.index, self.next, group);
        let who = Who { client, worker: self.index, is_noloop: false };
        let mut out = Vec::new();
        let waited = with_request(&line, |request| {
            self.store.attempt_or_wait(request, context(self.index), who, &mut out)
        });
        match waited {
            Waited::Waits(waiter, _) => self.begun.push(Begun { waiter, group, streams }),
            Waited::Answered => self.take(group.unwrap_or(GROUPS.len()), &out),
        }
    }
}

/// Returns the entries of a stream that a group has not had yet. It gets them now.
fn left(store: &Store, group: &str, stream: &str) -> Vec<String> {
    let line = format!("XREADGROUP GROUP {group} c NOACK STREAMS {stream} >");
    let mut out = Vec::new();
    with_request(&line, |request| store.execute(request, context(0), &mut out));
    entries(&out)
}

#[test]
fn when_all_is_quiet_each_group_has_had_every_entry_once_and_nobody_waits_for_one() {
    let store = Store::new(StoreConfig { shards: Some(4), ..StoreConfig::default() });
    for round in 0..ROUNDS {
        for stream in STREAMS {
            for group in GROUPS {
                run(&store, START, &format!("XGROUP CREATE {stream} {group} 0 MKSTREAM"));
            }
        }
        let work = |index: u16| {
            let mut worker = Worker {
                store: &store,
                index,
                random: Random::new(round * 64 + u64::from(index) + 1),
                next: 0,
                added: Vec::new(),
                taken: Default::default(),
                begun: Vec::new(),
            };
            (0..STEPS).for_each(|_| worker.step());
            worker
        };
        let workers: Vec<Worker<'_>> = at_once(WORKERS, work);
        let begun = || workers.iter().flat_map(|worker| &worker.begun);
        let waiting: Vec<&Begun> = begun().filter(|it| store.cancel(&it.waiter)).collect();
        let added = workers.iter().flat_map(|worker| &worker.added);
        let added: BTreeSet<&String> = added.map(|(_, entry)| entry).collect();
        for (position, group) in GROUPS.iter().enumerate() {
            let taken = workers.iter().flat_map(|worker| worker.taken[position].clone());
            let mut had: Vec<String> = taken.collect();
            for stream in STREAMS {
                let left = left(&store, group, stream);
                let wants =
                    |it: &&Begun| it.group == Some(position) && it.streams.contains(&stream);
                let is_wanted = waiting.iter().any(wants);
                assert!(
                    left.is_empty() || !is_wanted,
                    "round {round}: {group} of {stream}: {left:?}"
                );
                had.extend(left);
            }
            assert_eq!(had.len(), added.len(), "round {round}: {group}");
            assert_eq!(had.iter().collect::<BTreeSet<_>>(), added, "round {round}: {group}");
        }
        STREAMS.iter().for_each(|stream| drop(run(&store, START, &format!("DEL {stream}"))));
        assert_eq!(store.waiting_len(), 0);
        assert!(!store.notifies(), "nothing is left to be served");
    }
}
