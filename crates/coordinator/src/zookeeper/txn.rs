use super::Inner;
use super::read::View;
use super::wire::{Request, Step, code};
use crate::clock::{Moment, draw};
use crate::limits::{CONFLICTS_MAX, ENTRIES_MAX};
use crate::txn::Operation;
use crate::{Change, Entry, Fault, FaultKind, Key, Outcome, Revision, SessionId, Txn};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest pause behind a conflict. Pauses are drawn, so that two do not meet again and again.
const CONFLICT_PAUSE: Duration = Duration::from_millis(20);

impl Inner {
    pub(super) async fn txn(&self, txn: &Txn) -> Result<Outcome, Fault> {
        let tried = "transaction";
        txn.check(&self.dialer.all())?;
        let until = Moment::now().after(self.patience.call);
        let compared = txn.comparisons().iter().map(|one| one.key());
        let changed = txn.operations().iter().map(Operation::key);
        let keys: BTreeSet<&Key> = compared.chain(changed).collect();
        let keys: Vec<Key> = keys.into_iter().cloned().collect();
        for _ in 0..CONFLICTS_MAX {
            let view = self.view(&keys, tried, until).await?;
            if let Some(outcome) = self.try_txn(txn, &view, until).await? {
                return Ok(outcome);
            }
            if until.has_passed() {
                break;
            }
            let nanos = u64::try_from(CONFLICT_PAUSE.as_nanos()).unwrap_or(1).max(1);
            tokio::time::sleep(Duration::from_nanos(draw() % nanos)).await;
        }
        Err(self.busy(tried))
    }

    /// Executes a transaction on what was read. Returns nothing if somebody else has changed it.
    async fn try_txn(
        &self,
        txn: &Txn,
        view: &View,
        until: Moment,
    ) -> Result<Option<Outcome>, Fault> {
        let tried = "transaction";
        let now = view.head.mark.revision;
        let found = txn.false_for(|key| view.entries.get(key));
        let changes = changes(txn, view);
        // What is not written is not checked by ZooKeeper either.
        let is_of_one_moment = view.is_of_one_moment;
        if !found.is_empty() {
            let refused = Outcome::Refused { revision: now, found };
            return Ok(is_of_one_moment.then_some(refused));
        }
        if changes.is_empty() {
            return Ok(is_of_one_moment.then_some(Outcome::Done { revision: now }));
        }
        check_room(view, &changes)
            .map_err(|what| Fault::new(FaultKind::Full, self.dialer.all(), tried, what))?;
        let sessions: BTreeSet<SessionId> =
            txn.operations().iter().filter_map(Operation::session).collect();
        let mut steps = self.commit(&view.head, view.version, changes);
        let check = |id: &SessionId| {
            let [_, path] = self.paths.session(*id);
            Step::Check { path, version: -1 }
        };
        let checks: Vec<Step> = sessions.iter().map(check).collect();
        let first_behind = 1 + checks.len();
        steps.splice(1..1, checks);
        let floor = self.guard.floor()?;
        let reply = self.change(Request::Multi(steps), tried, until).await?;
        match reply.failed_step().ok_or_else(|| self.damaged(tried))? {
            None => {
                let mut mark = view.head.mark;
                mark.revision = Revision(now.0 + 1);
                // Others may have gone on since: only what was seen counts.
                if mark.revision >= floor {
                    self.guard.see(floor, mark)?;
                }
                Ok(Some(Outcome::Done { revision: mark.revision }))
            }
            Some((_, code::BAD_VERSION)) => Ok(None),
            Some((step, code::NO_NODE)) if (1..first_behind).contains(&step) => {
                Err(Fault::session_lost(self.dialer.all(), tried))
            }
            Some((_, error)) => Err(self.fault(error, tried)),
        }
    }
}

/// Refuses what would make more entries than a listing of children in one reply has room for.
fn check_room(view: &View, changes: &[Change]) -> Result<(), String> {
    let is_new =
        |change: &&Change| matches!(change, Change::Put(one) if one.created == one.modified);
    let count = changes.iter().filter(is_new).count();
    let now = usize::try_from(view.head.entries).unwrap_or(usize::MAX);
    if count == 0 || now.saturating_add(count) <= ENTRIES_MAX {
        return Ok(());
    }
    Err(format!("there would be more than {ENTRIES_MAX} entries"))
}

fn changes(txn: &Txn, view: &View) -> Vec<Change> {
    let revision = Revision(view.head.mark.revision.0 + 1);
    let change = |operation: &Operation| match operation {
        Operation::Put { key, value, .. } => Some(Change::Put(Entry {
            key: key.clone(),
            value: value.clone(),
            created: view.entries.get(key).map_or(revision, |entry| entry.created),
            modified: revision,
            session: operation.session(),
        })),
        Operation::Delete(key) => {
            view.entries.contains_key(key).then(|| Change::Deleted(key.clone()))
        }
    };
    txn.operations().iter().filter_map(change).collect()
}
