//! What Keyway does with each command. It is decided here once, by hand, for every verb of the
//! table. A new verb does not compile until it is decided.

use crate::Verb;

/// What a sharded pool (many servers, each with a part of the keys) does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// It goes to the shard that has all its keys. If the keys are on several shards, the reply is
    /// CROSSSLOT.
    Forward,
    /// It is split into one fragment for each shard, and the replies are merged.
    Split(Split),
    /// It goes whole to every shard in use, and the replies are merged.
    Everywhere(Join),
    /// It concerns all shards, or any of them, in its own way.
    Across(Across),
    /// It publishes, subscribes, or reports subscriptions. It goes to the servers of its channels,
    /// or Keyway itself answers it.
    PubSub,
    /// It goes to the shard that has all its keys, on a connection that no other client uses while
    /// it waits.
    Block,
    /// It begins, ends or guards a transaction.
    Transaction,
    /// It is about the keys of whose changes the client is told.
    Tracking,
    /// Keyway itself answers it.
    Local,
    /// It is refused with an error that ends in this reason. The reason is a text for a user,
    /// without an error code, that says what to do instead.
    Refused(&'static str),
}

/// How a request is split into fragments, and how their replies are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Number of arguments that stay together in one fragment: 1 for a key alone, 2 for a key with
    /// its value.
    pub args_per_key: u8,
    /// How the replies are merged.
    pub join: Join,
}

/// How the replies to the fragments of one request become one reply. Any error among them becomes
/// the whole reply: a join never hides an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// An array with one element for each key, in the order of the request.
    Array,
    /// The sum of the integers.
    Sum,
    /// OK if every fragment's reply is OK.
    AllOk,
    /// An array of the elements of all fragments' arrays.
    Concat,
    /// The reply that all fragments have in common. Shards that could not be asked are updated
    /// later, so one answer is enough.
    Same,
    /// An array of ones and zeros: a one where every fragment has a one.
    AllOnes,
    /// The largest of the integers.
    Max,
    /// The smallest of the integers.
    Min,
    /// A report about every fragment, whether it was answered or not. It is not an error.
    Each,
    /// One array of the elements of all arrays, with each element once.
    Union,
    /// An array of names, each followed by the sum of the integers after it in the arrays. All
    /// arrays have the same names.
    Counts,
}

/// Commands that concern the shards of a pool together, each in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// It visits one shard after the other. The cursor names the shard.
    Scan,
    /// It asks a random shard, and then others while a shard has no key.
    RandomKey,
    /// It empties every shard in use, if the pool allows that.
    Flush,
    /// It is sent to every shard in use, and remembered for shards that join.
    Load(Loaded),
    /// It asks whether every shard in use has these scripts.
    ScriptExists,
    /// It removes scripts or functions from every shard in use.
    Unload(Loaded),
    /// It runs a script or function on the shard of its keys, or, without keys, on the first one in
    /// use. If the shard lacks the script or function, it is loaded first.
    Run,
    /// It asks the first shard in use, because all have the same.
    First,
}

/// What a server keeps for later calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// Scripts, which are called by the digest of their text.
    Scripts,
    /// Libraries of functions, which are called by name.
    Functions,
    /// Libraries of functions, in the form of `FUNCTION DUMP`.
    Dump,
}

/// A condition on a command's arguments for its [`Handling`]. If it does not hold,
/// [`Condition::otherwise`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no BLOCK option (XREAD, XREADGROUP). With it, the handling is [`Handling::Block`].
    NotBlocking,
    /// There is no BY or GET pattern that reads keys which the request does not name (SORT).
    NoPatterns,
    /// There is no DB option (COPY). Its number would be the server's, and not that of the client's
    /// databases.
    NoDatabase,
}

const ONE_DATABASE: &str = "the pool uses one database of its servers; run it on each of them";
const SCRIPT_CONTROL: &str =
    "it concerns the script that runs on one server of the pool; run it on that server";
const PATTERNS: &str =
    "BY and GET patterns read keys that may be on other servers of the pool; sort in the client";
const DB_OPTION: &str = "the DB option counts the databases of a server, not those of the pool; copy without it, or run it on the server that holds the keys";
const CLUSTER: &str =
    "slots and nodes are not managed through Keyway; run it on a server of the cluster";
const REPLICATION: &str = "replication is set up on the servers of a pool, not through it";
const SERVER: &str =
    "this is about one server and the pool may have several; run it on each server";
