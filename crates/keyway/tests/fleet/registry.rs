//! Entries in etcd and ZooKeeper by which clients find a listener.

use crate::stage::{KEYWAY, SOON};
use keyway_testkit::{
    EtcdCluster, Process, Signal, TempDir, ZooKeeperEnsemble, free_address, has_etcd,
    has_zookeeper, run_keyway, serving_process, wait_for, wait_until, watchdog,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A process with one listener that has an entry.
struct Served {
    client: SocketAddr,
    admin: SocketAddr,
    directory: TempDir,
    process: Option<Process>,
}

impl Served {
    fn new() -> Served {
        let (client, admin) = (free_address(), free_address());
        Served { client, admin, directory: TempDir::new(), process: None }
    }

    /// Writes the file, with these keys of the entry.
    fn write(&self, entry: &str) -> std::path::PathBuf {
        let text = format!(
            "[server]\nworkers = 1\nadmin = \"tcp://{}\"\ndrain_timeout = \"10s\"\n[[listener]]\n\
             bind = \"tcp://{}\"\npool = \"main\"\nregister = {{ {entry} }}\n[pool.main]\n\
             kind = \"store\"\n",
            self.admin, self.client
        );
        self.directory.write("keyway.toml", text)
    }

    fn start(&mut self, entry: &str) {
        let file = self.write(entry);
        let mut command = Command::new(KEYWAY);
        let command = command.arg("serve").arg(file);
        self.process = Some(Process::spawn("keyway", command, self.directory.path()));
        wait_until("it serves", SOON, || serving_process(self.admin).is_some());
    }

    fn signal(&self, pid: u32, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
        let _ = rustix::process::kill_process(pid, signal);
    }

    fn pid(&self) -> u32 {
        wait_for("it answers", SOON, || serving_process(self.admin))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(pid) = self.process.as_ref().and_then(|_| serving_process(self.admin)) {
            self.signal(pid, Signal::KILL);
        }
    }
}

fn address_in(value: &[u8]) -> String {
    let value: Value = serde_json::from_slice(value).expect("JSON");
    assert_eq!(value["state"], "online", "{value}");
    value["addr"].as_str().expect("an address").to_owned()
}

/// A client with a request that has no reply yet, so that its process drains for long.
fn waiting_client(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.write_all(b"PING\r\n").expect("it reads");
    let mut pong = [0; 7];
    client.read_exact(&mut pong).expect("it answers");
    client.write_all(b"BLPOP nothing 0\r\n").expect("it reads");
    client
}

#[test]
fn an_entry_in_etcd_is_there_as_long_as_somebody_listens() {
    if !has_etcd("entries by which clients find listeners") {
        return;
    }
    let _watchdog = watchdog(Duration::from_secs(120), "entries in etcd");
    let mut cluster = EtcdCluster::start(1);
    let endpoint = cluster.addresses()[0];
    let entry = |name: &str| {
        format!(
            "kind = \"etcd\", endpoints = [\"{endpoint}\"], path = \"/jodis/demo\", name = \
             \"{name}\", lease = \"3s\""
        )
    };
    let key = |name: &str| format!("/jodis/demo/{name}");
    // A process starts, serves, and says why it is not registered, while etcd does not answer.
    cluster.kill(0);
    let mut served = Served::new();
    served.start(&entry("one"));
    let log = |served: &Served| served.process.as_ref().map(Process::log).unwrap_or_default();
    let why = "not registered as /jodis/demo/one in etcd at";
    wait_until("the reason is told", SOON, || log(&served).contains(why));
    cluster.restart(0);
    let value = wait_for("an entry", SOON, || cluster.value(&key("one")));
    assert_eq!(address_in(&value), served.client.to_string());

    // A reload replaces the entry. The listener stays as it is.
    let client = waiting_client(served.client);
    let _ = served.write(&entry("two"));
    let admin = served.admin.to_string();
    let told = run_keyway(KEYWAY, &["ctl", "--admin", &admin, "reload"]).expect_success("reload");
    assert!(told.text.contains("register"), "{}", told.text);
    wait_until("the other entry", SOON, || cluster.value(&key("two")).is_some());
    wait_until("the first is gone", SOON, || cluster.value(&key("one")).is_none());
    drop(client);

    // An upgrade leaves no moment without the entry.
    let is_over = AtomicBool::new(false);
    let before = served.pid();
    std::thread::scope(|scope| {
        let (over, cluster, key) = (&is_over, &cluster, key("two"));
        let watching = scope.spawn(move || {
            let mut looks = 0u32;
            while !over.load(Ordering::Relaxed) {
                assert!(cluster.value(&key).is_some(), "after {looks} looks");
                looks += 1;
            }
            looks
        });
        served.signal(before, Signal::USR2);
        wait_until("another process serves", SOON, || served.pid() != before);
        // Longer than the lease of the process before.
        std::thread::sleep(Duration::from_secs(5));
        is_over.store(true, Ordering::Relaxed);
        assert!(watching.join().expect("the entry is there") > 10);
    });

    // A process that drains has no entry, though it has clients.
    let client = waiting_client(served.client);
    let next = served.pid();
    served.signal(next, Signal::TERM);
    wait_until("the entry is gone", Duration::from_secs(2), || {
        cluster.value(&key("two")).is_none()
    });
    assert_eq!(serving_process(served.admin), Some(next), "it drains");
    drop(client);
    wait_until("it has ended", SOON, || serving_process(served.admin).is_none());

    // After kill -9 the entry goes with the lease.
    served.start(&entry("three"));
    wait_until("an entry", SOON, || cluster.value(&key("three")).is_some());
    served.signal(served.pid(), Signal::KILL);
    assert!(cluster.value(&key("three")).is_some());
    wait_until("the lease ends", SOON, || cluster.value(&key("three")).is_none());
}

#[test]
fn an_entry_in_zookeeper_is_what_its_own_client_reads() {
    if !has_zookeeper("entries by which clients find listeners") {
        return;
    }
    let _watchdog = watchdog(Duration::from_secs(120), "entries in ZooKeeper");
    let ensemble = ZooKeeperEnsemble::start(1);
    let endpoint = ensemble.addresses()[0];
    let mut served = Served::new();
    served.start(&format!(
        "kind = \"zookeeper\", endpoints = [\"{endpoint}\"], path = \"/jodis/demo\", lease = \"4s\""
    ));
    let path = format!("/jodis/demo/proxy-{}", served.client);
    let read = || ensemble.ask(&["get", &path]);
    let text = wait_for("an entry", SOON, read);
    let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    assert_eq!(address_in(line.as_bytes()), served.client.to_string());
    let before = served.pid();
    served.signal(before, Signal::USR2);
    wait_until("another process serves", SOON, || served.pid() != before);
    assert!(read().is_some());
    served.signal(served.pid(), Signal::TERM);
    wait_until("it has ended", SOON, || serving_process(served.admin).is_none());
    assert_eq!(read(), None);
}
