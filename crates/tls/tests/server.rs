//! Tests our side of connections of clients: the certificate that they see, which of theirs are
//! accepted, and what changes when files are read again.

use keyway_testkit::certificates::{Authority, CertificateFiles, Span};
use keyway_tls::{
    Channel, ClientCertificates, ClientSettings, ClientTls, Identity, MinVersion, ServerSettings,
    ServerTls, Setting, TlsFault, Trust,
};
use std::path::Path;

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

fn identity(files: &CertificateFiles, name: &str) -> Identity {
    Identity {
        cert_file: files.path(&format!("{name}.pem")),
        key_file: files.path(&format!("{name}.key")),
    }
}

fn settings(
    files: &CertificateFiles,
    names: &[&str],
    clients: ClientCertificates,
) -> ServerSettings {
    let identities = names.iter().map(|name| identity(files, name)).collect();
    ServerSettings { identities, clients, crl_file: None, min_version: MinVersion::V1_2 }
}

fn server(files: &CertificateFiles, names: &[&str], clients: ClientCertificates) -> ServerTls {
    ServerTls::load(&settings(files, names, clients), &read).expect("the files are right").tls
}

fn client(files: &CertificateFiles, name: &str, identity_of: Option<&str>) -> ClientTls {
    let settings = ClientSettings {
        trust: Trust::Authorities(files.path("ca.pem")),
        server_name: Some(name.to_owned()),
        identity: identity_of.map(|name| identity(files, name)),
        min_version: MinVersion::V1_2,
    };
    ClientTls::load(&settings, &read).expect("the files are right").tls
}

/// Moves bytes back and forth until neither side sends more. Returns the fault of each side.
fn shake(client: &mut Channel, server: &mut Channel) -> (Option<TlsFault>, Option<TlsFault>) {
    let (mut of_client, mut of_server, mut plain) = (None, None, Vec::new());
    for _ in 0..8 {
        let mut said = Vec::new();
        client.take_output(&mut said);
        of_server = of_server.or(server.handle_input(&said, &mut plain).err());
        said.clear();
        server.take_output(&mut said);
        of_client = of_client.or(client.handle_input(&said, &mut plain).err());
    }
    (of_client, of_server)
}

fn outcome(client: &ClientTls, server: &ServerTls) -> (Option<TlsFault>, Option<TlsFault>) {
    let mut ours = server.accept().unwrap();
    let mut theirs = client.connect("127.0.0.1").unwrap();
    let faults = shake(&mut theirs, &mut ours);
    if faults == (None, None) {
        assert!(!ours.is_handshaking() && !theirs.is_handshaking());
        assert_eq!(theirs.encrypt(b"PING"), 4);
        let (mut said, mut plain) = (Vec::new(), Vec::new());
        theirs.take_output(&mut said);
        ours.handle_input(&said, &mut plain).unwrap();
        assert_eq!(plain, b"PING");
    }
    faults
}

#[test]
fn a_client_sees_the_certificate_for_the_name_it_asks_for_or_else_the_first() {
    let files = CertificateFiles::default();
    files.add("one", &files.authority.issue(&["one.example"]));
    files.add("two", &files.authority.issue(&["two.example", "*.many.example"]));
    let server = server(&files, &["one", "two"], ClientCertificates::None);
    for name in ["one.example", "two.example", "x.many.example"] {
        assert_eq!(outcome(&client(&files, name, None), &server), (None, None), "{name}");
    }
    let (theirs, _) = outcome(&client(&files, "three.example", None), &server);
    assert_eq!(theirs, Some(TlsFault::WrongName));
}

