//! A new ring of memcached servers is warmed up from an old one: no existing item is missed, and no
//! item comes back that a client has removed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use keyway_testkit::{
    Keyway, Process, TempDir, free_address, skipped_for_want_of, tool_is_installed, wait_for,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

struct Memcached {
    process: Process,
    address: SocketAddr,
    _directory: TempDir,
}

impl Memcached {
    fn start() -> Memcached {
        let (directory, address) = (TempDir::new(), free_address());
        let mut command = Command::new("memcached");
        let port = address.port().to_string();
        command.args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "1", "-u", "nobody"]);
        let mut process = Process::spawn("memcached", &mut command, directory.path());
        process.wait_ready(WITHIN, || TcpStream::connect(address).is_ok());
        Memcached { process, address, _directory: directory }
    }

    fn many(count: usize) -> Vec<Memcached> {
        (0..count).map(|_| Memcached::start()).collect()
    }

    fn ask(&self, request: &str) -> String {
        Client::connect(self.address).ask(request)
    }
}

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = wait_for("a connection", WITHIN, || TcpStream::connect(address).ok());
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        Client(stream)
    }

    /// Returns the replies to some lines: everything before the reply to a no-operation.
    fn ask(&mut self, request: &str) -> String {
        self.0.write_all(format!("{request}mn\r\n").as_bytes()).unwrap();
        let (mut said, mut room) = (Vec::new(), [0; 16 << 10]);
        while !said.ends_with(b"MN\r\n") {
            let len = match self.0.read(&mut room) {
                // A read with a timeout ends so when the process was stopped for a moment.
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.expect("a reply in time"),
            };
            assert!(len > 0, "closed after {}", said.escape_ascii());
            said.extend_from_slice(&room[..len]);
        }
        said.truncate(said.len() - 4);
        String::from_utf8(said).unwrap()
    }

    fn warm(&mut self, name: &str) -> u64 {
        let told = self.ask("stats warm\r\n");
        let value = told.lines().find_map(|line| line.strip_prefix(&format!("STAT warm_{name} ")));
        let value = value.unwrap_or_else(|| panic!("no {name} in {told}"));
        value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
    }
}

/// A proxy with the pools `old` and `new`, each with a listener.
struct Proxy {
    _keyway: Keyway,
    old: SocketAddr,
    new: SocketAddr,
}

impl Proxy {
    fn start(
        (old, old_settings): (&[&Memcached], &str),
        (new, new_settings): (&[&Memcached], &str),
    ) -> Proxy {
        let mut text = String::new();
        let (old_at, new_at) = (free_address(), free_address());
        for (name, at) in [("old", old_at), ("new", new_at)] {
            let _ = write!(
                text,
                "[[listener]]\nbind = \"tcp://{at}\"\nprotocol = \"memcached\"\npool = \"{name}\"\n"
            );
        }
        for (name, servers, settings) in [
            ("old", old, old_settings.to_owned()),
            ("new", new, format!("warm_from = \"old\"\n{new_settings}")),
        ] {
            let lines: Vec<String> =
                servers.iter().map(|server| format!("\"{}:1\"", server.address)).collect();
            let _ = write!(
                text,
                "[pool.{name}]\nkind = \"memcached\"\nservers = [{}]\n{settings}\n",
                lines.join(", ")
            );
        }
        let keyway = Keyway::start_text(KEYWAY, &text, Vec::new());
        for at in [old_at, new_at] {
            wait_until("the proxy to answer", WITHIN, || is_answering(at));
        }
        Proxy { _keyway: keyway, old: old_at, new: new_at }
    }

    fn old_client(&self) -> Client {
        Client::connect(self.old)
    }

    fn client(&self) -> Client {
        Client::connect(self.new)
    }
}

fn is_answering(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut said = [0; 4];
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(b"mn\r\n").is_ok() && stream.read_exact(&mut said).is_ok()
}

fn is_missing() -> bool {
    let is_missing = !tool_is_installed("memcached");
    if is_missing {
        skipped_for_want_of("memcached", "warming up a ring of memcached servers");
    }
    is_missing
}

fn set(client: &mut Client, key: &str, flags: u32, value: &str) {
    let len = value.len();
    let said = client.ask(&format!("set {key} {flags} 0 {len}\r\n{value}\r\n"));
    assert_eq!(said, "STORED\r\n", "{key}");
}

