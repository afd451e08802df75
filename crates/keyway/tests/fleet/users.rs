//! Users and limits of the document, with real processes.

use crate::stage::{KEYWAY, SOON};
use keyway_testkit::{
    Client, Process, RedisServer, TempDir, ToolOutput, Value, free_address, run_keyway, run_tool,
    wait_until, watchdog,
};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

const OPERATORS: [(&str, &str, &str); 4] = [
    ("vic", "viewer", ""),
    ("ann", "operator", "pools = [\"main\"]\n"),
    ("oz", "operator", ""),
    ("eve", "admin", ""),
];

/// A proxy: its name, its addresses, and its process while it runs.
struct Proxy {
    name: &'static str,
    client: SocketAddr,
    admin: SocketAddr,
    process: Option<Process>,
}

/// A control node and two proxies. The first one leaves users and limits to the document, the second
/// one only limits.
struct Stage {
    control: SocketAddr,
    process: Option<Process>,
    proxies: [Proxy; 2],
    server: RedisServer,
    directory: TempDir,
    hash: String,
}

fn spawn(word: &str, name: &str, directory: &TempDir) -> Process {
    let mut command = Command::new(KEYWAY);
    let file = directory.path().join(format!("{name}.toml"));
    Process::spawn(name, command.arg(word).arg(file), directory.path())
}

impl Stage {
    fn start() -> Stage {
        let directory = TempDir::new();
        directory.write("bus.token", "a token for these processes\n");
        directory.write("old.password", "old-secret\n");
        let mut operators = String::new();
        for (name, role, more) in OPERATORS {
            directory.write(&format!("{name}.token"), format!("a-token-that-is-of-{name}\n"));
            operators += &format!(
                "[[operator]]\nname = \"{name}\"\nrole = \"{role}\"\ntoken_file = \
                 \"{name}.token\"\n{more}"
            );
        }
        let (control, bus) = (free_address(), free_address());
        let text = format!(
            "cluster = \"test\"\nadmin = \"{control}\"\n{operators}[coordinator]\nkind = \
             \"files\"\ndir = \"coordinator\"\n[bus]\nid = \"z1.control.0.1\"\nlisten = \
             [\"tcp://{bus}\"]\ntoken_files = [\"bus.token\"]\n"
        );
        directory.write("control.toml", text);
        let hashed = run_tool(KEYWAY, &["hash-password"], b"new-secret\n", SOON);
        let hash = hashed.expect_success("keyway hash-password").stdout.trim().to_owned();
        let server = RedisServer::start();
        let keys = [("first", "users = true\nlimits = true\n"), ("second", "limits = true\n")];
        let proxies = keys.map(|(name, keys)| {
            let (client, admin) = (free_address(), free_address());
            let nth = name.len();
            let text = format!(
                "[server]\nworkers = 1\nadmin = \"tcp://{admin}\"\n{operators}[control]\ncluster = \
                 \"test\"\nid = \"z1.proxy.0.{nth}\"\nurls = [\"tcp://{bus}\"]\ntoken_file = \
                 \"bus.token\"\nstate_file = \"{name}.state\"\npools = [\"main\"]\n{keys}\
                 [[listener]]\nbind = \"tcp://{client}\"\npool = \"main\"\n\
                 [[user]]\nname = \"old\"\nrules = \"+@all ~*\"\npassword_file = \"old.password\"\n{}\
                 [pool.wide]\nkind = \"sharded\"\nservers = [\"127.0.0.1:1:1\"]\nclients_max = 1000\n",
                pool(&server, "4s")
            );
            directory.write(&format!("{name}.toml"), text);
            Proxy { name, client, admin, process: None }
        });
        let process = Some(spawn("control", "control", &directory));
        let mut stage = Stage { control, process, proxies, server, directory, hash };
        stage.start_proxy(0);
        stage.start_proxy(1);
        stage.wait_all("current", 0);
        stage
    }

    fn start_proxy(&mut self, nth: usize) {
        let proxy = &mut self.proxies[nth];
        proxy.process = Some(spawn("serve", proxy.name, &self.directory));
        let client = proxy.client;
        wait_until("a proxy serves", SOON, || Client::try_connect(client).is_ok());
    }

    fn ctl_at(&self, at: SocketAddr, name: &str, arguments: &[&str]) -> ToolOutput {
        let token = self.directory.path().join(format!("{name}.token")).display().to_string();
        let first = ["ctl", "--admin", &at.to_string(), "--token-file", &token];
        run_keyway(KEYWAY, &[&first, arguments].concat())
    }