const SETTINGS: &str = "Keyway takes its settings from its configuration file only";
const USERS: &str = "Keyway takes its users from its configuration file only";
const INTERNAL: &str =
    "a command between servers or for their tests is not forwarded; run it on a server";

const fn split(args_per_key: u8, join: Join) -> Handling {
    Handling::Split(Split { args_per_key, join })
}

impl Handling {
    /// Returns why the embedded store will never support this either. These are reasons that
    /// concern Keyway itself and not the servers of a pool. The text is like that of
    /// [`Handling::Refused`].
    pub fn refused_everywhere(self) -> Option<&'static str> {
        match self {
            Handling::Refused(reason) => {
                [SETTINGS, CLUSTER, USERS].into_iter().find(|own| *own == reason)
            }
            _ => None,
        }
    }

    /// Returns what a sharded pool does with `verb`.
    pub(crate) const fn of(verb: Verb) -> Handling {
        use self::Across as A;
        use Handling::{Across, Block, Everywhere, Forward, Local, Refused};
        use Verb::*;
        match verb {
            Append | Decr | Decrby | Get | Getdel | Getex | Getrange | Getset | Incr | Incrby
            | Incrbyfloat | Lcs | Msetnx | Psetex | Set | Setex | Setnx | Setrange | Strlen
            | Substr => Forward,
            Bitcount | Bitfield | BitfieldRo | Bitop | Bitpos | Getbit | Setbit => Forward,
            Mget => split(1, Join::Array),
            Mset => split(2, Join::AllOk),
            Del | Unlink | Exists | Touch => split(1, Join::Sum),

            Copy | Dump | Expire | Expireat | Expiretime | Persist | Pexpire | Pexpireat
            | Pexpiretime | Pttl | Rename | Renamenx | Restore | Sort | SortRo | Ttl | Type
            | ObjectEncoding | ObjectFreq | ObjectIdletime | ObjectRefcount | MemoryUsage => {
                Forward
            }
            Object | ObjectHelp => Local,
            Keys => Everywhere(Join::Concat),
            Scan => Across(A::Scan),
            Randomkey => Across(A::RandomKey),
            Flushall | Flushdb => Across(A::Flush),
            Move | Swapdb => Refused(ONE_DATABASE),
            Migrate | RestoreAsking | Pfdebug | Pfselftest | Debug | Sync | Psync | Replconf => {
                Refused(INTERNAL)
            }

            Hexpire | Hexpireat | Hexpiretime | Hgetdel | Hgetex | Hpersist | Hpexpire
            | Hpexpireat | Hpexpiretime | Hpttl | Hsetex | Httl => Forward,
            Hdel | Hexists | Hget | Hgetall | Hincrby | Hincrbyfloat | Hkeys | Hlen | Hmget
            | Hmset | Hrandfield | Hscan | Hset | Hsetnx | Hstrlen | Hvals => Forward,
            Lindex | Linsert | Llen | Lmove | Lmpop | Lpop | Lpos | Lpush | Lpushx | Lrange
            | Lrem | Lset | Ltrim | Rpop | Rpoplpush | Rpush | Rpushx => Forward,
            Sadd | Scard | Sdiff | Sdiffstore | Sinter | Sintercard | Sinterstore | Sismember
            | Smembers | Smismember | Smove | Spop | Srandmember | Srem | Sscan | Sunion
            | Sunionstore => Forward,
            Zadd | Zcard | Zcount | Zdiff | Zdiffstore | Zincrby | Zinter | Zintercard
            | Zinterstore | Zlexcount | Zmpop | Zmscore | Zpopmax | Zpopmin | Zrandmember
            | Zrange | Zrangebylex | Zrangebyscore | Zrangestore | Zrank | Zrem
            | Zremrangebylex | Zremrangebyrank | Zremrangebyscore | Zrevrange | Zrevrangebylex
            | Zrevrangebyscore | Zrevrank | Zscan | Zscore | Zunion | Zunionstore => Forward,
            Geoadd | Geodist | Geohash | Geopos | Georadius | GeoradiusRo | Georadiusbymember
            | GeoradiusbymemberRo | Geosearch | Geosearchstore => Forward,
            Pfadd | Pfcount | Pfmerge => Forward,
            Xack | Xadd | Xautoclaim | Xclaim | Xdel | Xlen | Xpending | Xrange | Xread
            | Xreadgroup | Xrevrange | Xsetid | Xtrim => Forward,
            XgroupCreate | XgroupCreateconsumer | XgroupDelconsumer | XgroupDestroy
            | XgroupSetid | XinfoConsumers | XinfoGroups | XinfoStream => Forward,
            Xgroup | XgroupHelp | Xinfo | XinfoHelp => Local,

            Blmove | Blmpop | Blpop | Brpop | Brpoplpush | Bzmpop | Bzpopmax | Bzpopmin => Block,
            Multi | Exec | Discard | Watch | Unwatch => Handling::Transaction,
            Publish | Subscribe | Psubscribe | Unsubscribe | Punsubscribe | Spublish
            | Ssubscribe | Sunsubscribe | PubsubChannels | PubsubNumpat | PubsubNumsub
            | PubsubShardchannels | PubsubShardnumsub => Handling::PubSub,
            Pubsub | PubsubHelp => Local,

            Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo => Across(A::Run),
            ScriptLoad => Across(A::Load(Loaded::Scripts)),
            ScriptExists => Across(A::ScriptExists),
            ScriptFlush => Across(A::Unload(Loaded::Scripts)),
            FunctionLoad => Across(A::Load(Loaded::Functions)),
            FunctionDelete | FunctionFlush => Across(A::Unload(Loaded::Functions)),
            FunctionRestore => Across(A::Load(Loaded::Dump)),
            FunctionDump | FunctionList | FunctionStats => Across(A::First),
            Script | ScriptHelp | Function | FunctionHelp => Local,
            ScriptDebug | ScriptKill | FunctionKill => Refused(SCRIPT_CONTROL),

            Auth | Echo | Hello | Ping | Quit | Reset | Select => Local,
            Client | ClientGetname | ClientHelp | ClientId | ClientInfo | ClientKill
            | ClientList | ClientNoEvict | ClientNoTouch | ClientReply | ClientSetinfo
            | ClientSetname => Local,
            ClientCaching | ClientGetredir | ClientTracking | ClientTrackinginfo => {
                Handling::Tracking
            }
            ClientPause | ClientUnblock | ClientUnpause => Local,

            Command
            | CommandCount
            | CommandDocs
            | CommandGetkeys
            | CommandGetkeysandflags
            | CommandHelp
            | CommandInfo
            | CommandList => Local,
            Config | ConfigGet | ConfigHelp | ConfigResetstat => Local,
            ConfigRewrite | ConfigSet => Refused(SETTINGS),
            Dbsize => Everywhere(Join::Sum),
            Info | Monitor | Time | Wait => Local,
            Latency | LatencyDoctor | LatencyGraph | LatencyHelp | LatencyHistogram
            | LatencyHistory | LatencyLatest | LatencyReset => Local,
            Hotkeys => Local,
            Slowlog | SlowlogGet | SlowlogHelp | SlowlogLen | SlowlogReset => Local,
            Memory | MemoryDoctor | MemoryHelp | MemoryMallocStats | MemoryPurge | MemoryStats => {
                Local
            }

            Acl | AclCat | AclDryrun | AclGetuser | AclHelp | AclList | AclLog | AclUsers
            | AclWhoami => Local,
            AclDeluser | AclGenpass | AclLoad | AclSave | AclSetuser => Refused(USERS),
            Bgrewriteaof | Bgsave | Lastsave | Lolwut | Save | Shutdown | Module | ModuleHelp
            | ModuleList | ModuleLoad | ModuleLoadex | ModuleUnload => Refused(SERVER),
            Failover | Replicaof | Role | Slaveof => Refused(REPLICATION),
            Asking | Readonly | Readwrite => Local,
            Cluster
            | ClusterCountkeysinslot
            | ClusterGetkeysinslot
            | ClusterHelp
            | ClusterInfo
            | ClusterKeyslot
            | ClusterLinks
            | ClusterMyid
            | ClusterMyshardid
            | ClusterNodes
            | ClusterReplicas
            | ClusterShards
            | ClusterSlaves
            | ClusterSlots => Local,
            ClusterAddslots
            | ClusterAddslotsrange
            | ClusterBumpepoch
            | ClusterCountFailureReports
            | ClusterDelslots
            | ClusterDelslotsrange
            | ClusterFailover
            | ClusterFlushslots
            | ClusterForget
            | ClusterMeet
            | ClusterReplicate
            | ClusterReset
            | ClusterSaveconfig
            | ClusterSetConfigEpoch
            | ClusterSetslot => Refused(CLUSTER),
        }
    }
}

