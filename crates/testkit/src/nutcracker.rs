//! A real nutcracker (twemproxy), the reference for key placement.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::ports::{free_address, free_port};
use crate::process::Process;
use crate::temp::TempDir;

/// One pool of a nutcracker file.
#[derive(Clone, Debug)]
pub struct NutcrackerPool {
    /// Its name, the key of its section.
    pub name: String,
    /// Where nutcracker listens for it.
    pub listen: SocketAddr,
    /// The server lines: `address:port:weight` with an optional name.
    pub servers: Vec<String>,
    /// Everything else: option and value, such as `("hash", "crc32a")`.
    pub options: Vec<(String, String)>,
}

impl NutcrackerPool {
    /// A Redis pool on a free port.
    pub fn new(name: &str, servers: &[String]) -> NutcrackerPool {
        NutcrackerPool {
            name: name.to_owned(),
            listen: free_address(),
            servers: servers.to_vec(),
            options: vec![("redis".to_owned(), "true".to_owned())],
        }
    }

    /// A memcached pool on a free port.
    pub fn memcached(name: &str, servers: &[String]) -> NutcrackerPool {
        NutcrackerPool { options: Vec::new(), ..NutcrackerPool::new(name, servers) }
    }

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, option: &str, value: &str) -> NutcrackerPool {
        self.options.push((option.to_owned(), value.to_owned()));
        self
    }
}

/// A running nutcracker.
#[derive(Debug)]
pub struct Nutcracker {
    process: Process,
    pools: Vec<NutcrackerPool>,
    directory: TempDir,
}

impl Nutcracker {
    /// Starts one that serves `pools`.
    ///
    /// # Panics
    /// When nutcracker is missing or does not accept on every pool's port.
    pub fn start(pools: Vec<NutcrackerPool>) -> Nutcracker {
        let directory = TempDir::new();
        let file = directory.write("nutcracker.yml", Nutcracker::yaml(&pools));
        let mut command = Command::new("nutcracker");
        command.arg("-c").arg(&file).args(["-v", "4", "-a", "127.0.0.1", "-s"]);
        command.arg(free_port().to_string());
        let mut process = Process::spawn("nutcracker", &mut command, directory.path());
        process.wait_ready(Duration::from_secs(20), || {
            pools.iter().all(|pool| TcpStream::connect(pool.listen).is_ok())
        });
        Nutcracker { process, pools, directory }
    }

    /// The configuration file that describes `pools`.
    pub fn yaml(pools: &[NutcrackerPool]) -> String {
        let mut text = String::new();
        for pool in pools {
            let _ = writeln!(text, "{}:\n  listen: {}", pool.name, pool.listen);
            for (option, value) in &pool.options {
                let _ = writeln!(text, "  {option}: {value}");
            }
            let _ = writeln!(text, "  servers:");
            for server in &pool.servers {
                let _ = writeln!(text, "   - {server}");
            }
        }
        text
    }

    /// The file it runs on.
    pub fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("nutcracker.yml")
    }

    /// Its pools, in the order given.
    pub fn pools(&self) -> &[NutcrackerPool] {
        &self.pools
    }

    /// A connection to the pool at `index`.
    pub fn client(&self, index: usize) -> Client {
        Client::connect(self.pools[index].listen)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// The line of a plain loopback server: `127.0.0.1:port:weight`.
impl From<&crate::RedisServer> for NutcrackerPool {
    fn from(server: &crate::RedisServer) -> NutcrackerPool {
        let line = format!("{}:{}:1", Ipv4Addr::LOCALHOST, server.port());
        NutcrackerPool::new("pool", &[line])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RedisServer, Value};

    #[test]
    fn nutcracker_reaches_its_server() {
        let server = RedisServer::start();
        let nutcracker = Nutcracker::start(vec![NutcrackerPool::from(&server)]);
        assert_eq!(nutcracker.client(0).words("SET a 1"), Value::simple("OK"));
        assert_eq!(server.client().words("GET a"), Value::bulk("1"));
    }
}
