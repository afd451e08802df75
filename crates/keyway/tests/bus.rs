//! `keyway bus` as processes: a tree over shared memory and TCP, questions to it, deaths, orderly ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A node, what it has printed so far, and what it prints.
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

    /// Starts a node of this file, which gets the token.
    fn node(&self, name: &str, text: &str) -> Node {
        let file = self.path(name);
        let text = format!("token_files = [\"{}\"]\n{text}", self.path("token"));
        std::fs::write(&file, text).unwrap();
        let mut child =
            keyway().args(["bus", "node", &file]).stdout(Stdio::piped()).spawn().unwrap();
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
}

impl Node {
    /// Waits for a line that begins so, under a watchdog.
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
