//! Reads PEM files, and describes what is wrong with them.

use crate::settings::{Identity, MinVersion, Setting};
use crate::validity;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, SupportedProtocolVersion};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Reads a file: returns its text, or what is wrong.
pub type ReadFile<'f> = &'f dyn Fn(&Path) -> Result<String, String>;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The setting that names it.
    pub setting: Setting,
    /// Index of the certificate, from 0, if there may be several.
    pub certificate: usize,
    /// What is wrong, beginning with its path.
    pub what: String,
    /// What to do about it.
    pub hint: &'static str,
}

impl FileFault {
    pub(crate) fn new(
        setting: Setting,
        path: &Path,
        what: impl std::fmt::Display,
        hint: &'static str,
    ) -> Self {
        FileFault { setting, certificate: 0, what: format!("{} {what}", path.display()), hint }
    }
}

/// The validity of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dated {
    /// The file, as configured.
    pub path: PathBuf,
    /// When the first certificate in it expires, in seconds since 1970.
    pub not_after: i64,
    /// Distinguishes its certificates from others. It is no secret.
    pub fingerprint: u64,
}

/// Number of days before a certificate expires from which a warning is given.
const WARNED_DAYS: i64 = 30;

/// Files that are being read, and the findings.
pub(crate) struct Reading<'f> {
    read: ReadFile<'f>,
    pub(crate) faults: Vec<FileFault>,
    pub(crate) warnings: Vec<FileFault>,
    pub(crate) dated: Vec<Dated>,
}

impl<'f> Reading<'f> {
    pub(crate) fn new(read: ReadFile<'f>) -> Self {
        Reading { read, faults: Vec::new(), warnings: Vec::new(), dated: Vec::new() }
    }

    /// Notes the validity of the certificates of a file.
    fn date(&mut self, setting: Setting, path: &Path, chain: &[CertificateDer<'_>]) {
        let not_after = |one: &CertificateDer<'_>| Some(validity::of(one)?.not_after);
        let Some(not_after) = chain.iter().filter_map(not_after).min() else { return };
        let mut hasher = DefaultHasher::new();
        chain.iter().for_each(|one| one.as_ref().hash(&mut hasher));
        let fingerprint = hasher.finish();
        self.dated.push(Dated { path: path.to_owned(), not_after, fingerprint });
        self.warnings.extend(chain.iter().find_map(|one| time_fault(setting, path, one)));
    }
}

/// Returns the oldest allowed version and all later ones.
pub(crate) fn versions(min: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    match min {
        MinVersion::V1_2 => &ALL,
        MinVersion::V1_3 => &ALL[..1],
    }
}

/// Returns the trusted authorities.
pub(crate) fn authorities(
    path: &Path,
    hint: &'static str,
    reading: &mut Reading<'_>,
) -> Option<RootCertStore> {
    let setting = Setting::CaFile;
    let certificates = match certificates(setting, path, reading.read) {
        Ok(certificates) => certificates,
        Err(fault) => {
            reading.faults.push(fault);
            return None;
        }
    };
    let mut roots = RootCertStore::empty();
    if certificates.iter().any(|one| roots.add(one.clone()).is_err()) {
        let what = "holds a certificate that cannot be an authority's";
        reading.faults.push(FileFault::new(setting, path, what, hint));
        return None;
    }
    // In a bundle with many authorities, as of the system, some are always old.
    if certificates.len() == 1 {
        reading.date(setting, path, &certificates);
    }
    Some(roots)
}

/// Returns the certificate revocation lists, at least one.
pub(crate) fn revoked(
    path: &Path,
    reading: &mut Reading<'_>,
) -> Option<Vec<CertificateRevocationListDer<'static>>> {
    let refuse = |what: String| FileFault::new(Setting::CrlFile, path, what, CRL_HINT);
    let read = || {
        let text = (reading.read)(path).map_err(&refuse)?;
        let all: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(text.as_bytes()).collect();
        match all {
            Ok(all) if all.is_empty() => Err(refuse("holds no list in PEM".to_owned())),
            Ok(all) => Ok(all),
            Err(error) => Err(refuse(format!("is not PEM: {}", words(&error)))),
        }
    };
    match read() {
        Ok(lists) => Some(lists),
        Err(fault) => {
            reading.faults.push(fault);
            None
        }
    }
}

/// Returns one of our certificates with its key: the one at `index` of several.
pub(crate) fn own(
    identity: &Identity,
    index: usize,
    provider: &CryptoProvider,
    reading: &mut Reading<'_>,
) -> Option<Arc<CertifiedKey>> {
    let (faults, warnings) = (reading.faults.len(), reading.warnings.len());
    let certified = read_own(identity, provider, reading);
    reading.faults[faults..].iter_mut().for_each(|fault| fault.certificate = index);
    reading.warnings[warnings..].iter_mut().for_each(|fault| fault.certificate = index);
    certified
}

