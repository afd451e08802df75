//! `keyway bus` as processes: a tree over shared memory and TCP, questions to it, and nodes that
//! die or leave in order.

// Tests wait under a watchdog.
#![allow(clippy::disallowed_methods)]

use keyway_bus::{Settings, Stamp};
use keyway_channel::{Driver, DriverSettings, clock, here};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A node, the lines it has printed so far, and its output.
struct Node {
    child: Child,
    lines: Receiver<String>,
}

struct Scratch(std::path::PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("keyway-bus-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("token"), "a token for these processes\n").unwrap();
        std::fs::write(path.join("other"), "another token, not theirs\n").unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Starts a node with this file and the token.
    fn node(&self, name: &str, text: &str) -> Node {
        let file = self.path(name);
        let text = format!("token_files = [\"{}\"]\n{text}", self.path("token"));
        std::fs::write(&file, text).unwrap();
        spawn(&file)
    }
}

fn spawn(file: &str) -> Node {
    let mut node = keyway();
    node.args(["bus", "node", file]);
    started(node)
}

fn started(mut command: Command) -> Node {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (tell, lines) = channel();
    let output = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    Node { child, lines }
}

impl Node {
    /// Waits for a line that begins with `start`, under a watchdog.
    fn line(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(10));
            let line = line.unwrap_or_else(|_| panic!("it does not print {start}"));
            if line.starts_with(start) {
                return line;
            }
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keyway() -> Command {
    Command::new(env!("CARGO_BIN_EXE_keyway"))
}

fn ask(scratch: &Scratch, at: &str, token: &str, arguments: &[&str]) -> Output {
    let token = scratch.path(token);
    let mut command = keyway();
    command.args(["bus", arguments[0], "--at", at, "--token-file", &token, "--within", "5"]);
    command.args(&arguments[1..]).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_tree_of_processes_answers_and_hears_of_deaths() {
    let scratch = Scratch::new("tree");
    let rings = scratch.path("rings");
    let listen =
        format!("id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\", \"shm://{rings}\"]\n");
    let root = scratch.node("root.toml", &listen);
    let ready = root.line("ready z1.control.0.1 tcp://127.0.0.1:");
    let tcp = ready.split(' ').nth(2).unwrap().to_owned();
    let below = |instance: u32, urls: &str| {
        format!(
            "id = \"z1.proxy.0.{instance}\"\nlabels = {{ rack = \"b{instance}\" }}\n\
             [[upstream]]\nid = \"z1.control.0.1\"\nurls = [{urls}]\n"
        )
    };
    let one = scratch.node("one.toml", &below(1, &format!("\"shm://{rings}\"")));
    let two = scratch.node("two.toml", &below(2, &format!("\"{tcp}\"")));
    one.line("upstream z1.control.0.1");
    two.line("upstream z1.control.0.1");
    root.line("joined z1.proxy.0.");
    root.line("joined z1.proxy.0.");

    let tree = text(&ask(&scratch, &tcp, "token", &["tree"]));
    assert!(tree.contains("z1.proxy.0.1 z1.control.0.1 rack=b1\n"), "{tree}");
    assert!(tree.contains("z1.proxy.0.2 z1.control.0.1 rack=b2\n"), "{tree}");
    let sent = text(&ask(
        &scratch,
        &format!("shm://{rings}"),
        "token",
        &["send", "z1.proxy.0.2", "hello"],
    ));
    assert!(sent.starts_with("arrived at z1.proxy.0.2 after "), "{sent}");
    assert!(two.line("message z1.guest.").ends_with(" hello"));
    let pongs = text(&ask(&scratch, &tcp, "token", &["ping", "z1.proxy.0.1", "--count", "3"]));
    assert_eq!(pongs.lines().filter(|line| line.starts_with("pong from z1.proxy.0.1")).count(), 3);
    let stats = text(&ask(&scratch, &tcp, "token", &["stats"]));
    assert!(stats.contains("\nrelayed "), "{stats}");

    let nobody = ask(&scratch, &tcp, "token", &["send", "z9.proxy.0.9", "hello"]);
    let told = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(
        !nobody.status.success() && told.contains("z1.control.0.1 says: no node of that id"),
        "{told}"
    );
    let stranger = ask(&scratch, &tcp, "other", &["tree"]);
    let told = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(
        !stranger.status.success() && told.contains("no token of the other node is one of ours"),
        "{told}"
    );

    one.signal("KILL");
    assert_eq!(root.line("lost z1.proxy.0.1"), "lost z1.proxy.0.1: the connection ended");
    two.signal("TERM");
    assert_eq!(root.line("lost z1.proxy.0.2"), "lost z1.proxy.0.2: the node is leaving the bus");
    let mut two = two;
    assert!(two.child.wait().unwrap().success());
}

#[test]
fn a_stopped_process_is_given_up_after_three_heartbeats_and_comes_back() {
    let scratch = Scratch::new("stop");
    let root = scratch.node(
        "root.toml",
        "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\nheartbeat = \"100ms\"\n",
    );
    let ready = root.line("ready");
    let tcp = ready.split(' ').nth(2).unwrap();
    let below = format!("id = \"z1.proxy.0.1\"\n[[upstream]]\nurls = [\"{tcp}\"]\n");
    let one = scratch.node("one.toml", &below);
    root.line("joined z1.proxy.0.1");
    one.signal("STOP");
    assert_eq!(root.line("lost"), "lost z1.proxy.0.1: nothing was heard for three heartbeats");
    one.signal("CONT");
    root.line("joined z1.proxy.0.1");
}

#[test]
fn mistakes_in_the_file_are_told_with_their_lines() {
    let scratch = Scratch::new("mistakes");
    let file = scratch.path("node.toml");
    std::fs::write(&file, "id = \"z1.webb.0.1\"\nlissten = []\n").unwrap();
    let output = keyway().args(["bus", "node", &file]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(told.contains("node.toml:1: ") && told.contains("did you mean listen?"), "{told}");
}

#[test]
fn a_reader_that_goes_is_no_panic() {
    let scratch = Scratch::new("reader");
    let root =
        scratch.node("root.toml", "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n");
    let ready = root.line("ready z1.control.0.1 tcp://127.0.0.1:");
    let tcp = ready.split(' ').nth(2).unwrap();
    let token = scratch.path("token");
    let mut asker = keyway()
        .args(["bus", "stats", "--at", tcp, "--token-file", &token])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(asker.stdout.take());
    let output = asker.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn fails(arguments: &[&str]) -> (Option<i32>, String) {
    let output = keyway().args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn each_way_of_not_joining_says_what_it_is() {
    let scratch = Scratch::new("unreached");
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("tcp://{}", listener.local_addr().unwrap())
    };
    let redis = keyway_testkit::RedisServer::start();
    let other = format!("tcp://127.0.0.1:{}", redis.port());
    let root =
        scratch.node("root.toml", "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n");
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let told = |urls: &[&str], token: &str| {
        let (file, mut arguments) = (scratch.path(token), vec!["bus", "tree"]);
        urls.iter().for_each(|url| arguments.extend(["--at", *url]));
        arguments.extend(["--token-file", &file]);
        let start = std::time::Instant::now();
        let (code, told) = fails(&arguments);
        assert!(start.elapsed() < Duration::from_secs(5), "it waits in vain: {told}");
        (code, told)
    };
    let (code, text) = told(&[&closed], "token");
    assert!(code == Some(1) && text.contains(&format!("{closed}: nobody listens")), "{text}");
    let (_, text) = told(&[&other], "token");
    assert!(text.contains("no node of the bus") || text.contains("no answer from"), "{text}");
    let (_, text) = told(&[&tcp], "other");
    assert!(text.contains("--token-file"), "{text}");
    // All wrong addresses are reported, and a right one behind them is found.
    let (_, text) = told(&[&closed, &tcp], "other");
    assert!(text.contains("nobody listens") && text.contains("no token"), "{text}");
    let (code, text) = told(&[&closed, &other, &tcp], "token");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_done() {
    let (code, text) = fails(&["bus", "ping", "--at", "tcp://127.0.0.1:1", "--count", "0"]);
    assert!(code == Some(2) && text.contains("--count"), "{text}");
    let (code, text) = fails(&["bus", "ping", "--at", "tcp://127.0.0.1:1", "--within", "0"]);
    assert!(code == Some(2) && text.contains("--within"), "{text}");
    let (code, text) = fails(&["bus", "tree", "--at", "tcp://127.0.0.1:1", "--ca-file", "/ca"]);
    assert!(code == Some(2) && text.contains("--cert-file"), "{text}");
    let start = std::time::Instant::now();
    let (code, text) = fails(&["bus", "bench", "--seconds", "60", "--json", "/nodir/x"]);
    assert!(code == Some(1) && text.contains("/nodir/x"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_address_that_is_taken_says_so() {
    let scratch = Scratch::new("taken");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = format!("tcp://{}", listener.local_addr().unwrap());
    let file = scratch.path("node.toml");
    std::fs::write(&file, format!("id = \"z1.proxy.0.1\"\nopen = true\nlisten = [\"{at}\"]\n"))
        .unwrap();
    let (code, text) = fails(&["bus", "node", &file]);
    assert!(code == Some(1) && text.contains(&at) && text.contains("does this node run"), "{text}");
}

#[test]
fn keyway_check_knows_the_file_of_a_node() {
    let scratch = Scratch::new("check");
    let file = scratch.path("node.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        fails(&["check", &file])
    };
    let (code, text) = check("id = \"z1.proxy.0.1\"\nopen = true\n");
    assert!(code == Some(0) && text.contains("a node of the bus, no errors"), "{text}");
    let (code, text) = check("open = true\nid = \"z1.proxy\"\nlisten = [\"x://\"]\nadmin = 7\n");
    let has = |line: &str| text.contains(&format!("node.toml:{line}:"));
    assert!(code == Some(2) && has("2") && has("3") && has("4"), "{text}");
    assert!(text.contains("3 errors"), "{text}");
}

#[test]
fn topics_are_published_by_a_command_and_watched() {
    let scratch = Scratch::new("topics");
    let listen = "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\npublish = true\n";
    let root = scratch.node("root.toml", listen);
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let below = format!(
        "id = \"z1.proxy.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n[[upstream]]\nurls = [\"{tcp}\"]\n"
    );
    let one = scratch.node("one.toml", &below);
    let one_at = one.line("ready").split(' ').nth(2).unwrap().to_owned();
    one.line("upstream z1.control.0.1");
    let body = scratch.path("body");
    std::fs::write(&body, "pool = 1").unwrap();
    let publish = |at: &str, more: &[&str]| {
        let mut arguments = vec!["publish", "pools", &body];
        arguments.extend(more);
        ask(&scratch, at, "token", &arguments)
    };
    assert_eq!(text(&publish(&tcp, &[])), "pools 1 1\n");
    one.line("push pools 1 1 8 bytes");
    std::fs::write(&body, "pool = 2").unwrap();
    assert_eq!(text(&publish(&tcp, &[])), "pools 1 2\n");
    one.line("push pools 1 2 8 bytes");
    assert_eq!(
        text(&publish(&one_at, &["--node", "z1.control.0.1", "--epoch", "7"])),
        "pools 7 1\n"
    );
    one.line("push pools 7 1 8 bytes");
    let told = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let stale = told(publish(&tcp, &["--epoch", "6"]));
    assert!(stale.contains("at least as new"), "{stale}");
    let refused = told(publish(&one_at, &[]));
    assert!(refused.contains("publish = true"), "{refused}");
    let watched = ask(&scratch, &one_at, "token", &["watch", "pools", "--body", "--count", "1"]);
    assert_eq!(text(&watched), "pools 7 1 8\npool = 2\n");
    let topics = text(&ask(&scratch, &tcp, "token", &["topics"]));
    assert!(topics.starts_with("topic pools 7 1 8 z1.control.0.1\n"), "{topics}");
}

/// Returns bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) as u8).collect()
}

#[test]
fn a_long_topic_is_published_by_a_command_through_a_relay() {
    let scratch = Scratch::new("long");
    let listen = "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\npublish = true\n";
    let root = scratch.node("root.toml", listen);
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let below = format!(
        "id = \"z1.proxy.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n[[upstream]]\nurls = [\"{tcp}\"]\n"
    );
    let one = scratch.node("one.toml", &below);
    let one_at = one.line("ready").split(' ').nth(2).unwrap().to_owned();
    one.line("upstream z1.control.0.1");
    let (file, len) = (scratch.path("body"), 20 << 20);
    std::fs::write(&file, noise(len)).unwrap();
    let arguments = ["publish", "large", &file, "--node", "z1.control.0.1"];
    assert_eq!(text(&ask(&scratch, &one_at, "token", &arguments)), "large 1 1\n");
    one.line(&format!("push large 1 1 {len} bytes"));
    let watched = ask(&scratch, &one_at, "token", &["watch", "large", "--body", "--count", "1"]);
    assert!(watched.status.success());
    let expected = [format!("large 1 1 {len}\n").as_bytes(), &noise(len), b"\n"].concat();
    assert!(watched.stdout == expected, "{} bytes", watched.stdout.len());

    // A message that is too long is refused before anything is sent, or by the node that does not
    // accept it.
    std::fs::write(&file, vec![0; 64 << 20]).unwrap();
    let told = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let long = told(ask(&scratch, &tcp, "token", &["publish", "large", &file]));
    assert!(long.contains("is longer than a topic may be, 67107840 bytes"), "{long}");
    let small = "id = \"z1.control.0.2\"\nlisten = [\"tcp://127.0.0.1:0\"]\npublish = true\n\
                 message_len_max = \"1MiB\"\n";
    let small = scratch.node("small.toml", small);
    let small_at = small.line("ready").split(' ').nth(2).unwrap().to_owned();
    std::fs::write(&file, noise(2 << 20)).unwrap();
    let long = told(ask(&scratch, &small_at, "token", &["publish", "large", &file]));
    assert!(long.contains("the message is longer than that node takes"), "{long}");
}

#[test]
fn a_topic_that_was_withdrawn_is_published_again_by_a_command() {
    let scratch = Scratch::new("withdrawn");
    let mut settings = Settings::of("z1.control.0.1".parse().unwrap());
    settings.tokens.add(b"a token for these processes").unwrap();
    settings.place = here();
    settings.urls = vec!["tcp://127.0.0.1:0".parse().unwrap()];
    let mut root = Driver::new(settings, DriverSettings::default()).unwrap();
    let stamp = |version| Stamp { epoch: 1, version };
    root.node().publish("pools", stamp(4), b"pool = 1".to_vec()).unwrap();
    let below = format!(
        "id = \"z1.proxy.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\npublish = true\n\
         [[upstream]]\nurls = [\"{}\"]\n",
        root.urls()[0]
    );
    let one = scratch.node("one.toml", &below);
    let one_at = one.line("ready").split(' ').nth(2).unwrap().to_owned();
    let begin = clock();
    let turn_until = |start: &str, root: &mut Driver| {
        while !one.lines.try_recv().is_ok_and(|line| line.starts_with(start)) {
            assert!(clock().since(begin) < Duration::from_secs(10), "it does not print {start}");
            root.turn(Duration::from_millis(5)).unwrap();
            while root.poll_event().is_some() {}
        }
    };
    turn_until("push pools 1 4 ", &mut root);
    root.node().withdraw("pools", stamp(5), clock()).unwrap();
    turn_until("withdrawn pools 1 5", &mut root);
    let body = scratch.path("body");
    std::fs::write(&body, "pool = 2").unwrap();
    let published = ask(&scratch, &one_at, "token", &["publish", "pools", &body]);
    assert_eq!(text(&published), "pools 1 6\n");
}

#[test]
fn a_node_serves_its_metrics() {
    let scratch = Scratch::new("metrics");
    let listen = "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nheartbeat = \"50ms\"\n";
    let root = scratch.node("root.toml", listen);
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let page = root.line("metrics http://").split(' ').nth(1).unwrap().to_owned();
    let at = page.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let below = format!(
        "id = \"z1.proxy.0.1\"\nadmin = \"127.0.0.1:0\"\nheartbeat = \"50ms\"\n[[upstream]]\nurls = [\"{tcp}\"]\n"
    );
    let one = scratch.node("one.toml", &below);
    let one_at = one.line("metrics http://").split(' ').nth(1).unwrap().to_owned();
    let one_at = one_at.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    one.line("upstream z1.control.0.1");
    let other = ask(&scratch, &tcp, "other", &["tree"]);
    assert!(!other.status.success());
    assert!(ask(&scratch, &tcp, "token", &["send", "z1.proxy.0.1", "hello"]).status.success());
    // The guest's connection ends a moment after its process.
    let start = std::time::Instant::now();
    let text = loop {
        let (_, text) = http(&at, "/metrics");
        if text.contains("keyway_bus_lost_links_total{reason=\"leaving\"} 1\n") {
            break text;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{text}");
    };
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!(value("keyway_bus_links{link=\"below\"}"), 1.0);
    assert_eq!(value("keyway_bus_rooted_upstreams"), 1.0);
    assert_eq!(value("keyway_bus_refused_links_total{reason=\"denied\"}"), 1.0);
    assert_eq!(value("keyway_bus_lost_links_total{reason=\"leaving\"}"), 1.0);
    // The message and its ACK were relayed.
    assert!(value("keyway_bus_relayed_frames_total") >= 2.0);
    assert!(value("keyway_bus_received_bytes_total") > 500.0);
    assert!(value("keyway_bus_round_trip_seconds_count") >= 0.0);
    assert_eq!(http(&one_at, "/readyz").0, 200);
    assert!(http(&one_at, "/metrics").1.contains("keyway_bus_delivered_messages_total 1\n"));
    root.signal("KILL");
    one.line("upstream none");
    let start = std::time::Instant::now();
    while http(&one_at, "/readyz").0 != 503 {
        assert!(start.elapsed() < Duration::from_secs(5), "it is cut off");
    }
    assert!(http(&one_at, "/metrics").1.contains("keyway_bus_rooted_upstreams 0\n"));
}

#[test]
fn what_cannot_be_printed_is_no_success() {
    let scratch = Scratch::new("full");
    let listen = "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\npublish = true\n";
    let root = scratch.node("root.toml", listen);
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let (token, file) = (scratch.path("token"), scratch.path("root.toml"));
    assert!(ask(&scratch, &tcp, "token", &["publish", "pools", &file]).status.success());
    let full = |arguments: &[&str]| {
        let disk = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = keyway().args(arguments).stdout(disk).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let on_bus = |command: &'static str, more: &[&str]| {
        full(&[&["bus", command, "--at", &tcp, "--token-file", &token], more].concat())
    };
    for (code, told) in [
        on_bus("tree", &[]),
        on_bus("ping", &["--count", "1"]),
        on_bus("send", &["z1.control.0.1", "hello"]),
        on_bus("publish", &["pools", &file]),
        on_bus("watch", &["--count", "1"]),
        full(&["check", &file]),
    ] {
        assert!(code == Some(1) && told.contains("cannot write to standard output"), "{told}");
    }
}

#[test]
fn a_file_of_64_mib_is_sent_and_told_by_its_beginning() {
    let scratch = Scratch::new("large");
    let listen = "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n";
    let root = scratch.node("root.toml", listen);
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let file = scratch.path("large");
    std::fs::write(&file, vec![b'x'; 64 << 20]).unwrap();
    let send =
        |more: &[&str]| ask(&scratch, &tcp, "token", &[&["send", "z1.control.0.1"], more].concat());
    assert!(text(&send(&["--file", &file])).starts_with("arrived at z1.control.0.1 after"));
    let line = root.line("message z1.guest");
    assert!(line.ends_with("xxxx…") && line.len() < 4200, "{}", line.len());
    std::fs::write(&file, vec![b'x'; (64 << 20) + 1]).unwrap();
    let told = String::from_utf8_lossy(&send(&["--file", &file]).stderr).into_owned();
    assert!(told.contains("longer than a message may be, 67108864 bytes"), "{told}");
    // Exactly one of the two must be given.
    assert_eq!(send(&[]).status.code(), Some(2));
    assert_eq!(send(&["hello", "--file", &file]).status.code(), Some(2));
}

#[test]
fn who_publishes_after_a_new_start_begins_behind_what_is_there_below() {
    let scratch = Scratch::new("anew");
    let rings = scratch.path("rings");
    let listen = format!("id = \"z1.control.0.1\"\nlisten = [\"shm://{rings}\"]\npublish = true\n");
    let mut root = scratch.node("root.toml", &listen);
    let at = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let below = format!("id = \"z1.proxy.0.1\"\n[[upstream]]\nurls = [\"{at}\"]\n");
    let one = scratch.node("one.toml", &below);
    one.line("upstream z1.control.0.1");
    let file = scratch.path("token");
    let publish =
        |more: &[&str]| ask(&scratch, &at, "token", &[&["publish", "pools", &file], more].concat());
    assert_eq!(text(&publish(&["--epoch", "5"])), "pools 5 1\n");
    assert_eq!(text(&publish(&[])), "pools 5 2\n");
    one.line("push pools 5 2 ");
    root.signal("KILL");
    // Its socket may be in use until the process is gone.
    root.child.wait().unwrap();
    one.line("upstream none");
    let root = scratch.node("root.toml", &listen);
    one.line("upstream z1.control.0.1");
    root.line("joined z1.proxy.0.1");
    let stale = publish(&["--epoch", "4"]);
    let told = String::from_utf8_lossy(&stale.stderr).into_owned();
    assert!(!stale.status.success() && told.contains("at least as new is there already: 5 2"));
    assert_eq!(text(&publish(&[])), "pools 5 3\n");
    one.line("push pools 5 3 ");
}

#[test]
fn an_upstream_that_is_away_is_told_of_once_and_who_watches_hears_of_it() {
    let scratch = Scratch::new("away");
    let rings = scratch.path("rings");
    let below = format!(
        "id = \"z1.proxy.0.1\"\nadmin = \"127.0.0.1:0\"\nlisten = [\"tcp://127.0.0.1:0\"]\n\
         [[upstream]]\nurls = [\"shm://{rings}\"]\n"
    );
    let mut one = scratch.node("one.toml", &below);
    let tcp = one.line("ready").split(' ').nth(2).unwrap().to_owned();
    let page = one.line("metrics http://").split(' ').nth(1).unwrap().to_owned();
    let at = page.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    one.line(&format!("unreached shm://{rings}: nobody listens"));
    one.line("refused none: nobody listens");
    let start = std::time::Instant::now();
    let tried = |count: u32| {
        let value =
            format!("keyway_bus_refused_links_total{{reason=\"nobody_listens\"}} {count}\n");
        http(&at, "/metrics").1.contains(&value)
    };
    while !tried(4) {
        assert!(start.elapsed() < Duration::from_secs(20), "it tries again");
    }
    assert!(one.lines.try_iter().all(|line| !line.contains("nobody listens")), "told once");
    let token = scratch.path("token");
    let mut watch = keyway()
        .args(["bus", "watch", "--at", &tcp, "--token-file", &token])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    one.line("joined z1.guest");
    one.signal("KILL");
    one.child.wait().unwrap();
    let mut told = BufReader::new(watch.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(told.next().unwrap(), "lost z1.proxy.0.1: the connection ended; it is looked for");
    let again =
        scratch.node("one.toml", &below.replace("127.0.0.1:0\"]", &format!("{}\"]", &tcp[6..])));
    again.line("ready");
    assert_eq!(told.next().unwrap(), "joined z1.proxy.0.1 again");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn a_node_without_descriptors_says_that_it_accepts_nobody() {
    let scratch = Scratch::new("descriptors");
    let (at, file) = (scratch.path("socket"), scratch.path("root.toml"));
    let listen = format!("open = true\nid = \"z1.control.0.1\"\nlisten = [\"unix://{at}\"]\n");
    std::fs::write(&file, listen).unwrap();
    let script = "ulimit -n 20; exec \"$0\" bus node \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_keyway"), &file]);
    let root = started(shell);
    root.line("ready");
    let connect = |_| std::os::unix::net::UnixStream::connect(&at).unwrap();
    let connected: Vec<_> = (0..20).map(connect).collect();
    assert!(root.line("cannot accept: ").contains("Too many open files"));
    drop(connected);
    let at = format!("unix://{at}");
    assert_eq!(fails(&["bus", "ping", "--at", &at, "--count", "1"]).0, Some(0));
}

/// Fetches a page. Returns the status and the body.
fn http(at: &str, path: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text)
}

#[test]
fn a_bus_with_certificates_needs_no_token() {
    let scratch = Scratch::new("tls");
    let files = keyway_testkit::certificates::CertificateFiles::default();
    let path = |name: &str| files.path(name).display().to_string();
    let table = |name: &str| {
        files.add(name, &files.authority.issue(&[&format!("{name}.bus.keyway")]));
        let [ca, cert, key] = ["ca.pem".to_owned(), format!("{name}.pem"), format!("{name}.key")];
        format!(
            "[tls]\nca_file = \"{}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\n",
            path(&ca),
            path(&cert),
            path(&key)
        )
    };
    let start = |name: &str, text: &str| {
        let file = scratch.path(&format!("{name}.toml"));
        std::fs::write(&file, format!("id = \"{name}\"\n{text}{}", table(name))).unwrap();
        spawn(&file)
    };
    let root = start("z1.control.0.1", "listen = [\"tcp://127.0.0.1:0\"]\n");
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let one = start("z1.proxy.0.1", &format!("upstream = [{{ urls = [\"{tcp}\"] }}]\n"));
    one.line("upstream z1.control.0.1");
    table("guest");
    let guest = |name: &str| {
        let [ca, cert, key] =
            [path("ca.pem"), path(&format!("{name}.pem")), path(&format!("{name}.key"))];
        keyway()
            .args(["bus", "ping", "--at", &tcp, "--count", "1", "z1.proxy.0.1"])
            .args(["--ca-file", &ca, "--cert-file", &cert, "--key-file", &key])
            .output()
            .unwrap()
    };
    assert!(text(&guest("guest")).starts_with("pong from z1.proxy.0.1"));
    let told = String::from_utf8_lossy(&guest("z1.proxy.0.1").stderr).into_owned();
    assert!(told.contains("not made out to its id"), "{told}");
    let plain = keyway().args(["bus", "ping", "--at", &tcp]).output().unwrap();
    let told = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(!plain.status.success() && told.contains(&tcp), "{told}");
    // The log may still have lines about earlier refusals before this one.
    while !root
        .line("refused none from 127.0.0.1:")
        .ends_with(": the other side does not speak TLS")
    {}
}

#[test]
fn certificates_are_read_again_on_sighup() {
    let scratch = Scratch::new("sighup");
    let files = keyway_testkit::certificates::CertificateFiles::default();
    let other = keyway_testkit::certificates::Authority::new("another authority");
    let path = |name: &str| files.path(name).display().to_string();
    let root = "z1.control.0.1.bus.keyway";
    files.add("root", &files.authority.issue(&[root]));
    files.add("guest", &files.authority.issue(&["guest.bus.keyway"]));
    files.add("later", &other.issue(&["guest.bus.keyway"]));
    files.write("both.pem", &format!("{}{}", files.authority.certificate, other.certificate));
    let text = format!(
        "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n\
         [tls]\nca_file = \"{}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\n",
        path("ca.pem"),
        path("root.pem"),
        path("root.key")
    );
    let file = scratch.path("root.toml");
    std::fs::write(&file, text).unwrap();
    let node = spawn(&file);
    let tcp = node.line("ready").split(' ').nth(2).unwrap().to_owned();
    let ping = |name: &str| {
        keyway()
            .args(["bus", "ping", "--at", &tcp, "--count", "1", "--ca-file", &path("both.pem")])
            .args(["--cert-file", &path(&format!("{name}.pem"))])
            .args(["--key-file", &path(&format!("{name}.key"))])
            .output()
            .unwrap()
    };
    assert!(ping("guest").status.success() && !ping("later").status.success());
    // The files get a certificate of another authority, and new trusted authorities.
    files.write("ca.pem", &other.certificate);
    files.add("root", &other.issue(&[root]));
    node.signal("HUP");
    node.line("certificates read again");
    assert!(ping("later").status.success() && !ping("guest").status.success());
    // Wrong files change nothing: a certificate of another node, and a file without a certificate.
    files.add("root", &other.issue(&["z1.control.0.2.bus.keyway"]));
    node.signal("HUP");
    assert!(node.line("certificates: ").contains(root));
    node.line("certificates not read again");
    files.write("root.pem", "nothing");
    node.signal("HUP");
    assert!(node.line("certificates: ").contains(&path("root.pem")));
    assert!(ping("later").status.success());
}

#[test]
fn a_command_that_may_have_been_done_says_so() {
    let scratch = Scratch::new("maybe");
    let root =
        scratch.node("root.toml", "id = \"z1.control.0.1\"\nlisten = [\"tcp://127.0.0.1:0\"]\n");
    let tcp = root.line("ready").split(' ').nth(2).unwrap().to_owned();
    let below =
        format!("id = \"z1.proxy.0.1\"\nheartbeat = \"20s\"\n[[upstream]]\nurls = [\"{tcp}\"]\n");
    let one = scratch.node("one.toml", &below);
    root.line("joined z1.proxy.0.1");
    one.signal("STOP");
    let token = scratch.path("token");
    let (code, text) = fails(&[
        "bus",
        "ping",
        "z1.proxy.0.1",
        "--at",
        &tcp,
        "--token-file",
        &token,
        "--within",
        "1",
    ]);
    assert!(code == Some(1) && text.contains("it may have been done"), "{text}");
    one.signal("CONT");
    let (code, text) =
        fails(&["bus", "ping", "z9.proxy.0.9", "--at", &tcp, "--token-file", &token]);
    assert!(code == Some(1) && text.contains("not done: z1.control.0.1 says"), "{text}");
}
