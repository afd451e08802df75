//! From Codis's entries to a configuration file.

use super::Imported;
use keyway_config::Config;
use keyway_topology::{Endpoint, SlotSpace};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Number of slots of a product.
const SLOTS: usize = SlotSpace::Codis.count() as usize;

/// Most faults that are told.
const FAULTS_MAX: usize = 20;

/// An entry `slots/slot-0000`. The fields have Codis's names.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Slot {
    id: usize,
    group_id: u32,
    action: Action,
}

/// A change that is going on.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Action {
    state: String,
    target_id: u32,
}

/// An entry `group/group-0001`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Group {
    id: u32,
    servers: Vec<Server>,
    promoting: Action,
    out_of_sync: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Server {
    #[serde(rename = "server")]
    address: String,
    replica_group: bool,
}

/// An entry `proxy/proxy-…`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Proxy {
    proxy_addr: String,
}

/// Converts the entries of a product. `from` names their source.
///
/// # Errors
/// Returns everything for which the product cannot be converted.
pub fn convert(
    product: &str,
    from: &str,
    entries: &[(String, Vec<u8>)],
) -> Result<Imported, Vec<String>> {
    let mut faults = Vec::new();
    let slots: Vec<Slot> = read(entries, "slots/", &mut faults);
    let groups: Vec<Group> = read(entries, "group/", &mut faults);
    let proxies: Vec<Proxy> = read(entries, "proxy/", &mut faults);
    if slots.is_empty() && faults.is_empty() {
        faults.push(format!("there is no product of this name in {from}, or it has no slots"));
        return Err(faults);
    }
    let mut owners: Vec<Option<u32>> = vec![None; SLOTS];
    for slot in &slots {
        let Some(owner) = owners.get_mut(slot.id) else {
            faults.push(format!("slot {} is beyond the last one, {}", slot.id, SLOTS - 1));
            continue;
        };
        *owner = (slot.group_id > 0).then_some(slot.group_id);
        if !slot.action.state.is_empty() {
            let (state, to) = (&slot.action.state, slot.action.target_id);
            faults.push(format!(
                "slot {} moves to group {to} ({state}): wait until Codis has moved it",
                slot.id
            ));
        }
    }
    let lacking = ranges(&owners, None);
    if !lacking.is_empty() {
        faults.push(format!("slots {lacking} have no group: give them to one in Codis"));
    }
    let mut notes = Vec::new();
    let mut lines = String::new();
    for group in &groups {
        let slots = ranges(&owners, Some(group.id));
        if group.servers.is_empty() {
            match slots.is_empty() {
                true => notes.push(format!("group {} has no servers, and is left out", group.id)),
                false => faults.push(format!("group {} has slots and no servers", group.id)),
            }
            continue;
        }
        line(group, &slots, &mut lines, (&mut notes, &mut faults));
    }
    let mut unknown: Vec<u32> = owners.iter().flatten().copied().collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown.retain(|id| !groups.iter().any(|group| group.id == *id));
    faults.extend(unknown.iter().map(|id| {
        format!("slots {} belong to group {id}, which is not there", ranges(&owners, Some(*id)))
    }));
    if !faults.is_empty() {
        let more = faults.len().saturating_sub(FAULTS_MAX);
        faults.truncate(FAULTS_MAX);
        if more > 0 {
            faults.push(format!("and {more} more"));
        }
        return Err(faults);
    }
    let toml = file(product, from, &lines, &proxies, &mut notes);
    match Config::from_str(&toml, "the file made of it") {
        Ok(_) => Ok(Imported { toml, notes }),
        Err(errors) => Err(errors.iter().map(ToString::to_string).collect()),
    }
}

fn read<'e, T: Deserialize<'e>>(
    entries: &'e [(String, Vec<u8>)],
    folder: &str,
    faults: &mut Vec<String>,
) -> Vec<T> {
    let mut found = Vec::new();
    for (name, value) in entries.iter().filter(|(name, _)| name.starts_with(folder)) {
        match serde_json::from_slice(value) {
            Ok(entry) => found.push(entry),
            Err(error) => faults.push(format!("{name} is not as Codis writes it: {error}")),
        }
    }
    found
}

/// Returns the slots of a group, as ranges.
fn ranges(owners: &[Option<u32>], of: Option<u32>) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < owners.len() {
        let len = owners[at..].iter().take_while(|owner| **owner == owners[at]).count();
        if owners[at] == of {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = match len {
                1 => write!(text, "{comma}{at}"),
                _ => write!(text, "{comma}{at}-{}", at + len - 1),
            };
        }
        at += len;
    }
    text
}

/// Appends the line of a group.
fn line(
    group: &Group,
    slots: &str,
    lines: &mut String,
    (notes, faults): (&mut Vec<String>, &mut Vec<String>),
) {
    let id = group.id;
    if !group.promoting.state.is_empty() {
        faults.push(format!("group {id} fails over: wait until Codis has ended that"));
    }
    if group.out_of_sync {
        notes.push(format!("group {id} is out of sync in Codis: resync it there first"));
    }
    if group.servers.iter().any(|server| server.replica_group) {
        notes.push(format!(
            "Codis reads from replicas of group {id}; set read_from to do that here for all groups"
        ));
    }
    let mut servers = Vec::new();
    for Server { address, .. } in &group.servers {
        match address.parse::<Endpoint>() {
            Ok(endpoint) => servers.push(format!("\"{endpoint}\"")),
            Err(error) => faults.push(format!("server {address:?} of group {id}: {error}")),
        }
    }
    let servers = servers.join(", ");
    let _ = writeln!(lines, "  {{ name = \"{id}\", servers = [{servers}], slots = \"{slots}\" }},");
}

