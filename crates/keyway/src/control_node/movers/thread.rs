//! The thread of a mover: one order, from its beginning to its end.

use super::{Telling, Told, Way};
use keyway_base::Time;
use keyway_channel::clock;
use keyway_fleet::{
    MoverGroup, MoverOrder, MoverProgress, MoverReport, MoverWork, PlanPace, SlotRanges,
};
use keyway_mover::{
    Access, Counted, Failure, Look, Mover, MoverSettings, Pace, SlotSet, Stage, Status, count_keys,
    end_others, look, objections, position, purge,
};
use keyway_topology::SlotSpace;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait for the answer to a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for an order, and for another state of the copy while there is none.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The same while clients wait for the end of the copy.
const FINISH_EVERY: Duration = Duration::from_millis(2);

/// Time between two reports about a copy that goes on.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// The thread.
pub(super) struct Moving {
    pub order: MoverOrder,
    /// The number for reports: that of the latest order.
    pub number: Cell<u64>,
    /// The epoch of the leader.
    pub epoch: u64,
    /// The ways to the source's servers and to the target's.
    pub ways: [Way; 2],
    /// The keys that the plan moves, as far as it is known.
    pub total: Option<u64>,
    /// The thread before, which must end first.
    pub before: Option<JoinHandle<()>>,
    pub orders: Receiver<MoverOrder>,
    pub telling: Telling,
    pub is_over: Arc<AtomicBool>,
}

/// The end of a thread that its owner wants to end: nothing is told then.
struct Ended;

type Outcome = Result<Result<MoverProgress, Failure>, Ended>;

impl Moving {
    pub fn run(mut self) {
        if let Some(before) = self.before.take() {
            // Its panic was reported by itself.
            let _ = before.join();
        }
        if self.is_over() {
            return;
        }
        let outcome = match self.order.work {
            MoverWork::Check => self.check(),
            MoverWork::Copy => self.copy(),
            MoverWork::Clean => self.delete(&self.source()),
            MoverWork::Purge => self.delete(&self.target()),
            MoverWork::Finish => return,
        };
        match outcome {
            Ok(Ok(progress)) => self.tell(MoverReport::Done(progress)),
            Ok(Err(Failure { why, is_final })) => {
                self.tell(MoverReport::Failed { why, is_final });
            }
            Err(Ended) => {}
        }
    }

    fn is_over(&self) -> bool {
        // ORDER: the flag itself is the only data
        self.is_over.load(Ordering::Relaxed)
    }

    fn tell(&self, report: MoverReport) {
        if !self.is_over() {
            let MoverOrder { pool, plan, .. } = &self.order;
            let number = self.number.get();
            self.telling.tell(Told { pool: pool.clone(), plan: *plan, number, report });
        }
    }

    fn access(&self, server: &str, way: &Way) -> Result<Access, Failure> {
        let endpoint = server.parse().map_err(|_| Failure {
            why: format!("the address {server} cannot be read"),
            is_final: true,
        })?;
        Ok(Access { endpoint, password: way.password.clone(), tls: way.tls.clone() })
    }

    fn source(&self) -> Result<Access, Failure> {
        let [way, _] = &self.ways;
        self.access(&self.order.from.primary, way)
    }

    fn target(&self) -> Result<Access, Failure> {
        let [_, way] = &self.ways;
        self.access(&self.order.to.primary, way)
    }

    fn slots(&self) -> Result<SlotSet, Failure> {
        let space = SlotSpace::ALL.into_iter().find(|space| space.count() == self.order.count);
        let space = space.ok_or_else(|| Failure {
            why: format!("no rule gives a key one of {} slots", self.order.count),
            is_final: true,
        })?;
        Ok(SlotSet::new(space, ranges(&self.order.slots)))
    }

    /// The name of this mover's connections. Those of earlier leaders have others.
    fn name(&self) -> String {
        format!("{}{}.{}", self.prefix(), self.epoch, self.order.number)
    }

    /// The beginning of the names of all movers of this pool.
    fn prefix(&self) -> String {
        format!("keyway-mover:{}:", self.order.pool)
    }

