//! The processes of a fleet.

use keyway_testkit::certificates::{Authority, CertificateFiles, Span};
use keyway_testkit::{
    EtcdCluster, Process, RedisServer, TempDir, ToolOutput, ZooKeeperEnsemble, free_address,
    http_get, run_keyway, wait_for, wait_until,
};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
pub const SOON: Duration = Duration::from_secs(20);

/// The coordinator of a fleet.
pub enum Coordinator {
    Files,
    Etcd(EtcdCluster),
    ZooKeeper(ZooKeeperEnsemble),
}

impl Coordinator {
    /// Returns the keys of `[coordinator]`.
    fn keys(&self, directory: &TempDir) -> String {
        let (kind, addresses) = match self {
            Coordinator::Files => {
                let directory = directory.path().display();
                return format!("kind = \"files\"\ndir = \"{directory}/coordinator\"");
            }
            Coordinator::Etcd(etcd) => ("etcd", etcd.addresses()),
            Coordinator::ZooKeeper(zookeeper) => ("zookeeper", zookeeper.addresses()),
        };
        let all: Vec<_> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
        format!("kind = \"{kind}\"\nendpoints = [{}]", all.join(", "))
    }

    /// Kills its first process. Returns whether it has one.
    pub fn kill(&mut self) -> bool {
        self.kill_at(0)
    }

    /// Kills the process at this position. Returns whether it has one.
    pub fn kill_at(&mut self, at: usize) -> bool {
        match self {
            Coordinator::Files => return false,
            Coordinator::Etcd(etcd) => etcd.kill(at),
            Coordinator::ZooKeeper(zookeeper) => zookeeper.kill(at),
        }
        true
    }

    /// Starts its first process again.
    pub fn restart(&mut self) {
        self.restart_at(0);
    }

    /// Starts all processes again that were killed.
    pub fn restart_all(&mut self) {
        match self {
            Coordinator::Files => {}
            Coordinator::Etcd(etcd) => etcd.restart_all(),
            Coordinator::ZooKeeper(zookeeper) => zookeeper.restart(0),
        }
    }

    /// Starts the process at this position again.
    pub fn restart_at(&mut self, at: usize) {
        match self {
            Coordinator::Files => {}
            Coordinator::Etcd(etcd) => etcd.restart(at),
            Coordinator::ZooKeeper(zookeeper) => zookeeper.restart(at),
        }
    }
}

/// The way in which nodes of the bus know each other: by a token, or by certificates.
enum Trust {
    Token,
    Certificates(Box<CertificateFiles>),
}

