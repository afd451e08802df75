use crate::files::{
    CRL_HINT, Dated, FileFault, ReadFile, Reading, authorities, own, revoked, versions,
};
use crate::settings::{ClientCertificates, ServerSettings, Setting};
use crate::{Channel, TlsFault, parse_name};
use parking_lot::RwLock;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateRevocationListDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Everything that connections of the clients of a listener share. All clones share one state, and
/// all get what [`ServerTls::replace`] brings.
#[derive(Clone)]
pub struct ServerTls(Arc<RwLock<State>>);

#[derive(Clone)]
struct State {
    config: Arc<ServerConfig>,
    files: Arc<[Dated]>,
}

/// The result of [`ServerTls::load`], with warnings about the files.
#[derive(Debug)]
pub struct LoadedServer {
    /// The state for connections.
    pub tls: ServerTls,
    /// Certificates that are not valid now, or not for long.
    pub warnings: Vec<FileFault>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.0.read().files).finish()
    }
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ServerTls {}

const OF_CLIENTS: &str =
    "give the certificates of the authorities that issued those of the clients";

impl ServerTls {
    /// Reads the files that `settings` name.
    ///
    /// # Errors
    /// Returns everything that is wrong with them.
    pub fn load(
        settings: &ServerSettings,
        read: ReadFile<'_>,
    ) -> Result<LoadedServer, Vec<FileFault>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut reading = Reading::new(read);
        let identities = settings.identities.iter().enumerate();
        let certificates: Vec<_> = identities
            .filter_map(|(index, identity)| own(identity, index, &provider, &mut reading))
            .collect();
        let roots = settings
            .clients
            .authorities()
            .and_then(|path| authorities(path, OF_CLIENTS, &mut reading));
        let lists = settings.crl_file.as_deref().and_then(|path| revoked(path, &mut reading));
        let Reading { mut faults, warnings, dated, .. } = reading;
        if !faults.is_empty() || certificates.is_empty() {
            return Err(faults);
        }
        let verifier =
            roots.map(|roots| verifier(settings, (roots, lists.unwrap_or_default()), &provider));
        let verifier = verifier.transpose().map_err(|fault| {
            faults.push(fault);
            faults
        })?;
        let config = config(settings, certificates, verifier, provider);
        let state = State { config: Arc::new(config), files: Arc::from(dated) };
        Ok(LoadedServer { tls: ServerTls(Arc::new(RwLock::new(state))), warnings })
    }

    /// Makes later connections use the files of `newer`, and resume no earlier session. Existing
    /// connections continue.
    pub fn replace(&self, newer: &ServerTls) {
        let state = newer.0.read().clone();
        *self.0.write() = state;
    }

    /// Returns until when the certificates in the files are valid.
    pub fn files(&self) -> Arc<[Dated]> {
        Arc::clone(&self.0.read().files)
    }

    /// Creates a connection of a client.
    ///
    /// # Errors
    /// Returns an error if no random bytes are available.
    pub fn accept(&self) -> Result<Channel, TlsFault> {
        Channel::server(Arc::clone(&self.0.read().config))
    }
}

fn config(
    settings: &ServerSettings,
    certificates: Vec<Arc<CertifiedKey>>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(settings.min_version))
        .expect("ring has ciphers for every version");
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Chooser { certificates }));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if let ClientCertificates::None = settings.clients {
        // Without random bytes no session can be resumed, and there are no handshakes either.
        if let Ok(ticketer) = rustls::crypto::ring::Ticketer::new() {
            config.ticketer = ticketer;
            config.send_tls13_tickets = 1;
        }
    } else {
        // A resumed session would bring a certificate that is not checked again.
        config.send_tls13_tickets = 0;
    }
    config
}

fn verifier(
    settings: &ServerSettings,
    (roots, lists): (RootCertStore, Vec<CertificateRevocationListDer<'static>>),
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, FileFault> {
    let roots = Arc::new(roots);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let builder = match settings.clients {
        ClientCertificates::Optional(_) => builder.allow_unauthenticated(),
        _ => builder,
    };
    // Intermediate authorities are the responsibility of their operators. An outdated list still
    // counts.
    let builder = builder.with_crls(lists).only_check_end_entity_revocation();
    builder.build().map_err(|_| {
        let path = settings.crl_file.as_deref().unwrap_or(Path::new(""));
        let what = "holds a list that is damaged, or of a kind not supported";
        FileFault::new(Setting::CrlFile, path, what, CRL_HINT)
    })
}

/// Chooses a certificate by the name that the client asks for, or else the first.
#[derive(Debug)]
struct Chooser {
    certificates: Vec<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let [only] = self.certificates.as_slice() {
            return Some(Arc::clone(only));
        }
        let name = hello.server_name().and_then(parse_name);
        let can_sign =
            |one: &&Arc<CertifiedKey>| one.key.choose_scheme(hello.signature_schemes()).is_some();
        let all = || self.certificates.iter().filter(can_sign);
        let is_named =
            |one: &&Arc<CertifiedKey>| name.as_ref().is_some_and(|name| is_for(one, name));
        all().find(is_named).or_else(|| all().next()).cloned()
    }
}

fn is_for(certified: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = certified.end_entity_cert().ok().map(ParsedCertificate::try_from);
    matches!(parsed, Some(Ok(parsed)) if verify_server_name(&parsed, name).is_ok())
}
