//! The state that a simulated server keeps for a connection: transactions, watched keys and blocking
//! commands. The lists on which these commands wait are here as well.

use super::*;
use std::collections::VecDeque;

/// The state that a connection has begun and not ended.
#[derive(Default)]
pub(super) struct Begun {
    /// Commands queued since `MULTI`.
    pub(super) queued: Option<Vec<Vec<Vec<u8>>>>,
    /// True if one of them was refused.
    pub(super) is_refused: bool,
    watched: Vec<(u32, Vec<u8>)>,
    /// True if a watched key was changed.
    is_changed: bool,
    pub(super) blocked: Option<Blocked>,
}

/// A waiting `BLPOP`.
pub(super) struct Blocked {
    keys: Vec<Vec<u8>>,
    until: Option<Nanos>,
    order: u64,
}

/// Lists by database and name.
pub(super) type Lists = BTreeMap<(u32, Vec<u8>), VecDeque<Vec<u8>>>;

impl Begun {
    /// Returns a key for which it waits.
    pub(super) fn blocked_on(&self) -> Option<&[u8]> {
        Some(self.blocked.as_ref()?.keys.first()?)
    }
}

impl Server {
    /// Answers a request that begins, guards or ends a transaction, or `CLIENT`. Returns whether it
    /// did.
    pub(super) fn answer_stateful(
        &mut self,
        position: usize,
        name: &[u8],
        args: &[Vec<u8>],
        is_straggler: bool,
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        let ServerConn { begun, database, id, .. } = &mut self.conns[position];
        match name {
            b"MULTI" if begun.queued.is_some() => {
                ledger.fail(|| "a server was sent MULTI inside MULTI".to_owned());
            }
            b"MULTI" => {
                begun.queued = Some(Vec::new());
                begun.is_refused = false;
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"WATCH" => {
                let database = *database;
                begun.watched.extend(args[1..].iter().map(|key| (database, key.clone())));
                args[1..].iter().for_each(|key| self.check_place(database, key, ledger));
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"UNWATCH" | b"DISCARD" => {
                *begun = Begun::default();
                reply.extend_from_slice(b"+OK\r\n");
            }
            b"EXEC" => self.exec(position, is_straggler, ledger, reply),
            b"CLIENT" if args[1] == b"ID" => {
                reply.extend_from_slice(format!(":{id}\r\n").as_bytes());
            }
            b"CLIENT" => {
                let count = i64::from(self.unblock(&args[2], &args[3]));
                reply.extend_from_slice(format!(":{count}\r\n").as_bytes());
            }
            _ => return false,
        }
        true
    }

    fn exec(
        &mut self,
        position: usize,
        is_straggler: bool,
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let begun = std::mem::take(&mut self.conns[position].begun);
        let is_due = self.served >= self.defect_after;
        let Some(queued) = begun.queued else {
            return ledger.fail(|| "a server was sent EXEC without MULTI".to_owned());
        };
        if begun.is_refused {
            let text = b"-EXECABORT Transaction discarded because of previous errors.\r\n";
            return reply.extend_from_slice(text);
        }
        let is_blind = self.defect == Some(Defect::BlindWatch) && is_due;
        if begun.is_changed && !is_blind {
            return reply.extend_from_slice(b"*-1\r\n");
        }
        reply.extend_from_slice(format!("*{}\r\n", queued.len()).as_bytes());
        let last = queued.len() - usize::from(!queued.is_empty());
        for (number, args) in queued.iter().enumerate() {
            let name = args[0].to_ascii_uppercase();
            let is_torn = self.defect == Some(Defect::TornTransaction) && is_due;
            if is_torn && number == last && last > 0 && name == b"SET" {
                self.defect = None;
                reply.extend_from_slice(b"+OK\r\n");
                continue;
            }
            self.execute_data(position, &name, args, is_straggler, ledger, reply);
        }
    }

    /// Notes that a key was changed, for watches and tracking.
    pub(super) fn touch(&mut self, database: u32, key: &[u8]) {
        self.tell_of_change(key);
        self.note_change(key);
        self.touch_watchers(database, key);
    }

    /// Notes the change of a key for the transactions that watch it. A replica also does this for
    /// what it copies, as Redis does: a transaction that began there fails if the replica becomes
    /// the primary.
    pub(super) fn touch_watchers(&mut self, database: u32, key: &[u8]) {
        for conn in &mut self.conns {
            let watched = &conn.begun.watched;
            conn.begun.is_changed |=
                watched.iter().any(|(at, name)| *at == database && name == key);
        }
    }

    /// Notes that every key was changed.
    pub(super) fn touch_all(&mut self) {
        self.conns
            .iter_mut()
            .for_each(|conn| conn.begun.is_changed |= !conn.begun.watched.is_empty());
    }

    pub(super) fn push(
        &mut self,
        database: u32,
        (key, element): (&[u8], &[u8]),
        ledger: &mut Ledger,
    ) -> usize {
        self.check_place(database, key, ledger);
        ledger.on_pushed(element);
        let list = self.lists.entry((database, key.to_vec())).or_default();
        list.push_back(element.to_vec());
        let len = list.len();
        self.touch(database, key);
        len
    }

    pub(super) fn list_len(&self, database: u32, key: &[u8]) -> usize {
        self.lists.get(&(database, key.to_vec())).map_or(0, VecDeque::len)
    }

    /// Answers `BLPOP`, or lets it wait without a reply.
    pub(super) fn pop_or_block(
        &mut self,
        position: usize,
        args: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) {
        let database = self.conns[position].database;
        let keys = &args[1..args.len() - 1];
        keys.iter().for_each(|key| self.check_place(database, key, ledger));
        if self.pop(database, keys, (now, is_straggler), ledger, reply) {
            return;
        }
        let seconds: f64 = String::from_utf8_lossy(&args[args.len() - 1]).parse().unwrap_or(-1.0);
        let until = (seconds > 0.0).then(|| now + (seconds * 1e9) as Nanos);
        self.blocked += 1;
        let blocked = Blocked { keys: keys.to_vec(), until, order: self.blocked };
        self.conns[position].begun.blocked = Some(blocked);
    }

    fn pop(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        (now, is_straggler): (Nanos, bool),
        ledger: &mut Ledger,
        reply: &mut Vec<u8>,
    ) -> bool {
        for key in keys {
            let Some(list) = self.lists.get_mut(&(database, key.clone())) else { continue };
            let Some(element) = list.pop_front() else { continue };
            ledger.on_popped(&element, self.index, now, is_straggler);
            if self.defect == Some(Defect::LostElement)
                && self.served >= self.defect_after
                && let Some(lost) = list.pop_front()
            {
                ledger.on_popped(&lost, self.index, now, is_straggler);
                self.defect = None;
            }
            self.touch(database, key);
            reply.extend_from_slice(b"*2\r\n");
            write_bulk(reply, key);
            write_bulk(reply, &element);
            return true;
        }
        false
    }

    /// Serves waiting connections after lists may have grown. The longest wait is served first.
    pub(super) fn serve_blocked(&mut self, network: &mut Network, ledger: &mut Ledger) {
        let waits = |conn: &ServerConn| !conn.dead && !conn.closing && !conn.broken && !conn.ended;
        let mut order: Vec<_> = (0..self.conns.len())
            .filter(|&position| waits(&self.conns[position]))
            .filter_map(|position| {
                Some((self.conns[position].begun.blocked.as_ref()?.order, position))
            })
            .collect();
        order.sort_unstable();
        for (_, position) in order {
            let Some(blocked) = self.conns[position].begun.blocked.take() else { continue };
            let (database, conn) = (self.conns[position].database, self.conns[position].conn);
            let is_straggler = network.peer_closed(conn, ACCEPTOR);
            let mut reply = Vec::new();
            if self.pop(database, &blocked.keys, (network.now, is_straggler), ledger, &mut reply) {
                self.translate(position, &mut reply);
                network.tell(|| format!("server {} serves {conn}: {}", self.index, clip(&reply)));
                self.conns[position].output.extend_from_slice(&reply);
            } else {
                self.conns[position].begun.blocked = Some(blocked);
            }
        }
    }

    /// Ends waits whose time is up, and schedules a step for the others.
    pub(super) fn end_waits(&mut self, network: &mut Network) {
        let mut next = None;
        for conn in &mut self.conns {
            let Some(until) = conn.begun.blocked.as_ref().and_then(|blocked| blocked.until) else {
                continue;
            };
            if until <= network.now {
                conn.begun.blocked = None;
                conn.output.extend_from_slice(null_array(conn.is_resp3));
            } else {
                next = Some(next.map_or(until, |next: Nanos| next.min(until)));
            }
        }
        if let Some(at) = next {
            network.wake_server(self.index, at);
        }
    }

    fn unblock(&mut self, id: &[u8], reason: &[u8]) -> bool {
        let id = String::from_utf8_lossy(id);
        let found = self
            .conns
            .iter_mut()
            .find(|conn| !conn.dead && conn.id.to_string() == id && conn.begun.blocked.is_some());
        let Some(conn) = found else { return false };
        conn.begun.blocked = None;
        let text: &[u8] = match reason {
            b"ERROR" => b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n",
            _ => null_array(conn.is_resp3),
        };
        conn.output.extend_from_slice(text);
        true
    }
}

fn null_array(is_resp3: bool) -> &'static [u8] {
    if is_resp3 { b"_\r\n" } else { b"*-1\r\n" }
}
