//! The operations of a worker, and what is remembered beside them.

use super::Due;
use crate::core::pools::given::Loads;
use keyway_base::Key;
use keyway_proxy::ConnectionKey;
use keyway_proxy::InfoQuery;
use keyway_proxy::{JoinPool, MultiStep, Operation, Work};
use keyway_resp::Protocol;
use std::collections::BTreeMap;

/// The requests of a worker that take several exchanges.
#[derive(Default)]
pub(crate) struct State {
    pub(super) operations: super::operations::Operations,
    /// The steps that replies have requested.
    pub(super) due: Vec<Due>,
    pub(super) conclusions: Conclusions,
    pub(super) joins_free: JoinPool,
    pub(super) multi_steps_free: MultiStepPool,
    pub(super) fan_out: Scratch,
}

impl State {
    /// Schedules something for when no link is borrowed.
    pub(in crate::core) fn add_due(&mut self, due: Due) {
        self.due.push(due);
    }

    /// Returns whether a next step is due.
    #[inline]
    pub(in crate::core) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the number of next steps and of conclusions that are due.
    pub(in crate::core) fn due(&self) -> usize {
        self.due.len() + self.conclusions.len()
    }

    /// Frees capacity beyond `kept_max` keys.
    pub(in crate::core) fn trim_scratch(&mut self, kept_max: usize) {
        self.fan_out.trim(kept_max);
    }

    /// Frees the memory of unused joins.
    pub(in crate::core) fn forget_room(&mut self) {
        self.joins_free = JoinPool::default();
    }
}

/// The conclusion of a request that was sent everywhere, once every server has answered.
pub(in crate::core) enum Conclusion {
    /// Scripts or libraries were to be loaded or forgotten.
    Loads(Loads),
    /// Elements that are one whatever they say.
    Certain(Vec<bool>),
    /// Make one text of them.
    Report(Box<Report>),
}

/// The conclusions of requests that are on their way everywhere.
#[derive(Default)]
pub(super) struct Conclusions {
    /// The conclusion of the request that is about to be sent.
    pub(super) next: Option<Conclusion>,
    /// The conclusions of joins, by their key.
    pub(super) of_joins: BTreeMap<u64, Conclusion>,
}

impl Conclusions {
    /// Number of conclusions that are to be drawn.
    fn len(&self) -> usize {
        self.of_joins.len() + usize::from(self.next.is_some())
    }
}

impl State {
    /// Sets the conclusion of the request that is sent everywhere next.
    pub(in crate::core) fn expect(&mut self, conclusion: Conclusion) {
        self.conclusions.next = Some(conclusion);
    }

    /// Nothing more follows from what is sent everywhere.
    pub(in crate::core) fn expect_nothing(&mut self) {
        self.conclusions.next = None;
    }
}

/// Room for splitting one request.
#[derive(Default)]
pub(in crate::core) struct Scratch {
    /// Server of each key.
    pub(super) servers: Vec<u16>,
    /// Keys for each server of the pool.
    pub(super) counts: Vec<u32>,
    /// Fragment of each server of the pool.
    pub(super) fragments: Vec<u16>,
    /// Where each server's fragment starts in its link's output.
    pub(super) starts: Vec<usize>,
}

impl Scratch {
    /// Gives back room beyond `kept_max` keys.
    fn trim(&mut self, kept_max: usize) {
        if self.servers.capacity() > kept_max {
            self.servers = Vec::new();
        }
    }
}

/// Multi-step requests at rest whose room is kept: as many as a deep pipeline has.
pub(super) const MULTI_STEPS_KEPT_MAX: usize = 256;

/// Room for a request that a multi-step request at rest keeps, in bytes.
pub(super) const REQUEST_KEPT_MAX: usize = 2 << 10;

/// Multi-step requests at rest.
#[derive(Default)]
pub(super) struct MultiStepPool {
    #[allow(clippy::vec_box, reason = "the boxes are what is reused")]
    pub(super) free: Vec<Box<MultiStep>>,
}

impl MultiStepPool {
    pub(super) fn take(&mut self, work: Work) -> Box<MultiStep> {
        if let Some(mut multi_step) = self.free.pop() {
            multi_step.work = work;
            return multi_step;
        }
        Box::new(MultiStep {
            caching: None,
            database: 0,
            protocol: Protocol::Resp2,
            server: 0,
            link: ConnectionKey::NONE,
            request: Vec::new(),
            said: Vec::new(),
            work,
        })
    }

    pub(super) fn give(&mut self, mut multi_step: Box<MultiStep>) {
        multi_step.request.clear();
        multi_step.said = Vec::new();
        let is_small = multi_step.request.capacity() <= REQUEST_KEPT_MAX;
        if is_small && self.free.len() < MULTI_STEPS_KEPT_MAX {
            multi_step.work = Work::RandomKey { left: 0, is_empty: false };
            self.free.push(multi_step);
        }
    }
}

impl State {
    /// A multi-step request to fill in.
    pub(in crate::core) fn take_multi_step(&mut self, work: Work) -> Box<MultiStep> {
        self.multi_steps_free.take(work)
    }

    /// The question of a multi-step request was sent on to another server, through this link.
    pub(in crate::core) fn note_moved(
        &mut self,
        key: Key<Operation>,
        server: u16,
        link: ConnectionKey,
    ) {
        if let Some(multi_step) = self.get_mut::<MultiStep>(key) {
            multi_step.server = server;
            multi_step.link = link;
        }
    }
}

/// A report, and in which protocol its client wants it.
pub(in crate::core) type Report = (InfoQuery, Protocol);
