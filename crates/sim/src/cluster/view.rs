//! The view that one server of a simulated cluster has of it, and its answers to questions. This is
//! separate simple code, so that it does not share the mistakes of the parsers.

use crate::wire::write_bulk;
use std::collections::BTreeMap;

/// Number of slots of a cluster.
pub const SLOTS: usize = 16_384;

/// The owner of a slot that no server has.
pub const NOBODY: u16 = u16::MAX;

/// Returns the slot of a key. If the key has a hash tag, the slot is that of the tag.
pub fn slot_of(key: &[u8]) -> u16 {
    let open = key.iter().position(|&byte| byte == b'{');
    let tag = open.and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then_some(&rest[..close])
    });
    let mut crc = 0u16;
    for &byte in tag.unwrap_or(key) {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc & 0x3fff
}

/// A server as others see it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its id in the cluster.
    pub id: String,
    /// True if it is a member of the cluster.
    pub is_member: bool,
    /// The server whose copy it has, or `None` for a primary.
    pub replica_of: Option<u16>,
    /// True if the others cannot reach it.
    pub has_failed: bool,
    /// Its epoch.
    pub epoch: u64,
}

/// A cluster, as it is or as a server believes it to be.
#[derive(Clone, Debug)]
pub struct View {
    /// The version. A later view has a higher number.
    pub version: u64,
    /// Number of primaries, if this is no cluster. 0 in a cluster.
    pub groups: usize,
    /// The owner of each slot.
    pub owners: Vec<u16>,
    /// Every server that ever exists.
    pub members: Vec<Member>,
    /// True if the whole cluster serves nothing, because slots have no working owner.
    pub is_down: bool,
}

/// The slots that move from a server or to it, and the other server.
pub type Moves = BTreeMap<u16, u16>;

impl View {
    /// Returns the address of a server.
    pub fn address(&self, node: u16) -> String {
        let member = &self.members[usize::from(node)];
        format!("{}:{}", member.host, member.port)
    }

    /// Returns the copies of a server.
    pub fn replicas_of(&self, node: u16) -> impl Iterator<Item = u16> {
        let numbered = self.members.iter().enumerate();
        let copies =
            numbered.filter(move |(_, member)| member.is_member && member.replica_of == Some(node));
        copies.map(|(index, _)| index as u16)
    }

    /// Returns the ranges of slots with their owners.
    fn ranges(&self) -> Vec<(usize, usize, u16)> {
        let mut ranges: Vec<(usize, usize, u16)> = Vec::new();
        for (slot, &owner) in self.owners.iter().enumerate() {
            match ranges.last_mut() {
                Some((_, last, before)) if *before == owner => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges.retain(|&(_, _, owner)| owner != NOBODY);
        ranges
    }

    /// Writes the reply to `CLUSTER SLOTS`.
    pub fn write_slots(&self, out: &mut Vec<u8>) {
        let ranges = self.ranges();
        line(out, '*', ranges.len());
        for (first, last, owner) in ranges {
            let works = |&node: &u16| !self.members[usize::from(node)].has_failed;
            let replicas: Vec<u16> = self.replicas_of(owner).filter(works).collect();
            line(out, '*', 3 + replicas.len());
            line(out, ':', first);
            line(out, ':', last);
            for node in std::iter::once(owner).chain(replicas) {
                let member = &self.members[usize::from(node)];
                line(out, '*', 4);
                write_bulk(out, member.host.as_bytes());
                line(out, ':', usize::from(member.port));
                write_bulk(out, member.id.as_bytes());
                line(out, '*', 0);
            }
        }
    }

    /// Writes the reply to `CLUSTER SHARDS`.
    pub fn write_shards(&self, out: &mut Vec<u8>) {
        let is_primary = |node: &u16| {
            let member = &self.members[usize::from(*node)];
            member.is_member && member.replica_of.is_none()
        };
        let primaries: Vec<u16> = (0..self.members.len() as u16).filter(is_primary).collect();
        let ranges = self.ranges();
        line(out, '*', primaries.len());
        for primary in primaries {
            line(out, '*', 4);
            write_bulk(out, b"slots");
            let own: Vec<_> = ranges.iter().filter(|range| range.2 == primary).collect();
            line(out, '*', own.len() * 2);
            for (first, last, _) in own {
                line(out, ':', *first);
                line(out, ':', *last);
            }
            write_bulk(out, b"nodes");
            let nodes: Vec<u16> =
                std::iter::once(primary).chain(self.replicas_of(primary)).collect();
            line(out, '*', nodes.len());
            for node in nodes {
                let member = &self.members[usize::from(node)];
                line(out, '*', 14);
                write_bulk(out, b"id");
                write_bulk(out, member.id.as_bytes());
                write_bulk(out, b"port");
                line(out, ':', usize::from(member.port));
                write_bulk(out, b"ip");
                write_bulk(out, member.host.as_bytes());
                write_bulk(out, b"endpoint");
                write_bulk(out, member.host.as_bytes());
                write_bulk(out, b"role");
                let role = if member.replica_of.is_some() { "replica" } else { "master" };
                write_bulk(out, role.as_bytes());
                write_bulk(out, b"replication-offset");
                line(out, ':', 1);
                write_bulk(out, b"health");
                let health = if member.has_failed { "failed" } else { "online" };
                write_bulk(out, health.as_bytes());
            }
        }
    }

    /// Writes the reply of the server `me` to `CLUSTER NODES`, with the slots that move from it and
    /// to it.
    pub fn write_nodes(&self, me: u16, (away, here): (&Moves, &Moves), out: &mut Vec<u8>) {
        let mut text = String::new();
        let ranges = self.ranges();
        for (index, member) in self.members.iter().enumerate().filter(|(_, it)| it.is_member) {
            let index = index as u16;
            let role = if member.replica_of.is_some() { "slave" } else { "master" };
            let myself = if index == me { "myself," } else { "" };
            let failed = if member.has_failed { ",fail" } else { "" };
            let primary = member.replica_of.map_or("-", |of| &self.members[usize::from(of)].id);
            text += &format!(
                "{} {}:{}@{} {myself}{role}{failed} {primary} 0 0 {} connected",
                member.id,
                member.host,
                member.port,
                member.port + 10_000,
                member.epoch
            );
            for (first, last, _) in ranges.iter().filter(|range| range.2 == index) {
                text += &match first == last {
                    true => format!(" {first}"),
                    false => format!(" {first}-{last}"),
                };
            }
            if index == me {
                for (moves, mark) in [(away, "->-"), (here, "-<-")] {
                    for (slot, peer) in moves {
                        let id = &self.members[usize::from(*peer)].id;
                        text += &format!(" [{slot}{mark}{id}]");
                    }
                }
            }
            text.push('\n');
        }
        write_bulk(out, text.as_bytes());
    }
}

fn line(out: &mut Vec<u8>, mark: char, number: usize) {
    out.extend_from_slice(format!("{mark}{number}\r\n").as_bytes());
}
