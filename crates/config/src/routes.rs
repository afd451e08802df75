//! Pools that send requests on to other pools: what they name must be there, speak
//! one language, and not lead back.

use crate::error::{Problem, Report, nearest, quoted};
use crate::reader::{NamedPool, Section, Value, listed};
use keyway_topology::{
    ASKED_MAX, CHILDREN_MAX, DEPTH_MAX, FailoverPool, Gutter, MirrorPool, MissThenPool, PrefixPool,
    RateLimitedPool, ReadWriteSplitPool, RoutedPool, ShadowBy, ShadowPool, Wait,
};

/// The kinds of pools that lead to others.
pub(crate) const KINDS: [&str; 7] =
    ["prefix", "failover", "mirror", "shadow", "miss-then", "rate-limited", "read-write-split"];

/// A pool that is named in another.
struct Named<'s> {
    key: &'static str,
    at: usize,
    name: &'s str,
}

/// Every pool that one names, in the order of the file's keys.
fn named_in(section: &Section) -> Vec<Named<'_>> {
    let mut named = Vec::new();
    for route in section.list_of("routes") {
        if let Some(name) = route.text("pool") {
            named.push(Named { key: "routes", at: route.place("pool"), name });
        }
    }
    if let Some(Value::Names(names)) = section.of_its_table("children") {
        named.extend(names.iter().map(|(at, name)| Named { key: "children", at: *at, name }));
    }
    for key in ["default", "gutter", "main", "shadow", "child", "write", "read"] {
        if let Some(Value::Text(name)) = section.of_its_table(key) {
            named.push(Named { key, at: section.place(key), name });
        }
    }
    named
}

/// Whether a pool is named in one that leads to others.
pub(crate) fn is_named(name: &str, pools: &[NamedPool]) -> bool {
    routed(pools).any(|(_, section)| named_in(section).iter().any(|named| named.name == name))
}

fn routed(pools: &[NamedPool]) -> impl Iterator<Item = (&str, &Section)> {
    pools.iter().filter_map(|pool| match &pool.section {
        Some((kind, section)) if KINDS.contains(kind) => Some((pool.name.as_str(), section)),
        _ => None,
    })
}

fn position(name: &str, pools: &[NamedPool]) -> Option<usize> {
    pools.iter().position(|pool| pool.name == name)
}

/// What the servers behind a pool speak; nothing for an embedded store alone, which
/// speaks both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Speaks {
    pub(crate) redis: bool,
    pub(crate) memcached: bool,
}

/// What the servers behind the pool of that name speak.
pub(crate) fn speaks(name: &str, pools: &[NamedPool]) -> Speaks {
    let mut speaks = Speaks::default();
    let mut seen = vec![false; pools.len()];
    let mut left: Vec<usize> = position(name, pools).into_iter().collect();
    while let Some(index) = left.pop() {
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        match &pools[index].section {
            Some(("sharded" | "cluster" | "replicated", _)) => speaks.redis = true,
            Some(("memcached", _)) => speaks.memcached = true,
            Some((kind, section)) if KINDS.contains(kind) => {
                let named = named_in(section);
                left.extend(named.iter().filter_map(|named| position(named.name, pools)));
            }
            _ => {}
        }
    }
    speaks
}

