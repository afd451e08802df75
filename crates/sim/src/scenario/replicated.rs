//! Primaries with replicas that are found through sentinels or by asking all of them, and their
//! events.

use super::clusters::{EVENTS_LAST, members, reads, wait_for_primary};
use super::*;
use crate::cluster::EventKind;
use keyway_topology::{
    Discovery, Endpoint, PrimarySource, ReplicatedPool, ServerGroup, ServerOptions, SlotMap,
    SlotSpace, SlotsPool,
};

/// The beginning of a primary's name. Its number follows.
pub const NAME: &str = "alpha";

/// The pool of the sentinels.
const SENTINELS: &str = "pool0/sentinels";

/// The beginning of the hosts of sentinels.
const SENTINEL_HOST: &str = "10.8.1";

/// Events that harm no client.
const ORDERLY: [EventKind; 4] =
    [EventKind::Switch, EventKind::Switch, EventKind::Relapse, EventKind::RestartAll];

/// Failures.
const WILD: [EventKind; 4] = [EventKind::Die, EventKind::Die, EventKind::Usurp, EventKind::Relapse];

/// Draws the pool, that of its sentinels if it has some, and the events.
pub(super) fn replicated(
    random: &mut Random,
    calm: bool,
    options: &Options,
) -> (Vec<Pool>, ClusterPlan) {
    let has_sentinels = !options.slots && random.percent(75);
    // The slots of a cluster are divided into as many equal parts.
    let groups = if has_sentinels || options.slots { random.pick(&[1, 1, 2, 4]) } else { 1 };
    let copies = random.between(1, 3) as u16;
    let sentinels = if has_sentinels { random.between(1, 5) as usize } else { 0 };
    let members = members(groups, copies, 0);
    let endpoint = |member: &crate::cluster::Member| {
        Endpoint::tcp(&member.host, member.port).expect("an endpoint")
    };
    let listed = members.iter().filter(|member| member.is_member && !has_sentinels).map(endpoint);
    let settings = Discovery {
        seeds: listed.collect(),
        nodes_max: groups * (1 + copies) + random.between(0, 8) as u16,
        refresh: Duration::from_millis(random.scaled(200, 2000)),
        redirections_max: random.between(6, 16) as u8,
        reads: reads(random, true),
        retry_percent: None,
        wait_for_primary: wait_for_primary(random),
    };
    let refresh = nanos(settings.refresh);
    let mut drawn = sharded(random, 0, calm, options);
    drawn.options.ejection = None;
    (drawn.options.database, drawn.options.databases_allowed) = (0, 1);
    let source = match has_sentinels {
        true => PrimarySource::Sentinels {
            pool: SENTINELS.to_owned(),
            primaries: (0..groups).map(|number| format!("{NAME}{number}")).collect(),
        },
        false => PrimarySource::Servers,
    };
    let asked = sentinel_pool(&drawn.options, sentinels).map(PoolKind::Sentinels);
    let mut kind = match options.slots {
        true => {
            let of_group = |number: usize| members.iter().skip(number).step_by(usize::from(groups));
            let group = |number: usize| ServerGroup {
                name: format!("{NAME}{number}"),
                servers: of_group(number).filter(|it| it.is_member).map(endpoint).collect(),
            };
            let groups: Vec<ServerGroup> = (0..usize::from(groups)).map(group).collect();
            PoolKind::Slots(SlotsPool::new(slot_map(groups.len()), groups, settings))
        }
        false => PoolKind::Replicated(ReplicatedPool::new(source, settings)),
    };
    if let Some(set) = kind.servers_mut() {
        if !options.slots {
            (set.hash, set.hash_tag, set.distribution) =
                (Hash::Crc16, Some(HashTag::BRACES), Distribution::Modula);
        }
        set.options = drawn.options;
    }
    let pool = Pool { name: "pool0".to_owned(), kind };
    let plan = plan(random, calm, &pool, (members, groups, sentinels));
    let mut plan = ClusterPlan { aftermath: plan.aftermath + 2 * refresh, ..plan };
    plan.aftermath += asked.as_ref().map_or(0, aftermath);
    let asked = asked.map(|kind| Pool { name: SENTINELS.to_owned(), kind });
    (std::iter::once(pool).chain(asked).collect(), plan)
}

/// Gives each group the slots whose remainder is its number.
fn slot_map(groups: usize) -> SlotMap {
    let mut map = SlotMap::new(SlotSpace::Cluster);
    for slot in 0..SlotSpace::Cluster.count() {
        map.give(slot, slot, slot % groups as u16).expect("each slot is given once");
    }
    map
}

fn sentinel_pool(options: &ServerOptions, sentinels: usize) -> Option<ServerSet> {
    let server = |number| Server::parse(&format!("{SENTINEL_HOST}.{number}:26379"));
    let servers: Vec<Server> =
        (0..sentinels).map(|number| server(number).expect("a server line")).collect();
    let second = Duration::from_secs(1);
    let options = ServerOptions {
        timeout: options.timeout.min(second),
        connect_timeout: options.connect_timeout,
        reconnect_min: options.reconnect_min,
        reconnect_max: options.reconnect_max.min(second),
        ..ServerOptions::default()
    };
    (!servers.is_empty()).then(|| ServerSet { options, ..ServerSet::new(servers) })
}

fn plan(
    random: &mut Random,
    calm: bool,
    pool: &Pool,
    (members, groups, sentinels): (Vec<crate::cluster::Member>, u16, usize),
) -> ClusterPlan {
    let is_lossy = !calm && random.percent(70);
    // One server flaps.
    let span = if random.percent(30) { 700 * MILLI } else { FAULTS_WITHIN };
    let begins = START + random.below(FAULTS_WITHIN - span + 1);
    let event = |random: &mut Random| {
        let kind = match is_lossy && random.percent(60) {
            true => random.pick(&WILD),
            false => random.pick(&ORDERLY),
        };
        (begins + random.below(span), kind)
    };
    let events = (0..random.between(3, 24)).map(|_| event(random)).collect();
    let slowest = random.scaled(MILLI, 300 * MILLI);
    let first_sentinel = members.len() as u64;
    ClusterPlan {
        events,
        ends_at: START + FAULTS_WITHIN + EVENTS_LAST,
        gossip: (100 * MICRO, slowest),
        // A sentinel that hears of everything late.
        laggard: (sentinels > 1 && random.percent(40))
            .then(|| ((first_sentinel + random.below(sentinels as u64)) as u16, 2 * SECOND)),
        lag: (50 * MICRO, random.scaled(MILLI, 300 * MILLI)),
        is_strict: false,
        aftermath: aftermath(&pool.kind),
        indices: pool.servers().len(),
        nodes_max: pool.servers().len() as u16,
        leaves_after: SECOND,
        groups: usize::from(groups),
        sentinels,
        kills_clients: random.percent(50),
        shares_slots: matches!(pool.kind, PoolKind::Slots(_)),
        members,
    }
}
