//! Keyway itself, as a user runs it: a binary and a file.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::client::Client;
use crate::http::{Metrics, scrape};
use crate::kept::AtStart;
use crate::left::check_left;
use crate::memcached::{MemcachedClient, MemcachedServer, takes_memcached};
use crate::ports::free_address;
use crate::process::Process;
use crate::redis::{RedisServer, answers};
use crate::temp::TempDir;
use crate::tool::{ToolOutput, run_tool};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// One pool of a Keyway file, with the listener that serves it.
#[derive(Clone, Debug)]
pub struct Pool {
    name: String,
    settings: Vec<(String, String)>,
    listener: Vec<(String, String)>,
    protocol: &'static str,
}

impl Pool {
    /// An embedded store.
    pub fn store(name: &str) -> Pool {
        Pool::of_kind(name, "store")
    }

    /// A sharded pool over server lines such as `127.0.0.1:6379:1 alpha`.
    pub fn sharded(name: &str, servers: &[String]) -> Pool {
        let quoted: Vec<String> = servers.iter().map(|line| format!("{line:?}")).collect();
        Pool::of_kind(name, "sharded").with("servers", &format!("[{}]", quoted.join(", ")))
    }

    /// A pool of memcached servers, served to clients of memcached.
    pub fn memcached(name: &str, servers: &[MemcachedServer]) -> Pool {
        let lines: Vec<String> =
            servers.iter().map(|one| format!("\"{}:1\"", one.address())).collect();
        Pool::of_kind(name, "memcached")
            .with("servers", &format!("[{}]", lines.join(", ")))
            .spoken_to_in("memcached")
    }

    /// What its listener speaks: `redis` unless this says otherwise.
    #[must_use]
    pub fn spoken_to_in(mut self, protocol: &'static str) -> Pool {
        self.protocol = protocol;
        self
    }

    /// A pool of that kind, without any setting.
    pub fn of_kind(name: &str, kind: &str) -> Pool {
        let empty = Pool {
            name: name.to_owned(),
            settings: Vec::new(),
            listener: Vec::new(),
            protocol: "redis",
        };
        empty.with("kind", &format!("{kind:?}"))
    }

    /// A sharded pool over these servers with weight one, crc32a, ketama and
    /// the hash tag `{}`.
    pub fn over(name: &str, servers: &[RedisServer]) -> Pool {
        let lines: Vec<String> = servers.iter().map(|one| format!("{}:1", one.address())).collect();
        Pool::sharded(name, &lines)
            .with("hash", "\"crc32a\"")
            .with("distribution", "\"ketama\"")
            .with("hash_tag", "\"{}\"")
    }

    /// Adds a setting; `value` is TOML, so a string carries its quotes.
    #[must_use]
    pub fn with(mut self, setting: &str, value: &str) -> Pool {
        self.settings.retain(|(known, _)| known != setting);
        self.settings.push((setting.to_owned(), value.to_owned()));
        self
    }

    /// Adds a setting to the listener that serves it, such as `password`.
    #[must_use]
    pub fn with_listener(mut self, setting: &str, value: &str) -> Pool {
        self.listener.push((setting.to_owned(), value.to_owned()));
        self
    }
}

/// A Keyway file: each pool gets a listener on a free port, and there is an
/// admin listener.
#[derive(Clone, Debug)]
pub struct KeywayConfig {
    pools: Vec<(SocketAddr, Pool)>,
    admin: SocketAddr,
    server: Vec<(String, String)>,
    tables: String,
    limit_descriptors: Option<u32>,
    limit_address_space: Option<u64>,
    limit_file_len: Option<u64>,
    hosts: Option<PathBuf>,
    arguments: Vec<String>,
}

impl KeywayConfig {
    /// A file with these pools. One of the name of an earlier one is another
    /// listener of that.
    pub fn new(pools: Vec<Pool>) -> KeywayConfig {
        KeywayConfig {
            pools: pools.into_iter().map(|pool| (free_address(), pool)).collect(),
            admin: free_address(),
            server: Vec::new(),
            tables: String::new(),
            limit_descriptors: None,
            limit_address_space: None,
            limit_file_len: None,
            hosts: None,
            arguments: Vec::new(),
        }
    }

    /// Adds a setting to `[server]`; `value` is TOML.
    #[must_use]
    pub fn with_server(mut self, setting: &str, value: &str) -> KeywayConfig {
        self.server.push((setting.to_owned(), value.to_owned()));
        self
    }

