//! What the log and the clients are told of connections that are lost, or
//! refused in words: once for each row of them, however many links of however
//! many clients a server ends.

use super::{LinkSlot, Plane};
use crate::PoolKind;
use keyway_base::{BackendFault, ReplyBound};
use keyway_net::{Address, ConnectFault, TlsFault};
use keyway_proxy::LinkState;
use std::borrow::Cow;

/// What a worker knows of the failures of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// Connections lost, or not made, since the server last answered.
    pub(super) lost: u32,
    /// How, and in which words, it refused the latest connection, if it did.
    pub(super) refusal: Option<(BackendFault, String)>,
    /// It closed the latest connection, a plain one, before it had answered.
    pub(super) is_mute: bool,
    /// Why the latest connection was not secured, if that is what it failed for.
    pub(super) tls: Option<TlsFault>,
    /// What the log was told last of that.
    tls_told: Option<TlsFault>,
}

impl Trouble {
    /// Notes one more; whether it is the first of a row.
    pub(super) fn is_first(&mut self) -> bool {
        self.lost = self.lost.saturating_add(1);
        self.lost == 1
    }
}

/// Logs the first of a row as a warning, and the rest for those who look close.
macro_rules! log_at {
    ($is_first:expr, $($field:tt)*) => {
        if $is_first {
            tracing::warn!($($field)*);
        } else {
            tracing::debug!($($field)*);
        }
    };
}
pub(super) use log_at;

impl Plane {
    /// Notes what the server said against a connection that is over, or that it
    /// said nothing against one that never worked.
    pub(super) fn note_refusal(&mut self, slot: &LinkSlot, fault: BackendFault) {
        // What it refuses to a tracked client it may grant to others.
        if slot.role.is_some() || slot.link.has_answered() {
            return;
        }
        let is_refusal = matches!(fault, BackendFault::Handshake | BackendFault::NotReady);
        let said = if is_refusal { self.refusal_text(slot) } else { None };
        let is_mute = self.is_mute(slot, fault);
        let trouble = &mut self.troubles[slot.id.index()];
        if said.is_some() && trouble.refusal.is_none() {
            // Worth a line, also in a row that began with something else.
            trouble.lost = 0;
        }
        trouble.is_mute = is_mute;
        trouble.refusal = said.map(|said| (fault, said.trim_start_matches('-').to_owned()));
    }

    /// Whether a server has closed a plain connection before its first answer, as one does that
    /// speaks TLS.
    fn is_mute(&self, slot: &LinkSlot, fault: BackendFault) -> bool {
        let is_plain = self.plan.pools[usize::from(slot.pool)].kind.tls().is_none();
        let is_closed = matches!(fault, BackendFault::Closed | BackendFault::Protocol);
        is_plain && is_closed && slot.role.is_none() && !slot.link.has_answered()
    }

    /// Tells the log that a connection, or the attempt to make it, is over.
    pub(super) fn log_link_end(&mut self, slot: &LinkSlot, state: LinkState, fault: BackendFault) {
        let is_known = self.troubles[slot.id.index()].lost > 0;
        if fault == BackendFault::Connect && !is_known {
            let reason = match state {
                LinkState::Handshaking { .. } => "the handshake took longer than connect_timeout",
                _ if self.plan.pools[usize::from(slot.pool)].kind.tls().is_some() => {
                    "connecting and the TLS handshake took longer than connect_timeout: does the \
                     server speak TLS on this port?"
                }
                _ => "connecting took longer than connect_timeout",
            };
            self.log_cannot_connect((slot.pool, slot.backend), reason);
        }
        let in_flight = slot.link.in_flight();
        if fault != BackendFault::Connect {
            let is_memcached = self.link_options(slot.pool).memcached.is_some();
            let what = match fault {
                BackendFault::Protocol if is_memcached => {
                    "the backend answered something that is not memcached's protocol"
                }
                BackendFault::Handshake if self.link_options(slot.pool).password.is_none() => {
                    "the backend wants a password: write password, and user, in the pool's table"
                }
                BackendFault::Handshake if is_memcached => "the backend refused the password",
                BackendFault::Closed if self.is_mute(slot, fault) => {
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
                BackendFault::Connect | BackendFault::CircuitOpen => "connecting failed",
            };
            let is_first = self.troubles[slot.id.index()].is_first();
            let said = self.refusal_text(slot);
            let name = self.name_backend(slot.pool, slot.backend);
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

    /// Notes why a connection could not be made; in words.
    #[cold]
    pub(super) fn note_connect_fault(
        &mut self,
        (pool, backend): (u16, u16),
        fault: ConnectFault,
    ) -> Cow<'static, str> {
        let id = self.plan.topology.backend_id(usize::from(pool), usize::from(backend));
        let trouble = &mut self.troubles[id.index()];
        let ConnectFault::Tls(fault) = fault else {
            trouble.tls = None;
            return fault.text().into();
        };
        trouble.tls = Some(fault);
        if trouble.tls_told.replace(fault) != Some(fault) {
            // Worth a line, also in a row that began with something else.
            trouble.lost = 0;
        }
        self.tls_words((pool, backend), fault).into()
    }

    /// A connection was not secured, or not after all.
    #[cold]
    pub(super) fn on_tls_fault(&mut self, place: (u16, u16), fault: TlsFault) {
        let reason = self.note_connect_fault(place, ConnectFault::Tls(fault));
        self.log_cannot_connect(place, &reason);
    }

    /// Why TLS did not come about, for the log and for clients.
    #[cold]
    pub(super) fn tls_words(&self, (pool, backend): (u16, u16), fault: TlsFault) -> String {
        let kind = &self.plan.pools[usize::from(pool)].kind;
        let address = kind.address(usize::from(backend));
        let why = match (kind.tls(), &address) {
            (Some(tls), Some(Address::Tcp { host, .. })) => tls.explain(fault, host),
            _ => fault.text().to_owned(),
        };
        match address {
            Some(address) => format!("TLS handshake with {address} failed: {why}"),
            None => format!("TLS handshake failed: {why}"),
        }
    }

    /// Tells the log why a connection could not be made.
    #[cold]
    pub(super) fn log_cannot_connect(&mut self, (pool, backend): (u16, u16), reason: &str) {
        let id = self.plan.topology.backend_id(usize::from(pool), usize::from(backend));
        let is_first = self.troubles[id.index()].is_first();
        let name = self.name_backend(pool, backend);
        log_at!(
            is_first,
            pool = name.pool,
            backend = &*name.label,
            address = name.address,
            reason,
            "cannot connect; trying again"
        );
    }

    /// What the backend said against the handshake, fit for the log and for
    /// clients: in one line of bounded length, and without the password.
    fn refusal_text(&self, slot: &LinkSlot) -> Option<String> {
        const LEN_MAX: usize = 200;
        const SECRET_LEN: usize = 8;
        let line = slot.link.handshake_refusal();
        if line.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(line);
        let PoolKind::Sharded { options, .. } = &self.plan.pools[slot.pool as usize].kind else {
            return None;
        };
        // A server that repeats what it was sent may cut it off.
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
}
