//! CLUSTER SLOTS: ranges, each with its primary and then its replicas.

use super::view::{Building, ClusterNode, ClusterView, NodeRole, ViewSource, node_id, told};
use crate::ViewError;
use crate::reply_reader::{Item, ReplyReader};
use std::net::IpAddr;

impl ClusterView {
    /// Reads the reply to CLUSTER SLOTS.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a reply.
    pub fn from_slots(reply: &[u8], asked: ViewSource<'_>) -> Result<ClusterView, ViewError> {
        let mut reader = ReplyReader::new(reply)?;
        let mut building = Building::default();
        for _ in 0..reader.list("an array of ranges")? {
            range(&mut reader, asked, &mut building)?;
        }
        Ok(building.finish())
    }
}

fn range(
    reader: &mut ReplyReader<'_>,
    asked: ViewSource<'_>,
    building: &mut Building,
) -> Result<(), ViewError> {
    let len = reader.list("a range of slots with its nodes")?;
    if len < 3 {
        return Err(ViewError::Expected("a range of slots with its nodes"));
    }
    let first = reader.number("the first slot of a range")?;
    let last = reader.number("the last slot of a range")?;
    let primary = building.add(node(reader, asked)?)?;
    building.nodes[usize::from(primary)].role = NodeRole::Primary;
    building.claim(first, last, primary)?;
    for _ in 3..len {
        let count = building.nodes.len();
        let replica = building.add(node(reader, asked)?)?;
        // A node that is in the list already keeps its role: it may own other slots.
        if usize::from(replica) == count {
            building.nodes[count].role = NodeRole::Replica { of: Some(primary) };
        }
    }
    Ok(())
}

/// Reads a node: host, port, the identity (since 3.0.7), and more about the host (since 7.0).
fn node(reader: &mut ReplyReader<'_>, asked: ViewSource<'_>) -> Result<ClusterNode, ViewError> {
    let len = reader.list("a node of a range")?;
    if len < 2 {
        return Err(ViewError::Expected("the host and port of a node"));
    }
    let host = reader.text_or_null("the host of a node")?;
    let port = reader.port("the port of a node")?;
    let id = if len > 2 { Some(node_id(reader.text("the identity of a node")?)?) } else { None };
    let mut more = More::default();
    if len > 3 {
        more.read(reader)?;
    }
    for _ in 4..len {
        reader.skip()?;
    }
    let endpoint = asked.locate(host, &[more.host_name, more.ip], port)?;
    let mut node = ClusterNode::new(endpoint);
    node.id = id;
    // A preferred name is not told a second time.
    let is_name = |host: &str| host.parse::<IpAddr>().is_err();
    node.host_name = told(more.host_name.or(host.filter(|host| is_name(host))));
    node.zone = told(more.zone);
    Ok(node)
}

#[derive(Default)]
struct More<'a> {
    ip: Option<&'a str>,
    host_name: Option<&'a str>,
    zone: Option<&'a str>,
}

impl<'a> More<'a> {
    fn read(&mut self, reader: &mut ReplyReader<'a>) -> Result<(), ViewError> {
        for _ in 0..reader.pairs("what else is known of a node")? {
            let Item::Text(key) = reader.next()? else {
                return Err(ViewError::Expected("the name of a field"));
            };
            match key {
                b"ip" => self.ip = reader.text_or_null("the address of a node")?,
                b"hostname" => self.host_name = reader.text_or_null("the host name of a node")?,
                b"availability-zone" => self.zone = reader.text_or_null("the zone of a node")?,
                _ => reader.skip()?,
            }
        }
        Ok(())
    }
}
