//! Real members of etcd.

use base64::Engine;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::certificates::CertificateFiles;
use crate::ports::free_address;
use crate::process::Process;
use crate::skip::skipped_for_want_of;
use crate::temp::TempDir;
use crate::tool::tool_is_installed;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// Whether etcd is installed. If not, says that `what` is left out.
pub fn has_etcd(what: &str) -> bool {
    let is_installed = tool_is_installed("etcd");
    if !is_installed {
        skipped_for_want_of("etcd", what);
    }
    is_installed
}

/// A cluster of etcd on free loopback ports.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    directory: TempDir,
}

#[derive(Debug)]
struct Member {
    process: Option<Process>,
    client: SocketAddr,
    arguments: Vec<String>,
}

/// Asks the JSON gateway of an etcd. Returns its whole HTTP response.
///
/// # Panics
/// When it does not answer.
pub fn etcd_post(address: SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("etcd listens");
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("etcd reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("etcd answers");
    answer
}

/// Sets a key of version 2 of etcd's API. The value is one that a form takes as it is.
///
/// # Panics
/// When etcd does not answer that it was set.
pub fn etcd_put_v2(address: SocketAddr, key: &str, value: &str) {
    let mut stream = TcpStream::connect(address).expect("etcd listens");
    let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let body = format!("value={escaped}");
    let request = format!(
        "PUT /v2/keys{key} HTTP/1.1\r\nHost: {address}\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("etcd reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("etcd answers");
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
}

impl EtcdCluster {
    /// Starts this many members.
    ///
    /// # Panics
    /// When they do not get ready.
    pub fn start(count: usize) -> EtcdCluster {
        EtcdCluster::start_with(count, None)
    }

    /// The same with the certificate `server` of these files, for clients. The files must live as
    /// long as the cluster.
    pub fn start_with(count: usize, certificates: Option<&CertificateFiles>) -> EtcdCluster {
        let directory = TempDir::new();
        let peers: Vec<SocketAddr> = (0..count).map(|_| free_address()).collect();
        let cluster = peers.iter().enumerate().map(|(n, peer)| format!("m{n}=http://{peer}"));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let members = peers.iter().enumerate().map(|(n, peer)| {
            let client = free_address();
            let scheme = if certificates.is_some() { "https" } else { "http" };
            let mut arguments: Vec<String> = [
                ("--name", format!("m{n}")),
                ("--data-dir", directory.path().join(format!("m{n}")).display().to_string()),
                ("--listen-client-urls", format!("{scheme}://{client}")),
                ("--advertise-client-urls", format!("{scheme}://{client}")),
                ("--listen-peer-urls", format!("http://{peer}")),
                ("--initial-advertise-peer-urls", format!("http://{peer}")),
                ("--initial-cluster", cluster.clone()),
                ("--heartbeat-interval", "50".to_owned()),
                ("--election-timeout", "500".to_owned()),
                ("--logger", "zap".to_owned()),
            ]
            .into_iter()
            .flat_map(|(option, value)| [option.to_owned(), value])
            .collect();
            if let Some(files) = certificates {
                let path = |name: &str| files.path(name).display().to_string();
                let options = [("--cert-file", "server.pem"), ("--key-file", "server.key")];
                arguments.extend(
                    options.into_iter().flat_map(|(option, name)| [option.to_owned(), path(name)]),
                );
            }
            Member { process: None, client, arguments }
        });
        let mut cluster = EtcdCluster { members: members.collect(), directory };
        for index in 0..count {
            cluster.launch(index);
        }
        (0..count).for_each(|index| cluster.await_ready(index));
        cluster
    }

    /// Where clients connect to each member.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.client).collect()
    }

    /// Deletes a key.
    ///
    /// # Panics
    /// When the first member does not answer.
    pub fn delete(&self, key: &str) {
        let key = base64::engine::general_purpose::STANDARD.encode(key);
        let body = format!(r#"{{"key":"{key}"}}"#);
        let answer = etcd_post(self.members[0].client, "/v3/kv/deleterange", &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The value under a key, as the first member knows it. Returns `None` if there is no such key.
    ///
    /// # Panics
    /// When the member does not answer.
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        let base64 = base64::engine::general_purpose::STANDARD;
        let body = format!(r#"{{"key":"{}"}}"#, base64.encode(key));
        let answer = etcd_post(self.members[0].client, "/v3/kv/range", &body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let value = answer.split(r#""value":""#).nth(1)?.split('"').next()?;
        Some(base64.decode(value).expect("base64"))
    }

    /// The process of a member that runs.
    pub fn process(&self, index: usize) -> Option<&Process> {
        self.members.get(index)?.process.as_ref()
    }

    /// kill -9.
    pub fn kill(&mut self, index: usize) {
        self.members[index].process = None;
    }

    /// Starts a member again with its data.
    pub fn restart(&mut self, index: usize) {
        self.kill(index);
        self.launch(index);
        self.await_ready(index);
    }

    /// Starts all members again, for none is ready without the others.
    pub fn restart_all(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
        (0..self.members.len()).for_each(|index| self.launch(index));
        (0..self.members.len()).for_each(|index| self.await_ready(index));
    }

    /// kill -9, and a copy of what is on its disk.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn back_up(&mut self, index: usize) {
        self.kill(index);
        self.copy(&format!("m{index}"), &format!("backup{index}"));
    }

    /// kill -9, and the copy of [`EtcdCluster::back_up`] in place of what is on its disk.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn go_back(&mut self, index: usize) {
        self.kill(index);
        self.copy(&format!("backup{index}"), &format!("m{index}"));
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.directory.path().join(name));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.is_ok_and(|status| status.success()), "a directory is copied");
    }

    fn launch(&mut self, index: usize) {
        let member = &mut self.members[index];
        let mut command = Command::new("etcd");
        // Codis uses version 2 of the API, which is off otherwise.
        command.args(&member.arguments).env("ETCD_ENABLE_V2", "true");
        let name = format!("etcd{index}");
        member.process = Some(Process::spawn(&name, &mut command, self.directory.path()));
    }

    fn await_ready(&mut self, index: usize) {
        let member = &mut self.members[index];
        let Some(process) = &mut member.process else { return };
        // A member listens for clients once it has joined the others.
        process.wait_ready(READY_WITHIN, || TcpStream::connect(member.client).is_ok());
    }
}
