//! Tests of the admin listener, over real sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use keyway_control::{
    Admin, AdminError, AdminHandle, AdminLimits, AdminOptions, AdminState, Api, BackendStatus,
    PoolStatus, ScriptKill,
};
use keyway_metrics::{Layout, PoolLayout, Registry};

#[path = "admin/access.rs"]
mod access;
#[path = "admin/roles.rs"]
mod roles;

/// Longer than anything here takes: a read that waits this long has failed.
const WATCHDOG: Duration = Duration::from_secs(30);

#[derive(Default)]
struct State {
    draining: AtomicBool,
    unready: AtomicBool,
    restored: AtomicU64,
    /// Bytes of metrics besides the registry's.
    padding: usize,
}

impl AdminState for State {
    fn metrics(&self, out: &mut String) {
        let pool = PoolLayout {
            name: "sessions".into(),
            backends: vec!["alpha".into()],
            is_retired: false,
        };
        let registry = Registry::new(Layout {
            classes: &["read"],
            commands: &["get"],
            pools: vec![pool],
            workers_max: 1,
            version: "1.2.3",
            start_unix_micros: 0,
        });
        registry.write_prometheus(out);
        out.extend(std::iter::repeat_n('#', self.padding));
        out.push('\n');
    }

    fn draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    fn not_ready(&self) -> Vec<String> {
        let reasons = ["pool sessions: no backend is healthy", "pool carts: no backend is healthy"];
        let all = reasons.map(String::from).to_vec();
        if self.unready.load(Relaxed) { all } else { Vec::new() }
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let backend = BackendStatus {
            status: None,
            name: "alpha".into(),
            address: "10.0.0.1:6379".into(),
            state: "ejected",
            reason: Some("timeout"),
            since_unix_seconds: 0,
            by_hand: false,
            links: 1,
            in_flight: 0,
        };
        vec![PoolStatus { name: "sessions".into(), kind: "sharded", backends: vec![backend] }]
    }

    fn restore_backend(&self, pool: &str, backend: &str) -> Result<bool, String> {
        if (pool, backend) != ("sessions", "alpha:6379 é") {
            return Err(format!("no backend {backend} in pool {pool}; there is: alpha:6379 é"));
        }
        Ok(self.restored.fetch_add(1, Relaxed) == 0)
    }

    fn kill_script(&self, pool: &str) -> Result<ScriptKill, String> {
        match pool {
            "idle" => Ok(ScriptKill::NoneRuns),
            "reads" => Ok(ScriptKill::Ends),
            "writes" => Ok(ScriptKill::HasWritten),
            _ => Err("no embedded store of that name".into()),
        }
    }
}

fn start(limits: AdminLimits, state: State) -> (AdminHandle, Arc<State>) {
    let state = Arc::new(state);
    let shared: Arc<dyn AdminState> = state.clone();
    (
        Admin::start_with(
            AdminOptions { limits, ..AdminOptions::default() },
            "127.0.0.1:0",
            shared,
        )
        .expect("a free port"),
        state,
    )
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&addr, WATCHDOG).expect("the listener accepts");
    stream.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
    stream.set_write_timeout(Some(WATCHDOG)).expect("a timeout");
    stream
}

/// Reads everything up to the end of the stream. A reset counts as the end.
fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the connection is never closed");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn exchange(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(addr);
    stream.write_all(request).expect("the listener reads");
    read_to_end(&mut stream)
}

/// Sends a request, and returns the status, head and body of the reply.
fn ask(addr: SocketAddr, method: &str, target: &str) -> (u16, String, String) {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let reply = exchange(addr, request.as_bytes());
    let (head, body) = reply.split_once("\r\n\r\n").expect("a reply with a head");
    (status(&reply), head.to_ascii_lowercase(), body.into())
}

fn status(reply: &str) -> u16 {
    let code = reply.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status in {reply:?}"))
}

#[test]
fn metrics_come_as_prometheus_text() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let (status, head, body) = ask(admin.local_addr(), "GET", "/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nkeyway_process_build_info{version=\"1.2.3\"} 1\n"), "{body}");
}

#[test]
fn health_says_whether_the_process_drains() {
    let (admin, state) = start(AdminLimits::default(), State::default());
    let ask_health = || ask(admin.local_addr(), "GET", "/healthz");
    assert_eq!((ask_health().0, ask_health().2), (200, "ok\n".into()));
    state.draining.store(true, Relaxed);
    assert_eq!((ask_health().0, ask_health().2), (503, "draining\n".into()));
    let (status, _, body) = ask(admin.local_addr(), "GET", "/readyz");
    assert_eq!((status, body), (503, "draining\n".into()));
}

