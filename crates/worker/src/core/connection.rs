//! The connections of a worker to servers, and their keys.
//!
//! A connection of a pool keeps its index until the pool ends, and a private one until it is lost.
//! Then others take the index, with a key of another generation.

use super::pools::given::Given;
use super::pools::servers::tracking::state::Role;
use keyway_base::{Key, Time};
use keyway_net::Socket;
use keyway_proxy::local::UnblockReason;
use keyway_proxy::{ConnectionKey, Link, Session};
use keyway_resp::Protocol;
use keyway_topology::{BackendId, RejoinClaim, ServerId};
use std::ops::{Index, IndexMut};

/// A link with what the worker knows about it.
pub(crate) struct Connection {
    pub(crate) link: Link,
    /// The server to which it leads.
    pub(crate) server_id: ServerId,
    pub(crate) id: BackendId,
    pub(crate) socket: Option<Socket>,
    /// Counts the sockets that were lost, to distinguish events of earlier ones.
    pub(crate) generation: u32,
    /// The generation of its key.
    pub(super) key_generation: u32,
    /// Sessions that wait for room on this link.
    pub(super) waiting: Vec<Key<Session>>,
    /// Time at which the first waiting session has waited for `timeout`.
    pub(super) waiting_due: Option<Time>,
    /// True if the connection was lost or could not be opened, and none has been established since:
    /// requests wait for it, in a pool with `wait_for_primary`.
    pub(super) is_lost: bool,
    /// True if it is in `upstream.connects`.
    pub(super) is_connecting: bool,
    /// This worker's claim on the backend's return after an ejection.
    pub(super) rejoining: Option<RejoinClaim>,
    /// True if it is counted among the links that accept requests.
    pub(super) is_counted_ready: bool,
    /// True if it was ever established, so that the next connection is a reconnection.
    pub(super) was_connected: bool,
    /// True if the last attempt to connect failed because of a lack of resources on this side,
    /// which says nothing about the server.
    pub(super) is_starved: bool,
    /// Earliest time to reconnect, unless a request needs the connection.
    pub(super) next_try: Time,
    /// True if the server is unknown, and must be asked when the connection is established.
    pub(super) is_to_knock: bool,
    /// The scripts and libraries that were loaded through this connection.
    pub(super) given: Given,
    /// When the latest attempt to connect began.
    pub(super) attempted: Time,
    /// When the connection was established, or when the server last sent something on it.
    pub(super) heard: Time,
    /// True if only one session uses it, see `upstream::leases`.
    pub(super) is_private: bool,
    /// True if it is unused: its index is free for another private link.
    pub(super) is_free: bool,
    /// The session that uses it, for a private link.
    pub(super) lease: Option<Key<Session>>,
    /// Clients for which it owes the reply to a write that has timed out, and the number of replies
    /// after which it does not any more.
    pub(super) late_of: Vec<(Key<Session>, u64)>,
    /// Hashes of the keys for which a blocking command waits on it.
    pub(super) awaited_keys: Vec<u32>,
    /// True if the request of a private link will soon be sent again: its session keeps the link.
    pub(super) awaits_retry: bool,
    /// The reply to `CLIENT ID` on it, for a private link.
    pub(super) client_id: Option<i64>,
    /// Set if its command must be ended, with an error or not.
    pub(super) unblock: Option<UnblockReason>,
    /// Its purpose, if its session is tracked.
    pub(super) role: Option<Role>,
    /// True if the outcome of requests is noted, beyond the health of its server.
    pub(super) is_watched: bool,
    /// True if its pool has ended, so that its index is free for a shared link of another.
    pub(super) is_spare: bool,
    /// True if it is for sessions whose replies are large.
    pub(super) is_bulk: bool,
    /// True if it is for sessions whose own link has a large reply to transfer.
    pub(super) is_bypass: bool,
    /// True if an incomplete request is being sent on it.
    pub(crate) is_streamed: bool,
    /// True if the request on it was streamed, even if only in part yet.
    pub(crate) takes_large: bool,
    /// Reads that were sent by then have been checked for whether they must be sent to a second
    /// server.
    pub(super) hedged_until: Time,
}

