//! The course of a run: faults and changes of role by chance, then peace, then the end.

use super::ReplicaReport;
use super::clients::{Clients, Counts};
use super::history::Histories;
use super::laws;
use super::links::{LinkOptions, Links};
use super::node::{Node, NodeOptions, Order};
use super::stage::{Stage, Virtual};
use crate::random::Random;
use keyway_replica::System;
use keyway_replica::feed::FeedSettings;
use keyway_standby::FeedConfig;
use keyway_store::EffectLimits;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MILLI: u64 = 1_000_000;
/// Time between two looks at the laws.
const LOOK: Duration = Duration::from_millis(20);
/// Longest virtual time in which stores that follow each other come to the same data, once
/// everything works: some timeouts, pauses and snapshots.
const PEACE_MAX: u64 = 30_000 * MILLI;
/// Longest virtual time in which all threads end.
const END_MAX: u64 = 20_000 * MILLI;

pub(super) struct Director {
    pub(super) stage: Arc<Stage>,
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) options: NodeOptions,
    pub(super) histories: Arc<Histories>,
    pub(super) report: ReplicaReport,
    random: Random,
    counts: Arc<Counts>,
    is_resting: Arc<AtomicBool>,
    is_ending: Arc<AtomicBool>,
    /// Doors that are closed, and until when.
    closed: Vec<(usize, u64)>,
    /// By store: what was told of it last.
    told: Vec<String>,
}

fn node_options(random: &mut Random) -> NodeOptions {
    let millis = |random: &mut Random, low, high| Duration::from_millis(random.between(low, high));
    NodeOptions {
        feed: FeedConfig {
            limits: EffectLimits {
                room: random.scaled(300 << 10, 4 << 20) as usize,
                history: random.scaled(256, 256 << 10) as usize,
            },
            snapshot_buffer: random.scaled(4 << 10, 4 << 20),
            feed: FeedSettings {
                replicas_max: 64,
                timeout: millis(random, 2500, 4000),
                ping_period: millis(random, 100, 900),
                backlog_ttl: millis(random, 200, 3000),
            },
        },
        timeout: millis(random, 1500, 3500),
        pause_min: millis(random, 5, 100),
        pause_max: millis(random, 100, 600),
    }
}

fn link_options(random: &mut Random) -> LinkOptions {
    LinkOptions {
        delay_max: random.scaled(10_000, 20 * MILLI),
        window: random.scaled(2 << 10, 64 << 10) as usize,
        piece_max: random.scaled(16, 64 << 10) as usize,
        buffer: random.scaled(4 << 10, 128 << 10) as usize,
    }
}

impl Director {
    pub(super) fn new(mut random: Random, has_story: bool) -> Self {
        let count = random.between(2, 5) as usize;
        let links = Links::new(link_options(&mut random), count);
        let lateness = Duration::from_micros(random.scaled(100, 6000));
        let stage = Stage::open(random.fork(), lateness, links, has_story);
        let options = node_options(&mut random);
        let histories = Arc::new(Histories::default());
        let nodes: Vec<Arc<Node>> =
            (0..count).map(|index| Node::new(&stage, index, options, &histories)).collect();
        let mut director = Self {
            stage,
            nodes,
            options,
            histories,
            report: ReplicaReport::default(),
            random,
            counts: Arc::default(),
            is_resting: Arc::default(),
            is_ending: Arc::default(),
            closed: Vec::new(),
            told: vec![String::new(); count],
        };
        director.start();
        director
    }

