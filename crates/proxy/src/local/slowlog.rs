//! SLOWLOG: always empty, since no request is kept.

use keyway_command::{Request, Verb};
use keyway_resp::{parse_integer, reply};

/// Appends the reply to a SLOWLOG subcommand.
pub(super) fn answer(request: &Request, out: &mut Vec<u8>) {
    let args = &request.args;
    match request.command.verb {
        Verb::SlowlogLen => reply::integer(out, 0),
        Verb::SlowlogReset => reply::simple(out, "OK"),
        _ if args.len() > 3 => {
            let name = String::from_utf8_lossy(&args[1]);
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try SLOWLOG \
                 HELP."
            );
            reply::error(out, &text);
        }
        _ => match args.get(2).map(parse_integer) {
            None | Some(Some(-1..)) => reply::array(out, 0),
            Some(_) => reply::error(out, "ERR count should be greater than or equal to -1"),
        },
    }
}
