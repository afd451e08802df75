//! A simulated server as a member of a cluster. It accepts requests for its slots and
//! redirects others, with the rules of Redis. It also copies a primary.

use super::*;
use crate::cluster::{Moves, NOBODY, View, slot_of};
use crate::ledger::Refused;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

/// The role of a server in its cluster.
pub struct Node {
    me: u16,
    /// Its view of the other servers.
    pub view: Rc<View>,
    /// Slots that move away from this server.
    pub away: Moves,
    /// Slots that move to this server.
    pub here: Moves,
    /// True if it has just come back and knows that its view is incomplete.
    pub is_unsure: bool,
    /// Keys that were changed since the copies were told.
    changed: BTreeSet<Vec<u8>>,
    /// The writes that will be copied, and from when on.
    incoming: VecDeque<(Nanos, Copied)>,
    /// The view that a sentinel that leads a fail-over still reports, and until when.
    pub(super) before: Option<(Rc<View>, Nanos)>,
}

/// A key as its primary had it.
#[derive(Clone)]
pub struct Copied {
    key: Vec<u8>,
    string: Option<Vec<u8>>,
    list: Option<VecDeque<Vec<u8>>>,
}

impl Copied {
    /// Returns its name.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// The server that must execute a request.
enum Verdict {
    Here,
    Moved(u16, u16),
    Ask(u16, u16),
    TryAgain(u16),
    Unbound(u16),
    Down(u16),
    Crossing,
}

impl Verdict {
    /// Returns how a request with `keys` is refused: the kind, the slot, and the error's text.
    fn refusal(self, keys: &[Vec<u8>], view: &View) -> Option<(Refused, u16, String)> {
        Some(match self {
            Verdict::Here => return None,
            Verdict::Moved(slot, to) => {
                (Refused::Elsewhere, slot, format!("MOVED {slot} {}", view.address(to)))
            }
            Verdict::Ask(slot, to) => {
                (Refused::Elsewhere, slot, format!("ASK {slot} {}", view.address(to)))
            }
            Verdict::TryAgain(slot) => {
                let text = "TRYAGAIN Multiple keys request during rehashing of slot";
                (Refused::TryAgain, slot, text.to_owned())
            }
            Verdict::Unbound(slot) => {
                (Refused::Down, slot, "CLUSTERDOWN Hash slot not served".to_owned())
            }
            Verdict::Down(slot) => {
                (Refused::Down, slot, "CLUSTERDOWN The cluster is down".to_owned())
            }
            Verdict::Crossing => {
                let text = "CROSSSLOT Keys in request don't hash to the same slot";
                (Refused::Crossing, slot_of(&keys[0]), text.to_owned())
            }
        })
    }
}

impl Server {
    /// Makes it a server of a cluster.
    pub fn join_cluster(&mut self, me: u16, view: Rc<View>) {
        self.node = Some(Box::new(Node {
            me,
            view,
            away: Moves::new(),
            here: Moves::new(),
            is_unsure: false,
            changed: BTreeSet::new(),
            incoming: VecDeque::new(),
            before: None,
        }));
    }

    /// Returns its role in its cluster.
    pub fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("a server of a cluster")
    }

    /// Adopts a new view of the cluster. Connections that wait for keys of slots that it no longer
    /// has are redirected.
    pub fn adopt(&mut self, view: Rc<View>, network: &mut Network, ledger: &mut Ledger) {
        let node = self.node();
        let me = node.me;
        if node.view.version >= view.version {
            return;
        }
        let before = std::mem::replace(&mut node.view, Rc::clone(&view));
        node.is_unsure = false;
        let sleeps = network.now < self.mood.stalled_until;
        self.mood.has_overslept |= sleeps && before.owners != view.owners;
        if view.groups > 0 {
            return self.adopt_groups(&before, network);
        }
        let node = self.node();
        node.away.retain(|&slot, _| view.owners[usize::from(slot)] == me);
        node.here.retain(|&slot, _| view.owners[usize::from(slot)] != me);
        let coming = node.here.clone();
        for conn in &mut self.conns {
            let Some(key) = conn.begun.blocked_on() else { continue };
            let slot = slot_of(key);
            let owner = view.owners[usize::from(slot)];
            // A client that was redirected here by ASK keeps waiting while the slot moves.
            if owner != me && owner != NOBODY && !coming.contains_key(&slot) {
                conn.begun.blocked = None;
                let text = format!("-MOVED {slot} {}\r\n", view.address(owner));
                conn.output.extend_from_slice(text.as_bytes());
                ledger.on_sent_elsewhere(slot);
            }
        }
        network.wake_server(self.index, network.now);
    }

