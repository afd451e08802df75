//! An index of the listeners' addresses. It finds the address that clashes with another one, or
//! that a server's address reaches. A file may have tens of thousands of addresses, so a walk over
//! all of them for each is too slow.

use crate::address::ListenAddr;
use keyway_topology::Endpoint;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// Addresses in the order in which they were added, each with a value.
pub(crate) struct Addresses<T> {
    all: Vec<(ListenAddr, T)>,
    /// The first address with each path. Unix sockets and shared memory share their paths.
    paths: BTreeMap<PathBuf, usize>,
    /// The first address with each IP and port.
    exact: BTreeMap<(u16, IpAddr), usize>,
    /// By port, and whether the address is IPv4: the first address, and the first loopback address.
    first: BTreeMap<(u16, bool), usize>,
    loopback: BTreeMap<(u16, bool), usize>,
}

const ANY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl<T> Default for Addresses<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            paths: BTreeMap::new(),
            exact: BTreeMap::new(),
            first: BTreeMap::new(),
            loopback: BTreeMap::new(),
        }
    }
}

impl<T> Addresses<T> {
    pub(crate) fn add(&mut self, address: ListenAddr, value: T) {
        let index = self.all.len();
        match &address {
            ListenAddr::Unix(path) | ListenAddr::Shm(path) => {
                self.paths.entry(path.clone()).or_insert(index);
            }
            ListenAddr::Tcp(address) => {
                let (port, ip) = (address.port(), address.ip());
                self.exact.entry((port, ip)).or_insert(index);
                self.first.entry((port, ip.is_ipv4())).or_insert(index);
                if ip.is_loopback() {
                    self.loopback.entry((port, ip.is_ipv4())).or_insert(index);
                }
            }
        }
        self.all.push((address, value));
    }

    /// Returns the first address that clashes with `address`: see [`ListenAddr::clashes_with`].
    pub(crate) fn clash(&self, address: &ListenAddr) -> Option<(&ListenAddr, &T)> {
        let found = match address {
            ListenAddr::Unix(path) | ListenAddr::Shm(path) => self.paths.get(path),
            ListenAddr::Tcp(address) if address.port() == 0 => None,
            ListenAddr::Tcp(address) => {
                let (port, ip) = (address.port(), address.ip());
                let any = ANY[usize::from(ip.is_ipv6())];
                match ip.is_unspecified() {
                    true => self.first.get(&(port, ip.is_ipv4())),
                    false => earlier(self.exact.get(&(port, ip)), self.exact.get(&(port, any))),
                }
            }
        };
        found.map(|&index| (&self.all[index].0, &self.all[index].1))
    }

    /// Returns the first address that a connection to `server` reaches: see
    /// [`ListenAddr::is_reached_by`].
    pub(crate) fn reached(&self, server: &Endpoint) -> Option<&T> {
        let found = match server {
            Endpoint::Unix { path } | Endpoint::Shm { path } => self.paths.get(path),
            Endpoint::Tcp { host, port } => {
                let ips = match host.parse::<IpAddr>() {
                    Ok(ip) => vec![ip],
                    Err(_) if host.eq_ignore_ascii_case("localhost") => LOCALHOST.to_vec(),
                    Err(_) => Vec::new(),
                };
                ips.into_iter().fold(None, |found, ip| {
                    let mut found = earlier(found, self.exact.get(&(*port, ip)));
                    if ip.is_loopback() || ip.is_unspecified() {
                        for any in ANY {
                            found = earlier(found, self.exact.get(&(*port, any)));
                        }
                    }
                    if ip.is_unspecified() {
                        for is_ipv4 in [false, true] {
                            found = earlier(found, self.loopback.get(&(*port, is_ipv4)));
                        }
                    }
                    found
                })
            }
        };
        found.map(|&index| &self.all[index].1)
    }

    pub(crate) fn into_addresses(self) -> Vec<ListenAddr> {
        self.all.into_iter().map(|(address, _)| address).collect()
    }
}

fn earlier<'i>(one: Option<&'i usize>, other: Option<&'i usize>) -> Option<&'i usize> {
    [one, other].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::parse_listen;
    use proptest::prelude::*;

    const HOSTS: [&str; 8] = [
        "127.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "[::]",
        "[::1]",
        "192.0.2.1",
        "[2001:db8::1]",
        "localhost",
    ];

    fn address() -> impl Strategy<Value = ListenAddr> {
        let tcp =
            (0usize..7, 0u16..3).prop_map(|(host, port)| format!("tcp://{}:{port}", HOSTS[host]));
        let path = (prop::bool::ANY, 0..3).prop_map(|(is_unix, path)| {
            format!("{}:///run/{path}", if is_unix { "unix" } else { "shm" })
        });
        prop_oneof![4 => tcp, 1 => path].prop_filter_map("no address", |text| {
            // Only callers that ask the system for a port may use port 0; files may not.
            parse_listen(&text).ok()
        })
    }

    fn endpoint() -> impl Strategy<Value = Endpoint> {
        let tcp = (0usize..8, 0u16..3).prop_map(|(host, port)| Endpoint::Tcp {
            host: HOSTS[host].trim_matches(['[', ']']).to_owned(),
            port,
        });
        let path = |path| PathBuf::from(format!("/run/{path}"));
        let unix = (0..3).prop_map(move |number| Endpoint::Unix { path: path(number) });
        prop_oneof![4 => tcp, 1 => unix]
    }

    proptest! {
        /// The index finds the same address as a walk over all addresses finds first.
        #[test]
        fn finding_is_as_walking_over_all(
            all in prop::collection::vec(address(), 0..12),
            own in address(),
            server in endpoint(),
        ) {
            let mut addresses = Addresses::default();
            for (index, address) in all.iter().enumerate() {
                addresses.add(address.clone(), index);
            }
            let clash = all.iter().position(|other| own.clashes_with(other));
            prop_assert_eq!(addresses.clash(&own).map(|(_, index)| *index), clash);
            let reached = all.iter().position(|other| other.is_reached_by(&server));
            prop_assert_eq!(addresses.reached(&server).copied(), reached);
        }
    }
}
