//! TLS clients: which are accepted, what refused clients are told, and that certificates change
//! without a lost request.

#![allow(clippy::disallowed_methods, reason = "a test measures time")]

use keyway_testkit::certificates::{Authority, CertificateFiles, Span};
use keyway_testkit::{
    CheckedLoad, Keyway, KeywayConfig, LoadShape, Pool, ToolOutput, Value, free_address, python,
    run_keyway, run_tool, wait_until,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::tls_client::{TlsClient, TlsLogin, tls_table};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

/// A TLS listener, beside the plain one of the pool.
struct Front {
    keyway: Keyway,
    at: SocketAddr,
}

fn listener(at: SocketAddr, settings: &str) -> String {
    format!("[[listener]]\nbind = \"tcp://{at}\"\npool = \"main\"\n{settings}\n")
}

fn front_with(pool: Pool, settings: &str) -> Front {
    let at = free_address();
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config.with_tables(&listener(at, settings)));
    Front { keyway, at }
}

fn front(files: &CertificateFiles, tls: &str, settings: &str) -> Front {
    let settings = format!("tls = {}\n{settings}", tls_table(files, "server", tls));
    front_with(Pool::store("main"), &settings)
}

impl Front {
    fn refused(&self, fault: &str) -> f64 {
        let labels = [&*format!("listener=\"{}\"", self.at), &*format!("fault=\"{fault}\"")];
        self.keyway.metrics().sum("keyway_listener_refused_connections_total", &labels)
    }

    fn wait_refused(&self, fault: &str, count: f64) {
        wait_until(&format!("{fault} is counted"), WITHIN, || self.refused(fault) >= count);
    }

    fn log(&self) -> String {
        self.keyway.process().log()
    }
}

fn redis_cli(at: SocketAddr, arguments: &[&str]) -> ToolOutput {
    let port = at.port().to_string();
    let all = [&["-h", "127.0.0.1", "-p", &port], arguments].concat();
    run_tool("redis-cli", &all, b"", WITHIN)
}

#[test]
fn redis_cli_is_served_by_tls_and_its_certificate_is_demanded() {
    let files = CertificateFiles::default();
    let path = |name: &str| files.path(name).display().to_string();
    let ca = path("ca.pem");
    let of_client = [path("client.pem"), path("client.key")];
    let plain = ["--tls", "--cacert", &ca];
    let shown = ["--tls", "--cacert", &ca, "--cert", &of_client[0], "--key", &of_client[1]];
    let any = front(&files, "", "");
    let output = redis_cli(any.at, &[&plain[..], &["SET", "a", "1"]].concat());
    assert_eq!(output.stdout.trim(), "OK", "{output:?}");
    let with_ca = format!(", ca_file = {ca:?}");
    let demanding = front(&files, &with_ca, "");
    let output = redis_cli(demanding.at, &[&shown[..], &["PING"]].concat());
    assert_eq!(output.stdout.trim(), "PONG", "{output:?}");
    let output = redis_cli(demanding.at, &[&plain[..], &["PING"]].concat());
    assert_ne!(output.stdout.trim(), "PONG", "{output:?}");
    demanding.wait_refused("no_certificate", 1.0);
    assert!(demanding.log().contains("it has shown no certificate"), "{}", demanding.log());
    let asking = front(&files, &format!("{with_ca}, client_certificates = \"optional\""), "");
    for arguments in [&plain[..], &shown[..]] {
        let output = redis_cli(asking.at, &[arguments, &["PING"]].concat());
        assert_eq!(output.stdout.trim(), "PONG", "{output:?}");
    }
    let metrics = asking.keyway.metrics();
    let secured = metrics.sum("keyway_listener_secured_connections_total", &[]);
    assert!((secured - 2.0).abs() < 0.1, "{secured}");
    // Its pipe mode sends as much as it can at once.
    let lines: String = (0..20_000).map(|n| format!("SET key:{n} {n}\r\n")).collect();
    let port = any.at.port().to_string();
    let arguments = [&["-p", &port][..], &plain, &["--pipe"]].concat();
    let output = run_tool("redis-cli", &arguments, lines.as_bytes(), WITHIN);
    assert!(output.stdout.contains("errors: 0, replies: 20000"), "{output:?}");
}