    fn start(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            node.start(self.random.fork());
            if index > 0 {
                node.order(Order::Follow(self.random.index(index)));
            }
        }
        let system: Arc<dyn System> = Arc::new(Virtual(Arc::clone(&self.stage)));
        let clients = Clients {
            stage: Arc::clone(&self.stage),
            system: Arc::clone(&system),
            nodes: self.nodes.clone(),
            random: self.random.fork(),
            pause_max: self.random.scaled(MILLI, 60 * MILLI),
            long_max: self.random.scaled(1 << 10, 200 << 10),
            is_resting: Arc::clone(&self.is_resting),
            is_ending: Arc::clone(&self.is_ending),
            counts: Arc::clone(&self.counts),
        };
        let thread = system.spawn("clients".to_owned(), Box::new(move || clients.run()));
        drop(thread.expect("a thread"));
    }

    pub(super) fn run(mut self) -> Result<ReplicaReport, (String, Vec<String>)> {
        let outcome = self.play();
        Stage::close();
        match outcome {
            Ok(()) => Ok(self.report),
            Err(text) => {
                let story = self.stage.take_story();
                // Threads that stand still use them.
                std::mem::forget(self);
                Err((text, story))
            }
        }
    }

    fn play(&mut self) -> Result<(), String> {
        for _ in 0..self.random.between(1, 3) {
            self.trouble()?;
            self.peace()?;
        }
        self.end()?;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        self.report.writes = count(&self.counts.writes);
        self.report.refused = count(&self.counts.refused);
        self.report.reads = count(&self.counts.reads);
        self.report.waits = count(&self.counts.waits);
        self.report.hand_overs = count(&self.histories.hand_overs);
        self.report.turns = self.nodes.iter().map(|node| count(&node.turns)).sum();
        (self.report.bytes, self.report.cuts) =
            self.stage.with_links(|links, _| (links.delivered, links.cuts));
        self.report.steps = self.stage.steps();
        self.report.virtual_time = Duration::from_nanos(self.stage.nanos());
        Ok(())
    }

    /// Lets a moment pass, and looks at the laws that hold at any time.
    pub(super) fn pass(&mut self) -> Result<(), String> {
        let is_well = self.stage.pass(LOOK);
        if !is_well {
            return Err(self.stage.fault().unwrap_or_default());
        }
        self.tell_roles();
        laws::at_any_time(self)
    }

    /// Tells which stores have other roles or links than before.
    fn tell_roles(&mut self) {
        for (node, told) in self.nodes.iter().zip(&mut self.told) {
            let line = laws::role_of(node);
            if *told != line.0 {
                self.stage.tell(|| format!("store {}: {}{}", node.index, line.0, line.1));
                *told = line.0;
            }
        }
    }

    fn trouble(&mut self) -> Result<(), String> {
        let until = self.stage.nanos() + self.random.scaled(300, 4000) * MILLI;
        let calm = self.random.scaled(30, 1000);
        let mut next_at = self.stage.nanos();
        while self.stage.nanos() < until {
            let now = self.stage.nanos();
            if now >= next_at {
                self.disturb();
                next_at = now + self.random.between(1, calm) * MILLI;
            }
            let due = self.closed.iter().filter(|(_, until)| *until <= now);
            for (index, _) in due {
                self.stage.with_links(|links, _| links.open(*index, true));
            }
            self.closed.retain(|(_, until)| *until > now);
            self.pass()?;
        }
        Ok(())
    }

    fn disturb(&mut self) {
        let random = &mut self.random;
        let (index, other) = (random.index(self.nodes.len()), random.index(self.nodes.len()));
        let node = &self.nodes[index];
        match random.below(100) {
            0..=29 => {
                let (chance, bytes) = (random.bits(), random.scaled(1, 100_000));
                self.stage.with_links(|links, _| match links.len() as u64 {
                    0 => {}
                    len => links.cut((chance % len) as usize, bytes),
                });
            }
            30..=44 => {
                let (chance, lasts) = (random.bits(), random.scaled(10, 6000) * MILLI);
                self.stage.with_links(|links, now| match links.len() as u64 {
                    0 => {}
                    len => links.silence((chance % len) as usize, now + lasts),
                });
            }
            45..=54 => {
                let until = self.stage.nanos() + random.scaled(10, 1500) * MILLI;
                self.stage.with_links(|links, _| links.open(index, false));
                self.closed.push((index, until));
            }
            55..=59 => self.stage.with_links(|links, _| links.cut_all()),
            60..=67 => node.order(Order::Promote),
            68..=85 if index != other => node.order(Order::Follow(other)),
            86..=95 => {
                let until = self.stage.nanos() + random.scaled(50, 3000) * MILLI;
                node.order(Order::FailOver { until });
            }
            96..=99 => node.order(Order::Restart),
            _ => {}
        }
    }

    /// Nothing disturbs any more: replicas come to the data of their primaries.
    fn peace(&mut self) -> Result<(), String> {
        self.is_resting.store(true, Ordering::Relaxed);
        self.closed.clear();
        self.stage.with_links(|links, _| links.heal());
        let until = self.stage.nanos() + PEACE_MAX;
        loop {
            self.pass()?;
            self.break_rings();
            match laws::unrest(self) {
                None => break,
                Some(text) if self.stage.nanos() > until => return Err(text),
                Some(_) => {}
            }
        }
        laws::at_rest(self)?;
        self.is_resting.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Has a store of each ring become a primary.
    fn break_rings(&mut self) {
        for node in &self.nodes {
            let (mut at, mut steps) = (node.index, 0);
            while let Some(next) = self.nodes[at].life().follows() {
                (at, steps) = (next, steps + 1);
                if steps > self.nodes.len() {
                    return self.nodes[at].order(Order::Promote);
                }
            }
        }
    }

    /// All links are cut, and all stores become primaries: nothing is left of their replicas.
    fn end(&mut self) -> Result<(), String> {
        self.is_ending.store(true, Ordering::Relaxed);
        for index in 0..self.nodes.len() {
            self.stage.with_links(|links, _| links.open(index, false));
        }
        self.stage.with_links(|links, _| links.cut_all());
        laws::count(self);
        for node in &self.nodes {
            node.order(Order::Abort);
            node.order(Order::Promote);
        }
        let ttl = self.options.feed.feed.backlog_ttl;
        let until = self.stage.nanos() + END_MAX + ttl.as_nanos() as u64;
        self.await_that(until, laws::followed)?;
        self.nodes.iter().for_each(|node| node.order(Order::End));
        self.await_that(until + END_MAX, |director| {
            let cast = director.stage.cast();
            (!cast.is_empty()).then(|| format!("threads do not end: {}", cast.join(", ")))
        })
    }

    /// Waits until nothing is found any more.
    fn await_that(
        &mut self,
        until: u64,
        find: impl Fn(&Self) -> Option<String>,
    ) -> Result<(), String> {
        while let Some(text) = find(self) {
            if self.stage.nanos() > until {
                return Err(text);
            }
            self.pass()?;
        }
        Ok(())
    }
}
