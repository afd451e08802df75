//! Answers requests without the store or a server.

use crate::core::Plane;
use crate::core::pools::memcached::state::Call;
use crate::core::request::Step;
use crate::{PoolKind, PoolPlan, Upstream};
use keyway_memcache::{Dialect, ErrorKind, Item, Outcome, Verb, write_end};
use keyway_store::{EvictionPolicy, Store};
use std::net::SocketAddr;

/// Arguments of `stats` about the internals of memcached. Clients that send them wait for a list
/// and its end.
const INSIDE: [&str; 5] = ["slabs", "items", "settings", "sizes", "conns"];

/// Returns whether `stats` with these arguments asks about the internals of memcached: an argument of
/// [`INSIDE`], `detail dump`, or `cachedump` with a class and a limit.
fn asks_about_inside(call: &Call<'_>) -> bool {
    let mut words = call.request.keys(call.bytes);
    match words.next() {
        Some(b"detail") => words.next().is_some_and(|word| word == b"dump"),
        Some(b"cachedump") => words.len() >= 2,
        Some(word) => INSIDE.iter().any(|inside| inside.as_bytes() == word),
        None => false,
    }
}

/// The release of memcached whose commands clients may rely on.
pub(super) const VERSION: &str = "1.6.38";

impl Plane {
    /// Answers requests that concern the connection or Keyway itself. Returns `None` for a request
    /// to the store or a server.
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
                // Text clients get no reply.
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
        let Upstream { servers: sharded, .. } = pool.kind.upstream()?;
        if sharded.options.allow_flush {
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
        let word = call.asker().key;
        let is_inside = asks_about_inside(call);
        let store = match &pool.kind {
            PoolKind::Store(store) => Some(store),
            PoolKind::Memcached(_) => {
                // memcached sends no end line to these commands. A client that waits for one would
                // take the next reply for it.
                if !matches!(word, b"sizes_enable" | b"sizes_disable") {
                    return None;
                }
                self.count_memcached(call);
                self.deny_memcached(call, "this changes one server's inside: ask the server");
                return Some(Step::Started);
            }
            _ if !is_inside => return None,
            _ => None,
        };
        self.count_memcached(call);
        if store.is_some()
            && let Some(text) = settled(call)
        {
            let mut told = Vec::new();
            match call.head().dialect {
                Dialect::Binary => write_end(&mut told, call.head()),
                _ => told.extend_from_slice(text),
            }
            call.tell(&told);
            return Some(Step::Started);
        }
        if !call.request.keys.is_empty() && !is_inside {
            // The text is short because libmemcached's own test takes no line of more than 80 bytes
            // for an error.
            self.deny_memcached(call, "only plain stats here; the admin's /metrics has more");
            return Some(Step::Started);
        }
        if store.is_some_and(|store| store.has_script()) {
            let text = b"a script is running that the figures would wait for: ask again";
            let busy = Outcome::Error { kind: ErrorKind::Server, text };
            self.tell_memcached(call, &busy);
            return Some(Step::Started);
        }
        let figures = match store {
            Some(store) if is_inside => self.inside_figures(call, store),
            Some(store) => self.store_figures(call.session.pool, store),
            // The pool has several servers, none of which is memcached.
            None => Vec::new(),
        };
        call.tell_stats(&figures);
        Some(Step::Started)
    }

    /// Returns the store's statistics for arguments about the internals of memcached.
    fn inside_figures(&self, call: &Call<'_>, store: &Store) -> Vec<(&'static str, String)> {
        match call.asker().key {
            b"slabs" => {
                let malloced = store.stats().memory_used.to_string();
                vec![("active_slabs", "0".to_owned()), ("total_malloced", malloced)]
            }
            b"sizes" => vec![("sizes_status", "disabled".to_owned())],
            b"settings" => {
                let info = self.info_of(call.session.pool, &["clients", "keyway"]);
                let listener = &self.plan.listeners[usize::from(call.session.listener)].name;
                let port = listener.parse::<SocketAddr>().map_or(0, |address| address.port());
                let item_len_max = call.session.memcached.map_or(0, |client| client.item_len_max);
                let evicts = store.config().policy != EvictionPolicy::NoEviction;
                vec![
                    ("maxbytes", store.config().memory_max.to_string()),
                    ("maxconns", field(&info, "maxclients")),
                    ("tcpport", port.to_string()),
                    ("udpport", "0".to_owned()),
                    ("evictions", if evicts { "on" } else { "off" }.to_owned()),
                    ("num_threads", field(&info, "keyway_workers")),
                    ("cas_enabled", "yes".to_owned()),
                    ("item_size_max", item_len_max.to_string()),
                    ("flush_enabled", "yes".to_owned()),
                    ("detail_enabled", "no".to_owned()),
                ]
            }
            _ => Vec::new(),
        }
    }

    fn info_of(&self, pool: u16, sections: &[&str]) -> String {
        let mut info = String::new();
        self.plan.facts.info(pool, false, sections, &mut info);
        info
    }

    /// Returns the store's statistics under memcached's names, as far as the store has them.
    fn store_figures(&self, pool: u16, store: &Store) -> Vec<(&'static str, String)> {
        let info = self.info_of(pool, &["server", "clients", "stats", "keyway"]);
        let totals = self.plan.facts.memcached_totals(pool);
        let stats = store.stats();
        let items: u64 = stats.databases.iter().map(|database| database.items).sum();
        let requests = stats.hits + stats.misses;
        vec![
            ("pid", field(&info, "process_id")),
            ("uptime", field(&info, "uptime_in_seconds")),
            ("time", (self.clock.unix_micros / 1_000_000).to_string()),
            ("version", VERSION.to_owned()),
            ("keyway_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("pointer_size", usize::BITS.to_string()),
            ("curr_connections", field(&info, "connected_clients")),
            ("total_connections", field(&info, "total_connections_received")),
            ("cmd_get", requests.to_string()),
            ("cmd_set", totals.sets.to_string()),
            ("cmd_flush", totals.flushes.to_string()),
            ("cmd_touch", totals.touches.to_string()),
            ("get_hits", stats.hits.to_string()),
            ("get_misses", stats.misses.to_string()),
            ("bytes_read", field(&info, "total_net_input_bytes")),
            ("bytes_written", field(&info, "total_net_output_bytes")),
            ("threads", field(&info, "keyway_workers")),
            ("curr_items", items.to_string()),
            ("total_items", totals.stored.to_string()),
            ("bytes", stats.memory_used.to_string()),
            ("limit_maxbytes", stats.memory_max.to_string()),
            ("evictions", stats.evicted.to_string()),
            ("expired", stats.expired.to_string()),
        ]
    }
}

/// Returns the text reply to a `stats` that would change a setting or the counts of memcached. The
/// store has neither, so nothing is changed.
fn settled(call: &Call<'_>) -> Option<&'static [u8]> {
    let words: Vec<&[u8]> = call.request.keys(call.bytes).collect();
    match &words[..] {
        [b"reset"] => Some(b"RESET\r\n"),
        [b"detail", b"on" | b"off"] | [b"detail on" | b"detail off"] => Some(b"OK\r\n"),
        _ => None,
    }
}

/// Returns the value of a field of `INFO`, or 0 if the field is absent.
fn field(info: &str, name: &str) -> String {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or("0").to_owned()
}
