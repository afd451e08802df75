//! Anything may happen at once. Once it is over, no client waits for an element that is there, and
//! no element is lost or doubled.

mod common;

use common::{Random, at_once, clock_at, context_of, run, with_request};
use keyway_store::{Context, Footprint, Store, StoreConfig, Waited, Waiter, Who};
use std::collections::BTreeSet;
use std::sync::Arc;

const START: u64 = 1_700_000_000_000;
const WORKERS: u16 = 3;
const ROUNDS: u64 = 2_000;
/// Short, so that what comes last, which nothing heals, is seen often.
const STEPS: usize = 24;
const QUEUES: [&str; 3] = ["p", "q", "r"];

fn context(worker: u16) -> Context {
    context_of(worker, START)
}

/// The elements in a reply, each of which begins with `e`.
fn elements(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(reply);
    let is_element = |line: &&str| line.starts_with('e');
    text.split("\r\n").filter(is_element).map(str::to_owned).collect()
}

/// A command that waits or has waited.
struct Begun {
    waiter: Arc<Waiter>,
    line: String,
}

impl Begun {
    /// Returns whether it would take an element of a queue.
    fn wants(&self, queue: &str) -> bool {
        let mut words = self.line.split(' ');
        match words.next() {
            Some("BZPOPMIN") => false,
            Some("BLMOVE") => words.next() == Some(queue),
            _ => words.any(|word| word == queue),
        }
    }
}

/// One thread that serves clients, as a worker does.
struct Worker<'a> {
    store: &'a Arc<Store>,
    index: u16,
    random: Random,
    next: u64,
    pushed: Vec<String>,
    taken: Vec<String>,
    begun: Vec<Begun>,
}

impl Worker<'_> {
    fn step(&mut self) {
        let queue = *self.random.pick(&QUEUES);
        match self.random.below(16) {
            0..5 => {
                let element = self.element();
                let verb = *self.random.pick(&["RPUSH", "LPUSH"]);
                self.execute(&format!("{verb} {queue} {element}"));
            }
            5 => {
                let lines = [self.element(), self.element()]
                    .map(|element| format!("RPUSH {} {element}", self.random.pick(&QUEUES)));
                self.transact(&lines);
            }
            6 => {
                let line = format!("RPUSH {queue} {}", self.element());
                let other = format!("LLEN {}", self.random.pick(&QUEUES));
                self.run_script(&[other, line]);
            }
            7 => self.execute(&format!("LPOP {queue}")),
            8..10 => self.cancel_one(),
            _ => self.wait(queue),
        }
        let mut served = Vec::new();
        self.store.serve_ready(self.index, clock_at(START), |_, reply| served.push(reply));
        served.iter().for_each(|reply| self.take(reply));
    }

    /// A new element, which is pushed.
    fn element(&mut self) -> String {
        self.next += 1;
        self.pushed.push(format!("e{}:{}", self.index, self.next));
        self.pushed[self.pushed.len() - 1].clone()
    }

    /// Notes what a reply says to have been taken.
    fn take(&mut self, reply: &[u8]) {
        // The reply to a move is the bulk alone, and the element is in the target list.
        if reply.starts_with(b"*") {
            self.taken.extend(elements(reply));
        }
    }

    fn execute(&mut self, line: &str) {
        let mut out = Vec::new();
        with_request(line, |request| self.store.execute(request, context(self.index), &mut out));
        if line.starts_with("LPOP") {
            self.taken.extend(elements(&out));
        }
    }

    fn transact(&self, lines: &[String]) {
        let mut footprint = Footprint::default();
        lines.iter().for_each(|line| with_request(line, |it| footprint.add(self.store, it)));
        let held = self.store.hold(footprint, context(self.index)).expect("room");
        for line in lines {
            with_request(line, |it| held.execute(it, context(self.index), &mut Vec::new()));
        }
    }

    fn run_script(&self, lines: &[String]) {
        let hold = self.store.begin_script().expect("none is busy");
        for line in lines {
            let context = context(self.index);
            with_request(line, |it| hold.execute(it, context, false, &mut Vec::new()));
        }
    }

    fn wait(&mut self, queue: &str) {
        let other = *self.random.pick(&QUEUES);
        let line = match self.random.below(8) {
            0..3 => format!("BLPOP {queue} {other} 0"),
            3 => "BRPOP r q p 0".to_owned(),
            4..6 => format!("BLMPOP 0 2 {other} {queue} LEFT COUNT 2"),
            6 => format!("BLMOVE {queue} {other} LEFT RIGHT 0"),
            _ => format!("BZPOPMIN {queue} 0"),
        };
        self.next += 1;
        let client = u64::from(self.index) << 32 | self.next;
        let who = Who { client, worker: self.index, is_noloop: false };
        let mut out = Vec::new();
        let waited = with_request(&line, |request| {
            self.store.attempt_or_wait(request, context(self.index), who, &mut out)
        });
        match waited {
            Waited::Waits(waiter, _) => self.begun.push(Begun { waiter, line }),
            Waited::Answered => self.take(&out),
        }
    }

    fn cancel_one(&mut self) {
        if !self.begun.is_empty() {
            let begun = self.begun.swap_remove(self.random.below(self.begun.len()));
            self.store.cancel(&begun.waiter);
        }
    }
}

#[test]
fn when_all_is_quiet_nobody_waits_for_what_is_there() {
    let store = Arc::new(Store::new(StoreConfig { shards: Some(4), ..StoreConfig::default() }));
    for round in 0..ROUNDS {
        let work = |index: u16| {
            let mut worker = Worker {
                store: &store,
                index,
                random: Random::new(round * 64 + u64::from(index) + 1),
                next: 0,
                pushed: Vec::new(),
                taken: Vec::new(),
                begun: Vec::new(),
            };
            (0..STEPS).for_each(|_| worker.step());
            worker
        };
        let workers: Vec<Worker<'_>> = at_once(WORKERS, work);
        let begun = || workers.iter().flat_map(|worker| &worker.begun);
        let waiting: Vec<&Begun> = begun().filter(|it| store.cancel(&it.waiter)).collect();
        let mut there = Vec::new();
        for queue in QUEUES {
            let left = run(&store, START, &format!("LRANGE {queue} 0 -1")).strings();
            let wanted = waiting.iter().find(|it| it.wants(queue));
            if let (Some(it), false) = (wanted, left.is_empty()) {
                panic!("round {round}: {} waits, and {queue} has {}", it.line, left.len());
            }
            let text = |element: Vec<u8>| String::from_utf8(element).expect("text");
            there.extend(left.into_iter().map(text));
            run(&store, START, &format!("DEL {queue}"));
        }
        there.extend(workers.iter().flat_map(|worker| worker.taken.clone()));
        let pushed: BTreeSet<&String> = workers.iter().flat_map(|worker| &worker.pushed).collect();
        assert_eq!(there.len(), pushed.len(), "round {round}");
        assert_eq!(there.iter().collect::<BTreeSet<_>>(), pushed, "round {round}");
        assert_eq!(store.waiting_len(), 0);
        assert!(!store.notifies(), "nothing is left to be served");
    }
}