    /// Notes bytes that were sent to a server while it slept. If the requests were given up by
    /// then, they may arrive after what their client has written elsewhere. They are in the
    /// server's socket or, if that is full, in its worker, whose client was told that they may have
    /// been executed. Redis would execute them when it wakes, because it knows of nothing yet, and
    /// would lose them as a replica. Here slots may have come back to a sleeping server, with all
    /// that was written meanwhile. Redis does the same for a single late connection.
    pub(super) fn note_late(
        &mut self,
        position: usize,
        args: &[Vec<u8>],
        len: usize,
        ledger: &mut Ledger,
    ) {
        let conn = &mut self.conns[position];
        if conn.late > 0 && !is_read(&args[0]) {
            keys_of_request(args).iter().for_each(|key| ledger.on_straggler(key));
        }
        conn.late = conn.late.saturating_sub(len);
    }

    /// Notes that a key must be copied.
    pub(super) fn note_change(&mut self, key: &[u8]) {
        if let Some(node) = &mut self.node {
            node.changed.insert(key.to_vec());
        }
    }

    /// Returns what has changed since the last call.
    pub fn take_changes(&mut self) -> Vec<Copied> {
        let changed = match &mut self.node {
            Some(node) if !node.changed.is_empty() => std::mem::take(&mut node.changed),
            _ => return Vec::new(),
        };
        changed.into_iter().map(|key| self.copy_of(key)).collect()
    }

    fn copy_of(&self, key: Vec<u8>) -> Copied {
        let string = self.databases.get(&0).and_then(|data| data.get(&key)).cloned();
        let list = self.lists.get(&(0, key.clone())).cloned();
        Copied { key, string, list }
    }

    /// Schedules that copies are applied at `at`.
    pub fn receive(&mut self, copied: Vec<Copied>, at: Nanos, network: &mut Network) {
        let index = self.index;
        let incoming = &mut self.node().incoming;
        let at = incoming.back().map_or(at, |&(before, _)| before.max(at));
        incoming.extend(copied.into_iter().map(|one| (at, one)));
        network.wake_server(index, at);
    }

    /// Applies the copies that are due.
    pub fn apply_copies(&mut self, now: Nanos, network: &mut Network) {
        let Some(node) = &mut self.node else { return };
        let mut due = Vec::new();
        while node.incoming.front().is_some_and(|&(at, _)| at <= now) {
            due.extend(node.incoming.pop_front().map(|(_, copied)| copied));
        }
        if let Some(&(at, _)) = node.incoming.front() {
            network.wake_server(self.index, at);
        }
        due.into_iter().for_each(|copied| self.store(copied));
    }

    /// Discards copies that have not been applied yet.
    pub fn lose_incoming(&mut self) {
        self.node().incoming.clear();
    }

    fn store(&mut self, copied: Copied) {
        let Copied { key, string, list } = copied;
        self.touch_watchers(0, &key);
        let data = self.databases.entry(0).or_default();
        match string {
            Some(bytes) => data.insert(key.clone(), bytes),
            None => data.remove(&key),
        };
        match list {
            Some(list) => self.lists.insert((0, key), list),
            None => self.lists.remove(&(0, key)),
        };
    }

    /// Replaces all data with that of another server.
    pub fn copy_all(&mut self, other: &Server) {
        self.databases = other.databases.clone();
        self.lists = other.lists.clone();
        self.touch_all();
        let node = self.node();
        node.incoming.clear();
        node.changed.clear();
    }