fn read_own(
    identity: &Identity,
    provider: &CryptoProvider,
    reading: &mut Reading<'_>,
) -> Option<Arc<CertifiedKey>> {
    let Identity { cert_file, key_file } = identity;
    let chain = certificates(Setting::CertFile, cert_file, reading.read);
    let (chain, key) = match (chain, key(key_file, reading.read)) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => {
            reading.faults.extend([chain.err(), key.err()].into_iter().flatten());
            return None;
        }
    };
    reading.date(Setting::CertFile, cert_file, &chain);
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(certified) => Some(Arc::new(certified)),
        Err(error) => {
            reading.faults.push(unusable(&error, identity));
            None
        }
    }
}

fn unusable(error: &rustls::Error, Identity { cert_file, key_file }: &Identity) -> FileFault {
    match error {
        rustls::Error::InconsistentKeys(_) => FileFault::new(
            Setting::KeyFile,
            key_file,
            format_args!("is not the key of the certificate in {}", cert_file.display()),
            "give the key that the certificate was made with",
        ),
        rustls::Error::InvalidCertificate(_) => FileFault::new(
            Setting::CertFile,
            cert_file,
            "holds a certificate that is damaged, or of a kind not supported",
            "give an X.509 certificate of version 3",
        ),
        _ => FileFault::new(
            Setting::KeyFile,
            key_file,
            "holds a key of a kind not supported",
            "give an RSA key of 2048 bits or more, or one of ECDSA (P-256, P-384) or Ed25519",
        ),
    }
}

const CERTIFICATES_HINT: &str =
    "give a file with certificates in PEM: -----BEGIN CERTIFICATE----- and so on";
pub(crate) const CRL_HINT: &str = "give a file with the lists of the authorities of ca_file in PEM: -----BEGIN X509 CRL----- and so on";
const KEY_HINT: &str =
    "give a file with one private key in PEM, without a passphrase: -----BEGIN PRIVATE KEY-----";

/// Returns every certificate of a file, at least one.
pub(crate) fn certificates(
    setting: Setting,
    path: &Path,
    read: ReadFile<'_>,
) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let refuse = |what: String| FileFault::new(setting, path, what, CERTIFICATES_HINT);
    let text = read(path).map_err(&refuse)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if all.is_empty() => Err(refuse("holds no certificate in PEM".to_owned())),
        Ok(all) => Ok(all),
        Err(error) => Err(refuse(format!("is not PEM: {}", words(&error)))),
    }
}

/// Returns the private key of a file.
pub(crate) fn key(path: &Path, read: ReadFile<'_>) -> Result<PrivateKeyDer<'static>, FileFault> {
    let refuse = |what: String| FileFault::new(Setting::KeyFile, path, what, KEY_HINT);
    let text = read(path).map_err(&refuse)?;
    if text.contains("ENCRYPTED") {
        return Err(refuse("holds a key with a passphrase".to_owned()));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| match error {
        Error::NoItemsFound => refuse("holds no private key in PEM".to_owned()),
        error => refuse(format!("is not PEM: {}", words(&error))),
    })
}

/// Returns what is wrong with the PEM of a file, without any of its bytes: it may be a key.
fn words(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "a section has no end",
        Error::IllegalSectionStart { .. } => "the first line of a section is wrong",
        Error::Base64Decode(_) => "what stands in it is not base64",
        Error::SectionTooLarge => "a section is too large",
        _ => "it cannot be read",
    }
}

/// Returns what is suspicious about the validity of a certificate.
#[allow(clippy::disallowed_methods, reason = "files are not read by a worker")]
pub(crate) fn time_fault(
    setting: Setting,
    path: &Path,
    certificate: &CertificateDer<'_>,
) -> Option<FileFault> {
    const HINT: &str = "renew it: who checks it will refuse it";
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let now = i64::try_from(now).ok()?;
    let validity = validity::of(certificate)?;
    let what = if validity.not_after < now {
        format!("holds a certificate that has expired {}", ago(now - validity.not_after))
    } else if validity.not_before > now {
        let days = (validity.not_before - now) / 86_400 + 1;
        format!("holds a certificate that is not valid yet, but {}", in_days(days))
    } else if validity.not_after - now < WARNED_DAYS * 86_400 {
        format!("holds a certificate that expires {}", in_days((validity.not_after - now) / 86_400))
    } else {
        return None;
    };
    Some(FileFault::new(setting, path, what, HINT))
}

fn in_days(days: i64) -> String {
    match days {
        0 => "today".to_owned(),
        1 => "in a day".to_owned(),
        days => format!("in {days} days"),
    }
}

fn ago(secs: i64) -> String {
    match secs / 86_400 {
        0 => "today".to_owned(),
        1 => "a day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}
