//! Clients that must say a password first: with SASL PLAIN, or, on a text
//! connection, as memcached's `--auth-file` has it: the value of a first set
//! is `USER PASSWORD`.

use super::{Call, Plane};
use keyway_base::Fault;
use keyway_memcache::{Dialect, ErrorKind, Item, Outcome, Verb, sasl_plain};
use keyway_proxy::local::is_password;

impl Plane {
    /// Answers a client that has not said its password yet.
    #[cold]
    pub(super) fn admit_memcached(&mut self, call: &mut Call<'_>) {
        self.count_memcached(call);
        match call.head().verb {
            Verb::Quit => call.session.closing = true,
            Verb::SaslList => self.tell_memcached(call, &Outcome::Text(b"PLAIN")),
            Verb::SaslStart => self.authenticate_sasl(call),
            Verb::Version if call.head().dialect == Dialect::Binary => self.tell_version(call),
            Verb::Set if call.head().dialect != Dialect::Binary => self.authenticate_text(call),
            _ if call.head().dialect == Dialect::Binary => {
                self.reject(call, ErrorKind::Auth, "Auth failure.")
            }
            _ => self.reject(call, ErrorKind::Client, "unauthenticated"),
        }
    }

    /// Answers SASL, of a client that is admitted already as well.
    pub(super) fn authenticate_sasl(&mut self, call: &mut Call<'_>) {
        let way = call.asker().key.to_vec();
        let value = call.request.value.of(call.bytes);
        let is_right = way == b"PLAIN"
            && sasl_plain(value).is_some_and(|plain| self.is_right_password(call, plain.password));
        match is_right {
            true => {
                call.session.identity.authenticated = true;
                self.tell_memcached(call, &Outcome::Text(b"Authenticated"));
            }
            false => self.reject(call, ErrorKind::Auth, "Auth failure."),
        }
    }

    fn authenticate_text(&mut self, call: &mut Call<'_>) {
        let value = call.request.value.of(call.bytes);
        let password = value.splitn(2, |&byte| byte == b' ').nth(1).unwrap_or_default();
        if self.is_right_password(call, password) {
            call.session.identity.authenticated = true;
            self.tell_memcached(call, &Outcome::Done(Item::default()));
        } else {
            self.reject(call, ErrorKind::Client, "authentication failure");
        }
    }

    fn is_right_password(&self, call: &Call<'_>, password: &[u8]) -> bool {
        let listener = &self.plan.listeners[usize::from(call.session.listener)];
        listener.password.as_deref().is_none_or(|right| is_password(right, password))
    }

    #[cold]
    fn reject(&mut self, call: &mut Call<'_>, kind: ErrorKind, text: &str) {
        self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
        self.tell_memcached(call, &Outcome::Error { kind, text: text.as_bytes() });
    }
}
