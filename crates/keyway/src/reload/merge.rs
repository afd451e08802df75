//! Places the pools and listeners of a new configuration among the existing ones.
//!
//! A pool with the same settings as before keeps its position and its state. Any other pool gets a
//! position of its own, also if it has the name of an old one. The old pool is retired: `retired`
//! names it until no worker has anything of it.

use keyway_base::Time;
use keyway_config::{
    Config, ListenAddr, ListenerConfig, PoolConfig, PoolKindConfig, ServerConfig, StoreConfig,
};
use keyway_topology::{Epoch, RoutedPool};
use keyway_worker::Retired;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most versions of the settings whose pools may be ending at once. Each holds the connections of
/// its pools. With more, repeated reloads would multiply the connections without bound.
pub const GENERATIONS_MAX: usize = 4;

/// A configuration in which every pool and listener has its position.
pub struct Merge {
    /// The new configuration, with retired pools and ended listeners among the others.
    pub config: Config,
    /// The number of this version.
    pub generation: u64,
    /// For each pool, whether it is unchanged.
    pub is_same: Vec<bool>,
    /// For each pool, the position of the pool that it replaces.
    pub heir_of: Vec<Option<usize>>,
    /// The pools that end.
    pub retired: Vec<Retired>,
    /// For each listener, whether it has ended.
    pub ended: Vec<bool>,
    /// Positions of the listeners that are new.
    pub opened: Vec<usize>,
    /// For each listener, whether its users are unchanged.
    pub same_users: Vec<bool>,
}

/// The settings in force.
pub struct Before<'b> {
    /// The configuration, with positions.
    pub config: &'b Config,
    /// The number of this version.
    pub generation: u64,
    /// The pools that were still ending when it came into force.
    pub retired: &'b [Retired],
    /// For each listener that has ended, whether its position may be reused; `None` for those that
    /// listen.
    pub ended: &'b [Option<bool>],
    /// The time by which retired pools must have ended.
    pub until: Time,
    /// The number of workers that must end them.
    pub workers: usize,
}

