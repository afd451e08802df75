//! CLUSTER NODES: a line for each node, with its slots at the end.
//!
//! `id ip:port@bus,name,key=value flags primary ping pong epoch link slot ...`,
//! where the bus port came with 4.0, the host name with 7.0, the rest with 7.2.

use super::view::{
    Building, ClusterNode, ClusterView, Move, MovingSlot, NodeHealth, NodeRole, ViewSource,
    node_id, told,
};
use crate::reply_reader::{ReplyReader, decimal, endpoint, is_unknown_host};
use crate::{Endpoint, ViewError};

impl ClusterView {
    /// Reads the reply to CLUSTER NODES.
    ///
    /// # Errors
    /// Returns an error if the bytes are not such a reply.
    pub fn from_nodes(reply: &[u8], asked: ViewSource<'_>) -> Result<ClusterView, ViewError> {
        let text = ReplyReader::new(reply)?.text("lines of nodes")?;
        let lines = || text.lines().map(str::trim_ascii).filter(|line| !line.is_empty());
        let mut building = Building::default();
        // All nodes are read first, because a line may name a node of a later line.
        for line in lines() {
            let line = Line::split(line)?;
            building.add(node(&line, asked)?)?;
        }
        // All roles are read before any line's primary is looked up, so that a
        // replica of a replica is seen as one.
        for line in lines() {
            let line = Line::split(line)?;
            let Some(index) = building.find(line.id) else { continue };
            if building.nodes[usize::from(index)].role != NodeRole::Primary {
                let of = building.find(line.primary).filter(|&primary| {
                    building.nodes[usize::from(primary)].role == NodeRole::Primary
                });
                building.nodes[usize::from(index)].role = NodeRole::Replica { of };
            }
            for word in line.slots.split_ascii_whitespace() {
                slots(word, index, &mut building)?;
            }
        }
        Ok(building.finish())
    }
}

struct Line<'a> {
    id: &'a str,
    address: &'a str,
    flags: &'a str,
    primary: &'a str,
    epoch: &'a str,
    slots: &'a str,
}

impl<'a> Line<'a> {
    fn split(line: &'a str) -> Result<Line<'a>, ViewError> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after;
            if word.is_empty() {
                Err(ViewError::Expected("a line of eight words"))
            } else {
                Ok(word)
            }
        };
        let (id, address, flags, primary) = (word()?, word()?, word()?, word()?);
        let (_ping, _pong, epoch, _link) = (word()?, word()?, word()?, word()?);
        Ok(Line { id, address, flags, primary, epoch, slots: rest })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|one| one == flag)
    }

    fn health(&self) -> NodeHealth {
        let table = [
            ("handshake", NodeHealth::Handshake),
            ("noaddr", NodeHealth::NoAddress),
            ("fail", NodeHealth::Failed),
            ("fail?", NodeHealth::Failing),
        ];
        let told = table.into_iter().find(|(flag, _)| self.has(flag));
        told.map_or(NodeHealth::Online, |(_, health)| health)
    }
}

fn node(line: &Line<'_>, asked: ViewSource<'_>) -> Result<ClusterNode, ViewError> {
    let is_replica = line.has("slave") || line.has("replica");
    let address = Address::split(line.address)?;
    let mut node = ClusterNode::new(None);
    node.id = Some(node_id(line.id)?);
    node.role = if is_replica { NodeRole::Replica { of: None } } else { NodeRole::Primary };
    node.health = line.health();
    node.epoch = Some(decimal(line.epoch, "the epoch of a node")?);
    node.is_asked = line.has("myself");
    node.host_name = told(address.host_name);
    node.zone = told(address.zone);
    node.endpoint = match node.health {
        NodeHealth::NoAddress => None,
        _ => address.endpoint(node.is_asked, asked)?,
    };
    Ok(node)
}

struct Address<'a> {
    host: &'a str,
    plain_port: u16,
    tls_port: u16,
    host_name: Option<&'a str>,
    zone: Option<&'a str>,
}

impl<'a> Address<'a> {
    /// Splits an address. An IPv6 address has no brackets: the last colon is the port's.
    fn split(text: &'a str) -> Result<Address<'a>, ViewError> {
        let mut parts = text.split(',');
        let plain = parts.next().unwrap_or_default();
        let plain = plain.rsplit_once('@').map_or(plain, |(plain, _bus)| plain);
        let Some((host, port)) = plain.rsplit_once(':') else {
            return Err(ViewError::Expected("the address of a node"));
        };
        let plain_port = decimal(port, "the port of a node")?;
        let host_name = parts.next();
        let mut address = Address { host, plain_port, tls_port: 0, host_name, zone: None };
        for part in parts {
            match part.split_once('=') {
                Some(("tls-port", port)) => {
                    address.tls_port = decimal(port, "the TLS port of a node")?;
                }
                Some(("tcp-port", port)) => {
                    address.tls_port = address.plain_port;
                    address.plain_port = decimal(port, "the port of a node")?;
                }
                Some(("availability-zone", zone)) => address.zone = Some(zone),
                _ => {}
            }
        }
        Ok(address)
    }

    /// Returns the endpoint to connect to. The address comes before the name, because the reply
    /// does not say which one the server prefers. A node that does not know its own address is at
    /// the endpoint that was asked.
    fn endpoint(
        &self,
        is_asked: bool,
        asked: ViewSource<'_>,
    ) -> Result<Option<Endpoint>, ViewError> {
        let port = asked.port(self.plain_port, self.tls_port);
        let hosts = [Some(self.host), self.host_name];
        match hosts.into_iter().flatten().find(|host| !is_unknown_host(host)) {
            Some(host) => endpoint(host, port),
            None if is_asked => Ok(Some(asked.endpoint.clone())),
            None => Ok(None),
        }
    }
}

/// Reads one word of slots: `7`, `0-5460`, `[7->-id]` (moving to another node) or `[7-<-id]`
/// (moving from one).
fn slots(word: &str, index: u16, building: &mut Building) -> Result<(), ViewError> {
    let number = |text| decimal::<i64>(text, "a slot");
    if let Some(moving) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
        return moving_slot(moving, index, building);
    }
    match word.split_once('-') {
        Some((first, last)) => building.claim(number(first)?, number(last)?, index),
        None => building.claim(number(word)?, number(word)?, index),
    }
}

fn moving_slot(word: &str, asked: u16, building: &mut Building) -> Result<(), ViewError> {
    let (slot, phase, peer) = match (word.split_once("->-"), word.split_once("-<-")) {
        (Some((slot, peer)), None) => (slot, Move::Migrating, peer),
        (None, Some((slot, peer))) => (slot, Move::Importing, peer),
        _ => return Err(ViewError::Expected("a slot on the way")),
    };
    let slot = decimal::<u16>(slot, "a slot")?;
    if usize::from(slot) >= super::SLOT_COUNT {
        return Err(ViewError::SlotRange);
    }
    building.count(1)?;
    let peer = building.find(peer);
    building.moving.push(MovingSlot { slot, phase, asked, peer });
    Ok(())
}
