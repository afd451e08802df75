//! Single commands: PING, SELECT, TIME, DBSIZE, every HELP, and the refusal of all others.

use super::{LocalContext, NOT_AN_INTEGER};
use keyway_base::Clock;
use keyway_command::{Args, Handling, Refusal, Request, lookup};
use keyway_resp::{parse_integer, reply};

/// Answers `PING [message]`.
pub(super) fn ping(args: &Args, out: &mut Vec<u8>) {
    match args.len() {
        1 => reply::simple(out, "PONG"),
        2 => reply::bulk(out, &args[1]),
        _ => reply::error(out, "ERR wrong number of arguments for 'ping' command"),
    }
}

/// Answers `SELECT index`.
pub(super) fn select(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let Some(index) = parse_integer(&args[1]) else {
        return reply::error(out, NOT_AN_INTEGER);
    };
    if i32::try_from(index).is_err() {
        let (min, max) = (i32::MIN, i32::MAX);
        let text = format!("ERR value is out of range, value must between {min} and {max}");
        return reply::error(out, &text);
    }
    let Some(database) = u32::try_from(index).ok().filter(|&index| index < context.databases)
    else {
        return reply::error(out, "ERR DB index is out of range");
    };
    // The registry is locked only if something changes: some clients select before every command.
    if context.identity.database != database {
        context.identity.database = database;
        context.clients.update(context.identity.id, |entry| entry.database = database);
    }
    reply::simple(out, "OK");
}

/// Answers `TIME`: seconds and the microseconds within them.
pub(super) fn time(clock: Clock, out: &mut Vec<u8>) {
    reply::array(out, 2);
    reply::bulk(out, (clock.unix_micros / 1_000_000).to_string().as_bytes());
    reply::bulk(out, (clock.unix_micros % 1_000_000).to_string().as_bytes());
}

/// Answers the HELP subcommand of a container with the lines of the command table.
pub(super) fn help(request: &Request, out: &mut Vec<u8>) {
    let container = request.command.name.split('|').next().unwrap_or_default();
    let lines = lookup(container.as_bytes()).map_or(&[][..], |command| command.docs.help);
    reply::array(out, lines.len());
    lines.iter().for_each(|line| reply::simple(out, line));
}

/// Refuses a command that is not answered here. A container without a subcommand arrives only if
/// its arity was not checked.
pub(super) fn refuse(request: &Request, out: &mut Vec<u8>) {
    match request.command.handling {
        Handling::Refused(reason) => {
            let name = request.command.name.replace('|', " ");
            reply::error(out, &format!("ERR '{name}' is refused: {reason}"));
        }
        Handling::Local => Refusal::Arity(request.command).write_error(request.args, out),
        Handling::Forward
        | Handling::Split(_)
        | Handling::Everywhere(_)
        | Handling::Across(_)
        | Handling::Block
        | Handling::Transaction
        | Handling::PubSub
        | Handling::Tracking => {
            let name = request.command.name.replace('|', " ");
            reply::error(out, &format!("ERR '{name}' needs a server or the embedded store"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::local::bench::Bench;

    #[test]
    fn select_knows_its_databases() {
        let mut bench = Bench::new();
        assert_eq!(bench.ask("SELECT 15"), "+OK\r\n");
        assert_eq!(bench.identity.database, 15);
        for outside in ["SELECT 16", "SELECT -1"] {
            assert_eq!(bench.ask(outside), "-ERR DB index is out of range\r\n");
        }
        assert_eq!(bench.ask("SELECT x"), "-ERR value is not an integer or out of range\r\n");
        assert_eq!(bench.identity.database, 15);
        assert!(bench.ask("CLIENT INFO").contains(" db=15 "));
    }

    #[test]
    fn time_is_the_wall_clock_of_the_turn() {
        let mut bench = Bench::new();
        bench.clock.unix_micros = 1_700_000_000_000_042;
        assert_eq!(bench.ask("TIME"), "*2\r\n$10\r\n1700000000\r\n$2\r\n42\r\n");
    }

    #[test]
    fn what_is_refused_says_why() {
        let mut bench = Bench::new();
        for line in ["CONFIG SET maxmemory 1", "ROLE"] {
            let text = bench.ask(line);
            assert!(text.starts_with("-ERR '") && text.contains("' is refused: "), "{text}");
        }
    }
}
