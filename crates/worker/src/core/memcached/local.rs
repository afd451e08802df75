//! What is answered without asking the store or a server.

use super::{Call, Plane, Step};
use crate::{PoolKind, PoolPlan};
use keyway_memcache::{Dialect, ErrorKind, Item, Outcome, Verb, write_end, write_reply};
use keyway_store::Store;

/// The release of memcached whose commands clients may rely on.
pub(super) const VERSION: &str = "1.6.38";

impl Plane {
    /// Answers what concerns the connection or Keyway itself. `None` when it is
    /// for the store or a server.
    #[inline]
    pub(super) fn answer_memcached_locally(
        &mut self,
        pool: &PoolPlan,
        call: &mut Call<'_>,
    ) -> Option<Step> {
        use Verb::*;
        match call.request.head.verb {
            Get | GetTouch | Set | Add | Replace | Append | Prepend | Cas | Delete | Incr
            | Decr | Touch | Debug => None,
            FlushAll => self.refuse_flush(pool, call),
            Stats => self.answer_stats(pool, call),
            _ => {
                self.count_memcached(call);
                self.answer_about_connection(call);
                Some(Step::Started)
            }
        }
    }

    #[cold]
    fn answer_about_connection(&mut self, call: &mut Call<'_>) {
        use Verb::*;
        let done = Outcome::Done(Item::default());
        match call.head().verb {
            Version => self.tell_version(call),
            Verbosity => self.tell_memcached(call, &done),
            Noop => self.tell_memcached(call, &Outcome::Noop),
            Quit => {
                // Text clients are told nothing.
                if call.head().dialect == Dialect::Binary {
                    self.tell_memcached(call, &done);
                }
                call.session.closing = true;
            }
            SaslList => self.tell_memcached(call, &Outcome::Text(b"PLAIN")),
            SaslStart | SaslStep => self.authenticate_sasl(call),
            CacheMemlimit => self.deny_memcached(
                call,
                "cache_memlimit is refused: memory is bounded by the configuration",
            ),
            Shutdown => {
                self.deny_memcached(call, "shutdown is refused: stop Keyway itself instead")
            }
            _ => self.deny_memcached(
                call,
                "this command is about one memcached server's inside and refused here: ask the \
                 server itself",
            ),
        }
    }

    pub(super) fn tell_version(&mut self, call: &mut Call<'_>) {
        self.tell_memcached(call, &Outcome::Text(VERSION.as_bytes()));
    }

    #[cold]
    fn refuse_flush(&mut self, pool: &PoolPlan, call: &mut Call<'_>) -> Option<Step> {
        let PoolKind::Sharded { pool: sharded, .. } = &pool.kind else { return None };
        if sharded.allow_flush {
            return None;
        }
        self.count_memcached(call);
        let text = format!(
            "flush_all is refused: it would empty every server; write allow_flush = true in \
             [pool.{}] if clients may",
            pool.name
        );
        self.deny_memcached(call, &text);
        Some(Step::Started)
    }

    #[cold]
    fn answer_stats(&mut self, pool: &PoolPlan, call: &mut Call<'_>) -> Option<Step> {
        let PoolKind::Store(store) = &pool.kind else { return None };
        self.count_memcached(call);
        if !call.request.keys.is_empty() {
            // Short: libmemcached's own test takes no line of more than 80 bytes for an error.
            self.deny_memcached(call, "only plain stats here; the admin's /metrics has more");
            return Some(Step::Started);
        }
        if store.has_script() {
            let text = b"a script is running that the figures would wait for: ask again";
            let busy = Outcome::Error { kind: ErrorKind::Server, text };
            self.tell_memcached(call, &busy);
            return Some(Step::Started);
        }
        let figures = self.store_figures(call.session.pool, store);
        let asker = call.asker();
        let mut told = Vec::new();
        for (name, value) in &figures {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            write_reply(&mut told, &asker, &Outcome::Stat { name, value });
        }
        write_end(&mut told, call.head());
        let place = call.busy.order.reserve();
        call.busy.order.complete(place, &mut call.busy.output, |out| out.extend_from_slice(&told));
        Some(Step::Started)
    }

    /// Statistics under memcached's names, as far as the store has them.
    fn store_figures(&self, pool: u16, store: &Store) -> Vec<(&'static str, String)> {
        let mut info = String::new();
        self.plan.facts.info(pool, false, &["server", "clients"], &mut info);
        let of_info = |field: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.unwrap_or("0").to_owned()
        };
        let stats = store.stats();
        let items: u64 = stats.databases.iter().map(|database| database.items).sum();
        let requests = stats.hits + stats.misses;
        vec![
            ("pid", of_info("process_id")),
            ("uptime", of_info("uptime_in_seconds")),
            ("time", (self.clock.unix_micros / 1_000_000).to_string()),
            ("version", VERSION.to_owned()),
            ("keyway_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("pointer_size", usize::BITS.to_string()),
            ("curr_connections", of_info("connected_clients")),
            ("cmd_get", requests.to_string()),
            ("get_hits", stats.hits.to_string()),
            ("get_misses", stats.misses.to_string()),
            ("curr_items", items.to_string()),
            ("bytes", stats.memory_used.to_string()),
            ("limit_maxbytes", stats.memory_max.to_string()),
            ("evictions", stats.evicted.to_string()),
            ("expired", stats.expired.to_string()),
        ]
    }
}
