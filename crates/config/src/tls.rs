//! How connections to servers are secured.

use crate::error::{Problem, Report, quoted};
use crate::model::TlsConfig;
use crate::secret::ReadFile;
use crate::section::{Section, Value};
use crate::toml_text::string;
use keyway_tls::{
    ClientSettings, ClientTls, FileFault, Identity, MinVersion, Setting, Trust, parse_name,
};
use keyway_topology::{Endpoint, Server};
use std::path::PathBuf;

/// Reads `tls` of a pool with these servers.
pub(crate) fn of_pool(
    pool: &Section,
    servers: &[Server],
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<TlsConfig> {
    let section = pool.section("tls")?;
    refuse_unix(pool, ("tls", "servers"), servers, report);
    Some(resolve(section, read_file, report))
}

/// Reads `replica_tls` of a store.
pub(crate) fn of_replica(
    pool: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<TlsConfig> {
    Some(resolve(pool.section("replica_tls")?, read_file, report))
}

/// Returns the TLS settings of a pool's sentinels: their own, or the pool's.
pub(crate) fn of_sentinels(
    pool: &Section,
    of_pool: Option<&TlsConfig>,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<TlsConfig> {
    if let (Some(at), None) = (pool.given("sentinel_tls"), pool.given("sentinels")) {
        let what = format!("sentinel_tls in {} is for pools with sentinels", pool.header);
        report.consequence(at, Problem::new(what, "remove sentinel_tls"));
    }
    let tls = match pool.value("sentinel_tls") {
        Some(Value::Table(section)) => Some(resolve(section, read_file, report)),
        Some(Value::Word) => None,
        _ => of_pool.cloned(),
    };
    if let (Some(_), Some(Value::Servers(sentinels))) = (&tls, pool.value("sentinels")) {
        let sentinels: Vec<Server> = sentinels.iter().map(|(_, one)| one.clone()).collect();
        refuse_unix(pool, ("sentinel_tls", "sentinels"), &sentinels, report);
    }
    tls
}

fn refuse_unix(
    pool: &Section,
    (key, list): (&str, &str),
    servers: &[Server],
    report: &mut Report<'_>,
) {
    let is_unix = |server: &&Server| !matches!(server.endpoint, Endpoint::Tcp { .. });
    if let Some(server) = servers.iter().find(is_unix) {
        let what = format!(
            "{list} in {}: {} is a unix socket, on which servers speak no TLS",
            pool.header, server.endpoint
        );
        let hint = format!("write the address of its TLS port, or remove {key}");
        report.consequence(pool.place(list), Problem::new(what, hint));
    }
}

fn resolve(
    section: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> TlsConfig {
    let settings = ClientSettings {
        trust: trust(section, report),
        server_name: server_name(section, report),
        identity: identity(section, report),
        min_version: match section.text("min_version") {
            Some("1.3") => MinVersion::V1_3,
            _ => MinVersion::V1_2,
        },
    };
    let is_whole = |name: &str| section.given(name).is_none() || section.value(name).is_some();
    let can_load = ["ca_file", "cert_file", "key_file"].into_iter().all(is_whole)
        && !matches!(&settings.trust, Trust::Authorities(path) if path.as_os_str().is_empty());
    let loaded = read_file
        .filter(|_| can_load)
        .and_then(|read_file| load(section, &settings, read_file, report));
    TlsConfig { settings, loaded }
}

fn load(
    section: &Section,
    settings: &ClientSettings,
    read_file: ReadFile<'_>,
    report: &mut Report<'_>,
) -> Option<ClientTls> {
    let place = |fault: FileFault| {
        let name = match fault.setting {
            // There is no revocation list for servers.
            Setting::CaFile | Setting::CrlFile => "ca_file",
            Setting::CertFile => "cert_file",
            Setting::KeyFile => "key_file",
        };
        let what = format!("{name} in {}: {}", section.header, fault.what);
        (section.place(name), Problem::new(what, fault.hint))
    };
    match ClientTls::load(settings, read_file) {
        Ok(loaded) => {
            for (at, problem) in loaded.warnings.into_iter().map(place) {
                report.warning(at, problem);
            }
            Some(loaded.tls)
        }
        Err(faults) => {
            for (at, problem) in faults.into_iter().map(place) {
                report.consequence(at, problem);
            }
            None
        }
    }
}

/// Reads which certificates are trusted. An empty path stands for a missing path, which is
/// reported.
fn trust(section: &Section, report: &mut Report<'_>) -> Trust {
    let any = "dangerously_accept_any_certificate";
    let accepts_any = section.bool(any);
    match (accepts_any, section.value("ca_file")) {
        (false, Some(Value::Path(path))) => Trust::Authorities(path.clone()),
        (false, _) => {
            if section.given("ca_file").is_none() && section.value(any).is_some() {
                let what = format!("ca_file is missing in {}", section.header);
                let hint = "add ca_file = \"/path/of/the/authorities.pem\"; the system's own are in /etc/ssl/certs/ca-certificates.crt on Debian";
                report.consequence(section.at, Problem::new(what, hint));
            }
            Trust::Authorities(PathBuf::new())
        }
        (true, given) => {
            if given.is_some() {
                let what = format!("{} has both ca_file and {any}", section.header);
                report.consequence(section.place(any), Problem::new(what, format!("remove {any}")));
            }
            let what = format!(
                "{any} in {}: anybody between here and the servers can read and change all that goes there",
                section.header
            );
            let hint = "give ca_file instead";
            report.warning(section.place(any), Problem::new(what, hint));
            Trust::Anybody
        }
    }
}

fn server_name(section: &Section, report: &mut Report<'_>) -> Option<String> {
    let name = section.text("server_name")?;
    if parse_name(name).is_none() {
        let what = format!("server_name in {}: {} is no host name", section.header, quoted(name));
        let hint = "write a name such as \"redis.example.com\", or an IP address";
        report.consequence(section.place("server_name"), Problem::new(what, hint));
    }
    Some(name.to_owned())
}

fn identity(section: &Section, report: &mut Report<'_>) -> Option<Identity> {
    let path = |name| match section.value(name) {
        Some(Value::Path(path)) => Some(path.clone()),
        _ => None,
    };
    for (given, missing) in [("cert_file", "key_file"), ("key_file", "cert_file")] {
        if let (Some(at), None) = (section.given(given), section.given(missing)) {
            let what = format!("{} has {given} and no {missing}", section.header);
            report.consequence(at, Problem::new(what, format!("add {missing}, or remove {given}")));
        }
    }
    Some(Identity { cert_file: path("cert_file")?, key_file: path("key_file")? })
}

/// Returns the settings as they are written in the file.
pub(crate) fn text(settings: &ClientSettings) -> String {
    let path = |path: &PathBuf| string(&path.to_string_lossy());
    let mut parts = vec![match &settings.trust {
        Trust::Authorities(file) => format!("ca_file = {}", path(file)),
        Trust::Anybody => "dangerously_accept_any_certificate = true".to_owned(),
    }];
    if let Some(name) = &settings.server_name {
        parts.push(format!("server_name = {}", string(name)));
    }
    if let Some(identity) = &settings.identity {
        parts.push(format!("cert_file = {}", path(&identity.cert_file)));
        parts.push(format!("key_file = {}", path(&identity.key_file)));
    }
    parts.push(match settings.min_version {
        MinVersion::V1_2 => "min_version = \"1.2\"".to_owned(),
        MinVersion::V1_3 => "min_version = \"1.3\"".to_owned(),
    });
    format!("{{ {} }}", parts.join(", "))
}
