use crate::files::{FileFault, ReadFile, certificates, key, time_fault};
use crate::settings::{ClientSettings, Identity, MinVersion, Setting, Trust, parse_name};
use crate::{Channel, TlsFault};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything that connections to the servers of a pool need, shared by all of
/// them: certificates, and the sessions that may be resumed.
#[derive(Clone)]
pub struct ClientTls(Arc<Shared>);

struct Shared {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    answers: Arc<Answers>,
}

/// What [`ClientTls::load`] gives, with what is suspicious about the files.
#[derive(Debug)]
pub struct Loaded {
    /// What connections need.
    pub tls: ClientTls,
    /// Certificates that are not valid now.
    pub warnings: Vec<FileFault>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.0.server_name).finish()
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientTls {}

impl ClientTls {
    /// Reads the files that `settings` name.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn load(settings: &ClientSettings, read: ReadFile<'_>) -> Result<Loaded, Vec<FileFault>> {
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = match &settings.trust {
            Trust::Anybody => Some(Arc::new(AcceptsAnybody(Arc::clone(&provider))) as Arc<_>),
            Trust::Authorities(path) => match authorities(path, &provider, read, &mut warnings) {
                Ok(verifier) => Some(verifier as Arc<dyn ServerCertVerifier>),
                Err(fault) => {
                    faults.push(fault);
                    None
                }
            },
        };
        let identity = settings.identity.as_ref().and_then(|identity| {
            match own(identity, &provider, read, &mut warnings) {
                Ok(certified) => Some(certified),
                Err(mut wrong) => {
                    faults.append(&mut wrong);
                    None
                }
            }
        });
        let Some(verifier) = verifier.filter(|_| faults.is_empty()) else { return Err(faults) };
        let answers = Arc::new(Answers { identity, were_asked: AtomicBool::new(false) });
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions(settings.min_version))
            .expect("ring has ciphers for every version")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::clone(&answers) as Arc<dyn ResolvesClientCert>);
        let server_name = settings.server_name.as_deref().and_then(parse_name);
        let tls = ClientTls(Arc::new(Shared { config: Arc::new(config), server_name, answers }));
        Ok(Loaded { tls, warnings })
    }

    /// A connection to a server whose address has this host.
    ///
    /// # Errors
    /// [`TlsFault::WrongName`] where no certificate could be valid for the host.
    pub fn connect(&self, host: &str) -> Result<Channel, TlsFault> {
        let name = match &self.0.server_name {
            Some(name) => name.clone(),
            None => parse_name(host).ok_or(TlsFault::WrongName)?,
        };
        Channel::client(Arc::clone(&self.0.config), name)
    }

    /// Whether a server has ever asked for the certificate that there is none of.
    pub fn lacks_identity(&self) -> bool {
        self.0.answers.identity.is_none() && self.0.answers.were_asked.load(Ordering::Relaxed)
    }

    /// What a fault of a connection to a server with this host says in logs and
    /// error replies.
    pub fn explain(&self, fault: TlsFault, host: &str) -> String {
        let text = fault.text();
        match fault {
            _ if fault.is_about_name() => match &self.0.server_name {
                Some(name) => format!("{text} {}", name.to_str()),
                None => format!("{text} {host}; should it be another, write server_name"),
            },
            TlsFault::Alert(number) => format!("{text} with alert {number}"),
            _ => text.to_owned(),
        }
    }
}

fn versions(min: MinVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    match min {
        MinVersion::V1_2 => &ALL,
        MinVersion::V1_3 => &ALL[..1],
    }
}

const AUTHORITIES_HINT: &str =
    "give the certificates of the authorities that issued those of the servers";

pub(crate) fn no_authority(path: &Path) -> FileFault {
    FileFault::new(Setting::CaFile, path, "holds no authority", AUTHORITIES_HINT)
}

/// The authorities in a file.
pub(crate) fn authorities_of(
    path: &Path,
    read: ReadFile<'_>,
    warnings: &mut Vec<FileFault>,
) -> Result<Arc<RootCertStore>, FileFault> {
    let setting = Setting::CaFile;
    let certificates = certificates(setting, path, read)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|_| {
            let what = "holds a certificate that cannot be an authority's";
            FileFault::new(setting, path, what, AUTHORITIES_HINT)
        })?;
    }
    // Of many, as in a bundle of the system's, some are always old.
    if let [only] = certificates.as_slice() {
        warnings.extend(time_fault(setting, path, only));
    }
    Ok(Arc::new(roots))
}

fn authorities(
    path: &Path,
    provider: &Arc<CryptoProvider>,
    read: ReadFile<'_>,
    warnings: &mut Vec<FileFault>,
) -> Result<Arc<WebPkiServerVerifier>, FileFault> {
    let roots = authorities_of(path, read, warnings)?;
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|_| no_authority(path))
}

pub(crate) fn own(
    identity: &Identity,
    provider: &CryptoProvider,
    read: ReadFile<'_>,
    warnings: &mut Vec<FileFault>,
) -> Result<Arc<CertifiedKey>, Vec<FileFault>> {
    let Identity { cert_file, key_file } = identity;
    let (chain, key) = match (certificates(Setting::CertFile, cert_file, read), key(key_file, read))
    {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return Err([chain.err(), key.err()].into_iter().flatten().collect()),
    };
    warnings.extend(time_fault(Setting::CertFile, cert_file, &chain[0]));
    CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(|error| {
        vec![match error {
            Error::InconsistentKeys(_) => FileFault::new(
                Setting::KeyFile,
                key_file,
                format_args!("is not the key of the certificate in {}", cert_file.display()),
                "give the key that the certificate was made with",
            ),
            Error::InvalidCertificate(_) => FileFault::new(
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
        }]
    })
}

/// Our certificate for servers that ask, and whether one did.
#[derive(Debug)]
struct Answers {
    identity: Option<Arc<CertifiedKey>>,
    were_asked: AtomicBool,
}

impl ResolvesClientCert for Answers {
    fn resolve(
        &self,
        _authorities: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.were_asked.store(true, Ordering::Relaxed);
        self.identity.clone()
    }

    fn has_certs(&self) -> bool {
        self.identity.is_some()
    }
}

/// Takes any certificate for the server's. That its key is the server's is
/// checked all the same.
#[derive(Debug)]
struct AcceptsAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptsAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
