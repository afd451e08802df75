use super::connection::{Connection, Lost};
use super::layout::{Head, decode_batch, decode_entry, key_of, session_of};
use super::wire::{Reply, Request, Step, code};
use super::{Inner, PAUSE};
use crate::clock::{Moment, draw};
use crate::limits::{HISTORY_LEN_MAX, LIST_LEN_MAX};
use crate::{Batch, Change, Entry, Fault, FaultKind, Key, Listing, Prefix, Revision, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Nodes that are asked for together. More would fill buffers on both sides.
const GROUP: usize = 128;

/// Keys of ended sessions that one transaction deletes.
const REAPED_MAX: usize = 256;

/// What was read of a cluster, and when.
pub(super) struct View {
    pub(super) head: Head,
    /// The version of the head's node.
    pub(super) version: i32,
    /// The keys that were asked for.
    pub(super) entries: BTreeMap<Key, Entry>,
    /// Whether nothing has changed while they were read.
    pub(super) is_of_one_moment: bool,
    /// Sessions that were begun.
    pub(super) sessions: usize,
    pub(super) connection: Arc<Connection>,
}

/// What a try has come to.
enum Tried<T> {
    Done(T),
    /// There are no nodes of the cluster.
    Missing,
    /// These sessions have ended, and their keys may be there.
    Dead(BTreeSet<SessionId>),
}

impl Inner {
    /// Reads the head and some keys, of now: behind every transaction that was answered. Keys of
    /// sessions that have ended are deleted first.
    pub(super) async fn view(
        &self,
        keys: &[Key],
        tried: &'static str,
        until: Moment,
    ) -> Result<View, Fault> {
        self.view_watched(keys, false, tried, until).await
    }

    /// The same, and the server tells the connection of the next change.
    pub(super) async fn view_watched(
        &self,
        keys: &[Key],
        watch: bool,
        tried: &'static str,
        until: Moment,
    ) -> Result<View, Fault> {
        loop {
            let connection = self.connection(until).await?;
            let outcome = match self.try_view(&connection, keys, watch, tried, until).await {
                Ok(outcome) => outcome,
                Err(Lost::Unsent(fault) | Lost::Maybe(fault)) => {
                    let may_retry =
                        matches!(fault.kind(), FaultKind::Unreachable | FaultKind::Busy);
                    if !may_retry || until.left() <= PAUSE {
                        return Err(fault);
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            match outcome {
                Tried::Done(view) => return Ok(view),
                Tried::Missing => self.make(tried, until).await?,
                Tried::Dead(dead) => self.reap(&connection, dead, tried, until).await?,
            }
            if until.has_passed() {
                return Err(self.busy(tried));
            }
        }
    }

    async fn try_view(
        &self,
        connection: &Arc<Connection>,
        keys: &[Key],
        watch: bool,
        tried: &'static str,
        until: Moment,
    ) -> Result<Tried<View>, Lost> {
        let floor = self.guard.floor().map_err(Lost::Unsent)?;
        let head = |watch| Request::GetData { path: self.paths.head(), watch };
        let children =
            |folder, watch| Request::GetChildren { path: self.paths.folder(folder), watch };
        // What was begun first, then what lasts: a session in the first and not in the second has
        // ended.
        let sync = Request::Sync(self.paths.base.clone());
        let mut requests = vec![sync, head(watch), children("o", false), children("s", watch)];
        let get = |key| Request::GetData { path: self.paths.key(key), watch: false };
        requests.extend(keys.iter().map(get));
        requests.push(head(false));
        let replies = self.ask_on(connection, requests, tried, until).await?;
        let read = self.read_view(&replies, keys, connection, tried).map_err(Lost::Unsent)?;
        if let Tried::Done(view) = &read {
            self.guard.see(floor, view.head.mark).map_err(Lost::Unsent)?;
        }
        Ok(read)
    }

    fn read_view(
        &self,
        replies: &[Reply],
        keys: &[Key],
        connection: &Arc<Connection>,
        tried: &'static str,
    ) -> Result<Tried<View>, Fault> {
        let damaged = || self.damaged(tried);
        let [sync, first, begun, lasting, of_keys @ .., last] = replies else {
            return Err(damaged());
        };
        let faulty =
            [sync, first, begun, lasting, last].into_iter().find(|one| one.code != code::OK);
        match faulty.map(|reply| reply.code) {
            None => {}
            Some(code::NO_NODE) => return Ok(Tried::Missing),
            Some(error) => return Err(self.fault(error, tried)),
        }
        let (data, version) = first.data().ok_or_else(damaged)?;
        let head = Head::decode(&data).ok_or_else(damaged)?;
        let (_, last_version) = last.data().ok_or_else(damaged)?;
        let begun = sessions(begun).ok_or_else(damaged)?;
        let lasting = sessions(lasting).ok_or_else(damaged)?;
        let dead: BTreeSet<SessionId> = begun.difference(&lasting).copied().collect();
        if !dead.is_empty() {
            return Ok(Tried::Dead(dead));
        }
        let mut entries = BTreeMap::new();
        for (key, reply) in keys.iter().zip(of_keys) {
            if let Some(entry) = self.read_entry(key.clone(), reply, tried)? {
                entries.insert(key.clone(), entry);
            }
        }
        Ok(Tried::Done(View {
            head,
            version,
            entries,
            is_of_one_moment: version == last_version,
            sessions: begun.len(),
            connection: Arc::clone(connection),
        }))
    }

    fn read_entry(
        &self,
        key: Key,
        reply: &Reply,
        tried: &'static str,
    ) -> Result<Option<Entry>, Fault> {
        match reply.code {
            code::OK => {
                let entry = reply.data().and_then(|(data, _)| decode_entry(key, &data));
                entry.map(Some).ok_or_else(|| self.damaged(tried))
            }
            code::NO_NODE => Ok(None),
            error => Err(self.fault(error, tried)),
        }
    }

    /// Makes the nodes of the cluster.
    async fn make(&self, tried: &'static str, until: Moment) -> Result<(), Fault> {
        if let Some(mark) = self.guard.mark() {
            let what = format!("there is no cluster, and there was one at {}", mark.revision);
            let fault = Fault::new(FaultKind::RolledBack, self.dialer.all(), tried, what);
            self.guard.refuse(&fault);
            return Err(fault);
        }
        for path in self.paths.parents() {
            let create = Request::Create { path, data: Vec::new(), acl: self.acl() };
            let Some(reply) = self.change_again(create, tried, until).await? else { return Ok(()) };
            if reply.code != code::OK && reply.code != code::NODE_EXISTS {
                return Err(self.fault(reply.code, tried));
            }
        }
        let node = |path, data| Step::Create { path, data, acl: self.acl(), is_ephemeral: false };
        let mut steps = vec![node(self.paths.base.clone(), Vec::new())];
        let folders = ["k", "log", "o", "s"];
        steps.extend(folders.map(|name| node(self.paths.folder(name), Vec::new())));
        steps.push(node(self.paths.head(), Head::new(draw()).encode()));
        let multi = Request::Multi(steps);
        let Some(reply) = self.change_again(multi, tried, until).await? else { return Ok(()) };
        match reply.failed_step().ok_or_else(|| self.damaged(tried))? {
            // Somebody else was faster.
            None | Some((0, code::NODE_EXISTS)) => Ok(()),
            Some((_, error)) => Err(self.fault(error, tried)),
        }
    }

    /// Deletes keys of sessions that have ended, with a revision of their own. Somebody else may
    /// be faster: the caller looks again.
    async fn reap(
        &self,
        connection: &Arc<Connection>,
        dead: BTreeSet<SessionId>,
        tried: &'static str,
        until: Moment,
    ) -> Result<(), Fault> {
        let lost = |lost| match lost {
            Lost::Unsent(fault) | Lost::Maybe(fault) => fault,
        };
        let read = self.read_all(connection, tried, until).await;
        let (head, version, entries) = match read {
            Ok(read) => read,
            // The caller takes another connection.
            Err(Lost::Unsent(fault) | Lost::Maybe(fault))
                if fault.kind() == FaultKind::Unreachable =>
            {
                return Ok(());
            }
            Err(fault) => return Err(lost(fault)),
        };
        let is_theirs = |entry: &&Entry| entry.session.is_some_and(|id| dead.contains(&id));
        let mut theirs: Vec<Key> =
            entries.values().filter(is_theirs).map(|entry| entry.key.clone()).collect();
        let is_last = theirs.len() <= REAPED_MAX;
        theirs.truncate(REAPED_MAX);
        let mut steps = Vec::new();
        if !theirs.is_empty() {
            let changes = theirs.into_iter().map(Change::Deleted).collect();
            steps = self.commit(&head, version, changes);
        }
        if is_last {
            // The rest of the sessions' nodes are deleted when the next one looks.
            let nodes = dead.iter().take(REAPED_MAX).map(|id| self.paths.session(*id));
            steps.extend(nodes.map(|[begun, _]| Step::Delete { path: begun }));
        }
        let multi = Request::Multi(steps);
        let Some(reply) = self.change_again(multi, tried, until).await? else { return Ok(()) };
        match reply.failed_step().ok_or_else(|| self.damaged(tried))? {
            None | Some((_, code::BAD_VERSION | code::NO_NODE)) => Ok(()),
            Some((_, error)) => Err(self.fault(error, tried)),
        }
    }

    /// Sends a change that the caller repeats if it was not executed. Returns nothing if nobody
    /// knows.
    async fn change_again(
        &self,
        request: Request,
        tried: &'static str,
        until: Moment,
    ) -> Result<Option<Reply>, Fault> {
        match self.change(request, tried, until).await {
            Ok(reply) => Ok(Some(reply)),
            Err(fault) if fault.kind() == FaultKind::Unknown => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the steps that make changes of the next revision, if the head's node still has
    /// this version. That check is the first step.
    pub(super) fn commit(&self, head: &Head, version: i32, changes: Vec<Change>) -> Vec<Step> {
        let batch = Batch { revision: Revision(head.mark.revision.0 + 1), changes };
        let log = super::layout::encode_batch(&batch);
        let (next, gone) =
            head.next(&batch.changes, log.len(), self.history_max.max(1), HISTORY_LEN_MAX);
        let acl = self.acl();
        let create =
            |path, data| Step::Create { path, data, acl: acl.clone(), is_ephemeral: false };
        let mut steps = vec![Step::Set { path: self.paths.head(), data: next.encode(), version }];
        for change in &batch.changes {
            let path = self.paths.key(change.key());
            steps.push(match change {
                Change::Deleted(_) => Step::Delete { path },
                Change::Put(entry) => {
                    let data = super::layout::encode_entry(entry);
                    if entry.created == batch.revision {
                        create(path, data)
                    } else {
                        Step::Set { path, data, version: -1 }
                    }
                }
            });
        }
        steps.push(create(self.paths.log(batch.revision.0), log));
        steps.extend(gone.into_iter().map(|one| Step::Delete { path: self.paths.log(one) }));
        steps
    }

    /// Reads all entries, as they were at one revision.
    ///
    /// They are read one by one while others may change them. What was changed meanwhile is in the
    /// log, and is executed again on what was read.
    async fn read_all(
        &self,
        connection: &Arc<Connection>,
        tried: &'static str,
        until: Moment,
    ) -> Result<(Head, i32, BTreeMap<Key, Entry>), Lost> {
        let get = |path| Request::GetData { path, watch: false };
        let head_of = |reply: Option<&Reply>| {
            let (data, version) = reply?.data()?;
            Some((Head::decode(&data)?, version))
        };
        let damaged = || Lost::Unsent(self.damaged(tried));
        let children = Request::GetChildren { path: self.paths.folder("k"), watch: false };
        let requests = vec![get(self.paths.head()), children];
        let replies = self.ask_on(connection, requests, tried, until).await?;
        let (before, _) = head_of(replies.first()).ok_or_else(damaged)?;
        let names = replies.get(1).and_then(Reply::names).ok_or_else(damaged)?;
        let keys: Vec<Key> = names.iter().filter_map(|name| key_of(name)).collect();
        let mut entries = BTreeMap::new();
        let mut len = 0;
        for group in keys.chunks(GROUP) {
            let requests = group.iter().map(|key| get(self.paths.key(key))).collect();
            let replies = self.ask_on(connection, requests, tried, until).await?;
            for (key, reply) in group.iter().zip(&replies) {
                let read = self.read_entry(key.clone(), reply, tried).map_err(Lost::Unsent)?;
                let Some(entry) = read else { continue };
                len += entry.value.len() + key.as_str().len();
                entries.insert(key.clone(), entry);
            }
            if len > LIST_LEN_MAX {
                let what = format!("the entries have more than {LIST_LEN_MAX} bytes");
                let place = self.dialer.all();
                return Err(Lost::Unsent(Fault::new(FaultKind::TooLarge, place, tried, what)));
            }
        }
        let replies = self.ask_on(connection, vec![get(self.paths.head())], tried, until).await?;
        let (after, version) = head_of(replies.first()).ok_or_else(damaged)?;
        let (mut read_to, now) = (before.mark.revision.0, after.mark.revision.0);
        while read_to < now {
            let batches = self.read_log(connection, read_to, now, tried, until).await?;
            // The log was compacted over it: the caller begins anew.
            let batches = batches.ok_or_else(|| Lost::Unsent(self.busy(tried)))?;
            for batch in batches {
                read_to = batch.revision.0;
                for change in batch.changes {
                    match change {
                        Change::Put(entry) => drop(entries.insert(entry.key.clone(), entry)),
                        Change::Deleted(key) => drop(entries.remove(&key)),
                    }
                }
            }
        }
        Ok((after, version, entries))
    }

    /// Reads some batches of the log after a revision, at least one. Returns nothing if they are
    /// gone.
    pub(super) async fn read_log(
        &self,
        connection: &Arc<Connection>,
        after: u64,
        to: u64,
        tried: &'static str,
        until: Moment,
    ) -> Result<Option<Vec<Batch>>, Lost> {
        /// Batches that are read at once.
        const BATCHES: u64 = 32;
        let revisions = after + 1..=to.min(after + BATCHES);
        let get = |revision| Request::GetData { path: self.paths.log(revision), watch: false };
        let requests = revisions.clone().map(get).collect();
        let replies = self.ask_on(connection, requests, tried, until).await?;
        let mut batches = Vec::new();
        for (revision, reply) in revisions.zip(replies) {
            match reply.code {
                code::OK => {}
                code::NO_NODE => return Ok(None),
                error => return Err(Lost::Unsent(self.fault(error, tried))),
            }
            let batch = reply.data().and_then(|(data, _)| decode_batch(&data, revision));
            batches.push(batch.ok_or_else(|| Lost::Unsent(self.damaged(tried)))?);
        }
        Ok(Some(batches))
    }

    pub(super) async fn list(&self, prefix: &Prefix) -> Result<Listing, Fault> {
        let tried = "list";
        let until = Moment::now().after(self.patience.call);
        loop {
            let view = self.view(&[], tried, until).await?;
            let fault = match self.read_all(&view.connection, tried, until).await {
                Ok((head, _, mut entries)) => {
                    entries.retain(|key, _| prefix.holds(key));
                    let entries = entries.into_values().collect();
                    return Ok(Listing { revision: head.mark.revision, entries });
                }
                Err(Lost::Unsent(fault) | Lost::Maybe(fault)) => fault,
            };
            let may_retry = matches!(fault.kind(), FaultKind::Unreachable | FaultKind::Busy);
            if !may_retry || until.left() <= PAUSE {
                return Err(fault);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(super) fn busy(&self, tried: &'static str) -> Fault {
        let what = "others changed the state during every try";
        Fault::new(FaultKind::Busy, self.dialer.all(), tried, what)
    }
}

fn sessions(reply: &Reply) -> Option<BTreeSet<SessionId>> {
    Some(reply.names()?.iter().filter_map(|name| session_of(name)).collect())
}
