//! Access settings of a listener: TLS, addresses, the PROXY protocol, and bounds on clients and
//! their time.

use crate::address::ListenAddr;
use crate::error::{Problem, Report, listed, quoted};
use crate::limits::at_most_the_limit;
use crate::model::{AccessConfig, Config, ListenerTlsConfig};
use crate::secret::ReadFile;
use crate::section::{Section, Value};
use crate::toml_text::string;
use crate::value::format_size;
use keyway_base::{Limits, Network, NotNetwork};
use keyway_tls::{
    ClientCertificates, FileFault, Identity, MinVersion, ServerSettings, ServerTls, Setting,
};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;
use toml::Spanned;
use toml::de::DeValue;

/// Default time for the handshake of a client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Default number of clients in a handshake at once, per worker.
const HANDSHAKES_MAX: u64 = 1024;

/// Most ranges of addresses in one list. All of them are checked for each client.
const NETWORKS_MAX: usize = 1024;

/// Further certificates of a listener.
const CERTIFICATES_MAX: usize = 100;

/// Memory of a secured connection for records that are incomplete, or for which the socket has no
/// room, in bytes.
pub(crate) const SECURED_LEN_MAX: u64 = (64 << 10) + (36 << 10);

const NETWORKS_HINT: &str =
    "write addresses and ranges: [\"192.0.2.0/24\", \"127.0.0.1\", \"::1\"]";

/// Reads `["10.0.0.0/8", "::1"]`.
pub(crate) fn read_networks(value: &DeValue<'_>) -> Result<Value, Problem> {
    let wrong = |what: String| Problem::new(what, NETWORKS_HINT);
    let list = value.as_array().ok_or_else(|| wrong("it is not a list".to_owned()))?;
    if !(1..=NETWORKS_MAX).contains(&list.len()) {
        let hint = format!("list 1 to {NETWORKS_MAX}, or remove it");
        return Err(Problem::new(listed("range", list.len()), hint));
    }
    let network = |item: &Spanned<DeValue<'_>>| {
        let text = item.get_ref().as_str();
        let text = text.ok_or_else(|| wrong("one of them is not text".to_owned()))?;
        text.parse::<Network>().map_err(|why| match why {
            NotNetwork::Address => wrong(format!("{} is no IP address", quoted(text))),
            NotNetwork::Prefix => {
                let what = format!("{} has a wrong number of bits behind the slash", quoted(text));
                Problem::new(what, "write 0 to 32 for IPv4, 0 to 128 for IPv6")
            }
            NotNetwork::Bits(meant) => {
                let what = format!("{} has bits beyond those of the range", quoted(text));
                Problem::new(what, format!("write \"{meant}\", or the address alone"))
            }
        })
    };
    list.iter().map(network).collect::<Result<_, _>>().map(Value::Networks)
}

