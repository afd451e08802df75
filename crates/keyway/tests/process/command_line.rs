//! The program on a terminal: it must not overwrite files, it must leave terminals usable, and its
//! messages name what was typed.

use keyway_testkit::certificates::{Authority, CertificateFiles};
use keyway_testkit::{
    Action, Keyway, KeywayConfig, Pool, Process, ScriptedBackend, Signal, TempDir, ToolOutput,
    encode, free_address, handshake_reply, keyway_binary, run_keyway, run_tool,
    skipped_for_want_of, tool_is_installed, wait_until, watchdog,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

fn keyway(words: &[&str]) -> ToolOutput {
    run_keyway(KEYWAY, words)
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a path of plain letters")
}

/// Runs the program, which must fail with this status and these words.
fn refused(words: &[&str], status: i32, wanted: &[&str]) -> String {
    let output = keyway(words);
    assert_eq!(output.status.code(), Some(status), "{words:?}: {}", output.text);
    for wanted in wanted {
        assert!(output.text.contains(wanted), "{wanted:?} is missing in: {}", output.text);
    }
    output.text
}

#[test]
fn a_pid_file_replaces_nothing_but_a_process_id() {
    let _watch = watchdog(Duration::from_secs(60), "pid files");
    let folder = TempDir::new();
    let text = KeywayConfig::new(vec![Pool::store("local")]).toml();
    let file = folder.write("keyway.toml", &text);
    let wanted = ["--pid-file", "keyway.toml", "does not hold a process id", "name another file"];
    refused(&["serve", name(&file), "--pid-file", name(&file)], 1, &wanted);
    assert_eq!(std::fs::read_to_string(&file).expect("it is still there"), text);

    let stale = folder.write("stale.pid", "4194300\n");
    let address = free_address().to_string();
    let mut command = Command::new(keyway_binary(KEYWAY));
    command.args(["serve", "--bind", &address, "--pid-file", name(&stale)]);
    let mut process = Process::spawn("keyway", &mut command, folder.path());
    let own = format!("{}\n", process.pid());
    wait_until("the stale file is replaced", SOON, || {
        std::fs::read_to_string(&stale).is_ok_and(|text| text == own)
    });
    process.terminate();
    assert!(process.wait_exit(SOON).success(), "{}", process.log());
    assert!(!stale.exists());
}

#[test]
fn results_overwrite_nothing_but_earlier_results() {
    let folder = TempDir::new();
    let run = r#"{"format":"keyway-bench","version":1,"scenario":"any","systems":[{"name":"a"}],
        "items":[],"cells":[]}"#;
    let result = folder.write("result.json", run);
    let page = folder.write("README.md", "# Ours\n");
    let config = folder.write("keyway.toml", "[[listener]]\n");
    for (flag, file) in [("--markdown", &page), ("--html", &config), ("--csv", &config)] {
        let wanted = [flag, name(file), "holds no earlier result", "name another file"];
        refused(&["bench", "report", name(&result), flag, name(file)], 2, &wanted);
    }
    for flag in ["--markdown", "--json", "--html", "--csv"] {
        let words = ["bench", "report", name(&result), flag, name(&result)];
        refused(&words, 2, &[flag, "this is the result that is read"]);
    }
    assert_eq!(std::fs::read_to_string(&result).expect("the result"), run);
    assert_eq!(std::fs::read_to_string(&page).expect("the page"), "# Ours\n");
    // No process listens at the address: the file is checked first.
    let address = free_address().to_string();
    let words = ["bench", "load", &address, "--json", name(&config)];
    refused(&words, 2, &["--json", "keyway.toml", "holds no earlier result"]);
    assert_eq!(std::fs::read_to_string(&config).expect("the file"), "[[listener]]\n");

    for (flag, file) in [("--markdown", "o.md"), ("--html", "o.html"), ("--csv", "o.csv")] {
        let file = folder.path().join(file);
        for _ in 0..2 {
            let words = ["bench", "report", name(&result), flag, name(&file)];
            let _ = keyway(&words).expect_success("a result over an earlier one");
        }
    }
    let (one, other) = (folder.path().join("one"), folder.path().join("one"));
    let words = ["bench", "report", name(&result), "--csv", name(&one), "--html", name(&other)];
    refused(&words, 2, &["both name", "a file of its own"]);
}

