//! Pools of kind `"slots"`: groups of servers, and the slots that each of them has.

use crate::cluster::{discovery, failover};
use crate::error::{Problem, Report, quoted};
use crate::section::{Section, Value};
use keyway_topology::{
    Endpoint, Server, ServerGroup, SlotMap, SlotRangeError, SlotSpace, SlotsPool,
};
use std::collections::BTreeMap;

/// Longest name of a group, in bytes.
const NAME_LEN_MAX: usize = 31;

/// Largest number of groups of a pool.
const GROUPS_MAX: usize = 1024;

const SLOTS_HINT: &str =
    "write ranges, such as 0-511, and single slots, all in one text with commas between";

/// Reads such a pool.
pub(crate) fn resolve(section: &Section, report: &mut Report<'_>) -> SlotsPool {
    let space = space(section, report);
    let mut map = SlotMap::new(space);
    let mut groups: Vec<ServerGroup> = Vec::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let listed = section.sections("groups");
    if listed.len() > GROUPS_MAX {
        let what = format!("{} has more than {GROUPS_MAX} groups", section.header);
        report.consequence(section.place("groups"), Problem::new(what, "use fewer"));
        return SlotsPool::new(map, groups, discovery(section, &[], report));
    }
    let mut are_whole = !listed.is_empty();
    for group in listed {
        let name = name(group, &groups, report);
        are_whole &= give(group, groups.len() as u16, (&mut map, &groups), report);
        let servers = servers(group, &name, &mut known, report);
        groups.push(ServerGroup { name, servers });
    }
    // Slots of a wrong list have its error already.
    if are_whole {
        refuse_holes(section, &map, report);
    }
    let mut pool = SlotsPool::new(map, groups, discovery(section, &[], report));
    pool.failover = failover(section, None, &pool.discovery, report);
    pool
}

fn space(section: &Section, report: &mut Report<'_>) -> SlotSpace {
    let Some(count) = section.number("slots") else { return SlotSpace::default() };
    let found = SlotSpace::ALL.into_iter().find(|space| u64::from(space.count()) == count);
    found.unwrap_or_else(|| {
        let what = format!("slots in {}: {count} is not one of the two numbers", section.header);
        let hint = "write 1024 for the slots of Codis, or 16384 for those of Redis Cluster";
        report.consequence(section.place("slots"), Problem::new(what, hint));
        SlotSpace::default()
    })
}

fn name(group: &Section, others: &[ServerGroup], report: &mut Report<'_>) -> String {
    let name = group.text("name").unwrap_or_default().to_owned();
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let wrong = if group.value("name").is_none() {
        None
    } else if name.is_empty() || name.len() > NAME_LEN_MAX || !name.bytes().all(is_sound) {
        Some((
            format!("{} is no name for a group", quoted(&name)),
            "write 1 to 31 letters, digits, \"-\", \"_\" and \".\"",
        ))
    } else if others.iter().any(|other| other.name == name) {
        Some((format!("{} is there twice", quoted(&name)), "give each group a name of its own"))
    } else {
        None
    };
    if let Some((what, hint)) = wrong {
        let what = format!("name in {}: {what}", group.header);
        report.consequence(group.place("name"), Problem::new(what, hint));
    }
    name
}

/// Gives a group the slots that it lists. Returns whether the list is sound.
fn give(
    section: &Section,
    group: u16,
    (map, others): (&mut SlotMap, &[ServerGroup]),
    report: &mut Report<'_>,
) -> bool {
    let Some(text) = section.text("slots") else { return false };
    let mut refuse = |what: String, hint: &str| {
        let what = format!("slots in {}: {what}", section.header);
        report.consequence(section.place("slots"), Problem::new(what, hint));
        false
    };
    // A group that is to get its slots later, or has lost them, lists none.
    for range in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
        let Some((first, last)) = parse_range(range) else {
            return refuse(format!("{} is neither a slot nor a range", quoted(range)), SLOTS_HINT);
        };
        match map.give(first, last, group) {
            Ok(()) => {}
            Err(SlotRangeError::Reversed) => {
                return refuse(format!("{} ends before it begins", quoted(range)), SLOTS_HINT);
            }
            Err(SlotRangeError::TooLarge) => {
                let last = map.space().count() - 1;
                let what = format!("{} goes beyond the last slot, {last}", quoted(range));
                return refuse(what, "check `slots` of the pool, which is the number of slots");
            }
            Err(SlotRangeError::Taken { slot, group: owner }) => {
                let owner = others.get(usize::from(owner));
                let whose = owner.map_or("this group".to_owned(), |other| {
                    format!("group {}", quoted(&other.name))
                });
                let what = format!("slot {slot} belongs to {whose} already");
                return refuse(what, "list each slot once");
            }
        }
    }
    true
}

/// Reads `7` or `0-511`.
fn parse_range(text: &str) -> Option<(u16, u16)> {
    let slot = |text: &str| {
        let text = text.trim();
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().unwrap_or(u16::MAX))
    };
    match text.split_once('-') {
        Some((first, last)) => Some((slot(first)?, slot(last)?)),
        None => Some((slot(text)?, slot(text)?)),
    }
}

/// Reads the servers of a group. `known` has those of the groups before, each with its group.
fn servers(
    group: &Section,
    name: &str,
    known: &mut BTreeMap<String, String>,
    report: &mut Report<'_>,
) -> Vec<Endpoint> {
    let Some(Value::Servers(placed)) = group.value("servers") else { return Vec::new() };
    if placed.is_empty() {
        // Wrong servers are left out, and have their own errors.
        return Vec::new();
    }
    let mut refuse = |at: usize, what: String, hint: &str| {
        let what = format!("servers in {}: {what}", group.header);
        report.consequence(at, Problem::new(what, hint));
    };
    let mut found = Vec::new();
    for (at, server) in placed {
        let shown = server.endpoint.to_string();
        if server.weight != 1 || server.name.is_some() {
            let what = format!(
                "{} has a weight or a name, and slots say which keys a group has",
                quoted(&server.to_string())
            );
            refuse(*at, what, &format!("write {}", quoted(&shown)));
        }
        if let Some(other) = known.insert(shown.clone(), name.to_owned()) {
            let what = match other == name {
                true => format!("{} is there twice", quoted(&shown)),
                false => format!("{} is in group {} as well", quoted(&shown), quoted(&other)),
            };
            refuse(*at, what, "list each server once");
        }
        found.push(server.endpoint.clone());
    }
    found
}

/// Refuses slots without a group: their keys would have no server.
fn refuse_holes(section: &Section, map: &SlotMap, report: &mut Report<'_>) {
    if let Some((first, last)) = map.first_hole() {
        let which = match first == last {
            true => format!("slot {first} has"),
            false => format!("slots {first}-{last} have"),
        };
        let what = format!("groups in {}: {which} no group", section.header);
        report
            .consequence(section.place("groups"), Problem::new(what, "give each slot to a group"));
    }
}

/// Returns the servers of all groups, as a list of servers.
pub(crate) fn all_servers(pool: &SlotsPool) -> Vec<Server> {
    let endpoints = pool.groups.iter().flat_map(|group| &group.servers);
    let server = |endpoint: &Endpoint| Server { endpoint: endpoint.clone(), name: None, weight: 1 };
    endpoints.map(server).collect()
}

/// Returns the slots of a group as they stand in a file.
pub(crate) fn ranges_text(map: &SlotMap, group: u16) -> String {
    let range = |&(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    map.ranges_of(group).iter().map(range).collect::<Vec<_>>().join(", ")
}