impl Connection {
    /// Returns the connection, whose server may redirect requests if `follows`.
    pub(super) fn following(mut self, follows: bool) -> Self {
        if follows {
            self.link.follow_redirections();
        }
        self
    }

    /// Returns the connection, for which the outcome of requests is noted if `is_watched`.
    pub(super) fn watched(mut self, is_watched: bool) -> Self {
        self.is_watched = is_watched;
        self
    }

    /// Returns whether it is not one of the links that sessions use for most requests.
    pub(super) fn is_beside(&self) -> bool {
        self.is_bulk || self.is_bypass
    }

    pub(super) fn new(server_id: ServerId, id: BackendId, protocol: Protocol) -> Self {
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

/// Returns the next generation. Generations fit into a token beside the link's index.
pub(super) fn next_generation(generation: u32) -> u32 {
    (generation + 1) & 0x1fff_ffff
}

/// All connections of a worker, by their keys.
#[derive(Default)]
pub(crate) struct Connections {
    all: Vec<Connection>,
    /// The generation that was last given to keys.
    generation: u32,
}

impl Connections {
    /// Returns the number of indices, including free ones.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the connection at an index with its key, if there is one.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<(ConnectionKey, &Connection)> {
        let connection = self.all.get(index)?;
        Some((ConnectionKey::new(index as u32, connection.key_generation), connection))
    }

    /// Returns the key of the connection at an index, which must be below [`Connections::len`].
    #[inline]
    pub(super) fn key_at(&self, index: usize) -> ConnectionKey {
        ConnectionKey::new(index as u32, self.all[index].key_generation)
    }

    /// Returns all connections, by index.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Connection> {
        self.all.iter()
    }

    /// Returns all connections mutably.
    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Connection> {
        self.all.iter_mut()
    }

    /// Returns all connections with their keys, by index.
    pub(super) fn with_keys(&self) -> impl Iterator<Item = (ConnectionKey, &Connection)> {
        (0..).zip(&self.all).map(|(index, it)| (ConnectionKey::new(index, it.key_generation), it))
    }

    /// Returns all connections with their keys, mutably.
    pub(super) fn with_keys_mut(
        &mut self,
    ) -> impl Iterator<Item = (ConnectionKey, &mut Connection)> {
        let key = |index, it: &Connection| ConnectionKey::new(index, it.key_generation);
        (0..).zip(&mut self.all).map(move |(index, it)| (key(index, it), it))
    }

    /// Returns the connection, unless another has taken its index.
    #[inline]
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        self.all.get(key.index()).filter(|it| it.key_generation == key.generation())
    }

    /// Like [`Connections::get`], mutably.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.all.get_mut(key.index()).filter(|it| it.key_generation == key.generation())
    }

    /// Adds the connections of a pool with consecutive indices, in place of an ended pool's if they
    /// fit. Returns the key of the first.
    pub(super) fn add_row(&mut self, row: Vec<Connection>) -> ConnectionKey {
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

    /// Returns the first index from which on `count` indices are free or beyond the end.
    fn room_for(&self, count: usize) -> usize {
        let mut first = 0;
        while let Some(row) = self.all.get(first..first + count) {
            match row.iter().rposition(|connection| !connection.is_spare) {
                None => return first,
                Some(taken) => first += taken + 1,
            }
        }
        // Free indices at the end begin the new row.
        let at_end = self.all.iter().rev().take_while(|connection| connection.is_spare).count();
        self.all.len() - at_end
    }

    /// Adds one connection, at the index of an unused one if there is any.
    pub(super) fn add(
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

    /// Frees the indices of the connections of a pool that has ended.
    pub(super) fn end_pool(&mut self, pool: u16) {
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

    /// Returns the connection at the key's index. A key that is kept from turn to turn must be
    /// looked up by [`Connections::get`] first.
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