/// Puts a new configuration in the place of the one in force.
///
/// # Errors
/// Returns the changes that are impossible while Keyway runs.
pub fn merge(before: &Before, new: &Config) -> Result<Merge, Vec<String>> {
    let mut faults = fixed_settings(before.config, new);
    let pools = pool_positions(before, new, &mut faults);
    let listeners = listener_positions(before, new, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(put(before, new, &pools, &listeners))
}

/// Returns the number of versions whose pools are still ending.
pub fn ending_generations(retired: &[Retired]) -> usize {
    let mut generations: Vec<u64> =
        retired.iter().filter(|retired| !is_over(retired)).map(|it| it.generation).collect();
    generations.dedup();
    generations.len()
}

fn is_over(retired: &Retired) -> bool {
    // ORDER: pairs with the subtraction of the worker that has ended it.
    retired.left.load(Ordering::Acquire) == 0
}

/// Returns the changed settings of the process that cannot change while it runs.
fn fixed_settings(old: &Config, new: &Config) -> Vec<String> {
    let mut faults = Vec::new();
    if old.control != new.control {
        faults.push("[control]: cannot change while Keyway runs; restart it".to_owned());
    }
    let (old, new) = (&old.server, &new.server);
    let mut fixed = |is_same: bool, key: &str| {
        if !is_same {
            faults.push(format!("server.{key}: cannot change while Keyway runs; restart it"));
        }
    };
    fixed(old.workers == new.workers, "workers");
    fixed(old.admin == new.admin, "admin");
    let admin_tls = |server: &ServerConfig| Some(server.admin_tls.as_ref()?.settings.clone());
    fixed(admin_tls(old) == admin_tls(new), "admin_tls");
    fixed(old.io == new.io, "io");
    fixed(old.spin == new.spin, "spin");
    fixed(old.log.format == new.log.format, "log.format");
    faults
}

/// The position of a pool of the new configuration.
struct NewPosition {
    position: usize,
    is_same: bool,
    /// The pool with the same name, which it replaces.
    replaces: Option<usize>,
}

fn is_retired(before: &Before, position: usize) -> bool {
    before.retired.iter().any(|retired| usize::from(retired.pool) == position)
}

fn pool_positions(before: &Before, new: &Config, faults: &mut Vec<String>) -> Vec<NewPosition> {
    let old = before.config;
    let live = |position: &usize| !is_retired(before, *position);
    let old_of = |name: &str| {
        (0..old.pools.len()).filter(live).find(|&position| old.pools[position].name == name)
    };
    let names: Vec<Option<usize>> = new.pools.iter().map(|pool| old_of(&pool.name)).collect();
    for position in (0..old.pools.len()).filter(live) {
        let pool = &old.pools[position];
        let is_there = new.pools.iter().find(|other| other.name == pool.name);
        let is_store = matches!(pool.kind, PoolKindConfig::Store(_));
        let name = &pool.name;
        match is_there {
            None if is_store => faults.push(format!(
                "pool.{name}: a store cannot be removed while Keyway runs, as its data would be \
                 lost; restart it"
            )),
            Some(new) if is_store && !same_but_role(&new.kind, &pool.kind) => faults.push(format!(
                "pool.{name}: the settings of a store cannot change while Keyway runs; restart it"
            )),
            _ => {}
        }
    }
    let mut same = unchanged(old, new, &names);
    while drop_dependents(new, &mut same) {}
    let free = before.retired.iter().filter(|retired| is_over(retired));
    let mut free = free.map(|retired| usize::from(retired.pool));
    let mut next = old.pools.len();
    let mut choose = |(index, name): (usize, &Option<usize>)| match (same[index], name) {
        (true, Some(position)) => {
            NewPosition { position: *position, is_same: true, replaces: None }
        }
        (_, replaces) => {
            let position = free.next().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            NewPosition { position, is_same: false, replaces: *replaces }
        }
    };
    names.iter().enumerate().map(&mut choose).collect()
}

/// Returns whether two stores differ in nothing but whose replicas they are.
fn same_but_role(one: &PoolKindConfig, other: &PoolKindConfig) -> bool {
    match (one, other) {
        (PoolKindConfig::Store(one), PoolKindConfig::Store(other)) => {
            let one = StoreConfig { replica: other.replica.clone(), ..one.clone() };
            one == *other
        }
        (one, other) => one == other,
    }
}

/// Returns which pools have the same settings as the pools of the same names. Pools that they name
/// are not compared.
fn unchanged(old: &Config, new: &Config, names: &[Option<usize>]) -> Vec<bool> {
    let (old_topology, new_topology) = (old.topology(Epoch(0)), new.topology(Epoch(0)));
    let is_same = |(index, position): (usize, &Option<usize>)| {
        let Some(position) = *position else { return false };
        match (&old.pools[position].kind, &new.pools[index].kind) {
            (PoolKindConfig::Store(_), PoolKindConfig::Store(_)) => true,
            (PoolKindConfig::Routed(was), PoolKindConfig::Routed(is)) => {
                let here = |child: u16| names[usize::from(child)].map_or(u16::MAX, |at| at as u16);
                was.clients_max == is.clients_max && was.pool == is.pool.with_children(here)
            }
            (was, is) => {
                let (Some((_, was)), Some((_, is))) = (was.servers(), is.servers()) else {
                    return false;
                };
                let tls = |it: &Option<keyway_config::TlsConfig>| {
                    it.as_ref().map(|tls| tls.settings.clone())
                };
                old_topology.pools()[position].kind == new_topology.pools()[index].kind
                    && was.clients_max == is.clients_max
                    && tls(&was.tls) == tls(&is.tls)
            }
        }
    };
    names.iter().enumerate().map(is_same).collect()
}

/// Finds pools that rely on a replaced pool, and marks them as replaced too. Returns whether one
/// was found.
fn drop_dependents(new: &Config, same: &mut [bool]) -> bool {
    let position = |name: &str| new.pools.iter().position(|pool| pool.name == name);
    let mut dropped = Vec::new();
    for (index, pool) in new.pools.iter().enumerate() {
        let relies_on = pool.kind.relies_on(position);
        if same[index] && relies_on.iter().any(|&other| !same[other]) {
            dropped.push(index);
        }
        // The two pools share the scripts that their clients have loaded.
        if let PoolKindConfig::Routed(routed) = &pool.kind
            && let RoutedPool::ReadWriteSplit(split) = &routed.pool
            && !same[index]
        {
            dropped.extend([split.write, split.read].map(usize::from));
        }
    }
    let is_store = |index: usize| matches!(new.pools[index].kind, PoolKindConfig::Store(_));
    dropped.retain(|&index| same[index] && !is_store(index));
    dropped.iter().for_each(|&index| same[index] = false);
    !dropped.is_empty()
}

/// Returns the position of each listener, and whether it is new there.
fn listener_positions(
    before: &Before,
    new: &Config,
    faults: &mut Vec<String>,
) -> Vec<(usize, bool)> {
    let old = &before.config.listeners;
    let mut positions = Vec::new();
    let mut next = old.len();
    let mut free: Vec<usize> =
        (0..old.len()).filter(|&position| before.ended[position] == Some(true)).collect();
    for listener in &new.listeners {
        let bind = &listener.bind;
        let is_it =
            |&position: &usize| before.ended[position].is_none() && old[position].bind == *bind;
        match (0..old.len()).find(is_it) {
            Some(position) => {
                faults.extend(fixed_of_listener(&old[position], listener));
                faults.extend(fixed_family(before, new, bind));
                positions.push((position, false));
            }
            None => {
                if matches!(bind, ListenAddr::Shm(_)) {
                    faults.push(format!(
                        "listener {bind}: one of shared memory cannot be added while Keyway \
                         runs; restart it"
                    ));
                }
                let position = free.pop().unwrap_or_else(|| {
                    next += 1;
                    next - 1
                });
                positions.push((position, true));
            }
        }
    }
    for (position, listener) in old.iter().enumerate() {
        let is_gone = !positions.contains(&(position, false)) && before.ended[position].is_none();
        if is_gone && matches!(listener.bind, ListenAddr::Shm(_)) {
            faults.push(format!(
                "listener {}: one of shared memory cannot be removed while Keyway runs; restart it",
                listener.bind
            ));
        }
    }
    positions
}

/// Refuses a file in which an existing listener at `[::]` would have to begin or cease to accept
/// IPv4. The system fixes that when the socket is bound.
fn fixed_family(before: &Before, new: &Config, bind: &ListenAddr) -> Option<String> {
    let (old, admin) = (&before.config.listeners, &before.config.server.admin);
    let listens = |&position: &usize| before.ended[position].is_none();
    let others = (0..old.len()).filter(listens).map(|position| &old[position].bind).chain(admin);
    let accepts_ipv4 = !others.into_iter().any(|other| bind.leaves_ipv4_to(other));
    (accepts_ipv4 == new.only_v6(bind)).then(|| {
        let change = if accepts_ipv4 { "leave IPv4 to another listener" } else { "accept IPv4" };
        format!("listener {bind}: it cannot begin to {change} while Keyway runs; restart it")
    })
}

/// Returns the changed settings of a listener that cannot change while it listens.
fn fixed_of_listener(old: &ListenerConfig, new: &ListenerConfig) -> Vec<String> {
    let keys = [
        (old.backlog == new.backlog, "backlog"),
        (old.mode == new.mode, "mode"),
        (old.owner == new.owner, "owner and group"),
        (old.tcp_keepalive == new.tcp_keepalive, "tcp_keepalive"),
        (old.shm == new.shm, "allow_uids and ring_max"),
        (old.protocol == new.protocol, "protocol and item_len_max"),
    ];
    let changed = keys.iter().filter(|(is_same, _)| !is_same);
    let bind = &new.bind;
    changed
        .map(|(_, key)| {
            format!("listener {bind}: {key} cannot change while Keyway runs; restart it")
        })
        .collect()
}

fn put(before: &Before, new: &Config, pools: &[NewPosition], listeners: &[(usize, bool)]) -> Merge {
    let generation = before.generation + 1;
    let old = before.config;
    let count = pools.iter().map(|it| it.position + 1).max().unwrap_or(0);
    let count = count.max(old.pools.len());
    let mut slots: Vec<Option<PoolConfig>> = old.pools.iter().cloned().map(Some).collect();
    slots.resize(count, None);
    let (mut is_same, mut heir_of) = (vec![true; count], vec![None; count]);
    let mut retired: Vec<Retired> = before.retired.to_vec();
    retired.retain(|it| !pools.iter().any(|its| its.position == usize::from(it.pool)));
    for (position, slot) in slots.iter_mut().enumerate().take(old.pools.len()) {
        let stays = pools.iter().any(|it| it.is_same && it.position == position);
        if stays || is_retired(before, position) {
            continue;
        }
        retired.push(Retired {
            pool: position as u16,
            generation,
            is_replaced: pools.iter().any(|it| it.replaces == Some(position)),
            until: before.until,
            left: Arc::new(AtomicUsize::new(before.workers)),
        });
        if let Some(pool) = slot {
            pool.name = Retired::name_of(&pool.name, generation);
        }
    }
    let position_of = |index: usize| pools[index].position;
    for (pool, its) in new.pools.iter().zip(pools).filter(|(_, its)| !its.is_same) {
        let mut pool = pool.clone();
        if let PoolKindConfig::Routed(routed) = &mut pool.kind {
            let here = |child: u16| position_of(usize::from(child)) as u16;
            routed.pool = routed.pool.with_children(here);
        }
        slots[its.position] = Some(pool);
        is_same[its.position] = false;
        heir_of[its.position] = its.replaces;
    }
    for (pool, its) in new.pools.iter().zip(pools).filter(|(_, its)| its.is_same) {
        if let Some(PoolConfig { kind: PoolKindConfig::Store(old), .. }) = &mut slots[its.position]
            && let PoolKindConfig::Store(new) = &pool.kind
        {
            old.replica = new.replica.clone();
        }
    }
    let mut config = Config {
        pools: slots.into_iter().map(|slot| slot.expect("every position is somebody's")).collect(),
        ..new.clone()
    };
    for user in &mut config.users {
        if let Some(index) = user.pool_index {
            let position = position_of(index);
            user.pool_index = Some(position);
            user.user = user.user.clone().of_pool(Some(position as u16));
        }
    }
    let mut merge = Merge {
        config,
        generation,
        is_same,
        heir_of,
        retired,
        ended: Vec::new(),
        opened: Vec::new(),
        same_users: Vec::new(),
    };
    put_listeners(before, new, position_of, listeners, &mut merge);
    merge
}

fn put_listeners(
    before: &Before,
    new: &Config,
    position_of: impl Fn(usize) -> usize,
    positions: &[(usize, bool)],
    merge: &mut Merge,
) {
    let old = &before.config.listeners;
    let count =
        positions.iter().map(|(position, _)| position + 1).max().unwrap_or(0).max(old.len());
    let mut slots: Vec<Option<ListenerConfig>> = old.iter().cloned().map(Some).collect();
    slots.resize(count, None);
    merge.ended = vec![true; count];
    merge.same_users = vec![false; count];
    for (listener, &(position, is_new)) in new.listeners.iter().zip(positions) {
        let mut listener = listener.clone();
        listener.pool_index = position_of(listener.pool_index);
        merge.ended[position] = false;
        if is_new {
            merge.opened.push(position);
        } else {
            merge.same_users[position] =
                has_same_users(before.config, &old[position], &merge.config, &listener);
        }
        slots[position] = Some(listener);
    }
    // No clients connect there any more, and those that are connected keep their rights until they
    // leave.
    for position in (0..count).filter(|&position| merge.ended[position]) {
        merge.same_users[position] = true;
        if let Some(listener) = &mut slots[position] {
            listener.users.clear();
            listener.pool_index = usize::MAX;
        }
    }
    merge.config.listeners =
        slots.into_iter().map(|slot| slot.expect("every position is somebody's")).collect();
}

fn has_same_users(old: &Config, was: &ListenerConfig, new: &Config, is: &ListenerConfig) -> bool {
    let users = |config: &Config, listener: &ListenerConfig| {
        listener.users.iter().map(|&at| config.users[at].clone()).collect::<Vec<_>>()
    };
    let (before, after) = (users(old, was), users(new, is));
    let mut pairs = before.iter().zip(&after);
    was.password == is.password
        && old.limits.failed_logins_max == new.limits.failed_logins_max
        && before == after
        && pairs.all(|(before, after)| before.user.has_passwords_of(&after.user))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_str(text, "test").expect("a configuration")
    }

    const HEAD: &str = "[[listener]]\nbind = \"tcp://127.0.0.1:7001\"\npool = \"all\"\n";

    fn server(name: &str, port: u16) -> String {
        format!("[pool.{name}]\nkind = \"sharded\"\nservers = [\"127.0.0.1:{port}:1\"]\n")
    }

    fn both(a: u16, b: u16) -> String {
        let all = "[pool.all]\nkind = \"failover\"\nchildren = [\"a\", \"b\"]\n";
        format!("{HEAD}{all}{}{}[pool.s]\nkind = \"store\"\n", server("a", a), server("b", b))
    }

    fn next(old: &Config, retired: &[Retired], generation: u64, new: &Config) -> Merge {
        try_next(old, retired, generation, new).expect("it can be reloaded")
    }

    fn try_next(
        old: &Config,
        retired: &[Retired],
        generation: u64,
        new: &Config,
    ) -> Result<Merge, Vec<String>> {
        let ended = vec![None; old.listeners.len()];
        let before =
            Before { config: old, generation, retired, ended: &ended, until: Time(0), workers: 1 };
        merge(&before, new)
    }

    fn names(config: &Config) -> Vec<&str> {
        config.pools.iter().map(|pool| pool.name.as_str()).collect()
    }

    #[test]
    fn pools_that_say_the_same_keep_their_positions_and_those_that_lead_to_others_change_with_them()
    {
        let old = config(&both(1, 2));
        let same = next(&old, &[], 1, &config(&both(1, 2)));
        assert!(same.is_same.iter().all(|is_same| *is_same) && same.retired.is_empty());
        assert_eq!(same.same_users, [true]);

        let merged = next(&old, &[], 1, &config(&both(1, 3)));
        assert_eq!(names(&merged.config), ["all~2", "a", "b~2", "s", "all", "b"]);
        assert_eq!(merged.is_same, [true, true, true, true, false, false]);
        assert_eq!(merged.heir_of[4..], [Some(0), Some(2)]);
        assert_eq!(merged.config.listeners[0].pool_index, 4);
        let retired: Vec<_> = merged.retired.iter().map(|it| (it.pool, it.is_replaced)).collect();
        assert_eq!(retired, [(0, true), (2, true)]);
        let PoolKindConfig::Routed(all) = &merged.config.pools[4].kind else { panic!("it leads") };
        assert_eq!(all.pool.children(), [1, 5]);
    }

    #[test]
    fn a_listener_that_stays_neither_begins_nor_ceases_to_accept_ipv4() {
        let store = "[pool.all]\nkind = \"store\"\n";
        let listener =
            |bind: &str| format!("[[listener]]\nbind = \"tcp://{bind}\"\npool = \"all\"\n");
        let every = config(&format!("{}{store}", listener("[::]:7001")));
        let beside = format!("{}{}{store}", listener("[::]:7001"), listener("127.0.0.1:7001"));
        let beside = config(&beside);
        for (old, new, words) in [
            (&every, &beside, "cannot begin to leave IPv4 to another listener"),
            (&beside, &every, "cannot begin to accept IPv4"),
        ] {
            let faults = try_next(old, &[], 1, new).err().unwrap_or_default();
            assert!(faults.iter().any(|fault| fault.contains(words)), "{faults:?}");
            next(old, &[], 1, old);
        }
    }

    #[test]
    fn another_hash_of_a_password_is_seen_though_it_is_shown_as_before() {
        let user = |byte: &str| {
            let hash = byte.repeat(32);
            format!(
                "{}[[user]]\nname = \"ops\"\nrules = \"+@all ~*\"\npassword_hashes = [\"#{hash}\"]\n",
                both(1, 2)
            )
        };
        let old = config(&user("1f"));
        assert_eq!(next(&old, &[], 1, &config(&user("1f"))).same_users, [true]);
        let new = config(&user("2f"));
        assert_eq!(next(&old, &[], 1, &new).same_users, [false]);
        assert_eq!(crate::reload::diff(&old, &new), ["user ops: password changed"]);
    }

    #[test]
    fn a_position_is_anothers_when_every_worker_has_ended_what_was_there() {
        let first = next(&config(&both(1, 2)), &[], 1, &config(&both(1, 3)));
        let again = next(&first.config, &first.retired, 2, &config(&both(1, 4)));
        assert_eq!(again.config.pools.len(), 8, "nobody has ended anything yet");
        assert_eq!(ending_generations(&again.retired), 2);
        first.retired.iter().for_each(|it| it.left.store(0, Ordering::Relaxed));
        let again = next(&first.config, &first.retired, 2, &config(&both(1, 4)));
        assert_eq!(names(&again.config), ["all", "a", "b", "s", "all~3", "b~3"]);
        assert_eq!(ending_generations(&again.retired), 1);
    }

    #[test]
    fn what_cannot_change_is_named() {
        let old = config(&both(1, 2));
        let without = both(1, 2).replace("[pool.s]\nkind = \"store\"\n", "");
        let smaller = both(1, 2) + "memory_max = \"64MiB\"\n";
        let other = both(1, 2).replace("pool = \"all\"\n", "pool = \"all\"\nbacklog = 7\n");
        let spin = "[server]\nspin = \"1us\"\n".to_owned() + &both(1, 2);
        let cases = [
            (without, "pool.s: a store cannot be removed"),
            (smaller, "pool.s: the settings of a store"),
            (other, "listener tcp://127.0.0.1:7001: backlog"),
            (spin, "server.spin"),
        ];
        for (text, expected) in cases {
            let faults = try_next(&old, &[], 1, &config(&text)).err().expect(expected);
            assert!(faults.len() == 1 && faults[0].contains(expected), "{faults:?}");
        }
    }
}