    fn ctl(&self, name: &str, arguments: &[&str]) -> ToolOutput {
        self.ctl_at(self.control, name, arguments)
    }

    /// Waits until both proxies are in this state, and serve by the document of this revision.
    fn wait_all(&self, state: &str, revision: u64) {
        wait_until(state, SOON, || {
            let told = self.ctl("eve", &["fleet"]);
            let is_in = |line: &&str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let running = words.get(2).and_then(|word| word.split('.').nth(1));
                words.get(1) == Some(&state) && running == Some(&*revision.to_string())
            };
            told.stdout.lines().filter(is_in).count() == self.proxies.len()
        });
    }

    fn apply(&self, name: &str, text: &str, more: &[&str]) -> ToolOutput {
        let file = self.directory.write("document.toml", text).display().to_string();
        self.ctl(name, &[&["apply", &file], more].concat())
    }

    fn store(&self, name: &str, text: &str, base: u64) -> ToolOutput {
        let told = self.apply(name, text, &["--base", &base.to_string()]);
        let told = told.expect_success("keyway ctl apply");
        self.wait_all("current", base + 1);
        told
    }

    fn refused(&self, told: &ToolOutput, words: &str) {
        assert_eq!(told.status.code(), Some(1), "{}", told.text);
        assert!(told.text.contains(words), "{}", told.text);
        assert!(!told.text.contains(&self.hash), "{}", told.text);
    }

    fn user(&self) -> String {
        let hash = &self.hash;
        format!("[[user]]\nname = \"app\"\nrules = \"+@all ~*\"\npassword_hashes = [\"{hash}\"]\n")
    }

    /// Logs in at a proxy.
    fn log_in(&self, nth: usize, name: &str, password: &str) -> (Client, Value) {
        let mut client = Client::connect(self.proxies[nth].client);
        let told = client.command(&["AUTH", name, password]);
        (client, told)
    }

    /// Checks who may log in at a proxy, and how many clients may come.
    fn check(&self, nth: usize, is_new: bool, clients_max: &str) {
        let (mut old, told_old) = self.log_in(nth, "old", "old-secret");
        let (mut new, told_new) = self.log_in(nth, "app", "new-secret");
        let (right, wrong) = if is_new { (&told_new, &told_old) } else { (&told_old, &told_new) };
        assert_eq!(*right, Value::simple("OK"), "proxy {nth}");
        assert!(wrong.is_error() && wrong.error_text().contains("WRONGPASS"), "{wrong:?}");
        let client = if is_new { &mut new } else { &mut old };
        let told = format!("{:?}", client.words("CONFIG GET maxclients"));
        assert!(told.contains(&format!("{clients_max:?}")), "{told}");
        assert_eq!(client.words("SET key value"), Value::simple("OK"));
    }

    fn logs(&self) -> String {
        let all = self.proxies.iter().filter_map(|proxy| proxy.process.as_ref());
        all.chain(&self.process).map(Process::log).collect()
    }
}

fn pool(server: &RedisServer, timeout: &str) -> String {
    let address = server.address();
    format!(
        "[pool.main]\nkind = \"sharded\"\nservers = [\"{address}:1\"]\ntimeout = \"{timeout}\"\n"
    )
}

#[test]
fn users_and_limits_of_the_document_are_those_of_proxies_that_leave_them_to_it() {
    let _watchdog = watchdog(Duration::from_secs(180), "users of the document");
    let mut stage = Stage::start();
    stage.check(0, false, "100000");
    let (mut before, told) = stage.log_in(0, "old", "old-secret");
    assert_eq!(told, Value::simple("OK"));
    let limits = "[limits]\nclients_max = 4321\n";
    let document =
        |timeout: &str| format!("{limits}{}{}", stage.user(), pool(&stage.server, timeout));
    let first = document("5s");
    check_refusals(&stage, &first);
    let told = stage.store("eve", &first, 0);
    assert!(told.stdout.contains("user app: added\nlimits: added"), "{}", told.text);
    stage.check(0, true, "4321");
    stage.check(1, false, "4321");
    before.expect_closed();
    check_shown(&stage, &first);

    // An operator of the pool goes on from the document with its users.
    let second = document("6s");
    stage.store("ann", &second, 1);
    // The file has a pool with a larger bound.
    let tight = second.replace("4321", "7");
    let told = stage.apply("eve", &tight, &["--base", "2"]);
    assert_eq!(told.status.code(), Some(1), "{}", told.text);
    assert!(told.stdout.contains("0 of 2 members serve by it"), "{}", told.text);
    stage.wait_all("refused", 2);
    let told = stage.ctl("vic", &["fleet"]);
    assert!(told.stdout.contains("clients_max in [pool.wide] is above"), "{}", told.text);
    stage.check(0, true, "4321");
    stage.refused(&stage.ctl("oz", &["rollback", "2", "--base", "3"]), "users or limits");
    let _ = stage.ctl("eve", &["rollback", "2", "--base", "3"]).expect_success("rollback");
    stage.wait_all("current", 4);
    check_alone(&mut stage);

    let told = stage.store("eve", &pool(&stage.server, "6s"), 4);
    assert!(told.stdout.contains("each proxy has the users of its file"), "{}", told.text);
    stage.check(0, false, "100000");
    stage.check(1, false, "100000");
    assert!(!stage.logs().contains(&stage.hash), "{}", stage.logs());
}

