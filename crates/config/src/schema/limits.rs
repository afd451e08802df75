//! The bounds on what clients may use.

use super::key::{GIB, KIB, MIB, TIB, Table, hours, key, ms};
use super::kind::{Absent, Kind};
use Absent::Is;
use Kind::{Count, Size};

pub(crate) static LIMITS: Table = Table {
    header: "[limits]",
    doc: "Every bound on what a client or a backend can make Keyway hold. The whole table may be left out; the defaults are those of Redis where Redis has one.",
    keys: &[
        key(
            "clients_max",
            Count { min: 1, max: 1_000_000 },
            Is("100000"),
            "Clients connected at once, over all workers; one more is refused with an error. Each costs a file descriptor and under 1 KiB.",
        )
        .known_elsewhere_as(&["maxclients", "max_clients", "max_connections", "client_connections"]),
        key(
            "bulk_len_max",
            Size { min: KIB, max: GIB },
            Is("\"512MiB\""),
            "Longest argument of a request.",
        )
        .known_elsewhere_as(&["proto_max_bulk_len", "proto-max-bulk-len"]),
        key(
            "request_args_max",
            Count { min: 64, max: 1 << 24 },
            Is("1048576"),
            "Most arguments of one request.",
        ),
        key(
            "request_len_max",
            Size { min: KIB, max: 2 * GIB },
            Is("\"576MiB\""),
            "Longest whole request; at least `bulk_len_max`.",
        ),
        key(
            "inline_len_max",
            Size { min: 64, max: 16 * MIB },
            Is("\"64KiB\""),
            "Longest request line without RESP framing, as typed into telnet.",
        ),
        key(
            "reply_len_max",
            Size { min: KIB, max: 3 * GIB },
            Is("\"1GiB\""),
            "Longest reply taken from a backend; a longer one closes that connection. Below 64KiB replies to INFO, KEYS and SCAN may not fit.",
        ),
        key(
            "reply_depth_max",
            Count { min: 2, max: 100_000 },
            Is("10000"),
            "Deepest nesting of arrays taken from a backend; a deeper one closes that connection. A script can return 7,995 levels.",
        ),
        key(
            "failed_logins_max",
            Count { min: 0, max: 1000 },
            Is("10"),
            "Logins of one user from one address (of IPv6, from one /64) that may fail one after the other. Those behind them are refused without a look at the password, and one more is looked at each second. 0 looks at all.",
        ),
        key(
            "monitor_every",
            Count { min: 0, max: 1_000_000 },
            Is("1"),
            "MONITOR shows one in this many requests, chosen by chance: all with 1. With 0 MONITOR is refused. A monitor with more than 1MiB unread misses lines and is told how many.",
        ),
        key(
            "hot_keys_every",
            Count { min: 0, max: 1_000_000 },
            Is("200"),
            "One request in this many, chosen by chance, is looked at for the keys that are asked for most, which the admin API, `keyway ctl hot-keys`, `keyway top` and HOTKEYS tell. Smaller is more exact and costs more. 0 turns it off.",
        ),
        key(
            "big_values_from",
            Size { min: 0, max: GIB },
            Is("\"64KiB\""),
            "Requests and replies of so many bytes or more are looked at for the keys with the largest values, which are told of beside the hot ones. 0B turns it off.",
        ),
        key(
            "session_in_flight_max",
            Count { min: 1, max: 1 << 20 },
            Is("1024"),
            "Requests of one client in flight before no more are read from it. Smaller slows deep pipelines; larger lets one client hold more memory.",
        ),
        key(
            "session_output_len_soft",
            Size { min: 4 * KIB, max: GIB },
            Is("\"1MiB\""),
            "Replies a client has not read above which no more of its requests are read.",
        ),
        key(
            "session_output_len_hard",
            Size { min: 64 * KIB, max: TIB },
            Is("\"1GiB\""),
            "Replies a client has not read above which it is disconnected; at least `session_output_len_soft`.",
        )
        .known_elsewhere_as(&["client_output_buffer_limit"]),
        key(
            "link_in_flight_max",
            Count { min: 16, max: 1 << 24 },
            Is("65536"),
            "Requests queued on one connection to a backend before clients that need it are left unread.",
        ),
        key(
            "link_output_len_max",
            Size { min: 64 * KIB, max: 3 * GIB },
            Is("\"16MiB\""),
            "Unsent bytes on one connection to a backend before clients that need it are left unread.",
        ),
        key(
            "transactions_len_max",
            Size { min: 64 * KIB, max: TIB },
            Is("\"256MiB\""),
            "Commands of all clients that wait for EXEC, together. One more is answered with `-OOM`, and the EXEC of its transaction with `-EXECABORT`. Those of one client may come to half of `link_output_len_max`.",
        ),
        key(
            "read_len_per_turn",
            Size { min: 4 * KIB, max: 64 * MIB },
            Is("\"256KiB\""),
            "Bytes read from one connection before the others get their turn.",
        ),
        key(
            "pubsub_output_len_hard",
            Size { min: 64 * KIB, max: TIB },
            Is("\"32MiB\""),
            "Messages a subscriber has not read above which it is disconnected (the hard limit of Redis's `client-output-buffer-limit pubsub`).",
        )
        .or_word("off"),
        key(
            "pubsub_output_len_soft",
            Size { min: 4 * KIB, max: TIB },
            Is("\"8MiB\""),
            "Messages a subscriber has not read above which it is disconnected once it has been above for `pubsub_output_soft_for`.",
        )
        .or_word("off"),
        key(
            "pubsub_output_soft_for",
            Kind::Duration { min: ms(1000), max: hours(24) },
            Is("\"60s\""),
            "How long a subscriber may stay above `pubsub_output_len_soft`; whole seconds count.",
        ),
        key(
            "tracking_keys_max",
            Count { min: 1, max: 1 << 28 },
            Is("1000000"),
            "Keys of one store that clients with CLIENT TRACKING have read and are to be told of, and 256 bytes for each on the average: names longer than 100 bytes and more than two readers make it fewer. Above it some are told that a key has changed when it has not (Redis's `tracking-table-max-keys`).",
        )
        .known_elsewhere_as(&["tracking-table-max-keys", "tracking_table_max_keys"]),
    ],
};
