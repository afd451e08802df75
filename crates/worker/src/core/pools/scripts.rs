//! Scripts that are sent to servers ahead of the requests that need them, by pools of every kind.

use crate::core::{Connection, Plane};
use keyway_base::Time;
use keyway_proxy::memcached::redis::script;
use keyway_proxy::{Digest, Internal, Owner, ScriptCache};
use std::sync::{Arc, LazyLock};

/// The owner of replies to scripts and libraries that Keyway loads by itself.
pub(super) const LOAD: Owner = Owner::Internal(Internal::Load);

impl Plane {
    /// Returns the scripts of a pool whose servers run scripts. For any other pool it returns a
    /// cache that stays empty.
    pub(in crate::core) fn scripts(&self, pool: u16) -> &Arc<ScriptCache> {
        static NONE: LazyLock<Arc<ScriptCache>> = LazyLock::new(Arc::default);
        self.plan.pools[pool as usize].kind.scripts().unwrap_or(&NONE)
    }

    /// Sends the scripts that a connection is not known to have, ahead of the
    /// transaction that calls them.
    pub(super) fn give_scripts(&self, connection: &mut Connection, digests: &[Digest]) {
        let scripts = self.scripts(connection.server_id.pool);
        for digest in digests {
            if !connection.given.has_script(digest, scripts.flushes())
                && let Some(body) = scripts.script(digest)
            {
                give_script(connection, *digest, &body, self.clock.now);
            }
        }
    }

    /// Sends the script for items of memcached ahead, if the connection was not given it yet.
    pub(super) fn give_item_script(&self, connection: &mut Connection) {
        let flushes = self.scripts(connection.server_id.pool).flushes();
        let script = script();
        if !connection.given.has_script(&script.digest, flushes) {
            give_script(connection, script.digest, &script.body, self.clock.now);
        }
    }
}

/// Sends a script ahead of the request that needs it.
pub(in crate::core) fn give_script(
    connection: &mut Connection,
    digest: Digest,
    body: &[u8],
    now: Time,
) {
    connection.link.enqueue_own(LOAD, &[b"SCRIPT", b"LOAD", body], now);
    connection.given.add_script(digest);
}
