//! Certificates for tests, with an authority of their own.

use crate::TempDir;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, date_time_ymd,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, in PEM.
    pub certificate: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// From 2020 to 2049.
    Current,
    /// In 2019.
    Expired,
    /// From 2050 on.
    Future,
    /// Until five days from now.
    EndsSoon,
}

/// A certificate and its key, in PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// An authority of that name.
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = params(&[], name, Span::Current);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate for hosts, by name or address, that is valid now.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_for(names, Span::Current)
    }

    /// A certificate for hosts, by name or address.
    pub fn issue_for(&self, names: &[&str], span: Span) -> Issued {
        self.issue_params(params(names, "keyway test", span))
    }

    /// One that is valid now, of this number.
    pub fn issue_numbered(&self, names: &[&str], number: u64) -> Issued {
        let mut params = params(names, "keyway test", Span::Current);
        params.serial_number = Some(number.into());
        self.issue_params(params)
    }

    fn issue_params(&self, mut params: CertificateParams) -> Issued {
        let key = KeyPair::generate().expect("a key");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Issued { certificate, key: key.serialize_pem() }
    }

    /// A list, in PEM, of those that count no longer.
    pub fn revoke(&self, numbers: &[u64]) -> String {
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2049, 1, 1),
            crl_number: 1u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a list").pem().expect("a list in PEM")
    }
}

fn params(names: &[&str], common_name: &str, span: Span) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    (params.not_before, params.not_after) = match span {
        Span::Current => (date_time_ymd(2020, 1, 1), date_time_ymd(2049, 12, 31)),
        Span::Expired => (date_time_ymd(2019, 1, 1), date_time_ymd(2019, 12, 31)),
        Span::Future => (date_time_ymd(2050, 1, 1), date_time_ymd(2060, 12, 31)),
        Span::EndsSoon => {
            let now = std::time::SystemTime::now();
            (date_time_ymd(2020, 1, 1), (now + Duration::from_secs(5 * 24 * 60 * 60)).into())
        }
    };
    params
}

/// An authority, a certificate for 127.0.0.1, ::1 and localhost and one for
/// clients, as files.
pub struct CertificateFiles {
    directory: TempDir,
    /// Who has issued them.
    pub authority: Authority,
}

impl Default for CertificateFiles {
    fn default() -> Self {
        let files = CertificateFiles {
            directory: TempDir::new(),
            authority: Authority::new("keyway test authority"),
        };
        files.write("ca.pem", &files.authority.certificate);
        files.add("server", &files.authority.issue(&["127.0.0.1", "::1", "localhost"]));
        files.add("client", &files.authority.issue(&["client.example"]));
        files
    }
}

impl CertificateFiles {
    /// Writes a certificate and its key to `NAME.pem` and `NAME.key`.
    pub fn add(&self, name: &str, issued: &Issued) {
        self.write(&format!("{name}.pem"), &issued.certificate);
        self.write(&format!("{name}.key"), &issued.key);
    }

    /// Writes a file; its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file in a directory of our own");
        path
    }

    /// Where a file is.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }

    /// The options of a redis-server that listens for TLS on this port, and has
    /// the certificate of that name.
    pub fn redis_options(&self, port: u16, name: &str) -> Vec<String> {
        let file = |name: String| self.path(&name).display().to_string();
        [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", file(format!("{name}.pem"))),
            ("--tls-key-file", file(format!("{name}.key"))),
            ("--tls-ca-cert-file", file("ca.pem".to_owned())),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
    }
}
