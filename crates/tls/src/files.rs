//! PEM files, with what is wrong with them in words.

use crate::settings::Setting;
use crate::validity;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::time::SystemTime;

/// How a file is read: its text, or why not.
pub type ReadFile<'f> = &'f dyn Fn(&Path) -> Result<String, String>;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Which setting names it.
    pub setting: Setting,
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
        FileFault { setting, what: format!("{} {what}", path.display()), hint }
    }
}

const CERTIFICATES_HINT: &str =
    "give a file with certificates in PEM: -----BEGIN CERTIFICATE----- and so on";
const KEY_HINT: &str =
    "give a file with one private key in PEM, without a passphrase: -----BEGIN PRIVATE KEY-----";

/// Every certificate of a file: at least one.
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

/// The private key of a file.
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

/// What is wrong with the PEM of a file, without a byte of it: it may be a key.
fn words(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "a section has no end",
        Error::IllegalSectionStart { .. } => "the first line of a section is wrong",
        Error::Base64Decode(_) => "what stands in it is not base64",
        Error::SectionTooLarge => "a section is too large",
        _ => "it cannot be read",
    }
}

/// What is suspicious about when a certificate is valid.
#[allow(clippy::disallowed_methods, reason = "files are read at the start, not by a worker")]
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
        "holds a certificate that is not valid yet".to_owned()
    } else {
        return None;
    };
    Some(FileFault::new(setting, path, what, HINT))
}

fn ago(secs: i64) -> String {
    match secs / 86_400 {
        0 => "today".to_owned(),
        1 => "a day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}
