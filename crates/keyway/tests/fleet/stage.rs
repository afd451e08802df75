//! The processes of a fleet.

use keyway_testkit::{
    EtcdCluster, Process, RedisServer, TempDir, ToolOutput, free_address, http_get, run_keyway,
    wait_for, wait_until,
};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
pub const SOON: Duration = Duration::from_secs(20);

/// A control node: its file, its addresses, and its process while it runs.
pub struct Control {
    pub admin: SocketAddr,
    pub bus: SocketAddr,
    file: PathBuf,
    name: String,
    pub process: Option<Process>,
}

/// A proxy: its file, its addresses, and its process while it runs.
pub struct Proxy {
    pub client: SocketAddr,
    admin: SocketAddr,
    pub id: String,
    pub file: PathBuf,
    pub process: Option<Process>,
}

/// Everything.
pub struct Fleet {
    pub controls: Vec<Control>,
    pub proxies: Vec<Proxy>,
    pub servers: Vec<RedisServer>,
    pub directory: TempDir,
    etcd: Option<EtcdCluster>,
}

fn spawn(name: &str, words: &[&str], file: &PathBuf, directory: &TempDir) -> Process {
    let mut command = Command::new(KEYWAY);
    Process::spawn(name, command.args(words).arg(file), directory.path())
}

impl Control {
    pub fn start(&mut self, directory: &TempDir) {
        self.process = Some(spawn(&self.name, &["control"], &self.file, directory));
    }

    /// Returns the fleet as this node knows it; `None` if it does not answer.
    pub fn fleet(&self) -> Option<Value> {
        self.process.as_ref()?;
        std::net::TcpStream::connect_timeout(&self.admin, SOON).ok()?;
        let reply = http_get(self.admin, "/v1/fleet");
        (reply.status == 200).then(|| serde_json::from_str(&reply.body).expect("JSON"))
    }

    pub fn leads(&self) -> bool {
        self.fleet().is_some_and(|fleet| fleet["leads"] == true)
    }

    pub fn ctl(&self, arguments: &[&str]) -> ToolOutput {
        let admin = self.admin.to_string();
        run_keyway(KEYWAY, &[&["ctl", "--admin", &admin], arguments].concat())
    }
}

impl Proxy {
    /// Starts it, and waits until it serves.
    pub fn start(&mut self, directory: &TempDir) {
        let name = self.id.replace('.', "-");
        self.process = Some(spawn(&name, &["serve"], &self.file, directory));
        let client = self.client;
        let serves = || std::net::TcpStream::connect_timeout(&client, SOON).is_ok();
        wait_until("a proxy serves", SOON, serves);
    }

    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.terminate();
        assert!(process.wait_exit(SOON).success(), "{}", process.log());
    }

    pub fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    /// Returns the settings that it runs with.
    pub fn config(&self) -> String {
        let admin = self.admin.to_string();
        run_keyway(KEYWAY, &["ctl", "--admin", &admin, "config"]).text
    }
}

impl Fleet {
    /// Starts two control nodes over files or etcd, and three proxies.
    pub fn start(etcd: Option<EtcdCluster>) -> Fleet {
        let directory = TempDir::new();
        directory.write("token", "a token for these processes\n");
        let coordinator = match &etcd {
            None => {
                format!("kind = \"files\"\ndir = \"{}/coordinator\"", directory.path().display())
            }
            Some(etcd) => {
                let all: Vec<_> =
                    etcd.addresses().iter().map(|address| format!("\"{address}\"")).collect();
                format!("kind = \"etcd\"\nendpoints = [{}]", all.join(", "))
            }
        };
        let controls = (1..=2).map(|nth| {
            let (admin, bus) = (free_address(), free_address());
            let text = format!(
                "cluster = \"test\"\nadmin = \"{admin}\"\n[coordinator]\n{coordinator}\nlease = \
                 \"2s\"\n[bus]\nid = \"z1.control.0.{nth}\"\nlisten = [\"tcp://{bus}\"]\n\
                 token_files = [\"token\"]\n"
            );
            let name = format!("control-{nth}");
            let file = directory.write(&format!("{name}.toml"), text);
            Control { admin, bus, file, name, process: None }
        });
        let controls: Vec<Control> = controls.collect();
        let servers = RedisServer::start_many(2);
        let mut fleet = Fleet { controls, proxies: Vec::new(), servers, directory, etcd };
        for nth in 1..=3 {
            let proxy = fleet.proxy(nth);
            fleet.proxies.push(proxy);
        }
        for control in &mut fleet.controls {
            control.start(&fleet.directory);
        }
        for proxy in &mut fleet.proxies {
            proxy.start(&fleet.directory);
        }
        fleet
    }

