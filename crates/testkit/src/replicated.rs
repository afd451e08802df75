//! A primary with replicas, without a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use crate::client::{Client, encode, encode_words};
use crate::process::Process;
use crate::redis::RedisServer;
use crate::value::Value;
use crate::watchdog::wait_seldom_until;

const LINKED_WITHIN: Duration = Duration::from_secs(30);

/// A server that does not answer within this is busy or stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Real redis-servers, the first of them the primary of the others, until a
/// test or a [`crate::Sentinels`] decides otherwise.
#[derive(Debug)]
pub struct Replicated {
    servers: Vec<RedisServer>,
    is_running: Vec<bool>,
    password: Option<String>,
}

impl Replicated {
    /// A primary and as many replicas, linked to it.
    pub fn start(replicas: usize) -> Replicated {
        Replicated::start_with(replicas, &[], None)
    }

    /// The same with more arguments for every server, and with a password for
    /// clients and replicas.
    pub fn start_with(replicas: usize, arguments: &[&str], password: Option<&str>) -> Replicated {
        let mut common = vec!["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
        common.extend(["--repl-ping-replica-period", "1"]);
        if let Some(password) = password {
            common.extend(["--requirepass", password, "--masterauth", password]);
        }
        common.extend(arguments);
        let mut servers = vec![RedisServer::start_with(&common)];
        let primary = servers[0].address();
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        for _ in 0..replicas {
            let of = ["--replicaof", &host, &port];
            servers.push(RedisServer::start_with(&[&common[..], &of[..]].concat()));
        }
        let is_running = vec![true; servers.len()];
        let replicated = Replicated { servers, is_running, password: password.map(str::to_owned) };
        replicated.wait_linked(0);
        replicated
    }

    /// How many servers there are.
    pub fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// Where they listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(RedisServer::address).collect()
    }

    /// Where one listens.
    pub fn address(&self, server: usize) -> SocketAddr {
        self.servers[server].address()
    }

    /// The server that listens at `address`.
    pub fn server_at(&self, address: SocketAddr) -> Option<usize> {
        self.servers.iter().position(|server| server.address() == address)
    }

    /// The password, if there is one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// A server's process.
    pub fn process(&self, server: usize) -> &Process {
        self.servers[server].process()
    }

    /// A connection to a server, past everything in between; with the password
    /// said where there is one.
    pub fn client(&self, server: usize) -> Client {
        let address = self.address(server);
        try_client(address, self.password()).unwrap_or_else(|| panic!("{address} does not answer"))
    }

    /// What a server answers to a command.
    pub fn ask(&self, server: usize, words: &str) -> Value {
        self.client(server).words(words)
    }

    /// The servers that run and call themselves primaries: none or two of them
    /// in the midst of a fail-over.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |&server: &usize| self.says(server, "role:master");
        (0..self.servers.len()).filter(is_primary).collect()
    }

    /// Makes `server` the primary of all others that run, by hand, and waits
    /// until they are linked to it.
    pub fn promote(&self, server: usize) {
        assert_eq!(self.ask(server, "REPLICAOF NO ONE"), Value::simple("OK"));
        let address = self.address(server);
        let words = format!("REPLICAOF {} {}", address.ip(), address.port());
        for other in self.running().filter(|&other| other != server) {
            let reply = self.ask(other, &words);
            assert!(!reply.is_error(), "server {other}: {reply:?}");
        }
        self.wait_linked(server);
    }

    /// Waits until all servers that run are replicas linked to `primary`, and
    /// it says that they have their copies.
    pub fn wait_linked(&self, primary: usize) {
        let port = format!("master_port:{}\r", self.address(primary).port());
        let replicas: Vec<usize> = self.running().filter(|&server| server != primary).collect();
        wait_seldom_until("replicas are linked to their primary", LINKED_WITHIN, || {
            let online = |text: String| text.matches("state=online").count() >= replicas.len();
            self.information(primary).is_some_and(online)
                && replicas.iter().all(|&replica| {
                    self.says(replica, &port) && self.says(replica, "master_link_status:up")
                })
        });
    }

    /// kill -9. [`Replicated::restart`] brings it back.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].kill();
        self.is_running[server] = false;
    }

    /// Starts a server again, empty and as what it was at first: the first one
    /// as a primary, the others as replicas of the first.
    pub fn restart(&mut self, server: usize) {
        self.servers[server].restart();
        self.is_running[server] = true;
    }

    /// SIGSTOP: it keeps its sockets and answers nothing.
    pub fn pause(&mut self, server: usize) {
        self.servers[server].process().pause();
        self.is_running[server] = false;
    }

    /// SIGCONT, after [`Replicated::pause`].
    pub fn resume(&mut self, server: usize) {
        self.servers[server].process().resume();
        self.is_running[server] = true;
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.servers.len()).filter(|&server| self.is_running[server])
    }

    fn says(&self, server: usize, text: &str) -> bool {
        self.information(server).is_some_and(|information| information.contains(text))
    }

    /// INFO replication; none where the server does not run or answer.
    fn information(&self, server: usize) -> Option<String> {
        let text = |value| match value {
            Value::Bulk(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        };
        if !self.is_running[server] {
            return None;
        }
        try_words(self.address(server), self.password(), "INFO replication").and_then(text)
    }
}

/// A connection with the password said; none where nobody answers.
pub(crate) fn try_client(address: SocketAddr, password: Option<&str>) -> Option<Client> {
    let mut client = Client::try_connect(address).ok()?;
    if let Some(password) = password {
        let usual = client.reply_within();
        client.set_reply_within(ANSWER_WITHIN);
        client.try_send(&encode(&["AUTH", password])).ok()?;
        client.try_reply().ok()?;
        client.set_reply_within(usual);
    }
    Some(client)
}

/// What a server answers; none where it does not in a short while.
pub(crate) fn try_words(address: SocketAddr, password: Option<&str>, words: &str) -> Option<Value> {
    let mut client = try_client(address, password)?;
    client.set_reply_within(ANSWER_WITHIN);
    client.try_send(&encode_words(words)).ok()?;
    client.try_reply().ok()
}
