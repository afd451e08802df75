//! Access rules of the admin listener.
//!
//! Without a token, any client that can connect may read. It may also make changes if it sends a
//! header that no page in a browser can send to another origin. But a page can name any host, and
//! make that name resolve to this machine later (DNS rebinding). So requests without a token must
//! name an address, or `localhost`, and a request with signs of a page changes nothing.

use crate::problem::Problem;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{StatusCode, Uri};
use keyway_users::Digest;
use parking_lot::RwLock;
use std::net::IpAddr;
use std::sync::Arc;

/// The header that a change must have, with the value 1. No form and no page of another origin can
/// send it.
pub const CHANGE_HEADER: &str = "keyway-change";

/// Longest token that is checked, in bytes. Hashing a longer one would cost its sender nothing.
const TOKEN_LEN_MAX: usize = 4 << 10;

/// The access rules. Clones of one another use the same token.
#[derive(Clone, Debug, Default)]
pub struct Access {
    token: Arc<RwLock<Option<Digest>>>,
    has_certificates: bool,
}

impl Access {
    /// Creates rules that admit clients that know `token` (of which a digest is kept), or any
    /// client without a token.
    pub fn new(token: Option<&str>) -> Self {
        let access = Self::default();
        access.set_token(token);
        access
    }

    /// Requires `token` from the next request on, or no token.
    pub fn set_token(&self, token: Option<&str>) {
        *self.token.write() = token.map(|token| Digest::of(token.as_bytes()));
    }

    /// Returns the rules for a listener where each client has shown a certificate.
    #[must_use]
    pub fn with_certificates(mut self) -> Self {
        self.has_certificates = true;
        self
    }

    /// Returns whether requests must have a token.
    pub fn has_token(&self) -> bool {
        self.token.read().is_some()
    }

    /// Checks whether a request may be answered at all.
    pub(crate) fn check(&self, kind: Kind, asked: &RequestParts<'_>) -> Result<(), Problem> {
        if kind == Kind::Probe {
            return Ok(());
        }
        match &*self.token.read() {
            Some(digest) => check_token(digest, asked.headers)?,
            None if self.has_certificates || kind == Kind::Read => {}
            None => check_host(asked)?,
        }
        if matches!(kind, Kind::Change | Kind::ApiChange) {
            check_no_page(asked.headers)?;
        }
        let says_so = || asked.headers.get(CHANGE_HEADER).is_some_and(|value| value == "1");
        if kind == Kind::ApiChange && !says_so() {
            let what = format!("add the header \"{CHANGE_HEADER}: 1\": no page of a browser can");
            return Err(Problem::new(StatusCode::FORBIDDEN, what));
        }
        Ok(())
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A question whether the process serves. Probes seldom have secrets.
    Probe,
    /// A page to read, outside the API.
    Read,
    /// A change, outside the API.
    Change,
    /// A read by the API.
    ApiRead,
    /// A change by the API.
    ApiChange,
}

/// The parts of a request that tell about its sender.
pub(crate) struct RequestParts<'r> {
    pub(crate) headers: &'r HeaderMap,
    pub(crate) uri: &'r Uri,
}

fn check_token(digest: &Digest, headers: &HeaderMap) -> Result<(), Problem> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| token_of(value.as_bytes()));
    match shown {
        Some(token) if token.len() <= TOKEN_LEN_MAX && digest.is_of(token) => Ok(()),
        shown => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            match shown {
                Some(_) => "the token is wrong: show what admin_token_file or admin_token_env has",
                None => "show the token: Authorization: Bearer TOKEN",
            },
        )),
    }
}

/// Returns the token of `Bearer TOKEN`.
fn token_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn check_host(asked: &RequestParts<'_>) -> Result<(), Problem> {
    let values = asked.headers.get_all(HOST);
    let named = values.iter().map(|value| value.to_str().unwrap_or("?"));
    let mut hosts = named.chain(asked.uri.authority().map(|authority| authority.as_str()));
    match hosts.find(|host| !is_here(host)) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            StatusCode::FORBIDDEN,
            "name the host by its address, or as localhost: any other name may be a trick by \
             which a page reads what is here; with a token or certificates any name will do",
        )),
    }
}