    /// Ends the connections of other movers of this pool to a server. A process that was stopped would
    /// go on writing when it runs again.
    fn end_others(&self, server: &Access) -> Result<(), Failure> {
        let ended = end_others(server, &self.prefix(), &self.name(), ANSWER_WITHIN)?;
        if ended > 0 {
            tracing::warn!(
                pool = self.order.pool,
                "{ended} connections of an earlier mover to {} are closed",
                server.endpoint
            );
        }
        Ok(())
    }

    /// Looks at the servers, and counts keys.
    fn check(&self) -> Outcome {
        let servers = self.source().and_then(|source| Ok((source, self.target()?, self.slots()?)));
        let (source, target, slots) = match servers {
            Ok(servers) => servers,
            Err(failure) => return Ok(Err(failure)),
        };
        let seen = look(&source, ANSWER_WITHIN)
            .and_then(|seen| Ok((seen, look(&target, ANSWER_WITHIN)?)))
            .and_then(|(seen, to)| self.object(&seen, &to, None).map(|()| (seen, to)));
        let (seen, to) = match seen {
            Ok(seen) => seen,
            Err(failure) => return Ok(Err(failure)),
        };
        let moved = match self.count(&source, &slots)? {
            Ok(moved) => moved,
            Err(failure) => return Ok(Err(failure)),
        };
        // Each key is taken for one of the usual size.
        let share = u128::from(seen.used_memory) * u128::from(moved.keys);
        let bytes = (share / u128::from(moved.scanned.max(1))) as u64;
        if let Err(failure) = self.object(&seen, &to, Some(bytes)) {
            return Ok(Err(failure));
        }
        let strange = match self.count(&target, &slots)? {
            Ok(strange) => strange.keys,
            Err(failure) => return Ok(Err(failure)),
        };
        if strange > 0 {
            let MoverGroup { group, primary, .. } = &self.order.to;
            return Ok(Err(Failure {
                why: format!(
                    "{primary} of {group} has {strange} keys of these slots already, which a move \
                     would delete: if they are of no use, delete them, or move the slots elsewhere"
                ),
                is_final: true,
            }));
        }
        Ok(Ok(MoverProgress { keys_total: Some(moved.keys), ..MoverProgress::default() }))
    }

    /// Warns of what speaks against the move.
    ///
    /// # Errors
    /// The move cannot begin.
    fn object(&self, seen: &Look, to: &Look, bytes: Option<u64>) -> Result<(), Failure> {
        let mut fatal = Vec::new();
        for objection in objections(seen, to, bytes) {
            match objection.is_fatal {
                true => fatal.push(objection.why),
                false if bytes.is_some() => tracing::warn!(
                    pool = self.order.pool,
                    "plan {}: {}",
                    self.order.plan,
                    objection.why
                ),
                false => {}
            }
        }
        match fatal.is_empty() {
            true => Ok(()),
            false => Err(Failure { why: fatal.join("; "), is_final: true }),
        }
    }

    fn count(&self, server: &Access, slots: &SlotSet) -> Result<Result<Counted, Failure>, Ended> {
        let counted = count_keys(server, slots, Pace::default(), &|_| !self.is_over());
        if self.is_over() { Err(Ended) } else { Ok(counted) }
    }

    /// Deletes the keys of the slots at a server.
    fn delete(&self, server: &Result<Access, Failure>) -> Outcome {
        let server = match server {
            Ok(server) => server,
            Err(failure) => return Ok(Err(failure.clone())),
        };
        // Without slots nothing is to be deleted.
        if self.order.slots.is_empty() {
            return Ok(Ok(MoverProgress::default()));
        }
        let slots = match self.slots() {
            Ok(slots) => slots,
            Err(failure) => return Ok(Err(failure)),
        };
        if let Err(failure) = self.end_others(server) {
            return Ok(Err(failure));
        }
        let told = Cell::new(clock());
        let is_wanted = |keys: u64| {
            if clock().since(told.get()) >= TELL_EVERY {
                told.set(clock());
                let progress = MoverProgress { keys, ..MoverProgress::default() };
                self.tell(MoverReport::Going(progress));
            }
            !self.is_over()
        };
        let deleted = purge(server, &slots, pace(self.order.pace), &self.name(), &is_wanted);
        if self.is_over() {
            return Err(Ended);
        }
        Ok(deleted.map(|keys| MoverProgress { keys, ..MoverProgress::default() }))
    }

