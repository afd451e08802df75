//! The start of a run: the worker's plan, and the world around it.

use super::{DRAIN_TIMEOUT, clusters, visits};
use crate::client::{Client, Habits};
use crate::ledger::{Ledger, Reach};
use crate::network::{Network, Occurrence, SECOND};
use crate::random::Random;
use crate::scenario::{Bound, LEAVE_AT, MEMCACHED_ITEM_MAX, Options, Scenario};
use crate::server::Server;
use crate::world::World;
use keyway_base::Time;
use keyway_command::Class;
use keyway_metrics::{Layout, PoolLayout, Registry};
use keyway_proxy::{QueueBudget, SlowLog, local::ClientRegistry, local::Facts};
use keyway_store::{EvictionPolicy, Store, StoreConfig};
use keyway_topology::{HealthBoard, Pool, PoolKind as TopologyKind, ServerSet, Topology};
use keyway_users::Users;
use keyway_worker::{ListenerPlan, Pause, Plan, PoolKind, PoolPlan};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

struct SimFacts;

impl Facts for SimFacts {
    fn info(&self, _pool: u16, _poses: bool, _sections: &[&str], out: &mut String) {
        out.push_str("# Server\r\n");
    }
    fn settings(&self, _pool: u16) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

pub(super) fn links_of(pool: &keyway_topology::Pool) -> usize {
    let links = |set: &ServerSet| set.servers.len() * usize::from(set.options.server_connections);
    pool.kind.servers().map_or(0, links)
}

/// The labels by which requests are counted.
pub(super) const CLASSES: [&str; Class::ALL.len()] = {
    let mut labels = [""; Class::ALL.len()];
    let mut index = 0;
    while index < labels.len() {
        labels[index] = Class::ALL[index].label();
        index += 1;
    }
    labels
};

pub(super) fn registry(scenario: &Scenario) -> Arc<Registry> {
    let pools = scenario.topology.pools().iter().map(|pool| PoolLayout {
        name: pool.name.clone(),
        backends: pool.servers().iter().map(|server| server.label().into_owned()).collect(),
        is_retired: false,
    });
    Registry::new(Layout {
        classes: &CLASSES,
        commands: &keyway_command::COUNTED_NAMES,
        pools: pools.collect(),
        workers_max: scenario.workers,
        version: "sim",
        start_unix_micros: 0,
    })
}

/// Returns the plan of a pool, which is one of `pools`. A store gets the bound of `bound`.
pub(super) fn pool_plan(
    pool: &Pool,
    pools: &[Pool],
    (seed, bound): (u64, Option<Bound>),
) -> PoolPlan {
    let open = || {
        Arc::new(Store::new(StoreConfig {
            memory_max: bound.map_or(0, |bound| bound.memory_max),
            policy: bound.map_or(EvictionPolicy::NoEviction, |bound| bound.policy),
            databases: 4,
            shards: Some(4),
            seed,
            ..StoreConfig::default()
        }))
    };
    let options = pool.kind.servers().map(|set| &set.options);
    let databases = match &pool.kind {
        TopologyKind::Store => 4,
        _ => options.map_or(1, |options| options.databases_allowed),
    };
    let slow_log = options.map(|it| SlowLog::new(it.slower_than, it.slow_log_len_max));
    PoolPlan {
        name: pool.name.clone(),
        databases,
        clients_max: 0,
        pause: Pause::default(),
        errors: Arc::default(),
        key_stats: Arc::default(),
        slow_log: Arc::new(slow_log.unwrap_or_default()),
        scripts: Arc::default(),
        role: Default::default(),
        notices: Default::default(),
        kind: PoolKind::new(&pool.kind, pools, Time(0), None, open),
    }
}

pub(super) fn plan(scenario: &Scenario, seed: u64) -> Arc<Plan> {
    let pools = scenario.topology.pools();
    let bound_of = |pool| scenario.bound.filter(|bound| bound.pool == pool);
    let plans = pools.iter().enumerate();
    let plans = plans.map(|(index, pool)| pool_plan(pool, pools, (seed, bound_of(index))));
    let own = scenario.passwords.iter().zip(0..);
    let own = own.map(|(password, pool)| (password, pool, is_memcached(scenario, pool), 1 << 20));
    let second = scenario.second_listener();
    let second = second.map(|pool| (&None, pool as u16, true, MEMCACHED_ITEM_MAX));
    let listeners =
        own.chain(second).map(|(password, pool, is_memcached, item_max)| ListenerPlan {
            is_ended: false,
            memcached: is_memcached.then_some(item_max),
            pool,
            name: format!("sim:{pool}").into(),
            users: Arc::new(Users::plain(password.as_deref())),
            cluster: None,
            read_from: None,
            access: keyway_worker::ListenerAccess::default(),
        });
    Arc::new(Plan {
        generation: 1,
        retired: Vec::new(),
        followers: Default::default(),
        limits: scenario.limits,
        listeners: listeners.collect(),
        user_reads: Vec::new(),
        pools: plans.map(Arc::new).collect(),
        health: Arc::new(HealthBoard::new(&scenario.topology)),
        topology: Arc::new(scenario.topology.clone()),
        clients: Arc::new(ClientRegistry::default()),
        facts: Arc::new(SimFacts),
        next_client_id: Arc::new(AtomicU64::new(1)),
        mailers: Arc::default(),
        relief: Arc::default(),
        drain_timeout: DRAIN_TIMEOUT,
        spin: std::time::Duration::ZERO,
        notices: Arc::default(),
        transactions: Arc::new(QueueBudget::new(scenario.limits.transactions_len_max)),
        channels: Arc::default(),
        handouts: Arc::default(),
        invalidations: Arc::default(),
        monitors: Arc::default(),
        redirects: Arc::default(),
    })
}

/// Returns the pool from which a pool gets its missing items.
fn old_pool(topology: &Topology, pool: &Pool) -> Option<usize> {
    match &pool.kind {
        TopologyKind::Memcached(pool) => topology.pool_index(&pool.warm_up.as_ref()?.from),
        _ => None,
    }
}

fn is_memcached(scenario: &Scenario, pool: u16) -> bool {
    match &scenario.topology.pools()[usize::from(pool)].kind {
        // No scenario leads to anything but memcached.
        TopologyKind::Memcached(_) | TopologyKind::Routed(_) => true,
        TopologyKind::Store
        | TopologyKind::Sharded(_)
        | TopologyKind::Cluster(_)
        | TopologyKind::Replicated(_)
        | TopologyKind::Slots(_)
        | TopologyKind::Sentinels(_) => false,
    }
}

pub(super) fn build_world(
    scenario: &Scenario,
    plan: &Plan,
    (options, seed): (&Options, u64),
    random: &mut Random,
) -> World {
    let pools = scenario.topology.pools();
    let servers_count = scenario.server_count();
    let habits = scenario.clients.iter().chain(&scenario.last_clients);
    // They have a sequence of their own, so that other clients draw the same as before.
    let mut hoarders = Random::new(seed ^ 0x0068_6f61_7264);
    let mut of = |habits: &Habits| match habits.hoard {
        Some(_) => hoarders.fork(),
        None => random.fork(),
    };
    let clients: Vec<_> = habits
        .enumerate()
        .map(|(index, habits)| Client::new(index, habits.clone(), of(habits)))
        .collect();
    let mut ledger = Ledger::new(pools, servers_count, Arc::clone(&plan.health));
    ledger.know_bound(scenario.bound);
    ledger.know_old_pools(pools.iter().map(|pool| old_pool(&scenario.topology, pool)).collect());
    ledger.know_reaches(pools.iter().map(|pool| Reach::of(pool, pools)).collect());
    let mut network = Network::new(
        scenario.network.clone(),
        (scenario.workers, plan.listeners.len()),
        clients.len() + scenario.visitors,
        servers_count,
        random.fork(),
    );
    if options.story {
        network.story = Some(Default::default());
    }
    let mut servers = Vec::new();
    for (pool_index, pool) in plan.pools.iter().enumerate() {
        let Some(upstream) = pool.kind.upstream() else { continue };
        let settings = &upstream.servers.options;
        for address in upstream.addresses.iter().filter(|_| scenario.cluster.is_none()) {
            let index = servers.len();
            network.names.insert(address.to_string(), index);
            network.attempts_max[index] = scenario.attempts_max(&upstream.servers);
            let password = settings.password.as_ref().map(|password| password.expose());
            let defect = options.defect.filter(|_| index == 0);
            let (place, service) = ((index, pool_index), scenario.service);
            let wishes = (defect, scenario.knows_hello[pool_index]);
            let mut server =
                Server::new(place, settings.database, password, service, wishes, random.fork());
            if matches!(pool.kind, PoolKind::Memcached(_)) {
                server.speak_memcached();
            }
            servers.push(server);
        }
    }
    let parts = (&mut network, &mut servers, &mut ledger);
    let cluster = clusters::build(scenario, plan, parts, random);
    if scenario.has_mutes {
        // It is no fault if requests time out beside them, as long as the error comes in time.
        let until = LEAVE_AT + SECOND;
        (0..servers_count).for_each(|server| ledger.on_trouble(server, 0, until));
    }
    for (index, &at) in scenario.starts.iter().enumerate() {
        network.wake_client(index, at);
    }
    let visitors = visits::visitors(scenario, seed, clients.len());
    visits::wake(&mut network, seed, clients.len()..clients.len() + visitors.len());
    for (index, fault) in scenario.faults.iter().enumerate() {
        network.schedule(fault.at, Occurrence::Fault(index));
    }
    World { network, clients, visitors, servers, ledger, faults: scenario.faults.clone(), cluster }
}
