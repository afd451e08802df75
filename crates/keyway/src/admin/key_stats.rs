//! Hot and big keys, for the API.

use super::Current;
use crate::plan::monotonic;
use crate::serve::wall_clock;
use keyway_control::{BigKeyStatus, HotKeyList, HotKeyStatus, KeyStatsList, KeyStatsOfPool};
use keyway_proxy::hot_keys::{Access, Direction, Hottest, KeyStats, shown_key};

impl Current {
    /// Returns the keys of all pools, or of the pool at the position `only`.
    pub(super) fn key_stats(&self, only: Option<usize>, limit: usize) -> KeyStatsList {
        let asked = self.live_pools().filter(|&index| only.is_none_or(|only| only == index));
        let told = asked.map(|index| {
            let pool = &self.plan.pools[index];
            of_pool(&pool.name, &pool.key_stats, limit)
        });
        KeyStatsList {
            hot_keys_every: self.plan.limits.hot_keys_every,
            big_values_from: self.plan.limits.big_values_from,
            pools: told.collect(),
        }
    }
}

fn of_pool(name: &str, key_stats: &KeyStats, limit: usize) -> KeyStatsOfPool {
    let hottest = |access| hot_keys(key_stats.hot.hottest(access, limit, monotonic()));
    let unix_seconds = wall_clock().unix_micros / 1_000_000;
    let biggest = key_stats.big.biggest(limit, unix_seconds).into_iter();
    KeyStatsOfPool {
        pool: name.to_owned(),
        reads: hottest(Access::Read),
        writes: hottest(Access::Write),
        big: biggest
            .map(|it| BigKeyStatus {
                key: shown_key(&it.key, it.is_cut),
                bytes: it.bytes,
                command: it.command,
                direction: match it.direction {
                    Direction::Request => "request",
                    Direction::Reply => "reply",
                },
                at_unix_seconds: it.unix_seconds,
            })
            .collect(),
    }
}

fn hot_keys(hottest: Hottest) -> HotKeyList {
    let keys = hottest.keys.into_iter().map(|it| HotKeyStatus {
        key: shown_key(&it.key, it.is_cut),
        share: it.share,
        share_error: it.share_error,
        rate: it.rate,
    });
    HotKeyList { rate: hottest.rate, keys: keys.collect() }
}