fn item(key: &str, flags: u32, value: &str) -> String {
    format!("VALUE {key} {flags} {}\r\n{value}\r\n", value.len())
}

#[test]
fn a_ring_that_grows_by_a_server_misses_nothing() {
    let _watchdog = watchdog(Duration::from_secs(120), "a ring that grows");
    if is_missing() {
        return;
    }
    const KEYS: usize = 2000;
    let servers = Memcached::many(4);
    let all: Vec<&Memcached> = servers.iter().collect();
    let proxy = Proxy::start((&all[..3], ""), (&all, ""));
    let (mut old, mut new) = (proxy.old_client(), proxy.client());
    let keys: Vec<String> = (0..KEYS).map(|number| format!("{number}:one-of-many-keys")).collect();
    let value = |key: &str| format!("value of {key}");
    for key in &keys {
        set(&mut old, key, 5, &value(key));
    }
    for key in &keys[..KEYS / 2] {
        let said = new.ask(&format!("get {key}\r\n"));
        assert_eq!(said, item(key, 5, &value(key)) + "END\r\n");
    }
    for some in keys[KEYS / 2..].chunks(50) {
        let expected: String = some.iter().map(|key| item(key, 5, &value(key))).collect();
        assert_eq!(new.ask(&format!("get {}\r\n", some.join(" "))), expected + "END\r\n");
    }
    let moved = new.warm("fills");
    let quarter = KEYS as f64 / 4.0;
    assert!((moved as f64 - quarter).abs() < quarter * 0.35, "{moved} keys of {KEYS} moved");
    assert_eq!((new.warm("lookups"), new.warm("old_hits")), (moved, moved));
    let held: u64 = servers.iter().map(|server| figure(server, "curr_items")).sum();
    assert_eq!(held, KEYS as u64, "each key is in one place");
    assert_eq!(figure(&servers[3], "curr_items"), moved);
    for key in &keys {
        assert_eq!(new.ask(&format!("get {key}\r\n")), item(key, 5, &value(key)) + "END\r\n");
    }
    assert_eq!((new.warm("fills"), new.warm("new_hits")), (moved, moved));
    assert_eq!(new.ask("get nowhere none\r\n"), "END\r\n");
}

fn figure(server: &Memcached, name: &str) -> u64 {
    let told = server.ask("stats\r\n");
    let value = told.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    value.unwrap().parse().unwrap()
}

#[test]
fn the_time_left_is_kept_where_it_can_be_asked_for_and_bounded_elsewhere() {
    let _watchdog = watchdog(Duration::from_secs(60), "the time left");
    if is_missing() {
        return;
    }
    let left = |client: &mut Client, key: &str| -> i64 {
        let said = client.ask(&format!("mg {key} t\r\n"));
        let left = said.trim_end().strip_prefix("HD t").unwrap_or_else(|| panic!("{key}: {said}"));
        left.parse().unwrap()
    };
    for (settings, ages) in [("", true), ("server_protocol = \"text\"", false)] {
        let (a, b) = (Memcached::start(), Memcached::start());
        let proxy = Proxy::start((&[&a], settings), (&[&b], "warm_ttl_max = \"5m\""));
        let mut new = proxy.client();
        a.ask("set brief 0 100 1\r\na\r\nset long 0 2000000 1\r\na\r\nset ever 0 0 1\r\na\r\n");
        let told = ["brief", "long", "ever"].map(|key| left(&mut new, key));
        match ages {
            true => {
                assert!((80..=100).contains(&told[0]), "{told:?}");
                assert!((1_999_900..=2_000_000).contains(&told[1]), "{told:?}");
                assert!(told[2] == -1, "{told:?}");
            }
            false => assert!(told.iter().all(|left| (280..=300).contains(left)), "{told:?}"),
        }
    }
}

