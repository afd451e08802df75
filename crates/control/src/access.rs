//! Access rules of the admin listener.
//!
//! Without a token, any client that can connect may read. It may also make changes if it sends a
//! header that no page in a browser can send to another origin. But a page can name any host, and
//! make that name resolve to this machine later (DNS rebinding). So requests without a token must
//! name an address, or `localhost`, and a request with signs of a page changes nothing.

use crate::problem::Problem;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{StatusCode, Uri};
use keyway_tls::PeerCertificate;
use keyway_users::{Digest, Operator, Role};
use parking_lot::RwLock;
use std::net::IpAddr;
use std::sync::Arc;

/// The header that a change must have, with the value 1. No form and no page of another origin can
/// send it.
pub const CHANGE_HEADER: &str = "keyway-change";

/// Longest token that is checked, in bytes. Hashing a longer one would cost its sender nothing.
const TOKEN_LEN_MAX: usize = 4 << 10;

/// An operator, and what it shows: a token, a certificate or either of both.
#[derive(Clone, Debug)]
pub struct Credential {
    operator: Operator,
    token: Option<Digest>,
    certificate: Option<String>,
}

impl Credential {
    /// Creates the credential of an operator. A digest of the token is kept. `certificate` is a host
    /// name to which its certificate is issued.
    pub fn new(operator: Operator, token: Option<&str>, certificate: Option<&str>) -> Self {
        let token = token.map(|token| Digest::of(token.as_bytes()));
        Self { operator, token, certificate: certificate.map(str::to_owned) }
    }
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The operator.
    pub operator: Operator,
    /// The address that it asks from, `HOST:PORT`.
    pub address: String,
}

/// The access rules. Clones of one another use the same tokens.
#[derive(Clone, Debug, Default)]
pub struct Access {
    credentials: Arc<RwLock<Vec<Credential>>>,
    has_certificates: bool,
}

impl Access {
    /// Creates rules that admit clients that know `token` (of which a digest is kept) as the
    /// operator `admin`, or any client without a token.
    pub fn new(token: Option<&str>) -> Self {
        let access = Self::default();
        access.set(token, Vec::new());
        access
    }

    /// Admits from the next request on these operators, and the operator `admin` with `token`.
    /// Without any of them every client may do everything.
    pub fn set(&self, token: Option<&str>, mut credentials: Vec<Credential>) {
        let admin = token.map(|token| Credential::new(Operator::admin(), Some(token), None));
        credentials.extend(admin);
        *self.credentials.write() = credentials;
    }

    /// Returns the rules for a listener where each client has shown a certificate.
    #[must_use]
    pub fn with_certificates(mut self) -> Self {
        self.has_certificates = true;
        self
    }

    /// Returns whether requests must show a token, or the certificate of an operator.
    pub fn has_credentials(&self) -> bool {
        !self.credentials.read().is_empty()
    }

    /// Checks whether a request may be answered at all. Returns its sender.
    pub(crate) fn check(&self, kind: Kind, asked: &RequestParts<'_>) -> Result<Operator, Problem> {
        if kind == Kind::Probe {
            return Ok(Operator::anonymous());
        }
        let credentials = self.credentials.read();
        let operator = match credentials.is_empty() {
            false => identified(&credentials, asked)?,
            true => Operator::anonymous(),
        };
        if credentials.is_empty() && !self.has_certificates && kind != Kind::Read {
            check_host(asked)?;
        }
        if matches!(kind, Kind::Change | Kind::ApiChange) {
            check_no_page(asked.headers)?;
        }
        let says_so = || asked.headers.get(CHANGE_HEADER).is_some_and(|value| value == "1");
        if kind == Kind::ApiChange && !says_so() {
            let what = format!("add the header \"{CHANGE_HEADER}: 1\": no page of a browser can");
            return Err(Problem::new(StatusCode::FORBIDDEN, what));
        }
        Ok(operator)
    }
}

/// The right that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// None: the answer is no secret.
    Nothing,
    /// Reading.
    Read,
    /// Changing what belongs to pools. The resource checks the pools, which are in the request.
    Pools,
    /// Changing the process.
    Admin,
}

