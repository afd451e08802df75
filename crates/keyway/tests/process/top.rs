//! `keyway top` as people use it: on a terminal (tmux's), beside processes under load, and as text.
#![allow(clippy::disallowed_methods, reason = "the environment of a terminal")]

use keyway_testkit::certificates::{Authority, CertificateFiles};
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, Process, RedisServer, Signal, TempDir, ToolOutput,
    cpu_seconds_over, encode_words, free_address, keyway_binary, run_keyway, skipped_for_want_of,
    tool_is_installed, wait_for, wait_until, watchdog,
};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

/// A terminal of its own, with one program on it.
struct Terminal {
    directory: TempDir,
}

impl Terminal {
    fn start(width: u16, height: u16, arguments: &[&str]) -> Terminal {
        Terminal::start_by(width, height, "", arguments)
    }

    /// Starts a terminal with shell words before the command.
    fn start_by(width: u16, height: u16, before: &str, arguments: &[&str]) -> Terminal {
        let terminal = Terminal { directory: TempDir::new() };
        let quoted: Vec<String> = arguments.iter().map(|one| format!("'{one}'")).collect();
        let binary = keyway_binary(KEYWAY);
        let binary = binary.display();
        let top = format!("'{binary}' top {}", quoted.join(" "));
        let command = format!("echo before; {before} {top}; echo ended $?; exec sleep 1000");
        let (width, height) = (width.to_string(), height.to_string());
        let size = ["-x", &width, "-y", &height];
        let new = [&["new-session", "-d"], &size[..], &["sh", "-c", &command]].concat();
        terminal.tmux(&new);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let socket = self.directory.path().join("tmux");
        let output = Command::new("tmux")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(socket)
            .args(arguments)
            .output()
            .expect("tmux can be run");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn type_in(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Returns a fact that tmux knows about the terminal, such as `pane_pid`.
    fn fact(&self, name: &str) -> String {
        let wanted = format!("#{{{name}}}");
        self.tmux(&["display-message", "-p", &wanted]).trim().to_owned()
    }

    /// Returns the process id of `keyway top`, which the terminal's shell has started.
    fn pid(&self) -> u32 {
        let shell = self.fact("pane_pid");
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        children.expect("a shell").trim().parse().expect("one child")
    }

    /// Waits until the screen is as wanted, and returns it.
    fn wait(&self, what: &str, mut is_so: impl FnMut(&str) -> bool) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, SOON, || {
                last = self.screen();
                is_so(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("not seen: {what}:\n{last}"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let socket = self.directory.path().join("tmux");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

/// Returns the words of the row that begins with these.
fn row(screen: &str, begin: &[&str]) -> Option<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    screen.lines().map(words).find(|words| {
        words.len() > begin.len() && words.iter().zip(begin).all(|(word, wanted)| word == wanted)
    })
}

/// Returns a cell of the row that begins with `begin` in the table whose head begins with `head`.
fn cell(screen: &str, head: &[&str], column: &str, begin: &[&str]) -> Option<String> {
    let index = row(screen, head)?.iter().position(|title| title == column)?;
    row(screen, begin)?.get(index).cloned()
}

/// Starts a load that goes on until it is dropped.
fn load(address: SocketAddr, connections: &str, directory: &TempDir) -> Process {
    let mut command = Command::new(keyway_binary(KEYWAY));
    command.args(["bench", "load", &address.to_string(), "--duration", "10m", "--rate", "1000"]);
    command.args(["--keys", "1000", "--fill", "--connections", connections]);
    Process::spawn(&format!("load{connections}"), &mut command, directory.path())
}

fn two_pools(servers: &[RedisServer]) -> KeywayConfig {
    KeywayConfig::new(vec![Pool::over("far", servers), Pool::store("near")])
        .with_server("workers", "1")
}

fn has_tmux() -> bool {
    let is_there = tool_is_installed("tmux");
    if !is_there {
        skipped_for_want_of("tmux", "keyway top on a terminal");
    }
    is_there
}

#[test]
fn what_a_process_does_is_seen_as_it_does_it() {
    if !has_tmux() {
        return;
    }
    let _watch = watchdog(Duration::from_secs(150), "keyway top on a terminal");
    let directory = TempDir::new();
    let mut servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, two_pools(&servers));
    let admin = keyway.admin().to_string();
    let gone = free_address().to_string();
    let arguments =
        ["--address", &admin, "--address", &gone, "--interval", "300ms", "--sort", "requests"];
    let terminal = Terminal::start(80, 24, &arguments);
    terminal.wait("both pools at rest", |screen| {
        row(screen, &["far"]).is_some() && row(screen, &["near"]).is_some()
    });
    terminal.wait("who is not there, and why", |screen| {
        screen.contains("1 unread") && screen.contains("nobody listens there")
    });
    let loads =
        [load(keyway.address(0), "3", &directory), load(keyway.address(1), "5", &directory)];
    let pools = ["POOL", "PROCESS", "CLIENTS"];
    let screen = terminal.wait("the load, its clients and latencies", |screen| {
        let is = |pool, clients| {
            let cell = |column| cell(screen, &pools, column, &[pool]).unwrap_or_default();
            cell("CLIENTS") == clients
                && cell("P50").ends_with('s')
                && cell("P99").ends_with('s')
                && cell("REQ/S") != "0"
                && cell("ERR/S") == "0"
        };
        is("far", "3") && is("near", "5")
    });
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    let memory = cell(&screen, &["STORE"], "MEMORY", &["near"]).unwrap_or_default();
    assert!(row(&screen, &["far", "127.0.0.1:1"]).is_none());
    assert!(!memory.is_empty(), "{screen}");
    keys_do_what_the_help_says(&terminal);
    terminal.tmux(&["resize-window", "-x", "200", "-y", "60"]);
    terminal.wait("more columns on a wide terminal", |screen| {
        screen.contains("PAUSES/S") && screen.contains("REASON") && screen.contains("STORE")
    });
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    servers[0].process().signal(Signal::STOP);
    terminal.wait("a server that does not answer, and errors", |screen| {
        let states = screen.lines().filter(|line| line.starts_with("far"));
        let is_failing =
            states.clone().any(|line| line.contains("failing") || line.contains("ejected"));
        is_failing && cell(screen, &pools, "ERR/S", &["far"]).is_some_and(|rate| rate != "0")
    });
    terminal.type_in(&["5"]);
    terminal.wait("what the errors are", |screen| {
        screen.contains("errors answered") && screen.contains("timeout")
    });
    servers[0].process().signal(Signal::CONT);
    // One key in each pool is asked for far more often than any key of the load.
    let mut busy = [keyway.client(0), keyway.client(1)];
    terminal.type_in(&["6"]);
    let keys = ["POOL", "PROCESS", "HOT", "KEY", "ACCESS"];
    terminal.wait("hot keys of both pools", |screen| {
        for client in &mut busy {
            let ask = encode_words("GET a-hot-one").repeat(500);
            client.send(&ask);
            client.replies(500);
        }
        let is_hot = |pool| row(screen, &[pool, &admin, "a-hot-one", "read"]);
        row(screen, &keys).is_some() && is_hot("far").and(is_hot("near")).is_some()
    });
    drop(busy);
    drop(loads);
    terminal.type_in(&["1"]);
    terminal
        .wait("rest", |screen| cell(screen, &pools, "REQ/S", &["near"]).as_deref() == Some("0"));
    let (status, _) = keyway.stop(Duration::from_secs(20));
    assert!(status.success());
    let screen = terminal.wait("both are gone", |screen| screen.contains("2 unread"));
    let told = ["gone since", "no answer:"].map(|told| screen.matches(told).count());
    assert_eq!(told, [1, 1], "{screen}");
    assert!(row(&screen, &["far"]).is_none(), "{screen}");
    drop(servers.drain(..));
    terminal.type_in(&["q"]);
    ended(&terminal, "0");
}

/// Tests panes, order, filter, pause and help.
fn keys_do_what_the_help_says(terminal: &Terminal) {
    terminal.type_in(&["?"]);
    terminal.wait("the help", |screen| screen.contains("turn the order round"));
    terminal.type_in(&["x"]);
    terminal.type_in(&["3"]);
    terminal.wait("servers alone", |screen| {
        screen.contains("[3 servers]") && screen.contains("FLIGHT") && !screen.contains("STORE")
    });
    terminal.type_in(&["1", "/"]);
    terminal.type_in(&["N", "E", "A", "Enter"]);
    terminal.wait("the pool that was asked for alone", |screen| {
        row(screen, &["near"]).is_some() && row(screen, &["far"]).is_none()
    });
    terminal.type_in(&["Escape"]);
    terminal.wait("all again", |screen| row(screen, &["far"]).is_some());
    terminal.type_in(&["m"]);
    terminal.wait("pools added up", |screen| {
        screen.contains("added up") && row(screen, &["POOL", "CLIENTS"]).is_some()
    });
    terminal.type_in(&["m", "S"]);
    terminal.wait("ordered by name", |screen| screen.contains("by name"));
    let order = |screen: &str| {
        let at = |pool: &str| screen.lines().position(|line| line.starts_with(pool));
        at("far") < at("near")
    };
    terminal.wait("far before near", order);
    terminal.type_in(&["r"]);
    terminal.wait("near before far", |screen| screen.contains("reversed") && !order(screen));
    terminal.type_in(&["r", "p"]);
    terminal.wait("a pause", |screen| screen.contains("PAUSED"));
    terminal.type_in(&["p"]);
    terminal.wait("no pause", |screen| !screen.contains("PAUSED"));
}

/// Expects that the terminal is as it was, and that the program ended with this status.
fn ended(terminal: &Terminal, status: &str) {
    let ended = format!("ended {status}");
    let screen = terminal.wait("the end of the program", |screen| screen.contains(&ended));
    assert_eq!(terminal.fact("alternate_on"), "0", "the other screen is left");
    assert_eq!(terminal.fact("cursor_flag"), "1", "the cursor is seen");
    assert!(screen.contains("before") && !screen.contains("POOL"), "{screen}");
}

#[test]
fn a_process_that_comes_back_is_seen_again_and_a_signal_leaves_the_terminal_well() {
    if !has_tmux() {
        return;
    }
    let _watch = watchdog(Duration::from_secs(90), "keyway top and a process that comes back");
    let directory = TempDir::new();
    let (listen, admin) = (free_address(), free_address());
    let text = format!(
        "[server]\nadmin = \"tcp://{admin}\"\nworkers = 1\n\n[[listener]]\nbind = \
         \"tcp://{listen}\"\npool = \"near\"\n\n[pool.near]\nkind = \"store\"\n"
    );
    let file = directory.write("keyway.toml", &text);
    let serve = || {
        let mut command = Command::new(keyway_binary(KEYWAY));
        command.arg("serve").arg(&file);
        Process::spawn("keyway", &mut command, directory.path())
    };
    let path = file.to_string_lossy().into_owned();
    let terminal = Terminal::start(100, 30, &[&path, "--interval", "200ms"]);
    terminal.wait("nobody", |screen| screen.contains("nobody listens there"));
    for _ in 0..2 {
        let process = serve();
        terminal.wait("the process", |screen| screen.contains("ready") && screen.contains("near"));
        drop(process);
        terminal
            .wait("its end", |screen| screen.contains("gone since") && !screen.contains("ready"));
    }
    let process = serve();
    terminal.wait("the process", |screen| screen.contains("ready"));
    process.signal(Signal::STOP);
    terminal.wait("one that hangs", |screen| screen.contains("no answer within 3 s"));
    process.signal(Signal::CONT);
    terminal.wait("the process again", |screen| screen.contains("ready"));
    signal(terminal.pid(), Signal::TERM);
    ended(&terminal, "0");
}

#[test]
fn without_its_terminal_it_ends() {
    if !has_tmux() {
        return;
    }
    let _watch = watchdog(Duration::from_secs(60), "keyway top and a terminal that is closed");
    let gone = free_address().to_string();
    // The program ends even if no signal tells it, as with nohup.
    for before in ["", "trap '' HUP;"] {
        let terminal = Terminal::start_by(80, 24, before, &["--address", &gone]);
        terminal.wait("it runs", |screen| screen.contains("no answer:"));
        let pid = terminal.pid();
        drop(terminal);
        let path = format!("/proc/{pid}");
        wait_until("its end", SOON, || !std::path::Path::new(&path).exists());
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
    rustix::process::kill_process(pid, signal).expect("it is there");
}

#[test]
fn looking_costs_less_than_a_hundredth_of_a_core() {
    if !has_tmux() {
        return;
    }
    const SPAN: Duration = Duration::from_secs(10);
    let _watch = watchdog(Duration::from_secs(60), "keyway top's own cost");
    let directory = TempDir::new();
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, two_pools(&servers));
    let _load = load(keyway.address(0), "20", &directory);
    let admin = keyway.admin().to_string();
    let terminal = Terminal::start(200, 60, &["--address", &admin]);
    terminal.wait("the load", |screen| {
        cell(screen, &["POOL", "KIND"], "CLIENTS", &["far"]).as_deref() == Some("20")
    });
    let used = cpu_seconds_over(terminal.pid(), SPAN);
    println!("{used} s of CPU time in {} s", SPAN.as_secs());
    // One tick of the kernel's clock is added, which is the kernel's precision.
    assert!(used <= SPAN.as_secs_f64() / 100.0 + 0.01, "{used} s in {} s", SPAN.as_secs());
}

fn once(arguments: &[&str]) -> ToolOutput {
    run_keyway(KEYWAY, &[&["top", "--once", "--interval", "500ms"], arguments].concat())
}

#[test]
fn without_a_terminal_it_prints() {
    let _watch = watchdog(Duration::from_secs(60), "keyway top --once");
    let directory = TempDir::new();
    let servers = RedisServer::start_many(2);
    let both =
        [Keyway::start(KEYWAY, two_pools(&servers)), Keyway::start(KEYWAY, two_pools(&servers))];
    let _loads =
        [load(both[0].address(0), "3", &directory), load(both[1].address(0), "4", &directory)];
    let admins: Vec<String> = both.iter().map(|one| one.admin().to_string()).collect();
    let arguments = ["--address", &admins[0], "--address", &admins[1]];
    wait_until("clients", SOON, || {
        both.iter().all(|one| one.metrics().sum("keyway_pool_requests_total", &[]) > 1200.0)
    });
    let page = once(&arguments).expect_success("keyway top --once").stdout;
    let far = |process| cell(&page, &["POOL", "PROCESS"], "CLIENTS", &["far", process]);
    assert_eq!((far(&admins[0]), far(&admins[1])), (Some("3".into()), Some("4".into())), "{page}");
    let merged = once(&[&arguments[..], &["--merge", "--filter", "FAR"]].concat());
    let page = merged.expect_success("keyway top --merge").stdout;
    assert_eq!(cell(&page, &["POOL", "KIND"], "CLIENTS", &["far"]).as_deref(), Some("7"), "{page}");
    assert!(row(&page, &["near"]).is_none(), "{page}");
    let batch = ["top", "--batch", "-n", "3", "--interval", "200ms", "--address", &admins[0]];
    let pages = run_keyway(KEYWAY, &batch).expect_success("keyway top --batch").stdout;
    assert_eq!(pages.matches("keyway top ").count(), 3, "{pages}");
}

#[test]
fn top_and_ctl_take_an_address_in_the_same_spellings() {
    let _watch = watchdog(Duration::from_secs(60), "spellings of an address");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("near")]));
    let admin = keyway.admin().to_string();
    for spelling in ["-a", "--address", "--admin"] {
        let seen = once(&[spelling, &admin]).expect_success("keyway top");
        assert!(row(&seen.text, &["near"]).is_some(), "{spelling}: {}", seen.text);
        for arguments in [["ctl", spelling, &admin, "pools"], ["ctl", "pools", spelling, &admin]] {
            let told = run_keyway(KEYWAY, &arguments).expect_success("keyway ctl");
            assert!(told.text.contains("near"), "{arguments:?}: {}", told.text);
        }
    }
    for command in ["top", "ctl"] {
        let help = run_keyway(KEYWAY, &[command, "--help"]).text;
        for spelling in ["-a, ", "--address", "--admin"] {
            assert!(help.contains(spelling), "{command}: {spelling} is missing in\n{help}");
        }
    }
}

#[test]
fn what_is_wrong_with_an_address_is_told() {
    let _watch = watchdog(Duration::from_secs(60), "keyway top at wrong addresses");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("near")]));
    let directory = TempDir::new();
    let nobody = free_address().to_string();
    let clients = keyway.address(0).to_string();
    for (address, why) in [(&nobody, "nobody listens there"), (&clients, "speaks RESP")] {
        let output = once(&["--address", address]);
        assert_eq!(output.status.code(), Some(1), "{}", output.text);
        assert!(output.stdout.contains(why), "{}", output.text);
    }
    let without = directory.write("off.toml", "[server]\nadmin = \"off\"\n[[listener]]\nbind = \"tcp://127.0.0.1:1\"\npool = \"near\"\n[pool.near]\nkind = \"store\"\n");
    let without = without.to_string_lossy().into_owned();
    for (arguments, why) in [
        (&["--once", "--address", "nonsense"][..], "write HOST:PORT"),
        (&["--once", "no.toml"], "no.toml"),
        (&["--once", "--token-file", "/dev/null"], "is no token"),
        (&["--once", &without], "there is no admin listener"),
        (&["--once", "--interval", "1ms"], "from 200ms"),
        (&["--sort", "colour"], "requests"),
        (&["--address", &nobody], "--once or --batch"),
    ] {
        let output = run_keyway(KEYWAY, &[&["top"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", output.text);
        assert!(output.text.contains(why), "{arguments:?}: {}", output.text);
    }
}

#[test]
fn a_process_whose_admin_listener_speaks_tls_is_seen() {
    let _watch = watchdog(Duration::from_secs(60), "keyway top by TLS");
    let files = CertificateFiles::default();
    files.add("operator", &files.authority.issue(&["operator"]));
    let path = |name: &str| files.path(name).to_string_lossy().into_owned();
    let (ca, cert, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let other = files.write("other.pem", &Authority::new("another").certificate);
    let token = files.write("token", "open-sesame-open-sesame");
    let tls = format!("{{ cert_file = {cert:?}, key_file = {key:?}, ca_file = {ca:?} }}");
    let config = KeywayConfig::new(vec![Pool::store("near")])
        .with_server("admin_token_file", &format!("{token:?}"))
        .with_server("admin_tls", &tls);
    let keyway = Keyway::start(KEYWAY, config);
    let (operator, its_key) = (path("operator.pem"), path("operator.key"));
    let (token, other) =
        (token.to_string_lossy().into_owned(), other.to_string_lossy().into_owned());
    let known = ["--cert-file", &operator, "--key-file", &its_key, "--token-file", &token];
    let admin = format!("https://{}", keyway.admin());
    let file = keyway.directory().join("keyway.toml").to_string_lossy().into_owned();
    for whom in [&["--address", &admin][..], &[&file]] {
        let output = once(&[whom, &["--ca-file", &ca], &known].concat());
        let output = output.expect_success("keyway top");
        assert!(row(&output.text, &["near"]).is_some(), "{}", output.text);
    }
    let by_variable = |value: &str| {
        let mut command = std::process::Command::new(keyway_binary(KEYWAY));
        command.args(["top", "--once", "--interval", "500ms", "--address", &admin]);
        command.args(["--ca-file", &ca]).args(&known[..4]).env("KEYWAY_ADMIN_TOKEN", value);
        let output = command.output().expect("keyway top");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_seen, text) = by_variable("open-sesame-open-sesame");
    assert!(is_seen && row(&text, &["near"]).is_some(), "{text}");
    let (is_seen, text) = by_variable("open-sesame-open-barley");
    assert!(!is_seen && text.contains("the token is wrong"), "{text}");
    let gone = |arguments: &[&str], why: &str| {
        let output = once(arguments);
        assert!(!output.status.success() && output.text.contains(why), "{}", output.text);
    };
    gone(&[&["--address", &admin, "--ca-file", &other], &known[..]].concat(), "authority");
    gone(&["--address", &admin, "--ca-file", &ca, "--token-file", &token], "");
    gone(&["--address", &admin], "https needs --ca-file");
    gone(&["--address", &keyway.admin().to_string()], "https://");
}
