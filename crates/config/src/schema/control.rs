//! The keys of a process that control manages.

use super::key::{Table, key};
use super::kind::{Absent, Kind};
use Absent::{Refused, Unset};
use Kind::{Names, Path, PoolNames, UserName};

pub(crate) static CONTROL: Table = Table {
    header: "[control]",
    doc: "The process joins a control plane (docs/control.md): it gets the pools named in `pools` from there, keeps them in `state_file`, and serves on by that file while no control node answers. Without the table the process is on its own. A change of this table needs a restart.",
    keys: &[
        key(
            "cluster",
            UserName,
            Refused,
            "The name of the cluster: that of the control nodes. Documents of another cluster are refused.",
        ),
        key(
            "id",
            UserName,
            Refused,
            "The id of this process on the bus: `\"ZONE.proxy.GROUP.INSTANCE\"`, such as `\"z1.proxy.0.3\"`. No other process has it.",
        ),
        key(
            "urls",
            Names,
            Refused,
            "Addresses of control nodes on the bus, such as `[\"tcp://192.0.2.1:6390\", \"tcp://192.0.2.2:6390\"]`: at most eight, one for each node. Two of them are connected at a time.",
        ),
        key(
            "token_file",
            Path,
            Unset("`tls` is needed"),
            "A file with the token of the bus in its first line: 16 to 1024 bytes.",
        ),
        key(
            "tls",
            Kind::Table(&CONTROL_TLS),
            Unset("connections have no TLS"),
            "TLS with certificates of both sides, for addresses with `tcp://`.",
        ),
        key(
            "state_file",
            Path,
            Refused,
            "Where the process keeps the latest document. The process writes it; its folder must be there.",
        ),
        key(
            "pools",
            PoolNames,
            Unset("none"),
            "Pools of this file that the control plane's document replaces, if it has pools of those names. What this file says of them counts until the first document comes.",
        ),
    ],
};

pub(crate) static CONTROL_TLS: Table = Table {
    header: "tls in [control]",
    doc: "As on every node of the bus ([bus.md](bus.md#certificates)). The files are read at the start.",
    keys: &[
        key("ca_file", Path, Refused, "Authorities of the bus's certificates, in PEM."),
        key(
            "cert_file",
            Path,
            Refused,
            "The certificate of this process, in PEM, made out to `ID.bus.keyway`.",
        ),
        key("key_file", Path, Refused, "Its private key, in PEM."),
    ],
};