    /// Adds whole tables, such as `[limits]` with its settings.
    #[must_use]
    pub fn with_tables(mut self, text: &str) -> KeywayConfig {
        self.tables.push_str(text);
        self.tables.push_str("\n\n");
        self
    }

    /// Starts the process with at most this many file descriptors.
    #[must_use]
    pub fn with_descriptors(mut self, count: u32) -> KeywayConfig {
        self.limit_descriptors = Some(count);
        self
    }

    /// Starts the process with at most this many bytes of address space: who asks the system for
    /// more gets none.
    #[must_use]
    pub fn with_address_space(mut self, bytes: u64) -> KeywayConfig {
        self.limit_address_space = Some(bytes);
        self
    }

    /// Starts the process with at most this many bytes in a file that it writes, as if its disk were
    /// full from there on.
    #[must_use]
    pub fn with_file_len(mut self, bytes: u64) -> KeywayConfig {
        self.limit_file_len = Some(bytes);
        self
    }

    /// Starts the process in a mount namespace of its own, where this file
    /// stands in for `/etc/hosts`. Writing the file in place changes what the
    /// running process resolves.
    #[must_use]
    pub fn with_hosts_file(mut self, file: &Path) -> KeywayConfig {
        self.hosts = Some(file.to_owned());
        self
    }

    /// What the process is started through: a script for `sh -c` that ends in
    /// becoming its arguments.
    fn launcher(&self) -> String {
        let descriptors = self.limit_descriptors.map(|count| format!("ulimit -n {count}; "));
        let space = self.limit_address_space.map(|bytes| format!("ulimit -v {}; ", bytes >> 10));
        // Blocks of 512 bytes, as POSIX has it.
        let file = self.limit_file_len.map(|bytes| format!("ulimit -f {}; ", bytes >> 9));
        let limits: String = [descriptors, space, file].into_iter().flatten().collect();
        let inside = format!("{limits}exec \"$@\"");
        match &self.hosts {
            None => inside,
            Some(file) => format!(
                "exec unshare --user --map-root-user --mount sh -c \
                 'mount --bind {} /etc/hosts && {inside}' sh \"$@\"",
                file.display()
            ),
        }
    }

    /// Adds a command line argument after the file's name.
    #[must_use]
    pub fn with_argument(mut self, argument: &str) -> KeywayConfig {
        self.arguments.push(argument.to_owned());
        self
    }

    /// The file as text.
    pub fn toml(&self) -> String {
        let mut text = format!("[server]\nadmin = \"tcp://{}\"\n", self.admin);
        write_settings(&mut text, &self.server);
        text.push_str(&self.tables);
        for (address, pool) in &self.pools {
            let _ = writeln!(text, "[[listener]]\nbind = \"tcp://{address}\"");
            let _ = writeln!(text, "protocol = {:?}\npool = {:?}", pool.protocol, pool.name);
            write_settings(&mut text, &pool.listener);
        }
        let first = |name: &str| self.pools.iter().position(|(_, pool)| pool.name == name);
        for (index, (_, pool)) in self.pools.iter().enumerate() {
            // A pool may be served at several places.
            if first(&pool.name) != Some(index) {
                continue;
            }
            let _ = writeln!(text, "[pool.{}]", pool.name);
            write_settings(&mut text, &pool.settings);
        }
        text
    }
}

fn write_settings(text: &mut String, settings: &[(String, String)]) {
    for (setting, value) in settings {
        let _ = writeln!(text, "{setting} = {value}");
    }
    text.push('\n');
}

/// A running `keyway serve`.
#[derive(Debug)]
pub struct Keyway {
    process: Process,
    addresses: Vec<SocketAddr>,
    admin: SocketAddr,
    directory: TempDir,
    start: AtStart,
}

impl Keyway {
    /// Starts `binary` on `config` and waits until each listener answers.
    /// `KEYWAY_BINARY` in the environment names another binary to test.
    ///
    /// # Panics
    /// When it ends or does not answer; the message carries its log.
    pub fn start(binary: &str, config: KeywayConfig) -> Keyway {
        let addresses: Vec<SocketAddr> = config.pools.iter().map(|(at, _)| *at).collect();
        let is_memcached: Vec<bool> =
            config.pools.iter().map(|(_, pool)| pool.protocol == "memcached").collect();
        let text = config.toml();
        let launcher = config.launcher();
        let mut keyway =
            Keyway::launch(binary, &text, addresses, &launcher, &config.arguments, config.admin);
        keyway.wait_ready(&is_memcached);
        keyway
    }

