//! The Redis Cluster behind the proxies that know one: three primaries with a
//! replica each.

use crate::clock;
use crate::error::Error;
use crate::process::{Child, CommandLine, Scratch, free_port};
use crate::systems::{Programs, redis_args};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

/// Servers of the cluster: half of them are replicas.
const SERVERS: usize = 6;

/// How long the servers may take to agree.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the servers and makes them a cluster.
///
/// # Errors
/// [`Error::Start`] when `redis-server` or `redis-cli` is missing, or the cluster
/// does not come up.
pub fn start_cluster(
    programs: &Programs,
    scratch: &Scratch,
) -> Result<(Vec<Child>, Vec<u16>), Error> {
    let (mut servers, mut ports) = (Vec::new(), Vec::new());
    for _ in 0..SERVERS {
        let (port, bus) = (free_port()?, free_port()?);
        let line = redis_args(CommandLine::new(&programs.redis_server), port, scratch)
            .args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()])
            .args(["--cluster-config-file", &format!("nodes-{port}.conf")]);
        let mut child = Child::start(&line, scratch, &format!("cluster-{port}"))?;
        child.wait_for_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        servers.push(child);
        ports.push(port);
    }
    let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let mut words = vec!["--cluster", "create"];
    words.extend(addresses.iter().map(String::as_str));
    words.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    ask(&words)?;
    let end = clock::now() + PATIENCE;
    for port in &ports {
        let port = port.to_string();
        while !ask(&["-p", &port, "cluster", "info"])?.contains("cluster_state:ok") {
            if clock::now() > end {
                return Err(failed("the cluster does not become ready"));
            }
            clock::pause(Duration::from_millis(100))?;
        }
    }
    Ok((servers, ports))
}

fn ask(words: &[&str]) -> Result<String, Error> {
    let output = Command::new("redis-cli").args(words).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(failed(text.lines().last().unwrap_or_default())),
    }
}

fn failed(why: &str) -> Error {
    Error::Start { program: "redis-cli".into(), why: why.into() }
}
