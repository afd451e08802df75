//! The keys of a process that control manages.

use super::key::{Table, key, ms};
use super::kind::{Absent, Choices, Kind};
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Names, Path, PoolNames, UserName};

pub(crate) static CONTROL: Table = Table {
    header: "[control]",
    doc: "The process joins a control plane (docs/control.md): it gets the pools named in `pools` from there, and users and limits if `users` and `limits` say so. It keeps them in `state_file`, and serves on by that file while no control node answers. Without the table the process is on its own. A change of this table needs a restart.",
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
            Unset("`coordinator` is needed"),
            "Addresses of control nodes on the bus, such as `[\"tcp://192.0.2.1:6390\", \"tcp://192.0.2.2:6390\"]`: at most eight, one for each node. Two of them are connected at a time. With `coordinator`, the control node of this process comes first and needs no address.",
        ),
        key(
            "coordinator",
            Kind::Table(&CONTROL_COORDINATOR),
            Unset("no control node runs in this process"),
            "The process is a control node too, by this coordinator: one process on one host has all of it. `keyway ctl` reaches its fleet at the admin address of `[server]`.",
        ),
        key(
            "node",
            UserName,
            Unset("that of this process with `control` in place of its role"),
            "With `coordinator`: the id of the control node on the bus, such as `\"z1.control.0.3\"`.",
        ),
        key(
            "listen",
            Names,
            Unset("no other process comes to it"),
            "With `coordinator`: addresses at which other proxies and control nodes reach the control node of this process, such as `[\"tcp://127.0.0.1:6390\"]`: at most three. They need `token_file`.",
        ),
        key(
            "token_file",
            Path,
            Unset("`tls` or `coordinator` is needed"),
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
            "host",
            Kind::HostName,
            Unset("listeners at 0.0.0.0 and [::] are not told"),
            "The host under which clients reach this process, such as `\"192.0.2.7\"`: what the control plane tells clients of listeners at 0.0.0.0 and [::] (docs/discovery.md).",
        ),
        key(
            "pools",
            PoolNames,
            Unset("none"),
            "Pools of this file that the control plane's document replaces, if it has pools of those names. What this file says of them counts until the first document comes.",
        ),
        key(
            "users",
            Bool,
            Is("false"),
            "The users of the control plane's document replace all `[[user]]` tables of this file, if the document has any. Until then, and whenever a later document has none, those of this file count.",
        ),
        key(
            "limits",
            Bool,
            Is("false"),
            "`[limits]` of the control plane's document replaces that of this file as a whole, if the document has it. A limit that the document leaves out has its default then.",
        ),
    ],
};

pub(crate) static CONTROL_COORDINATOR: Table = Table {
    header: "coordinator in [control]",
    doc: "As in the file of a control node ([control.md](control.md#the-file-of-a-control-node)). Control nodes over etcd or ZooKeeper are processes of their own.",
    keys: &[
        key(
            "kind",
            Choice(&Choices { now: &["files"], later: &["etcd", "zookeeper"] }),
            Is("\"files\""),
            "The engine: files of this host.",
        ),
        key(
            "dir",
            Path,
            Refused,
            "Their directory, on a disk of this host. It is made if it is not there.",
        ),
        key(
            "lease",
            Kind::Duration { min: ms(1000), max: ms(60_000) },
            Is("\"2s\""),
            "The session of the control node. Another node leads after this time if this process hangs.",
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
