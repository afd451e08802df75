//! A real redis-server.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::ports::free_address;
use crate::process::Process;
use crate::temp::TempDir;

const READY_WITHIN: Duration = Duration::from_secs(20);

/// A redis-server of its own, without persistence, on a free loopback port.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    address: SocketAddr,
    arguments: Vec<String>,
    directory: TempDir,
    launch: Launch,
}

/// The program of a server.
#[derive(Debug)]
struct Launch {
    /// The words of the program that starts it, if there is one.
    wrapper: Vec<String>,
    program: String,
    /// DEBUG has to be allowed: Redis 7 and later, and Valkey.
    locks_debug: bool,
}

impl RedisServer {
    /// Starts one with the defaults of Redis.
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// Starts one with more arguments, such as `["--maxmemory", "2mb"]`.
    ///
    /// # Panics
    /// When redis-server is missing or does not answer.
    pub fn start_with(arguments: &[&str]) -> RedisServer {
        RedisServer::start_at(free_address(), arguments)
    }

    /// Starts one on an address chosen by the test.
    pub fn start_at(address: SocketAddr, arguments: &[&str]) -> RedisServer {
        RedisServer::start_by(Vec::new(), address, arguments)
    }

    /// Starts one of another program: another version, or Valkey. With `locks_debug` the program
    /// refuses DEBUG unless that is allowed, as Redis 7 and later and Valkey do.
    pub fn start_program(program: &str, locks_debug: bool, arguments: &[&str]) -> RedisServer {
        let launch = Launch { wrapper: Vec::new(), program: program.to_owned(), locks_debug };
        RedisServer::launch(launch, free_address(), arguments)
    }

    /// The same, started by another program, whose words come first.
    pub(crate) fn start_by(
        wrapper: Vec<String>,
        address: SocketAddr,
        arguments: &[&str],
    ) -> RedisServer {
        let launch = Launch { wrapper, program: "redis-server".to_owned(), locks_debug: true };
        RedisServer::launch(launch, address, arguments)
    }

    fn launch(launch: Launch, address: SocketAddr, arguments: &[&str]) -> RedisServer {
        let directory = TempDir::in_memory();
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let process = spawn(&launch, &directory, address, &arguments);
        RedisServer { process, address, arguments, directory, launch }
    }

    /// Several at once.
    pub fn start_many(count: usize) -> Vec<RedisServer> {
        (0..count).map(|_| RedisServer::start()).collect()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// A connection to it, past everything in between.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The process, to pause, resume or watch it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// kill -9. [`RedisServer::restart`] brings it back, empty.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the same port with the same arguments.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.launch, &self.directory, self.address, &self.arguments);
    }
}

fn spawn(
    launch: &Launch,
    directory: &TempDir,
    address: SocketAddr,
    arguments: &[String],
) -> Process {
    let program = [launch.program.as_str()];
    let mut words = launch.wrapper.iter().map(String::as_str).chain(program);
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
        .args(["--bind", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .args(if launch.locks_debug { &["--enable-debug-command", "yes"][..] } else { &[] })
        .arg("--dir")
        .arg(directory.path())
        .args(arguments);
    let mut process = Process::spawn("redis-server", &mut command, directory.path());
    process.wait_ready(READY_WITHIN, || answers(address));
    process
}

/// Whether anything at all comes back for a PING: an error such as -NOAUTH or
/// -LOADING counts, the server is up.
pub(crate) fn answers(address: SocketAddr) -> bool {
    let Ok(mut client) = Client::try_connect(address) else { return false };
    client.set_reply_within(Duration::from_secs(1));
    client.try_send(b"*1\r\n$4\r\nPING\r\n").is_ok() && client.try_reply().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReplyFault, Value};

    #[test]
    fn a_server_answers_dies_and_comes_back_empty_on_its_port() {
        let mut server = RedisServer::start();
        let mut client = server.client();
        assert_eq!(client.words("SET a 1"), Value::simple("OK"));
        server.kill();
        client.expect_closed();
        server.restart();
        assert_eq!(server.client().words("GET a"), Value::Nil);
    }

    #[test]
    fn a_paused_server_is_late_and_answers_when_resumed() {
        let server = RedisServer::start();
        let mut client = server.client();
        client.set_reply_within(Duration::from_millis(50));
        server.process().pause();
        client.send(b"*1\r\n$4\r\nPING\r\n");
        assert_eq!(client.try_reply(), Err(ReplyFault::Late));
        server.process().resume();
        client.set_reply_within(Duration::from_secs(10));
        assert_eq!(client.reply(), Value::simple("PONG"));
    }
}
