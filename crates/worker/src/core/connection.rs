//! The connections of a worker to servers, and their keys.
//!
//! A connection of a pool stays at its position until the pool ends; a private one until it is
//! lost. Others take the position then, with a key of another generation.

use super::pools::servers::given::Given;
use super::pools::servers::tracking;
use keyway_base::{Key, Time};
use keyway_net::Socket;
use keyway_proxy::local::UnblockReason;
use keyway_proxy::{ConnectionKey, Link, Session};
use keyway_resp::Protocol;
use keyway_topology::{BackendId, RejoinClaim, ServerId};
use std::ops::{Index, IndexMut};

/// A link with what the worker knows of it.
pub(crate) struct Connection {
    pub(crate) link: Link,
    /// The server that it leads to.
    pub(crate) server_id: ServerId,
    pub(crate) id: BackendId,
    pub(crate) socket: Option<Socket>,
    /// Counts the sockets that were lost, so that an event of an earlier one is told apart.
    pub(crate) generation: u32,
    /// The generation of its key.
    pub(in crate::core) key_generation: u32,
    /// Sessions that wait for room on this link.
    pub(in crate::core) waiting: Vec<Key<Session>>,
    /// Time at which the first waiting session has waited for `timeout`.
    pub(in crate::core) waiting_due: Option<Time>,
    /// The connection was lost or could not be made, and none stands since: requests wait for
    /// it, in a pool with `wait_for_primary`.
    pub(in crate::core) is_lost: bool,
    /// Listed in `upstream.connects`.
    pub(in crate::core) is_connecting: bool,
    /// This worker's claim on the backend's return after an ejection.
    pub(in crate::core) rejoining: Option<RejoinClaim>,
    /// Counted among the links that take requests.
    pub(in crate::core) is_counted_ready: bool,
    /// Whether it ever stood: the next connection is a reconnection.
    pub(in crate::core) was_connected: bool,
    /// The last attempt to connect failed for want of something on this side,
    /// which tells nothing of the server.
    pub(in crate::core) is_starved: bool,
    /// Earliest time to reconnect, unless a request needs the connection.
    pub(in crate::core) next_try: Time,
    /// The server is unknown, and is to be asked when the connection stands.
    pub(in crate::core) is_to_knock: bool,
    /// What was loaded through this connection.
    pub(in crate::core) given: Given,
    /// When the latest attempt to connect began.
    pub(in crate::core) attempted: Time,
    /// When the connection was made, or the server last said something on it.
    pub(in crate::core) heard: Time,
    /// One session's alone, see `upstream::leases`.
    pub(in crate::core) is_private: bool,
    /// Nobody's: a place for another private link.
    pub(in crate::core) is_free: bool,
    /// The session that has it, of a private link.
    pub(in crate::core) lease: Option<Key<Session>>,
    /// Clients of which it owes the reply to a write that has timed out, and the number of replies
    /// with which it does no more.
    pub(in crate::core) late_of: Vec<(Key<Session>, u64)>,
    /// Hashes of the keys for which a blocking command waits on it.
    pub(in crate::core) awaited_keys: Vec<u32>,
    /// Whether what was asked on a private link goes out again soon: its session
    /// keeps it.
    pub(in crate::core) awaits_retry: bool,
    /// What `CLIENT ID` answered on it, of a private link.
    pub(in crate::core) client_id: Option<i64>,
    /// Its command is to be ended, with an error or not.
    pub(in crate::core) unblock: Option<UnblockReason>,
    /// What it is for, where its session is tracked.
    pub(in crate::core) role: Option<tracking::Role>,
    /// How requests went is noted, beyond the health of its server.
    pub(in crate::core) is_watched: bool,
    /// Its pool is gone: a place for a shared link of another.
    pub(in crate::core) is_spare: bool,
    /// For sessions whose replies are large.
    pub(in crate::core) is_bulk: bool,
    /// For sessions whose own link has a large reply to bring.
    pub(in crate::core) is_bypass: bool,
    /// A request of which a part is still to come is sent on it.
    pub(crate) is_streamed: bool,
    /// The request on it was sent as it came, if only in part yet.
    pub(crate) takes_large: bool,
    /// Reads that were sent by then have been looked at whether a second server is to
    /// be sent them.
    pub(in crate::core) hedged_until: Time,
}

impl Connection {
    /// The same, whose requests may be sent elsewhere by its server.
    pub(in crate::core) fn following(mut self, follows: bool) -> Self {
        if follows {
            self.link.follow_redirections();
        }
        self
    }

    /// The same, of whose requests it is noted how they went.
    pub(in crate::core) fn watched(mut self, is_watched: bool) -> Self {
        self.is_watched = is_watched;
        self
    }

    /// Whether it lies beside the links that sessions have for most requests.
    pub(in crate::core) fn is_beside(&self) -> bool {
        self.is_bulk || self.is_bypass
    }

    pub(in crate::core) fn new(server_id: ServerId, id: BackendId, protocol: Protocol) -> Self {
        Self {
            link: Link::new(protocol),
            server_id,
            id,
            socket: None,
            generation: 1,
            key_generation: 0,
            waiting: Vec::new(),
            waiting_due: None,
            is_lost: false,
            is_connecting: false,
            rejoining: None,
            is_counted_ready: false,
            was_connected: false,
            is_starved: false,
            next_try: Time(0),
            is_to_knock: false,
            given: Given::default(),
            attempted: Time(0),
            heard: Time(0),
            is_private: false,
            late_of: Vec::new(),
            is_free: false,
            lease: None,
            awaited_keys: Vec::new(),
            awaits_retry: false,
            client_id: None,
            unblock: None,
            role: None,
            is_watched: false,
            is_spare: false,
            is_bulk: false,
            is_bypass: false,
            is_streamed: false,
            takes_large: false,
            hedged_until: Time(0),
        }
    }
}