impl Trust {
    /// Returns the keys for a node with this id; `token` is the line for a token.
    fn keys(&self, id: &str, token: &str) -> String {
        let Trust::Certificates(files) = self else { return token.to_owned() };
        files.add(id, &files.authority.issue(&[&format!("{id}.bus.keyway")]));
        let file = |name: String| files.path(&name).display().to_string();
        let (ca, cert) = (file("ca.pem".to_owned()), file(format!("{id}.pem")));
        let key = file(format!("{id}.key"));
        format!("tls = {{ ca_file = \"{ca}\", cert_file = \"{cert}\", key_file = \"{key}\" }}\n")
    }
}

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
    /// The address of the pool `other`, which is always the file's.
    pub other: SocketAddr,
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
    pub coordinator: Coordinator,
    trust: Trust,
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

    /// Returns a group of servers as this node knows it; `None` if it does not answer.
    pub fn group(&self, pool: &str) -> Option<Value> {
        self.process.as_ref()?;
        std::net::TcpStream::connect_timeout(&self.admin, SOON).ok()?;
        let reply = http_get(self.admin, "/v1/fleet/groups");
        let body: Value = serde_json::from_str(&reply.body).ok()?;
        body["groups"].as_array()?.iter().find(|group| group["pool"] == pool).cloned()
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
    /// Starts two control nodes and three proxies, whose bus has a token.
    pub fn start(coordinator: Coordinator) -> Fleet {
        Fleet::start_with(coordinator, Trust::Token, (2, 3))
    }

    /// Starts so many control nodes and proxies, whose bus has a token.
    pub fn start_many(coordinator: Coordinator, controls: usize, proxies: usize) -> Fleet {
        Fleet::start_with(coordinator, Trust::Token, (controls, proxies))
    }

    /// Starts a fleet over files, whose bus has certificates.
    pub fn start_with_certificates() -> Fleet {
        let trust = Trust::Certificates(Box::default());
        Fleet::start_with(Coordinator::Files, trust, (2, 3))
    }

    fn start_with(
        coordinator: Coordinator,
        trust: Trust,
        (controls, proxies): (usize, usize),
    ) -> Fleet {
        let directory = TempDir::in_memory();
        directory.write("token", "a token for these processes\n");
        let keys = coordinator.keys(&directory);
        let controls = (1..=controls).map(|nth| {
            let (admin, bus) = (free_address(), free_address());
            let known = trust.keys(&format!("z1.control.0.{nth}"), "token_files = [\"token\"]\n");
            let text = format!(
                "cluster = \"test\"\nadmin = \"{admin}\"\n[coordinator]\n{keys}\nlease = \
                 \"2s\"\n[bus]\nid = \"z1.control.0.{nth}\"\nlisten = [\"tcp://{bus}\"]\n\
                 {known}"
            );
            let name = format!("control-{nth}");
            let file = directory.write(&format!("{name}.toml"), text);
            Control { admin, bus, file, name, process: None }
        });
        let controls: Vec<Control> = controls.collect();
        let servers = RedisServer::start_many(2);
        let all = Vec::new();
        let mut fleet = Fleet { controls, proxies: all, servers, directory, coordinator, trust };
        for nth in 1..=proxies {
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
        let (client, admin, other) = (free_address(), free_address(), free_address());
        let urls: Vec<_> =
            self.controls.iter().map(|control| format!("\"tcp://{}\"", control.bus)).collect();
        let known = self.trust.keys(&format!("z{nth}.proxy.0.{nth}"), "token_file = \"token\"\n");
        let text = format!(
            "[server]\nworkers = 1\nadmin = \"tcp://{admin}\"\ndrain_timeout = \"1s\"\n\
             [control]\ncluster = \"test\"\nid = \"z{nth}.proxy.0.{nth}\"\nurls = [{}]\n\
             {known}state_file = \"state-{nth}\"\npools = [\"main\"]\n\
             [[listener]]\nbind = \"tcp://{client}\"\npool = \"main\"\n\
             [[listener]]\nbind = \"tcp://{other}\"\npool = \"other\"\n{}{}",
            urls.join(", "),
            self.document("4s", ""),
            self.document("4s", "").replace("[pool.main]", "[pool.other]")
        );
        let file = self.directory.write(&format!("proxy-{nth}.toml"), text);
        Proxy { client, other, admin, id: format!("z{nth}.proxy.0.{nth}"), file, process: None }
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

    /// Stores a document by the node that leads, and is sure that it was stored. Members may refuse it.
    pub fn store(&self, text: &str, base: u64) {
        let told = self.apply(text, base);
        assert!(told.text.contains("stored and published as"), "{}", told.text);
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

    /// Gives a node of the bus a certificate that ends in five days. Returns the name of its file.
    pub fn give_ending_certificate(&self, id: &str) -> String {
        let Trust::Certificates(files) = &self.trust else { panic!("the bus has certificates") };
        let name = format!("{id}.bus.keyway");
        files.add(id, &files.authority.issue_for(&[&name], Span::EndsSoon));
        files.path(&format!("{id}.pem")).display().to_string()
    }

    /// Gives a proxy a certificate of another authority than that of the fleet.
    pub fn give_strange_certificate(&self, nth: usize) {
        let Trust::Certificates(files) = &self.trust else { return };
        let id = &self.proxies[nth].id;
        let stranger = Authority::new("another authority");
        files.add(id, &stranger.issue(&[&format!("{id}.bus.keyway")]));
    }
}
