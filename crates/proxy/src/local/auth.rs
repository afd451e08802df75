//! AUTH, and the check that HELLO shares with it.

use super::{LocalContext, SYNTAX, acl};
use keyway_command::{Args, Request, Verb};
use keyway_resp::reply;
use keyway_users::LoginFault;
use std::sync::Arc;

/// The user of a client that gives only a password.
const USER: &str = "default";

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const LIMITED: &str = "ERR too many logins of this user have failed from this address, or are being \
     looked at, and this one was not; try again in a second";
const NONE_CONFIGURED: &str = "ERR AUTH <password> called without any password configured for the \
     default user. Are you sure your configuration is correct?";

/// Returns the name and the password with which a request logs in, if it does.
pub fn credentials<'a>(request: &Request<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let args = request.args;
    match (request.command.verb, args.len()) {
        (Verb::Auth, 2) => Some((USER.as_bytes(), args.get(1)?)),
        (Verb::Auth, 3) => Some((args.get(1)?, args.get(2)?)),
        (Verb::Hello, _) => {
            let mut at = 2;
            while let Some(word) = args.get(at) {
                match word {
                    _ if word.eq_ignore_ascii_case(b"auth") => {
                        return Some((args.get(at + 1)?, args.get(at + 2)?));
                    }
                    _ if word.eq_ignore_ascii_case(b"setname") => at += 2,
                    _ => return None,
                }
            }
            None
        }
        _ => None,
    }
}

/// Answers `AUTH [username] password`.
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

/// Logs the client in if user and password are right. A wrong pair does not log out a client that
/// is logged in. If no password is configured, any is right, as for Redis's `nopass` user.
///
/// # Errors
/// Returns the text of the error reply.
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
    fn what_a_request_logs_in_with_is_found() {
        let found = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let buf = words.concat();
            let mut end = 0;
            let range = |word: &&str| {
                end += word.len();
                keyway_base::ByteRange::new(end - word.len(), end)
            };
            let ranges: Vec<_> = words.iter().map(range).collect();
            let args = keyway_command::Args::new(buf.as_bytes(), &ranges);
            let request = keyway_command::Request::resolve(args).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            super::credentials(&request).map(|(name, password)| text(name) + "/" + &text(password))
        };
        let a_b = Some("a/b".to_owned());
        assert_eq!(found("AUTH b").as_deref(), Some("default/b"));
        assert_eq!(found("AUTH a b"), a_b);
        assert_eq!(found("HELLO 3 AUTH a b"), a_b);
        assert_eq!(found("HELLO 3 SETNAME auth auth a b"), a_b);
        for none in
            ["HELLO", "HELLO 3", "HELLO 3 AUTH a", "HELLO 3 SETNAME x", "GET a", "AUTH a b c"]
        {
            assert_eq!(found(none), None, "{none}");
        }
    }

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
        for number in 0..10 {
            let line = format!("AUTH wrong{number}");
            assert!(bench.ask(&line).starts_with("-WRONGPASS "));
        }
        assert!(bench.ask("AUTH wrong").starts_with("-ERR too many logins"));
        assert!(bench.ask("AUTH sesame").starts_with("-ERR too many logins"));
        assert_eq!(bench.users.failed(), [0, 0, 10, 2]);
        bench.clock.now = Time(1_100_000_000);
        assert_eq!(bench.ask("AUTH sesame"), "+OK\r\n");
    }

    #[test]
    fn a_password_that_is_wrong_again_shuts_nobody_out() {
        let mut bench = Bench::with_password("sesame");
        for _ in 0..100 {
            assert!(bench.ask("AUTH old").starts_with("-WRONGPASS "));
        }
        assert_eq!(bench.ask("AUTH sesame"), "+OK\r\n");
    }

    #[test]
    fn what_is_answered_tells_nothing_of_who_there_is() {
        let mut bench = Bench::with_password("sesame");
        for number in 0..12 {
            let ask = |bench: &mut Bench, name: &str| bench.ask(&format!("AUTH {name} x{number}"));
            let known = ask(&mut bench, "default");
            assert_eq!(ask(&mut bench, "nobody"), known);
            // These users have not been tried yet.
            assert!(ask(&mut bench, &format!("none{number}")).starts_with("-WRONGPASS "));
        }
    }
}