/// Reads the access settings of a listener.
pub(crate) fn resolve(
    section: &Section,
    bind: &ListenAddr,
    limits: &Limits,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> AccessConfig {
    refuse_stray_keys(section, bind, report);
    let networks = |name| match section.value(name) {
        Some(Value::Networks(networks)) => networks.clone(),
        _ => Vec::new(),
    };
    let access = AccessConfig {
        tls: section.section("tls").map(|section| tls(section, read_file, report)),
        proxies: section.bool("proxy_protocol").then(|| networks("proxy_from")),
        allow: networks("allow"),
        deny: networks("deny"),
        handshake_timeout: section.duration("handshake_timeout").unwrap_or(HANDSHAKE_TIMEOUT),
        handshakes_max: section.number("handshakes_max").unwrap_or(HANDSHAKES_MAX) as u32,
        clients_max: section.number("clients_max").map(|_| {
            let limit = ("clients_max", limits.clients_max);
            at_most_the_limit(section, "clients_max", limit, report)
        }),
        idle_timeout: section.duration("idle_timeout"),
    };
    warn_of_believers(section, bind, &access, report);
    access
}

/// Refuses keys that have no effect here.
fn refuse_stray_keys(section: &Section, bind: &ListenAddr, report: &mut Report<'_>) {
    let has_proxies = section.bool("proxy_protocol");
    let mut refuse = |name: &str, what: &str, hint: &str| {
        if let Some(at) = section.given(name) {
            let what = format!("{name} in [[listener]] {what}");
            report.consequence(at, Problem::new(what, hint));
        }
    };
    if !matches!(bind, ListenAddr::Tcp(_)) {
        let hint = "remove tls, or listen on tcp://";
        refuse("tls", "is for tcp:// listeners only: no client speaks it on a unix socket", hint);
    }
    if let (ListenAddr::Shm(_), true) = (bind, has_proxies) {
        let what = "is not for shm:// listeners";
        refuse("proxy_protocol", what, "remove proxy_protocol, or listen on unix://");
    }
    if !has_proxies {
        refuse(
            "proxy_from",
            "is for listeners with proxy_protocol = true",
            "add that, or remove it",
        );
        if !matches!(bind, ListenAddr::Tcp(_)) {
            let what = "goes by addresses, and clients of unix sockets have none";
            refuse("allow", what, "remove it: mode says who may open the socket");
            refuse("deny", what, "remove it: mode says who may open the socket");
        }
        if section.given("tls").is_none() {
            let what = "is for listeners with tls or proxy_protocol = true";
            refuse("handshake_timeout", what, "remove it");
            refuse("handshakes_max", what, "remove it");
        }
    }
}

/// Warns of address lists that keep no client out, because the clients choose the addresses that
/// are checked.
fn warn_of_believers(
    section: &Section,
    bind: &ListenAddr,
    access: &AccessConfig,
    report: &mut Report<'_>,
) {
    let believes_all = access.proxies.as_ref().is_some_and(Vec::is_empty);
    if believes_all && crate::warnings::is_open(bind) && section.value("proxy_protocol").is_some() {
        let what = format!(
            "{bind} can be reached from other machines and has proxy_protocol without proxy_from: whoever connects can say that he is anybody"
        );
        let hint = "add proxy_from with the addresses of the proxies";
        report.warning(section.place("proxy_protocol"), Problem::new(what, hint));
    }
}

/// Reads the TLS settings of the admin address or a listener.
pub(crate) fn tls(
    section: &Section,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> ListenerTlsConfig {
    let further = section.sections("certificates");
    if let Some(beyond) = further.get(CERTIFICATES_MAX) {
        let what =
            format!("certificates in {}: {}", section.header, listed("certificate", further.len()));
        let hint = format!("list up to {CERTIFICATES_MAX}");
        report.consequence(beyond.at, Problem::new(what, hint));
    }
    let sections: Vec<&Section> = std::iter::once(section).chain(further).collect();
    let identities: Vec<Option<Identity>> = sections.iter().map(|one| identity(one)).collect();
    let is_whole = identities.iter().all(Option::is_some)
        && ["ca_file", "crl_file", "client_certificates", "min_version"]
            .iter()
            .all(|name| section.given(name).is_none() || section.value(name).is_some());
    let settings = ServerSettings {
        identities: identities.into_iter().flatten().collect(),
        clients: clients(section, report),
        crl_file: revoked(section, report),
        min_version: match section.text("min_version") {
            Some("1.3") => MinVersion::V1_3,
            _ => MinVersion::V1_2,
        },
    };
    let loaded = read_file
        .filter(|_| is_whole)
        .and_then(|read_file| load(section, &sections, &settings, read_file, report));
    ListenerTlsConfig { settings, loaded }
}

fn path(section: &Section, name: &str) -> Option<PathBuf> {
    match section.value(name) {
        Some(Value::Path(path)) => Some(path.clone()),
        _ => None,
    }
}

fn identity(section: &Section) -> Option<Identity> {
    Some(Identity { cert_file: path(section, "cert_file")?, key_file: path(section, "key_file")? })
}

fn clients(section: &Section, report: &mut Report<'_>) -> ClientCertificates {
    let word = section.text("client_certificates");
    match (word, path(section, "ca_file")) {
        (Some("required") | None, Some(path)) => ClientCertificates::Required(path),
        (Some("optional"), Some(path)) => ClientCertificates::Optional(path),
        (Some(word @ ("required" | "optional")), None) if section.given("ca_file").is_none() => {
            let what =
                format!("client_certificates in {} is \"{word}\", without ca_file", section.header);
            let hint = "add ca_file = \"/path/of/the/authorities.pem\"";
            report.consequence(section.place("client_certificates"), Problem::new(what, hint));
            ClientCertificates::None
        }
        (Some("none"), Some(_)) => {
            let what = format!(
                "ca_file in {} has no use: clients are not asked for a certificate",
                section.header
            );
            let hint = "remove it, or write client_certificates = \"required\"";
            report.consequence(section.place("ca_file"), Problem::new(what, hint));
            ClientCertificates::None
        }
        _ => ClientCertificates::None,
    }
}

fn revoked(section: &Section, report: &mut Report<'_>) -> Option<PathBuf> {
    let file = path(section, "crl_file")?;
    if section.given("ca_file").is_none() {
        let what = format!("crl_file in {} has no use without ca_file", section.header);
        let hint = "remove it, or add the ca_file with who issues the clients' certificates";
        report.consequence(section.place("crl_file"), Problem::new(what, hint));
    }
    Some(file)
}

fn load(
    section: &Section,
    sections: &[&Section],
    settings: &ServerSettings,
    read_file: ReadFile<'_>,
    report: &mut Report<'_>,
) -> Option<ServerTls> {
    let place = |fault: FileFault| {
        let (of, name) = match fault.setting {
            Setting::CaFile => (section, "ca_file"),
            Setting::CrlFile => (section, "crl_file"),
            Setting::CertFile => (sections[fault.certificate], "cert_file"),
            Setting::KeyFile => (sections[fault.certificate], "key_file"),
        };
        let what = format!("{name} in {}: {}", of.header, fault.what);
        (of.place(name), Problem::new(what, fault.hint))
    };
    match ServerTls::load(settings, read_file) {
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

/// Adds the memory that clients in a handshake and clients with TLS may use.
pub(crate) fn describe_memory(config: &Config, text: &mut String) {
    let accesses = config.listeners.iter().map(|listener| &listener.access);
    let asks = |one: &&AccessConfig| one.tls.is_some() || one.proxies.is_some();
    let arrivals: u64 =
        accesses.clone().filter(asks).map(|one| u64::from(one.handshakes_max)).sum();
    if arrivals > 0 {
        let bytes = format_size(arrivals * SECURED_LEN_MAX);
        let _ =
            writeln!(text, "  clients that come in: {bytes} per worker (handshakes: {arrivals})");
    }
    if accesses.clone().any(|one| one.tls.is_some()) {
        let bytes = format_size(SECURED_LEN_MAX);
        let _ =
            writeln!(text, "  clients by tls: some 8KiB each when idle, {bytes} more when busy");
    }
}

/// Returns the TLS settings as they are written in the file.
pub(crate) fn tls_text(settings: &ServerSettings) -> String {
    let files = |Identity { cert_file, key_file }: &Identity| {
        let (cert, key) = (cert_file.to_string_lossy(), key_file.to_string_lossy());
        format!("cert_file = {}, key_file = {}", string(&cert), string(&key))
    };
    let mut parts: Vec<String> = settings.identities.first().map(files).into_iter().collect();
    if let [_, further @ ..] = settings.identities.as_slice()
        && !further.is_empty()
    {
        let all: Vec<String> = further.iter().map(|one| format!("{{ {} }}", files(one))).collect();
        parts.push(format!("certificates = [{}]", all.join(", ")));
    }
    let word = match &settings.clients {
        ClientCertificates::None => "none",
        ClientCertificates::Optional(_) => "optional",
        ClientCertificates::Required(_) => "required",
    };
    parts.push(format!("client_certificates = \"{word}\""));
    if let Some(path) = settings.clients.authorities() {
        parts.push(format!("ca_file = {}", string(&path.to_string_lossy())));
    }
    if let Some(path) = &settings.crl_file {
        parts.push(format!("crl_file = {}", string(&path.to_string_lossy())));
    }
    parts.push(match settings.min_version {
        MinVersion::V1_2 => "min_version = \"1.2\"".to_owned(),
        MinVersion::V1_3 => "min_version = \"1.3\"".to_owned(),
    });
    format!("{{ {} }}", parts.join(", "))
}

/// Returns a list of ranges as it is written in the file.
pub(crate) fn networks_text(networks: &[Network]) -> String {
    let all: Vec<String> = networks.iter().map(|one| format!("\"{one}\"")).collect();
    format!("[{}]", all.join(", "))
}
