use super::key::{Table, key, ms};
use super::kind::{Absent, Kind};
use Absent::{Is, Unset};
use Kind::Count;

pub(crate) static GROUP_FAILOVER: Table = Table {
    header: "failover in [pool.NAME]",
    doc: "`failover = { down_after = \"5s\" }` in a pool of kind `\"slots\"`, or of kind `\"replicated\"` with `servers`, in a document of the control plane; an empty `{}` turns it on with the defaults. The control plane decides which server is the primary: the pool uses that one alone, whatever servers say of themselves. When observers agree that the primary is down, the replica with most data becomes the primary; `keyway ctl failover` does it by hand. Observers are the proxies that use the pool, and the leader. Without a control plane, and until it has decided for the first time, servers are asked as without this table ([groups.md](groups.md)).",
    keys: &[
        key(
            "down_after",
            Kind::Duration { min: ms(1000), max: ms(600_000) },
            Is("\"5s\""),
            "Time without an answer after which a server is down for an observer. A shorter one fails over when a server is only slow.",
        ),
        key(
            "quorum",
            Count { min: 1, max: 4096 },
            Unset("the majority of all observers, also of silent ones"),
            "Observers for which the primary must be down. They must be more than those that it answers, and of two zones if there are observers in two zones. With this key silent observers, and their zones, count for nothing.",
        ),
    ],
};
