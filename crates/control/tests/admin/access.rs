//! Access to the admin address: by token, by host name, by the headers of a change, and by
//! certificate.

use super::*;
use keyway_control::Access;
use keyway_testkit::certificates::{Authority, CertificateFiles};
use keyway_tls::{
    ClientCertificates, ClientSettings, ClientTls, Identity, MinVersion, ServerSettings, ServerTls,
    Trust,
};
use std::path::Path;

const TOKEN: &str = "open sesame, please";
const BEARER: &str = "Authorization: Bearer open sesame, please";
const HERE: &str = "Host: 127.0.0.1:9380";
const ELSEWHERE: &str = "Host: evil.example";
const CHANGE: &str = "Keyway-Change: 1";
const PAGE: &str = "Origin: http://127.0.0.1:9380";

fn start_for(access: Access, tls: Option<ServerTls>) -> AdminHandle {
    let options = AdminOptions { access, tls, ..AdminOptions::default() };
    let state = State { padding: 200 << 10, ..State::default() };
    Admin::start_with(options, "127.0.0.1:0", Arc::new(state)).expect("a free port")
}

fn ask_with(admin: &AdminHandle, request: &str, headers: &[&str]) -> u16 {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("{request} HTTP/1.1\r\n{lines}\r\n");
    status(&exchange(admin.local_addr(), request.as_bytes()))
}

/// Requests of every kind: probes, reads and changes, outside the API and in it.
const PROBES: &[&str] = &["GET /healthz", "HEAD /readyz", "GET /v1/health", "HEAD /v1/ready"];
const READS: &[&str] = &["GET /metrics", "GET /backends", "HEAD /metrics", "GET /nothing"];
const CHANGES: &[&str] = &["POST /scripts/kill?pool=idle", "POST /healthz", "PUT /metrics"];
const API_READS: &[&str] = &["GET /v1/pools", "HEAD /v1/pools", "POST /v1/pools", "GET /v1"];
const API_CHANGES: &[&str] = &["POST /v1/reload", "PUT /v1/log-level", "POST /v1/drain"];

/// Checks that each of `requests` with these headers is refused with `code`, or, if it is `None`,
/// with neither 401 nor 403.
fn refused(admin: &AdminHandle, requests: &[&str], headers: &[&str], code: Option<u16>) {
    for request in requests {
        let status = ask_with(admin, request, headers);
        match code {
            Some(code) => assert_eq!(status, code, "{request} {headers:?}"),
            None => assert!(![401, 403].contains(&status), "{status}: {request} {headers:?}"),
        }
    }
}

#[test]
fn without_a_token_a_request_names_an_address_and_a_change_says_that_no_page_is_behind_it() {
    let admin = start_for(Access::new(None), None);
    let no = Some(403);
    for requests in [PROBES, READS, CHANGES, API_READS] {
        refused(&admin, requests, &[HERE], None);
    }
    refused(&admin, API_CHANGES, &[HERE], no);
    refused(&admin, API_CHANGES, &[HERE, "Keyway-Change: 0"], no);
    refused(&admin, API_CHANGES, &[HERE, CHANGE], None);
    refused(&admin, PROBES, &[ELSEWHERE], None);
    refused(&admin, READS, &[ELSEWHERE], None);
    refused(&admin, CHANGES, &[ELSEWHERE], no);
    refused(&admin, API_READS, &[ELSEWHERE], no);
    refused(&admin, API_CHANGES, &[ELSEWHERE, CHANGE], no);
    refused(&admin, CHANGES, &[HERE, PAGE], no);
    refused(&admin, API_CHANGES, &[HERE, CHANGE, PAGE], no);
    refused(&admin, API_CHANGES, &[HERE, CHANGE, "Sec-Fetch-Site: none"], no);
    refused(&admin, API_READS, &[HERE, PAGE], None);
}

#[test]
fn with_a_token_all_but_probes_show_it_under_any_name_of_the_host() {
    let admin = start_for(Access::new(Some(TOKEN)), None);
    refused(&admin, PROBES, &[ELSEWHERE], None);
    for requests in [READS, CHANGES, API_READS, API_CHANGES] {
        refused(&admin, requests, &[HERE, CHANGE], Some(401));
        refused(&admin, requests, &[HERE, CHANGE, "Authorization: Bearer sesame"], Some(401));
        refused(&admin, requests, &[ELSEWHERE, CHANGE, BEARER], None);
    }
    refused(&admin, API_CHANGES, &[HERE, BEARER], Some(403));
    refused(&admin, API_CHANGES, &[HERE, BEARER, CHANGE, PAGE], Some(403));
}

/// Sends a request over TLS with these settings and returns the reply. A failure of either side
/// ends it.
pub fn exchange_by_tls(admin: &AdminHandle, tls: &ClientTls, request: &[u8]) -> String {
    let mut channel = tls.connect("127.0.0.1").expect("a name");
    let mut stream = connect(admin.local_addr());
    let (mut plain, mut out, mut buf) = (Vec::new(), Vec::new(), vec![0; 4096]);
    let mut left = request;
    loop {
        if !channel.is_handshaking() {
            left = &left[channel.encrypt(left)..];
        }
        channel.take_output(&mut out);
        let is_written = stream.write_all(&out).is_ok();
        out.clear();
        let len = stream.read(&mut buf).unwrap_or(0);
        let is_good = channel.handle_input(&buf[..len], &mut plain).is_ok();
        if len == 0 || !is_written || !is_good || channel.has_ended() {
            return String::from_utf8_lossy(&plain).into_owned();
        }
    }
}

#[test]
fn by_tls_a_whole_reply_comes_to_clients_with_a_certificate_and_nothing_to_others() {
    let files = CertificateFiles::default();
    files.add("stranger", &Authority::new("others").issue(&["client.example"]));
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
    let server = ServerTls::load(&server, &read).expect("the files are right").tls;
    let admin = start_for(Access::new(None).with_certificates(), Some(server));
    for (name, is_in) in [(Some("client"), true), (None, false), (Some("stranger"), false)] {
        let client = ClientSettings {
            trust: Trust::Authorities(files.path("ca.pem")),
            server_name: None,
            identity: name.map(identity),
            min_version: MinVersion::V1_2,
        };
        let client = ClientTls::load(&client, &read).expect("the files are right").tls;
        let request = b"GET /metrics HTTP/1.1\r\nHost: proxy-7.example\r\n\r\n";
        let reply = exchange_by_tls(&admin, &client, request);
        assert_eq!(reply.starts_with("HTTP/1.1 200"), is_in, "{name:?}");
        // This is much more than the channel to the HTTP library holds at a time.
        assert_eq!(reply.matches('#').count() > 200 << 10, is_in, "{name:?}: {}", reply.len());
        assert_eq!(reply.is_empty(), !is_in, "{name:?}");
    }
    let plain = exchange(admin.local_addr(), b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(!plain.contains("HTTP/1.1"), "what is no TLS is not answered: {plain:?}");
}
