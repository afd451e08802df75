//! A control node in a process that serves: one process on one host has all of it.

use crate::stage::{KEYWAY, SOON};
use keyway_testkit::{
    CheckedLoad, LoadShape, Process, RedisServer, Signal, TempDir, ToolOutput, free_address,
    http_get, run_keyway, scrape, serving_process, wait_for, wait_until, watchdog,
};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// A proxy of the host, with the process that was started last.
struct Proxy {
    client: SocketAddr,
    admin: SocketAddr,
    text: String,
    name: &'static str,
    process: Option<Process>,
}

impl Proxy {
    /// Describes a proxy over `server`. `control` is what its `[control]` says besides its id.
    fn new(name: &'static str, id: &str, server: &RedisServer, control: &str) -> Proxy {
        let (client, admin) = (free_address(), free_address());
        let text = format!(
            "[server]\nworkers = 1\nadmin = \"tcp://{admin}\"\ndrain_timeout = \"1s\"\n[control]\n\
             cluster = \"test\"\nid = \"{id}\"\nstate_file = \"{name}.state\"\npools = \
             [\"main\"]\n{control}[[listener]]\nbind = \"tcp://{client}\"\npool = \"main\"\n{}",
            document(server, "4s")
        );
        Proxy { client, admin, text, name, process: None }
    }

    fn start(&mut self, directory: &TempDir) {
        let file = directory.write(&format!("{}.toml", self.name), &self.text);
        let mut command = Command::new(KEYWAY);
        let command = command.arg("serve").arg(file);
        self.process = Some(Process::spawn(self.name, command, directory.path()));
        wait_until("it serves", SOON, || serving_process(self.admin).is_some());
    }

    /// Replaces the process by another one. Returns the id of the next one.
    fn upgrade(&self) -> u32 {
        let before = self.pid();
        signal(before, Signal::USR2);
        wait_for("another process serves", SOON, || Some(self.pid()).filter(|pid| *pid != before))
    }

    fn pid(&self) -> u32 {
        wait_for("it answers", SOON, || serving_process(self.admin))
    }

    fn log(&self) -> String {
        self.process.as_ref().map(Process::log).unwrap_or_default()
    }

    fn ctl(&self, arguments: &[&str]) -> ToolOutput {
        let admin = self.admin.to_string();
        run_keyway(KEYWAY, &[&["ctl", "--admin", &admin], arguments].concat())
    }

    fn fleet(&self) -> Option<Value> {
        std::net::TcpStream::connect_timeout(&self.admin, SOON).ok()?;
        let reply = http_get(self.admin, "/v1/fleet");
        (reply.status == 200).then(|| serde_json::from_str(&reply.body).expect("JSON"))
    }

    /// Waits until the control node in this process leads, and these members serve by a revision.
    fn wait_current(&self, ids: &[&str], revision: u64) {
        for id in ids {
            wait_until("a member is current", SOON, || {
                let Some(fleet) = self.fleet() else { return false };
                let members = fleet["members"].as_array().cloned().unwrap_or_default();
                let is_current =
                    |member: &Value| member["id"] == **id && member["state"] == "current";
                fleet["leads"] == true
                    && fleet["revision"] == revision
                    && members.iter().any(is_current)
            });
        }
    }

    fn apply(&self, directory: &TempDir, text: &str, base: u64) {
        let file = directory.write("document.toml", text).display().to_string();
        let _ = self
            .ctl(&["apply", &file, "--base", &base.to_string()])
            .expect_success("keyway ctl apply");
    }
}

