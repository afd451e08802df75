//! CLUSTER SHARDS: ranges of slots, and nodes with their roles.

use super::view::{
    Building, ClusterNode, ClusterView, NodeHealth, NodeRole, ViewSource, node_id, told,
};
use crate::ViewError;
use crate::reply_reader::{Item, ReplyReader};

impl ClusterView {
    /// Reads the reply to CLUSTER SHARDS (Redis 7.0 and later).
    ///
    /// Some servers (7.2) list no slots for a shard while a dead primary is in it.
    /// A caller whose view is not whole asks for CLUSTER SLOTS before using it.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a reply.
    pub fn from_shards(reply: &[u8], asked: ViewSource<'_>) -> Result<ClusterView, ViewError> {
        let mut reader = ReplyReader::new(reply)?;
        let mut building = Building::default();
        for _ in 0..reader.list("an array of shards")? {
            shard(&mut reader, asked, &mut building)?;
        }
        Ok(building.finish())
    }
}

fn key<'a>(reader: &mut ReplyReader<'a>) -> Result<&'a [u8], ViewError> {
    match reader.next()? {
        Item::Text(key) => Ok(key),
        _ => Err(ViewError::Expected("the name of a field")),
    }
}

fn shard(
    reader: &mut ReplyReader<'_>,
    asked: ViewSource<'_>,
    building: &mut Building,
) -> Result<(), ViewError> {
    let mut ranges = Vec::new();
    let mut members = Vec::new();
    for _ in 0..reader.pairs("a shard")? {
        match key(reader)? {
            b"slots" => slots(reader, &mut ranges)?,
            b"nodes" => {
                for _ in 0..reader.list("the nodes of a shard")? {
                    members.push(building.add(node(reader, asked)?)?);
                }
            }
            _ => reader.skip()?,
        }
    }
    let primary = primary_of(&members, building);
    for &member in &members {
        let role = &mut building.nodes[usize::from(member)].role;
        if *role != NodeRole::Primary {
            *role = NodeRole::Replica { of: primary };
        }
    }
    for (first, last) in ranges {
        match primary {
            Some(primary) => building.claim(first, last, primary)?,
            // The primary is not known, so no server is asked for these slots.
            None => building.count(1)?,
        }
    }
    Ok(())
}

/// Returns the primary of a shard. After a fail-over a shard lists two primaries until the old one
/// is back. This returns the one that has not failed.
fn primary_of(members: &[u16], building: &Building) -> Option<u16> {
    let node = |member: &u16| &building.nodes[usize::from(*member)];
    let primaries = || members.iter().filter(|member| node(member).role == NodeRole::Primary);
    let has_failed = |member: &u16| node(member).health == NodeHealth::Failed;
    primaries().find(|member| !has_failed(member)).or_else(|| primaries().next()).copied()
}

/// Reads pairs of a first and a last slot.
fn slots(reader: &mut ReplyReader<'_>, ranges: &mut Vec<(i64, i64)>) -> Result<(), ViewError> {
    let len = reader.list("the slots of a shard")?;
    if len % 2 != 0 {
        return Err(ViewError::Expected("the last slot of a range"));
    }
    for _ in 0..len / 2 {
        let first = reader.number("the first slot of a range")?;
        ranges.push((first, reader.number("the last slot of a range")?));
    }
    Ok(())
}

#[derive(Default)]
struct Fields<'a> {
    plain_port: u16,
    tls_port: u16,
    ip: Option<&'a str>,
    /// `None` if the field is missing, `Some(None)` if it is null.
    preferred: Option<Option<&'a str>>,
    host_name: Option<&'a str>,
}

fn node(reader: &mut ReplyReader<'_>, asked: ViewSource<'_>) -> Result<ClusterNode, ViewError> {
    let mut node = ClusterNode::new(None);
    let mut fields = Fields::default();
    for _ in 0..reader.pairs("a node of a shard")? {
        match key(reader)? {
            b"id" => node.id = Some(node_id(reader.text("the identity of a node")?)?),
            b"port" => fields.plain_port = reader.port("the port of a node")?,
            b"tls-port" => fields.tls_port = reader.port("the TLS port of a node")?,
            b"ip" => fields.ip = reader.text_or_null("the address of a node")?,
            b"endpoint" => fields.preferred = Some(reader.text_or_null("the endpoint of a node")?),
            b"hostname" => fields.host_name = reader.text_or_null("the host name of a node")?,
            b"availability-zone" => {
                node.zone = told(reader.text_or_null("the zone of a node")?);
            }
            b"role" => node.role = role(reader.text("the role of a node")?)?,
            b"replication-offset" => {
                node.replication_offset = reader.number("a replication offset")?.try_into().ok();
            }
            b"health" => node.health = health(reader.text("the health of a node")?),
            _ => reader.skip()?,
        }
    }
    let port = asked.port(fields.plain_port, fields.tls_port);
    let host = fields.preferred.unwrap_or(fields.ip);
    node.endpoint = asked.locate(host, &[fields.host_name, fields.ip], port)?;
    node.host_name = told(fields.host_name);
    Ok(node)
}

fn role(text: &str) -> Result<NodeRole, ViewError> {
    match text {
        "master" | "primary" => Ok(NodeRole::Primary),
        "replica" | "slave" => Ok(NodeRole::Replica { of: None }),
        _ => Err(ViewError::Expected("the role of a node")),
    }
}

fn health(text: &str) -> NodeHealth {
    match text {
        "online" => NodeHealth::Online,
        "loading" => NodeHealth::Loading,
        "fail" | "failed" => NodeHealth::Failed,
        _ => NodeHealth::Failing,
    }
}
