//! A network of one server's own, which can be cut.
//!
//! ```text
//!   the tests' namespace            a namespace of its own
//!   host address  ── veth ══ veth ── inside address: the server
//! ```
//! What is sent through a cut link vanishes: no reset, no refusal.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ports::free_port;
use crate::skip::skipped;

/// Names of namespaces begin so, with the id of the process that made them.
const PREFIX: &str = "kwapart-";

/// Nobody's address of hardware.
const NOWHERE: &str = "02:00:00:00:00:99";

/// A namespace of the network with a link to it. It ends with the value.
#[derive(Debug)]
pub struct Apart {
    name: String,
    /// The ends of the link, here and inside.
    ends: [String; 2],
    addresses: [Ipv4Addr; 2],
}

/// Which way packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both.
    Whole,
    /// Those to the server.
    Requests,
    /// Those from the server.
    Replies,
}

impl Apart {
    /// A network apart. `None` where that is not permitted, which is said: `what` is
    /// left out then.
    pub fn new(what: &str) -> Option<Apart> {
        sweep();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        // Four addresses of those set aside for measurements, which nobody else has as
        // long as nobody else has the port.
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * (u32::from(free_port()) - 12_000);
        let apart = Apart {
            name: format!("{PREFIX}{process}-{number}"),
            ends: ["a", "b"].map(|end| format!("kw{process}{end}{number}")),
            addresses: [1, 2].map(|host| Ipv4Addr::from(base + host)),
        };
        match apart.make() {
            Ok(()) => Some(apart),
            Err(why) => {
                skipped(&format!("{what}: no namespace of the network can be made: {why}"));
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let [here, inside] = &self.ends;
        let [host, guest] = self.addresses.map(|address| format!("{address}/30"));
        try_ip(&["netns", "add", &self.name])?;
        try_ip(&["link", "add", here, "type", "veth", "peer", "name", inside])?;
        try_ip(&["link", "set", inside, "netns", &self.name])?;
        try_ip(&["addr", "add", &host, "dev", here])?;
        try_ip(&["link", "set", here, "up"])?;
        self.try_inside(&["addr", "add", &guest, "dev", inside])?;
        self.try_inside(&["link", "set", "lo", "up"])?;
        self.try_inside(&["link", "set", inside, "up"])
    }

    /// Where servers outside listen, so that those inside reach them.
    pub fn host(&self) -> IpAddr {
        IpAddr::V4(self.addresses[0])
    }

    /// Where servers inside listen.
    pub fn inside(&self) -> IpAddr {
        IpAddr::V4(self.addresses[1])
    }

    /// What a program is to be started by to be inside: it takes the place of what starts it.
    pub fn command(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    /// From here on packets vanish.
    pub fn cut(&self, cut: Cut) {
        let [here, inside] = &self.ends;
        let [host, guest] = self.addresses.map(|address| address.to_string());
        let outcome = match cut {
            Cut::Whole => self.try_inside(&["link", "set", inside, "down"]),
            Cut::Requests => try_ip(&nowhere(&guest, here)),
            Cut::Replies => self.try_inside(&nowhere(&host, inside)),
        };
        outcome.expect("the link is cut");
    }

    /// Packets come through again, all of them.
    pub fn heal(&self) {
        let [here, inside] = &self.ends;
        let [host, guest] = self.addresses.map(|address| address.to_string());
        self.try_inside(&["link", "set", inside, "up"]).expect("the link is up");
        // Where none was lost one way there is nothing to delete.
        let _ = try_ip(&["neigh", "del", &guest, "dev", here]);
        let _ = self.try_inside(&["neigh", "del", &host, "dev", inside]);
    }

    fn try_inside(&self, arguments: &[&str]) -> Result<(), String> {
        try_ip(&[&["-n", &self.name], arguments].concat())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = try_ip(&["link", "del", &self.ends[0]]);
        let _ = try_ip(&["netns", "del", &self.name]);
    }
}

/// Has what is sent to `address` through `end` go to nobody.
fn nowhere<'a>(address: &'a str, end: &'a str) -> [&'a str; 9] {
    ["neigh", "replace", address, "lladdr", NOWHERE, "nud", "permanent", "dev", end]
}

/// Ends what processes have left that are no more.
fn sweep() {
    let Ok(listed) = Command::new("ip").args(["netns", "list"]).output() else { return };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    for name in names {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let is_gone = |id: &str| !std::path::Path::new(&format!("/proc/{id}")).exists();
        if process.is_some_and(is_gone) {
            let _ = try_ip(&["netns", "del", name]);
        }
    }
}

fn try_ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("ip cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", arguments.join(" "), said.trim())),
    }
}