impl Condition {
    /// Returns the condition on `verb`'s handling, if it has one.
    pub(crate) const fn of(verb: Verb) -> Option<Condition> {
        match verb {
            Verb::Xread | Verb::Xreadgroup => Some(Condition::NotBlocking),
            Verb::Sort | Verb::SortRo => Some(Condition::NoPatterns),
            Verb::Copy => Some(Condition::NoDatabase),
            _ => None,
        }
    }

    /// Returns what is done with a request for which the condition does not hold.
    pub const fn otherwise(self) -> Handling {
        Handling::Refused(match self {
            Condition::NotBlocking => return Handling::Block,
            Condition::NoPatterns => PATTERNS,
            Condition::NoDatabase => DB_OPTION,
        })
    }
}

/// Returns whether `verb` is about scripts or functions, which run on the embedded store.
pub const fn store_scripts(verb: Verb) -> bool {
    use Verb::*;
    matches!(
        verb,
        Eval | EvalRo
            | Evalsha
            | EvalshaRo
            | Fcall
            | FcallRo
            | FunctionDelete
            | FunctionDump
            | FunctionFlush
            | FunctionKill
            | FunctionList
            | FunctionLoad
            | FunctionRestore
            | FunctionStats
            | ScriptDebug
            | ScriptExists
            | ScriptFlush
            | ScriptKill
            | ScriptLoad
    )
}

