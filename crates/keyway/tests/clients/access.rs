//! Access of clients: through proxies, by address, by number, and by time.

#![allow(clippy::disallowed_methods, reason = "a test measures time")]

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, TempDir, Value, free_address, run_tool,
    wait_until,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

/// A listener with these settings, beside the plain one of the pool.
struct Front {
    keyway: Keyway,
    at: SocketAddr,
}

fn front(settings: &str) -> Front {
    let at = free_address();
    let table = format!("[[listener]]\nbind = \"tcp://{at}\"\npool = \"main\"\n{settings}\n");
    let config = KeywayConfig::new(vec![Pool::store("main")]).with_server("workers", "1");
    Front { keyway: Keyway::start(KEYWAY, config.with_tables(&table)), at }
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

    /// Sends this first on a new connection. Returns the reply up to `end` or the end of the
    /// connection.
    fn say(&self, bytes: &[u8], end: &str) -> String {
        let mut stream = TcpStream::connect(self.at).expect("it listens");
        stream.write_all(bytes).unwrap();
        heard(&mut stream, end)
    }
}

fn heard(stream: &mut TcpStream, end: &str) -> String {
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        all.extend_from_slice(&bytes[..len]);
        if all.ends_with(end.as_bytes()) {
            break;
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn v2(command: u8, family: u8, said: &[u8]) -> Vec<u8> {
    let len = (said.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &len, said].concat()
}

fn with(mut header: Vec<u8>, words: &str) -> Vec<u8> {
    header.extend_from_slice(words.as_bytes());
    header
}

const V4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xdc, 0x04, 0x18, 0xeb];

#[test]
fn clients_through_a_proxy_have_their_own_addresses() {
    let front = front("proxy_protocol = true");
    let mut v6 = [0; 36];
    (v6[0], v6[15], v6[33]) = (0x20, 9, 80);
    for (header, addr) in [
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n".to_vec(), "192.168.0.1:56324"),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n".to_vec(), "[2001:db8::1]:56324"),
        (v2(0x21, 0x11, &V4), "192.0.2.7:56324"),
        (v2(0x21, 0x21, &v6), "[2000::9]:80"),
        (v2(0x21, 0x31, &[0; 216]), "unix:0"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1:"),
        (v2(0x20, 0, &[]), "127.0.0.1:"),
        (v2(0x21, 0, &[]), "127.0.0.1:"),
    ] {
        // The first request comes in the same segment.
        let told = front.say(&with(header.clone(), "CLIENT INFO\r\n"), "\n\r\n");
        assert!(told.contains(&format!(" addr={addr}")), "{told} of {header:?}");
        // The header comes byte by byte.
        let mut stream = TcpStream::connect(front.at).unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in with(header, "CLIENT INFO\r\n") {
            stream.write_all(&[byte]).unwrap();
        }
        let told = heard(&mut stream, "\n\r\n");
        assert!(told.contains(&format!(" addr={addr}")), "{told}");
    }
    // One of them sends many requests.
    let mut stream = TcpStream::connect(front.at).unwrap();
    stream.write_all(&with(v2(0x21, 0x11, &V4), &"PING\r\n".repeat(5000))).unwrap();
    let told = heard(&mut stream, &"+PONG\r\n".repeat(5000));
    assert_eq!(told.len(), 35_000);
    assert!(!front.log().contains("WARN"), "{}", front.log());
}

#[test]
fn what_does_not_begin_with_a_header_is_refused_and_told_of() {
    let front = front("proxy_protocol = true\nhandshake_timeout = \"300ms\"");
    let wrong = [
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"PING\r\n".to_vec(),
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\nPING\r\n".to_vec(),
        [b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat(),
        v2(0x2f, 0x11, &V4),
        v2(0x21, 0x11, &V4[..4]),
        v2(0x21, 0, &[0; 9000]),
    ];
    for (number, bytes) in wrong.iter().enumerate() {
        assert_eq!(front.say(bytes, "\n"), "", "{bytes:?}");
        front.wait_refused("proxy_header", number as f64 + 1.0);
    }
    let log = front.log();
    assert!(log.contains("its first bytes are no header of the PROXY protocol"), "{log}");
    // Half a header is waited for, but not longer than the time for a handshake.
    let began = Instant::now();
    assert_eq!(front.say(b"PROXY TCP4 1.2", "\n"), "");
    assert!(began.elapsed() >= Duration::from_millis(300));
    front.wait_refused("timeout", 1.0);
    let right = with(v2(0x21, 0x11, &V4), "PING\r\n");
    assert_eq!(front.say(&right, "\r\n"), "+PONG\r\n");
}

#[test]
fn the_true_address_is_what_lists_go_by_and_only_proxies_may_tell_it() {
    let front = front(
        "proxy_protocol = true\nproxy_from = [\"127.0.0.1\"]\nallow = [\"192.0.2.0/24\"]\ndeny = \
         [\"192.0.2.8\"]",
    );
    let ping = |host: &str| {
        front.say(format!("PROXY TCP4 {host} 10.0.0.1 1 2\r\nPING\r\n").as_bytes(), "\r\n")
    };
    assert_eq!(ping("192.0.2.7"), "+PONG\r\n");
    assert_eq!(ping("192.0.2.8"), "");
    assert_eq!(ping("198.51.100.1"), "");
    front.wait_refused("not_allowed", 2.0);
    assert!(front.log().contains("not allowed by `allow` and `deny`"), "{}", front.log());
    assert!(front.log().contains("192.0.2.8:1"), "the log has its true address: {}", front.log());
    // The proxy's own health check is not a client.
    assert_eq!(front.say(&with(v2(0x20, 0, &[]), "PING\r\n"), "\r\n"), "+PONG\r\n");
    let strict = self::front("proxy_protocol = true\nproxy_from = [\"10.0.0.5\"]");
    assert_eq!(strict.say(b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\nPING\r\n", "\r\n"), "");
    strict.wait_refused("not_proxy", 1.0);
}

#[test]
fn addresses_that_are_not_allowed_are_turned_away_before_anything_is_read() {
    let closed = front("allow = [\"10.0.0.0/8\", \"::1\"]");
    assert_eq!(closed.say(b"PING\r\n", "\r\n"), "");
    closed.wait_refused("not_allowed", 1.0);
    let denied = front("deny = [\"127.0.0.0/8\"]");
    assert_eq!(denied.say(b"PING\r\n", "\r\n"), "");
    let open = front("allow = [\"127.0.0.0/8\"]\ndeny = [\"127.0.0.2\"]");
    assert_eq!(open.say(b"PING\r\n", "\r\n"), "+PONG\r\n");
    assert_eq!(open.refused("not_allowed"), 0.0);
}

#[test]
fn a_proxy_may_speak_tls_behind_its_header() {
    let files = CertificateFiles::default();
    let file = |name: &str| files.path(name);
    let tls = format!(
        "tls = {{ cert_file = {:?}, key_file = {:?} }}",
        file("server.pem"),
        file("server.key")
    );
    let front = front(&format!("proxy_protocol = true\n{tls}"));
    let (at, ca) = (front.at.to_string(), file("ca.pem").display().to_string());
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'PROXY TCP4 192.0.2.7 10.0.0.1 5 6\\r\\n' >&3; exec 3>&-",
        front.at.port()
    );
    let output = run_tool("bash", &["-c", &script], b"", WITHIN);
    assert!(output.status.success(), "{output:?}");
    front.wait_refused("closed", 1.0);
    let arguments = ["-c", PYTHON, &at, &ca];
    let output = run_tool("python3", &arguments, b"", WITHIN);
    assert!(output.stdout.contains(" addr=192.0.2.7:5 "), "{output:?}");
}

/// A program for a client behind a proxy that then uses TLS.
const PYTHON: &str = "
import socket, ssl, sys
host, port = sys.argv[1].split(':')
plain = socket.create_connection((host, int(port)))
plain.sendall(b'PROXY TCP4 192.0.2.7 10.0.0.1 5 6\\r\\n')
context = ssl.create_default_context(cafile=sys.argv[2])
secured = context.wrap_socket(plain, server_hostname='localhost')
secured.sendall(b'CLIENT INFO\\r\\n')
print(secured.recv(4096).decode())
";

#[test]
fn a_unix_socket_has_its_mode_and_may_be_behind_a_proxy() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new();
    let path = folder.path().join("front.sock");
    let table = format!(
        "[[listener]]\nbind = \"unix://{}\"\npool = \"main\"\nmode = \"0600\"\nproxy_protocol = true\nallow = \
         [\"192.0.2.0/24\"]\n",
        path.display()
    );
    let config = KeywayConfig::new(vec![Pool::store("main")]).with_tables(&table);
    let _keyway = Keyway::start(KEYWAY, config);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let say = |text: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        let len = stream.read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let told = say("PROXY TCP4 192.0.2.7 10.0.0.1 5 6\r\nCLIENT INFO\r\n");
    assert!(told.contains(" addr=192.0.2.7:5 "), "{told}");
    assert_eq!(say("PROXY TCP4 192.0.3.7 10.0.0.1 5 6\r\nPING\r\n"), "");
}

#[test]
fn a_listener_has_a_bound_of_its_own_and_tells_as_redis_does() {
    let front = front("clients_max = 2");
    let mut first = Client::connect(front.at);
    let mut second = Client::connect(front.at);
    assert_eq!(first.words("PING"), Value::simple("PONG"));
    assert_eq!(second.words("PING"), Value::simple("PONG"));
    let told = front.say(b"", "\n");
    assert_eq!(told, "-ERR max number of clients reached\r\n");
    front.wait_refused("clients_max", 1.0);
    // Other clients are not affected.
    assert_eq!(front.keyway.client(0).words("PING"), Value::simple("PONG"));
    let connections = || {
        let label = format!("listener=\"{}\"", front.at);
        front.keyway.metrics().sum("keyway_listener_client_connections", &[&label])
    };
    assert!((connections() - 2.0).abs() < 0.1);
    drop(first);
    wait_until("one has left", WITHIN, || connections() < 1.5);
    assert_eq!(Client::connect(front.at).words("PING"), Value::simple("PONG"));
}

#[test]
fn clients_that_ask_nothing_for_long_are_closed_unless_they_wait() {
    let front = front("idle_timeout = \"1s\"");
    let mut idle = Client::connect(front.at);
    assert_eq!(idle.words("PING"), Value::simple("PONG"));
    let mut silent = TcpStream::connect(front.at).unwrap();
    let mut subscriber = Client::connect(front.at);
    subscriber.words("SUBSCRIBE news");
    let mut blocked = Client::connect(front.at);
    blocked.send(b"BLPOP list 0\r\n");
    let mut monitor = Client::connect(front.at);
    assert_eq!(monitor.words("MONITOR"), Value::simple("OK"));
    let mut asking = Client::connect(front.at);
    let mut other = front.keyway.client(0);
    let began = Instant::now();
    silent.set_read_timeout(Some(WITHIN)).unwrap();
    let closed = std::thread::spawn(move || {
        idle.expect_closed();
        assert_eq!(silent.read(&mut [0; 9]).unwrap_or(0), 0);
    });
    while !closed.is_finished() {
        assert_eq!(asking.words("PING"), Value::simple("PONG"));
        std::thread::sleep(Duration::from_millis(100));
        assert!(began.elapsed() < WITHIN);
    }
    closed.join().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(other.words("RPUSH list a"), Value::Integer(1));
    assert_eq!(blocked.reply(), Value::Array(vec![Value::bulk("list"), Value::bulk("a")]));
    assert_eq!(other.words("PUBLISH news today"), Value::Integer(1));
    let idle_closed = front
        .keyway
        .metrics()
        .sum("keyway_client_closed_connections_total", &["pool=\"main\"", "fault=\"idle\""]);
    assert!((idle_closed - 2.0).abs() < 0.1, "{idle_closed}");
}

#[test]
fn a_client_that_has_ended_or_reads_nothing_is_closed_when_it_is_idle() {
    let servers = [RedisServer::start()];
    let pool = |pool: Pool| pool.with_listener("idle_timeout", "\"1s\"");
    let pools = vec![
        pool(Pool::store("main")),
        pool(Pool::over("servers", &servers).with("timeout", "\"60s\"")),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "1"));
    let mut reader = keyway.client(0);
    assert_eq!(reader.command(&[&b"SET"[..], b"large", &vec![b'x'; 8 << 20]]), Value::simple("OK"));
    reader.send(&b"GET large\r\n".repeat(4));
    let (mut ended, mut waiting) = (keyway.client(1), keyway.client(1));
    assert_eq!(waiting.words("SET k v"), Value::simple("OK"));
    servers[0].process().pause();
    [&mut ended, &mut waiting].into_iter().for_each(|client| client.send(b"GET k\r\n"));
    ended.close_write();
    let idle = |pool: &str| {
        let labels = [&*format!("pool=\"{pool}\""), "fault=\"idle\""];
        keyway.metrics().sum("keyway_client_closed_connections_total", &labels)
    };
    wait_until("both are closed", WITHIN, || idle("main") == 1.0 && idle("servers") == 1.0);
    ended.expect_closed();
    servers[0].process().resume();
    assert_eq!(waiting.reply(), Value::bulk("v"), "one that waits for a reply stays");
}
