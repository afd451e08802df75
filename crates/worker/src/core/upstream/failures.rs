//! Log lines and error texts about lost or refused connections. A series of them is logged once,
//! however many links a server ends.

use crate::Upstream;
use crate::advice::{advice, advice_of_tls};
use crate::core::upstream::state::ConnectionFailures;
use crate::core::upstream::state::Mute;
use crate::core::{Connection, Plane};
use keyway_base::{BackendFault, ReplyBound};
use keyway_net::{Address, ConnectFault, TlsFault};
use keyway_proxy::LinkState;
use keyway_topology::ServerId;
use std::borrow::Cow;

/// Logs the first of a series as a warning, and the others at a lower level.
macro_rules! log_at {
    ($is_first:expr, $($field:tt)*) => {
        if $is_first {
            tracing::warn!($($field)*);
        } else {
            tracing::debug!($($field)*);
        }
    };
}
pub(in crate::core) use log_at;

impl Plane {
    /// Notes a server's error for a connection that is over, or that it sent none on one that never
    /// worked.
    pub(super) fn note_refusal(&mut self, connection: &Connection, fault: BackendFault) {
        // The server may allow to others what it refuses to a tracked client.
        if connection.role.is_some() || connection.link.has_answered() {
            return;
        }
        let is_refusal = matches!(fault, BackendFault::Handshake | BackendFault::NotReady);
        let said = if is_refusal { self.refusal_text(connection) } else { None };
        let (is_mute, now) = (self.ends_unanswered(connection, fault), self.clock.now);
        let failures = self.upstream.failures.get_mut(connection.id);
        let was_mute = failures.is_mute();
        failures.mute = match is_mute {
            true => failures.mute.after(connection.attempted, now),
            false => Mute::No,
        };
        let is_new = failures.is_mute() && !was_mute;
        if is_new || (said.is_some() && failures.refusal.is_none()) {
            // It deserves a line, even in a series that began with something else.
            failures.lost = 0;
        }
        failures.refusal = said.map(|said| (fault, said.trim_start_matches('-').to_owned()));
    }

    /// Returns whether a server that never answered has closed a plain connection after a request,
    /// like one that uses TLS.
    fn ends_unanswered(&self, connection: &Connection, fault: BackendFault) -> bool {
        let is_plain = self.plan.pools[usize::from(connection.server_id.pool)].kind.tls().is_none();
        let is_closed = matches!(fault, BackendFault::Closed | BackendFault::Protocol);
        let is_asked =
            connection.link.in_flight() > 0 || connection.link.state() != LinkState::Ready;
        let has_spoken =
            self.upstream.failures.get(connection.id).has_spoken || connection.link.has_answered();
        is_plain && is_closed && is_asked && connection.role.is_none() && !has_spoken
    }

    /// Notes that a connection to a server is established.
    pub(super) fn note_reached(&mut self, connection: &Connection) {
        self.upstream.failures.get_mut(connection.id).unreached = None;
    }

    /// Returns why a server cannot be connected to, if that is so.
    pub(in crate::core) fn unreached(&self, server: ServerId) -> Option<ConnectFault> {
        let id = self.plan.topology.id_of(server);
        self.upstream.failures.get(id).unreached
    }

    /// Discards what was known of the server at an index: another one is there.
    pub(in crate::core) fn forget_failures(&mut self, server: ServerId) {
        let id = self.plan.topology.id_of(server);
        *self.upstream.failures.get_mut(id) = ConnectionFailures::default();
    }

    /// Logs that a connection, or the attempt to open it, is over.
    pub(in crate::core) fn log_link_end(
        &mut self,
        connection: &Connection,
        state: LinkState,
        fault: BackendFault,
    ) {
        let failures = self.upstream.failures.get(connection.id);
        let (is_known, has_spoken) = (failures.lost > 0, failures.has_spoken);
        if fault == BackendFault::Connect && !is_known {
            let reason = match state {
                LinkState::Handshaking { .. } => "the handshake took longer than connect_timeout",
                _ if self.plan.pools[usize::from(connection.server_id.pool)]
                    .kind
                    .tls()
                    .is_none() =>
                {
                    "connecting took longer than connect_timeout"
                }
                _ if has_spoken => {
                    "connecting and the TLS handshake took longer than connect_timeout"
                }
                _ => {
                    "connecting and the TLS handshake took longer than connect_timeout: does the \
                     server speak TLS on this port?"
                }
            };
            self.log_cannot_connect(connection.server_id, reason);
        }
        let in_flight = connection.link.in_flight();
        if fault != BackendFault::Connect {
            let is_memcached = self.link_options(connection.server_id.pool).memcached.is_some();
            let what = match fault {
                BackendFault::Protocol if is_memcached => {
                    "the backend answered something that is not memcached's protocol"
                }
                BackendFault::Handshake
                    if self.link_options(connection.server_id.pool).password.is_none() =>
                {
                    "the backend wants a password: write password, and user, in the pool's table"
                }
                BackendFault::Handshake if is_memcached => "the backend refused the password",
                BackendFault::Closed if self.upstream.failures.get(connection.id).is_mute() => {
                    "the backend closed the connection before its first answer: does it speak TLS \
                     on this port?"
                }
                BackendFault::Closed => "the backend closed the connection",
                BackendFault::Timeout => "the backend has been silent for too long",
                BackendFault::Protocol => "the backend answered something that is not RESP",
                BackendFault::Handshake => {
                    "the backend refused the password, the database or client-side caching"
                }
                BackendFault::NotReady => "the backend is not ready yet",
                BackendFault::Full => "the backend has as many connections as it takes",
                BackendFault::Reply(ReplyBound::Len) => "a reply is longer than reply_len_max",
                BackendFault::Reply(ReplyBound::Depth) => {
                    "a reply is nested deeper than reply_depth_max"
                }
                BackendFault::Connect | BackendFault::CircuitOpen | BackendFault::Ejected => {
                    "connecting failed"
                }
            };
            let is_first = self.upstream.failures.get_mut(connection.id).is_first();
            let said = self.refusal_text(connection);
            let name = self.name_backend(connection.server_id);
            log_at!(
                is_first,
                pool = name.pool,
                backend = &*name.label,
                address = name.address,
                in_flight,
                said,
                "connection lost: {what}"
            );
        }
    }