/// A Python program that runs Keyway on a terminal. It types nothing, sends a signal while the
/// password is asked for, and prints whether the terminal echoes again.
const AT_A_TERMINAL: &str = r"
import fcntl, os, pty, select, signal, subprocess, sys, termios, time
def begin():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
def shown(fd):
    return bool(termios.tcgetattr(fd)[3] & termios.ECHO)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, None):
    master, slave = pty.openpty()
    child = subprocess.Popen([sys.argv[1], 'hash-password'], stdin=slave, stdout=slave, stderr=slave,
                             preexec_fn=begin)
    until = time.time() + 20
    while shown(slave) and time.time() < until:
        time.sleep(0.01)
    hidden = not shown(slave)
    if number is None:
        os.write(master, b'\x03')
    else:
        child.send_signal(number)
    ended = child.wait(20)
    time.sleep(0.05)
    said = b''
    while select.select([master], [], [], 0)[0]:
        said += os.read(master, 1000)
    print(number and int(number), hidden, ended, shown(slave), said.endswith(b'\n'))
";

#[test]
fn a_signal_while_a_password_is_typed_leaves_a_terminal_that_shows_what_is_typed() {
    let _watch = watchdog(Duration::from_secs(120), "echo");
    if !tool_is_installed("python3") {
        return skipped_for_want_of("python3", "the terminal behind hash-password");
    }
    let program = keyway_binary(KEYWAY);
    let words = ["-c", AT_A_TERMINAL, &program.to_string_lossy()];
    let said = run_tool("python3", &words, b"", Duration::from_secs(90)).expect_success("python3");
    let expected =
        "2 True -2 True True\n15 True -15 True True\n1 True -1 True True\nNone True -2 True True\n";
    assert_eq!(said.stdout, expected, "{}", said.text);
}

#[test]
fn a_masked_password_is_refused_with_where_the_password_goes() {
    let folder = TempDir::new();
    let masked = "[[listener]]\nbind = \"tcp://127.0.0.1:0\"\npool = \"main\"\n\
                  password = \"********\"\n[pool.main]\nkind = \"store\"\n";
    let file = folder.write("dump.toml", masked);
    let wanted = [
        "dump.toml:4: password in [[listener]] is the mask that `keyway ctl config`",
        "write the password itself, or name its file: password_file = \"FILE\"",
    ];
    refused(&["check", name(&file)], 2, &wanted);
    refused(&["serve", name(&file)], 2, &wanted);
    // The place of a key does not depend on passwords.
    let _ = keyway(&["locate", name(&file), "key"]);
    let hashed = masked.replace("password = \"********\"\n", "").replace(
        "[pool.main]",
        &format!(
            "[[user]]\nname = \"a\"\nrules = \"+@all\"\npassword_hashes = [\"#{:064x}\"]\n[pool.main]",
            0
        ),
    );
    let file = folder.write("hashed.toml", hashed);
    let wanted = ["password_hashes in [[user]] has the zeros", "keyway hash-password"];
    refused(&["check", name(&file)], 2, &wanted);
}

#[test]
fn a_quiet_check_prints_warnings_and_nothing_else() {
    let folder = TempDir::new();
    let text = "[[listener]]\nbind = \"tcp://0.0.0.0:7000\"\npool = \"main\"\n\
                [pool.main]\nkind = \"store\"\n";
    let file = folder.write("open.toml", text);
    let output = keyway(&["check", "--quiet", name(&file)]).expect_success("a check with warnings");
    assert_eq!(output.stdout, "");
    assert!(output.text.lines().all(|line| line.starts_with("warning: ")), "{}", output.text);
    assert!(
        output.text.contains("open.toml:2: tcp://0.0.0.0:7000 can be reached"),
        "{}",
        output.text
    );
}