/// Reports what is wrong with the pools that each pool names.
pub(crate) fn check(pools: &[NamedPool], report: &mut Report<'_>) {
    let depths = depths(pools);
    let asked = asked(pools);
    for (name, section) in routed(pools) {
        let named = named_in(section);
        for child in &named {
            check_child(name, section, child, pools, report);
        }
        check_languages(section, &named, pools, report);
        let is_deep = position(name, pools).is_some_and(|index| depths[index] > DEPTH_MAX);
        if is_deep && !leads_round(name, pools) {
            let what =
                format!("{} leads over more than {DEPTH_MAX} pools in a row", section.header);
            let hint = "take some out: every request would cross all of them";
            report.consequence(section.at, Problem::new(what, hint));
            continue;
        }
        let asked = position(name, pools).map_or(0, |index| asked[index]);
        if asked > ASKED_MAX && !leads_round(name, pools) {
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

/// How often a request for one key is asked at most, from each pool on: of each child by
/// those that ask their children, of what these lead to, and of shadows.
fn asked(pools: &[NamedPool]) -> Vec<u64> {
    let mut asked = vec![0u64; pools.len()];
    for _ in 0..DEPTH_MAX {
        let before = asked.clone();
        for pool in pools.iter() {
            let Some((kind, section)) = &pool.section else { continue };
            if !KINDS.contains(kind) {
                continue;
            }
            let named = named_in(section);
            let of = |child: &Named<'_>| position(child.name, pools).map(|index| before[index]);
            let sum = named.iter().filter_map(of).fold(0, u64::saturating_add);
            let most = named.iter().filter_map(of).max().unwrap_or(0);
            let count = match *kind {
                "prefix" | "rate-limited" => most,
                "read-write-split" if !section.bool("read_fallback") => most,
                "shadow" => sum.saturating_add(1),
                _ => sum.saturating_add(named.len() as u64),
            };
            if let Some(index) = position(&pool.name, pools) {
                asked[index] = count;
            }
        }
    }
    asked
}

fn check_child(
    own: &str,
    section: &Section,
    child: &Named<'_>,
    pools: &[NamedPool],
    report: &mut Report<'_>,
) {
    let mut refuse = |what: String, hint: String| {
        let what = format!("{} in {}: {what}", child.key, section.header);
        report.consequence(child.at, Problem::new(what, hint));
    };
    if position(child.name, pools).is_none() {
        let names = || pools.iter().map(|pool| pool.name.as_str());
        let hint = match nearest(child.name, names()) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => format!("pools are {}", names().collect::<Vec<_>>().join(", ")),
        };
        return refuse(format!("there is no pool {}", quoted(child.name)), hint);
    }
    if child.name == own {
        return refuse(
            "this is the pool itself: requests would go round in circles".to_owned(),
            "name another pool".to_owned(),
        );
    }
    if let Some(way) = way_to(child.name, own, pools) {
        refuse(
            format!("pool {} leads back here ({own} -> {way})", quoted(child.name)),
            "take one of these steps out: requests would go round in circles".to_owned(),
        );
    }
}

/// The pools from one to another, if it leads there.
fn way_to(from: &str, to: &str, pools: &[NamedPool]) -> Option<String> {
    let mut seen = vec![false; pools.len()];
    let mut left = vec![(position(from, pools)?, from.to_owned())];
    while let Some((index, way)) = left.pop() {
        if pools[index].name == to {
            return Some(way);
        }
        if std::mem::replace(&mut seen[index], true) {
            continue;
        }
        let Some((kind, section)) = &pools[index].section else { continue };
        if KINDS.contains(kind) {
            for named in named_in(section) {
                let next = position(named.name, pools);
                left.extend(next.map(|next| (next, format!("{way} -> {}", named.name))));
            }
        }
    }
    None
}

/// Pools in a row from each one on, counted up to one more than may be.
fn depths(pools: &[NamedPool]) -> Vec<usize> {
    let mut depths = vec![1; pools.len()];
    for _ in 0..DEPTH_MAX {
        let before = depths.clone();
        for (name, section) in routed(pools) {
            let named = named_in(section);
            let of = |child: &Named<'_>| position(child.name, pools).map(|index| before[index]);
            let deepest = named.iter().filter_map(of).max().unwrap_or(0);
            if let Some(index) = position(name, pools) {
                depths[index] = 1 + deepest;
            }
        }
    }
    depths
}

/// Whether the pool, or one it leads to, leads back to itself.
fn leads_round(name: &str, pools: &[NamedPool]) -> bool {
    routed(pools).any(|(round, section)| {
        let is_round = named_in(section).iter().any(|it| way_to(it.name, round, pools).is_some());
        is_round && way_to(name, round, pools).is_some()
    })
}

/// A pool leads to servers of one language; told where two meet.
fn check_languages(
    section: &Section,
    named: &[Named<'_>],
    pools: &[NamedPool],
    report: &mut Report<'_>,
) {
    let spoken = |child: &Named<'_>| speaks(child.name, pools);
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

/// The pool of a section that was checked by [`check`].
pub(crate) fn resolve(
    kind: &str,
    section: &Section,
    pools: &[NamedPool],
    report: &mut Report<'_>,
) -> RoutedPool {
    let of = |name: &str| {
        section
            .text(name)
            .and_then(|name| position(name, pools))
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
                write_commands: crate::cluster::commands(section, "write_commands", report),
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

fn prefix(section: &Section, pools: &[NamedPool], report: &mut Report<'_>) -> PrefixPool {
    let mut routes: Vec<(Box<[u8]>, u16)> = Vec::new();
    for route in section.sections("routes") {
        let Some(prefix) = route.text("prefix") else { continue };
        if routes.iter().any(|(known, _)| **known == *prefix.as_bytes()) {
            let what = format!("routes in {}: {} is there twice", section.header, quoted(prefix));
            let hint = "leave one of them: a key goes to one pool";
            report.consequence(route.place("prefix"), Problem::new(what, hint));
        }
        let pool = route.text("pool").and_then(|name| position(name, pools)).unwrap_or(0);
        routes.push((prefix.as_bytes().into(), pool as u16));
    }
    let default = section.text("default").and_then(|name| position(name, pools));
    PrefixPool::new(routes, default.map(|pool| pool as u16))
}

fn failover(section: &Section, pools: &[NamedPool], report: &mut Report<'_>) -> FailoverPool {
    let gutter = section.text("gutter");
    let children = children(section, pools, if gutter.is_some() { 1 } else { 2 }, report);
    refuse_stray(section, "gutter_ttl_max", section.given("gutter").is_some(), "gutter", report);
    let position = gutter.and_then(|name| position(name, pools)).map(|pool| pool as u16);
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

fn mirror(section: &Section, pools: &[NamedPool], report: &mut Report<'_>) -> MirrorPool {
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

/// The positions of `children`; those that are not there were reported.
fn children(
    section: &Section,
    pools: &[NamedPool],
    least: usize,
    report: &mut Report<'_>,
) -> Vec<u16> {
    let Some(Value::Names(names)) = section.value("children") else { return Vec::new() };
    let mut children: Vec<u16> = Vec::new();
    for (at, name) in names {
        let Some(child) = position(name, pools).map(|position| position as u16) else { continue };
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
