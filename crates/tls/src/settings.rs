use rustls::pki_types::ServerName;
use std::path::{Path, PathBuf};

/// How connections to servers are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Whose certificates are believed.
    pub trust: Trust,
    /// The name that every server's certificate must be valid for, and that is
    /// sent to it; `None` for the host of its address.
    pub server_name: Option<String>,
    /// What we show to servers that ask for a certificate.
    pub identity: Option<Identity>,
    /// The oldest version spoken.
    pub min_version: MinVersion,
}

/// How connections of clients are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// What we show: the one for the name that a client asks for, or else the first. At
    /// least one.
    pub identities: Vec<Identity>,
    /// Which certificates clients show.
    pub clients: ClientCertificates,
    /// Lists of those of them that count no longer: a certificate of whose authority there is
    /// none is refused then.
    pub crl_file: Option<PathBuf>,
    /// The oldest version spoken.
    pub min_version: MinVersion,
}

/// Which certificates clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked for any.
    None,
    /// They are asked, and need not have one; one that is shown must be issued by the
    /// authorities in this file.
    Optional(PathBuf),
    /// Who shows none that the authorities in this file have issued is refused.
    Required(PathBuf),
}

impl ClientCertificates {
    /// The file with the authorities.
    pub fn authorities(&self) -> Option<&Path> {
        match self {
            ClientCertificates::None => None,
            ClientCertificates::Optional(path) | ClientCertificates::Required(path) => Some(path),
        }
    }
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those issued by the authorities in this file.
    Authorities(PathBuf),
    /// Anybody's: whoever answers can read and change everything.
    Anybody,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The certificate, and those between it and its authority.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

/// The oldest version spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Which of the settings something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The authorities.
    CaFile,
    /// Our certificate.
    CertFile,
    /// Its key.
    KeyFile,
    /// What was revoked.
    CrlFile,
}

/// Whether `name` can stand in a certificate: a host name or an IP address.
pub fn parse_name(name: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(name).ok().map(|name| name.to_owned())
}
