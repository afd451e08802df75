//! Clients of embedded stores go to another process with the data, and come from one.
//!
//! ```text
//!  HandOn ─► every client that is ready: its description and its socket ─► the heir
//!              │ others in the turns that follow, or to be closed at the end
//!              └ a connection with state in this process (TLS, rings): a relay
//!  TakeIn ─► a session in the state that is described ─► its input is read
//! ```
//! All requests that may reach a store are held meanwhile, in both processes.

use super::Worker;
use crate::HandedClient;
use keyway_base::Key;
use keyway_metrics::CloseReason;
use keyway_net::{Io, Token};
use keyway_proxy::local::ClientEntry;
use keyway_proxy::{Identity, Session};
use keyway_resp::Protocol;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

impl<I: Io> Worker<I> {
    /// Gives the clients that are ready to the other process, if there is one.
    pub(super) fn hand_on(&mut self) {
        let Some(heir) = self.heir.clone() else { return };
        let pools = self.plan.pools_on_stores();
        // Clients that wait go in the order in which they came.
        let mut keys: Vec<(u64, Key<Session>)> = self
            .core
            .client_keys()
            .into_iter()
            .filter(|key| {
                self.core.session(*key).is_some_and(|it| pools.contains(&usize::from(it.pool)))
            })
            .map(|key| (self.core.place_of_waiting(key), key))
            .collect();
        keys.sort_unstable_by_key(|(place, _)| *place);
        for (_, key) in keys {
            self.flush_session(key);
            if self.core.is_ready_to_go(key) {
                self.hand_on_client(key, &*heir);
            }
        }
    }

    fn hand_on_client(&mut self, key: Key<Session>, heir: &dyn crate::Heir) {
        let Some(client) = self.client(key) else { return };
        let Some(mut described) = self.core.describe(key) else { return };
        let given_up = self.io.give_up(client.socket);
        let is_given = given_up.is_some();
        let given = match given_up {
            Some((descriptor, unread)) => {
                described.input.extend_from_slice(&unread);
                heir.take(&described, descriptor.as_fd())
            }
            // Its connection ends here: bytes go through.
            None => UnixStream::pair().and_then(|(ours, theirs)| {
                ours.set_nonblocking(true)?;
                theirs.set_nonblocking(true)?;
                heir.take(&described, theirs.as_fd())?;
                let name = self.lingering.name_of_refused();
                let line = self.io.take_over(ours.into(), Vec::new());
                match line {
                    Some(line) => {
                        self.begin_relay((client.socket, Token(key.to_bits())), (line, name));
                    }
                    None => self.io.close(client.socket),
                }
                Ok(())
            }),
        };
        if let Err(error) = given {
            tracing::warn!(
                client = &*described.addr,
                "a client is closed: the process that serves now did not take it: {error}"
            );
            if !is_given {
                self.io.close(client.socket);
            }
        }
        let listener = usize::from(described.listener);
        self.plan.listeners[listener].access.tally.note_out();
        self.core.remove_session(key, None);
        self.clients[key.index() as usize] = None;
        self.plan.clients.remove(described.id);
    }

    /// Serves a client that another process has given. Its listener is one of this process.
    pub(super) fn take_in(&mut self, client: &HandedClient, descriptor: OwnedFd) {
        let Some(listener) = self.plan.listeners.get(usize::from(client.listener)) else { return };
        let Some(socket) = self.io.take_over(descriptor, Vec::new()) else { return };
        let clock = self.core.clock();
        let addr = Arc::from(&*client.addr);
        let mut identity = Identity { addr, ..Identity::new(client.id, false, clock.now) };
        identity.begin(&listener.users);
        if let Some(name) = &client.user {
            match listener.users.get(name.as_bytes()).filter(|user| user.is_on()) {
                Some(user) => identity.admit(&Arc::clone(user), &listener.users),
                None => return self.io.close(socket),
            }
        }
        let of_user = identity.user.as_ref().and_then(|user| user.pool());
        let pool = of_user.unwrap_or(listener.pool);
        let databases = self.plan.pools[usize::from(pool)].databases.max(1);
        if client.database >= databases || listener.is_ended {
            return self.io.close(socket);
        }
        identity.database = client.database;
        identity.protocol = if client.is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
        (identity.no_evict, identity.no_touch) = (client.no_evict, client.no_touch);
        let laddr = Arc::from(&*client.laddr);
        let mut entry = ClientEntry::new(&identity, laddr, self.index, pool, client.connected_unix);
        let [name, lib_name, lib_ver] = &client.told;
        entry.set_name(name);
        entry.set_lib_name(lib_name);
        entry.set_lib_ver(lib_ver);
        self.plan.clients.insert(client.id, entry);
        listener.access.tally.note_in(false);
        let key = self.core.add_session(pool, client.listener, identity);
        let index = key.index() as usize;
        if self.clients.len() <= index {
            self.clients.resize(index + 1, None);
        }
        self.clients[index] = Some(super::Client { key, socket, has_ended: false });
        self.core.restore(key, client);
        if !self.io.watch(socket, Token(key.to_bits())) {
            return self.close_client(key, CloseReason::Reset);
        }
        // Bytes may have arrived before the socket was watched.
        if self.core.set_unread(key) {
            self.rereads.push(key);
        }
        if self.drain_deadline.is_some() {
            self.end_soon(key);
        }
    }
}