#[test]
fn what_clients_get_and_change_is_the_new_pools() {
    let _watchdog = watchdog(Duration::from_secs(60), "what clients get");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    let proxy = Proxy::start((&[&a], ""), (&[&b], ""));
    let mut new = proxy.client();
    a.ask("set seen 3 0 1\r\n5\r\n");
    let said = new.ask("gets seen\r\n");
    let number = said.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(new.ask(&format!("cas seen 3 0 1 {number}\r\n6\r\n")), "STORED\r\n");
    let cases: BTreeMap<&str, (&str, &str)> = [
        ("incr k 2\r\n", ("7\r\n", "7")),
        ("decr k 2\r\n", ("3\r\n", "3")),
        ("append k 0 0 1\r\n1\r\n", ("STORED\r\n", "51")),
        ("prepend k 0 0 1\r\n1\r\n", ("STORED\r\n", "15")),
        ("replace k 0 0 1\r\n9\r\n", ("STORED\r\n", "9")),
        ("add k 0 0 1\r\n9\r\n", ("NOT_STORED\r\n", "5")),
        ("touch k 0\r\n", ("TOUCHED\r\n", "5")),
        ("set k 0 0 1\r\n9\r\n", ("STORED\r\n", "9")),
        ("set k 0 0 1 noreply\r\n9\r\n", ("", "9")),
        ("incr k 2 noreply\r\n", ("", "7")),
        ("gat 0 k\r\n", ("VALUE k 0 1\r\n5\r\nEND\r\n", "5")),
        ("ma k N0 J9 v\r\n", ("VA 1\r\n6\r\n", "6")),
        ("mg k N30 v\r\n", ("VA 1\r\n5\r\n", "5")),
        ("mg k k v Oq\r\n", ("VA 1 kk Oq\r\n5\r\n", "5")),
        ("ms k 1 T0\r\n8\r\n", ("HD\r\n", "8")),
        ("delete k\r\n", ("DELETED\r\n", "")),
        ("delete k noreply\r\n", ("", "")),
        ("md k\r\n", ("HD\r\n", "")),
        ("md k q\r\n", ("", "")),
    ]
    .into();
    for (request, (reply, value)) in cases {
        b.ask("delete k\r\n");
        a.ask("set k 0 0 1\r\n5\r\n");
        let expected = match value {
            "" => "END\r\n".to_owned(),
            value => item("k", 0, value) + "END\r\n",
        };
        assert_eq!(
            new.ask(&format!("{request}get k\r\n")),
            format!("{reply}{expected}"),
            "{request}"
        );
        assert_eq!(b.ask("get k\r\n"), expected, "{request}");
        assert_eq!(a.ask("get k\r\n"), "END\r\n", "the old one is gone after {request}");
    }
}

#[test]
fn servers_of_every_protocol_are_warmed_up_from_every_other() {
    let _watchdog = watchdog(Duration::from_secs(120), "every protocol");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    for old in ["meta", "text", "binary"] {
        for to in ["meta", "text", "binary"] {
            let setting = |protocol: &str| format!("server_protocol = {protocol:?}");
            let proxy = Proxy::start((&[&a], &setting(old)), (&[&b], &setting(to)));
            let mut new = proxy.client();
            a.ask("flush_all\r\nset k 7 0 3\r\none\r\nset l 8 0 3\r\ntwo\r\nset n 0 0 1\r\n1\r\n");
            b.ask("flush_all\r\n");
            let which = format!("from {old} to {to}");
            let both = item("k", 7, "one") + &item("l", 8, "two") + "END\r\n";
            assert_eq!(new.ask("get k m l\r\n"), both, "{which}");
            assert_eq!(
                new.ask("incr n 4\r\nget n\r\n"),
                "5\r\nVALUE n 0 1\r\n5\r\nEND\r\n",
                "{which}"
            );
            assert_eq!(a.ask("get k l n\r\n"), "END\r\n", "{which}");
            assert_eq!(b.ask("get k l\r\n"), both, "{which}");
            assert_eq!(new.warm("fills"), 3, "{which}");
            a.ask("set k 7 0 3\r\none\r\n");
            assert_eq!(new.ask("delete k\r\nget k\r\n"), "DELETED\r\nEND\r\n", "{which}");
        }
    }
}

