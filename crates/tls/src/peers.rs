use crate::files::{Dated, FileFault, ReadFile, Reading, authorities, own};
use crate::settings::{Identity, Setting};
use crate::{Channel, TlsFault};
use parking_lot::RwLock;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The certificates of two equal peers: each shows one, of authorities that both know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// The file with the trusted authorities.
    pub ca_file: PathBuf,
    /// The certificate that we show.
    pub identity: Identity,
}

/// Everything that connections between such peers share. Only TLS 1.3 is used, and sessions are
/// never resumed: both certificates are checked each time.
///
/// The name in the certificate is not checked. The accepting side does not know who will connect,
/// and the connecting side may not know either. [`crate::PeerCertificate`] returns it when the peer
/// has shown its certificate.
///
/// All clones share one state, and all get what [`PeerTls::replace`] brings.
#[derive(Clone)]
pub struct PeerTls(Arc<RwLock<State>>);

#[derive(Clone)]
struct State {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    own: CertificateDer<'static>,
    files: Arc<[Dated]>,
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerTls")
    }
}

/// The result of [`PeerTls::load`], with warnings about the files.
#[derive(Debug)]
pub struct LoadedPeer {
    /// The state for connections.
    pub tls: PeerTls,
    /// Certificates that are not valid now.
    pub warnings: Vec<FileFault>,
}

const OF_PEERS: &str = "give the certificates of the authorities that issued those of the servers";

impl PeerTls {
    /// Reads the files that `settings` name.
    ///
    /// # Errors
    /// Returns everything that is wrong with them.
    pub fn load(settings: &PeerSettings, read: ReadFile<'_>) -> Result<LoadedPeer, Vec<FileFault>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut reading = Reading::new(read);
        let roots = authorities(&settings.ca_file, OF_PEERS, &mut reading).map(Arc::new);
        let certified = own(&settings.identity, 0, &provider, &mut reading);
        let Reading { faults, warnings, dated, .. } = reading;
        let (Some(roots), Some(certified)) = (roots, certified) else { return Err(faults) };
        let no_authority =
            || FileFault::new(Setting::CaFile, &settings.ca_file, "holds no authority", OF_PEERS);
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|_| vec![no_authority()])?;
        let own = certified.cert[0].clone().into_owned();
        let ours = Arc::new(SingleCertAndKey::from(certified));
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect("ring has ciphers for it")
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(&ours) as Arc<_>);
        server.send_tls13_tickets = 0;
        let verifier = Arc::new(KnowsAuthority { roots, provider: Arc::clone(&provider) });
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("ring has ciphers for it")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(ours);
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let files = Arc::from(dated);
        let state = State { client: Arc::new(client), server: Arc::new(server), own, files };
        Ok(LoadedPeer { tls: PeerTls(Arc::new(RwLock::new(state))), warnings })
    }

    /// Makes later connections use the files of `newer`. Existing connections continue.
    pub fn replace(&self, newer: &PeerTls) {
        let state = newer.0.read().clone();
        *self.0.write() = state;
    }

    /// Returns until when the certificates in the files are valid.
    pub fn files(&self) -> Arc<[Dated]> {
        Arc::clone(&self.0.read().files)
    }

    /// Returns whether our own certificate is issued to `name`, the name of a host.
    pub fn is_named(&self, name: &str) -> bool {
        has_name(&self.0.read().own, name)
    }

    /// Creates a connection that we have opened.
    ///
    /// # Errors
    /// Returns errors of rustls, which do not occur.
    pub fn dial(&self) -> Result<Channel, TlsFault> {
        // The name is neither sent nor compared with anything.
        let name = ServerName::try_from("peer.invalid").map_err(|_| TlsFault::WrongName)?;
        let connection = ClientConnection::new(Arc::clone(&self.0.read().client), name);
        Ok(Channel::of(connection.map_err(|error| TlsFault::from(&error))?.into()))
    }

    /// Creates a connection that we have accepted.
    ///
    /// # Errors
    /// Returns errors of rustls, which do not occur.
    pub fn accept(&self) -> Result<Channel, TlsFault> {
        let connection = ServerConnection::new(Arc::clone(&self.0.read().server));
        Ok(Channel::of(connection.map_err(|error| TlsFault::from(&error))?.into()))
    }
}

/// Returns whether a certificate is issued to `name`, the name of a host.
pub(crate) fn has_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(certificate), Ok(name)) =
        (ParsedCertificate::try_from(certificate), ServerName::try_from(name))
    else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
}

/// Accepts certificates of our authorities, with any name.
#[derive(Debug)]
struct KnowsAuthority {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for KnowsAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    /// Only TLS 1.2, which is not used, calls this.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
