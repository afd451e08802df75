use super::key::{Key, Table, key};
use super::kind::{Absent, Choices, Kind};
use super::pool_kinds::POOL_KINDS;
use super::sharded::SHARDED;
use Absent::{Is, Refused, Unset};
use Kind::{Bool, Choice, Path, PoolName, Secret};
use std::time::Duration;

/// Returns the key of that name in the table of a sharded pool, which means the same here.
pub(super) const fn as_sharded(name: &str) -> Key {
    let mut index = 0;
    while index < SHARDED.keys.len() {
        if is_same(SHARDED.keys[index].name.as_bytes(), name.as_bytes()) {
            return SHARDED.keys[index];
        }
        index += 1;
    }
    panic!("no such key")
}

pub(super) const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

pub(crate) static MEMCACHED: Table = Table {
    header: "[pool.NAME] of kind \"memcached\"",
    doc: "Keys spread over memcached servers by hash, for listeners with `protocol = \"memcached\"`. Every key goes where twemproxy with the same `hash`, `distribution`, `hash_tag` and `servers` sends it, or a client whose distribution is chosen (docs/placement.md).",
    keys: &[
        key("kind", Choice(&POOL_KINDS), Refused, "`\"memcached\"`."),
        as_sharded("servers"),
        key(
            "server_protocol",
            Choice(&Choices { now: &["meta", "text", "binary"], later: &[] }),
            Is("\"meta\""),
            "What the servers are asked in. `\"meta\"`, for memcached 1.6 and later, can say all that clients of any protocol ask; classic commands are handed on as they are, so older servers are well with it as long as no client sends anything else. `\"text\"` is classic commands only, `\"binary\"` the packets that memcached 1.4 to 1.6 understand, which a password needs.",
        ),
        as_sharded("hash"),
        as_sharded("distribution"),
        as_sharded("hash_tag"),
        as_sharded("timeout"),
        as_sharded("connect_timeout"),
        as_sharded("server_connections"),
        as_sharded("preconnect"),
        key(
            "user",
            Kind::UserName,
            Is("\"keyway\""),
            "Who the servers are told we are, with the password.",
        ),
        key(
            "password",
            Secret,
            Unset("none is sent"),
            "What is sent to the servers: with SASL PLAIN to binary ones, to others as memcached's `--auth-file` wants it.",
        ),
        key(
            "password_file",
            Path,
            Unset("none is sent"),
            "A file that holds that password; one newline at its end is ignored.",
        ),
        as_sharded("password_env"),
        key(
            "client_password",
            Secret,
            Unset("clients need none"),
            "What clients must send, on every listener of this pool that has no `password` of its own: with SASL PLAIN, or as the value `USER PASSWORD` of a first set. Any user name will do.",
        ),
        key(
            "allow_flush",
            Bool,
            Is("false"),
            "Let clients empty every server in use with flush_all. Otherwise it is refused.",
        ),
        key(
            "warm_from",
            PoolName,
            Unset("nothing is brought over"),
            "The name of another pool of kind `\"memcached\"` that has what this one does not have yet: the servers before a ring was changed, or as clients hashed over them for themselves. What is missing here is looked up there, and moved; that pool needs no listener. docs/memcached.md says what holds meanwhile.",
        ),
        key(
            "warm_ttl_max",
            Kind::Duration {
                min: Duration::from_secs(1),
                max: Duration::from_secs(30 * 24 * 60 * 60),
            },
            Is("\"1h\""),
            "With `warm_from`: the expiry of an item brought over from servers that cannot tell the time it has left, those whose `server_protocol` is not `\"meta\"`.",
        ),
        key(
            "warm_for",
            Kind::Duration {
                min: Duration::from_secs(1),
                max: Duration::from_secs(365 * 24 * 60 * 60),
            },
            Unset("as long as the file says so"),
            "With `warm_from`: how long after its start Keyway goes on bringing items over.",
        ),
        as_sharded("ejection"),
        as_sharded("circuit"),
        as_sharded("tls"),
        as_sharded("reconnect"),
        as_sharded("clients_max"),
        as_sharded("queue_len_max"),
    ],
};
