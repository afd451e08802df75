//! The access rules of a listener, and the bytes that clients send before their first request.

mod header;

pub use header::{Announced, HEADER_LEN_MAX, Header, HeaderFault, parse_header};

use crate::Peer;
use keyway_base::Network;
use keyway_tls::{ServerTls, TlsFault};
use std::time::Duration;

/// The access rules of a listener. A listener without any rules has no filter.
#[derive(Clone, Debug)]
pub struct AcceptFilter {
    /// Addresses from which clients are accepted; empty: all.
    pub allow: Vec<Network>,
    /// Addresses from which clients are refused even if they are in `allow`.
    pub deny: Vec<Network>,
    /// The proxies that announce their clients' addresses by the PROXY protocol; any proxy if the
    /// list is empty. `None`: clients connect directly.
    pub proxies: Option<Vec<Network>>,
    /// TLS settings of connections.
    pub tls: Option<ServerTls>,
    /// Longest time for all of that.
    pub timeout: Duration,
    /// Most clients that may be arriving at once, for each worker.
    pub arrivals_max: usize,
}

impl AcceptFilter {
    /// Returns whether clients must send something before their first request.
    pub fn asks(&self) -> bool {
        self.proxies.is_some() || self.tls.is_some()
    }

    /// Returns whether a client at this address may connect.
    pub fn admits(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Tcp(addr) => {
                let has = |list: &[Network]| list.iter().any(|one| one.contains(addr.ip()));
                !has(&self.deny) && (self.allow.is_empty() || has(&self.allow))
            }
            Peer::Unix | Peer::Shm => self.allow.is_empty(),
        }
    }

    /// Returns whether a peer at this address may announce whose connections it carries.
    pub fn believes(&self, peer: &Peer) -> bool {
        match (&self.proxies, peer) {
            (Some(proxies), Peer::Tcp(addr)) => {
                proxies.is_empty() || proxies.iter().any(|one| one.contains(addr.ip()))
            }
            _ => true,
        }
    }
}

/// The reason why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Its address is not allowed.
    NotAllowed,
    /// Its address is not that of a proxy.
    NotProxy,
    /// It does not announce whose connection it carries.
    Header(HeaderFault),
    /// The TLS handshake failed.
    Tls(TlsFault),
    /// It took too long.
    Late,
    /// Other clients arrived meanwhile, and this one had been waited for longest.
    Crowded,
    /// It closed the connection before it sent anything.
    Gone,
    /// The most clients are connected already.
    Full,
    /// The system has no memory to watch its connection.
    Unwatched,
}

/// The metric labels of the reasons, by [`Away::index`].
pub const AWAY_LABELS: [&str; 18] = [
    "not_allowed",
    "not_proxy",
    "proxy_header",
    "timeout",
    "crowded",
    "gone",
    "clients_max",
    "not_tls",
    "no_certificate",
    "unknown_issuer",
    "expired",
    "bad_certificate",
    "version",
    "refused_ours",
    "closed",
    "broken",
    "unwatched",
    "revoked",
];

impl Away {
    /// Returns its index in [`AWAY_LABELS`].
    pub fn index(self) -> usize {
        match self {
            Away::NotAllowed => 0,
            Away::NotProxy => 1,
            Away::Header(_) => 2,
            Away::Late => 3,
            Away::Crowded => 4,
            Away::Gone => 5,
            Away::Full => 6,
            Away::Unwatched => 16,
            Away::Tls(fault) => match fault {
                TlsFault::NotTls => 7,
                TlsFault::NoCertificate | TlsFault::NoIdentity => 8,
                TlsFault::UnknownIssuer => 9,
                TlsFault::Expired | TlsFault::NotYetValid => 10,
                TlsFault::Revoked => 17,
                TlsFault::WrongName
                | TlsFault::Nameless
                | TlsFault::IsAuthority
                | TlsFault::WrongPurpose
                | TlsFault::BadCertificate => 11,
                TlsFault::NoCommonVersion | TlsFault::NothingInCommon => 12,
                TlsFault::RefusedIdentity(_) | TlsFault::UnrecognisedName => 13,
                TlsFault::Closed => 14,
                TlsFault::Alert(_) | TlsFault::Broken => 15,
            },
        }
    }

    /// Returns its text for logs.
    pub fn text(self) -> &'static str {
        match self {
            Away::NotAllowed => "its address is not allowed by `allow` and `deny`",
            Away::NotProxy => "it is none of the proxies of `proxy_from`",
            Away::Header(fault) => fault.text(),
            Away::Late => "it took longer than handshake_timeout",
            Away::Crowded => {
                "it kept us waiting longest of more than handshakes_max clients that come in"
            }
            Away::Gone => "it closed the connection before it said anything",
            Away::Full => "there are clients_max clients already",
            Away::Unwatched => {
                "the system does not watch one more connection: memory, or \
                 fs.epoll.max_user_watches, is used up"
            }
            Away::Tls(fault) => fault.text_of_client(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(allow: &[&str], deny: &[&str]) -> AcceptFilter {
        let read = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        AcceptFilter {
            allow: read(allow),
            deny: read(deny),
            proxies: None,
            tls: None,
            timeout: Duration::from_secs(1),
            arrivals_max: 1,
        }
    }

    #[test]
    fn who_is_denied_stays_out_and_who_is_not_allowed_too() {
        let peer = |text: &str| Peer::Tcp(text.parse().unwrap());
        let gate_of_some = filter(&["10.0.0.0/8", "::1"], &["10.1.0.0/16"]);
        for (addr, is_in) in [
            ("10.2.0.1:1", true),
            ("10.1.0.1:1", false),
            ("11.0.0.1:1", false),
            ("[::1]:1", true),
            ("[::ffff:10.2.0.1]:1", true),
            ("[::ffff:10.1.0.1]:1", false),
        ] {
            assert_eq!(gate_of_some.admits(&peer(addr)), is_in, "{addr}");
        }
        assert!(!gate_of_some.admits(&Peer::Unix));
        let all_but = filter(&[], &["10.1.0.0/16"]);
        assert!(all_but.admits(&peer("8.8.8.8:1")) && all_but.admits(&Peer::Unix));
        assert!(!all_but.admits(&peer("10.1.2.3:1")));
    }
}
