//! Commands that Keyway answers itself: about the connection, about Keyway,
//! about the commands.

mod command_info;
mod registry;

pub use registry::{ClientEntry, ClientRegistry};

use crate::Identity;
use keyway_base::Clock;
use keyway_command::Request;

/// What a local command may read besides the session.
pub struct LocalContext<'a> {
    /// Who asks; some commands change it.
    pub identity: &'a mut Identity,
    /// Both clocks, read once a turn.
    pub clock: Clock,
    /// Password the client must give, if any.
    pub password: Option<&'a str>,
    /// Databases a client may select: `0..databases`.
    pub databases: u32,
    /// Every client of the process, of all workers.
    pub clients: &'a ClientRegistry,
    /// What is known about the process and its pools.
    pub facts: &'a dyn Facts,
    /// Position of the client's pool.
    pub pool: u16,
}

/// What the process knows about itself; the binary provides it.
pub trait Facts: Send + Sync {
    /// Appends the `INFO` sections asked for (`default`, `all`, `everything`
    /// or names such as `server`), as lines of `field:value\r\n` under
    /// `# Section` heads.
    fn info(&self, pool: u16, sections: &[&str], out: &mut String);
    /// Names and values that `CONFIG GET` may show, in Redis's words.
    fn settings(&self, pool: u16) -> Vec<(&'static str, String)>;
}

/// What the worker must do once the reply is in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing more.
    Continue,
    /// Close the connection when the reply has left (`QUIT`).
    Close,
    /// Close these clients, found by `CLIENT KILL`; the caller itself only
    /// after its reply.
    Kill(Vec<u64>),
}

/// Appends the one reply to a request whose handling is local.
pub fn answer(request: &Request, context: &mut LocalContext, out: &mut Vec<u8>) -> After {
    let _ = (request, context, out);
    After::Continue
}
