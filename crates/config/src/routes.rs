//! Pools that send requests on to other pools. The pools that they name must exist, speak one
//! protocol, and not lead back.

use crate::commands::commands;
use crate::error::listed;
use crate::error::{Problem, Report, quoted};
use crate::kinds;
use crate::named::{NamedPools, Speaks};
use crate::section::{NamedPool, Section, Value};
use keyway_topology::{
    ASKED_MAX, CHILDREN_MAX, DEPTH_MAX, FailoverPool, Gutter, MirrorPool, MissThenPool, PrefixPool,
    RateLimitedPool, ReadWriteSplitPool, RoutedPool, ShadowBy, ShadowPool, Wait,
};
use std::collections::{BTreeMap, BTreeSet};

/// A pool that is named in another.
pub(crate) struct Named<'s> {
    pub(crate) key: &'static str,
    pub(crate) at: usize,
    pub(crate) name: &'s str,
    /// Its position; `None` if there is no pool of that name.
    pub(crate) index: Option<usize>,
}

/// Returns every pool that `pool` names, in the order of the file's keys; empty for a pool that
/// leads to no other.
pub(crate) fn named_in<'s>(
    pool: &'s NamedPool,
    by_name: &BTreeMap<&'s str, usize>,
) -> Vec<Named<'s>> {
    let Some(section) = routed(pool) else { return Vec::new() };
    let of = |key, at, name: &'s str| Named { key, at, name, index: by_name.get(name).copied() };
    let mut named = Vec::new();
    for route in section.list_of("routes") {
        if let Some(name) = route.text("pool") {
            named.push(of("routes", route.place("pool"), name));
        }
    }
    if let Some(Value::Names(names)) = section.of_its_table("children") {
        named.extend(names.iter().map(|(at, name)| of("children", *at, name)));
    }
    for key in ["default", "gutter", "main", "shadow", "child", "write", "read"] {
        if let Some(Value::Text(name)) = section.of_its_table(key) {
            named.push(of(key, section.place(key), name));
        }
    }
    named
}

/// Returns the keys of a pool that leads to others.
fn routed(pool: &NamedPool) -> Option<&Section> {
    match &pool.section {
        Some((kind, section)) if kinds::leads_to_pools(kind) => Some(section),
        _ => None,
    }
}

/// Returns the protocol of a pool's own servers, without the pools that it leads to.
pub(crate) fn speaks_itself(pool: &NamedPool) -> Speaks {
    let kind = pool.section.as_ref().map(|(kind, _)| *kind);
    Speaks {
        redis: kind.is_some_and(kinds::has_redis_servers),
        memcached: kind.is_some_and(kinds::has_memcached_servers),
    }
}

/// Reports what is wrong with the pools that each pool names.
pub(crate) fn check(pools: &NamedPools<'_>, report: &mut Report<'_>) {
    let mut told = BTreeMap::new();
    for (index, pool) in pools.iter().enumerate() {
        let Some(section) = routed(pool) else { continue };
        for child in pools.named(index) {
            check_child((index, section), child, pools, &mut told, report);
        }
        check_languages(section, pools.named(index), pools, report);
        if pools.leads_round(index) {
            continue;
        }
        if pools.depth(index) > DEPTH_MAX {
            let what =
                format!("{} leads over more than {DEPTH_MAX} pools in a row", section.header);
            let hint = "take some out: every request would cross all of them";
            report.consequence(section.at, Problem::new(what, hint));
            continue;
        }
        let asked = pools.asked(index);
        if asked > ASKED_MAX {
            let what = format!(
                "{} has one request asked {asked} times, of pools and of those they lead to",
                section.header
            );
            let hint =
                format!("{ASKED_MAX} times at most: name fewer children here or further down");
            report.consequence(section.at, Problem::new(what, hint));
        }
    }
}

