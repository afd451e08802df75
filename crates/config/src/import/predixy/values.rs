//! Values of predixy's files.

use super::parse::Node;
use crate::error::{ConfigError, Problem, quoted};
use keyway_topology::{Endpoint, Server};
use std::time::Duration;

/// Returns the last line with this key: in predixy it replaces earlier ones.
pub(super) fn last<'n>(nodes: &'n [Node], key: &str) -> Option<&'n Node> {
    nodes.iter().rev().find(|node| node.is(key))
}

/// Reads `5` (seconds), `5s`, `5ms` or `5us`.
pub(super) fn duration(node: &Node) -> Result<Duration, ConfigError> {
    let text = node.value.as_str();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok().filter(|&number| number <= 1 << 40);
    let time = match (number, unit.trim().to_ascii_lowercase().as_str()) {
        (Some(number), "" | "s") => Some(Duration::from_secs(number)),
        (Some(number), "m" | "ms") => Some(Duration::from_millis(number)),
        (Some(number), "u" | "us") => Some(Duration::from_micros(number)),
        _ => None,
    };
    time.ok_or_else(|| wrong(node, "is not a time", "write a number of seconds, or 100ms"))
}

/// Reads a number within bounds.
pub(super) fn number(node: &Node, (min, max): (u64, u64)) -> Result<u64, ConfigError> {
    let number = node.value.parse::<u64>().ok();
    let hint = format!("write a number from {min} to {max}");
    let number = number.filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| wrong(node, "is not such a number", &hint))
}

pub(super) fn wrong(node: &Node, why: &str, hint: &str) -> ConfigError {
    let what = format!("{} {} {why}", node.key, quoted(&node.value));
    node.at.error(Problem::new(what, hint))
}

/// The address of a server, and its own password.
pub(super) struct Place {
    pub(super) endpoint: Endpoint,
    pub(super) password: Option<String>,
}

/// Reads the `+ [PASSWORD@]ADDRESS` lines of a scope.
pub(super) fn servers(node: &Node) -> Result<Vec<Place>, ConfigError> {
    node.inner().iter().map(server).collect()
}

fn server(node: &Node) -> Result<Place, ConfigError> {
    let hint = "write \"+ IP:PORT\"";
    if node.key != "+" {
        return Err(node.at.error(Problem::new("this line adds no server", hint)));
    }
    let (password, address) = match node.value.split_once('@') {
        Some((password, address)) => (Some(password.to_owned()), address),
        None => (None, node.value.as_str()),
    };
    let address = address.split_whitespace().next().unwrap_or_default();
    let text = match address.starts_with('/') {
        true => format!("unix://{address}"),
        false => address.to_owned(),
    };
    // The text is not shown: it may hold a password.
    let refuse = || {
        let what = "the address of a server is not IP:PORT or an absolute path";
        node.at.error(Problem::new(what, hint))
    };
    let server = Server::parse(&text).map_err(|_| refuse())?;
    match server {
        Server { endpoint, weight: 1, name: None } => Ok(Place { endpoint, password }),
        _ => Err(refuse()),
    }
}