/// Generations fit into a token beside the link's position.
pub(in crate::core) fn next_generation(generation: u32) -> u32 {
    (generation + 1) & 0x1fff_ffff
}

/// All connections of a worker, by their keys.
#[derive(Default)]
pub(crate) struct Connections {
    all: Vec<Connection>,
    /// The generation that keys were given last.
    generation: u32,
}

impl Connections {
    /// The number of positions, those that are free included.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The connection at a position with its key, if there is one.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<(ConnectionKey, &Connection)> {
        let connection = self.all.get(index)?;
        Some((ConnectionKey::new(index as u32, connection.key_generation), connection))
    }

    /// The key of the connection at a position, which must be below [`Connections::len`].
    #[inline]
    pub(crate) fn key_at(&self, index: usize) -> ConnectionKey {
        ConnectionKey::new(index as u32, self.all[index].key_generation)
    }

    /// All connections, by position.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Connection> {
        self.all.iter()
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Connection> {
        self.all.iter_mut()
    }

    /// All connections with their keys, by position.
    pub(crate) fn with_keys(&self) -> impl Iterator<Item = (ConnectionKey, &Connection)> {
        (0..).zip(&self.all).map(|(index, it)| (ConnectionKey::new(index, it.key_generation), it))
    }

    /// The same, to be changed.
    pub(crate) fn with_keys_mut(
        &mut self,
    ) -> impl Iterator<Item = (ConnectionKey, &mut Connection)> {
        let key = |index, it: &Connection| ConnectionKey::new(index, it.key_generation);
        (0..).zip(&mut self.all).map(move |(index, it)| (key(index, it), it))
    }

    /// The connection, unless another has taken its position.
    #[inline]
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        self.all.get(key.index()).filter(|it| it.key_generation == key.generation())
    }

    /// As [`Connections::get`], to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.all.get_mut(key.index()).filter(|it| it.key_generation == key.generation())
    }

    /// Adds the connections of a pool in a row, where an ended pool's were if they fit. Returns
    /// the key of the first.
    pub(in crate::core) fn add_row(&mut self, row: Vec<Connection>) -> ConnectionKey {
        let first = self.room_for(row.len());
        self.generation = self.generation.wrapping_add(1);
        for (index, mut connection) in (first..).zip(row) {
            connection.key_generation = self.generation;
            match self.all.get_mut(index) {
                Some(old) => {
                    connection.generation = next_generation(old.generation);
                    *old = connection;
                }
                None => self.all.push(connection),
            }
        }
        ConnectionKey::new(first as u32, self.generation)
    }

    /// The first position from which on so many are free or beyond the end.
    fn room_for(&self, count: usize) -> usize {
        let mut first = 0;
        while let Some(row) = self.all.get(first..first + count) {
            match row.iter().rposition(|connection| !connection.is_spare) {
                None => return first,
                Some(taken) => first += taken + 1,
            }
        }
        // Free positions at the end begin the row.
        let at_end = self.all.iter().rev().take_while(|connection| connection.is_spare).count();
        self.all.len() - at_end
    }

    /// Adds one connection, at the position of one that is `gone` if there is such.
    pub(in crate::core) fn add(
        &mut self,
        mut connection: Connection,
        gone: Option<ConnectionKey>,
    ) -> ConnectionKey {
        self.generation = self.generation.wrapping_add(1);
        connection.key_generation = self.generation;
        let index = gone.map_or(self.all.len(), ConnectionKey::index);
        match self.all.get_mut(index) {
            Some(old) => {
                connection.generation = old.generation;
                *old = connection;
            }
            None => self.all.push(connection),
        }
        ConnectionKey::new(index as u32, self.generation)
    }

    /// Frees the positions of the connections of a pool that has ended.
    pub(in crate::core) fn end_pool(&mut self, pool: u16) {
        self.generation = self.generation.wrapping_add(1);
        for connection in self.all.iter_mut().filter(|it| it.server_id.pool == pool && !it.is_free)
        {
            let spare = Connection {
                generation: next_generation(connection.generation),
                key_generation: self.generation,
                is_spare: true,
                is_free: true,
                is_private: true,
                ..Connection::new(connection.server_id, connection.id, connection.link.protocol())
            };
            *connection = spare;
        }
    }
}

impl Index<ConnectionKey> for Connections {
    type Output = Connection;

    /// The connection at the key's position: a key that is kept from turn to turn is looked up
    /// by [`Connections::get`] first.
    #[inline]
    fn index(&self, key: ConnectionKey) -> &Connection {
        let connection = &self.all[key.index()];
        debug_assert!(connection.key_generation == key.generation(), "the connection is gone");
        connection
    }
}

impl IndexMut<ConnectionKey> for Connections {
    #[inline]
    fn index_mut(&mut self, key: ConnectionKey) -> &mut Connection {
        let connection = &mut self.all[key.index()];
        debug_assert!(connection.key_generation == key.generation(), "the connection is gone");
        connection
    }
}

#[cfg(test)]
mod by_position {
    use super::*;

    impl Index<usize> for Connections {
        type Output = Connection;

        fn index(&self, index: usize) -> &Connection {
            &self.all[index]
        }
    }

    impl IndexMut<usize> for Connections {
        fn index_mut(&mut self, index: usize) -> &mut Connection {
            &mut self.all[index]
        }
    }
}
