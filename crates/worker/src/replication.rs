//! The role of a pool's store: what REPLICAOF changes and ROLE tells.

use parking_lot::RwLock;
use std::sync::Arc;

/// A role that a client wants a store to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A primary.
    Primary,
    /// The replica of a server.
    ReplicaOf {
        /// The server's host.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// The reply to a client that wanted a role.
pub type RoleReply = Result<&'static str, String>;

/// The role of one store. The binary has the thread that follows a primary.
pub trait Replication: Send + Sync {
    /// Changes the role, on another thread. `done` is given the reply once the store has the role.
    fn change(&self, wish: Wish, done: Box<dyn FnOnce(RoleReply) + Send>);

    /// Appends the reply to ROLE.
    fn write_role(&self, out: &mut Vec<u8>);
}

/// Where a pool's role is, once the process has prepared it.
#[derive(Default)]
pub struct RoleDoor(RwLock<Option<Arc<dyn Replication>>>);

impl RoleDoor {
    /// Puts a role here.
    pub fn set(&self, role: Arc<dyn Replication>) {
        *self.0.write() = Some(role);
    }

    /// Returns the role.
    pub fn get(&self) -> Option<Arc<dyn Replication>> {
        self.0.read().clone()
    }
}