impl Drop for Proxy {
    /// Ends the process that an upgrade has started.
    fn drop(&mut self) {
        if self.process.is_some()
            && let Some(pid) = serving_process(self.admin)
        {
            signal(pid, Signal::KILL);
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    let _ = rustix::process::kill_process(pid, signal);
}

fn document(server: &RedisServer, timeout: &str) -> String {
    let address = server.address();
    format!(
        "[pool.main]\nkind = \"sharded\"\nservers = [\"{address}:1 a\"]\ntimeout = \"{timeout}\"\n"
    )
}

const FIRST: &str = "z1.proxy.0.1";
const SECOND: &str = "z2.proxy.0.2";

#[test]
fn a_process_leads_the_fleet_through_reloads_upgrades_and_kills() {
    let _watchdog = watchdog(Duration::from_secs(120), "control in a process that serves");
    let (directory, server, bus) = (TempDir::new(), RedisServer::start(), free_address());
    directory.write("token", "a token for these processes\n");
    let own = format!(
        "coordinator = {{ dir = \"coordinator\" }}\nlisten = [\"tcp://{bus}\"]\ntoken_file = \
         \"token\"\n"
    );
    let mut first = Proxy::new("first", FIRST, &server, &own);
    let joined = format!("urls = [\"tcp://{bus}\"]\ntoken_file = \"token\"\n");
    let mut second = Proxy::new("second", SECOND, &server, &joined);
    first.start(&directory);
    second.start(&directory);
    first.wait_current(&[FIRST, SECOND], 0);
    let load = CheckedLoad::start(first.client, LoadShape::default());

    first.apply(&directory, &document(&server, "5s"), 0);
    first.wait_current(&[FIRST, SECOND], 1);
    assert!(second.ctl(&["config"]).text.contains("timeout = \"5s\""));
    // What the process answers of itself is there as before.
    let status = first.ctl(&["status"]).expect_success("keyway ctl status");
    assert!(status.stdout.contains("workers:"), "{}", status.text);
    load.wait_replies(50);
    let metrics = scrape(first.admin);
    assert_eq!(metrics.sum("keyway_fleet_members", &["state=\"current\""]), 2.0);
    assert!(metrics.sum("keyway_pool_requests_total", &[]) > 0.0);
    // Another process that serves is no control node, and says so.
    let refused = second.ctl(&["fleet"]);
    assert_eq!(refused.status.code(), Some(1), "{}", refused.text);
    assert!(refused.text.contains("control node"), "{}", refused.text);

    let told = || first.log().matches("reload").count();
    let before = told();
    signal(first.pid(), Signal::HUP);
    wait_until("it is read again", SOON, || told() > before);
    first.apply(&directory, &document(&server, "6s"), 1);
    first.wait_current(&[FIRST, SECOND], 2);

    let next = first.upgrade();
    first.wait_current(&[FIRST, SECOND], 2);
    first.apply(&directory, &document(&server, "7s"), 2);
    first.wait_current(&[FIRST, SECOND], 3);
    load.wait_replies(50);
    load.stop().assert_clean();

    // The one that is stopped, and the one that is killed, are started again.
    signal(next, Signal::TERM);
    wait_until("it answers no more", SOON, || serving_process(first.admin).is_none());
    // It leaves the bus last.
    wait_until("it has ended", SOON, || std::net::TcpListener::bind(bus).is_ok());
    let shape = LoadShape { prefix: "again".to_owned(), ..LoadShape::default() };
    let load = CheckedLoad::start(second.client, shape);
    load.wait_replies(50);
    first.start(&directory);
    first.wait_current(&[FIRST, SECOND], 3);
    signal(first.pid(), Signal::KILL);
    wait_until("it is gone", SOON, || serving_process(first.admin).is_none());
    load.wait_replies(50);
    first.start(&directory);
    first.wait_current(&[FIRST, SECOND], 3);
    first.apply(&directory, &document(&server, "8s"), 3);
    first.wait_current(&[FIRST, SECOND], 4);
    load.wait_replies(50);
    load.stop().assert_clean();
}

#[test]
fn a_process_alone_needs_neither_an_address_nor_a_token() {
    let _watchdog = watchdog(Duration::from_secs(60), "a process that is all of the fleet");
    let (directory, server) = (TempDir::new(), RedisServer::start());
    let own = "coordinator = { dir = \"coordinator\", lease = \"1s\" }\n";
    let mut alone = Proxy::new("alone", FIRST, &server, own);
    alone.start(&directory);
    alone.wait_current(&[FIRST], 0);
    alone.apply(&directory, &document(&server, "5s"), 0);
    alone.wait_current(&[FIRST], 1);
    assert!(alone.ctl(&["config"]).text.contains("timeout = \"5s\""));
    let mut process = alone.process.take().expect("it runs");
    process.terminate();
    assert!(process.wait_exit(SOON).success(), "{}", process.log());
    alone.start(&directory);
    alone.wait_current(&[FIRST], 1);
    assert!(alone.log().contains("starts with document"), "{}", alone.log());
}