#[test]
fn readiness_gives_every_reason() {
    let (admin, state) = start(AdminLimits::default(), State::default());
    assert_eq!(ask(admin.local_addr(), "GET", "/readyz").0, 200);
    state.unready.store(true, Relaxed);
    let (status, _, body) = ask(admin.local_addr(), "GET", "/readyz");
    assert_eq!(status, 503);
    let reasons: Vec<&str> = body.lines().collect();
    assert_eq!(
        reasons,
        ["pool sessions: no backend is healthy", "pool carts: no backend is healthy"]
    );
}

#[test]
fn restore_acts_on_known_names_only() {
    let (admin, state) = start(AdminLimits::default(), State::default());
    let post = |query: &str| ask(admin.local_addr(), "POST", &format!("/backends/restore{query}"));
    assert_eq!(post("?pool=sessions&backend=alpha%3A6379+%C3%A9").0, 200);
    assert_eq!(state.restored.load(Relaxed), 1);
    let (status, _, body) = post("?pool=sessions&backend=gamma");
    assert_eq!(status, 404);
    assert!(body.contains("gamma") && body.contains("there is: alpha:6379 é"), "{body}");
    let (status, _, body) = post("?pool=sessions");
    assert_eq!(status, 400);
    assert!(body.contains("`backend` is missing"), "{body}");
    let get = ask(admin.local_addr(), "GET", "/backends/restore?pool=sessions&backend=alpha");
    assert_eq!(get.0, 405);
    assert!(get.1.contains("allow: post"), "{}", get.1);
    assert_eq!(state.restored.load(Relaxed), 1);
}

#[test]
fn servers_are_asked_for_by_either_word() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let at = admin.local_addr();
    for query in ["", "?format=text", "?format=json"] {
        let asked = |path: &str| ask(at, "GET", &format!("{path}{query}"));
        let (servers, backends) = (asked("/servers"), asked("/backends"));
        assert_eq!((servers.0, &servers.2), (200, &backends.2), "{query}");
    }
    let post = |query: &str| ask(at, "POST", &format!("/servers/restore{query}"));
    let (status, _, body) = post("?pool=sessions&server=alpha%3A6379+%C3%A9");
    assert_eq!(status, 200);
    assert!(body.starts_with("server alpha:6379 é of pool sessions is in use again"), "{body}");
    let (status, _, body) = post("?pool=sessions");
    assert_eq!(status, 400);
    assert!(body.contains("`server` is missing") && body.contains("/servers/restore"), "{body}");
    assert_eq!(ask(at, "GET", "/servers/restore").0, 405);
}

#[test]
fn restoring_says_whether_there_was_anything_to_restore() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let query = "/backends/restore?pool=sessions&backend=alpha%3A6379+%C3%A9";
    assert!(ask(admin.local_addr(), "POST", query).2.contains("in use again"));
    let (status, _, body) = ask(admin.local_addr(), "POST", query);
    assert_eq!(status, 200);
    assert!(body.contains("in use already"), "{body}");
}

#[test]
fn killing_a_script_says_what_became_of_it() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let post = |query: &str| ask(admin.local_addr(), "POST", &format!("/scripts/kill{query}"));
    for (query, status, word) in [
        ("?pool=reads", 200, "ends"),
        ("?pool=idle", 200, "runs no script"),
        ("?pool=writes", 409, "has written"),
        ("?pool=else", 404, "no embedded store"),
        ("", 400, "`pool` is missing"),
        ("?pool=reads&force=1", 400, "no parameter `force`"),
    ] {
        let (answered, _, body) = post(query);
        assert!(answered == status && body.contains(word), "{query}: {answered} {body}");
    }
    assert_eq!(ask(admin.local_addr(), "GET", "/scripts/kill?pool=reads").0, 405);
}

#[test]
fn backends_are_listed_as_json_or_as_text() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let get = |target: &str| ask(admin.local_addr(), "GET", target);
    for target in ["/backends", "/backends?format=json"] {
        let (status, head, body) = get(target);
        assert_eq!(status, 200, "{target}");
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(body.contains("\"state\":\"ejected\",\"reason\":\"timeout\""), "{body}");
    }
    let (_, head, body) = get("/backends?format=text");
    assert!(head.contains("content-type: text/plain"), "{head}");
    assert!(body.contains("ejected  timeout"), "{body}");
    let accept = "GET /backends HTTP/1.1\r\nhost: a\r\naccept: text/plain\r\n\r\n";
    let mut stream = connect(admin.local_addr());
    stream.write_all(accept.as_bytes()).expect("it reads");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.contains("ejected  timeout"), "{reply}");
    assert_eq!(get("/backends?format=xml").0, 400);
    assert_eq!(ask(admin.local_addr(), "POST", "/backends").0, 405);
}

