use super::key::{GIB, KIB, Table, hours, key, ms};
use super::kind::{Absent, Choices, Kind};
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Count, Listen, Mode, Path, PoolName, Secret, Servers, Size};

pub(crate) static LISTENER: Table = Table {
    header: "[[listener]]",
    doc: "Where clients connect; at least one, each with its own `[[listener]]` line.",
    keys: &[
        key(
            "bind",
            Listen,
            Refused,
            "`\"tcp://127.0.0.1:6380\"`, `\"tcp://[::1]:6380\"`, `\"unix:///run/keyway.sock\"`, or `\"shm:///run/keyway.shm\"`, a unix socket through which memory is shared (docs/shm.md). 0.0.0.0 is every IPv4 address of the machine. [::] is every address, IPv4 included; if the file has an IPv4 address on the same port as well, [::] is every IPv6 address. Port 0 is any free port.",
        )
        .known_elsewhere_as(&["listen", "address", "addr", "port"]),
        key(
            "protocol",
            Choice(&Choices { now: &["redis", "memcached"], later: &[] }),
            Is("\"redis\""),
            "What clients speak: `\"redis\"`, for pools of any kind but `\"memcached\"`, or `\"memcached\"` (text, meta and binary, told apart by what they send), for `\"store\"`, `\"memcached\"`, and `\"sharded\"`, `\"cluster\"`, `\"replicated\"` and `\"slots\"`, whose servers of Redis 6.2 and later keep what such clients store (docs/memcached.md); and pools that lead to `\"store\"` and `\"memcached\"` pools, or to `\"store\"` pools and such of Redis servers.",
        ),
        key("pool", PoolName, Refused, "The pool that answers: `NAME` of a `[pool.NAME]`."),
        key(
            "backlog",
            Count { min: 1, max: 65_535 },
            Is("1024"),
            "Connections the kernel holds until they are accepted. The kernel lowers it to `net.core.somaxconn`.",
        ),
        key(
            "password",
            Secret,
            Unset("no password, or the pool's `client_password`"),
            "What clients must send with AUTH before anything else; those of memcached with SASL PLAIN, or as the value `USER PASSWORD` of a first set. Any user name will do. Where there are users this is the password of the user `default`, who may do everything, and without it everyone must log in.",
        )
        .known_elsewhere_as(&["requirepass", "auth"]),
        key(
            "password_file",
            Path,
            Unset("no password, or the pool's `client_password`"),
            "A file that holds that password; one newline at its end is ignored.",
        ),
        key(
            "password_env",
            Kind::Variable,
            Unset("no password, or the pool's `client_password`"),
            "The variable of the environment that holds that password.",
        ),
        key(
            "users",
            Kind::Names,
            Unset("every `[[user]]` whose pool speaks this `protocol`"),
            "Which users may log in here, by their names (docs/users.md). `[]` for none: the listener is open, or has its one password.",
        ),
        key(
            "item_len_max",
            Size { min: KIB, max: GIB },
            Unset("1MiB for `protocol = \"memcached\"`"),
            "Longest item that clients of memcached may store, counted as memcached counts for its `-I`: key, value and some 60 bytes. Servers have a bound of their own.",
        )
        .known_elsewhere_as(&["item_size_max", "max_item_size", "value_len_max"]),
        key(
            "mode",
            Mode,
            Unset("as the umask says"),
            "Permission bits of the socket of `unix://` and `shm://`, in octal: `\"0660\"`.",
        )
        .known_elsewhere_as(&["unixsocketperm", "permission", "perm"]),
        key(
            "owner",
            Count { min: 0, max: 4_294_967_294 },
            Unset("the user that Keyway runs as"),
            "The user, by its number, to whom the socket of `unix://` or `shm://` is given before anybody can connect to it. Needs the right to give files away (`CAP_CHOWN`).",
        ),
        key(
            "group",
            Count { min: 0, max: 4_294_967_294 },
            Unset("the group that Keyway runs as"),
            "The same for its group; without any right that may be one which Keyway's user is in. With `mode = \"0660\"` its members may connect.",
        ),
        key(
            "allow_uids",
            Kind::Uids,
            Unset("root, and the user that Keyway runs as"),
            "Further users, by their numbers, whose processes may share memory at an `shm://` listener. Others that may open its socket are served over that as over `unix://`.",
        ),
        key(
            "ring_max",
            Size { min: 64 * KIB, max: GIB },
            Unset("1MiB for `shm://`"),
            "Largest ring that a client of an `shm://` listener gets in each direction, a power of two or what is next below. It is memory only while something is in it.",
        ),
        key(
            "tcp_keepalive",
            Kind::Duration { min: ms(1000), max: hours(9) },
            Is("\"300s\""),
            "Silence after which the kernel asks whether a client is still there; one that leaves three such questions unanswered, a third of that time apart, is gone. TCP only.",
        )
        .or_word("off")
        .known_elsewhere_as(&["tcpkeepalive"]),
        key(
            "cluster_mode",
            Choice(&Choices { now: &["off", "emulate"], later: &[] }),
            Is("\"off\""),
            "`\"emulate\"`: clients of Redis Cluster take Keyway for one. CLUSTER SLOTS, SHARDS, NODES and the like tell of the Keyways of `cluster_announce`, any of which answers for every slot, so that no client is ever redirected (docs/cluster.md). `\"off\"`: cluster support is disabled.",
        )
        .known_elsewhere_as(&["cluster_enabled", "cluster-enabled"]),
        key(
            "cluster_announce",
            Servers,
            Unset("this listener alone, at the address by which its client has reached it"),
            "`\"HOST:PORT\"` of every Keyway that clients may use instead, this one among them, in the same order everywhere: the slots are shared out over them evenly, and those of one that does not answer over the others. For `cluster_mode = \"emulate\"`.",
        )
        .known_elsewhere_as(&["cluster_announce_ip", "cluster-announce-ip", "announce"]),
        key(
            "read_from",
            Kind::ReadFrom,
            Unset("the pool's `read_from`"),
            "Which servers answer what clients of this listener only read, in place of what its pool says, in the same words; for pools of kind `\"cluster\"`, `\"replicated\"` and `\"slots\"`. So one port can read from replicas and another from primaries.",
        )
        .known_elsewhere_as(&["readonly"]),
        super::register::OF_LISTENER,
        super::tls::OF_LISTENER,
        key(
            "proxy_protocol",
            Bool,
            Is("false"),
            "Clients come through a proxy (HAProxy, a cloud's load balancer) that says whose connection it is, by the PROXY protocol, version 1 or 2: that address is what CLIENT LIST, logs, `allow` and `deny` go by. A connection that does not begin so is refused. Not for `shm://`.",
        )
        .known_elsewhere_as(&["accept_proxy", "accept-proxy", "send_proxy"]),
        key(
            "proxy_from",
            Kind::Networks,
            Unset("whoever connects is believed"),
            "The proxies' addresses, `[\"192.0.2.5\", \"198.51.100.0/24\"]`, for `proxy_protocol`: anybody else's connections are refused, who could say they are whose they like.",
        )
        .known_elsewhere_as(&["trusted_proxies", "set_real_ip_from"]),
        key(
            "allow",
            Kind::Networks,
            Unset("all addresses"),
            "Whose connections are taken: addresses and ranges, `[\"192.0.2.0/24\", \"::1\"]`. Others are closed before anything is read. For `tcp://`, and `unix://` with `proxy_protocol`.",
        )
        .known_elsewhere_as(&["allow_from", "allowlist", "whitelist"]),
        key(
            "deny",
            Kind::Networks,
            Unset("none"),
            "Whose are not, even though `allow` has them.",
        )
        .known_elsewhere_as(&["deny_from", "denylist", "blacklist"]),
        key(
            "handshake_timeout",
            Kind::Duration { min: ms(10), max: hours(1) },
            Unset("5s with `tls` or `proxy_protocol`"),
            "How long a client may take to say whose connection it is and to be secured.",
        )
        .known_elsewhere_as(&["ssl_handshake_timeout", "proxy_protocol_timeout"]),
        key(
            "handshakes_max",
            Count { min: 1, max: 65_536 },
            Unset("1024 with `tls` or `proxy_protocol`"),
            "Clients that are about to, in each worker. When one more comes, the one that has kept us waiting longest is closed.",
        ),
        key(
            "clients_max",
            Count { min: 1, max: 1_000_000 },
            Unset("`clients_max` in `[limits]`"),
            "Clients of this listener connected at once, over all workers; one more is refused with an error.",
        )
        .known_elsewhere_as(&["maxclients", "max_clients", "max_connections"]),
        key(
            "idle_timeout",
            Kind::Duration { min: ms(1000), max: hours(24 * 365) },
            Is("\"off\""),
            "A client that has asked nothing for so long is closed (Redis's `timeout`). Subscribers, monitors, clients in blocking commands and clients that wait for a reply may stay. A client that has closed its side, or reads no replies, may not.",
        )
        .or_word("off")
        .known_elsewhere_as(&["timeout", "client_timeout"]),
    ],
};
