//! The keys of the entry by which clients find a listener.

use super::key::{Key, Table, key, ms};
use super::kind::{Absent, Choices, Kind};
use Absent::{Is, Refused, Unset};
use Kind::{Choice, Names, Path, Secret, Text, UserName};

pub(super) const OF_LISTENER: Key = key(
    "register",
    Kind::Table(&REGISTER),
    Unset("no entry"),
    "An entry in etcd or ZooKeeper by which clients find this listener (docs/discovery.md). It is there while the process serves. Its deletion begins before the process drains.",
)
.known_elsewhere_as(&["jodis_name", "jodis_addr", "coordinator_name"]);

pub(crate) static REGISTER: Table = Table {
    header: "register in [[listener]]",
    doc: "The entry `PATH/NAME` with the address of the listener as JSON, as clients of jodis read it. Nothing on a request's path waits for the registry. A reload changes entries as it changes listeners.",
    keys: &[
        key(
            "kind",
            Choice(&Choices { now: &["etcd", "zookeeper"], later: &[] }),
            Refused,
            "The registry: keys of etcd, or ephemeral nodes of ZooKeeper.",
        ),
        key(
            "endpoints",
            Names,
            Refused,
            "Its servers as `HOST:PORT`, such as `[\"192.0.2.1:2181\", \"192.0.2.2:2181\"]`: at most 16. The next one is asked if one does not answer.",
        ),
        key(
            "path",
            Text,
            Refused,
            "The node, or the beginning of the key, below which the entry is: `\"/jodis/PRODUCT\"` for clients of jodis. Nodes that are missing are made.",
        ),
        key(
            "name",
            Text,
            Unset("`proxy-` and the address"),
            "The name of the entry. It must be unique below `path`.",
        ),
        key(
            "address",
            Text,
            Unset("the address of `bind`, if clients can connect to that"),
            "The address that clients connect to, as `HOST:PORT`.",
        ),
        key(
            "lease",
            Kind::Duration { min: ms(2000), max: ms(600_000) },
            Is("\"20s\""),
            "How long the entry stays if the process is killed or cut off. ZooKeeper has bounds of its own.",
        ),
        key(
            "user",
            UserName,
            Unset("no credentials"),
            "The user of etcd, or of the scheme `digest` of ZooKeeper. With it, everybody may read the node in ZooKeeper, and nobody else may change it.",
        ),
        key("password", Secret, Unset("no credentials"), "Its password."),
        key("password_file", Path, Unset("no credentials"), "A file that holds that password."),
        key(
            "password_env",
            Kind::Variable,
            Unset("no credentials"),
            "The variable of the environment that holds that password.",
        ),
        key(
            "ca_file",
            Path,
            Unset("connections have no TLS"),
            "Authorities of the servers' certificates, in PEM. With it connections are TLS.",
        ),
    ],
};