#[test]
fn other_paths_list_what_there_is() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    for target in ["/", "/metric", "/metrics/", "/../etc/passwd", "/%00"] {
        let (status, _, body) = ask(admin.local_addr(), "GET", target);
        assert_eq!(status, if target == "/" { 200 } else { 404 }, "{target}");
        for path in ["/metrics", "/healthz", "/readyz", "/backends/restore", "/scripts/kill"] {
            assert!(body.contains(path), "{body}");
        }
    }
}

#[test]
fn head_is_get_without_the_body() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let (status, head, body) = ask(admin.local_addr(), "HEAD", "/healthz");
    assert_eq!((status, body), (200, String::new()));
    assert!(head.contains("content-length: 3"), "{head}");
}

#[test]
fn garbage_harms_its_sender_alone() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let addr = admin.local_addr();
    let long_head = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let many_headers = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    let long_body =
        "POST /backends/restore HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n";
    let inputs: [&[u8]; 8] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        long_head.as_bytes(),
        many_headers.as_bytes(),
        long_body.as_bytes(),
    ];
    for input in inputs {
        let mut stream = connect(addr);
        // The listener may close before it has read everything.
        let _ = stream.write_all(input);
        let _ = stream.shutdown(Shutdown::Write);
        let reply = read_to_end(&mut stream);
        assert!(reply.is_empty() || (400..600).contains(&status(&reply)), "{reply}");
        assert_eq!(ask(addr, "GET", "/healthz").0, 200);
    }
}

#[test]
fn a_request_split_at_any_byte_is_one_request() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    for at in 1..request.len() {
        let mut stream = connect(admin.local_addr());
        stream.set_nodelay(true).expect("no delay");
        stream.write_all(&request[..at]).expect("the listener reads");
        stream.write_all(&request[at..]).expect("the listener reads");
        assert_eq!(status(&read_to_end(&mut stream)), 200);
    }
}

#[test]
fn a_client_that_ends_its_side_still_gets_its_reply() {
    let (admin, _) = start(AdminLimits::default(), State::default());
    let mut stream = connect(admin.local_addr());
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").expect("the listener reads");
    stream.shutdown(Shutdown::Write).expect("half closed");
    assert!(read_to_end(&mut stream).ends_with("ok\n"));
}

#[test]
fn silent_and_slow_clients_lose_their_place() {
    let limits = AdminLimits {
        connections_max: 4,
        header_time: Duration::from_millis(100),
        ..AdminLimits::default()
    };
    let (admin, _) = start(limits, State::default());
    let mut held: Vec<TcpStream> = (0..40).map(|_| connect(admin.local_addr())).collect();
    for stream in held.iter_mut().step_by(2) {
        stream.write_all(b"GET /healthz HTT").expect("the kernel takes it");
    }
    assert_eq!(ask(admin.local_addr(), "GET", "/healthz").0, 200, "served behind 40 idle ones");
    for mut stream in held {
        let reply = read_to_end(&mut stream);
        assert!(reply.is_empty() || status(&reply) == 408, "{reply}");
    }
}

/// Limits under which a connection ends within the time of a test only if it is displaced.
fn only_displacing() -> AdminLimits {
    AdminLimits {
        connections_max: 4,
        header_time: WATCHDOG,
        connection_time: WATCHDOG,
        asking_time: Duration::from_millis(10),
        reading_time: Duration::from_millis(10),
        ..AdminLimits::default()
    }
}

#[test]
fn a_whole_request_is_answered_behind_any_number_of_halves() {
    let (admin, _) = start(only_displacing(), State::default());
    let halves: [&[u8]; 3] = [
        b"",
        b"GET /healthz HTT",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf",
    ];
    let mut held = Vec::new();
    for nth in 0..60 {
        let mut stream = connect(admin.local_addr());
        stream.write_all(halves[nth % 3]).expect("the kernel takes it");
        held.push(stream);
        if nth % 6 == 5 {
            assert_eq!(ask(admin.local_addr(), "GET", "/healthz").0, 200);
        }
    }
}

#[test]
fn a_whole_request_is_answered_behind_replies_that_nobody_reads() {
    let (admin, _) = start(only_displacing(), State { padding: 16 << 20, ..State::default() });
    let ask_metrics = |_| {
        let mut stream = connect(admin.local_addr());
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").expect("the kernel takes it");
        stream
    };
    let _held: Vec<TcpStream> = (0..8).map(ask_metrics).collect();
    assert_eq!(ask(admin.local_addr(), "GET", "/healthz").0, 200);
}

