//! A simulated server as a primary or a replica outside a cluster, and the reports of a sentinel.

use super::cluster::keys_of_request;
use super::*;
use crate::cluster::{View, slot_of};
use crate::ledger::Refused;
use crate::scenario::NAME;
use std::rc::Rc;

/// The reply of a replica to writes.
const READONLY: &str = "READONLY You can't write against a read only replica.";

/// The reply to commands that wait at a primary when it becomes a replica.
const ENDED: &[u8] = b"-UNBLOCKED force unblock from blocking operation, instance state changed \
                       (master -> replica?)\r\n";

/// How long at most a sentinel that leads a fail-over reports only the address of the new primary.
const LEADS_MAX: Nanos = 300 * MILLI;

impl Server {
    /// Adopts the news of who the primaries are. Commands do not wait at a replica.
    pub(super) fn adopt_groups(&mut self, before: &Rc<View>, network: &mut Network) {
        let is_replica = self.copies().is_some();
        let leads = self.random.percent(30).then(|| self.random.between(1, LEADS_MAX));
        self.node().before = leads.map(|span| (Rc::clone(before), network.now + span));
        for conn in self.conns.iter_mut().filter(|_| is_replica) {
            if conn.begun.blocked.take().is_some() {
                conn.output.extend_from_slice(ENDED);
            }
        }
        network.wake_server(self.index, network.now);
    }

    /// Answers a request about the primary, or one that a replica refuses. Returns whether it did.
    pub(super) fn answer_group(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        match name {
            b"SENTINEL" => {
                self.answer_sentinel(args, now, ledger, reply);
                return true;
            }
            b"INFO" => {
                self.write_replication(now, reply);
                return true;
            }
            _ => {}
        }
        let begun = &self.conns[position].begun;
        let is_exec = name == b"EXEC";
        let is_write = match (&begun.queued, is_exec) {
            (Some(queued), true) => queued.iter().any(|args| is_write(&args[0])),
            _ => is_write(name),
        };
        if self.copies().is_none() || !is_write || (is_exec && begun.is_refused) {
            return false;
        }
        let queued = begun.queued.iter().flatten().filter(|_| is_exec);
        let keys: Vec<Vec<u8>> =
            queued.map(Vec::as_slice).chain([args]).flat_map(keys_of_request).collect();
        for slot in keys.iter().filter(|_| !is_straggler).map(|key| slot_of(key)) {
            ledger.on_refused(self.index, (slot, Refused::Demoted), now);
        }
        let begun = &mut self.conns[position].begun;
        let text = match is_exec {
            true => format!("-EXECABORT Transaction discarded because of: {READONLY}\r\n"),
            false => format!("-{READONLY}\r\n"),
        };
        match is_exec {
            true => *begun = Begun::default(),
            false => begun.is_refused |= begun.queued.is_some(),
        }
        reply.extend_from_slice(text.as_bytes());
        true
    }

    fn answer_sentinel(
        &mut self,
        args: &[Vec<u8>],
        now: Nanos,
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let Some(node) = &self.node else { return };
        let latest = Rc::clone(&node.view);
        let before = node.before.as_ref().filter(|(_, until)| now < *until);
        let told = before.map_or_else(|| Rc::clone(&latest), |(view, _)| Rc::clone(view));
        let number = args.get(2).and_then(|name| {
            String::from_utf8_lossy(name).strip_prefix(NAME)?.parse::<usize>().ok()
        });
        let Some(number) = number.filter(|&number| number < latest.groups) else {
            return ledger.fail(|| "a sentinel was asked about an odd primary".to_owned());
        };
        match args[1].to_ascii_uppercase().as_slice() {
            b"GET-MASTER-ADDR-BY-NAME" => {
                let member = &latest.members[usize::from(latest.owners[number])];
                let port = member.port.to_string();
                write_list(reply, &[&member.host, &port]);
            }
            b"MASTER" => {
                let epoch = latest.members[usize::from(latest.owners[number])].epoch;
                let leads = told.owners[number] != latest.owners[number];
                write_primary(&told, number, (epoch, leads), reply);
            }
            b"SLAVES" => write_replicas(&told, number, reply),
            _ => ledger.fail(|| "a sentinel was asked something odd".to_owned()),
        }
    }
}

/// Writes the reply about a primary. `leads`: a sentinel that leads a fail-over still reports the
/// old primary.
fn write_primary(view: &View, number: usize, (epoch, leads): (u64, bool), reply: &mut Vec<u8>) {
    let node = view.owners[number];
    let member = &view.members[usize::from(node)];
    let flags = if member.has_failed { "master,s_down,o_down" } else { "master" };
    let flags = if leads { format!("{flags},failover_in_progress") } else { flags.to_owned() };
    let replicas = view.replicas_of(node).count();
    write_list(
        reply,
        &[
            "name",
            &format!("{NAME}{number}"),
            "ip",
            &member.host,
            "port",
            &member.port.to_string(),
            "runid",
            &member.id,
            "flags",
            &flags,
            "role-reported",
            "master",
            "config-epoch",
            &epoch.to_string(),
            "num-slaves",
            &replicas.to_string(),
        ],
    );
}

fn write_replicas(view: &View, number: usize, reply: &mut Vec<u8>) {
    let primary = view.owners[number];
    let of = &view.members[usize::from(primary)];
    let replicas: Vec<u16> = view.replicas_of(primary).collect();
    reply.extend_from_slice(format!("*{}\r\n", replicas.len()).as_bytes());
    for member in replicas.into_iter().map(|node| &view.members[usize::from(node)]) {
        let flags = if member.has_failed { "s_down,slave,disconnected" } else { "slave" };
        let link = if member.has_failed { "err" } else { "ok" };
        write_list(
            reply,
            &[
                "name",
                &format!("{}:{}", member.host, member.port),
                "ip",
                &member.host,
                "port",
                &member.port.to_string(),
                "runid",
                &member.id,
                "flags",
                flags,
                "master-link-status",
                link,
                "master-host",
                &of.host,
                "master-port",
                &of.port.to_string(),
            ],
        );
    }
}

fn write_list(reply: &mut Vec<u8>, words: &[&str]) {
    reply.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| write_bulk(reply, word.as_bytes()));
}

fn is_write(name: &[u8]) -> bool {
    let writes: [&[u8]; 8] =
        [b"SET", b"MSET", b"INCR", b"DEL", b"UNLINK", b"RPUSH", b"BLPOP", b"XADD"];
    writes.iter().any(|write| name.eq_ignore_ascii_case(write))
}