#[test]
fn clients_of_python_are_served_by_tls() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = CertificateFiles::default();
    let redis = front(&files, &format!(", ca_file = {:?}", files.path("ca.pem")), "");
    let memcached = front(&files, "", "protocol = \"memcached\"");
    let script = root.join("tests/python/tls_clients.py").display().to_string();
    let folder = files.path("").display().to_string();
    let arguments =
        [&script, &folder, &redis.at.port().to_string(), &memcached.at.port().to_string()];
    let arguments: Vec<&str> = arguments.into_iter().map(|text| text.as_str()).collect();
    let output = run_tool(&python(), &arguments, b"", Duration::from_secs(60));
    assert_eq!(output.stdout.trim(), "right", "{output:?}");
}

#[test]
fn who_has_the_wrong_certificate_or_none_of_tls_is_turned_away_and_counted() {
    let files = CertificateFiles::default();
    files.add("strange", &Authority::new("another").issue(&["client.example"]));
    let issue = |span| files.authority.issue_for(&["client.example"], span);
    files.add("expired", &issue(Span::Expired));
    files.add("future", &issue(Span::Future));
    let with_ca = format!(", ca_file = {:?}", files.path("ca.pem"));
    let front = front(&files, &with_ca, "handshake_timeout = \"500ms\"");
    for (name, fault, words) in [
        ("strange", "unknown_issuer", "its certificate is not issued by an authority of ca_file"),
        ("expired", "expired", "its certificate has expired"),
        ("future", "expired", ""),
    ] {
        let before = front.refused(fault);
        let mut client =
            TlsLogin { identity: Some(name), ..TlsLogin::new(&files) }.connect(front.at);
        assert!(!client.ping(), "{name}");
        front.wait_refused(fault, before + 1.0);
        wait_until("the log tells of it", WITHIN, || front.log().contains(words));
    }
    // These clients do not trust the certificate, speak another protocol, send nothing, or leave.
    let other = files.write("other.pem", &Authority::new("a third").certificate);
    assert!(
        !TlsLogin { identity: Some("client"), authority: other, ..TlsLogin::new(&files) }
            .connect(front.at)
            .ping()
    );
    front.wait_refused("refused_ours", 1.0);
    let mut plain = TcpStream::connect(front.at).unwrap();
    plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
    front.wait_refused("not_tls", 1.0);
    assert!(front.log().contains("it does not speak TLS"), "{}", front.log());
    let mut silent = TcpStream::connect(front.at).unwrap();
    let began = Instant::now();
    silent.set_read_timeout(Some(WITHIN)).unwrap();
    assert_eq!(silent.read(&mut [0; 9]).unwrap_or(0), 0);
    assert!(began.elapsed() < Duration::from_secs(5));
    front.wait_refused("timeout", 1.0);
    let before = front.log();
    drop(TcpStream::connect(front.at).unwrap());
    front.wait_refused("gone", 1.0);
    assert_eq!(front.log(), before, "checks of health are not told of");
    assert!(
        TlsLogin { identity: Some("client"), ..TlsLogin::new(&files) }.connect(front.at).ping()
    );
}

#[test]
fn clients_get_the_certificate_for_the_name_they_ask_for() {
    let files = CertificateFiles::default();
    files.add("two", &files.authority.issue(&["two.example"]));
    let two = tls_table(&files, "two", "");
    let front = front(&files, &format!(", certificates = [{two}], min_version = \"1.3\""), "");
    for (name, is_right) in [("127.0.0.1", true), ("two.example", true), ("three.example", false)] {
        assert_eq!(
            TlsLogin { name, ..TlsLogin::new(&files) }.connect(front.at).ping(),
            is_right,
            "{name}"
        );
    }
    let port = front.at.port().to_string();
    let at = format!("127.0.0.1:{port}");
    let arguments = ["s_client", "-connect", &at, "-tls1_2"];
    let output = run_tool("openssl", &arguments, b"", WITHIN);
    assert!(output.text.contains("protocol version"), "{output:?}");
    front.wait_refused("version", 1.0);
}

