//! A link is prepared for a request: its connection, its database and its timeout.

use crate::Upstream;
use crate::core::{Connection, ConnectionKey, Plane};
use keyway_proxy::LinkState;

impl Plane {
    /// Prepares a link for a request in `database`.
    #[inline]
    pub(in crate::core) fn prepare_link(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
        database: u32,
    ) {
        self.mark_link_dirty(index, connection);
        if !connection.link.is_awaited() {
            self.wake_link(index, connection);
        }
        if database != 0 || !connection.link.is_in_own_database() {
            self.select(connection, database);
        }
        let backend = self.cells.backend(connection.server_id.pool, connection.server_id.server);
        backend.requests.add(1);
    }

    /// Selects a database on a link. Clients count databases from the pool's own database.
    #[cold]
    fn select(&self, connection: &mut Connection, database: u32) {
        let pool = &self.plan.pools[usize::from(connection.server_id.pool)];
        if let Some(Upstream { options, .. }) = pool.kind.upstream() {
            connection.link.select(options.database + database, options, self.clock.now);
        }
    }

    /// Prepares a link for which no one waited: it may need a connection, and a timeout.
    #[cold]
    pub(in crate::core) fn wake_link(&mut self, index: ConnectionKey, connection: &mut Connection) {
        if connection.link.wants_connection(self.clock.now) && !connection.is_connecting {
            connection.is_connecting = true;
            self.upstream.connects.push(index);
        }
        if connection.link.state() != LinkState::Ready {
            self.note_patience(connection);
        }
        if let Some(Upstream { options, .. }) =
            self.plan.pools[usize::from(connection.server_id.pool)].kind.upstream()
        {
            let timeout = options.timeout.unwrap_or(options.connect_timeout);
            self.note_deadline(Some(self.clock.now + timeout));
        }
    }
}