    /// Returns its keys of a slot.
    pub fn keys_of(&self, slot: u16) -> Vec<Vec<u8>> {
        self.keys().into_iter().filter(|key| slot_of(key) == slot).collect()
    }

    /// Returns all its keys.
    pub fn keys(&self) -> BTreeSet<Vec<u8>> {
        let strings = self.databases.values().flat_map(|data| data.keys().cloned());
        let lists = self.lists.iter().filter(|(_, list)| !list.is_empty());
        strings.chain(lists.map(|((_, key), _)| key.clone())).collect()
    }

    /// Removes a key, for another server.
    pub fn take_key(&mut self, key: &[u8]) -> Copied {
        let copied = self.copy_of(key.to_vec());
        if let Some(data) = self.databases.get_mut(&0) {
            data.remove(key);
        }
        self.lists.remove(&(0, key.to_vec()));
        self.touch(0, key);
        copied
    }

    /// Adds a key that another server had.
    pub fn give_key(&mut self, copied: Copied) {
        let key = copied.key.clone();
        self.store(copied);
        self.touch(0, &key);
    }

    /// Returns whether it has the same value of a key as another server.
    pub fn agrees(&self, other: &Server, key: &[u8]) -> bool {
        let (own, others) = (self.copy_of(key.to_vec()), other.copy_of(key.to_vec()));
        let list = |copied: &Copied| copied.list.clone().filter(|list| !list.is_empty());
        own.string == others.string && list(&own) == list(&others)
    }

    /// Returns the server whose copy it believes to be.
    pub fn copies(&self) -> Option<u16> {
        let node = self.node.as_ref()?;
        node.view.members.get(usize::from(node.me))?.replica_of
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.databases.get(&0).is_some_and(|data| data.contains_key(key))
            || self.lists.get(&(0, key.to_vec())).is_some_and(|list| !list.is_empty())
    }

    /// Answers a request about the cluster, or one for another server. Returns whether it did.
    pub(super) fn answer_cluster(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        let Some(node) = &self.node else { return false };
        if node.view.groups > 0 {
            return self.answer_group(position, name, args, (now, is_straggler), ledger, reply);
        }
        let conn = &mut self.conns[position];
        let is_asking = conn.is_asking;
        // ASKING holds for one request, or for a transaction up to its end. Redis' `resetClient`
        // clears it after `EXEC` as well, because the client is then in no transaction.
        let is_end = matches!(name, b"EXEC" | b"DISCARD" | b"RESET");
        let is_within = conn.begun.queued.is_some() && !is_end;
        conn.is_asking &= is_within || name == b"MULTI";
        if self.answer_of_cluster(position, name, args, now, ledger, reply) {
            return true;
        }
        let conn = &self.conns[position];
        let is_exec = name == b"EXEC";
        let all: Vec<Vec<Vec<u8>>> = match (&conn.begun.queued, is_exec) {
            (Some(queued), true) => queued.clone(),
            _ => vec![args.to_vec()],
        };
        let keys: Vec<Vec<u8>> = all.iter().flat_map(|args| keys_of_request(args)).collect();
        if keys.is_empty() || (is_exec && conn.begun.is_refused) {
            return false;
        }
        let is_read = all.iter().all(|args| is_read(&args[0]));
        let verdict = self.judge(&keys, is_asking, self.conns[position].reads_copies && is_read);
        let Some((kind, slot, text)) = verdict.refusal(&keys, &self.node().view) else {
            return false;
        };
        if !is_straggler {
            ledger.on_refused(self.index, (slot, kind), now);
        }
        let begun = &mut self.conns[position].begun;
        match is_exec {
            true => *begun = Begun::default(),
            false => begun.is_refused |= begun.queued.is_some(),
        }
        reply.extend_from_slice(format!("-{text}\r\n").as_bytes());
        true
    }