/// Returns the largest number of requests that one request for one key becomes: those to the pool's
/// children, to the pools that these lead to, and to shadows.
pub(crate) fn asked_by(pool: &NamedPool, named: &[Named<'_>], asked: impl Fn(usize) -> u64) -> u64 {
    let Some((kind, section)) = &pool.section else { return 0 };
    if !kinds::leads_to_pools(kind) {
        return 0;
    }
    let of_children = || named.iter().filter_map(|child| child.index).map(&asked);
    let most = of_children().max().unwrap_or(0);
    let sum = of_children().fold(0, u64::saturating_add);
    match *kind {
        "prefix" | "rate-limited" => most,
        "read-write-split" if !section.bool("read_fallback") => most,
        "shadow" => sum.saturating_add(1),
        _ => sum.saturating_add(named.len() as u64),
    }
}

/// Most circles reported among pools that all lead to each other. Further circles have the same
/// pools, and each costs a walk over all of them.
const CIRCLES_TOLD_MAX: u32 = 8;

/// Most pools of a circle that an error shows.
const WAY_SHOWN_MAX: usize = 12;

fn check_child(
    (own, section): (usize, &Section),
    child: &Named<'_>,
    pools: &NamedPools<'_>,
    told: &mut BTreeMap<usize, u32>,
    report: &mut Report<'_>,
) {
    let mut refuse = |what: String, hint: String| {
        let what = format!("{} in {}: {what}", child.key, section.header);
        report.consequence(child.at, Problem::new(what, hint));
    };
    let Some(index) = child.index else {
        let hint = match pools.suggest(child.name) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("pools are {}", pools.listed()),
        };
        return refuse(format!("there is no pool {}", quoted(child.name)), hint);
    };
    if index == own {
        return refuse(
            "this is the pool itself: requests would go round in circles".to_owned(),
            "name another pool".to_owned(),
        );
    }
    if pools.circle(index) != pools.circle(own) {
        return;
    }
    let told = told.entry(pools.circle(own)).or_insert(0);
    *told += 1;
    if *told > CIRCLES_TOLD_MAX {
        return;
    }
    let way = shown_way(own, &pools.way(index, own), pools);
    refuse(
        format!("pool {} leads back here ({way})", quoted(child.name)),
        "take one of these steps out: requests would go round in circles".to_owned(),
    );
}

/// Returns `a -> b -> a`. A long circle is shown with its start and its end.
fn shown_way(own: usize, way: &[usize], pools: &[NamedPool]) -> String {
    let whole: Vec<&str> =
        std::iter::once(&own).chain(way).map(|&index| pools[index].name.as_str()).collect();
    if whole.len() <= WAY_SHOWN_MAX {
        return whole.join(" -> ");
    }
    let (first, rest) = whole.split_at(WAY_SHOWN_MAX / 2);
    let (left_out, last) = rest.split_at(rest.len() - WAY_SHOWN_MAX / 2);
    format!("{} -> … {} more … -> {}", first.join(" -> "), left_out.len(), last.join(" -> "))
}