#[test]
fn certificates_of_clients_are_demanded_asked_for_or_not() {
    let files = CertificateFiles::default();
    files.add("strange", &Authority::new("another").issue(&["client.example"]));
    let issue = |span| files.authority.issue_for(&["client.example"], span);
    files.add("expired", &issue(Span::Expired));
    files.add("future", &issue(Span::Future));
    let ca = files.path("ca.pem");
    let shown = |clients: &ClientCertificates, name: Option<&str>| {
        let server = server(&files, &["server"], clients.clone());
        outcome(&client(&files, "127.0.0.1", name), &server).1
    };
    let required = ClientCertificates::Required(ca.clone());
    let optional = ClientCertificates::Optional(ca);
    let none = ClientCertificates::None;
    for (name, fault) in [
        (Some("client"), None),
        (Some("strange"), Some(TlsFault::UnknownIssuer)),
        (Some("expired"), Some(TlsFault::Expired)),
        (Some("future"), Some(TlsFault::NotYetValid)),
    ] {
        assert_eq!(shown(&required, name), fault, "{name:?}");
        assert_eq!(shown(&optional, name), fault, "{name:?}");
        assert_eq!(shown(&none, name), None, "{name:?}");
    }
    assert_eq!(shown(&required, None), Some(TlsFault::NoCertificate));
    assert_eq!(shown(&optional, None), None);
}

#[test]
fn a_certificate_that_was_revoked_counts_no_longer() {
    let files = CertificateFiles::default();
    let lost = files.authority.issue_numbered(&["client.example"], 77);
    files.add("lost", &lost);
    files.add("kept", &files.authority.issue_numbered(&["client.example"], 78));
    let ca = files.path("ca.pem");
    let with = |text: &str, clients: ClientCertificates| {
        let crl_file = Some(files.write("list.pem", text));
        ServerTls::load(
            &ServerSettings { crl_file, ..settings(&files, &["server"], clients) },
            &read,
        )
    };
    let shown = |server: &ServerTls, name| outcome(&client(&files, "127.0.0.1", name), server).1;
    for clients in
        [ClientCertificates::Required(ca.clone()), ClientCertificates::Optional(ca.clone())]
    {
        let server = with(&files.authority.revoke(&[77]), clients.clone()).unwrap().tls;
        assert_eq!(shown(&server, Some("lost")), Some(TlsFault::Revoked));
        assert_eq!(shown(&server, Some("kept")), None);
        // The issuer is not the one of this list.
        let other = with(&Authority::new("another").revoke(&[77]), clients).unwrap().tls;
        assert_eq!(shown(&other, Some("kept")), Some(TlsFault::Revoked));
        server.replace(&other);
        assert_eq!(shown(&server, Some("kept")), Some(TlsFault::Revoked));
    }
    for (text, what) in [
        ("", "holds no list in PEM"),
        (&*lost.certificate, "holds no list in PEM"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "damaged"),
    ] {
        let faults = with(text, ClientCertificates::Required(ca.clone())).unwrap_err();
        assert_eq!((faults.len(), faults[0].setting), (1, Setting::CrlFile), "{text}");
        assert!(faults[0].what.contains(what), "{faults:?}");
    }
}

#[test]
fn the_oldest_version_of_each_side_is_kept_to() {
    use rustls::version::{TLS12, TLS13};
    let files = CertificateFiles::default();
    let authorities = |min_version| ClientSettings {
        trust: Trust::Authorities(files.path("ca.pem")),
        server_name: None,
        identity: None,
        min_version,
    };
    for (ours, theirs, is_well) in [
        (MinVersion::V1_2, &TLS12, true),
        (MinVersion::V1_2, &TLS13, true),
        (MinVersion::V1_3, &TLS12, false),
        (MinVersion::V1_3, &TLS13, true),
    ] {
        let own = settings(&files, &["server"], ClientCertificates::None);
        let own = ServerSettings { min_version: ours, ..own };
        let server = ServerTls::load(&own, &read).unwrap().tls;
        let mut peer = peers::client(&files, theirs);
        let mut channel = server.accept().unwrap();
        let found = peers::shake(&mut channel, &mut peer);
        assert_eq!(found, (!is_well).then_some(TlsFault::NoCommonVersion), "{ours:?}, {theirs:?}");

        let client = ClientTls::load(&authorities(ours), &read).unwrap().tls;
        let mut peer = peers::server(&files, theirs);
        let mut channel = client.connect("127.0.0.1").unwrap();
        let found = peers::shake(&mut channel, &mut peer);
        assert_eq!(found, (!is_well).then_some(TlsFault::NoCommonVersion), "{ours:?}, {theirs:?}");
    }
}

