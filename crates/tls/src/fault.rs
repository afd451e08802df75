use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Why a connection is not secure. It is small and `Copy`, because it is passed through the data
/// plane. It becomes a text where it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// The received bytes are not TLS.
    NotTls,
    /// The peer closed the connection during the handshake.
    Closed,
    /// The peer closed the connection before it sent anything, after it asked for a certificate
    /// which we do not have.
    NoIdentity,
    /// No trusted authority has issued the certificate.
    UnknownIssuer,
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate was revoked, or no list says that it was not.
    Revoked,
    /// The certificate belongs to another server.
    WrongName,
    /// The certificate has no alternative names or addresses. Its subject name does not count.
    Nameless,
    /// The certificate is that of an authority.
    IsAuthority,
    /// The certificate is not for servers.
    WrongPurpose,
    /// Something else is wrong with the certificate.
    BadCertificate,
    /// There is no certificate, although one is required.
    NoCertificate,
    /// The two sides have no version in common.
    NoCommonVersion,
    /// The two sides have no cipher, or similar, in common.
    NothingInCommon,
    /// The peer refuses our certificate, or requires one.
    RefusedIdentity(Refusal),
    /// The peer knows no server of the name that was sent.
    UnrecognisedName,
    /// The peer ended the connection with an alert of this number.
    Alert(u8),
    /// The received bytes cannot be decrypted, or violate the protocol.
    Broken,
}

/// Why a peer refuses our certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The peer requires a certificate.
    Required,
    /// The peer does not trust its issuer.
    UnknownIssuer,
    /// It has expired.
    Expired,
    /// Another reason.
    Bad,
}

impl TlsFault {
    /// Returns whether the certificate is refused because of its name.
    pub fn is_about_name(self) -> bool {
        matches!(self, TlsFault::WrongName | TlsFault::Nameless)
    }

    /// Returns its text in logs and error replies, for a server.
    pub fn text(self) -> &'static str {
        match self {
            TlsFault::NotTls => "the server does not speak TLS on this port",
            TlsFault::Closed => "the server closed the connection",
            TlsFault::NoIdentity => {
                "the server ended it, having asked for a client certificate: give cert_file and \
                 key_file"
            }
            TlsFault::UnknownIssuer => "its certificate is not issued by an authority of ca_file",
            TlsFault::Expired => "its certificate has expired",
            TlsFault::NotYetValid => "its certificate is not valid yet",
            TlsFault::Revoked => "its certificate was revoked",
            TlsFault::WrongName => "its certificate is not valid for the name",
            TlsFault::Nameless => {
                "its certificate has no subject alternative names, and so is not valid for the name"
            }
            TlsFault::IsAuthority => {
                "its certificate is that of an authority (CA:TRUE); issue one for the server"
            }
            TlsFault::WrongPurpose => "its certificate is not one for servers (extendedKeyUsage)",
            TlsFault::BadCertificate => "its certificate is damaged, or of a kind not supported",
            TlsFault::NoCertificate => "it has shown no certificate",
            TlsFault::NoCommonVersion => {
                "the server and min_version have no version of TLS in common"
            }
            TlsFault::NothingInCommon => "the server supports nothing of what is safe in TLS",
            TlsFault::RefusedIdentity(Refusal::Required) => {
                "the server demands a client certificate: give cert_file and key_file (--cert-file and \
                 --key-file on the command line)"
            }
            TlsFault::RefusedIdentity(Refusal::UnknownIssuer) => {
                "the server does not know the authority that issued the certificate of cert_file"
            }
            TlsFault::RefusedIdentity(Refusal::Expired) => {
                "the server says that the certificate of cert_file has expired"
            }
            TlsFault::RefusedIdentity(Refusal::Bad) => {
                "the server refuses the certificate of cert_file, or wants one"
            }
            TlsFault::UnrecognisedName => "the server does not know the name it was asked for",
            TlsFault::Alert(_) => "the server ended it",
            TlsFault::Broken => "what came from the server is damaged",
        }
    }

    /// Returns its text in logs, for a client.
    pub fn text_of_client(self) -> &'static str {
        match self {
            TlsFault::NotTls => "it does not speak TLS; this listener does not speak anything else",
            TlsFault::Closed => "it closed the connection",
            TlsFault::NoCertificate | TlsFault::NoIdentity => {
                "it has shown no certificate, which client_certificates demands"
            }
            TlsFault::UnknownIssuer => "its certificate is not issued by an authority of ca_file",
            TlsFault::Expired => "its certificate has expired",
            TlsFault::NotYetValid => "its certificate is not valid yet",
            TlsFault::Revoked => {
                "its certificate was revoked, or crl_file has no list of who issued it"
            }
            TlsFault::IsAuthority => {
                "its certificate is that of an authority (CA:TRUE); issue one for the client"
            }
            TlsFault::WrongPurpose => "its certificate is not one for clients (extendedKeyUsage)",
            TlsFault::WrongName | TlsFault::Nameless | TlsFault::BadCertificate => {
                "its certificate is damaged, or of a kind not supported"
            }
            TlsFault::NoCommonVersion => "it and min_version have no version of TLS in common",
            TlsFault::NothingInCommon => "it supports nothing of what is safe in TLS",
            TlsFault::RefusedIdentity(Refusal::UnknownIssuer) => {
                "it does not know the authority that issued the certificate of cert_file"
            }
            TlsFault::RefusedIdentity(Refusal::Expired) => {
                "it says that the certificate of cert_file has expired"
            }
            TlsFault::RefusedIdentity(_) => "it refuses the certificate of cert_file",
            TlsFault::UnrecognisedName => "it says that it does not know the name",
            TlsFault::Alert(_) => "it ended the handshake",
            TlsFault::Broken => "what came from it is damaged",
        }
    }
}

impl From<&Error> for TlsFault {
    #[cold]
    fn from(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => certificate(error),
            Error::NoCertificatesPresented => TlsFault::NoCertificate,
            Error::AlertReceived(alert) => alerted(*alert),
            Error::PeerIncompatible(what) => match what {
                PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerDoesNotSupportTls12Or13 => TlsFault::NoCommonVersion,
                _ => TlsFault::NothingInCommon,
            },
            _ => TlsFault::Broken,
        }
    }
}

fn certificate(error: &CertificateError) -> TlsFault {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsFault::NotYetValid
        }
        CertificateError::Revoked | CertificateError::UnknownRevocationStatus => TlsFault::Revoked,
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            TlsFault::Nameless
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsFault::WrongName
        }
        // A wrong signature comes from another authority with the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFault::UnknownIssuer,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            TlsFault::WrongPurpose
        }
        // rustls has no separate error for that.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            TlsFault::IsAuthority
        }
        _ => TlsFault::BadCertificate,
    }
}

fn alerted(alert: AlertDescription) -> TlsFault {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            TlsFault::RefusedIdentity(Refusal::Required)
        }
        AlertDescription::UnknownCA => TlsFault::RefusedIdentity(Refusal::UnknownIssuer),
        AlertDescription::CertificateExpired => TlsFault::RefusedIdentity(Refusal::Expired),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown => TlsFault::RefusedIdentity(Refusal::Bad),
        AlertDescription::ProtocolVersion => TlsFault::NoCommonVersion,
        AlertDescription::InsufficientSecurity => TlsFault::NothingInCommon,
        AlertDescription::UnrecognisedName => TlsFault::UnrecognisedName,
        other => TlsFault::Alert(other.into()),
    }
}
