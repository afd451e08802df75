//! Real servers of ZooKeeper.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::ports::{free_address, free_port};
use crate::process::Process;
use crate::skip::skipped_for_want_of;
use crate::temp::TempDir;
use crate::tool::tool_is_installed;

const READY_WITHIN: Duration = Duration::from_secs(40);

/// Where Debian's package has it. Its manifest names the rest.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// Whether ZooKeeper is installed. If not, says that `what` is left out.
pub fn has_zookeeper(what: &str) -> bool {
    let is_installed = Path::new(JAR).exists() && tool_is_installed("java");
    if !is_installed {
        skipped_for_want_of("zookeeper", what);
    }
    is_installed
}

/// An ensemble of ZooKeeper on free loopback ports, with ticks of 200 ms.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    servers: Vec<Server>,
    directory: TempDir,
}

#[derive(Debug)]
struct Server {
    process: Option<Process>,
    client: SocketAddr,
}

impl ZooKeeperEnsemble {
    /// Starts this many servers.
    ///
    /// # Panics
    /// When they do not get ready.
    pub fn start(count: usize) -> ZooKeeperEnsemble {
        let directory = TempDir::new();
        let ports: Vec<[u16; 2]> = (0..count).map(|_| [free_port(), free_port()]).collect();
        let peers: String = ports
            .iter()
            .enumerate()
            .map(|(n, [data, vote])| format!("server.{}=127.0.0.1:{data}:{vote}\n", n + 1))
            .collect();
        let mut servers = Vec::new();
        for index in 0..count {
            let client = free_address();
            let data = directory.path().join(format!("data{index}"));
            std::fs::create_dir_all(&data).expect("a directory in a fresh one");
            directory.write(&format!("data{index}/myid"), format!("{}\n", index + 1));
            let config = format!(
                "tickTime=200\ninitLimit=50\nsyncLimit=10\ndataDir={}\nclientPort={}\n\
                 clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n\
                 maxSessionTimeout=60000\n\
                 4lw.commands.whitelist=srvr\nforceSync=no\n{}",
                data.display(),
                client.port(),
                if count > 1 { peers.as_str() } else { "" }
            );
            directory.write(&format!("zoo{index}.cfg"), config);
            servers.push(Server { process: None, client });
        }
        let mut ensemble = ZooKeeperEnsemble { servers, directory };
        (0..count).for_each(|index| ensemble.launch(index));
        (0..count).for_each(|index| ensemble.await_ready(index));
        ensemble
    }

    /// Where clients connect to each server.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.client).collect()
    }

    /// The process of a server that runs.
    pub fn process(&self, index: usize) -> Option<&Process> {
        self.servers.get(index)?.process.as_ref()
    }

    /// The index of the leader, if there is one.
    pub fn leader(&self) -> Option<usize> {
        let is_leader =
            |server: &Server| serves(server.client).is_some_and(|text| text.contains("leader"));
        self.servers.iter().position(is_leader)
    }

    /// Asks a server by ZooKeeper's own client, which prints what it is asked for. Takes a second
    /// or two. Returns `None` if the client fails, as for a node that is not there.
    pub fn ask(&self, arguments: &[&str]) -> Option<String> {
        let server = self.servers.first()?.client.to_string();
        let mut command = Command::new("java");
        command
            .args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", JAR])
            .args(["org.apache.zookeeper.ZooKeeperMain", "-server", &server])
            .args(arguments);
        let output = command.output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    /// kill -9.
    pub fn kill(&mut self, index: usize) {
        self.servers[index].process = None;
    }

    /// Starts a server again with its data.
    pub fn restart(&mut self, index: usize) {
        self.kill(index);
        self.launch(index);
        self.await_ready(index);
    }

    /// kill -9, and a copy of what is on its disk.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn back_up(&mut self, index: usize) {
        self.kill(index);
        self.copy(&format!("data{index}"), &format!("backup{index}"));
    }

    /// kill -9, and the copy of [`ZooKeeperEnsemble::back_up`] in place of what is on its disk.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn go_back(&mut self, index: usize) {
        self.kill(index);
        self.copy(&format!("backup{index}"), &format!("data{index}"));
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.directory.path().join(name));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.is_ok_and(|status| status.success()), "a directory is copied");
    }

    fn launch(&mut self, index: usize) {
        let config = self.directory.path().join(format!("zoo{index}.cfg"));
        let mut command = Command::new("java");
        command
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", JAR])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(config);
        let name = format!("zookeeper{index}");
        let process = Process::spawn(&name, &mut command, self.directory.path());
        self.servers[index].process = Some(process);
    }

    fn await_ready(&mut self, index: usize) {
        let server = &mut self.servers[index];
        let client = server.client;
        let Some(process) = &mut server.process else { return };
        process.wait_ready(READY_WITHIN, || serves(client).is_some());
    }
}

/// What a server says of itself once it serves.
fn serves(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(b"srvr").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.contains("Mode:").then_some(text)
}