    /// Notes the text of why a connection could not be opened.
    #[cold]
    pub(super) fn note_connect_fault(
        &mut self,
        server: ServerId,
        fault: ConnectFault,
    ) -> Cow<'static, str> {
        let id = self.plan.topology.id_of(server);
        let failures = self.upstream.failures.get_mut(id);
        let ConnectFault::Tls(fault) = fault else {
            (failures.tls, failures.unreached) = (None, Some(fault));
            return fault.text().into();
        };
        failures.tls = Some(fault);
        if failures.tls_told.replace(fault) != Some(fault) {
            // It deserves a line, even in a series that began with something else.
            failures.lost = 0;
        }
        self.tls_words(server, fault).into()
    }

    /// Handles a connection that was not secured, or not after all.
    #[cold]
    pub(in crate::core) fn on_tls_fault(&mut self, server: ServerId, fault: TlsFault) {
        let reason = self.note_connect_fault(server, ConnectFault::Tls(fault));
        self.log_cannot_connect(server, &reason);
    }

    /// Returns why TLS failed, for the log and for clients.
    #[cold]
    fn tls_words(&self, server: ServerId, fault: TlsFault) -> String {
        let kind = &self.plan.pools[usize::from(server.pool)].kind;
        let address = kind.address(usize::from(server.server));
        let why = match (kind.tls(), &address) {
            (Some(tls), Some(Address::Tcp { host, .. })) => tls.explain(fault, host),
            _ => fault.text().to_owned(),
        };
        match address {
            Some(address) => format!("TLS handshake with {address} failed: {why}"),
            None => format!("TLS handshake failed: {why}"),
        }
    }

    /// Logs why a connection could not be opened.
    #[cold]
    pub(super) fn log_cannot_connect(&mut self, server: ServerId, reason: &str) {
        let id = self.plan.topology.id_of(server);
        let is_first = self.upstream.failures.get_mut(id).is_first();
        let name = self.name_backend(server);
        log_at!(
            is_first,
            pool = name.pool,
            backend = &*name.label,
            address = name.address,
            reason,
            "cannot connect; trying again"
        );
    }

    /// Returns the backend's error for the handshake, in a form for the log and for clients: in one
    /// line of bounded length, and without the password.
    fn refusal_text(&self, connection: &Connection) -> Option<String> {
        const LEN_MAX: usize = 200;
        const SECRET_LEN: usize = 8;
        let line = connection.link.handshake_refusal();
        if line.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(line);
        let Upstream { options, .. } =
            self.plan.pools[usize::from(connection.server_id.pool)].kind.upstream()?;
        // A server that repeats what it was sent may truncate it.
        let is_secret = |password: &String| {
            let begin: String = password.chars().take(SECRET_LEN).collect();
            !begin.is_empty() && text.contains(&*begin)
        };
        if options.password.as_ref().is_some_and(is_secret) {
            return Some("(left out: it repeats the password)".to_owned());
        }
        let shown = |letter: char| if letter.is_control() { '?' } else { letter };
        Some(text.chars().take(LEN_MAX).map(shown).collect())
    }

    /// Returns a backend's name and address, for an error text, and the text with which it refuses
    /// connections, if it does.
    #[cold]
    pub(in crate::core) fn describe_backend(&self, server: ServerId) -> String {
        let kind = &self.plan.pools[usize::from(server.pool)].kind;
        if kind.upstream().is_none() {
            return "store".to_owned();
        }
        let label = kind.label(usize::from(server.server));
        let address = kind.address(usize::from(server.server));
        let address = address.map_or_else(|| label.clone(), |address| address.to_string());
        let id = self.plan.topology.id_of(server);
        let name = if label == address { address } else { format!("{label} ({address})") };
        if let Some(waited) = self.cluster.waited {
            return format!("{name} ({})", Self::waited_words(waited));
        }
        let failures = self.upstream.failures.get(id);
        let pool = &self.plan.pools[usize::from(server.pool)].name;
        if failures.refusal.is_none()
            && let Some(said) = self.foreign_words(server)
        {
            return format!("{name} ({said})");
        }
        match (&failures.refusal, failures.tls) {
            (Some((_, said)), _) => match advice(pool, said) {
                Some(advice) => format!("{name} (it said '{said}'; {advice})"),
                None => format!("{name} (it said '{said}')"),
            },
            (None, None) if failures.is_mute() => {
                format!("{name} (it ends connections before it answers; {})", advice_of_tls(pool))
            }
            (None, Some(fault)) => {
                format!("{name} ({})", self.tls_words(server, fault))
            }
            (None, None) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;

    #[test]
    fn connections_that_end_together_do_not_tell_of_tls_and_one_more_does() {
        let first = Mute::No.after(Time(1), Time(10));
        assert_eq!(first, Mute::Once(Time(10)));
        // It was begun before the first one had ended, like all connections when a server dies.
        assert_eq!(first.after(Time(5), Time(11)), first);
        assert_eq!(first.after(Time(12), Time(13)), Mute::Always);
        assert_eq!(Mute::Always.after(Time(1), Time(14)), Mute::Always);
    }
}
