use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};

/// How connections to servers are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The certificates that are trusted.
    pub trust: Trust,
    /// The name for which every server's certificate must be valid, and which is sent to it.
    /// `None`: the host of its address.
    pub server_name: Option<String>,
    /// The certificate that we show to servers that ask for one.
    pub identity: Option<Identity>,
    /// The oldest allowed version.
    pub min_version: MinVersion,
}

/// How connections of clients are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// The certificates that we show: the one for the name that a client asks for, or else the
    /// first. There is at least one.
    pub identities: Vec<Identity>,
    /// The certificates that clients show.
    pub clients: ClientCertificates,
    /// The certificate revocation lists for clients. A certificate is refused if there is no list
    /// of its authority.
    pub crl_file: Option<PathBuf>,
    /// The oldest allowed version.
    pub min_version: MinVersion,
}

/// The certificates that clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Clients are not asked for a certificate.
    None,
    /// Clients are asked, and need not have one. A certificate that is shown must be issued by the
    /// authorities in this file.
    Optional(PathBuf),
    /// Clients must show a certificate that the authorities in this file have issued.
    Required(PathBuf),
}

impl ClientCertificates {
    /// Returns the file with the authorities.
    pub fn authorities(&self) -> Option<&Path> {
        match self {
            ClientCertificates::None => None,
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => Some(path),
        }
    }
}

/// The certificates that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates issued by the authorities in this file.
    Authorities(PathBuf),
    /// All certificates: an impostor can read and change everything.
    Anybody,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and the intermediate ones up to its authority.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

/// The oldest allowed version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// The setting to which something belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The authorities.
    CaFile,
    /// Our certificate.
    CertFile,
    /// The key of our certificate.
    KeyFile,
    /// The revocation lists.
    CrlFile,
}

/// Parses a name that a certificate can contain: a host name or an IP address.
pub fn parse_name(name: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(name).ok().map(|name| name.to_owned())
}
