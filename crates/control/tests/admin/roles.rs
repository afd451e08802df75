//! Roles of operators: which requests each may send. The requests are those of the description of
//! the API and of the page that lists all others, so a route without a line here fails the test.

use super::*;
use keyway_control::{Access, Credential, OPENAPI};
use keyway_testkit::certificates::CertificateFiles;
use keyway_tls::{
    ClientCertificates, ClientSettings, ClientTls, Identity, MinVersion, ServerSettings, ServerTls,
    Trust,
};
use keyway_users::{Operator, Role};
use std::path::Path;

/// The least role for each request that is no read; reads need a viewer.
const CHANGES: [(&str, Role); 23] = [
    ("POST /servers/restore", Role::Operator),
    ("POST /backends/restore", Role::Operator),
    ("POST /scripts/kill", Role::Operator),
    ("POST /v1/servers/eject", Role::Operator),
    ("POST /v1/servers/restore", Role::Operator),
    ("POST /v1/scripts/kill", Role::Operator),
    ("POST /v1/fleet/document", Role::Operator),
    ("POST /v1/fleet/rollout", Role::Operator),
    ("POST /v1/fleet/groups/failover", Role::Operator),
    ("POST /v1/fleet/slots", Role::Operator),
    ("POST /v1/fleet/forget", Role::Admin),
    ("POST /v1/fleet/servers/eject", Role::Operator),
    ("POST /v1/fleet/servers/restore", Role::Operator),
    ("POST /v1/fleet/scripts/kill", Role::Operator),
    ("PUT /v1/fleet/log-level", Role::Admin),
    ("POST /v1/fleet/drain", Role::Admin),
    ("POST /v1/fleet/reload", Role::Admin),
    ("POST /v1/fleet/upgrade", Role::Admin),
    ("PUT /v1/log-level", Role::Admin),
    ("POST /v1/drain", Role::Admin),
    ("POST /v1/reload", Role::Admin),
    ("POST /v1/upgrade", Role::Admin),
    ("POST /v1/nothing-like-this", Role::Viewer),
];

const PROBES: [&str; 4] = ["GET /healthz", "GET /readyz", "GET /v1/health", "GET /v1/ready"];

fn credential(name: &str, role: Role, pools: Option<&[&str]>) -> Credential {
    let pools = pools.map(|pools| pools.iter().map(|pool| (*pool).to_owned()).collect());
    let operator = Operator::new(name, role, pools).expect("a name");
    Credential::new(operator, Some(&format!("the token of {name}")), None)
}

fn start_with_operators() -> AdminHandle {
    let access = Access::default();
    let all = vec![
        credential("viewer", Role::Viewer, None),
        credential("operator", Role::Operator, None),
        credential("boss", Role::Admin, None),
        credential("confined", Role::Operator, Some(&["sessions"])),
    ];
    access.set(Some("the token of admin"), all);
    let options = AdminOptions { access, ..AdminOptions::default() };
    Admin::start_with(options, "127.0.0.1:0", Arc::new(State::default())).expect("a free port")
}

/// Returns the reply to a request with the token of an operator.
fn reply_to(admin: &AdminHandle, request: &str, name: Option<&str>) -> String {
    let token = name.map(|name| format!("Authorization: Bearer the token of {name}\r\n"));
    let token = token.unwrap_or_default();
    let request =
        format!("{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nKeyway-Change: 1\r\n{token}\r\n");
    exchange(admin.local_addr(), request.as_bytes())
}

/// Returns every request that the listener knows.
fn requests(admin: &AdminHandle) -> Vec<String> {
    let description: serde_json::Value = serde_json::from_str(OPENAPI).expect("JSON");
    let paths = description["paths"].as_object().expect("paths").iter();
    let of_api = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods");
        methods.keys().map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    let page = reply_to(admin, "GET /", Some("admin"));
    let (_, lines) = page.split_once("\r\n\r\n").expect("a body");
    let of_pages = lines.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    let all: Vec<String> = of_api.chain(of_pages).collect();
    assert!(all.len() > 30, "{all:?}");
    all
}