    /// Answers a request about the cluster itself, or about replication. Returns whether it was one.
    fn answer_of_cluster(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        now: Nanos,
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        let Some(node) = &self.node else { return false };
        let conn = &mut self.conns[position];
        match name {
            b"ASKING" => {
                conn.is_asking = true;
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"READONLY" | b"READWRITE" => {
                conn.reads_copies = name == b"READONLY";
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"CLUSTER" => match args[1].to_ascii_uppercase().as_slice() {
                b"SLOTS" => node.view.write_slots(reply),
                b"SHARDS" => node.view.write_shards(reply),
                b"NODES" => node.view.write_nodes(node.me, (&node.away, &node.here), reply),
                _ => ledger.fail(|| "a server was asked an odd CLUSTER".to_owned()),
            },
            b"INFO" => self.write_replication(now, reply),
            _ => return false,
        }
        true
    }

    /// Judges where a request must be executed, as Redis' `getNodeByQuery` does.
    fn judge(&self, keys: &[Vec<u8>], is_asking: bool, reads_copies: bool) -> Verdict {
        let Some(node) = &self.node else { return Verdict::Here };
        let slot = slot_of(&keys[0]);
        let owner = node.view.owners[usize::from(slot)];
        if owner == NOBODY {
            return Verdict::Unbound(slot);
        }
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Verdict::Crossing;
        }
        let is_several = keys.iter().any(|key| *key != keys[0]);
        let is_mine = owner == node.me;
        let target = node.away.get(&slot).filter(|_| is_mine);
        let is_coming = node.here.contains_key(&slot);
        let missing = keys.iter().filter(|key| !self.has_key(key)).count();
        if node.view.is_down || node.is_unsure {
            return Verdict::Down(slot);
        }
        if let Some(&target) = target
            && missing > 0
        {
            return match missing < keys.len() {
                true => Verdict::TryAgain(slot),
                false => Verdict::Ask(slot, target),
            };
        }
        if is_coming && is_asking {
            return match is_several && missing > 0 {
                true => Verdict::TryAgain(slot),
                false => Verdict::Here,
            };
        }
        let primary = node.view.members[usize::from(node.me)].replica_of;
        if is_mine || (reads_copies && primary == Some(owner)) {
            return Verdict::Here;
        }
        Verdict::Moved(slot, owner)
    }

    pub(super) fn write_replication(&self, now: Nanos, reply: &mut Vec<u8>) {
        let Some(node) = &self.node else { return };
        let me = &node.view.members[usize::from(node.me)];
        let role = if me.replica_of.is_some() { "slave" } else { "master" };
        let mut text = format!("# Replication\r\nrole:{role}\r\n");
        if let Some(primary) = me.replica_of.map(|of| &node.view.members[usize::from(of)]) {
            let link = if now < self.mood.loading_until { "down" } else { "up" };
            text += &format!(
                "master_host:{}\r\nmaster_port:{}\r\nmaster_link_status:{link}\r\n",
                primary.host, primary.port
            );
        }
        for (number, replica) in node.view.replicas_of(node.me).enumerate() {
            let member = &node.view.members[usize::from(replica)];
            let state = if member.has_failed { "wait_bgsave" } else { "online" };
            text += &format!(
                "slave{number}:ip={},port={},state={state},offset=1,lag={}\r\n",
                member.host,
                member.port,
                now % 2
            );
        }
        write_bulk(reply, text.as_bytes());
    }
}

/// Returns the keys of a request.
pub(super) fn keys_of_request(args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let rest = &args[1..];
    match args[0].to_ascii_uppercase().as_slice() {
        b"GET" | b"SET" | b"INCR" | b"RPUSH" | b"LLEN" | b"LRANGE" | b"XADD" | b"XRANGE" => {
            rest[..1].to_vec()
        }
        b"MSET" => rest.iter().step_by(2).cloned().collect(),
        b"MGET" | b"DEL" | b"UNLINK" | b"EXISTS" | b"TOUCH" | b"SDIFF" | b"WATCH" => rest.to_vec(),
        b"BLPOP" => rest[..rest.len() - 1].to_vec(),
        _ => Vec::new(),
    }
}

fn is_read(name: &[u8]) -> bool {
    let reads: [&[u8]; 8] =
        [b"GET", b"MGET", b"EXISTS", b"TOUCH", b"LLEN", b"SDIFF", b"LRANGE", b"XRANGE"];
    reads.iter().any(|read| name.eq_ignore_ascii_case(read))
}
