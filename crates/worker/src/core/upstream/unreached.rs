//! Why servers cannot be connected to, for the operators that `/readyz` tells. Each worker has the
//! same in `failures`, for its log and its clients.

use crate::core::{ConnectionKey, Core};
use keyway_base::BackendFault;
use keyway_net::{ConnectFault, Socket};

impl Core {
    /// Handles the end of an attempt to connect.
    pub(crate) fn fail_connecting(&mut self, index: ConnectionKey, fault: ConnectFault) {
        self.note_unreached(index, fault.text());
        self.on_connect_failed(index, fault);
    }

    /// Ends a connection, or the attempt to make it. Returns its socket, to be closed.
    pub(crate) fn end_link(&mut self, index: ConnectionKey, fault: BackendFault) -> Option<Socket> {
        // Only an attempt that takes too long ends here with this fault.
        if fault == BackendFault::Connect {
            self.note_unreached(index, "no answer within connect_timeout");
        }
        self.on_link_lost(index, fault)
    }

    fn note_unreached(&self, index: ConnectionKey, why: &'static str) {
        let connection = &self.links[index];
        self.plane.plan.pools[usize::from(connection.server_id.pool)]
            .notices
            .note_unreached(connection.server_id.server, why);
    }
}
