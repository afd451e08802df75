//! Servers that answer, but refuse their clients. A server that requires a password accepts every
//! connection and refuses each request on it, so only its replies show that.

use crate::advice::advice;
use crate::core::upstream::health_log::BackendName;
use crate::core::{Connection, Plane};
use keyway_topology::HealthState;

/// Returns whether an error reply says that the connection has given no password. Such a server
/// refuses every request, whatever its key and command.
#[cold]
pub(super) fn is_locked(reply: &[u8]) -> bool {
    reply.starts_with(b"-NOAUTH ")
}

impl Plane {
    /// Logs that a server requires a password, once a minute for each pool.
    #[cold]
    pub(super) fn tell_locked(&self, connection: &Connection) {
        let pool = &self.plan.pools[usize::from(connection.server_id.pool)];
        if !pool.notices.locked.is_due(self.clock.now) {
            return;
        }
        let what = advice(&pool.name, "NOAUTH").unwrap_or_default();
        let BackendName { pool, label, address } = self.name_backend(connection.server_id);
        tracing::warn!(
            pool,
            backend = &*label,
            address,
            "the server wants a password and refuses every request: {what}"
        );
    }

    /// Logs that a server refuses PING to the pool's user, once a minute for each pool. The server
    /// may allow every other command, so it counts as up.
    #[cold]
    pub(super) fn tell_ping_denied(&self, connection: &Connection) {
        let state = self.plan.health.state(connection.id);
        let is_news = matches!(state, HealthState::Unknown | HealthState::Failing);
        let notices = &self.plan.pools[usize::from(connection.server_id.pool)].notices;
        if !is_news || !notices.ping_denied.is_due(self.clock.now) {
            return;
        }
        let BackendName { pool, label, address } = self.name_backend(connection.server_id);
        tracing::warn!(
            pool,
            backend = &*label,
            address,
            "the server denies PING to the user of this pool: health checks cannot tell whether \
             it grants other commands; add +ping to the user's ACL"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_without_a_password_tells_that_a_server_wants_one() {
        assert!(is_locked(b"-NOAUTH Authentication required.\r\n"));
        for other in ["-NOPERM no\r\n", "-NOAUTHX no\r\n", "-LOADING x\r\n"] {
            assert!(!is_locked(other.as_bytes()), "{other}");
        }
    }
}