#[test]
fn a_check_warns_of_directories_that_serve_would_not_start_without() {
    let folder = TempDir::new();
    let (log, file) = (folder.path().join("log"), folder.path().join("saved/a.rdb"));
    let text = format!(
        "[[listener]]\nbind = \"tcp://127.0.0.1:0\"\npool = \"main\"\n[pool.main]\nkind = \"store\"\n\
         memory_max = \"64MiB\"\nlog = {{ dir = {log:?} }}\nsnapshot = {{ file = {file:?} }}\n"
    );
    let config = folder.write("keyway.toml", text);
    let check = || keyway(&["check", "--quiet", name(&config)]).expect_success("a check");
    let text = check().text;
    for key in ["log", "snapshot"] {
        let start = format!("warning: {}: {key} of [pool.main]: there is no dir", name(&config));
        assert!(text.contains(&start), "{text}");
    }
    refused(&["serve", name(&config)], 1, &["create it"]);
    std::fs::create_dir(&log).unwrap();
    std::fs::create_dir(folder.path().join("saved")).unwrap();
    assert_eq!(check().text, "");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o500);
    std::fs::set_permissions(&log, mode).unwrap();
    let text = check().text;
    // A superuser may write anywhere.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(text.contains("log of [pool.main]: the directory"), !is_root, "{text}");
    assert_eq!(text.contains("cannot be written to by this user"), !is_root, "{text}");
}

#[test]
fn a_password_file_has_one_line() {
    let folder = TempDir::new();
    let text = "[[listener]]\nbind = \"tcp://127.0.0.1:0\"\npool = \"main\"\n\
                password_file = \"secret\"\n[pool.main]\nkind = \"store\"\n";
    let file = folder.write("keyway.toml", text);
    for right in ["one", "one\n", "one\r\n"] {
        folder.write("secret", right);
        let _ = keyway(&["check", "--quiet", name(&file)]).expect_success(right);
    }
    for (wrong, lines) in [("one\ntwo\n", 2), ("one\n\n", 2), ("# ours\none\ntwo", 3)] {
        folder.write("secret", wrong);
        let count = format!("secret: it has {lines} lines; keep the line with the password");
        let text = refused(&["check", name(&file)], 2, &["keyway.toml:4: password_file", &count]);
        assert!(!text.contains("two"), "{text}");
    }
}

/// Starts a server that accepts clients and then answers nothing.
fn silent() -> ScriptedBackend {
    ScriptedBackend::start(|arguments| match handshake_reply(arguments) {
        Some(bytes) => Action::Reply(bytes),
        None => Action::Silence,
    })
}

#[test]
fn a_second_signal_ends_a_drain_that_hangs() {
    let _watch = watchdog(Duration::from_secs(90), "a drain that hangs");
    let backend = silent();
    for (signal, named) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM")] {
        let pool =
            Pool::sharded("main", &[format!("{}:1", backend.address())]).with("timeout", "\"10m\"");
        let config = KeywayConfig::new(vec![pool]).with_server("drain_timeout", "\"10m\"");
        let mut keyway = Keyway::start(KEYWAY, config);
        let mut client = keyway.client(0);
        let before = backend.requests();
        client.send(&encode(&["GET", "a"]));
        wait_until("the request is at the backend", SOON, || backend.requests() > before);
        keyway.process().signal(signal);
        let told =
            format!("(drain_timeout), as clients wait for replies; another {named} ends it now");
        wait_until("it is told how long", SOON, || keyway.process().log().contains(&told));
        assert!(keyway.process().log().contains("draining for up to 600s more"));
        keyway.process().signal(signal);
        assert!(keyway.process_mut().wait_exit(SOON).success());
        let log = keyway.process().log();
        assert!(log.contains(&format!("{named} again: ending at once")), "{log}");
    }
}

#[test]
fn a_notice_before_a_drain_names_the_signal_that_cuts_it_short() {
    let _watch = watchdog(Duration::from_secs(60), "a notice");
    let config =
        KeywayConfig::new(vec![Pool::store("main")]).with_server("drain_notice", "\"10m\"");
    let mut keyway = Keyway::start(KEYWAY, config);
    keyway.process().signal(Signal::INT);
    let told = "says 503, unless SIGINT comes again";
    wait_until("the signal is named", SOON, || keyway.process().log().contains(told));
    keyway.process().signal(Signal::INT);
    assert!(keyway.process_mut().wait_exit(SOON).success());
}

