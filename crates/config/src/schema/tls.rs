use super::key::{Key, Table, key};
use super::kind::{Absent, Choices, Kind};
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Path};

pub(crate) static TLS: Table = Table {
    header: "tls in [pool.NAME]",
    doc: "`tls = { ca_file = \"/etc/keyway/ca.pem\" }` in a pool of servers, or a table `[pool.NAME.tls]`: every connection to its servers is encrypted, and none is made to a server without the right certificate (docs/tls.md). `sentinel_tls` has the same keys.",
    keys: &[
        key(
            "ca_file",
            Path,
            Unset("the file is refused"),
            "Certificates, in PEM, of the authorities that issue those of the servers. The system's own are in `/etc/ssl/certs/ca-certificates.crt` on Debian.",
        )
        .known_elsewhere_as(&["tls_ca_cert_file", "tls-ca-cert-file", "cacert", "ca", "ssl_ca_cert"]),
        key(
            "server_name",
            Kind::HostName,
            Unset("the host of each server's address"),
            "The host name or IP address that every server's certificate must be valid for; a name is sent to the server too (SNI). For servers that are found by address and have names in their certificates.",
        )
        .known_elsewhere_as(&["sni", "tls_server_name", "hostname"]),
        key(
            "cert_file",
            Path,
            Unset("none is shown"),
            "Our certificate, in PEM, for servers that ask for one, with those between it and its authority behind it.",
        )
        .known_elsewhere_as(&["tls_cert_file", "tls-cert-file", "cert", "ssl_cert"]),
        key(
            "key_file",
            Path,
            Unset("none"),
            "The private key of that certificate, in PEM, without a passphrase.",
        )
        .known_elsewhere_as(&["tls_key_file", "tls-key-file", "key", "ssl_key"]),
        key(
            "min_version",
            Choice(&Choices { now: &["1.2", "1.3"], later: &[] }),
            Is("\"1.2\""),
            "The oldest version of TLS that is spoken.",
        )
        .known_elsewhere_as(&["tls_protocols", "tls-protocols"]),
        key(
            "dangerously_accept_any_certificate",
            Bool,
            Is("false"),
            "Connect to whoever answers, whatever its certificate: bytes are encrypted, but anybody between Keyway and the servers can read and change all of them. In place of `ca_file`; every start warns of it.",
        )
        .known_elsewhere_as(&["insecure", "skip_verify", "insecure_skip_verify"]),
    ],
};

const CERT_FILE: &[&str] = &["tls_cert_file", "tls-cert-file", "cert", "ssl_certificate"];
const KEY_FILE: &[&str] = &["tls_key_file", "tls-key-file", "key", "ssl_certificate_key"];

pub(crate) static LISTENER_TLS: Table = Table {
    header: "tls in [[listener]]",
    doc: "`tls = { cert_file = \"/etc/keyway/server.pem\", key_file = \"/etc/keyway/server.key\" }` in a `tcp://` listener, or a table `[listener.tls]` below it: its clients speak TLS, and nothing else (docs/tls.md). The files are read again on SIGHUP.",
    keys: &[
        key(
            "cert_file",
            Path,
            Refused,
            "Our certificate, in PEM, with those between it and its authority behind it.",
        )
        .known_elsewhere_as(CERT_FILE),
        key(
            "key_file",
            Path,
            Refused,
            "The private key of that certificate, in PEM, without a passphrase.",
        )
        .known_elsewhere_as(KEY_FILE),
        key(
            "certificates",
            Kind::List(&LISTENER_CERTIFICATES),
            Unset("none"),
            "Further certificates: a client that asks for a host name (SNI) is shown the first that is for this name, beginning with `cert_file`, and any other client `cert_file`.",
        ),
        key(
            "client_certificates",
            Choice(&Choices { now: &["none", "optional", "required"], later: &[] }),
            Unset("`\"required\"` with `ca_file`, else `\"none\"`"),
            "Whether clients are asked for a certificate. `\"optional\"`: one that is shown must be right, and none need be.",
        )
        .known_elsewhere_as(&["tls_auth_clients", "tls-auth-clients", "ssl_verify_client", "client_auth"]),
        key(
            "ca_file",
            Path,
            Unset("clients are not asked for a certificate"),
            "Certificates, in PEM, of the authorities that issue those of the clients.",
        )
        .known_elsewhere_as(&["tls_ca_cert_file", "tls-ca-cert-file", "cacert", "ca", "ssl_ca_cert", "client_ca"]),
        key(
            "crl_file",
            Path,
            Unset("nothing was revoked"),
            "Lists, in PEM, of what the authorities of `ca_file` have revoked (CRL). A client whose certificate is on one, or of whose authority there is none, is refused. Read again on SIGHUP; a list counts until then, however old it is.",
        )
        .known_elsewhere_as(&["tls_crl_file", "ssl_crl", "crl"]),
        key(
            "min_version",
            Choice(&Choices { now: &["1.2", "1.3"], later: &[] }),
            Is("\"1.2\""),
            "The oldest version of TLS that is spoken.",
        )
        .known_elsewhere_as(&["tls_protocols", "tls-protocols"]),
    ],
};

pub(crate) static ADMIN_TLS: Table = Table {
    header: "admin_tls in [server]",
    doc: "`admin_tls = { cert_file = \"/etc/keyway/admin.pem\", key_file = \"/etc/keyway/admin.key\" }` in `[server]`: `/metrics`, health and the admin API are served by HTTPS only, with the keys that `tls` of a listener has. With a `ca_file` who asks has to show a certificate of these authorities, and a token only where there is one.",
    keys: LISTENER_TLS.keys,
};

pub(crate) static LISTENER_CERTIFICATES: Table = Table {
    header: "[[listener.tls.certificates]]",
    doc: "A further certificate of a listener, up to 100.",
    keys: &[
        key("cert_file", Path, Refused, "As in `tls`.").known_elsewhere_as(CERT_FILE),
        key("key_file", Path, Refused, "As in `tls`.").known_elsewhere_as(KEY_FILE),
    ],
};

/// The key for the admin address.
pub(super) const OF_ADMIN: Key = key(
    "admin_tls",
    Kind::Table(&ADMIN_TLS),
    Unset("it speaks HTTP"),
    "Has the admin address speak HTTPS.",
);

/// The key for a listener.
pub(super) const OF_LISTENER: Key = key(
    "tls",
    Kind::Table(&LISTENER_TLS),
    Unset("clients send bytes as they are"),
    "Has clients encrypt their connections.",
)
.known_elsewhere_as(&["ssl", "use_tls", "secure"]);

/// The key for a pool.
pub(super) const OF_POOL: Key = key(
    "tls",
    Kind::Table(&TLS),
    Unset("bytes go to the servers as they are"),
    "Encrypts the connections to the servers.",
)
.known_elsewhere_as(&["ssl", "use_tls", "secure"]);

/// The key for a store that is a replica.
pub(super) const OF_REPLICA: Key = key(
    "replica_tls",
    Kind::Table(&TLS),
    Unset("the link to a primary is not encrypted"),
    "Encrypts the link to the primary, with the keys that `tls` has. `replica_of` begins with `rediss://` then.",
)
.known_elsewhere_as(&["tls-replication", "tls_replication"]);

/// The key for a pool's sentinels.
pub(super) const OF_SENTINELS: Key = key(
    "sentinel_tls",
    Kind::Table(&TLS),
    Unset("as `tls` says, if that is given"),
    "Encrypts the connections to sentinels, with the keys that `tls` has. `\"off\"`: they are asked without, while the servers are not.",
)
.or_word("off");
