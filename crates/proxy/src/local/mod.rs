//! Commands that Keyway answers itself: about the connection, about Keyway,
//! about the commands.

mod client;
mod command_info;
mod connection;
mod glob;
mod kill;
mod registry;
mod report;

pub use registry::{ClientEntry, ClientRegistry};

use crate::Identity;
use keyway_base::Clock;
use keyway_command::{Request, Verb};
use keyway_resp::reply;

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
    let args = &request.args;
    match request.command.verb {
        Verb::Ping => connection::ping(args, out),
        Verb::Echo => reply::bulk(out, &args[1]),
        Verb::Quit => {
            reply::simple(out, "OK");
            return After::Close;
        }
        Verb::Auth => connection::auth(args, context, out),
        Verb::Select => connection::select(args, context, out),
        Verb::Hello => connection::hello(args, context, out),
        Verb::Reset => connection::reset(context, out),
        Verb::ClientKill => return kill::kill(args, context, out),
        Verb::Info => report::info(args, context, out),
        Verb::Time => report::time(context, out),
        Verb::ConfigGet => report::config_get(args, context, out),
        Verb::Dbsize => {
            reply::error(
                out,
                "ERR DBSIZE counts the keys of one server; ask each server of the pool",
            );
        }
        _ => match request.command.name.split('|').next() {
            Some("client") => client::answer(request, context, out),
            Some("command") => command_info::reply(args, out),
            Some("latency") => report::latency(request, out),
            Some("slowlog") => report::slowlog(request, out),
            Some("memory") => report::memory(request, out),
            _ => help(request, out),
        },
    }
    After::Continue
}

/// Answers a HELP subcommand from the table, and whatever else has no better
/// answer.
fn help(request: &Request, out: &mut Vec<u8>) {
    let container = request.command.name.split('|').next().unwrap_or_default();
    let lines = keyway_command::lookup(container.as_bytes()).map_or(&[][..], |c| c.docs.help);
    if request.command.last_name() != "help" || lines.is_empty() {
        let name = request.command.name.replace('|', " ").to_ascii_uppercase();
        return reply::error(out, &format!("ERR {name} is not supported by Keyway"));
    }
    reply::array(out, lines.len());
    for line in lines {
        reply::simple(out, line);
    }
}

fn integer_argument(text: &[u8], out: &mut Vec<u8>) -> Option<i64> {
    let value = keyway_resp::parse_integer(text);
    if value.is_none() {
        reply::error(out, "ERR value is not an integer or out of range");
    }
    value
}

#[cfg(test)]
mod tests;