#[test]
fn the_first_signal_ends_a_load_on_a_server_that_has_fallen_silent() {
    let _watch = watchdog(Duration::from_secs(90), "a silent server");
    let folder = TempDir::new();
    let load = |address: SocketAddr| {
        let mut command = Command::new(keyway_binary(KEYWAY));
        command.args(["bench", "load", &address.to_string(), "-c", "2", "--duration", "5m"]);
        command.args(["--silence", "5m", "--patience", "5m"]);
        Process::spawn("load", &mut command, folder.path())
    };
    let mut answered = 0;
    let backend = ScriptedBackend::start(move |arguments| {
        answered += 1;
        match handshake_reply(arguments) {
            Some(bytes) => Action::Reply(bytes),
            None if answered < 200 => Action::Reply(b"$-1\r\n".to_vec()),
            None => Action::Silence,
        }
    });
    let mut process = load(backend.address());
    wait_until("it is silent", SOON, || backend.requests() >= 200);
    process.signal(Signal::INT);
    let _ = process.wait_exit(Duration::from_secs(5));
    assert!(process.log().contains("INTERRUPTED"), "{}", process.log());

    // The server accepts connections and sends nothing at all.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut process = load(listener.local_addr().expect("a bound socket"));
    let _connected = listener.accept().expect("it connects");
    process.signal(Signal::INT);
    assert_eq!(process.wait_exit(SOON).code(), Some(2), "{}", process.log());
    assert!(process.log().contains("interrupted while connecting"), "{}", process.log());
}

/// Starts a server that sends this to every client, and keeps the connection.
fn saying(reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(reply);
            kept.push(stream);
        }
    });
    address
}

#[test]
fn ctl_tells_what_answers_where_no_keyway_does() {
    let _watch = watchdog(Duration::from_secs(60), "others' servers");
    let others: [(&[u8], &str); 5] = [
        (b"HTTP/1.0 404 File not found\r\nContent-Length: 6\r\n\r\n<html>", "(HTTP status 404)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "(HTTP status 200)"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", "(HTTP status 404)"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "does not speak HTTP: it says \"SSH-2.0-OpenSSH_9.2p1\""),
        (b"\x15\x03\x03\x00\x02\x02\x32", "speaks TLS; write https://"),
    ];
    for (reply, wanted) in others {
        let address = saying(reply).to_string();
        let wanted = [wanted, address.as_str()];
        // The program does not wait, although the server keeps the connection.
        let words = ["ctl", "--admin", &address, "status"];
        let program = keyway_binary(KEYWAY);
        let output = run_tool(&program.to_string_lossy(), &words, b"", Duration::from_secs(8));
        assert_eq!(output.status.code(), Some(3), "{}", output.text);
        let text = output.text;
        assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{wanted:?}: {text}");
        assert!(!text.contains("start that Keyway"), "{text}");
        assert!(text.contains("--admin HOST:PORT") || text.contains("https://"), "{text}");
    }
    let address = free_address().to_string();
    refused(&["ctl", "--admin", &address, "status"], 3, &["no answer from", "start that Keyway"]);
}

#[test]
fn ctl_tells_of_a_certificate_that_it_does_not_believe() {
    let _watch = watchdog(Duration::from_secs(60), "a certificate of others");
    let files = CertificateFiles::default();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    files.add("server", &ours.issue(&["127.0.0.1"]));
    let other = files.write("theirs.pem", &theirs.certificate);
    let tls = format!(
        "{{ cert_file = {:?}, key_file = {:?} }}",
        files.path("server.pem"),
        files.path("server.key")
    );
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("admin_tls", &tls);
    let keyway = Keyway::start(KEYWAY, config);
    let admin = format!("https://{}", keyway.admin());
    let words = ["ctl", "--admin", &admin, "--ca-file", name(&other), "status"];
    let text = refused(&words, 3, &["is there, and TLS to it fails", "--ca-file"]);
    assert!(!text.contains("start that Keyway"), "{text}");
}