/// Refuses a pool that leads to servers of both protocols. Reports it where the two meet.
fn check_languages(
    section: &Section,
    named: &[Named<'_>],
    pools: &NamedPools<'_>,
    report: &mut Report<'_>,
) {
    let spoken = |child: &Named<'_>| pools.speaks(child.name);
    let is_mixed = |child: &Named<'_>| spoken(child).redis && spoken(child).memcached;
    if named.iter().any(is_mixed) {
        return;
    }
    let redis = named.iter().find(|child| spoken(child).redis);
    let memcached = named.iter().find(|child| spoken(child).memcached);
    if let (Some(redis), Some(memcached)) = (redis, memcached) {
        let late = if redis.at > memcached.at { redis } else { memcached };
        let what = format!(
            "{} in {}: pool {} is of Redis servers and pool {} of memcached servers, and no client \
             speaks both",
            late.key,
            section.header,
            quoted(redis.name),
            quoted(memcached.name),
        );
        let hint = "name pools of one protocol; an embedded store goes with either";
        report.consequence(late.at, Problem::new(what, hint));
    }
}

/// Makes the pool of a section that was checked by [`check`].
pub(crate) fn resolve(
    kind: &str,
    section: &Section,
    pools: &NamedPools<'_>,
    report: &mut Report<'_>,
) -> RoutedPool {
    let of = |name: &str| {
        section
            .text(name)
            .and_then(|name| pools.position(name))
            .map_or(0, |position| position as u16)
    };
    match kind {
        "prefix" => RoutedPool::Prefix(prefix(section, pools, report)),
        "failover" => RoutedPool::Failover(failover(section, pools, report)),
        "mirror" => RoutedPool::Mirror(mirror(section, pools, report)),
        "shadow" => {
            let (main, shadow) = (of("main"), of("shadow"));
            if section.text("main").is_some() && section.text("main") == section.text("shadow") {
                let what = format!("shadow in {}: this is main as well", section.header);
                let hint = "name another pool: each request would be run twice";
                report.consequence(section.place("shadow"), Problem::new(what, hint));
            }
            RoutedPool::Shadow(ShadowPool {
                main,
                shadow,
                percent: section.number("percent").unwrap_or(100) as u8,
                by: match section.text("by") {
                    Some("chance") => ShadowBy::Chance,
                    _ => ShadowBy::Key,
                },
                in_flight_max: section.number_u32("in_flight_max"),
            })
        }
        "miss-then" => {
            refuse_stray(section, "fill_ttl_max", section.bool("fill"), "fill = true", report);
            let ttl_max = section.duration("fill_ttl_max");
            RoutedPool::MissThen(MissThenPool {
                children: children(section, pools, 2, report),
                fill_ttl_max: ttl_max.filter(|_| section.bool("fill")),
            })
        }
        "read-write-split" => {
            let (write, read) = (of("write"), of("read"));
            if section.text("write").is_some() && section.text("write") == section.text("read") {
                let what = format!("read in {}: this is write as well", section.header);
                let hint = "name another pool: there is nothing to split";
                report.consequence(section.place("read"), Problem::new(what, hint));
            }
            RoutedPool::ReadWriteSplit(ReadWriteSplitPool {
                write,
                read,
                pin_after_write: section.duration("pin_after_write"),
                read_fallback: section.bool("read_fallback"),
                write_commands: commands(section, "write_commands", report),
            })
        }
        _ => {
            let rate = section.number("requests_per_second").unwrap_or(1);
            RoutedPool::RateLimited(RateLimitedPool {
                child: of("child"),
                requests_per_second: rate,
                burst: section.number("burst").unwrap_or((rate / 10).max(1)),
            })
        }
    }
}

fn prefix(section: &Section, pools: &NamedPools<'_>, report: &mut Report<'_>) -> PrefixPool {
    let mut routes: Vec<(Box<[u8]>, u16)> = Vec::new();
    let mut known = BTreeSet::new();
    for route in section.sections("routes") {
        let Some(prefix) = route.text("prefix") else { continue };
        if !known.insert(prefix) {
            let what = format!("routes in {}: {} is there twice", section.header, quoted(prefix));
            let hint = "leave one of them: a key goes to one pool";
            report.consequence(route.place("prefix"), Problem::new(what, hint));
        }
        let pool = route.text("pool").and_then(|name| pools.position(name)).unwrap_or(0);
        routes.push((prefix.as_bytes().into(), pool as u16));
    }
    let default = section.text("default").and_then(|name| pools.position(name));
    PrefixPool::new(routes, default.map(|pool| pool as u16))
}

fn failover(section: &Section, pools: &NamedPools<'_>, report: &mut Report<'_>) -> FailoverPool {
    let gutter = section.text("gutter");
    let children = children(section, pools, if gutter.is_some() { 1 } else { 2 }, report);
    refuse_stray(section, "gutter_ttl_max", section.given("gutter").is_some(), "gutter", report);
    let position = gutter.and_then(|name| pools.position(name)).map(|pool| pool as u16);
    if let Some(pool) = position
        && children.contains(&pool)
    {
        let what = format!("gutter in {}: it is one of the children as well", section.header);
        let hint = "name a pool of its own: what is written there is to be short-lived";
        report.consequence(section.place("gutter"), Problem::new(what, hint));
    }
    let ttl_max = section.duration("gutter_ttl_max").unwrap_or_default();
    FailoverPool { children, gutter: position.map(|pool| Gutter { pool, ttl_max }) }
}

fn mirror(section: &Section, pools: &NamedPools<'_>, report: &mut Report<'_>) -> MirrorPool {
    let children = children(section, pools, 2, report);
    let read_from = section.text("read_from").map(|name| {
        let is_it = |child: &u16| pools[usize::from(*child)].name == name;
        let position = children.iter().position(is_it);
        if position.is_none() {
            let what = format!(
                "read_from in {}: {} is none of the children",
                section.header,
                quoted(name)
            );
            report.consequence(
                section.place("read_from"),
                Problem::new(what, "name one of the children"),
            );
        }
        position.unwrap_or(0) as u16
    });
    let wait = match section.text("wait") {
        Some("first") => Wait::First,
        _ => Wait::All,
    };
    MirrorPool { children, read_from: read_from.unwrap_or(0), wait }
}

/// Returns the positions of `children`. Missing ones were reported.
fn children(
    section: &Section,
    pools: &NamedPools<'_>,
    least: usize,
    report: &mut Report<'_>,
) -> Vec<u16> {
    let Some(Value::Names(names)) = section.value("children") else { return Vec::new() };
    let mut children: Vec<u16> = Vec::new();
    for (at, name) in names {
        let Some(child) = pools.position(name).map(|position| position as u16) else { continue };
        if children.contains(&child) {
            let what = format!("children in {}: {} is there twice", section.header, quoted(name));
            report.consequence(*at, Problem::new(what, "leave one of them"));
        }
        children.push(child);
    }
    if names.len() < least || names.len() > CHILDREN_MAX {
        let what = format!("children in {}: {}", section.header, listed("pool", names.len()));
        let hint = format!("list {least} to {CHILDREN_MAX}");
        report.consequence(section.place("children"), Problem::new(what, hint));
    }
    children
}

fn refuse_stray(
    section: &Section,
    stray: &str,
    is_of_use: bool,
    wanted: &str,
    report: &mut Report<'_>,
) {
    if let (Some(at), false) = (section.given(stray), is_of_use) {
        let what = format!("{stray} in {} is for pools with {wanted}", section.header);
        report.consequence(at, Problem::new(what, format!("remove {stray}, or write {wanted}")));
    }
}
