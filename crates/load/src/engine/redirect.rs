//! Redirects of a cluster: the server that a request must be sent to instead.

use super::link::{Link, Role, Sent};
use super::state::State;
use crate::program::Stamps;
use keyway_net::Address;
use keyway_topology::{Redirect, RedirectKind};

/// Largest number of servers of a cluster that a client connects to.
const NODES_MAX: usize = 1024;

/// Number of redirects of a request after which the next one counts as an error.
const HOPS_MAX: u8 = 16;

impl State {
    /// Sends a request to the server that an error of a cluster names. Returns whether the error is
    /// a redirect.
    #[cold]
    pub(super) fn redirect(&mut self, index: u32, sent: Sent, text: &[u8]) -> bool {
        let (Some(way), Role::Step(number)) = (Redirect::parse(text), sent.role) else {
            return false;
        };
        let link = &self.links[index as usize];
        let Some(address) = address(&way, &self.nodes[usize::from(link.node)]) else {
            return false;
        };
        if sent.hops >= HOPS_MAX {
            return false;
        }
        let Some(node) = self.node_at(address) else { return false };
        if way.kind == RedirectKind::Moved {
            self.slots[usize::from(way.slot)] = node;
        }
        self.record.redirected += 1;
        let step = &self.setup.program.ops[usize::from(sent.op)].steps[usize::from(number)];
        let keys = if step.stamps == Stamps::None { 0 } else { step.verified_keys as usize };
        let link = &mut self.links[index as usize];
        let client = link.client;
        self.again.clear();
        self.again.extend(link.checks.drain(..keys));
        if way.kind == RedirectKind::Ask {
            self.ask(client, node);
        }
        self.put(client, Sent { hops: sent.hops + 1, ..sent }, Some(node));
        self.again.clear();
        true
    }

    /// Notes the new owner of a slot if an error names it.
    pub(super) fn note_moved(&mut self, index: u32, text: &[u8]) {
        let Some(way) = Redirect::parse(text).filter(|way| way.kind == RedirectKind::Moved) else {
            return;
        };
        let asked = &self.nodes[usize::from(self.links[index as usize].node)];
        if let Some(node) = address(&way, asked).and_then(|address| self.node_at(address)) {
            self.slots[usize::from(way.slot)] = node;
        }
    }

    fn ask(&mut self, client: u32, node: u16) {
        let index = self.link_to(client, node) as usize;
        let link: &mut Link = &mut self.links[index];
        link.out.extend_from_slice(b"*1\r\n$6\r\nASKING\r\n");
        link.sent.push_back(Sent {
            at: 0,
            seed: 0,
            key: 0,
            op: 0,
            hops: 0,
            role: Role::Asking,
            join: 0,
        });
    }

    fn node_at(&mut self, address: Address) -> Option<u16> {
        if let Some(known) = self.nodes.iter().position(|node| *node == address) {
            return Some(known as u16);
        }
        if self.nodes.len() >= NODES_MAX {
            return None;
        }
        self.nodes.push(address);
        Some((self.nodes.len() - 1) as u16)
    }
}

/// Returns the address that a redirect names. A redirect without a host means the host of the
/// server that was asked.
fn address(way: &Redirect<'_>, asked: &Address) -> Option<Address> {
    let host = match (way.host, asked) {
        (Some(host), _) => host.to_owned(),
        (None, Address::Tcp { host, .. }) => host.clone(),
        (None, _) => return None,
    };
    Some(Address::Tcp { host, port: way.port })
}