#[test]
fn a_client_that_does_not_read_its_reply_is_cut_off() {
    let limits = AdminLimits {
        connections_max: 1,
        connection_time: Duration::from_millis(200),
        ..AdminLimits::default()
    };
    // This is far more than the socket buffers of both sides hold.
    let (admin, _) = start(limits, State { padding: 64 << 20, ..State::default() });
    let mut reader = connect(admin.local_addr());
    reader.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").expect("the listener reads");
    assert_eq!(ask(admin.local_addr(), "GET", "/healthz").0, 200, "the only place is free again");
    assert!(read_to_end(&mut reader).len() < 64 << 20);
}

#[test]
fn many_clients_at_once_are_all_served() {
    // No connection may be displaced, however slow this machine is.
    let limits = AdminLimits { asking_time: WATCHDOG, ..AdminLimits::default() };
    let (admin, _) = start(limits, State::default());
    let addr = admin.local_addr();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(move || {
                (0..20).for_each(|_| assert_eq!(ask(addr, "GET", "/readyz").0, 200))
            });
        }
    });
    // There are more connections than places, and as many as the kernel's queue of 128 surely holds
    // besides.
    let mut open: Vec<TcpStream> = (0..150).map(|_| connect(addr)).collect();
    for stream in &mut open {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").expect("the kernel takes it");
    }
    assert!(open.iter_mut().all(|stream| status(&read_to_end(stream)) == 200));
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = Admin::start(&address, Arc::new(State::default())).expect_err("it is taken");
    assert!(matches!(error, AdminError::Bind { .. }));
    let text = error.to_string();
    assert!(text.contains(&address) && text.contains("another process"), "{text}");
}

#[test]
fn an_address_that_is_none_is_an_error_with_a_hint() {
    for address in ["nonsense", "127.0.0.1:70000", "192.0.2.1:9180"] {
        let error = Admin::start(address, Arc::new(State::default())).expect_err("no such address");
        let text = error.to_string();
        assert!(text.contains(address) && text.contains("127.0.0.1"), "{text}");
    }
}

#[test]
fn stopping_frees_the_port_and_ends_every_connection() {
    let (admin, _) = start(
        AdminLimits { stop_time: Duration::from_millis(100), ..AdminLimits::default() },
        State::default(),
    );
    let addr = admin.local_addr();
    let mut silent = connect(addr);
    let mut halfway = connect(addr);
    halfway.write_all(b"GET /healthz HTT").expect("the kernel takes it");
    assert_eq!(ask(addr, "GET", "/healthz").0, 200);
    admin.stop();
    assert_eq!(read_to_end(&mut silent), "");
    assert_eq!(read_to_end(&mut halfway), "");
    let again = Admin::start(&addr.to_string(), Arc::new(State::default()));
    assert_eq!(again.expect("the port is free").local_addr(), addr);
}

#[test]
fn stopping_finishes_a_reply_under_way() {
    let (admin, _) = start(
        AdminLimits { stop_time: WATCHDOG, ..AdminLimits::default() },
        State { padding: 16 << 20, ..State::default() },
    );
    let mut stream = connect(admin.local_addr());
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").expect("the listener reads");
    let mut first = [0; 17];
    stream.read_exact(&mut first).expect("the reply begins");
    std::thread::scope(|scope| {
        scope.spawn(move || admin.stop());
        assert!(read_to_end(&mut stream).len() > 16 << 20);
    });
}

/// A process whose requests that take long have no end.
#[derive(Default)]
struct Stuck {
    is_asked: AtomicBool,
}

impl AdminState for Stuck {
    fn metrics(&self, _out: &mut String) {}

    fn draining(&self) -> bool {
        false
    }

    fn not_ready(&self) -> Vec<String> {
        Vec::new()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    fn restore_backend(&self, _pool: &str, _backend: &str) -> Result<bool, String> {
        Err(String::new())
    }

    fn kill_script(&self, _pool: &str) -> Result<ScriptKill, String> {
        Err(String::new())
    }

    fn api(&self) -> Option<&dyn Api> {
        self.is_asked.store(true, Relaxed);
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn the_end_of_the_listener_does_not_wait_for_a_request_that_takes_long() {
    let state = Arc::new(Stuck::default());
    let shared: Arc<dyn AdminState> = state.clone();
    let handle = Admin::start("127.0.0.1:0", shared).expect("a free port");
    let mut client = connect(handle.local_addr());
    let request = b"POST /v1/reload HTTP/1.1\r\nHost: 127.0.0.1\r\nKeyway-Change: 1\r\n\r\n";
    client.write_all(request).expect("the listener reads");
    keyway_testkit::wait_until("it is asked", WATCHDOG, || state.is_asked.load(Relaxed));
    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(handle);
        let _ = end.send(());
    });
    ended.recv_timeout(WATCHDOG).expect("the listener has ended");
    drop(client);
}