#[test]
fn wrong_words_are_answered_with_the_right_ones() {
    let _watch = watchdog(Duration::from_secs(60), "words");
    let folder = TempDir::new();
    let empty = folder.write("empty.json", "");
    let missing = folder.path().join("missing.json");
    refused(&["bench", "report", name(&empty)], 2, &["empty.json is empty", "--json"]);
    let report = refused(&["bench", "report", name(&missing)], 2, &["missing.json"]);
    let compare = refused(&["bench", "compare", name(&missing), name(&missing)], 2, &[]);
    assert!(compare.starts_with(&report), "{compare}");
    let address = free_address().to_string();
    refused(&["bench", "load", &address, "-n", "0"], 2, &["--requests"]);
    refused(&["bench", "load", &address, "--pipeline", "0"], 2, &["--pipeline"]);
    refused(&["bench", "load", &address, "--duration", "1"], 2, &["write 1s", "--duration"]);
    refused(&["serve", "--port", "7000"], 2, &["--port", "--bind 127.0.0.1:PORT"]);
    for wrong in ["x", "0", "1001", "70000"] {
        let told = ["--limit", "not a whole number from 1 to 1000"];
        refused(&["ctl", "connections", "--limit", wrong], 2, &told);
    }
    let odd = folder.write("a\u{1b}[2Jb.toml", "[server]\nworkers = \"many\"\n");
    let text = refused(&["check", name(&odd)], 2, &["a\\x1b[2Jb.toml:2: "]);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let wrong = folder.write("wrong.toml", "[server]\nworkers = \"many\"\n[pool.s]\n");
    let text = refused(&["ctl", "--config", name(&wrong), "status"], 2, &["wrong.toml:2: workers"]);
    assert!(text.lines().all(|line| line.starts_with("keyway ctl: ")), "{text}");
    assert!(text.lines().all(|line| line.matches("keyway ctl").count() == 1), "{text}");
}

#[test]
fn a_file_of_another_command_is_told_in_the_first_line() {
    let folder = TempDir::new();
    let control = "cluster = \"test\"\nadmin = \"127.0.0.1:1\"\n[coordinator]\nkind = \"files\"\n";
    let control = folder.write("control.toml", control);
    let serve = folder.write("serve.toml", "[[listener]]\n[pool.main]\nkind = \"store\"\n");
    for (command, file, other) in [("serve", &control, "control"), ("control", &serve, "serve")] {
        let text = refused(&[command, name(file)], 2, &[]);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.ends_with(&format!("run `keyway {other} {}`", name(file))), "{text}");
    }
    // The admin address of a control node's file is asked.
    let words = ["ctl", "--config", name(&control), "fleet"];
    refused(&words, 3, &["no answer from 127.0.0.1:1"]);
}

#[test]
fn an_address_in_use_without_a_file_names_the_option() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string()));
    let (_taken, address) = taken.expect("a bound socket");
    refused(&["serve", "--bind", &address], 1, &["another address with --bind HOST:PORT"]);
}

#[test]
fn ctl_that_cannot_write_its_answer_says_so_and_fails() {
    let _watch = watchdog(Duration::from_secs(60), "a full disk");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("main")]));
    let admin = keyway.admin().to_string();
    let file = keyway.directory().join("keyway.toml");
    for words in [
        ["--admin", &admin, "status"],
        ["--admin", &admin, "pools"],
        ["--config", name(&file), "health"],
    ] {
        let disk = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let mut command = Command::new(keyway_binary(KEYWAY));
        let output = command.arg("ctl").args(words).stdout(disk).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {told}");
        assert!(told.starts_with("keyway ctl: cannot write to standard output"), "{told}");
    }
}

#[test]
fn ready_names_who_is_not_and_why() {
    let _watch = watchdog(Duration::from_secs(60), "ready");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("main")]));
    let admin = keyway.admin().to_string();
    let drained = run_keyway(KEYWAY, &["ctl", "--admin", &admin, "drain", "--wait"]);
    let _ = drained.expect_success("drain --wait");
    let words = ["ctl", "--admin", &admin, "ready"];
    refused(&words, 1, &["keyway ctl: Keyway is not ready:\n  draining\n"]);
}

#[test]
fn top_takes_the_address_of_the_environment() {
    let _watch = watchdog(Duration::from_secs(60), "KEYWAY_ADMIN");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("near")]));
    let folder = TempDir::new();
    let mut command = Command::new(keyway_binary(KEYWAY));
    command.args(["top", "--once", "--interval", "200ms"]);
    command.env("KEYWAY_ADMIN", format!("http://{}", keyway.admin()));
    let mut top = Process::spawn("top", &mut command, folder.path());
    assert!(top.wait_exit(SOON).success(), "{}", top.log());
    assert!(top.log().contains("near"), "{}", top.log());
}

#[test]
fn make_run_with_a_file_for_a_goal_tells_what_to_type() {
    if !tool_is_installed("make") {
        return skipped_for_want_of("make", "a file for a goal");
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let words = ["--directory", root, "run", "keyway.toml"];
    let output = run_tool("make", &words, b"", SOON);
    assert!(!output.status.success(), "{}", output.text);
    assert!(output.text.contains("write `make run FILE=keyway.toml`"), "{}", output.text);
}
