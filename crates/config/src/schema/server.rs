//! The keys of the process itself.

use super::key::{Table, hours, key, ms, us};
use super::kind::{Absent, Choices, Kind};
use Absent::{Is, Refused, Unset};
use Kind::{Choice, Count, Path, Workers};

pub(crate) static SERVER: Table = Table {
    header: "[server]",
    doc: "The process itself. The whole table may be left out.",
    keys: &[
        key(
            "workers",
            Workers,
            Is("\"auto\""),
            "Threads that serve requests. `\"auto\"` starts one and adds another while all are busy, up to the number of cores: one busy worker costs less CPU per request than two half idle ones. A number fixes the count; `{ min = 2, max = 8 }` bounds it.",
        )
        .or_word("auto")
        .known_elsewhere_as(&["worker_threads", "threads", "io_threads"]),
        key(
            "admin",
            Kind::Admin,
            Is("\"tcp://127.0.0.1:9380\""),
            "Where `/metrics`, `/healthz` and the admin API are served over HTTP (docs/admin.md). TCP only. Other machines reach it only with a token or certificates: an address that is not of the loopback interface is refused without `admin_token_file`, `admin_token_env` or `admin_tls` with a `ca_file`.",
        )
        .or_word("off")
        .known_elsewhere_as(&["stats_port", "stats_addr", "metrics"]),
        key(
            "admin_token_file",
            Path,
            Unset("no token is asked for"),
            "A file that holds the token that requests to the admin address have to show, but for health and readiness; one newline at its end is ignored. 16 characters at least.",
        ),
        key(
            "admin_token_env",
            Kind::Variable,
            Unset("no token is asked for"),
            "The variable of the environment that holds that token.",
        ),
        super::tls::OF_ADMIN,
        key("log", Kind::Table(&LOG), Is("{}"), "What is logged, and how."),
        key(
            "drain_timeout",
            Kind::Duration { min: ms(0), max: hours(1) },
            Is("\"10s\""),
            "How long requests in flight may take to finish after SIGTERM before they are cut off.",
        )
        .known_elsewhere_as(&["shutdown_timeout", "grace_period"]),
        key(
            "drain_notice",
            Kind::Duration { min: ms(0), max: ms(600_000) },
            Is("\"0ms\""),
            "How long clients are still accepted after SIGTERM or `keyway ctl drain`, while `/readyz` says 503 already: for load balancers that take a while to look. A second SIGTERM cuts it short.",
        )
        .known_elsewhere_as(&["drain_delay", "shutdown_delay", "grace_time"]),
        key(
            "upgrade_timeout",
            Kind::Duration { min: ms(100), max: hours(1) },
            Is("\"30s\""),
            "How long a process that is to take this one's place (docs/upgrade.md) may take until it can serve. It is ended then, and this one serves on.",
        ),
        key(
            "upgrade_grace",
            Kind::Duration { min: ms(0), max: hours(24) },
            Is("\"30s\""),
            "How long a process whose place another has taken serves the clients that it has, unless they leave; then it drains as after SIGTERM.",
        )
        .known_elsewhere_as(&["hard_stop_after", "worker_shutdown_timeout"]),
        key(
            "io",
            Choice(&Choices { now: &["epoll", "io_uring", "auto"], later: &[] }),
            Is("\"epoll\""),
            "How workers talk to the kernel. `\"io_uring\"` needs Linux 6.1 and a system that allows it (containers often do not), and Keyway does not start where it cannot have it; `\"auto\"` takes it where it can and epoll elsewhere, worker by worker, and the log says which and why. `--io` overrides it. docs/performance.md has what either costs: it depends on what the machine takes for a system call.",
        )
        .known_elsewhere_as(&["event_loop", "io_backend"]),
        key(
            "spin",
            Kind::Duration { min: us(1), max: ms(1) },
            Is("\"20us\""),
            "How long a worker looks at shared memory before it sleeps, where that has brought bytes lately; waking it takes some 50us. Only clients and servers of `shm://` are looked for, by no more workers than half of the cores, and where there is one core by none.",
        )
        .or_word("off"),
    ],
};

pub(crate) static LOG: Table = Table {
    header: "log in [server]",
    doc: "`log = { format = \"json\", level = \"info\" }` in `[server]`.",
    keys: &[
        key(
            "format",
            Choice(&Choices { now: &["human", "json"], later: &[] }),
            Is("\"human\""),
            "`\"json\"` writes one object per line.",
        ),
        key(
            "level",
            Choice(&Choices { now: &["error", "warn", "info", "debug", "trace"], later: &[] }),
            Is("\"info\""),
            "The least important messages still written; `keyway ctl log-level` changes it. No level logs requests, but `debug` some of those that are slow.",
        )
        .known_elsewhere_as(&["loglevel", "verbosity"]),
    ],
};

/// `workers` as a table.
pub(crate) static WORKERS: Table = Table {
    header: "workers in [server]",
    doc: "`workers = { min = 2, max = 8 }` in `[server]`, in place of `\"auto\"` or a number.",
    keys: &[
        key("min", Count { min: 1, max: WORKERS_MAX as u64 }, Refused, "Workers at start."),
        key(
            "max",
            Count { min: 1, max: WORKERS_MAX as u64 },
            Refused,
            "Workers at most; at least `min`.",
        ),
    ],
};

/// Most workers. No machine has more cores, and a typing error is refused here instead of failing
/// at the thread limit.
pub(crate) const WORKERS_MAX: u16 = 1024;