/// Bytes for a client are encrypted and sent before its connection is closed, however slowly it
/// reads.
#[test]
fn a_client_that_reads_slowly_gets_every_reply_to_its_end() {
    let files = CertificateFiles::default();
    let front = front(&files, "", "");
    let value = "x".repeat(300_000);
    let mut setter = front.keyway.client(0);
    assert_eq!(setter.command(&["SET", "big", &value]), Value::simple("OK"));
    // After the last request the client may send more, which is not read.
    for more in [0, 0, 0, 10, 10, 10] {
        let mut client = TlsLogin::new(&files).connect(front.at);
        assert!(client.shake());
        let said = format!("{}QUIT\r\n", "GET big\r\n".repeat(10));
        assert_eq!(client.channel.encrypt(said.as_bytes()), said.len());
        client.flush().unwrap();
        for _ in 0..more {
            assert_eq!(client.channel.encrypt(&[b'x'; 16_000]), 16_000);
            client.flush().unwrap();
        }
        // The client reads nothing until the kernel has no room on either side.
        std::thread::sleep(Duration::from_millis(300));
        while client.read() {}
        let expected = format!("{}+OK\r\n", format!("$300000\r\n{value}\r\n").repeat(10));
        assert_eq!(client.heard.len(), expected.len());
        assert!(client.heard == expected.as_bytes());
        assert!(client.channel.has_ended(), "the end is told by TLS");
    }
}

#[test]
fn certificates_change_under_load_without_a_lost_request() {
    let files = CertificateFiles::default();
    let inner = front(&files, &format!(", ca_file = {:?}", files.path("ca.pem")), "");
    let file = |name: &str| files.path(name);
    let tls = format!(
        "{{ ca_file = {:?}, cert_file = {:?}, key_file = {:?} }}",
        file("ca.pem"),
        file("client.pem"),
        file("client.key")
    );
    let pool = Pool::sharded("main", &[format!("127.0.0.1:{}:1", inner.at.port())]);
    let outer = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![pool.with("tls", &tls)]).with_server("workers", "1"),
    );
    let load = CheckedLoad::start(outer.address(0), LoadShape::default());
    load.wait_replies(200);
    let rereads = |keyway: &Keyway, words: &str| keyway.process().log().matches(words).count();
    let hang_up = |keyway: &Keyway, words: &str| {
        let before = rereads(keyway, words);
        keyway.process().signal(keyway_testkit::Signal::HUP);
        wait_until(words, WITHIN, || rereads(keyway, words) > before);
    };
    // A bad file changes nothing, and the reason is reported.
    let old = std::fs::read_to_string(file("server.pem")).unwrap();
    files.write("server.pem", "rubbish");
    hang_up(&inner.keyway, "nothing was changed");
    assert!(inner.log().contains("server.pem holds no certificate in PEM"), "{}", inner.log());
    assert!(
        TlsLogin { identity: Some("client"), ..TlsLogin::new(&files) }.connect(inner.at).ping()
    );
    files.write("server.pem", &old);
    // All certificates get another authority, on both sides, while requests are served.
    let other = Authority::new("its successor");
    files.write("ca.pem", &other.certificate);
    files.add("server", &other.issue(&["127.0.0.1"]));
    files.add("client", &other.issue(&["client.example"]));
    let old_ca = files.write("old.pem", &files.authority.certificate);
    hang_up(&inner.keyway, "certificates were read again");
    hang_up(&outer, "certificates were read again");
    load.wait_replies(200);
    assert!(
        TlsLogin { identity: Some("client"), ..TlsLogin::new(&files) }.connect(inner.at).ping()
    );
    let way = TlsLogin { identity: Some("client"), authority: old_ca, ..TlsLogin::new(&files) };
    assert!(!way.connect(inner.at).ping(), "it has another certificate now");
    load.stop().assert_clean();
    // New connections of the other side use the files it has read again.
    let report = outer.client(0).words("CLIENT LIST").text();
    assert!(report.contains("addr="), "{report}");
    let mut blocking = outer.client(0);
    assert_eq!(blocking.words("BLPOP nothing 0.05"), Value::NilArray);
    let before = outer.process().log();
    assert!(!before.contains("TLS handshake with"), "{before}");
}

