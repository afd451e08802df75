//! Requests to Redis servers, which keep flags in an envelope around the value.
//! `keyway_proxy::memcached::redis` writes them and reads their replies.

use crate::core::Plane;
use crate::core::pending::Due;
use crate::core::pools::memcached::state::Call;
use crate::core::pools::memcached::state::PoolServers;
use crate::core::request::Step;
use crate::core::{Connection, ConnectionKey, Connections};
use keyway_memcache::{Dialect, Expect, Untranslatable, Verb, compose_request, compose_share};
use keyway_proxy::memcached::MemcachedJoin;
use keyway_proxy::memcached::redis::{Question, RedisCommand, Terms};

/// A request that was appended to a link.
pub(super) struct Put {
    pub(super) len: usize,
    /// The form of the reply's end.
    pub(super) expect: Expect,
    question: Option<Question>,
}

impl Put {
    /// Notes in a memcached join how the reply is read.
    pub(super) fn mark(&self, memcached_join: &mut MemcachedJoin, fragment: u16) {
        memcached_join.set_expect(fragment, self.expect);
        if let Some(question) = self.question {
            memcached_join.set_question(fragment, question);
        }
    }
}

impl Plane {
    /// Returns whether the servers of a pool are of Redis.
    #[inline]
    pub(super) fn is_redis(&self, pool: u16) -> bool {
        self.link_options(pool).memcached.is_none()
    }

    /// Sends a request on to the servers of a pool of Redis.
    pub(super) fn send_to_redis(
        &mut self,
        links: &mut Connections,
        at: PoolServers<'_>,
        call: &mut Call<'_>,
    ) -> Step {
        match RedisCommand::of(call.head(), call.request.keys.len()) {
            Ok(_) => self.send_memcached(links, at, Dialect::Text, call),
            Err(text) => {
                self.count_memcached(call);
                self.deny_memcached(call, text);
                Step::Started
            }
        }
    }

    /// Appends a request to a link's output, in the protocol of its server.
    pub(super) fn put<'k>(
        &self,
        connection: &mut Connection,
        to: Dialect,
        call: &Call<'_>,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        value: &[u8],
    ) -> Result<Put, Untranslatable> {
        if self.is_redis(connection.server_id.pool) {
            return self.put_to_redis(connection, call, keys, value);
        }
        let out = connection.link.request_buf();
        let start = out.len();
        let is_same = call.request.is_canonical && call.head().verb == Verb::Get;
        let expect = match to {
            Dialect::Text if is_same => compose_share(out, keys),
            _ => compose_request(out, to, call.head(), keys, value)?,
        };
        Ok(Put { len: out.len() - start, expect, question: None })
    }

    fn put_to_redis<'k>(
        &self,
        connection: &mut Connection,
        call: &Call<'_>,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        value: &[u8],
    ) -> Result<Put, Untranslatable> {
        // The command depends on the keys of the whole request, because a part with one key is
        // answered by a list as well.
        let keys_all = call.request.keys.len();
        let command =
            RedisCommand::of(call.head(), keys_all).map_err(|_| Untranslatable::Request)?;
        if command.is_script() {
            self.give_item_script(connection);
        }
        let terms = Terms {
            item_len_max: call.session.memcached.map_or(u32::MAX, |client| client.item_len_max),
            database: self.link_options(connection.server_id.pool).database,
        };
        let out = connection.link.request_buf();
        let start = out.len();
        let (question, expect) = command.write(out, call.head(), keys, value, terms);
        Ok(Put { len: out.len() - start, expect, question: Some(question) })
    }

    /// Handles that a server has lost the script, because somebody flushed its scripts. The next
    /// request is preceded by it again.
    #[cold]
    pub(in crate::core) fn on_memcached_join_refused(&mut self, index: ConnectionKey, said: &[u8]) {
        if said.starts_with(b"-NOSCRIPT") {
            self.pending.add_due(Due::Loads(index));
        }
    }
}
