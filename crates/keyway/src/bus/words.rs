//! Lines of the log about nodes of the bus that are not connected.

use keyway_bus::{NodeId, Reason};
use std::fmt::Display;

/// Returns why there is no connection to the node at an address.
pub fn not_reached(at: &dyn Display, reason: Reason) -> String {
    match reason {
        // The other node says this, and speaks of our token.
        Reason::Denied => format!(
            "{at} refuses this node: it does not know our token; give both nodes a token in common"
        ),
        Reason::IdRefused | Reason::IdInUse | Reason::PeersMax => {
            format!("{at} refuses this node: {reason}")
        }
        _ => format!("{at} cannot be reached: {reason}"),
    }
}

/// Returns why a node that has come from an address is not let in. A node that has not proved its
/// id has none.
pub fn not_let_in(id: NodeId, from: &dyn Display, reason: Reason) -> String {
    match id == NodeId::NONE {
        true => format!("an unknown node from {from} is not let in: {reason}"),
        false => format!("{id} from {from} is not let in: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_the_other_node_has_done() {
        let at = "tcp://10.0.0.1:6390";
        let told = not_reached(&at, Reason::Denied);
        assert!(told.contains("does not know our token") && !told.contains("reached"), "{told}");
        let told = not_reached(&at, Reason::IdInUse);
        assert!(told.ends_with("refuses this node: a node of that id is connected already"));
        let told = not_reached(&at, Reason::NobodyListens);
        assert!(told.starts_with("tcp://10.0.0.1:6390 cannot be reached: nobody"), "{told}");
        let told = not_let_in(NodeId::NONE, &"10.0.0.2:5", Reason::Denied);
        assert!(told.starts_with("an unknown node from 10.0.0.2:5 is not let in: no token"));
        let id = "z1.proxy.0.1".parse().expect("an id");
        assert!(not_let_in(id, &"10.0.0.2:5", Reason::IdInUse).starts_with("z1.proxy.0.1 from"));
    }
}