/// Returns whether `verb` begins a snapshot of the embedded store and waits for its end.
pub const fn store_saves(verb: Verb) -> bool {
    matches!(verb, Verb::Save)
}

/// Returns whether `verb` tells or changes the role of the embedded store, or is about its
/// replicas.
pub const fn store_replicates(verb: Verb) -> bool {
    use Verb::{ConfigRewrite, Failover, Psync, Replconf, Replicaof, Role, Slaveof, Sync, Wait};
    matches!(
        verb,
        ConfigRewrite | Failover | Psync | Replconf | Replicaof | Role | Slaveof | Sync | Wait
    )
}

/// Returns whether the embedded store serves `verb`.
#[allow(clippy::match_like_matches_macro, reason = "each family of commands has an arm")]
pub const fn store_serves(verb: Verb) -> bool {
    use Verb::*;
    match verb {
        Append | Decr | Decrby | Get | Getdel | Getex | Getrange | Getset | Incr | Incrby
        | Incrbyfloat | Lcs | Mget | Mset | Msetnx | Psetex | Set | Setex | Setnx | Setrange
        | Strlen | Substr => true,
        Pfadd | Pfcount | Pfmerge => true,
        Geoadd | Geodist | Geohash | Geopos | Georadius | GeoradiusRo | Georadiusbymember
        | GeoradiusbymemberRo | Geosearch | Geosearchstore => true,
        Hset | Hmset | Hsetnx | Hget | Hmget | Hgetall | Hkeys | Hvals | Hlen | Hstrlen
        | Hexists | Hdel | Hincrby | Hincrbyfloat | Hrandfield | Hscan | Hexpire | Hexpireat
        | Hexpiretime | Hgetdel | Hgetex | Hpersist | Hpexpire | Hpexpireat | Hpexpiretime
        | Hpttl | Hsetex | Httl => true,
        Lpush | Rpush | Lpushx | Rpushx | Lpop | Rpop | Llen | Lrange | Lindex | Lset | Linsert
        | Lrem | Ltrim | Lpos | Lmove | Rpoplpush | Lmpop => true,
        Sadd | Srem | Sismember | Smismember | Smembers | Scard | Smove | Spop | Srandmember
        | Sscan | Sunion | Sinter | Sdiff | Sunionstore | Sinterstore | Sdiffstore | Sintercard => {
            true
        }
        Zadd | Zincrby | Zrem | Zcard | Zscore | Zmscore | Zrank | Zrevrank | Zpopmin | Zpopmax
        | Zmpop | Zrandmember | Zscan | Zunion | Zinter | Zdiff | Zunionstore | Zinterstore
        | Zdiffstore | Zintercard | Zcount | Zlexcount | Zremrangebyrank | Zremrangebyscore
        | Zremrangebylex | Zrangestore | Zrange | Zrevrange | Zrangebyscore | Zrevrangebyscore
        | Zrangebylex | Zrevrangebylex => true,
        Xadd | Xlen | Xrange | Xrevrange | Xdel | Xtrim | Xsetid | Xread | Xreadgroup | Xack
        | Xpending | Xclaim | Xautoclaim | XgroupCreate | XgroupSetid | XgroupDestroy
        | XgroupCreateconsumer | XgroupDelconsumer | XgroupHelp | XinfoStream | XinfoGroups
        | XinfoConsumers | XinfoHelp => true,
        Getbit | Setbit | Bitcount | Bitpos | Bitop | Bitfield | BitfieldRo => true,
        Del | Unlink | Exists | Type | Expire | Expireat | Pexpire | Pexpireat | Expiretime
        | Pexpiretime | Ttl | Pttl | Persist | Rename | Renamenx | Copy | Move | Scan | Keys
        | Randomkey | Flushdb | Bgrewriteaof | Bgsave | Lastsave | Flushall | Dbsize
        | ObjectEncoding | ObjectFreq | ObjectIdletime | ObjectRefcount | ObjectHelp | Touch
        | Swapdb | Dump | Restore | RestoreAsking | MemoryUsage | Sort | SortRo => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMMANDS, Command, Flags, KeyFlags};

    fn all() -> impl Iterator<Item = &'static Command> {
        COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands))
    }

    fn goes_to_servers(command: &Command) -> bool {
        matches!(command.handling, Handling::Forward | Handling::Split(_) | Handling::Block)
    }

    #[test]
    fn a_command_that_may_block_has_a_connection_for_it() {
        for command in all().filter(|command| command.flags.contains(Flags::BLOCKING)) {
            let blocks = command.handling == Handling::Block
                || command.condition.map(Condition::otherwise) == Some(Handling::Block);
            assert!(blocks || matches!(command.handling, Handling::Refused(_)), "{}", command.name);
        }
    }

    #[test]
    fn only_commands_with_keys_go_to_servers() {
        for command in all().filter(|command| goes_to_servers(command)) {
            let is_key = |spec: &crate::KeySpec| !spec.flags.contains(KeyFlags::NOT_KEY);
            assert!(command.key_specs.iter().any(is_key), "{}", command.name);
            assert!(!command.flags.contains(Flags::ADMIN), "{}", command.name);
        }
    }

    #[test]
    fn a_command_that_may_lack_keys_has_a_shard_without() {
        for command in all().filter(|command| command.flags.contains(Flags::NO_MANDATORY_KEYS)) {
            assert_eq!(command.handling, Handling::Across(Across::Run), "{}", command.name);
        }
    }

    #[test]
    fn a_command_that_splits_is_its_keys_and_nothing_else() {
        for command in all() {
            let Handling::Split(split) = command.handling else { continue };
            assert!(command.keys_in_range, "{}", command.name);
            let keys = (command.first_key, command.last_key, command.key_step);
            assert_eq!(keys, (1, -1, i16::from(split.args_per_key)), "{}", command.name);
        }
    }

    #[test]
    fn a_reason_is_one_line_that_says_what_to_do() {
        for command in all() {
            let Handling::Refused(reason) = command.handling else { continue };
            assert!(reason.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{reason}");
            assert!(reason.len() < 200 && !reason.ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn a_reason_given_by_the_store_speaks_of_no_sharded_pool() {
        let everywhere: Vec<_> =
            all().filter_map(|command| command.handling.refused_everywhere()).collect();
        assert!(everywhere.len() > 15);
        assert!(everywhere.into_iter().all(|reason| !reason.contains("pool")));
        let scripts = Handling::of(Verb::ScriptLoad);
        assert_eq!(scripts.refused_everywhere(), None, "scripts may come");
    }

    #[test]
    fn a_family_that_the_store_serves_it_serves_whole() {
        let families = ["string", "bitmap", "hash", "set", "hyperloglog", "geo", "stream"];
        let has_verb = |command: &&Command| command.subcommands.is_empty();
        for command in all().filter(|command| families.contains(&command.group)).filter(has_verb) {
            let is_for_servers = matches!(command.handling, Handling::Refused(_));
            assert!(store_serves(command.verb) != is_for_servers, "{}", command.name);
        }
    }
}
