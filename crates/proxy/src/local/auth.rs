//! AUTH, and the check that HELLO shares with it.

use super::{LocalContext, SYNTAX};
use keyway_command::Args;
use keyway_resp::reply;
use subtle::ConstantTimeEq;

/// The only user there is.
pub(super) const USER: &str = "default";

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NONE_CONFIGURED: &str = "ERR AUTH <password> called without any password configured for the \
     default user. Are you sure your configuration is correct?";

/// `AUTH [username] password`.
pub(super) fn auth(args: &Args, context: &mut LocalContext, out: &mut Vec<u8>) {
    let checked = match args.len() {
        2 => match context.password {
            None => Err(NONE_CONFIGURED),
            Some(_) => check(USER.as_bytes(), &args[1], context),
        },
        3 => check(&args[1], &args[2], context),
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
    user: &[u8],
    given: &[u8],
    context: &mut LocalContext,
) -> Result<(), &'static str> {
    let is_right = context.password.is_none_or(|password| is_password(password, given));
    if user != USER.as_bytes() || !is_right {
        return Err(WRONG);
    }
    context.identity.authenticated = true;
    Ok(())
}

/// Whether a client has given the right password. The time this takes tells the
/// password's length, never its bytes.
pub fn is_password(right: &str, given: &[u8]) -> bool {
    right.as_bytes().ct_eq(given).into()
}

#[cfg(test)]
mod tests {
    use crate::local::bench::Bench;

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
}
