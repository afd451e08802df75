//! Finds the admin address of a process from its configuration file.

use anyhow::{Result, anyhow, bail};
use keyway_config::{BusConfig, Config, ConfigError, ControlNodeConfig, ListenAddr};
use keyway_tls::ClientCertificates;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// An admin listener, as a process on the same machine reaches it. Its text is an address for
/// people and options: `127.0.0.1:9380`, `https://127.0.0.1:9380`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminOf {
    /// Its address.
    pub address: SocketAddr,
    /// True if it speaks HTTPS.
    pub is_secured: bool,
    /// True if it accepts only clients with a certificate.
    pub wants_certificates: bool,
}

impl fmt::Display for AdminOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secured { "https://" } else { "" };
        write!(f, "{scheme}{}", self.address)
    }
}

/// Returns the admin listener of the process that runs with this file; `None` if it has none.
/// Secrets that the file names are not read.
///
/// # Errors
/// Returns what is wrong with the file, or that the system chooses the port.
pub fn admin_of(file: &Path) -> Result<Option<AdminOf>> {
    let refused = |errors: Vec<ConfigError>| anyhow!("{}", joined(&errors));
    let (address, tls, key) = if ControlNodeConfig::is_one(file) {
        let (address, tls) = ControlNodeConfig::load_admin(file).map_err(refused)?;
        (Some(address), tls, "admin")
    } else if BusConfig::is_one(file) {
        let config = BusConfig::load(file).map_err(refused)?;
        (config.admin, None, "admin")
    } else {
        let config = Config::load_without_passwords(file).map_err(refused)?;
        match config.server.admin {
            Some(ListenAddr::Tcp(address)) => {
                (Some(address), config.server.admin_tls, "server.admin")
            }
            _ => (None, None, "server.admin"),
        }
    };
    let Some(address) = address else { return Ok(None) };
    if address.port() == 0 {
        let place = file.display();
        bail!("{place}: the port of {key} is chosen at start; give the address itself");
    }
    let clients = tls.as_ref().map(|tls| &tls.settings.clients);
    Ok(Some(AdminOf {
        address: reached_at(address),
        is_secured: clients.is_some(),
        wants_certificates: matches!(clients, Some(ClientCertificates::Required(_))),
    }))
}

/// Returns the address by which a process on the same machine reaches a listener.
fn reached_at(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn joined(errors: &[ConfigError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_control_node_names_its_admin_listener() {
        let folder = keyway_testkit::TempDir::new();
        let text = "cluster = \"test\"\nadmin = \"0.0.0.0:9391\"\nadmin_token_file = \"/none\"\n";
        let rest = "[coordinator]\nkind = \"files\"\ndir = \"/none\"\n";
        let shown = |more: &str| {
            let file = folder.write("control.toml", format!("{text}{more}{rest}"));
            admin_of(&file).map(|admin| admin.unwrap())
        };
        let admin = shown("").unwrap();
        assert_eq!(
            (admin.to_string().as_str(), admin.wants_certificates),
            ("127.0.0.1:9391", false)
        );
        let files = "cert_file = \"/none\", key_file = \"/none\"";
        let admin = shown(&format!("admin_tls = {{ {files}, ca_file = \"/none\" }}\n")).unwrap();
        assert_eq!(admin.to_string(), "https://127.0.0.1:9391");
        assert!(admin.wants_certificates);
        let file = folder.write("other.toml", text.replace("9391", "0") + rest);
        let error = admin_of(&file).unwrap_err().to_string();
        assert!(error.contains("the port of admin is chosen at start"), "{error}");
    }

    #[test]
    fn who_listens_everywhere_is_reached_on_this_machine() {
        for (listens, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            assert_eq!(reached_at(listens.parse().unwrap()).to_string(), reached);
        }
    }
}