/// Returns whether `host` or `host:port` is an address or `localhost`.
fn is_here(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => inside,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn check_no_page(headers: &HeaderMap) -> Result<(), Problem> {
    let site = HeaderName::from_static("sec-fetch-site");
    if !headers.contains_key(ORIGIN) && !headers.contains_key(site) {
        return Ok(());
    }
    let what = "a page in a browser asks for this change: changes are made by programs only, \
                such as keyway ctl";
    Err(Problem::new(StatusCode::FORBIDDEN, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    fn may(access: &Access, kind: Kind, lines: &[(&'static str, &'static str)]) -> bool {
        let (headers, uri) = (headers(lines), Uri::from_static("/v1/pools"));
        access.check(kind, &RequestParts { headers: &headers, uri: &uri }).is_ok()
    }

    const CHANGE: (&str, &str) = (CHANGE_HEADER, "1");

    #[test]
    fn without_a_token_names_that_may_lead_anywhere_are_refused() {
        let access = Access::new(None);
        for (host, is_good) in [
            ("127.0.0.1:9380", true),
            ("[::1]:9380", true),
            ("[::1]", true),
            ("LocalHost:1", true),
            ("localhost", true),
            ("evil.example:9380", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:9380", false),
            ("", false),
        ] {
            assert_eq!(may(&access, Kind::ApiRead, &[("host", host)]), is_good, "{host}");
            assert_eq!(may(&access, Kind::Change, &[("host", host)]), is_good, "{host}");
            assert!(may(&access, Kind::Read, &[("host", host)]), "{host}");
        }
        assert!(!may(&access, Kind::ApiRead, &[("host", "localhost"), ("host", "evil")]));
    }

    #[test]
    fn a_change_needs_its_header_and_no_page_behind_it() {
        let (host, token) = (("host", "127.0.0.1"), ("authorization", "Bearer open sesame"));
        for (access, who) in [
            (Access::new(None), host),
            (Access::new(Some("open sesame")), token),
            (Access::new(None).with_certificates(), ("host", "proxy-7.example")),
        ] {
            assert!(may(&access, Kind::ApiChange, &[who, CHANGE]));
            assert!(!may(&access, Kind::ApiChange, &[who]));
            for page in [("origin", "http://127.0.0.1"), ("sec-fetch-site", "same-origin")] {
                assert!(!may(&access, Kind::ApiChange, &[who, CHANGE, page]));
                assert!(!may(&access, Kind::Change, &[who, page]));
            }
            assert!(may(&access, Kind::Change, &[who]));
        }
    }

    #[test]
    fn with_a_token_nothing_but_probes_is_answered_without_it() {
        let access = Access::new(Some("open sesame"));
        let all = [Kind::Probe, Kind::Read, Kind::Change, Kind::ApiRead, Kind::ApiChange];
        for (value, is_good) in [
            ("Bearer open sesame", true),
            ("bearer  open sesame ", true),
            ("Bearer open sesam", false),
            ("Bearer open sesame!", false),
            ("Bearer ", false),
            ("Basic open sesame", false),
            ("open sesame", false),
            ("", false),
        ] {
            for kind in all {
                let is_let_in = may(&access, kind, &[("authorization", value), CHANGE]);
                assert_eq!(is_let_in, is_good || kind == Kind::Probe, "{value} {kind:?}");
            }
        }
        assert!(!format!("{access:?}").contains("sesame"));
        access.clone().set_token(Some("open barley"));
        let shows = |value| may(&access, Kind::ApiRead, &[("authorization", value)]);
        assert!(!shows("Bearer open sesame") && shows("Bearer open barley"));
        assert!(access.has_token() && !Access::default().has_token());
    }
}