#[test]
fn nothing_survives_a_write_that_was_answered() {
    let _watchdog = watchdog(Duration::from_secs(240), "races of fills and writes");
    if is_missing() {
        return;
    }
    const ROUNDS: usize = 400;
    let (a, b) = (Memcached::start(), Memcached::start());
    for protocol in ["meta", "text", "binary"] {
        let setting = format!("server_protocol = {protocol:?}");
        let proxies = [0, 1].map(|_| Proxy::start((&[&a], &setting), (&[&b], &setting)));
        let (mut direct_a, mut direct_b) = (Client::connect(a.address), Client::connect(b.address));
        let mut readers: Vec<Client> = (0..4).map(|number| proxies[number % 2].client()).collect();
        let mut writer = proxies[1].client();
        for round in 0..ROUNDS {
            let key = format!("{protocol}:{round}");
            assert_eq!(direct_a.ask(&format!("set {key} 0 0 3\r\nold\r\n")), "STORED\r\n");
            let deletes = round % 2 == 0;
            let write = match deletes {
                true => format!("delete {key}\r\n"),
                false => format!("set {key} 0 0 3\r\nnew\r\n"),
            };
            std::thread::scope(|scope| {
                for reader in &mut readers {
                    let read = format!("get {key}\r\n");
                    scope.spawn(move || {
                        let said = reader.ask(&read);
                        assert!(said.ends_with("END\r\n"), "{said}");
                    });
                }
                let writer = &mut writer;
                scope.spawn(move || {
                    (0..round % 7).for_each(|_| std::thread::yield_now());
                    let said = writer.ask(&write);
                    assert!(!said.contains("ERROR"), "{said}");
                });
            });
            let expected = match deletes {
                true => "END\r\n".to_owned(),
                false => item(&key, 0, "new") + "END\r\n",
            };
            assert_eq!(direct_b.ask(&format!("get {key}\r\n")), expected, "{key}");
            assert_eq!(direct_a.ask(&format!("get {key}\r\n")), "END\r\n", "{key}");
        }
    }
}

#[test]
fn many_readers_of_one_key_lose_nothing_between_them() {
    let _watchdog = watchdog(Duration::from_secs(120), "many readers of one key");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    let proxies = [0, 1].map(|_| Proxy::start((&[&a], ""), (&[&b], "")));
    let mut readers: Vec<Client> = (0..4).map(|number| proxies[number % 2].client()).collect();
    for round in 0..300 {
        let key = format!("k{round}");
        a.ask(&format!("set {key} 0 0 3\r\nold\r\n"));
        std::thread::scope(|scope| {
            for reader in &mut readers {
                let key = &key;
                scope.spawn(move || {
                    let said = reader.ask(&format!("get {key}\r\n"));
                    assert_eq!(said, item(key, 0, "old") + "END\r\n");
                });
            }
        });
        assert_eq!(b.ask(&format!("get {key}\r\n")), item(&key, 0, "old") + "END\r\n");
    }
}

#[test]
fn an_old_pool_that_is_dead_fails_no_read() {
    let _watchdog = watchdog(Duration::from_secs(60), "a dead old pool");
    if is_missing() {
        return;
    }
    let (mut a, b) = (Memcached::start(), Memcached::start());
    let ejection = "ejection = { after_failures = 3, for = \"1h\", rejoin = \"flush\" }";
    let proxy = Proxy::start((&[&a], ejection), (&[&b], ""));
    let mut new = proxy.client();
    set(&mut new, "here", 0, "1");
    a.process.kill();
    wait_until("the old pool to be found dead", WITHIN, || {
        assert_eq!(
            new.ask("get gone\r\nget gone here\r\n"),
            format!("END\r\n{}END\r\n", item("here", 0, "1"))
        );
        new.warm("old_errors") > 2
    });
    // Writes fail while Keyway does not know whether the server has older values, and no longer.
    wait_until("writes to go on", WITHIN, || {
        let said = new.ask("set fresh 0 0 1\r\n2\r\n");
        assert!(said == "STORED\r\n" || said.starts_with("SERVER_ERROR"), "{said}");
        said == "STORED\r\n"
    });
    assert_eq!(new.ask("get fresh\r\n"), item("fresh", 0, "2") + "END\r\n");
}

#[test]
fn a_write_fails_whose_old_value_may_come_back() {
    let _watchdog = watchdog(Duration::from_secs(60), "a write without the old pool");
    if is_missing() {
        return;
    }
    let (mut a, b) = (Memcached::start(), Memcached::start());
    let proxy = Proxy::start((&[&a], ""), (&[&b], ""));
    let mut new = proxy.client();
    set(&mut new, "here", 0, "1");
    a.process.kill();
    for request in ["delete here\r\n", "set here 0 0 1\r\n2\r\n", "incr here 1\r\n"] {
        let said = new.ask(request);
        assert!(said.starts_with("SERVER_ERROR"), "{request}: {said}");
    }
    assert_eq!(new.ask("get here\r\n"), item("here", 0, "1") + "END\r\n");
}

