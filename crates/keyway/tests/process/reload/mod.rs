//! The configuration changes while clients are served.
//!
//! Servers are added and weights change under a load whose every reply is checked. All servers of
//! such a pool are one redis-server under several names, so a key is found wherever it is looked
//! for. The test is then whether the requests of a client keep their order on the way from one pool
//! to the next.

#![allow(clippy::disallowed_methods, reason = "servers and files change at a pace of their own")]

mod listeners;
mod pools;
mod settings;
mod users;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyway_testkit::certificates::{CertificateFiles, Span};
use keyway_testkit::{
    Action, CheckedLoad, Client, Flood, Keyway, KeywayConfig, LoadShape, Pool, RedisCluster,
    RedisServer, Replicated, ReplyFault, ScriptedBackend, Signal, Value, encode, free_address,
    http_get, keyway_binary, run_keyway, run_tool, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

/// A Keyway and the text of its file.
struct Changing {
    keyway: Keyway,
    text: String,
}

impl Changing {
    fn start(pools: Vec<Pool>) -> Changing {
        let config = KeywayConfig::new(pools)
            .with_server("drain_timeout", "\"1s\"")
            .with_server("workers", "2");
        let text = config.toml();
        Changing { keyway: Keyway::start(KEYWAY, config), text }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.keyway.directory().join("keyway.toml"), text).expect("a file");
    }

    fn count(&self, words: &str) -> usize {
        self.keyway.process().log().matches(words).count()
    }

    /// Changes the file and reloads it. Waits until the log has the words once more.
    fn reload(&mut self, change: impl Fn(&str) -> String, words: &str) {
        let text = change(&self.text);
        self.write(&text);
        self.hang_up(words);
        self.text = text;
    }

    fn hang_up(&self, words: &str) {
        let before = self.count(words);
        self.keyway.process().signal(Signal::HUP);
        wait_until(words, SOON, || self.count(words) > before);
    }

    fn generation(&self) -> f64 {
        self.keyway.metrics().sum("keyway_config_generation_number", &[])
    }
}

const DONE: &str = " reloaded ";

/// Returns one redis-server as several servers, by several of its names.
fn aliases(server: &RedisServer, weights: &[u32]) -> String {
    let port = server.address().port();
    let hosts = ["127.0.0.1", "localhost", "LOCALHOST", "Localhost"];
    let lines = weights.iter().zip(hosts).enumerate();
    let lines: Vec<String> = lines
        .map(|(index, (weight, host))| format!("\"{host}:{port}:{weight} server{index}\""))
        .collect();
    format!("servers = [{}]", lines.join(", "))
}

fn replace_servers(text: &str, servers: &str) -> String {
    let lines = text.lines().map(|line| match line.starts_with("servers = ") {
        true => servers.to_owned(),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn ctl(keyway: &Keyway, arguments: &[&str]) -> String {
    let admin = keyway.admin().to_string();
    let all: Vec<&str> = ["ctl", "--admin", &admin].into_iter().chain(arguments.to_vec()).collect();
    run_keyway(KEYWAY, &all).text
}
