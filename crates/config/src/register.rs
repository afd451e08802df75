//! `register` in `[[listener]]`: the entry in etcd or ZooKeeper by which clients find a listener.

use crate::address::ListenAddr;
use crate::error::{Problem, Report, quoted};
use crate::secret::{PASSWORD, ReadFile, password};
use crate::section::{Section, Value};
use crate::{ListenerConfig, SecretSource};
use keyway_topology::{Endpoint, Password};
use std::path::PathBuf;
use std::time::Duration;

/// Most servers of a registry.
const ENDPOINTS_MAX: usize = 16;

/// Longest name of an entry, and of each name in its path, in bytes.
const NAME_LEN_MAX: usize = 64;

/// Most names in the path of an entry.
const NAMES_MAX: usize = 8;

/// The entry by which clients find a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterConfig {
    /// The kind of registry.
    pub kind: RegistryKind,
    /// Its servers, as `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The node or the prefix below which the entry is: `/jodis/NAME`.
    pub path: String,
    /// The name of the entry.
    pub name: String,
    /// The address that clients connect to, as `HOST:PORT`.
    pub address: String,
    /// How long the entry stays if the process is killed.
    pub lease: Duration,
    /// The user of the registry.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Password>,
    /// The source of `password`, if not the file itself.
    pub password_from: Option<SecretSource>,
    /// The authorities of the servers' certificates. `None`: connections have no TLS.
    pub ca_file: Option<PathBuf>,
}

/// A kind of registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryKind {
    /// Keys of etcd.
    Etcd,
    /// Ephemeral nodes of ZooKeeper.
    ZooKeeper,
}

impl RegistryKind {
    /// Returns the word in the file.
    pub fn text(self) -> &'static str {
        match self {
            RegistryKind::Etcd => "etcd",
            RegistryKind::ZooKeeper => "zookeeper",
        }
    }
}

/// Reads the entry of a listener, if it has one.
pub(crate) fn resolve(
    listener: &Section,
    bind: &ListenAddr,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<RegisterConfig> {
    let section = listener.section("register")?;
    let kind = match section.text("kind")? {
        "etcd" => RegistryKind::Etcd,
        _ => RegistryKind::ZooKeeper,
    };
    let endpoints = endpoints(section, report);
    let path = path(section, report);
    let address = address(section, bind, report);
    let name = match section.text("name") {
        Some(name) => Some(name.to_owned()),
        None => address.as_deref().map(own_name),
    };
    if let Some(name) = name.as_deref().filter(|name| !is_name(name)) {
        let what = format!(
            "register: {} is not 1 to {NAME_LEN_MAX} of A-Z a-z 0-9 . _ - : @",
            quoted(name)
        );
        let problem = Problem::new(what, "write name = \"proxy-1\"");
        report.consequence(section.place("name"), problem);
    }
    let (password, password_from) = password(section, PASSWORD, read_file, report);
    let user = section.text("user").map(str::to_owned);
    if user.is_some() != (password.is_some() || password_from.is_some()) {
        let what = "register: user and its password: one of both is missing";
        report.consequence(section.place("user"), Problem::new(what, "add the other"));
    }
    let ca_file = match section.value("ca_file") {
        Some(Value::Path(file)) => Some(file.clone()),
        _ => None,
    };
    if let (Some(file), Some(read_file)) = (&ca_file, read_file)
        && let Err(why) = read_file(file)
    {
        let what = format!("register: ca_file: {why}");
        let problem = Problem::new(what, "name a file with certificates in PEM");
        report.mistake(section.place("ca_file"), problem);
    }
    Some(RegisterConfig {
        kind,
        endpoints,
        path: path?,
        name: name?,
        address: address?,
        lease: section.duration("lease")?,
        user,
        password,
        password_from,
        ca_file,
    })
}

fn endpoints(section: &Section, report: &mut Report<'_>) -> Vec<String> {
    let Some(Value::Names(names)) = section.value("endpoints") else { return Vec::new() };
    if names.is_empty() || names.len() > ENDPOINTS_MAX {
        let what = format!("register: endpoints has not 1 to {ENDPOINTS_MAX} addresses");
        let hint = "write endpoints = [\"127.0.0.1:2181\"]";
        report.consequence(section.place("endpoints"), Problem::new(what, hint));
    }
    for (at, name) in names.iter().filter(|(_, name)| !is_address(name)) {
        let what = format!("register: endpoints: {} is not HOST:PORT", quoted(name));
        report.consequence(*at, Problem::new(what, "write \"127.0.0.1:2181\""));
    }
    names.iter().map(|(_, name)| name.clone()).collect()
}

fn path(section: &Section, report: &mut Report<'_>) -> Option<String> {
    let path = section.text("path")?;
    let names: Option<Vec<&str>> = path.strip_prefix('/').map(|names| names.split('/').collect());
    let fits = |names: &Vec<&str>| names.len() <= NAMES_MAX && names.iter().all(|it| is_name(it));
    if names.is_none_or(|names| !fits(&names)) {
        let what = format!("register: path {} is not names with / in front of each", quoted(path));
        let problem = Problem::new(what, "write path = \"/jodis/NAME\"");
        report.consequence(section.place("path"), problem);
        return None;
    }
    Some(path.to_owned())
}

/// Reads the address that clients connect to. Without the key it is that of the listener.
fn address(section: &Section, bind: &ListenAddr, report: &mut Report<'_>) -> Option<String> {
    let given = section.text("address");
    if let Some(text) = given {
        if is_address(text) {
            return Some(text.to_owned());
        }
        let what = format!("register: address {} is not HOST:PORT", quoted(text));
        let problem = Problem::new(what, "write address = \"192.0.2.7:6379\"");
        report.consequence(section.place("address"), problem);
        return None;
    }
    match bind {
        ListenAddr::Tcp(address) if !address.ip().is_unspecified() && address.port() != 0 => {
            Some(address.to_string())
        }
        _ => {
            let what = format!("register: clients cannot connect to {bind}");
            let hint = "add address = \"HOST:PORT\", which they can";
            report.consequence(section.place("address"), Problem::new(what, hint));
            None
        }
    }
}

/// Refuses entries that would replace one another.
pub(crate) fn check_together(
    listeners: &[Section],
    read: &[ListenerConfig],
    report: &mut Report<'_>,
) {
    let entry = |at: usize| {
        let register = read.get(at)?.register.as_ref()?;
        Some((register.kind, &register.endpoints, &register.path, &register.name))
    };
    for at in 0..read.len() {
        let Some(own) = entry(at) else { continue };
        if !(0..at).any(|other| entry(other) == Some(own)) {
            continue;
        }
        let what = format!("register: two listeners have the entry {}/{}", own.2, own.3);
        let place = listeners.get(at).map_or(0, |section| section.place("register"));
        report.consequence(place, Problem::new(what, "give one of them another name"));
    }
}

fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&text.len())
        && text.bytes().all(fits)
        && !matches!(text, "." | "..")
}

fn is_address(text: &str) -> bool {
    matches!(text.parse(), Ok(Endpoint::Tcp { port, .. }) if port != 0)
}

/// Returns the name of an entry without one in the file.
fn own_name(address: &str) -> String {
    let plain = |char: char| if is_name(char.encode_utf8(&mut [0; 4])) { char } else { '_' };
    let name: String =
        address.chars().map(|char| if char == '.' { '.' } else { plain(char) }).collect();
    let name = format!("proxy-{name}");
    name.chars().take(NAME_LEN_MAX).collect()
}