    /// Copies, until the order to finish was carried out.
    fn copy(&self) -> Outcome {
        let target = match self.target() {
            Ok(target) => target,
            Err(failure) => return Ok(Err(failure)),
        };
        if let Err(failure) = self.delete(&Ok(target.clone()))? {
            return Ok(Err(failure));
        }
        let started = self.pick_source().and_then(|source| {
            let settings = MoverSettings {
                pace: pace(self.order.pace),
                name: self.name(),
                ..MoverSettings::new(source, target, self.slots()?)
            };
            Mover::start(settings)
                .map_err(|error| Failure { why: format!("no thread: {error}"), is_final: false })
        });
        let mover = match started {
            Ok(mover) => mover,
            Err(failure) => return Ok(Err(failure)),
        };
        let outcome = self.follow(&mover);
        // Nothing is written after this.
        mover.stop();
        outcome
    }

    /// Reports on a copy until its end.
    fn follow(&self, mover: &Mover) -> Outcome {
        let mut told: Option<(Time, Stage)> = None;
        let mut is_finishing = false;
        loop {
            let patience = if is_finishing { FINISH_EVERY } else { LOOK_EVERY };
            match self.orders.recv_timeout(patience) {
                Ok(MoverOrder { work: MoverWork::Finish, number, .. }) => {
                    self.number.set(number);
                    match self.source().and_then(|source| position(&source, ANSWER_WITHIN)) {
                        Ok((id, offset)) => mover.finish(&id, offset),
                        Err(failure) => return Ok(Err(failure)),
                    }
                    is_finishing = true;
                }
                Ok(order) => mover.set_pace(pace(order.pace)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Ended),
            }
            if self.is_over() {
                return Err(Ended);
            }
            let status = mover.status();
            match &status.stage {
                Stage::Finished => return Ok(Ok(self.progress(&status))),
                Stage::Failed(failure) => return Ok(Err(failure.clone())),
                _ => {}
            }
            let is_due = told.as_ref().is_none_or(|(at, stage)| {
                clock().since(*at) >= TELL_EVERY || *stage != status.stage
            });
            // A report of the order before would be taken for one of this order.
            if is_due && !is_finishing {
                self.tell(MoverReport::Going(self.progress(&status)));
                told = Some((clock(), status.stage));
            }
        }
    }

    fn progress(&self, status: &Status) -> MoverProgress {
        MoverProgress {
            keys: status.keys,
            keys_total: self.total,
            bytes: status.bytes,
            keys_per_second: status.keys_per_second,
            behind: status.behind,
            is_tailing: !matches!(status.stage, Stage::Connecting | Stage::Copying),
        }
    }

    /// Returns a replica of the source that follows its primary, or the primary. A copy costs the
    /// server a snapshot, and a replica has more time for that.
    fn pick_source(&self) -> Result<Access, Failure> {
        let primary = look(&self.source()?, ANSWER_WITHIN)?;
        let [way, _] = &self.ways;
        for other in &self.order.from.others {
            let Ok(access) = self.access(other, way) else { continue };
            let Ok(seen) = look(&access, ANSWER_WITHIN) else { continue };
            if follows(&seen, &primary) {
                return Ok(access);
            }
        }
        self.source()
    }
}

/// Returns whether a server is a replica whose stream is that of a primary.
fn follows(seen: &Look, primary: &Look) -> bool {
    seen.is_replica && seen.is_linked && seen.replication_id == primary.replication_id
}

fn pace(pace: PlanPace) -> Pace {
    let PlanPace { keys_per_second, bytes_per_second } = pace;
    Pace { keys_per_second, bytes_per_second }
}

fn ranges(slots: &SlotRanges) -> impl Iterator<Item = (u16, u16)> {
    slots.ranges().iter().copied()
}
