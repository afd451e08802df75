use crate::files::{Dated, FileFault, ReadFile, Reading, authorities, own, versions};
use crate::settings::{ClientSettings, Trust, parse_name};
use crate::{Channel, TlsFault};
use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything that connections to the servers of a pool share: certificates, and sessions that may
/// be resumed. All clones share one state, and all get what [`ClientTls::replace`] brings.
#[derive(Clone)]
pub struct ClientTls(Arc<RwLock<State>>);

#[derive(Clone)]
struct State {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    answers: Arc<Answers>,
    files: Arc<[Dated]>,
}

/// The result of [`ClientTls::load`], with warnings about the files.
#[derive(Debug)]
pub struct Loaded {
    /// The state for connections.
    pub tls: ClientTls,
    /// Certificates that are not valid now.
    pub warnings: Vec<FileFault>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("server_name", &self.0.read().server_name).finish()
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
    /// Returns everything that is wrong with them.
    pub fn load(settings: &ClientSettings, read: ReadFile<'_>) -> Result<Loaded, Vec<FileFault>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut reading = Reading::new(read);
        let verifier = match &settings.trust {
            Trust::Anybody => Some(Arc::new(AcceptsAnybody(Arc::clone(&provider))) as Arc<_>),
            Trust::Authorities(path) => authorities(path, OF_SERVERS, &mut reading)
                .and_then(|roots| verifier(Arc::new(roots), &provider)),
        };
        let identity = settings
            .identity
            .as_ref()
            .and_then(|identity| own(identity, 0, &provider, &mut reading));
        let Reading { faults, warnings, dated, .. } = reading;
        let Some(verifier) = verifier.filter(|_| faults.is_empty()) else { return Err(faults) };
        let answers = Arc::new(Answers { identity, were_asked: AtomicBool::new(false) });
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions(settings.min_version))
            .expect("ring has ciphers for every version")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::clone(&answers) as Arc<dyn ResolvesClientCert>);
        let server_name = settings.server_name.as_deref().and_then(parse_name);
        let state =
            State { config: Arc::new(config), server_name, answers, files: Arc::from(dated) };
        Ok(Loaded { tls: ClientTls(Arc::new(RwLock::new(state))), warnings })
    }

    /// Makes later connections use the files of `newer`, and resume no earlier session. Existing
    /// connections continue.
    pub fn replace(&self, newer: &ClientTls) {
        let state = newer.0.read().clone();
        *self.0.write() = state;
    }

    /// Returns until when the certificates in the files are valid.
    pub fn files(&self) -> Arc<[Dated]> {
        Arc::clone(&self.0.read().files)
    }

    /// Creates a connection to a server whose address has this host.
    ///
    /// # Errors
    /// Returns [`TlsFault::WrongName`] if no certificate can be valid for the host.
    pub fn connect(&self, host: &str) -> Result<Channel, TlsFault> {
        let state = self.0.read();
        let name = match &state.server_name {
            Some(name) => name.clone(),
            None => parse_name(host).ok_or(TlsFault::WrongName)?,
        };
        Channel::client(Arc::clone(&state.config), name)
    }

    /// Returns whether a server has ever asked for a certificate although none is configured.
    pub fn lacks_identity(&self) -> bool {
        let answers = &self.0.read().answers;
        answers.identity.is_none() && answers.were_asked.load(Ordering::Relaxed)
    }

    /// Returns the text for a fault of a connection to a server with this host, for logs and error
    /// replies.
    pub fn explain(&self, fault: TlsFault, host: &str) -> String {
        let text = fault.text();
        match fault {
            _ if fault.is_about_name() => match &self.0.read().server_name {
                Some(name) => format!("{text} {}", name.to_str()),
                None => format!("{text} {host}; should it be another, write server_name"),
            },
            TlsFault::Alert(number) => format!("{text} with alert {number}"),
            _ => text.to_owned(),
        }
    }
}

const OF_SERVERS: &str =
    "give the certificates of the authorities that issued those of the servers";

fn verifier(
    roots: Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Option<Arc<dyn ServerCertVerifier>> {
    let builder = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
    builder.build().ok().map(|verifier| verifier as Arc<dyn ServerCertVerifier>)
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

/// Accepts any certificate of the server. It is still checked that the server has the key of the
/// certificate.
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