    /// Starts `binary` on a file written by someone else (an importer) that
    /// listens on `addresses`, without an admin listener.
    pub fn start_text(binary: &str, text: &str, addresses: Vec<SocketAddr>) -> Keyway {
        let is_server = |line: &str| line.trim() == "[server]";
        assert!(!text.lines().any(is_server), "the text has settings of the process");
        let speaks_memcached = |address: &SocketAddr| {
            let bind = format!("tcp://{address}\"");
            let listener = text.split("\n[").find(|table| table.contains(&bind));
            listener.is_some_and(|table| table.contains("protocol = \"memcached\""))
        };
        let is_memcached: Vec<bool> = addresses.iter().map(speaks_memcached).collect();
        let text = format!("[server]\nadmin = \"off\"\n\n{text}");
        let mut keyway =
            Keyway::launch(binary, &text, addresses, "exec \"$@\"", &[], free_address());
        keyway.wait_ready(&is_memcached);
        keyway
    }

    fn launch(
        binary: &str,
        text: &str,
        addresses: Vec<SocketAddr>,
        launcher: &str,
        arguments: &[String],
        admin: SocketAddr,
    ) -> Keyway {
        let directory = TempDir::new();
        let file = directory.write("keyway.toml", text);
        let mut command = Command::new("sh");
        command.arg("-c").arg(launcher).arg("sh");
        command.arg(keyway_binary(binary)).arg("serve").arg(&file).args(arguments);
        let process = Process::spawn("keyway", &mut command, directory.path());
        Keyway { process, addresses, admin, directory, start: AtStart::default() }
    }

    /// `is_memcached` tells of each listener what it speaks; Redis behind its end.
    fn wait_ready(&mut self, is_memcached: &[bool]) {
        let addresses = self.addresses.clone();
        let is_served = |(index, at): (usize, &SocketAddr)| match is_memcached.get(index) {
            Some(true) => takes_memcached(*at),
            _ => answers(*at),
        };
        self.process.wait_ready(READY_WITHIN, || addresses.iter().enumerate().all(is_served));
        self.start = AtStart::of(self.process.pid());
    }

    /// Where the pool at `index` is served.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.addresses[index]
    }

    /// A connection to the pool at `index`.
    pub fn client(&self, index: usize) -> Client {
        Client::connect(self.addresses[index])
    }

    /// The same, where it is served to clients of memcached.
    pub fn memcached_client(&self, index: usize) -> MemcachedClient {
        MemcachedClient::connect(self.addresses[index])
    }

    /// Where metrics and health are served.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The metrics now.
    pub fn metrics(&self) -> Metrics {
        scrape(self.admin)
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The process, to wait for its end.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its directory, which holds `keyway.toml`.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// SIGTERM, and how it ended.
    pub fn stop(mut self, bound: Duration) -> (ExitStatus, String) {
        self.check_left();
        self.process.terminate();
        let status = self.process.wait_exit(bound);
        (status, self.process.log())
    }
}

impl Keyway {
    /// Fails the test when the process keeps connections or anything else of clients that have left.
    fn check_left(&mut self) {
        if !std::thread::panicking() && self.process.is_running() {
            check_left(self.process.pid(), self.admin, &self.start);
        }
    }
}

impl Drop for Keyway {
    fn drop(&mut self) {
        self.check_left();
    }
}

/// Runs a subcommand of `binary` to its end.
///
/// # Panics
/// When it cannot be started or does not end within 30 s.
pub fn run_keyway(binary: &str, arguments: &[&str]) -> ToolOutput {
    let path = keyway_binary(binary);
    run_tool(&path.to_string_lossy(), arguments, b"", Duration::from_secs(30))
}

/// The binary under test: `KEYWAY_BINARY` of the environment, else `built`.
pub fn keyway_binary(built: &str) -> PathBuf {
    std::env::var_os("KEYWAY_BINARY").map_or_else(|| PathBuf::from(built), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_setting_replaces_an_earlier_one() {
        let pool = Pool::sharded("main", &["127.0.0.1:1:1".to_owned()])
            .with("hash", "\"md5\"")
            .with("hash", "\"crc16\"");
        let text = KeywayConfig::new(vec![pool]).with_server("workers", "1").toml();
        assert!(text.starts_with("[server]\n") && text.contains("\nworkers = 1\n"), "{text}");
        assert!(text.contains("servers = [\"127.0.0.1:1:1\"]\nhash = \"crc16\"\n"), "{text}");
        assert!(!text.contains("md5"));
    }
}