#[test]
fn it_ends_when_its_time_is_over() {
    let _watchdog = watchdog(Duration::from_secs(60), "the end of a warm-up");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    let proxy = Proxy::start((&[&a], ""), (&[&b], "warm_for = \"3s\""));
    let mut new = proxy.client();
    a.ask("set k 0 0 1\r\n1\r\nset l 0 0 1\r\n1\r\n");
    assert_eq!(new.ask("get k\r\n"), item("k", 0, "1") + "END\r\n");
    wait_until("the end", WITHIN, || new.warm("active") == 0);
    assert_eq!(new.ask("get k l\r\n"), item("k", 0, "1") + "END\r\n");
    assert_eq!(new.warm("lookups"), 1);
}

#[test]
fn both_pools_are_emptied_together() {
    let _watchdog = watchdog(Duration::from_secs(60), "flush_all");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    let proxy = Proxy::start((&[&a], ""), (&[&b], "allow_flush = true"));
    let mut new = proxy.client();
    a.ask("set k 0 0 1\r\n1\r\n");
    set(&mut new, "l", 0, "1");
    assert_eq!(new.ask("flush_all\r\nget k l\r\n"), "OK\r\nEND\r\n");
    assert_eq!(a.ask("get k\r\n"), "END\r\n");
}

#[test]
fn a_write_is_done_though_its_client_leaves() {
    let _watchdog = watchdog(Duration::from_secs(60), "clients that leave");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    let proxy = Proxy::start((&[&a], ""), (&[&b], ""));
    for number in 0..50 {
        b.ask("set k 0 0 1\r\n1\r\nset l 0 0 1\r\n1\r\n");
        let mut leaving = proxy.client();
        leaving.0.write_all(b"delete k noreply\r\n").unwrap();
        if number % 2 == 0 {
            leaving.0.write_all(b"delete l\r\nquit\r\n").unwrap();
        }
        drop(leaving);
        let expected =
            if number % 2 == 0 { "END\r\n".to_owned() } else { item("l", 0, "1") + "END\r\n" };
        wait_until("the deletes", WITHIN, || b.ask("get k l\r\n") == expected);
    }
}

#[test]
fn a_pipeline_is_answered_in_its_order() {
    let _watchdog = watchdog(Duration::from_secs(60), "a pipeline");
    if is_missing() {
        return;
    }
    let (a, b) = (Memcached::start(), Memcached::start());
    let proxy = Proxy::start((&[&a], ""), (&[&b], ""));
    let mut new = proxy.client();
    let (mut requests, mut replies) = (String::new(), String::new());
    for number in 0..200 {
        a.ask(&format!("set k{number} 0 0 1\r\n1\r\n"));
        let _ = write!(
            requests,
            "get k{number}\r\nincr k{number} 1\r\nset k{number} 0 0 1 noreply\r\n7\r\nget k{number} x\r\ndelete k{number}\r\nget k{number}\r\n"
        );
        let _ = write!(
            replies,
            "VALUE k{number} 0 1\r\n1\r\nEND\r\n2\r\nVALUE k{number} 0 1\r\n7\r\nEND\r\nDELETED\r\nEND\r\n"
        );
    }
    assert_eq!(new.ask(&requests), replies);
}

#[test]
fn a_value_that_is_refused_for_its_length_is_forgotten_in_both_pools() {
    const TOO_LONG: usize = (1 << 20) + 1;
    let _watch = watchdog(Duration::from_secs(60), "refused values while warming up");
    if is_missing() {
        return;
    }
    let servers = Memcached::many(2);
    let proxy = Proxy::start((&[&servers[0]], ""), (&[&servers[1]], ""));
    assert_eq!(proxy.old_client().ask("set k 0 0 1\r\n1\r\n"), "STORED\r\n");
    let value = "v".repeat(TOO_LONG);
    let told = proxy.client().ask(&format!("set k 0 0 {TOO_LONG}\r\n{value}\r\n"));
    assert_eq!(told, "SERVER_ERROR object too large for cache\r\n");
    assert_eq!(proxy.client().ask("get k\r\n"), "END\r\n");
    assert_eq!(servers[0].ask("get k\r\n"), "END\r\n");
}