#[test]
fn every_route_has_a_least_role_and_refuses_the_others_in_words() {
    let admin = start_with_operators();
    let all = requests(&admin);
    for (change, _) in CHANGES.iter().filter(|(change, _)| !change.contains("nothing")) {
        assert!(all.iter().any(|request| request == change), "{change} is no route any more");
    }
    for request in all.iter().map(String::as_str).chain(["POST /v1/nothing-like-this"]) {
        let found = CHANGES.iter().find(|(change, _)| *change == request);
        let least = match found {
            Some((_, least)) => *least,
            None if request.starts_with("GET ") => Role::Viewer,
            None => panic!("{request} is a change without a role: decide which, and add it here"),
        };
        if PROBES.contains(&request) {
            assert!(![401, 403].contains(&status(&reply_to(&admin, request, None))), "{request}");
            continue;
        }
        assert_eq!(status(&reply_to(&admin, request, None)), 401, "{request}");
        assert_eq!(status(&reply_to(&admin, request, Some("nobody"))), 401, "{request}");
        for (name, role) in [
            ("viewer", Role::Viewer),
            ("operator", Role::Operator),
            ("boss", Role::Admin),
            ("admin", Role::Admin),
        ] {
            let reply = reply_to(&admin, request, Some(name));
            let is_let_in = ![401, 403].contains(&status(&reply));
            assert_eq!(is_let_in, role >= least, "{request} {name}: {reply}");
            if !is_let_in {
                let told = format!("this needs the role {least}, and {name} is");
                assert!(reply.contains(&told), "{reply}");
            }
            assert!(!reply.contains("the token of"), "{reply}");
        }
    }
}

#[test]
fn an_operator_with_pools_changes_those_alone() {
    let admin = start_with_operators();
    for (request, expected) in [
        ("POST /scripts/kill?pool=sessions", 404),
        ("POST /scripts/kill?pool=idle", 403),
        ("POST /backends/restore?pool=sessions&backend=alpha%3A6379+%C3%A9", 200),
        ("POST /servers/restore?pool=carts&server=a", 403),
        ("POST /servers/restore?pool=Sessions&server=a", 403),
        // The pool that is checked is the pool that is changed.
        ("POST /servers/restore?pool=sessions&pool=carts&server=a", 400),
    ] {
        let reply = reply_to(&admin, request, Some("confined"));
        assert_eq!(status(&reply), expected, "{request}: {reply}");
        let told = "confined may change sessions, and an admin may change all";
        assert_eq!(reply.contains(told), expected == 403, "{reply}");
    }
    let reply = reply_to(&admin, "POST /scripts/kill?pool=idle", Some("operator"));
    assert_eq!(status(&reply), 200, "{reply}");
}

#[test]
fn an_operator_is_known_by_the_name_in_its_certificate() {
    let files = CertificateFiles::default();
    files.add("other", &files.authority.issue(&["other.example"]));
    let identity = |name: &str| Identity {
        cert_file: files.path(&format!("{name}.pem")),
        key_file: files.path(&format!("{name}.key")),
    };
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|fault| fault.to_string());
    let server = ServerSettings {
        identities: vec![identity("server")],
        clients: ClientCertificates::Required(files.path("ca.pem")),
        crl_file: None,
        min_version: MinVersion::V1_2,
    };
    let tls = ServerTls::load(&server, &read).expect("the files are right").tls;
    let access = Access::default().with_certificates();
    let ann = Operator::new("ann", Role::Viewer, None).expect("a name");
    access
        .set(Some("the token of admin"), vec![Credential::new(ann, None, Some("client.example"))]);
    let options = AdminOptions { access, tls: Some(tls), ..AdminOptions::default() };
    let admin =
        Admin::start_with(options, "127.0.0.1:0", Arc::new(State::default())).expect("a free port");
    let ask = |name: &str, request: &str, token: &str| {
        let client = ClientSettings {
            trust: Trust::Authorities(files.path("ca.pem")),
            server_name: None,
            identity: Some(identity(name)),
            min_version: MinVersion::V1_2,
        };
        let client = ClientTls::load(&client, &read).expect("the files are right").tls;
        let request =
            format!("{request} HTTP/1.1\r\nHost: here\r\nKeyway-Change: 1\r\n{token}\r\n");
        status(&access::exchange_by_tls(&admin, &client, request.as_bytes()))
    };
    let token = "Authorization: Bearer the token of admin\r\n";
    assert_eq!(ask("client", "GET /metrics", ""), 200);
    assert_eq!(ask("client", "POST /scripts/kill?pool=idle", ""), 403);
    assert_eq!(ask("other", "GET /metrics", ""), 401);
    assert_eq!(ask("other", "POST /scripts/kill?pool=idle", token), 200);
    // A wrong token is refused, whatever the certificate is.
    assert_eq!(ask("client", "GET /metrics", "Authorization: Bearer wrong\r\n"), 401);
}
