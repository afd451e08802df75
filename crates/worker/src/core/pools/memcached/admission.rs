//! Clients that must say a password first: with SASL PLAIN, or, on a text
//! connection, as memcached's `--auth-file` has it: the value of a first set
//! is `USER PASSWORD`.

use crate::core::Plane;
use crate::core::pools::memcached::state::Call;
use keyway_base::Fault;
use keyway_memcache::{Dialect, ErrorKind, Item, Outcome, Verb, sasl_plain};
use std::sync::Arc;

/// The name and the password that a request logs in with, if it does.
pub(super) fn credentials<'a>(call: &Call<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let (request, bytes) = (call.request, call.bytes);
    let value = request.value.of(bytes);
    match request.head.verb {
        Verb::SaslStart if call.asker().key == b"PLAIN" => {
            sasl_plain(value).map(|plain| (plain.user, plain.password))
        }
        Verb::Set
            if request.head.dialect != Dialect::Binary && !call.session.identity.authenticated =>
        {
            let mut words = value.splitn(2, |&byte| byte == b' ');
            Some((words.next().unwrap_or_default(), words.next().unwrap_or_default()))
        }
        _ => None,
    }
}

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
        match self.log_in_memcached(call) {
            true => {
                self.tell_memcached(call, &Outcome::Text(b"Authenticated"));
            }
            false => self.reject(call, ErrorKind::Auth, "Auth failure."),
        }
    }

    fn authenticate_text(&mut self, call: &mut Call<'_>) {
        if self.log_in_memcached(call) {
            self.tell_memcached(call, &Outcome::Done(Item::default()));
        } else {
            self.reject(call, ErrorKind::Client, "authentication failure");
        }
    }

    fn log_in_memcached(&mut self, call: &mut Call<'_>) -> bool {
        let Some((name, password)) = credentials(call) else { return false };
        let users = &self.plan.listeners[usize::from(call.session.listener)].users;
        let identity = &mut call.session.identity;
        match users.log_in_memcached(name, password, &identity.addr, self.clock.now) {
            Ok(user) => {
                identity.admit(user, users);
                let name = user.name();
                self.plan.clients.update(identity.id, |entry| entry.user = Arc::clone(name));
                self.note_stranger(call.session);
                true
            }
            Err(_) => {
                self.tell_failed_login(call.session);
                false
            }
        }
    }

    #[cold]
    fn reject(&mut self, call: &mut Call<'_>, kind: ErrorKind, text: &str) {
        self.cells.pool(usize::from(call.session.pool)).refused.of(Fault::Denied).add(1);
        self.tell_memcached(call, &Outcome::Error { kind, text: text.as_bytes() });
    }
}