/// Peers that support only one version.
mod peers {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, Connection, RootCertStore, ServerConfig, SupportedProtocolVersion};
    use std::sync::Arc;

    type Version = &'static SupportedProtocolVersion;

    fn certificate(files: &CertificateFiles, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(files.path(name)).unwrap()
    }

    pub fn client(files: &CertificateFiles, version: Version) -> Connection {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(files, "ca.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "127.0.0.1".try_into().unwrap();
        rustls::ClientConnection::new(Arc::new(config), name).unwrap().into()
    }

    pub fn server(files: &CertificateFiles, version: Version) -> Connection {
        let key = PrivateKeyDer::from_pem_file(files.path("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate(files, "server.pem")], key)
            .unwrap();
        rustls::ServerConnection::new(Arc::new(config)).unwrap().into()
    }

    /// Returns our side's fault, once neither side sends more.
    pub fn shake(ours: &mut Channel, peer: &mut Connection) -> Option<TlsFault> {
        let (mut fault, mut plain) = (None, Vec::new());
        for _ in 0..8 {
            let mut said = Vec::new();
            while peer.wants_write() {
                peer.write_tls(&mut said).unwrap();
            }
            fault = fault.or(ours.handle_input(&said, &mut plain).err());
            said.clear();
            ours.take_output(&mut said);
            let mut left = said.as_slice();
            while !left.is_empty() && peer.read_tls(&mut left).is_ok() {
                let _ = peer.process_new_packets();
            }
        }
        assert_eq!(fault.is_none(), !ours.is_handshaking() && !peer.is_handshaking());
        fault
    }
}

#[test]
fn files_read_anew_count_for_connections_from_then_on_and_resume_nothing_of_before() {
    let files = CertificateFiles::default();
    let server_tls = server(&files, &["server"], ClientCertificates::None);
    let old_client = client(&files, "127.0.0.1", None);
    // The second connection resumes the session of the first.
    assert_eq!(outcome(&old_client, &server_tls), (None, None));
    assert_eq!(outcome(&old_client, &server_tls), (None, None));
    let mut standing = (old_client.connect("127.0.0.1").unwrap(), server_tls.accept().unwrap());
    assert_eq!(shake(&mut standing.0, &mut standing.1), (None, None));

    let other = Authority::new("another");
    files.add("server", &other.issue(&["127.0.0.1"]));
    let clone = server_tls.clone();
    server_tls.replace(&server(&files, &["server"], ClientCertificates::None));
    assert_eq!(outcome(&old_client, &clone).0, Some(TlsFault::UnknownIssuer));
    files.write("ca.pem", &other.certificate);
    let clone_of_client = old_client.clone();
    old_client.replace(&client(&files, "127.0.0.1", None));
    assert_eq!(outcome(&clone_of_client, &clone), (None, None));

    // An existing connection continues.
    let (mut said, mut plain) = (Vec::new(), Vec::new());
    standing.0.encrypt(b"still here");
    standing.0.take_output(&mut said);
    standing.1.handle_input(&said, &mut plain).unwrap();
    assert_eq!(plain, b"still here");
}

#[test]
fn what_is_wrong_with_files_is_told_of_the_right_one() {
    let files = CertificateFiles::default();
    files.add("other", &files.authority.issue(&["127.0.0.1"]));
    std::fs::copy(files.path("client.key"), files.path("other.key")).unwrap();
    let wrong = settings(&files, &["server", "other"], ClientCertificates::None);
    let faults = ServerTls::load(&wrong, &read).unwrap_err();
    assert_eq!((faults.len(), faults[0].setting, faults[0].certificate), (1, Setting::KeyFile, 1));
    assert!(faults[0].what.contains("is not the key of the certificate in"), "{faults:?}");

    files.add("other", &files.authority.issue_for(&["127.0.0.1"], Span::Expired));
    let old = settings(&files, &["server", "other"], ClientCertificates::None);
    let loaded = ServerTls::load(&old, &read).unwrap();
    let [warning] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
    assert_eq!((warning.setting, warning.certificate), (Setting::CertFile, 1));
    assert!(warning.what.contains("has expired"), "{warning:?}");
    let dated = loaded.tls.files();
    let paths: Vec<_> = dated.iter().map(|one| one.path.clone()).collect();
    assert_eq!(paths, [files.path("server.pem"), files.path("other.pem")]);
    assert!(dated[0].not_after > dated[1].not_after);
}