/// Users and limits are an admin's, and a password in clear is nobody's.
fn check_refusals(stage: &Stage, document: &str) {
    for name in ["ann", "oz"] {
        let told = stage.apply(name, document, &["--base", "0"]);
        stage.refused(&told, &format!("this changes users or limits: an admin may, and {name}"));
        let limits = format!("[limits]\nclients_max = 9\n{}", pool(&stage.server, "4s"));
        stage.refused(&stage.apply(name, &limits, &["--base", "0"]), "users or limits");
    }
    let file = pool(&stage.server, "5s") + "password_file = \"old.password\"\n";
    stage.refused(&stage.apply("oz", &file, &["--base", "0"]), "this names a file");
    let hashes = format!("password_hashes = [\"{}\"]", stage.hash);
    let clear = document.replace(&hashes, "password = \"in clear\"");
    let told = stage.apply("eve", &clear, &["--base", "0"]);
    stage.refused(&told, "document:6: password in [[user]]");
    let wrong = document.replace("+@all", "+@al");
    stage.refused(&stage.apply("eve", &wrong, &["--dry-run"]), "document:5: ");
    let dry = stage.apply("eve", document, &["--dry-run"]).expect_success("keyway ctl apply");
    assert!(dry.stdout.contains("user app: added") && !dry.text.contains(&stage.hash));
    stage.check(0, false, "100000");
}

/// Everybody sees whose users and limits are; viewers see no hash.
fn check_shown(stage: &Stage, document: &str) {
    for (nth, users) in [(0, "from document"), (1, "from the file")] {
        let told = stage.ctl_at(stage.proxies[nth].admin, "vic", &["config"]);
        let told = told.expect_success("keyway ctl config").stdout;
        assert!(told.contains(&format!("# The user is {users}")), "{told}");
        assert!(told.contains("# The limits are from document"), "{told}");
        assert!(!told.contains(&stage.hash), "{told}");
        let json = stage.ctl_at(stage.proxies[nth].admin, "vic", &["--json", "config"]);
        let body: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
        assert_eq!(body["document_users"], nth == 0, "{body}");
        assert_eq!(body["document_limits"], true, "{body}");
    }
    let read =
        |name: &str, words: &[&str]| stage.ctl(name, words).expect_success("keyway ctl").stdout;
    let kept = ["documents", "--revision", "1"];
    assert_eq!(read("eve", &kept), document);
    assert_eq!(read("ann", &kept), document);
    let masked = read("vic", &kept);
    assert!(!masked.contains(&stage.hash) && masked.contains("name = \"app\""), "{masked}");
    stage.refused(&stage.apply("eve", &masked, &["--dry-run"]), "the document has a mask");
    for words in [&["history"][..], &["diff", "0", "1"], &["audit"], &["--json", "audit"]] {
        let told = read("vic", words);
        assert!(told.contains("user app: added"), "{words:?}: {told}");
        assert!(!told.contains(&stage.hash), "{words:?}: {told}");
    }
    let other = document.replace("+@all ~*", "+@read ~app:*");
    let file = stage.directory.write("other.toml", other).display().to_string();
    let told = read("vic", &["diff", &file]);
    assert!(told.contains("user app: rules ") && told.contains("+@read"), "{told}");
    assert!(!told.contains("password changed"), "{told}");
}

/// A proxy that starts while control is away has the users and limits of the document.
fn check_alone(stage: &mut Stage) {
    let mut control = stage.process.take().expect("it runs");
    control.kill();
    let mut process = stage.proxies[0].process.take().expect("it runs");
    process.terminate();
    assert!(process.wait_exit(SOON).success(), "{}", process.log());
    stage.start_proxy(0);
    stage.check(0, true, "4321");
    stage.process = Some(spawn("control", "control", &stage.directory));
    stage.wait_all("current", 4);
}