fn file(
    product: &str,
    from: &str,
    lines: &str,
    proxies: &[Proxy],
    notes: &mut Vec<String>,
) -> String {
    let mut ports: BTreeMap<u16, usize> = BTreeMap::new();
    let port = |proxy: &Proxy| proxy.proxy_addr.rsplit_once(':')?.1.parse().ok();
    proxies.iter().filter_map(port).for_each(|port| *ports.entry(port).or_default() += 1);
    // Most proxies of a product listen on the same port of their hosts.
    let port = ports.iter().max_by_key(|(_, count)| **count).map_or(19000, |(port, _)| *port);
    notes.push(format!(
        "the listener is on 127.0.0.1:{port}: write the address at which clients reach this host, and \
         another port beside a codis-proxy"
    ));
    notes.push(
        "Codis keeps the passwords of servers and clients in its own files: set password_file of the \
         pool and of the listener if there are any"
            .to_owned(),
    );
    notes.push(
        "a group's primary is the server that says so itself; Codis takes the first one of the list"
            .to_owned(),
    );
    let mut text = format!("# Made from product {product} of Codis, in {from}.\n");
    for note in &*notes {
        let _ = writeln!(text, "# Note: {note}.");
    }
    let name: String = product
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() || "_-.".contains(it) { it } else { '-' })
        .collect();
    let _ = write!(
        text,
        "\n[[listener]]\nbind = \"tcp://127.0.0.1:{port}\"\npool = \"{name}\"\n\n[pool.\"{name}\"]\nkind = \
         \"slots\"\nslots = {SLOTS}\ngroups = [\n{lines}]\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(more: &[(&str, &str)], slot: impl Fn(usize) -> String) -> Vec<(String, Vec<u8>)> {
        let slots = (0..SLOTS).map(|id| (format!("slots/slot-{id:04}"), slot(id).into_bytes()));
        let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
        slots.chain(more).collect()
    }

    const GROUPS: [(&str, &str); 3] = [
        (
            "group/group-0001",
            r#"{"id":1,"servers":[{"server":"10.0.0.1:6379","datacenter":"","action":{},"replica_group":false},{"server":"10.0.0.2:6379"}],"promoting":{},"out_of_sync":false}"#,
        ),
        ("group/group-0002", r#"{"id":2,"servers":[{"server":"10.0.0.3:6379"}],"promoting":{}}"#),
        ("group/group-0003", r#"{"id":3,"servers":[]}"#),
    ];

    fn half(id: usize) -> String {
        let group = if id < 512 || id == 600 { 1 } else { 2 };
        format!(r#"{{"id":{id},"group_id":{group},"action":{{}}}}"#)
    }

    #[test]
    fn a_product_becomes_a_pool() {
        let proxy = ("proxy/proxy-ab", r#"{"token":"ab","proxy_addr":"10.0.0.9:19001"}"#);
        let all = entries(&[&GROUPS[..], &[proxy]].concat(), half);
        let Imported { toml, notes } = convert("demo", "files", &all).unwrap();
        for words in [
            r#"{ name = "1", servers = ["10.0.0.1:6379", "10.0.0.2:6379"], slots = "0-511, 600" }"#,
            r#"{ name = "2", servers = ["10.0.0.3:6379"], slots = "512-599, 601-1023" }"#,
            "bind = \"tcp://127.0.0.1:19001\"",
            "slots = 1024",
        ] {
            assert!(toml.contains(words), "{words}: {toml}");
        }
        assert!(notes.iter().any(|note| note.contains("group 3 has no servers")), "{notes:?}");
    }

    #[test]
    fn a_product_that_changes_is_refused_with_what_to_do() {
        let faults = |all: &[(String, Vec<u8>)]| convert("demo", "files", all).unwrap_err();
        let moving = entries(&GROUPS, |id| match id {
            7 => r#"{"id":7,"group_id":1,"action":{"index":1,"state":"migrating","target_id":2}}"#
                .to_owned(),
            9 => r#"{"id":9,"group_id":0,"action":{}}"#.to_owned(),
            11 => r#"{"id":11,"group_id":8}"#.to_owned(),
            13 => "no JSON".to_owned(),
            _ => half(id),
        });
        let told = faults(&moving);
        for words in [
            "slot 7 moves to group 2 (migrating)",
            "slots 9, 13 have no group",
            "slots 11 belong to group 8",
            "slots/slot-0013 is not as Codis writes it",
        ] {
            assert!(told.iter().any(|fault| fault.contains(words)), "{words}: {told:?}");
        }
        assert!(faults(&[])[0].contains("no product"));
        let promoting = [(
            "group/group-0001",
            r#"{"id":1,"servers":[{"server":"h:1"}],"promoting":{"state":"preparing"}}"#,
        )];
        let told = faults(&entries(&promoting, |id| format!(r#"{{"id":{id},"group_id":1}}"#)));
        assert!(told[0].contains("group 1 fails over"), "{told:?}");
        let many = entries(&[], |id| format!(r#"{{"id":{id},"group_id":{}}}"#, id + 1));
        assert_eq!(faults(&many).len(), FAULTS_MAX + 1);
    }
}