#[test]
fn handshakes_that_never_end_keep_nobody_out() {
    let files = CertificateFiles::default();
    let settings = "handshakes_max = 50\nhandshake_timeout = \"60s\"";
    let front = front(&files, "", settings);
    // There are more clients than may be in a handshake at once: silent ones, and ones that have
    // begun.
    let mut held: Vec<TcpStream> = Vec::new();
    for number in 0..400 {
        let mut stream = TcpStream::connect(front.at).unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01");
        }
        held.push(stream);
    }
    for _ in 0..20 {
        assert!(TlsLogin::new(&files).connect(front.at).ping());
    }
    front.wait_refused("crowded", 300.0);
    // Connected clients notice nothing.
    assert_eq!(front.keyway.client(0).words("PING"), Value::simple("PONG"));
}

#[test]
fn clients_by_tls_are_handed_over_to_workers_that_are_added() {
    let files = CertificateFiles::default();
    let at = free_address();
    let settings = format!("tls = {}", tls_table(&files, "server", ""));
    let config = KeywayConfig::new(vec![Pool::store("main")])
        .with_server("workers", "{ min = 1, max = 2 }")
        .with_tables(&listener(at, &settings));
    let keyway = Keyway::start(KEYWAY, config);
    let way = TlsLogin::new(&files);
    let mut clients: Vec<TlsClient> = (0..20).map(|_| way.connect(at)).collect();
    assert!(clients.iter_mut().all(TlsClient::ping));
    let busy: Vec<CheckedLoad> = (0..2)
        .map(|number| {
            let prefix = format!("load{number}:");
            CheckedLoad::start(
                keyway.address(0),
                LoadShape { prefix, depth_max: 64, ..LoadShape::default() },
            )
        })
        .collect();
    wait_until("a worker is added", Duration::from_secs(60), || {
        keyway.process().log().contains("all workers were busy: added one")
    });
    for _ in 0..5 {
        assert!(clients.iter_mut().all(TlsClient::ping), "whoever has it now serves it");
    }
    for load in busy {
        load.stop().assert_clean();
    }
}

#[test]
fn certificates_that_expire_are_warned_of_and_measured() {
    let files = CertificateFiles::default();
    files.add("expired", &files.authority.issue_for(&["127.0.0.1"], Span::Expired));
    let settings = format!("tls = {}", tls_table(&files, "expired", ""));
    let front = front_with(Pool::store("main"), &settings);
    assert!(front.log().contains("holds a certificate that has expired"), "{}", front.log());
    let label = format!("file=\"{}\"", files.path("expired.pem").display());
    let expiry = || front.keyway.metrics().sum("keyway_tls_certificate_expiry_seconds", &[&label]);
    // This is the last day of 2019.
    assert!((expiry() - 1_577_750_400.0).abs() < 86_400.0, "{}", expiry());
    files.add("expired", &files.authority.issue(&["127.0.0.1"]));
    front.keyway.process().signal(keyway_testkit::Signal::HUP);
    wait_until("it is read again", WITHIN, || expiry() > 2_000_000_000.0);
    assert!(TlsLogin::new(&files).connect(front.at).ping());
}

#[test]
fn files_that_are_wrong_are_told_of_by_check() {
    let files = CertificateFiles::default();
    files.write("server.key", "rubbish");
    let at = free_address();
    let text = listener(at, &format!("tls = {}", tls_table(&files, "server", "")))
        + "[pool.main]\nkind = \"store\"\n";
    let file = files.write("keyway.toml", &text);
    let output = run_keyway(KEYWAY, &["check", &file.display().to_string()]);
    assert!(!output.status.success());
    assert!(output.text.contains("key_file in tls in [[listener]]"), "{output:?}");
    assert!(output.text.contains("server.key holds no private key in PEM"), "{output:?}");
}
