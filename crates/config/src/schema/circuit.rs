use super::key::{Table, hours, key, ms};
use super::kind::{Absent, Kind};
use Absent::Is;
use Kind::Count;

pub(crate) static CIRCUIT: Table = Table {
    header: "circuit in [pool.NAME]",
    doc: "`circuit = { failures_percent = 50, window = \"10s\" }` in a pool of kind `\"sharded\"`, `\"memcached\"`, `\"cluster\"`, `\"replicated\"` or `\"slots\"`; an empty `{}` turns it on with the defaults. A server too many of whose requests failed is not asked for a while: requests for its keys fail at once, and reads that may go to another server do. Keys stay where they are, unlike with `ejection`. Requests fail that time out, are lost with their connection, or are answered with LOADING or MASTERDOWN. One stall opens nothing: the failures must have begun more than 200ms apart. Requests of all workers count together, and each server counts for itself: the last one of a pool is not spared.",
    keys: &[
        key(
            "failures_percent",
            Count { min: 1, max: 100 },
            Is("50"),
            "Share of the requests in the window that must have failed.",
        ),
        key(
            "requests_min",
            Count { min: 1, max: 1_000_000 },
            Is("20"),
            "With fewer requests in the window nothing is concluded.",
        ),
        key(
            "window",
            Kind::Duration { min: ms(1000), max: hours(1) },
            Is("\"10s\""),
            "How far back requests count, from when they were answered or failed.",
        ),
        key(
            "open_for",
            Kind::Duration { min: ms(10), max: hours(1) },
            Is("\"5s\""),
            "How long the server is not asked; then `probes` requests find out whether it answers. If one of them fails, the time doubles.",
        ),
        key(
            "open_for_max",
            Kind::Duration { min: ms(10), max: hours(24) },
            Is("\"1m\""),
            "The longest that becomes; at least `open_for`. A server that was asked for so long without its circuit opening begins again with `open_for`.",
        ),
        key(
            "probes",
            Count { min: 1, max: 63 },
            Is("3"),
            "Requests of clients that are let through to find out, over all workers. When as many have been answered, all are let through.",
        ),
    ],
};

pub(crate) static OUTLIERS: Table = Table {
    header: "outliers in [pool.NAME]",
    doc: "`outliers = { times_slower = 5, bad_for = \"3s\" }` in a pool of kind `\"cluster\"`, `\"replicated\"` or `\"slots\"` with a `read_from`; an empty `{}` turns it on with the defaults. A server that is much slower than the others with the same data, or whose requests fail, is left out of those that reads go to, and comes back when its time has passed. The last one that can be read is never left out.",
    keys: &[
        key(
            "times_slower",
            Count { min: 2, max: 1000 },
            Is("5"),
            "A server is slow whose replies took so many times as long, on average, as the median of the others', and at least a millisecond longer.",
        ),
        key(
            "failures_percent",
            Count { min: 1, max: 100 },
            Is("50"),
            "A server fails of whose requests this share did.",
        ),
        key(
            "bad_for",
            Kind::Duration { min: ms(1000), max: ms(60_000) },
            Is("\"3s\""),
            "For how long, in whole seconds: each second counts by itself, and those with fewer than 5 requests to the server do not.",
        ),
        key(
            "out_for",
            Kind::Duration { min: ms(1000), max: hours(1) },
            Is("\"10s\""),
            "How long it is left out the first time; twice as long each time after that.",
        ),
        key(
            "out_for_max",
            Kind::Duration { min: ms(1000), max: hours(24) },
            Is("\"5m\""),
            "The longest that becomes; at least `out_for`. A server that was read for so long begins again with `out_for`.",
        ),
        key(
            "out_percent_max",
            Count { min: 1, max: 99 },
            Is("50"),
            "Most of the servers with the same data that are left out at once, rounded down: of two one, of three one.",
        ),
    ],
};