impl Need {
    /// Refuses an operator whose role is not enough.
    pub(crate) fn check(self, operator: &Operator) -> Result<(), Problem> {
        let least = match self {
            Need::Nothing => return Ok(()),
            Need::Read => Role::Viewer,
            Need::Pools => Role::Operator,
            Need::Admin => Role::Admin,
        };
        if operator.role() >= least {
            return Ok(());
        }
        let (name, role) = (operator.name(), operator.role());
        let what = format!("this needs the role {least}, and {name} is {}", with_article(role));
        Err(Problem::new(StatusCode::FORBIDDEN, what))
    }
}

fn with_article(role: Role) -> &'static str {
    match role {
        Role::Viewer => "a viewer",
        Role::Operator => "an operator",
        Role::Admin => "an admin",
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
    /// The checked certificate of the client, if it has shown one.
    pub(crate) certificate: Option<&'r PeerCertificate>,
}

/// Finds the operator of a request. A token counts before a certificate: a client that shows a wrong
/// token is refused, whatever its certificate is.
fn identified(credentials: &[Credential], asked: &RequestParts<'_>) -> Result<Operator, Problem> {
    let shown = asked.headers.get(AUTHORIZATION).and_then(|value| token_of(value.as_bytes()));
    let refuse = |what: &str| Problem::new(StatusCode::UNAUTHORIZED, what);
    let Some(token) = shown else {
        let is_named = |one: &&Credential| {
            let name = one.certificate.as_deref();
            name.zip(asked.certificate).is_some_and(|(name, shown)| shown.has_name(name))
        };
        let found = credentials.iter().find(is_named).map(|one| one.operator.clone());
        return found.ok_or_else(|| match asked.certificate {
            Some(_) => refuse("the certificate is of no operator: show a token, or another one"),
            None => refuse("show the token: Authorization: Bearer TOKEN"),
        });
    };
    let wrong = "the token is wrong: show what admin_token_file or admin_token_env has, or that of \
                 an [[operator]]";
    if token.len() > TOKEN_LEN_MAX {
        return Err(refuse(wrong));
    }
    // Every token is compared, so the time does not tell which one was nearly right, or whose it is.
    let shown = Digest::of(token);
    let mut found = None;
    for one in credentials {
        let is_its = one.token.as_ref().is_some_and(|digest| digest.equals(&shown));
        if is_its {
            found = Some(&one.operator);
        }
    }
    found.cloned().ok_or_else(|| refuse(wrong))
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
        let asked = RequestParts { headers: &headers, uri: &uri, certificate: None };
        access.check(kind, &asked).is_ok()
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
        access.clone().set(Some("open barley"), Vec::new());
        let shows = |value| may(&access, Kind::ApiRead, &[("authorization", value)]);
        assert!(!shows("Bearer open sesame") && shows("Bearer open barley"));
        assert!(access.has_credentials() && !Access::default().has_credentials());
    }

    #[test]
    fn each_operator_is_known_by_its_own_token() {
        let access = Access::default();
        let of = |name: &str, role, token: &str| {
            Credential::new(Operator::new(name, role, None).unwrap(), Some(token), None)
        };
        let all = vec![of("ann", Role::Viewer, "token of ann"), of("bob", Role::Admin, "of bob")];
        access.set(Some("open sesame"), all);
        let known = |token: &str| {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            let headers = [(AUTHORIZATION, value)].into_iter().collect();
            let uri = Uri::from_static("/v1/pools");
            let asked = RequestParts { headers: &headers, uri: &uri, certificate: None };
            access.check(Kind::ApiRead, &asked).ok().map(|one| (one.name().to_owned(), one.role()))
        };
        assert_eq!(known("token of ann"), Some(("ann".to_owned(), Role::Viewer)));
        assert_eq!(known("of bob"), Some(("bob".to_owned(), Role::Admin)));
        assert_eq!(known("open sesame"), Some(("admin".to_owned(), Role::Admin)));
        assert_eq!(known("token of"), None);
        assert!(!format!("{access:?}").contains("token of"));
        let needs = [Need::Nothing, Need::Read, Need::Pools, Need::Admin];
        for (role, allowed) in [(Role::Viewer, 2), (Role::Operator, 3), (Role::Admin, 4)] {
            let operator = Operator::new("ann", role, None).unwrap();
            let may = needs.iter().filter(|need| need.check(&operator).is_ok()).count();
            assert_eq!(may, allowed, "{role}");
        }
    }
}