    fn proxy(&self, nth: usize) -> Proxy {
        let (client, admin) = (free_address(), free_address());
        let urls: Vec<_> =
            self.controls.iter().map(|control| format!("\"tcp://{}\"", control.bus)).collect();
        let text = format!(
            "[server]\nworkers = 1\nadmin = \"tcp://{admin}\"\ndrain_timeout = \"1s\"\n\
             [control]\ncluster = \"test\"\nid = \"z{nth}.proxy.0.{nth}\"\nurls = [{}]\n\
             token_file = \"token\"\nstate_file = \"state-{nth}\"\npools = [\"main\"]\n\
             [[listener]]\nbind = \"tcp://{client}\"\npool = \"main\"\n{}",
            urls.join(", "),
            self.document("4s", "")
        );
        let file = self.directory.write(&format!("proxy-{nth}.toml"), text);
        Proxy { client, admin, id: format!("z{nth}.proxy.0.{nth}"), file, process: None }
    }

    /// Returns a document: the pool `main` over all servers, with this timeout.
    pub fn document(&self, timeout: &str, more: &str) -> String {
        let all = self.servers.iter().enumerate();
        let all: Vec<_> =
            all.map(|(nth, server)| format!("\"{}:1 s{nth}\"", server.address())).collect();
        let servers = all.join(", ");
        format!(
            "[pool.main]\nkind = \"sharded\"\nservers = [{servers}]\ntimeout = \"{timeout}\"\n{more}"
        )
    }

    /// Waits until one of the control nodes leads. Returns its position.
    pub fn leader(&self) -> usize {
        wait_for("somebody leads", SOON, || self.controls.iter().position(Control::leads))
    }

    /// Stores a document by the node that leads.
    pub fn apply(&self, text: &str, base: u64) -> ToolOutput {
        let file = self.directory.write("document.toml", text);
        let (file, base) = (file.display().to_string(), base.to_string());
        self.controls[self.leader()].ctl(&["apply", &file, "--base", &base])
    }

    /// Stores a document by the node that leads, and is sure that it was stored.
    pub fn store(&self, text: &str, base: u64) {
        let _ = self.apply(text, base).expect_success("keyway ctl apply");
    }

    /// Returns the state of a member, as the leader tells it.
    pub fn state(&self, nth: usize) -> Option<String> {
        let fleet = self
            .controls
            .iter()
            .find_map(|control| control.fleet().filter(|fleet| fleet["leads"] == true))?;
        let members = fleet["members"].as_array()?;
        let member = members.iter().find(|member| member["id"] == self.proxies[nth].id.as_str())?;
        Some(member["state"].as_str()?.to_owned())
    }

    /// Waits until members serve by the published document of this revision.
    pub fn wait_current(&self, members: &[usize], revision: u64) {
        for nth in members {
            wait_until("a member is current", SOON, || {
                let is_current = self.state(*nth).as_deref() == Some("current");
                is_current
                    && self.controls[self.leader()]
                        .fleet()
                        .is_some_and(|fleet| fleet["revision"] == revision)
            });
        }
    }

    /// The coordinator's processes, if it has any.
    pub fn etcd(&mut self) -> Option<&mut EtcdCluster> {
        self.etcd.as_mut()
    }
}
