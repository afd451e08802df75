//! Servers that answer in another protocol than their pool's.

use crate::Upstream;
use crate::advice::advice_of_foreign;
use crate::core::{Connection, Plane};
use keyway_base::BackendFault;
use keyway_topology::{FailureReason, ServerId};

/// If a server's text contains this many characters of a password, it is not shown.
const SECRET_LEN: usize = 8;

impl Plane {
    /// Notes what a server that has violated the protocol sent before its first reply.
    #[cold]
    pub(super) fn note_foreign(
        &self,
        connection: &Connection,
        fault: BackendFault,
    ) -> BackendFault {
        let said = connection.link.handshake_refusal();
        if fault == BackendFault::Protocol && !said.is_empty() && !connection.link.has_answered() {
            let pool = &self.plan.pools[usize::from(connection.server_id.pool)];
            let said = match self.repeats_password(connection.server_id.pool, said) {
                true => "it said what repeats the password".to_owned(),
                false => advice_of_foreign(&pool.name, said),
            };
            pool.notices.note_foreign(connection.server_id.server, said, self.clock.now);
        }
        fault
    }

    /// Returns whether the text contains a password. A server that repeats what it was sent may
    /// truncate it.
    fn repeats_password(&self, pool: u16, said: &[u8]) -> bool {
        let upstream = self.plan.pools[usize::from(pool)].kind.upstream();
        let Some(Upstream { options, .. }) = upstream else { return false };
        let Some(password) = &options.password else { return false };
        let begin: String = password.chars().take(SECRET_LEN).collect();
        !begin.is_empty() && String::from_utf8_lossy(said).contains(&*begin)
    }

    /// Returns the text of a server that does not use its pool's protocol, if that is why it is not
    /// up.
    #[cold]
    pub(super) fn foreign_words(&self, server: ServerId) -> Option<String> {
        let (at, said) =
            self.plan.pools[usize::from(server.pool)].notices.foreign(server.server)?;
        let id = self.plan.topology.id_of(server);
        let is_why = self.plan.health.reason(id) == Some(FailureReason::Protocol);
        // Requests that are lost with the connection are answered before its end counts.
        (is_why || at == self.clock.now).then_some(said)
    }
}
