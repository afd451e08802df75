//! AUTH, and the check that HELLO shares with it.

use super::{LocalContext, SYNTAX, acl};
use keyway_command::Args;
use keyway_resp::reply;
use keyway_users::LoginFault;
use std::sync::Arc;

/// Whom a client is that gives a password alone.
const USER: &str = "default";

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const LIMITED: &str = "ERR too many logins of this user have failed from this address, and this one \
     was not looked at; try again in a second";
const NONE_CONFIGURED: &str = "ERR AUTH <password> called without any password configured for the \
     default user. Are you sure your configuration is correct?";

/// `AUTH [username] password`.
pub(super) fn auth(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let checked = match args.len() {
        2 if !context.users.takes_bare_password() => Err(NONE_CONFIGURED),
        2 => check(USER.as_bytes(), &args[1], "auth", context),
        3 => check(&args[1], &args[2], "auth", context),
        _ => Err(SYNTAX),
    };
    match checked {
        Ok(()) => reply::simple(out, "OK"),
        Err(text) => reply::error(out, text),
    }
}

/// Lets the client in when user and password are right. A wrong pair does not
/// put out a client that is in. Where no password is configured any is right,
/// as for Redis's `nopass` user.
///
/// # Errors
/// The text of the error reply.
pub(super) fn check(
    name: &[u8],
    password: &[u8],
    command: &str,
    context: &mut LocalContext,
) -> Result<(), &'static str> {
    let users = context.users;
    match users.log_in(name, password, &context.identity.addr, context.clock.now) {
        Ok(user) => {
            context.identity.admit(user, users);
            let name = user.name();
            context.clients.update(context.identity.id, |entry| entry.user = Arc::clone(name));
            Ok(())
        }
        Err(fault) => {
            acl::note_failed_login(context, name, command);
            Err(if fault == LoginFault::Limited { LIMITED } else { WRONG })
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::local::bench::Bench;
    use keyway_base::Time;

    #[test]
    fn only_the_right_password_lets_in() {
        let mut bench = Bench::with_password("sesame");
        for wrong in
            ["AUTH x", "AUTH sesam", "AUTH sesames", "AUTH Default sesame", "AUTH bob sesame"]
        {
            let text = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
            assert_eq!(bench.ask(wrong), text, "{wrong}");
            assert!(!bench.identity.authenticated);
        }
        assert_eq!(bench.ask("AUTH default sesame"), "+OK\r\n");
        assert!(bench.identity.authenticated);
        bench.ask("AUTH wrong");
        assert!(bench.identity.authenticated, "a failed AUTH puts nobody out");
    }

    #[test]
    fn after_too_many_failures_even_the_right_password_waits() {
        let mut bench = Bench::with_password("sesame");
        for _ in 0..10 {
            assert!(bench.ask("AUTH wrong").starts_with("-WRONGPASS "));
        }
        assert!(bench.ask("AUTH wrong").starts_with("-ERR too many logins"));
        assert!(bench.ask("AUTH sesame").starts_with("-ERR too many logins"));
        assert_eq!(bench.users.failed(), [0, 0, 10, 2]);
        bench.clock.now = Time(1_100_000_000);
        assert_eq!(bench.ask("AUTH sesame"), "+OK\r\n");
    }
}
