use super::key::{Table, key};
use super::kind::{Absent, Choices, Kind};
use Absent::{Refused, Unset};
use Kind::{Choice, HostName, Names, Path, UserName, Variable};

pub(crate) static OPERATOR: Table = Table {
    header: "[[operator]]",
    doc: "Operators of the admin address, each with its own `[[operator]]` line: their names, roles and pools ([operators.md](operators.md)). With any, each request but for health and readiness has to show the token or the certificate of one, also from this machine. `admin_token_file` stays valid beside them: its token is that of an admin called `admin`. The file of a control node has the same table.",
    keys: &[
        key(
            "name",
            UserName,
            Refused,
            "The name in logs and in the audit log: 1 to 64 of `A-Z a-z 0-9 . _ - @`. `admin`, `anonymous` and `control` are taken.",
        ),
        key(
            "role",
            Choice(&Choices { now: &["viewer", "operator", "admin"], later: &[] }),
            Refused,
            "A `viewer` reads. An `operator` also ejects and restores servers, ends scripts, applies documents, steers rollouts and fails over, of its pools. An `admin` does everything.",
        ),
        key(
            "token_file",
            Path,
            Unset("no token but that of `token_env`"),
            "A file that holds the operator's token; one newline at its end is ignored. 16 characters at least.",
        ),
        key(
            "token_env",
            Variable,
            Unset("no token but that of `token_file`"),
            "The variable of the environment that holds it.",
        ),
        key(
            "certificate",
            HostName,
            Unset("a certificate is not enough"),
            "A host name that the operator's certificate is issued to (a DNS name in its subject alternative names), in place of a token. It needs `admin_tls` with a `ca_file`.",
        ),
        key(
            "pools",
            Names,
            Unset("all of them"),
            "Pools that an `operator` may change. They need not be in this file: documents of the control plane may have them.",
        ),
    ],
};
