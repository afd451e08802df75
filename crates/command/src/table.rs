// Generated from COMMAND, COMMAND DOCS and HELP of redis-server; `make command-table` writes it
// anew. What the commands do is described in the words of Redis 7.0, which is BSD-3-Clause,
// Copyright (c) 2006-2020, Salvatore Sanfilippo.

use crate::command::Entry;
use crate::{Argument, BeginSearch, Categories, Command, Docs, FindKeys, Flags, KeyFlags, KeySpec};

/// Every command and subcommand, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Verb {
    /// ACL
    Acl,
    /// ACL CAT
    AclCat,
    /// ACL DELUSER
    AclDeluser,
    /// ACL DRYRUN
    AclDryrun,
    /// ACL GENPASS
    AclGenpass,
    /// ACL GETUSER
    AclGetuser,
    /// ACL HELP
    AclHelp,
    /// ACL LIST
    AclList,
    /// ACL LOAD
    AclLoad,
    /// ACL LOG
    AclLog,
    /// ACL SAVE
    AclSave,
    /// ACL SETUSER
    AclSetuser,
    /// ACL USERS
    AclUsers,
    /// ACL WHOAMI
    AclWhoami,
    /// APPEND
    Append,
    /// ASKING
    Asking,
    /// AUTH
    Auth,
    /// BGREWRITEAOF
    Bgrewriteaof,
    /// BGSAVE
    Bgsave,
    /// BITCOUNT
    Bitcount,
    /// BITFIELD
    Bitfield,
    /// BITFIELD_RO
    BitfieldRo,
    /// BITOP
    Bitop,
    /// BITPOS
    Bitpos,
    /// BLMOVE
    Blmove,
    /// BLMPOP
    Blmpop,
    /// BLPOP
    Blpop,
    /// BRPOP
    Brpop,
    /// BRPOPLPUSH
    Brpoplpush,
    /// BZMPOP
    Bzmpop,
    /// BZPOPMAX
    Bzpopmax,
    /// BZPOPMIN
    Bzpopmin,
    /// CLIENT
    Client,
    /// CLIENT CACHING
    ClientCaching,
    /// CLIENT GETNAME
    ClientGetname,
    /// CLIENT GETREDIR
    ClientGetredir,
    /// CLIENT HELP
    ClientHelp,
    /// CLIENT ID
    ClientId,
    /// CLIENT INFO
    ClientInfo,
    /// CLIENT KILL
    ClientKill,
    /// CLIENT LIST
    ClientList,
    /// CLIENT NO-EVICT
    ClientNoEvict,
    /// CLIENT NO-TOUCH
    ClientNoTouch,
    /// CLIENT PAUSE
    ClientPause,
    /// CLIENT REPLY
    ClientReply,
    /// CLIENT SETINFO
    ClientSetinfo,
    /// CLIENT SETNAME
    ClientSetname,
    /// CLIENT TRACKING
    ClientTracking,
    /// CLIENT TRACKINGINFO
    ClientTrackinginfo,
    /// CLIENT UNBLOCK
    ClientUnblock,
    /// CLIENT UNPAUSE
    ClientUnpause,
    /// CLUSTER
    Cluster,
    /// CLUSTER ADDSLOTS
    ClusterAddslots,
    /// CLUSTER ADDSLOTSRANGE
    ClusterAddslotsrange,
    /// CLUSTER BUMPEPOCH
    ClusterBumpepoch,
    /// CLUSTER COUNT-FAILURE-REPORTS
    ClusterCountFailureReports,
    /// CLUSTER COUNTKEYSINSLOT
    ClusterCountkeysinslot,
    /// CLUSTER DELSLOTS
    ClusterDelslots,
    /// CLUSTER DELSLOTSRANGE
    ClusterDelslotsrange,
    /// CLUSTER FAILOVER
    ClusterFailover,
    /// CLUSTER FLUSHSLOTS
    ClusterFlushslots,
    /// CLUSTER FORGET
    ClusterForget,
    /// CLUSTER GETKEYSINSLOT
    ClusterGetkeysinslot,
    /// CLUSTER HELP
    ClusterHelp,
    /// CLUSTER INFO
    ClusterInfo,
    /// CLUSTER KEYSLOT
    ClusterKeyslot,
    /// CLUSTER LINKS
    ClusterLinks,
    /// CLUSTER MEET
    ClusterMeet,
    /// CLUSTER MYID
    ClusterMyid,
    /// CLUSTER MYSHARDID
    ClusterMyshardid,
    /// CLUSTER NODES
    ClusterNodes,
    /// CLUSTER REPLICAS
    ClusterReplicas,
    /// CLUSTER REPLICATE
    ClusterReplicate,
    /// CLUSTER RESET
    ClusterReset,
    /// CLUSTER SAVECONFIG
    ClusterSaveconfig,
    /// CLUSTER SET-CONFIG-EPOCH
    ClusterSetConfigEpoch,
    /// CLUSTER SETSLOT
    ClusterSetslot,
    /// CLUSTER SHARDS
    ClusterShards,
    /// CLUSTER SLAVES
    ClusterSlaves,
    /// CLUSTER SLOTS
    ClusterSlots,
    /// COMMAND
    Command,
    /// COMMAND COUNT
    CommandCount,
    /// COMMAND DOCS
    CommandDocs,
    /// COMMAND GETKEYS
    CommandGetkeys,
    /// COMMAND GETKEYSANDFLAGS
    CommandGetkeysandflags,
    /// COMMAND HELP
    CommandHelp,
    /// COMMAND INFO
    CommandInfo,
    /// COMMAND LIST
    CommandList,
    /// CONFIG
    Config,
    /// CONFIG GET
    ConfigGet,
    /// CONFIG HELP
    ConfigHelp,
    /// CONFIG RESETSTAT
    ConfigResetstat,
    /// CONFIG REWRITE
    ConfigRewrite,
    /// CONFIG SET
    ConfigSet,
    /// COPY
    Copy,
    /// DBSIZE
    Dbsize,
    /// DEBUG
    Debug,
    /// DECR
    Decr,
    /// DECRBY
    Decrby,
    /// DEL
    Del,
    /// DISCARD
    Discard,
    /// DUMP
    Dump,
    /// ECHO
    Echo,
    /// EVAL
    Eval,
    /// EVAL_RO
    EvalRo,
    /// EVALSHA
    Evalsha,
    /// EVALSHA_RO
    EvalshaRo,
    /// EXEC
    Exec,
    /// EXISTS
    Exists,
    /// EXPIRE
    Expire,
    /// EXPIREAT
    Expireat,
    /// EXPIRETIME
    Expiretime,
    /// FAILOVER
    Failover,
    /// FCALL
    Fcall,
    /// FCALL_RO
    FcallRo,
    /// FLUSHALL
    Flushall,
    /// FLUSHDB
    Flushdb,
    /// FUNCTION
    Function,
    /// FUNCTION DELETE
    FunctionDelete,
    /// FUNCTION DUMP
    FunctionDump,
    /// FUNCTION FLUSH
    FunctionFlush,
    /// FUNCTION HELP
    FunctionHelp,
    /// FUNCTION KILL
    FunctionKill,
    /// FUNCTION LIST
    FunctionList,
    /// FUNCTION LOAD
    FunctionLoad,
    /// FUNCTION RESTORE
    FunctionRestore,
    /// FUNCTION STATS
    FunctionStats,
    /// GEOADD
    Geoadd,
    /// GEODIST
    Geodist,
    /// GEOHASH
    Geohash,
    /// GEOPOS
    Geopos,
    /// GEORADIUS
    Georadius,
    /// GEORADIUS_RO
    GeoradiusRo,
    /// GEORADIUSBYMEMBER
    Georadiusbymember,
    /// GEORADIUSBYMEMBER_RO
    GeoradiusbymemberRo,
    /// GEOSEARCH
    Geosearch,
    /// GEOSEARCHSTORE
    Geosearchstore,
    /// GET
    Get,
    /// GETBIT
    Getbit,
    /// GETDEL
    Getdel,
    /// GETEX
    Getex,
    /// GETRANGE
    Getrange,
    /// GETSET
    Getset,
    /// HDEL
    Hdel,
    /// HELLO
    Hello,
    /// HEXISTS
    Hexists,
    /// HEXPIRE
    Hexpire,
    /// HEXPIREAT
    Hexpireat,
    /// HEXPIRETIME
    Hexpiretime,
    /// HGET
    Hget,
    /// HGETALL
    Hgetall,
    /// HGETDEL
    Hgetdel,
    /// HGETEX
    Hgetex,
    /// HINCRBY
    Hincrby,
    /// HINCRBYFLOAT
    Hincrbyfloat,
    /// HKEYS
    Hkeys,
    /// HLEN
    Hlen,
    /// HMGET
    Hmget,
    /// HMSET
    Hmset,
    /// HOTKEYS
    Hotkeys,
    /// HPERSIST
    Hpersist,
    /// HPEXPIRE
    Hpexpire,
    /// HPEXPIREAT
    Hpexpireat,
    /// HPEXPIRETIME
    Hpexpiretime,
    /// HPTTL
    Hpttl,
    /// HRANDFIELD
    Hrandfield,
    /// HSCAN
    Hscan,
    /// HSET
    Hset,
    /// HSETEX
    Hsetex,
    /// HSETNX
    Hsetnx,
    /// HSTRLEN
    Hstrlen,
    /// HTTL
    Httl,
    /// HVALS
    Hvals,
    /// INCR
    Incr,
    /// INCRBY
    Incrby,
    /// INCRBYFLOAT
    Incrbyfloat,
    /// INFO
    Info,
    /// KEYS
    Keys,
    /// LASTSAVE
    Lastsave,
    /// LATENCY
    Latency,
    /// LATENCY DOCTOR
    LatencyDoctor,
    /// LATENCY GRAPH
    LatencyGraph,
    /// LATENCY HELP
    LatencyHelp,
    /// LATENCY HISTOGRAM
    LatencyHistogram,
    /// LATENCY HISTORY
    LatencyHistory,
    /// LATENCY LATEST
    LatencyLatest,
    /// LATENCY RESET
    LatencyReset,
    /// LCS
    Lcs,
    /// LINDEX
    Lindex,
    /// LINSERT
    Linsert,
    /// LLEN
    Llen,
    /// LMOVE
    Lmove,
    /// LMPOP
    Lmpop,
    /// LOLWUT
    Lolwut,
    /// LPOP
    Lpop,
    /// LPOS
    Lpos,
    /// LPUSH
    Lpush,
    /// LPUSHX
    Lpushx,
    /// LRANGE
    Lrange,
    /// LREM
    Lrem,
    /// LSET
    Lset,
    /// LTRIM
    Ltrim,
    /// MEMORY
    Memory,
    /// MEMORY DOCTOR
    MemoryDoctor,
    /// MEMORY HELP
    MemoryHelp,
    /// MEMORY MALLOC-STATS
    MemoryMallocStats,
    /// MEMORY PURGE
    MemoryPurge,
    /// MEMORY STATS
    MemoryStats,
    /// MEMORY USAGE
    MemoryUsage,
    /// MGET
    Mget,
    /// MIGRATE
    Migrate,
    /// MODULE
    Module,
    /// MODULE HELP
    ModuleHelp,
    /// MODULE LIST
    ModuleList,
    /// MODULE LOAD
    ModuleLoad,
    /// MODULE LOADEX
    ModuleLoadex,
    /// MODULE UNLOAD
    ModuleUnload,
    /// MONITOR
    Monitor,
    /// MOVE
    Move,
    /// MSET
    Mset,
    /// MSETNX
    Msetnx,
    /// MULTI
    Multi,
    /// OBJECT
    Object,
    /// OBJECT ENCODING
    ObjectEncoding,
    /// OBJECT FREQ
    ObjectFreq,
    /// OBJECT HELP
    ObjectHelp,
    /// OBJECT IDLETIME
    ObjectIdletime,
    /// OBJECT REFCOUNT
    ObjectRefcount,
    /// PERSIST
    Persist,
    /// PEXPIRE
    Pexpire,
    /// PEXPIREAT
    Pexpireat,
    /// PEXPIRETIME
    Pexpiretime,
    /// PFADD
    Pfadd,
    /// PFCOUNT
    Pfcount,
    /// PFDEBUG
    Pfdebug,
    /// PFMERGE
    Pfmerge,
    /// PFSELFTEST
    Pfselftest,
    /// PING
    Ping,
    /// PSETEX
    Psetex,
    /// PSUBSCRIBE
    Psubscribe,
    /// PSYNC
    Psync,
    /// PTTL
    Pttl,
    /// PUBLISH
    Publish,
    /// PUBSUB
    Pubsub,
    /// PUBSUB CHANNELS
    PubsubChannels,
    /// PUBSUB HELP
    PubsubHelp,
    /// PUBSUB NUMPAT
    PubsubNumpat,
    /// PUBSUB NUMSUB
    PubsubNumsub,
    /// PUBSUB SHARDCHANNELS
    PubsubShardchannels,
    /// PUBSUB SHARDNUMSUB
    PubsubShardnumsub,
    /// PUNSUBSCRIBE
    Punsubscribe,
    /// QUIT
    Quit,
    /// RANDOMKEY
    Randomkey,
    /// READONLY
    Readonly,
    /// READWRITE
    Readwrite,
    /// RENAME
    Rename,
    /// RENAMENX
    Renamenx,
    /// REPLCONF
    Replconf,
    /// REPLICAOF
    Replicaof,
    /// RESET
    Reset,
    /// RESTORE
    Restore,
    /// RESTORE-ASKING
    RestoreAsking,
    /// ROLE
    Role,
    /// RPOP
    Rpop,
    /// RPOPLPUSH
    Rpoplpush,
    /// RPUSH
    Rpush,
    /// RPUSHX
    Rpushx,
    /// SADD
    Sadd,
    /// SAVE
    Save,
    /// SCAN
    Scan,
    /// SCARD
    Scard,
    /// SCRIPT
    Script,
    /// SCRIPT DEBUG
    ScriptDebug,
    /// SCRIPT EXISTS
    ScriptExists,
    /// SCRIPT FLUSH
    ScriptFlush,
    /// SCRIPT HELP
    ScriptHelp,
    /// SCRIPT KILL
    ScriptKill,
    /// SCRIPT LOAD
    ScriptLoad,
    /// SDIFF
    Sdiff,
    /// SDIFFSTORE
    Sdiffstore,
    /// SELECT
    Select,
    /// SET
    Set,
    /// SETBIT
    Setbit,
    /// SETEX
    Setex,
    /// SETNX
    Setnx,
    /// SETRANGE
    Setrange,
    /// SHUTDOWN
    Shutdown,
    /// SINTER
    Sinter,
    /// SINTERCARD
    Sintercard,
    /// SINTERSTORE
    Sinterstore,
    /// SISMEMBER
    Sismember,
    /// SLAVEOF
    Slaveof,
    /// SLOWLOG
    Slowlog,
    /// SLOWLOG GET
    SlowlogGet,
    /// SLOWLOG HELP
    SlowlogHelp,
    /// SLOWLOG LEN
    SlowlogLen,
    /// SLOWLOG RESET
    SlowlogReset,
    /// SMEMBERS
    Smembers,
    /// SMISMEMBER
    Smismember,
    /// SMOVE
    Smove,
    /// SORT
    Sort,
    /// SORT_RO
    SortRo,
    /// SPOP
    Spop,
    /// SPUBLISH
    Spublish,
    /// SRANDMEMBER
    Srandmember,
    /// SREM
    Srem,
    /// SSCAN
    Sscan,
    /// SSUBSCRIBE
    Ssubscribe,
    /// STRLEN
    Strlen,
    /// SUBSCRIBE
    Subscribe,
    /// SUBSTR
    Substr,
    /// SUNION
    Sunion,
    /// SUNIONSTORE
    Sunionstore,
    /// SUNSUBSCRIBE
    Sunsubscribe,
    /// SWAPDB
    Swapdb,
    /// SYNC
    Sync,
    /// TIME
    Time,
    /// TOUCH
    Touch,
    /// TTL
    Ttl,
    /// TYPE
    Type,
    /// UNLINK
    Unlink,
    /// UNSUBSCRIBE
    Unsubscribe,
    /// UNWATCH
    Unwatch,
    /// WAIT
    Wait,
    /// WATCH
    Watch,
    /// XACK
    Xack,
    /// XADD
    Xadd,
    /// XAUTOCLAIM
    Xautoclaim,
    /// XCLAIM
    Xclaim,
    /// XDEL
    Xdel,
    /// XGROUP
    Xgroup,
    /// XGROUP CREATE
    XgroupCreate,
    /// XGROUP CREATECONSUMER
    XgroupCreateconsumer,
    /// XGROUP DELCONSUMER
    XgroupDelconsumer,
    /// XGROUP DESTROY
    XgroupDestroy,
    /// XGROUP HELP
    XgroupHelp,
    /// XGROUP SETID
    XgroupSetid,
    /// XINFO
    Xinfo,
    /// XINFO CONSUMERS
    XinfoConsumers,
    /// XINFO GROUPS
    XinfoGroups,
    /// XINFO HELP
    XinfoHelp,
    /// XINFO STREAM
    XinfoStream,
    /// XLEN
    Xlen,
    /// XPENDING
    Xpending,
    /// XRANGE
    Xrange,
    /// XREAD
    Xread,
    /// XREADGROUP
    Xreadgroup,
    /// XREVRANGE
    Xrevrange,
    /// XSETID
    Xsetid,
    /// XTRIM
    Xtrim,
    /// ZADD
    Zadd,
    /// ZCARD
    Zcard,
    /// ZCOUNT
    Zcount,
    /// ZDIFF
    Zdiff,
    /// ZDIFFSTORE
    Zdiffstore,
    /// ZINCRBY
    Zincrby,
    /// ZINTER
    Zinter,
    /// ZINTERCARD
    Zintercard,
    /// ZINTERSTORE
    Zinterstore,
    /// ZLEXCOUNT
    Zlexcount,
    /// ZMPOP
    Zmpop,
    /// ZMSCORE
    Zmscore,
    /// ZPOPMAX
    Zpopmax,
    /// ZPOPMIN
    Zpopmin,
    /// ZRANDMEMBER
    Zrandmember,
    /// ZRANGE
    Zrange,
    /// ZRANGEBYLEX
    Zrangebylex,
    /// ZRANGEBYSCORE
    Zrangebyscore,
    /// ZRANGESTORE
    Zrangestore,
    /// ZRANK
    Zrank,
    /// ZREM
    Zrem,
    /// ZREMRANGEBYLEX
    Zremrangebylex,
    /// ZREMRANGEBYRANK
    Zremrangebyrank,
    /// ZREMRANGEBYSCORE
    Zremrangebyscore,
    /// ZREVRANGE
    Zrevrange,
    /// ZREVRANGEBYLEX
    Zrevrangebylex,
    /// ZREVRANGEBYSCORE
    Zrevrangebyscore,
    /// ZREVRANK
    Zrevrank,
    /// ZSCAN
    Zscan,
    /// ZSCORE
    Zscore,
    /// ZUNION
    Zunion,
    /// ZUNIONSTORE
    Zunionstore,
}

/// Every top-level command, sorted by name.
pub static COMMANDS: [Command; 253] = [
    Entry {
        verb: Verb::Acl, name: "acl", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "A container for Access List Control commands ",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CAT [<category>]",
                "    List all commands that belong to <category>, or all command categories",
                "    when no category is specified.",
                "DELUSER <username> [<username> ...]",
                "    Delete a list of users.",
                "DRYRUN <username> <command> [<arg> ...]",
                "    Returns whether the user can execute the given command without executing the command.",
                "GETUSER <username>",
                "    Get the user's details.",
                "GENPASS [<bits>]",
                "    Generate a secure 256-bit user password. The optional `bits` argument can",
                "    be used to specify a different size.",
                "LIST",
                "    Show users details in config file format.",
                "LOAD",
                "    Reload users from the ACL file.",
                "LOG [<count> | RESET]",
                "    Show the ACL log entries.",
                "SAVE",
                "    Save the current config to the ACL file.",
                "SETUSER <username> <attribute> [<attribute> ...]",
                "    Create or modify a user with the specified attributes.",
                "USERS",
                "    List all the registered usernames.",
                "WHOAMI",
                "    Return the current connection username.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &ACL_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Append, name: "append", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.0.0",
        summary: "Append a value to a key",
        complexity: "O(1). The amortized time complexity is O(1) assuming the appended value is small and the already present value is of any size, since the dynamic string library used by Redis will double the free space available on every reallocation.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Asking, name: "asking", arity: 1,
        flags: Flags::FAST,
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Sent by cluster clients after an -ASK redirect",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Auth, name: "auth", arity: -2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "1.0.0",
        summary: "Authenticate to the server",
        complexity: "O(N) where N is the number of passwords defined for the user",
        docs: &Docs {
            history: &[
                ("6.0.0", "Added ACL style (username and password)."),
            ],
            arguments: &[
                Argument { name: "username", kind: "string", since: "6.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "password", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bgrewriteaof, name: "bgrewriteaof", arity: 1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Asynchronously rewrite the append-only file",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bgsave, name: "bgsave", arity: -1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Asynchronously save the dataset to disk",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("3.2.2", "Added the `SCHEDULE` option."),
            ],
            arguments: &[
                Argument { name: "schedule", kind: "pure-token", token: Some("SCHEDULE"), since: "3.2.2", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bitcount, name: "bitcount", arity: -2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::BITMAP).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "bitmap", since: "2.6.0",
        summary: "Count set bits in a string",
        complexity: "O(N)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the `BYTE|BIT` option."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "index", kind: "block", flags: &["optional"], arguments: &[Argument { name: "start", kind: "integer", ..Argument::NONE }, Argument { name: "end", kind: "integer", ..Argument::NONE }, Argument { name: "index_unit", kind: "oneof", since: "7.0.0", flags: &["optional"], arguments: &[Argument { name: "byte", kind: "pure-token", token: Some("BYTE"), ..Argument::NONE }, Argument { name: "bit", kind: "pure-token", token: Some("BIT"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bitfield, name: "bitfield", arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::BITMAP).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE_FLAGS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "This command allows both access and modification of the key" },
        ],
        group: "bitmap", since: "3.2.0",
        summary: "Perform arbitrary bitfield integer operations on strings",
        complexity: "O(1) for each subcommand specified",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "operation", kind: "oneof", flags: &["optional", "multiple"], arguments: &[Argument { name: "encoding_offset", kind: "block", token: Some("GET"), arguments: &[Argument { name: "encoding", kind: "string", ..Argument::NONE }, Argument { name: "offset", kind: "integer", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "write", kind: "block", arguments: &[Argument { name: "wrap_sat_fail", kind: "oneof", token: Some("OVERFLOW"), flags: &["optional"], arguments: &[Argument { name: "wrap", kind: "pure-token", token: Some("WRAP"), ..Argument::NONE }, Argument { name: "sat", kind: "pure-token", token: Some("SAT"), ..Argument::NONE }, Argument { name: "fail", kind: "pure-token", token: Some("FAIL"), ..Argument::NONE }], ..Argument::NONE }, Argument { name: "write_operation", kind: "oneof", arguments: &[Argument { name: "encoding_offset_value", kind: "block", token: Some("SET"), arguments: &[Argument { name: "encoding", kind: "string", ..Argument::NONE }, Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "value", kind: "integer", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "encoding_offset_increment", kind: "block", token: Some("INCRBY"), arguments: &[Argument { name: "encoding", kind: "string", ..Argument::NONE }, Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "increment", kind: "integer", ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::BitfieldRo, name: "bitfield_ro", arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::BITMAP).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "bitmap", since: "6.0.0",
        summary: "Perform arbitrary bitfield integer operations on strings. Read-only variant of BITFIELD",
        complexity: "O(1) for each subcommand specified",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "encoding_offset", kind: "block", token: Some("GET"), flags: &["optional", "multiple", "multiple_token"], arguments: &[Argument { name: "encoding", kind: "string", ..Argument::NONE }, Argument { name: "offset", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bitop, name: "bitop", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (2, -1, 1),
        acl: Categories::WRITE.with(Categories::BITMAP).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(3), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "bitmap", since: "2.6.0",
        summary: "Perform bitwise operations between strings",
        complexity: "O(N)",
        docs: &Docs {
            arguments: &[
                Argument { name: "operation", kind: "string", ..Argument::NONE },
                Argument { name: "destkey", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bitpos, name: "bitpos", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::BITMAP).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "bitmap", since: "2.8.7",
        summary: "Find first bit set or clear in a string",
        complexity: "O(N)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the `BYTE|BIT` option."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "bit", kind: "integer", ..Argument::NONE },
                Argument { name: "index", kind: "block", flags: &["optional"], arguments: &[Argument { name: "start", kind: "integer", ..Argument::NONE }, Argument { name: "end_index", kind: "block", flags: &["optional"], arguments: &[Argument { name: "end", kind: "integer", ..Argument::NONE }, Argument { name: "index_unit", kind: "oneof", since: "7.0.0", flags: &["optional"], arguments: &[Argument { name: "byte", kind: "pure-token", token: Some("BYTE"), ..Argument::NONE }, Argument { name: "bit", kind: "pure-token", token: Some("BIT"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Blmove, name: "blmove", arity: 6,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT).with(Flags::BLOCKING),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "6.2.0",
        summary: "Pop an element from a list, push it to another list and return it; or block until one is available",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "source", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "destination", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "wherefrom", kind: "oneof", arguments: &[Argument { name: "left", kind: "pure-token", token: Some("LEFT"), ..Argument::NONE }, Argument { name: "right", kind: "pure-token", token: Some("RIGHT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "whereto", kind: "oneof", arguments: &[Argument { name: "left", kind: "pure-token", token: Some("LEFT"), ..Argument::NONE }, Argument { name: "right", kind: "pure-token", token: Some("RIGHT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Blmpop, name: "blmpop", arity: -5,
        flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "list", since: "7.0.0",
        summary: "Pop elements from a list, or block until one is available",
        complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        docs: &Docs {
            arguments: &[
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "where", kind: "oneof", arguments: &[Argument { name: "left", kind: "pure-token", token: Some("LEFT"), ..Argument::NONE }, Argument { name: "right", kind: "pure-token", token: Some("RIGHT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Blpop, name: "blpop", arity: -3,
        flags: Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::BLOCKING),
        keys: (1, -2, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -2, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "2.0.0",
        summary: "Remove and get the first element in a list, or block until one is available",
        complexity: "O(N) where N is the number of provided keys.",
        docs: &Docs {
            history: &[
                ("6.0.0", "`timeout` is interpreted as a double instead of an integer."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Brpop, name: "brpop", arity: -3,
        flags: Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::BLOCKING),
        keys: (1, -2, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -2, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "2.0.0",
        summary: "Remove and get the last element in a list, or block until one is available",
        complexity: "O(N) where N is the number of provided keys.",
        docs: &Docs {
            history: &[
                ("6.0.0", "`timeout` is interpreted as a double instead of an integer."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Brpoplpush, name: "brpoplpush", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT).with(Flags::BLOCKING),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "2.2.0",
        summary: "Pop an element from a list, push it to another list and return it; or block until one is available",
        complexity: "O(1)",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`BLMOVE` with the `RIGHT` and `LEFT` arguments",
            history: &[
                ("6.0.0", "`timeout` is interpreted as a double instead of an integer."),
            ],
            arguments: &[
                Argument { name: "source", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "destination", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bzmpop, name: "bzmpop", arity: -5,
        flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "7.0.0",
        summary: "Remove and return members with scores in a sorted set or block until one is available",
        complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.",
        docs: &Docs {
            arguments: &[
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "where", kind: "oneof", arguments: &[Argument { name: "min", kind: "pure-token", token: Some("MIN"), ..Argument::NONE }, Argument { name: "max", kind: "pure-token", token: Some("MAX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bzpopmax, name: "bzpopmax", arity: -3,
        flags: Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::BLOCKING).with(Flags::FAST),
        keys: (1, -2, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -2, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "5.0.0",
        summary: "Remove and return the member with the highest score from one or more sorted sets, or block until one is available",
        complexity: "O(log(N)) with N being the number of elements in the sorted set.",
        docs: &Docs {
            history: &[
                ("6.0.0", "`timeout` is interpreted as a double instead of an integer."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Bzpopmin, name: "bzpopmin", arity: -3,
        flags: Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::BLOCKING).with(Flags::FAST),
        keys: (1, -2, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -2, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "5.0.0",
        summary: "Remove and return the member with the lowest score from one or more sorted sets, or block until one is available",
        complexity: "O(log(N)) with N being the number of elements in the sorted set.",
        docs: &Docs {
            history: &[
                ("6.0.0", "`timeout` is interpreted as a double instead of an integer."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "timeout", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Client, name: "client", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "connection", since: "2.4.0",
        summary: "A container for client connection commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CACHING (YES|NO)",
                "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
                "GETREDIR",
                "    Return the client ID we are redirecting to when tracking is enabled.",
                "GETNAME",
                "    Return the name of the current connection.",
                "ID",
                "    Return the ID of the current connection.",
                "INFO",
                "    Return information about the current client connection.",
                "KILL <ip:port>",
                "    Kill connection made from <ip:port>.",
                "KILL <option> <value> [<option> <value> [...]]",
                "    Kill connections. Options are:",
                "    * ADDR (<ip:port>|<unixsocket>:0)",
                "      Kill connections made from the specified address",
                "    * LADDR (<ip:port>|<unixsocket>:0)",
                "      Kill connections made to specified local address",
                "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
                "      Kill connections by type.",
                "    * USER <username>",
                "      Kill connections authenticated by <username>.",
                "    * SKIPME (YES|NO)",
                "      Skip killing current connection (default: yes).",
                "LIST [options ...]",
                "    Return information about client connections. Options:",
                "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
                "      Return clients of specified type.",
                "UNPAUSE",
                "    Stop the current client pause, resuming traffic.",
                "PAUSE <timeout> [WRITE|ALL]",
                "    Suspend all, or just write, clients for <timeout> milliseconds.",
                "REPLY (ON|OFF|SKIP)",
                "    Control the replies sent to the current connection.",
                "SETNAME <name>",
                "    Assign the name <name> to the current connection.",
                "UNBLOCK <clientid> [TIMEOUT|ERROR]",
                "    Unblock the specified blocked client.",
                "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
                "         [OPTIN] [OPTOUT] [NOLOOP]",
                "    Control server assisted client side caching.",
                "TRACKINGINFO",
                "    Report tracking status for the current connection.",
                "NO-EVICT (ON|OFF)",
                "    Protect current client connection from eviction.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &CLIENT_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Cluster, name: "cluster", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "A container for cluster commands",
        complexity: "Depends on subcommand.",
        docs: &Docs::NONE,
        subcommands: &CLUSTER_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Command, name: "command", arity: -1,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &["nondeterministic_output_order"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Get array of Redis command details",
        complexity: "O(N) where N is the total number of Redis commands",
        docs: &Docs {
            help: &[
                "COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "(no subcommand)",
                "    Return details about all Redis commands.",
                "COUNT",
                "    Return the total number of commands in this Redis server.",
                "LIST",
                "    Return a list of all commands in this Redis server.",
                "INFO [<command-name> ...]",
                "    Return details about multiple Redis commands.",
                "    If no command names are given, documentation details for all",
                "    commands are returned.",
                "DOCS [<command-name> ...]",
                "    Return documentation details about multiple Redis commands.",
                "    If no command names are given, documentation details for all",
                "    commands are returned.",
                "GETKEYS <full-command>",
                "    Return the keys from a full Redis command.",
                "GETKEYSANDFLAGS <full-command>",
                "    Return the keys and the access flags from a full Redis command.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &COMMAND_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Config, name: "config", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.0.0",
        summary: "A container for server configuration commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "GET <pattern>",
                "    Return parameters matching the glob-like <pattern> and their values.",
                "SET <directive> <value>",
                "    Set the configuration <directive> to <value>.",
                "RESETSTAT",
                "    Reset statistics reported by the INFO command.",
                "REWRITE",
                "    Rewrite the configuration file.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &CONFIG_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Copy, name: "copy", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "6.2.0",
        summary: "Copy a key",
        complexity: "O(N) worst case for collections, where N is the number of nested items. O(1) for string values.",
        docs: &Docs {
            arguments: &[
                Argument { name: "source", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "destination", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "destination-db", kind: "integer", token: Some("DB"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "replace", kind: "pure-token", token: Some("REPLACE"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Dbsize, name: "dbsize", arity: 1,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &["request_policy:all_shards", "response_policy:agg_sum"],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Return the number of keys in the selected database",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Debug, name: "debug", arity: -2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "A container for debugging commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            doc_flags: &["syscmd"],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Decr, name: "decr", arity: 2,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Decrement the integer value of a key by one",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Decrby, name: "decrby", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Decrement the integer value of a key by the given number",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "decrement", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Del, name: "del", arity: -2,
        flags: Flags::WRITE,
        keys: (1, -1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW),
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RM.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Delete a key",
        complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Discard, name: "discard", arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::TRANSACTION),
        tips: &[],
        key_specs: &[],
        group: "transactions", since: "2.0.0",
        summary: "Discard all commands issued after MULTI",
        complexity: "O(N), when N is the number of queued commands",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Dump, name: "dump", arity: 2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.6.0",
        summary: "Return a serialized version of the value stored at the specified key.",
        complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Echo, name: "echo", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "1.0.0",
        summary: "Echo the given string",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "message", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Eval, name: "eval", arity: -3,
        flags: Flags::NOSCRIPT.with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE" },
        ],
        group: "scripting", since: "2.6.0",
        summary: "Execute a Lua script server side",
        complexity: "Depends on the script that is executed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "script", kind: "string", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::EvalRo, name: "eval_ro", arity: -3,
        flags: Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS" },
        ],
        group: "scripting", since: "7.0.0",
        summary: "Execute a read-only Lua script server side",
        complexity: "Depends on the script that is executed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "script", kind: "string", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Evalsha, name: "evalsha", arity: -3,
        flags: Flags::NOSCRIPT.with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "scripting", since: "2.6.0",
        summary: "Execute a Lua script server side",
        complexity: "Depends on the script that is executed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "sha1", kind: "string", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::EvalshaRo, name: "evalsha_ro", arity: -3,
        flags: Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "scripting", since: "7.0.0",
        summary: "Execute a read-only Lua script server side",
        complexity: "Depends on the script that is executed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "sha1", kind: "string", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Exec, name: "exec", arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::SKIP_SLOWLOG),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::TRANSACTION),
        tips: &[],
        key_specs: &[],
        group: "transactions", since: "1.2.0",
        summary: "Execute all commands issued after MULTI",
        complexity: "Depends on commands in the transaction",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Exists, name: "exists", arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, -1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Determine if a key exists",
        complexity: "O(N) where N is the number of keys to check.",
        docs: &Docs {
            history: &[
                ("3.0.3", "Accepts multiple `key` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Expire, name: "expire", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Set a key's time to live in seconds",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "seconds", kind: "integer", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "7.0.0", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Expireat, name: "expireat", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.2.0",
        summary: "Set the expiration for a key as a UNIX timestamp",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "unix-time-seconds", kind: "unix-time", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "7.0.0", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Expiretime, name: "expiretime", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "7.0.0",
        summary: "Get the expiration Unix timestamp for a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Failover, name: "failover", arity: -1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.2.0",
        summary: "Start a coordinated failover between this server and one of its replicas.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "target", kind: "block", token: Some("TO"), flags: &["optional"], arguments: &[Argument { name: "host", kind: "string", ..Argument::NONE }, Argument { name: "port", kind: "integer", ..Argument::NONE }, Argument { name: "force", kind: "pure-token", token: Some("FORCE"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "abort", kind: "pure-token", token: Some("ABORT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "milliseconds", kind: "integer", token: Some("TIMEOUT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Fcall, name: "fcall", arity: -3,
        flags: Flags::NOSCRIPT.with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE" },
        ],
        group: "scripting", since: "7.0.0",
        summary: "Invoke a function",
        complexity: "Depends on the function that is executed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "function", kind: "string", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FcallRo, name: "fcall_ro", arity: -3,
        flags: Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::SKIP_MONITOR).with(Flags::NO_MANDATORY_KEYS).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS" },
        ],
        group: "scripting", since: "7.0.0",
        summary: "Invoke a read-only function",
        complexity: "Depends on the function that is executed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "function", kind: "string", ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Flushall, name: "flushall", arity: -1,
        flags: Flags::WRITE,
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Remove all keys from all databases",
        complexity: "O(N) where N is the total number of keys in all databases",
        docs: &Docs {
            history: &[
                ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
                ("6.2.0", "Added the `SYNC` flushing mode modifier."),
            ],
            arguments: &[
                Argument { name: "async", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "async", kind: "pure-token", token: Some("ASYNC"), since: "4.0.0", ..Argument::NONE }, Argument { name: "sync", kind: "pure-token", token: Some("SYNC"), since: "6.2.0", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Flushdb, name: "flushdb", arity: -1,
        flags: Flags::WRITE,
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Remove all keys from the current database",
        complexity: "O(N) where N is the number of keys in the selected database",
        docs: &Docs {
            history: &[
                ("4.0.0", "Added the `ASYNC` flushing mode modifier."),
                ("6.2.0", "Added the `SYNC` flushing mode modifier."),
            ],
            arguments: &[
                Argument { name: "async", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "async", kind: "pure-token", token: Some("ASYNC"), since: "4.0.0", ..Argument::NONE }, Argument { name: "sync", kind: "pure-token", token: Some("SYNC"), since: "6.2.0", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Function, name: "function", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "A container for function commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "LOAD [REPLACE] <FUNCTION CODE>",
                "    Create a new library with the given library name and code.",
                "DELETE <LIBRARY NAME>",
                "    Delete the given library.",
                "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
                "    Return general information on all the libraries:",
                "    * Library name",
                "    * The engine used to run the Library",
                "    * Library description",
                "    * Functions list",
                "    * Library code (if WITHCODE is given)",
                "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
                "STATS",
                "    Return information about the current function running:",
                "    * Function name",
                "    * Command used to run the function",
                "    * Duration in MS that the function is running",
                "    If no function is running, return nil",
                "    In addition, returns a list of available engines.",
                "KILL",
                "    Kill the current running function.",
                "FLUSH [ASYNC|SYNC]",
                "    Delete all the libraries.",
                "    When called without the optional mode argument, the behavior is determined by the",
                "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
                "    * ASYNC: Asynchronously flush the libraries.",
                "    * SYNC: Synchronously flush the libraries.",
                "DUMP",
                "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
                "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
                "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
                "    control how to handle existing libraries (default APPEND):",
                "    * FLUSH: delete all existing libraries.",
                "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
                "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
                "      libraries with the new libraries (notice that even on this option there is a chance of failure",
                "      in case of functions name collision with another library).",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &FUNCTION_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Geoadd, name: "geoadd", arity: -5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.0",
        summary: "Add one or more geospatial items in the geospatial index represented using a sorted set",
        complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `CH`, `NX` and `XX` options."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "change", kind: "pure-token", token: Some("CH"), since: "6.2.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "longitude_latitude_member", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "longitude", kind: "double", ..Argument::NONE }, Argument { name: "latitude", kind: "double", ..Argument::NONE }, Argument { name: "member", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Geodist, name: "geodist", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.0",
        summary: "Returns the distance between two members of a geospatial index",
        complexity: "O(log(N))",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member1", kind: "string", ..Argument::NONE },
                Argument { name: "member2", kind: "string", ..Argument::NONE },
                Argument { name: "unit", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Geohash, name: "geohash", arity: -2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.0",
        summary: "Returns members of a geospatial index as standard geohash strings",
        complexity: "O(log(N)) for each member requested, where N is the number of elements in the sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Geopos, name: "geopos", arity: -2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.0",
        summary: "Returns longitude and latitude of members of a geospatial index",
        complexity: "O(N) where N is the number of members requested.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Georadius, name: "georadius", arity: -6,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Keyword { keyword: "STORE", start_from: 6 }, find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Keyword { keyword: "STOREDIST", start_from: 6 }, find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.0",
        summary: "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a point",
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
            history: &[
                ("6.2.0", "Added the `ANY` option for `COUNT`."),
                ("7.0.0", "Added support for uppercase unit names."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "longitude", kind: "double", ..Argument::NONE },
                Argument { name: "latitude", kind: "double", ..Argument::NONE },
                Argument { name: "radius", kind: "double", ..Argument::NONE },
                Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withcoord", kind: "pure-token", token: Some("WITHCOORD"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withdist", kind: "pure-token", token: Some("WITHDIST"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withhash", kind: "pure-token", token: Some("WITHHASH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), ..Argument::NONE }, Argument { name: "any", kind: "pure-token", token: Some("ANY"), since: "6.2.0", flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "key", kind: "key", token: Some("STORE"), key_spec_index: Some(1), flags: &["optional"], ..Argument::NONE },
                Argument { name: "key", kind: "key", token: Some("STOREDIST"), key_spec_index: Some(2), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::GeoradiusRo, name: "georadius_ro", arity: -6,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.10",
        summary: "A read-only variant for GEORADIUS",
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`GEOSEARCH` with the `BYRADIUS` argument",
            history: &[
                ("6.2.0", "Added the `ANY` option for `COUNT`."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "longitude", kind: "double", ..Argument::NONE },
                Argument { name: "latitude", kind: "double", ..Argument::NONE },
                Argument { name: "radius", kind: "double", ..Argument::NONE },
                Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withcoord", kind: "pure-token", token: Some("WITHCOORD"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withdist", kind: "pure-token", token: Some("WITHDIST"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withhash", kind: "pure-token", token: Some("WITHHASH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), ..Argument::NONE }, Argument { name: "any", kind: "pure-token", token: Some("ANY"), since: "6.2.0", flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Georadiusbymember, name: "georadiusbymember", arity: -5,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Keyword { keyword: "STORE", start_from: 5 }, find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Keyword { keyword: "STOREDIST", start_from: 5 }, find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.0",
        summary: "Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a member",
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
            history: &[
                ("7.0.0", "Added support for uppercase unit names."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
                Argument { name: "radius", kind: "double", ..Argument::NONE },
                Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withcoord", kind: "pure-token", token: Some("WITHCOORD"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withdist", kind: "pure-token", token: Some("WITHDIST"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withhash", kind: "pure-token", token: Some("WITHHASH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), ..Argument::NONE }, Argument { name: "any", kind: "pure-token", token: Some("ANY"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "key", kind: "key", token: Some("STORE"), key_spec_index: Some(1), flags: &["optional"], ..Argument::NONE },
                Argument { name: "key", kind: "key", token: Some("STOREDIST"), key_spec_index: Some(2), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::GeoradiusbymemberRo, name: "georadiusbymember_ro", arity: -5,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "3.2.10",
        summary: "A read-only variant for GEORADIUSBYMEMBER",
        complexity: "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
                Argument { name: "radius", kind: "double", ..Argument::NONE },
                Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withcoord", kind: "pure-token", token: Some("WITHCOORD"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withdist", kind: "pure-token", token: Some("WITHDIST"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withhash", kind: "pure-token", token: Some("WITHHASH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), ..Argument::NONE }, Argument { name: "any", kind: "pure-token", token: Some("ANY"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Geosearch, name: "geosearch", arity: -7,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "6.2.0",
        summary: "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle.",
        complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added support for uppercase unit names."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "from", kind: "oneof", arguments: &[Argument { name: "member", kind: "string", token: Some("FROMMEMBER"), ..Argument::NONE }, Argument { name: "longitude_latitude", kind: "block", token: Some("FROMLONLAT"), arguments: &[Argument { name: "longitude", kind: "double", ..Argument::NONE }, Argument { name: "latitude", kind: "double", ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "by", kind: "oneof", arguments: &[Argument { name: "circle", kind: "block", arguments: &[Argument { name: "radius", kind: "double", token: Some("BYRADIUS"), ..Argument::NONE }, Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }, Argument { name: "box", kind: "block", arguments: &[Argument { name: "width", kind: "double", token: Some("BYBOX"), ..Argument::NONE }, Argument { name: "height", kind: "double", ..Argument::NONE }, Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), ..Argument::NONE }, Argument { name: "any", kind: "pure-token", token: Some("ANY"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withcoord", kind: "pure-token", token: Some("WITHCOORD"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withdist", kind: "pure-token", token: Some("WITHDIST"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withhash", kind: "pure-token", token: Some("WITHHASH"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Geosearchstore, name: "geosearchstore", arity: -8,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::GEO).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "geo", since: "6.2.0",
        summary: "Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle, and store the result in another key.",
        complexity: "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added support for uppercase unit names."),
            ],
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "source", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "from", kind: "oneof", arguments: &[Argument { name: "member", kind: "string", token: Some("FROMMEMBER"), ..Argument::NONE }, Argument { name: "longitude_latitude", kind: "block", token: Some("FROMLONLAT"), arguments: &[Argument { name: "longitude", kind: "double", ..Argument::NONE }, Argument { name: "latitude", kind: "double", ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "by", kind: "oneof", arguments: &[Argument { name: "circle", kind: "block", arguments: &[Argument { name: "radius", kind: "double", token: Some("BYRADIUS"), ..Argument::NONE }, Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }, Argument { name: "box", kind: "block", arguments: &[Argument { name: "width", kind: "double", token: Some("BYBOX"), ..Argument::NONE }, Argument { name: "height", kind: "double", ..Argument::NONE }, Argument { name: "unit", kind: "oneof", arguments: &[Argument { name: "m", kind: "pure-token", token: Some("M"), ..Argument::NONE }, Argument { name: "km", kind: "pure-token", token: Some("KM"), ..Argument::NONE }, Argument { name: "ft", kind: "pure-token", token: Some("FT"), ..Argument::NONE }, Argument { name: "mi", kind: "pure-token", token: Some("MI"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), ..Argument::NONE }, Argument { name: "any", kind: "pure-token", token: Some("ANY"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "storedist", kind: "pure-token", token: Some("STOREDIST"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Get, name: "get", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Get the value of a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Getbit, name: "getbit", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::BITMAP).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "bitmap", since: "2.2.0",
        summary: "Returns the bit value at offset in the string value stored at key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "offset", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Getdel, name: "getdel", arity: 2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "6.2.0",
        summary: "Get the value of a key and delete the key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Getex, name: "getex", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "RW and UPDATE because it changes the TTL" },
        ],
        group: "string", since: "6.2.0",
        summary: "Get the value of a key and optionally set its expiration",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "expiration", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "seconds", kind: "integer", token: Some("EX"), ..Argument::NONE }, Argument { name: "milliseconds", kind: "integer", token: Some("PX"), ..Argument::NONE }, Argument { name: "unix-time-seconds", kind: "unix-time", token: Some("EXAT"), ..Argument::NONE }, Argument { name: "unix-time-milliseconds", kind: "unix-time", token: Some("PXAT"), ..Argument::NONE }, Argument { name: "persist", kind: "pure-token", token: Some("PERSIST"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Getrange, name: "getrange", arity: 4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.4.0",
        summary: "Get a substring of the string stored at a key",
        complexity: "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "integer", ..Argument::NONE },
                Argument { name: "end", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Getset, name: "getset", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Set the string value of a key and return its old value",
        complexity: "O(1)",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`SET` with the `!GET` argument",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hdel, name: "hdel", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Delete one or more hash fields",
        complexity: "O(N) where N is the number of fields to be removed.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple `field` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hello, name: "hello", arity: -1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.0.0",
        summary: "Handshake with Redis",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("6.2.0", "`protover` made optional; when called without arguments the command reports the current connection's context."),
            ],
            arguments: &[
                Argument { name: "arguments", kind: "block", flags: &["optional"], arguments: &[Argument { name: "protover", kind: "integer", ..Argument::NONE }, Argument { name: "username_password", kind: "block", token: Some("AUTH"), flags: &["optional"], arguments: &[Argument { name: "username", kind: "string", ..Argument::NONE }, Argument { name: "password", kind: "string", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "clientname", kind: "string", token: Some("SETNAME"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hexists, name: "hexists", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Determine if a hash field exists",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hexpire, name: "hexpire", arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Set in how many seconds fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "seconds", kind: "integer", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hexpireat, name: "hexpireat", arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Set the Unix time in seconds at which fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "unix-time-seconds", kind: "unix-time", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hexpiretime, name: "hexpiretime", arity: -5,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Tell the Unix time in seconds at which fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hget, name: "hget", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Get the value of a hash field",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hgetall, name: "hgetall", arity: 2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Get all the fields and values in a hash",
        complexity: "O(N) where N is the size of the hash.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hgetdel, name: "hgetdel", arity: -5,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "8.0.0",
        summary: "Get fields of a hash and delete them",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hgetex, name: "hgetex", arity: -5,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "RW and UPDATE because it changes the TTL" },
        ],
        group: "hash", since: "8.0.0",
        summary: "Get fields of a hash and set, or take away, when they expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "expiration", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "seconds", kind: "integer", token: Some("EX"), ..Argument::NONE }, Argument { name: "milliseconds", kind: "integer", token: Some("PX"), ..Argument::NONE }, Argument { name: "unix-time-seconds", kind: "unix-time", token: Some("EXAT"), ..Argument::NONE }, Argument { name: "unix-time-milliseconds", kind: "unix-time", token: Some("PXAT"), ..Argument::NONE }, Argument { name: "persist", kind: "pure-token", token: Some("PERSIST"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hincrby, name: "hincrby", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Increment the integer value of a hash field by the given number",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", ..Argument::NONE },
                Argument { name: "increment", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hincrbyfloat, name: "hincrbyfloat", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.6.0",
        summary: "Increment the float value of a hash field by the given amount",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", ..Argument::NONE },
                Argument { name: "increment", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hkeys, name: "hkeys", arity: 2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Get all the fields in a hash",
        complexity: "O(N) where N is the size of the hash.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hlen, name: "hlen", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Get the number of fields in a hash",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hmget, name: "hmget", arity: -3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Get the values of all the given hash fields",
        complexity: "O(N) where N is the number of fields being requested.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hmset, name: "hmset", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Set multiple hash fields to multiple values",
        complexity: "O(N) where N is the number of fields being set.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "4.0.0",
            replaced_by: "`HSET` with multiple field-value pairs",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field_value", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "field", kind: "string", ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hotkeys, name: "hotkeys", arity: -2,
        flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        key_specs: &[],
        group: "server", since: "8.6.0",
        summary: "Tell which keys are asked for most, and which have large values",
        complexity: "O(N) where N is the number of keys that are counted",
        docs: &Docs {
            arguments: &[
                Argument { name: "subcommand", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hpersist, name: "hpersist", arity: -5,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Let fields of a hash expire no more",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hpexpire, name: "hpexpire", arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Set in how many milliseconds fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "milliseconds", kind: "integer", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hpexpireat, name: "hpexpireat", arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Set the Unix time in milliseconds at which fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "unix-time-milliseconds", kind: "unix-time", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hpexpiretime, name: "hpexpiretime", arity: -5,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Tell the Unix time in milliseconds at which fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hpttl, name: "hpttl", arity: -5,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Tell in how many milliseconds fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hrandfield, name: "hrandfield", arity: -2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "6.2.0",
        summary: "Get one or multiple random fields from a hash",
        complexity: "O(N) where N is the number of fields returned",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "options", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", ..Argument::NONE }, Argument { name: "withvalues", kind: "pure-token", token: Some("WITHVALUES"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hscan, name: "hscan", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.8.0",
        summary: "Incrementally iterate hash fields and associated values",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "cursor", kind: "integer", ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("MATCH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hset, name: "hset", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Set the string value of a hash field",
        complexity: "O(1) for each field/value pair added, so O(N) to add N field/value pairs when the command is called with multiple field/value pairs.",
        docs: &Docs {
            history: &[
                ("4.0.0", "Accepts multiple `field` and `value` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field_value", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "field", kind: "string", ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hsetex, name: "hsetex", arity: -6,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "8.0.0",
        summary: "Set fields of a hash, and when they expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "fnx", kind: "pure-token", token: Some("FNX"), ..Argument::NONE }, Argument { name: "fxx", kind: "pure-token", token: Some("FXX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "expiration", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "seconds", kind: "integer", token: Some("EX"), ..Argument::NONE }, Argument { name: "milliseconds", kind: "integer", token: Some("PX"), ..Argument::NONE }, Argument { name: "unix-time-seconds", kind: "unix-time", token: Some("EXAT"), ..Argument::NONE }, Argument { name: "unix-time-milliseconds", kind: "unix-time", token: Some("PXAT"), ..Argument::NONE }, Argument { name: "keepttl", kind: "pure-token", token: Some("KEEPTTL"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "data", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "field", kind: "string", ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hsetnx, name: "hsetnx", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Set the value of a hash field, only if the field does not exist",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hstrlen, name: "hstrlen", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "3.2.0",
        summary: "Get the length of the value of a hash field",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "field", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Httl, name: "httl", arity: -5,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "7.4.0",
        summary: "Tell in how many seconds fields of a hash expire",
        complexity: "O(N) where N is the number of fields",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "fields", kind: "block", token: Some("FIELDS"), arguments: &[Argument { name: "numfields", kind: "integer", ..Argument::NONE }, Argument { name: "field", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Hvals, name: "hvals", arity: 2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::HASH).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hash", since: "2.0.0",
        summary: "Get all the values in a hash",
        complexity: "O(N) where N is the size of the hash.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Incr, name: "incr", arity: 2,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Increment the integer value of a key by one",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Incrby, name: "incrby", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Increment the integer value of a key by the given amount",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "increment", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Incrbyfloat, name: "incrbyfloat", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.6.0",
        summary: "Increment the float value of a key by the given amount",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "increment", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Info, name: "info", arity: -1,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Get information and statistics about the server",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added support for taking multiple section arguments."),
            ],
            arguments: &[
                Argument { name: "section", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Keys, name: "keys", arity: 2,
        flags: Flags::READONLY,
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_shards", "nondeterministic_output_order"],
        key_specs: &[],
        group: "generic", since: "1.0.0",
        summary: "Find all keys matching the given pattern",
        complexity: "O(N) with N being the number of keys in the database, under the assumption that the key names in the database and the given pattern have limited length.",
        docs: &Docs {
            arguments: &[
                Argument { name: "pattern", kind: "pattern", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lastsave, name: "lastsave", arity: 1,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::FAST).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Get the UNIX time stamp of the last successful save to disk",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Latency, name: "latency", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "A container for latency diagnostics commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "DOCTOR",
                "    Return a human readable latency analysis report.",
                "GRAPH <event>",
                "    Return an ASCII latency graph for the <event> class.",
                "HISTORY <event>",
                "    Return time-latency samples for the <event> class.",
                "LATEST",
                "    Return the latest latency samples for all events.",
                "RESET [<event> ...]",
                "    Reset latency data of one or more <event> classes.",
                "    (default: reset all data for all event classes)",
                "HISTOGRAM [COMMAND ...]",
                "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
                "    If no commands are specified then all histograms are replied.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &LATENCY_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Lcs, name: "lcs", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 2, 1),
        acl: Categories::READ.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "7.0.0",
        summary: "Find longest common substring",
        complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
        docs: &Docs {
            arguments: &[
                Argument { name: "key1", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "key2", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "len", kind: "pure-token", token: Some("LEN"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "idx", kind: "pure-token", token: Some("IDX"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "len", kind: "integer", token: Some("MINMATCHLEN"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withmatchlen", kind: "pure-token", token: Some("WITHMATCHLEN"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lindex, name: "lindex", arity: 3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Get an element from a list by its index",
        complexity: "O(N) where N is the number of elements to traverse to get to the element at index. This makes asking for the first or the last element of the list O(1).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "index", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Linsert, name: "linsert", arity: 5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "2.2.0",
        summary: "Insert an element before or after another element in a list",
        complexity: "O(N) where N is the number of elements to traverse before seeing the value pivot. This means that inserting somewhere on the left end on the list (head) can be considered O(1) and inserting somewhere on the right end (tail) is O(N).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "where", kind: "oneof", arguments: &[Argument { name: "before", kind: "pure-token", token: Some("BEFORE"), ..Argument::NONE }, Argument { name: "after", kind: "pure-token", token: Some("AFTER"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "pivot", kind: "string", ..Argument::NONE },
                Argument { name: "element", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Llen, name: "llen", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Get the length of a list",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lmove, name: "lmove", arity: 5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "6.2.0",
        summary: "Pop an element from a list, push it to another list and return it",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "source", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "destination", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "wherefrom", kind: "oneof", arguments: &[Argument { name: "left", kind: "pure-token", token: Some("LEFT"), ..Argument::NONE }, Argument { name: "right", kind: "pure-token", token: Some("RIGHT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "whereto", kind: "oneof", arguments: &[Argument { name: "left", kind: "pure-token", token: Some("LEFT"), ..Argument::NONE }, Argument { name: "right", kind: "pure-token", token: Some("RIGHT"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lmpop, name: "lmpop", arity: -4,
        flags: Flags::WRITE.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "list", since: "7.0.0",
        summary: "Pop elements from a list",
        complexity: "O(N+M) where N is the number of provided keys and M is the number of elements returned.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "where", kind: "oneof", arguments: &[Argument { name: "left", kind: "pure-token", token: Some("LEFT"), ..Argument::NONE }, Argument { name: "right", kind: "pure-token", token: Some("RIGHT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lolwut, name: "lolwut", arity: -1,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::FAST),
        tips: &[],
        key_specs: &[],
        group: "server", since: "5.0.0",
        summary: "Display some computer art and the Redis version",
        complexity: "",
        docs: &Docs {
            arguments: &[
                Argument { name: "version", kind: "integer", token: Some("VERSION"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lpop, name: "lpop", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Remove and get the first elements in a list",
        complexity: "O(N) where N is the number of elements returned",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `count` argument."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", since: "6.2.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lpos, name: "lpos", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "6.0.6",
        summary: "Return the index of matching elements on a list",
        complexity: "O(N) where N is the number of elements in the list, for the average case. When searching for elements near the head or the tail of the list, or when the MAXLEN option is provided, the command may run in constant time.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "element", kind: "string", ..Argument::NONE },
                Argument { name: "rank", kind: "integer", token: Some("RANK"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "num-matches", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "len", kind: "integer", token: Some("MAXLEN"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lpush, name: "lpush", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Prepend one or multiple elements to a list",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple `element` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "element", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lpushx, name: "lpushx", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "2.2.0",
        summary: "Prepend an element to a list, only if the list exists",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        docs: &Docs {
            history: &[
                ("4.0.0", "Accepts multiple `element` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "element", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lrange, name: "lrange", arity: 4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Get a range of elements from a list",
        complexity: "O(S+N) where S is the distance of start offset from HEAD for small lists, from nearest end (HEAD or TAIL) for large lists; and N is the number of elements in the specified range.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "integer", ..Argument::NONE },
                Argument { name: "stop", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lrem, name: "lrem", arity: 4,
        flags: Flags::WRITE,
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Remove elements from a list",
        complexity: "O(N+M) where N is the length of the list and M is the number of elements removed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", ..Argument::NONE },
                Argument { name: "element", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Lset, name: "lset", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Set the value of an element in a list by its index",
        complexity: "O(N) where N is the length of the list. Setting either the first or the last element of the list is O(1).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "index", kind: "integer", ..Argument::NONE },
                Argument { name: "element", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Ltrim, name: "ltrim", arity: 4,
        flags: Flags::WRITE,
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Trim a list to the specified range",
        complexity: "O(N) where N is the number of elements to be removed by the operation.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "integer", ..Argument::NONE },
                Argument { name: "stop", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Memory, name: "memory", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "A container for memory diagnostics commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "DOCTOR",
                "    Return memory problems reports.",
                "MALLOC-STATS",
                "    Return internal statistics report from the memory allocator.",
                "PURGE",
                "    Attempt to purge dirty pages for reclamation by the allocator.",
                "STATS",
                "    Return information about the memory usage of the server.",
                "USAGE <key> [SAMPLES <count>]",
                "    Return memory in bytes used by <key> and its value. Nested values are",
                "    sampled up to <count> times (default: 5, 0 means sample all).",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &MEMORY_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Mget, name: "mget", arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, -1, 1),
        acl: Categories::READ.with(Categories::STRING).with(Categories::FAST),
        tips: &["request_policy:multi_shard"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Get the values of all the given keys",
        complexity: "O(N) where N is the number of keys to retrieve.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Migrate, name: "migrate", arity: -6,
        flags: Flags::WRITE.with(Flags::MOVABLEKEYS),
        keys: (3, 3, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(3), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE).with(KeyFlags::INCOMPLETE), begin: BeginSearch::Keyword { keyword: "KEYS", start_from: -2 }, find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.6.0",
        summary: "Atomically transfer a key from a Redis instance to another one.",
        complexity: "This command actually executes a DUMP+DEL in the source instance, and a RESTORE in the target instance. See the pages of these commands for time complexity. Also an O(N) data transfer between the two instances is performed.",
        docs: &Docs {
            history: &[
                ("3.0.0", "Added the `COPY` and `REPLACE` options."),
                ("3.0.6", "Added the `KEYS` option."),
                ("4.0.7", "Added the `AUTH` option."),
                ("6.0.0", "Added the `AUTH2` option."),
            ],
            arguments: &[
                Argument { name: "host", kind: "string", ..Argument::NONE },
                Argument { name: "port", kind: "integer", ..Argument::NONE },
                Argument { name: "key_or_empty_string", kind: "oneof", arguments: &[Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE }, Argument { name: "empty_string", kind: "pure-token", token: Some(""), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "destination-db", kind: "integer", ..Argument::NONE },
                Argument { name: "timeout", kind: "integer", ..Argument::NONE },
                Argument { name: "copy", kind: "pure-token", token: Some("COPY"), since: "3.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "replace", kind: "pure-token", token: Some("REPLACE"), since: "3.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "authentication", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "password", kind: "string", token: Some("AUTH"), since: "4.0.7", flags: &["optional"], ..Argument::NONE }, Argument { name: "username_password", kind: "block", token: Some("AUTH2"), since: "6.0.0", flags: &["optional"], arguments: &[Argument { name: "username", kind: "string", ..Argument::NONE }, Argument { name: "password", kind: "string", ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "key", kind: "key", token: Some("KEYS"), key_spec_index: Some(1), since: "3.0.6", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Module, name: "module", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "A container for module commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "LIST",
                "    Return a list of loaded modules.",
                "LOAD <path> [<arg> ...]",
                "    Load a module library from <path>, passing to it any optional arguments.",
                "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
                "    Load a module library from <path>, while passing it module configurations and optional arguments.",
                "UNLOAD <name>",
                "    Unload a module.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &MODULE_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Monitor, name: "monitor", arity: 1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Listen for all requests received by the server in real time",
        complexity: "",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Move, name: "move", arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Move a key to another database",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "db", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Mset, name: "mset", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, -1, 2),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::SLOW),
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 2, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.1",
        summary: "Set multiple keys to multiple values",
        complexity: "O(N) where N is the number of keys to set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key_value", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Msetnx, name: "msetnx", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, -1, 2),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::SLOW),
        tips: &["request_policy:multi_shard", "response_policy:agg_min"],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 2, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.1",
        summary: "Set multiple keys to multiple values, only if none of the keys exist",
        complexity: "O(N) where N is the number of keys to set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key_value", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Multi, name: "multi", arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::TRANSACTION),
        tips: &[],
        key_specs: &[],
        group: "transactions", since: "1.2.0",
        summary: "Mark the start of a transaction block",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Object, name: "object", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "generic", since: "2.2.3",
        summary: "A container for object introspection commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "ENCODING <key>",
                "    Return the kind of internal representation used in order to store the value",
                "    associated with a <key>.",
                "FREQ <key>",
                "    Return the access frequency index of the <key>. The returned integer is",
                "    proportional to the logarithm of the recent access frequency of the key.",
                "IDLETIME <key>",
                "    Return the idle time of the <key>, that is the approximated number of",
                "    seconds elapsed since the last access to the key.",
                "REFCOUNT <key>",
                "    Return the number of references of the value associated with the specified",
                "    <key>.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &OBJECT_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Persist, name: "persist", arity: 2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.2.0",
        summary: "Remove the expiration from a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pexpire, name: "pexpire", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.6.0",
        summary: "Set a key's time to live in milliseconds",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "milliseconds", kind: "integer", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "7.0.0", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pexpireat, name: "pexpireat", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.6.0",
        summary: "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added options: `NX`, `XX`, `GT` and `LT`."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "unix-time-milliseconds", kind: "unix-time", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "7.0.0", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }, Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pexpiretime, name: "pexpiretime", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "7.0.0",
        summary: "Get the expiration Unix timestamp for a key in milliseconds",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pfadd, name: "pfadd", arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::HYPERLOGLOG).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hyperloglog", since: "2.8.9",
        summary: "Adds the specified elements to the specified HyperLogLog.",
        complexity: "O(1) to add every element.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "element", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pfcount, name: "pfcount", arity: -2,
        flags: Flags::READONLY,
        keys: (1, -1, 1),
        acl: Categories::READ.with(Categories::HYPERLOGLOG).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "RW because it may change the internal representation of the key, and propagate to replicas" },
        ],
        group: "hyperloglog", since: "2.8.9",
        summary: "Return the approximated cardinality of the set(s) observed by the HyperLogLog at key(s).",
        complexity: "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pfdebug, name: "pfdebug", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::ADMIN),
        keys: (2, 2, 1),
        acl: Categories::WRITE.with(Categories::HYPERLOGLOG).with(Categories::ADMIN).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hyperloglog", since: "2.8.9",
        summary: "Internal commands for debugging HyperLogLog values",
        complexity: "N/A",
        docs: &Docs {
            doc_flags: &["syscmd"],
            arguments: &[
                Argument { name: "subcommand", kind: "string", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pfmerge, name: "pfmerge", arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, -1, 1),
        acl: Categories::WRITE.with(Categories::HYPERLOGLOG).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "hyperloglog", since: "2.8.9",
        summary: "Merge N different HyperLogLogs into a single one.",
        complexity: "O(N) to merge N HyperLogLogs, but with high constant times.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destkey", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "sourcekey", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pfselftest, name: "pfselftest", arity: 1,
        flags: Flags::ADMIN,
        keys: (0, 0, 0),
        acl: Categories::HYPERLOGLOG.with(Categories::ADMIN).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "hyperloglog", since: "2.8.9",
        summary: "An internal command for testing HyperLogLog values",
        complexity: "N/A",
        docs: &Docs {
            doc_flags: &["syscmd"],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Ping, name: "ping", arity: -1,
        flags: Flags::FAST,
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "connection", since: "1.0.0",
        summary: "Ping the server",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "message", kind: "string", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Psetex, name: "psetex", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.6.0",
        summary: "Set the value and expiration in milliseconds of a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "milliseconds", kind: "integer", ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Psubscribe, name: "psubscribe", arity: -2,
        flags: Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.0.0",
        summary: "Listen for messages published to channels matching the given patterns",
        complexity: "O(N) where N is the number of patterns the client is already subscribed to.",
        docs: &Docs {
            arguments: &[
                Argument { name: "pattern", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "pattern", kind: "pattern", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Psync, name: "psync", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.0",
        summary: "Internal command used for replication",
        complexity: "",
        docs: &Docs {
            arguments: &[
                Argument { name: "replicationid", kind: "string", ..Argument::NONE },
                Argument { name: "offset", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pttl, name: "pttl", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.6.0",
        summary: "Get the time to live for a key in milliseconds",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("2.8.0", "Added the -2 reply."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Publish, name: "publish", arity: 3,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::FAST),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.0.0",
        summary: "Post a message to a channel",
        complexity: "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).",
        docs: &Docs {
            arguments: &[
                Argument { name: "channel", kind: "string", ..Argument::NONE },
                Argument { name: "message", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Pubsub, name: "pubsub", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.8.0",
        summary: "A container for Pub/Sub commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CHANNELS [<pattern>]",
                "    Return the currently active channels matching a <pattern> (default: '*').",
                "NUMPAT",
                "    Return number of subscriptions to patterns.",
                "NUMSUB [<channel> ...]",
                "    Return the number of subscribers for the specified channels, excluding",
                "    pattern subscriptions(default: no channels).",
                "SHARDCHANNELS [<pattern>]",
                "    Return the currently active shard level channels matching a <pattern> (default: '*').",
                "SHARDNUMSUB [<shardchannel> ...]",
                "    Return the number of subscribers for the specified shard level channel(s)",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &PUBSUB_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Punsubscribe, name: "punsubscribe", arity: -1,
        flags: Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.0.0",
        summary: "Stop listening for messages posted to channels matching the given patterns",
        complexity: "O(N+M) where N is the number of patterns the client is already subscribed and M is the number of total patterns subscribed in the system (by any client).",
        docs: &Docs {
            arguments: &[
                Argument { name: "pattern", kind: "pattern", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Quit, name: "quit", arity: -1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "1.0.0",
        summary: "Close the connection",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Randomkey, name: "randomkey", arity: 1,
        flags: Flags::READONLY,
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["request_policy:all_shards", "nondeterministic_output"],
        key_specs: &[],
        group: "generic", since: "1.0.0",
        summary: "Return a random key from the keyspace",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Readonly, name: "readonly", arity: 1,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Enables read queries for a connection to a cluster replica node",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Readwrite, name: "readwrite", arity: 1,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Disables read queries for a connection to a cluster replica node",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Rename, name: "rename", arity: 3,
        flags: Flags::WRITE,
        keys: (1, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Rename a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "newkey", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Renamenx, name: "renamenx", arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Rename a key, only if the new key does not exist",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("3.2.0", "The command no longer returns an error when source and destination names are the same."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "newkey", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Replconf, name: "replconf", arity: -1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "3.0.0",
        summary: "An internal command for configuring the replication stream",
        complexity: "O(1)",
        docs: &Docs {
            doc_flags: &["syscmd"],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Replicaof, name: "replicaof", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "5.0.0",
        summary: "Make the server a replica of another instance, or promote it as master.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "args", kind: "oneof", arguments: &[Argument { name: "host-port", kind: "block", arguments: &[Argument { name: "host", kind: "string", ..Argument::NONE }, Argument { name: "port", kind: "integer", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "no-one", kind: "block", arguments: &[Argument { name: "no", kind: "pure-token", token: Some("NO"), ..Argument::NONE }, Argument { name: "one", kind: "pure-token", token: Some("ONE"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Reset, name: "reset", arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::NO_AUTH).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.2.0",
        summary: "Reset the connection",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Restore, name: "restore", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.6.0",
        summary: "Create a key using the provided serialized value, previously obtained using DUMP.",
        complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
        docs: &Docs {
            history: &[
                ("3.0.0", "Added the `REPLACE` modifier."),
                ("5.0.0", "Added the `ABSTTL` modifier."),
                ("5.0.0", "Added the `IDLETIME` and `FREQ` options."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "ttl", kind: "integer", ..Argument::NONE },
                Argument { name: "serialized-value", kind: "string", ..Argument::NONE },
                Argument { name: "replace", kind: "pure-token", token: Some("REPLACE"), since: "3.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "absttl", kind: "pure-token", token: Some("ABSTTL"), since: "5.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "seconds", kind: "integer", token: Some("IDLETIME"), since: "5.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "frequency", kind: "integer", token: Some("FREQ"), since: "5.0.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::RestoreAsking, name: "restore-asking", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::ASKING),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "server", since: "3.0.0",
        summary: "An internal command for migrating keys in a cluster",
        complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of Redis objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
        docs: &Docs {
            doc_flags: &["syscmd"],
            history: &[
                ("3.0.0", "Added the `REPLACE` modifier."),
                ("5.0.0", "Added the `ABSTTL` modifier."),
                ("5.0.0", "Added the `IDLETIME` and `FREQ` options."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "ttl", kind: "integer", ..Argument::NONE },
                Argument { name: "serialized-value", kind: "string", ..Argument::NONE },
                Argument { name: "replace", kind: "pure-token", token: Some("REPLACE"), since: "3.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "absttl", kind: "pure-token", token: Some("ABSTTL"), since: "5.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "seconds", kind: "integer", token: Some("IDLETIME"), since: "5.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "frequency", kind: "integer", token: Some("FREQ"), since: "5.0.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Role, name: "role", arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::FAST).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.12",
        summary: "Return the role of the instance in the context of replication",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Rpop, name: "rpop", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Remove and get the last elements in a list",
        complexity: "O(N) where N is the number of elements returned",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `count` argument."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", since: "6.2.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Rpoplpush, name: "rpoplpush", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.2.0",
        summary: "Remove the last element in a list, prepend it to another list and return it",
        complexity: "O(1)",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`LMOVE` with the `RIGHT` and `LEFT` arguments",
            arguments: &[
                Argument { name: "source", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "destination", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Rpush, name: "rpush", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "1.0.0",
        summary: "Append one or multiple elements to a list",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple `element` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "element", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Rpushx, name: "rpushx", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::LIST).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "list", since: "2.2.0",
        summary: "Append an element to a list, only if the list exists",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        docs: &Docs {
            history: &[
                ("4.0.0", "Accepts multiple `element` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "element", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sadd, name: "sadd", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Add one or more members to a set",
        complexity: "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple `member` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Save, name: "save", arity: 1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Synchronously save the dataset to disk",
        complexity: "O(N) where N is the total number of keys in all databases",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Scan, name: "scan", arity: -2,
        flags: Flags::READONLY,
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["nondeterministic_output", "request_policy:special"],
        key_specs: &[],
        group: "generic", since: "2.8.0",
        summary: "Incrementally iterate the keys space",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection.",
        docs: &Docs {
            history: &[
                ("6.0.0", "Added the `TYPE` subcommand."),
            ],
            arguments: &[
                Argument { name: "cursor", kind: "integer", ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("MATCH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "type", kind: "string", token: Some("TYPE"), since: "6.0.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Scard, name: "scard", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Get the number of members in a set",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Script, name: "script", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "scripting", since: "2.6.0",
        summary: "A container for Lua scripts management commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "DEBUG (YES|SYNC|NO)",
                "    Set the debug mode for subsequent scripts executed.",
                "EXISTS <sha1> [<sha1> ...]",
                "    Return information about the existence of the scripts in the script cache.",
                "FLUSH [ASYNC|SYNC]",
                "    Flush the Lua scripts cache. Very dangerous on replicas.",
                "    When called without the optional mode argument, the behavior is determined by the",
                "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
                "    * ASYNC: Asynchronously flush the scripts cache.",
                "    * SYNC: Synchronously flush the scripts cache.",
                "KILL",
                "    Kill the currently executing Lua script.",
                "LOAD <script>",
                "    Load a script into the scripts cache without executing it.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &SCRIPT_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Sdiff, name: "sdiff", arity: -2,
        flags: Flags::READONLY,
        keys: (1, -1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Subtract multiple sets",
        complexity: "O(N) where N is the total number of elements in all given sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sdiffstore, name: "sdiffstore", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, -1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Subtract multiple sets and store the resulting set in a key",
        complexity: "O(N) where N is the total number of elements in all given sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Select, name: "select", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "1.0.0",
        summary: "Change the selected database for the current connection",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "index", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Set, name: "set", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE).with(KeyFlags::VARIABLE_FLAGS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "RW and ACCESS due to the optional `GET` argument" },
        ],
        group: "string", since: "1.0.0",
        summary: "Set the string value of a key",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("2.6.12", "Added the `EX`, `PX`, `NX` and `XX` options."),
                ("6.0.0", "Added the `KEEPTTL` option."),
                ("6.2.0", "Added the `GET`, `EXAT` and `PXAT` option."),
                ("7.0.0", "Allowed the `NX` and `GET` options to be used together."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "2.6.12", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "get", kind: "pure-token", token: Some("GET"), since: "6.2.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "expiration", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "seconds", kind: "integer", token: Some("EX"), since: "2.6.12", ..Argument::NONE }, Argument { name: "milliseconds", kind: "integer", token: Some("PX"), since: "2.6.12", ..Argument::NONE }, Argument { name: "unix-time-seconds", kind: "unix-time", token: Some("EXAT"), since: "6.2.0", ..Argument::NONE }, Argument { name: "unix-time-milliseconds", kind: "unix-time", token: Some("PXAT"), since: "6.2.0", ..Argument::NONE }, Argument { name: "keepttl", kind: "pure-token", token: Some("KEEPTTL"), since: "6.0.0", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Setbit, name: "setbit", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::BITMAP).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "bitmap", since: "2.2.0",
        summary: "Sets or clears the bit at offset in the string value stored at key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "offset", kind: "integer", ..Argument::NONE },
                Argument { name: "value", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Setex, name: "setex", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.0.0",
        summary: "Set the value and expiration of a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "seconds", kind: "integer", ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Setnx, name: "setnx", arity: 3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::INSERT), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Set the value of a key, only if the key does not exist",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Setrange, name: "setrange", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.2.0",
        summary: "Overwrite part of a string at key starting at the specified offset",
        complexity: "O(1), not counting the time taken to copy the new string in place. Usually, this string is very small so the amortized complexity is O(1). Otherwise, complexity is O(M) with M being the length of the value argument.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "offset", kind: "integer", ..Argument::NONE },
                Argument { name: "value", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Shutdown, name: "shutdown", arity: -1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::NO_MULTI).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Synchronously save the dataset to disk and then shut down the server",
        complexity: "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the `NOW`, `FORCE` and `ABORT` modifiers."),
            ],
            arguments: &[
                Argument { name: "nosave_save", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "nosave", kind: "pure-token", token: Some("NOSAVE"), ..Argument::NONE }, Argument { name: "save", kind: "pure-token", token: Some("SAVE"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "now", kind: "pure-token", token: Some("NOW"), since: "7.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "force", kind: "pure-token", token: Some("FORCE"), since: "7.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "abort", kind: "pure-token", token: Some("ABORT"), since: "7.0.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sinter, name: "sinter", arity: -2,
        flags: Flags::READONLY,
        keys: (1, -1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Intersect multiple sets",
        complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sintercard, name: "sintercard", arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "set", since: "7.0.0",
        summary: "Intersect multiple sets and return the cardinality of the result",
        complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "limit", kind: "integer", token: Some("LIMIT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sinterstore, name: "sinterstore", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, -1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Intersect multiple sets and store the resulting set in a key",
        complexity: "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sismember, name: "sismember", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Determine if a given value is a member of a set",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Slaveof, name: "slaveof", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Make the server a replica of another instance, or promote it as master.",
        complexity: "O(1)",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "5.0.0",
            replaced_by: "`REPLICAOF`",
            arguments: &[
                Argument { name: "args", kind: "oneof", arguments: &[Argument { name: "host-port", kind: "block", arguments: &[Argument { name: "host", kind: "string", ..Argument::NONE }, Argument { name: "port", kind: "integer", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "no-one", kind: "block", arguments: &[Argument { name: "no", kind: "pure-token", token: Some("NO"), ..Argument::NONE }, Argument { name: "one", kind: "pure-token", token: Some("ONE"), ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Slowlog, name: "slowlog", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.2.12",
        summary: "A container for slow log commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "GET [<count>]",
                "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
                "    Entries are made of:",
                "    id, timestamp, time in microseconds, arguments array, client IP and port,",
                "    client name",
                "LEN",
                "    Return the length of the slowlog.",
                "RESET",
                "    Reset the slowlog.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &SLOWLOG_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Smembers, name: "smembers", arity: 2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Get all the members in a set",
        complexity: "O(N) where N is the set cardinality.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Smismember, name: "smismember", arity: -3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "6.2.0",
        summary: "Returns the membership associated with the given elements for a set",
        complexity: "O(N) where N is the number of elements being checked for membership",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Smove, name: "smove", arity: 4,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Move a member from one set to another",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "source", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "destination", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sort, name: "sort", arity: -2,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::SORTEDSET).with(Categories::LIST).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Unknown, find: FindKeys::Unknown, notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort" },
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Unknown, find: FindKeys::Unknown, notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Sort the elements in a list, set or sorted set",
        complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("BY"), key_spec_index: Some(1), flags: &["optional"], ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("GET"), key_spec_index: Some(1), flags: &["optional", "multiple", "multiple_token"], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "sorting", kind: "pure-token", token: Some("ALPHA"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "destination", kind: "key", token: Some("STORE"), key_spec_index: Some(2), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::SortRo, name: "sort_ro", arity: -2,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SORTEDSET).with(Categories::LIST).with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Unknown, find: FindKeys::Unknown, notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort" },
        ],
        group: "generic", since: "7.0.0",
        summary: "Sort the elements in a list, set or sorted set. Read-only variant of SORT.",
        complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned elements. When the elements are not sorted, complexity is O(N).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("BY"), key_spec_index: Some(1), flags: &["optional"], ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("GET"), key_spec_index: Some(1), flags: &["optional", "multiple", "multiple_token"], ..Argument::NONE },
                Argument { name: "order", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "asc", kind: "pure-token", token: Some("ASC"), ..Argument::NONE }, Argument { name: "desc", kind: "pure-token", token: Some("DESC"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "sorting", kind: "pure-token", token: Some("ALPHA"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Spop, name: "spop", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Remove and return one or multiple random members from a set",
        complexity: "Without the count argument O(1), otherwise O(N) where N is the value of the passed count.",
        docs: &Docs {
            history: &[
                ("3.2.0", "Added the `count` argument."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", since: "3.2.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Spublish, name: "spublish", arity: 3,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::PUBSUB.with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::NOT_KEY, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "pubsub", since: "7.0.0",
        summary: "Post a message to a shard channel",
        complexity: "O(N) where N is the number of clients subscribed to the receiving shard channel.",
        docs: &Docs {
            arguments: &[
                Argument { name: "shardchannel", kind: "string", ..Argument::NONE },
                Argument { name: "message", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Srandmember, name: "srandmember", arity: -2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Get one or multiple random members from a set",
        complexity: "Without the count argument O(1), otherwise O(N) where N is the absolute value of the passed count.",
        docs: &Docs {
            history: &[
                ("2.6.0", "Added the optional `count` argument."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", since: "2.6.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Srem, name: "srem", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Remove one or more members from a set",
        complexity: "O(N) where N is the number of members to be removed.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple `member` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sscan, name: "sscan", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "2.8.0",
        summary: "Incrementally iterate Set elements",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "cursor", kind: "integer", ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("MATCH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Ssubscribe, name: "ssubscribe", arity: -2,
        flags: Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (1, -1, 1),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::NOT_KEY, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "pubsub", since: "7.0.0",
        summary: "Listen for messages published to the given shard channels",
        complexity: "O(N) where N is the number of shard channels to subscribe to.",
        docs: &Docs {
            arguments: &[
                Argument { name: "shardchannel", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Strlen, name: "strlen", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STRING).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "2.2.0",
        summary: "Get the length of the value stored in a key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Subscribe, name: "subscribe", arity: -2,
        flags: Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.0.0",
        summary: "Listen for messages published to the given channels",
        complexity: "O(N) where N is the number of channels to subscribe to.",
        docs: &Docs {
            arguments: &[
                Argument { name: "channel", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Substr, name: "substr", arity: 4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STRING).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "string", since: "1.0.0",
        summary: "Get a substring of the string stored at a key",
        complexity: "O(N) where N is the length of the returned string. The complexity is ultimately determined by the returned length, but because creating a substring from an existing string is very cheap, it can be considered O(1) for small strings.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "2.0.0",
            replaced_by: "`GETRANGE`",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "integer", ..Argument::NONE },
                Argument { name: "end", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sunion, name: "sunion", arity: -2,
        flags: Flags::READONLY,
        keys: (1, -1, 1),
        acl: Categories::READ.with(Categories::SET).with(Categories::SLOW),
        tips: &["nondeterministic_output_order"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Add multiple sets",
        complexity: "O(N) where N is the total number of elements in all given sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sunionstore, name: "sunionstore", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, -1, 1),
        acl: Categories::WRITE.with(Categories::SET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "set", since: "1.0.0",
        summary: "Add multiple sets and store the resulting set in a key",
        complexity: "O(N) where N is the total number of elements in all given sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sunsubscribe, name: "sunsubscribe", arity: -1,
        flags: Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (1, -1, 1),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::NOT_KEY, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "pubsub", since: "7.0.0",
        summary: "Stop listening for messages posted to the given shard channels",
        complexity: "O(N) where N is the number of clients already subscribed to a shard channel.",
        docs: &Docs {
            arguments: &[
                Argument { name: "shardchannel", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Swapdb, name: "swapdb", arity: 3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Swaps two Redis databases",
        complexity: "O(N) where N is the count of clients watching or blocking on keys from both databases.",
        docs: &Docs {
            arguments: &[
                Argument { name: "index1", kind: "integer", ..Argument::NONE },
                Argument { name: "index2", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Sync, name: "sync", arity: 1,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "1.0.0",
        summary: "Internal command used for replication",
        complexity: "",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Time, name: "time", arity: 1,
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        keys: (0, 0, 0),
        acl: Categories::FAST,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "server", since: "2.6.0",
        summary: "Return the current server time",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Touch, name: "touch", arity: -2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, -1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "3.2.1",
        summary: "Alters the last access time of a key(s). Returns the number of existing keys specified.",
        complexity: "O(N) where N is the number of keys that will be touched.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Ttl, name: "ttl", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Get the time to live for a key in seconds",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("2.8.0", "Added the -2 reply."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Type, name: "type", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "1.0.0",
        summary: "Determine the type stored at key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Unlink, name: "unlink", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, -1, 1),
        acl: Categories::KEYSPACE.with(Categories::WRITE).with(Categories::FAST),
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RM.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "4.0.0",
        summary: "Delete a key asynchronously in another thread. Otherwise it is just as DEL, but non blocking.",
        complexity: "O(1) for each key removed regardless of its size. Then the command does O(N) work in a different thread in order to reclaim memory, where N is the number of allocations the deleted objects where composed of.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Unsubscribe, name: "unsubscribe", arity: -1,
        flags: Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.0.0",
        summary: "Stop listening for messages posted to the given channels",
        complexity: "O(N) where N is the number of clients already subscribed to a channel.",
        docs: &Docs {
            arguments: &[
                Argument { name: "channel", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Unwatch, name: "unwatch", arity: 1,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::FAST.with(Categories::TRANSACTION),
        tips: &[],
        key_specs: &[],
        group: "transactions", since: "2.2.0",
        summary: "Forget about all watched keys",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Wait, name: "wait", arity: 3,
        flags: Flags::NOSCRIPT,
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &["request_policy:all_shards", "response_policy:agg_min"],
        key_specs: &[],
        group: "generic", since: "3.0.0",
        summary: "Wait for the synchronous replication of all the write commands sent in the context of the current connection",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "numreplicas", kind: "integer", ..Argument::NONE },
                Argument { name: "timeout", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Watch, name: "watch", arity: -2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::ALLOW_BUSY),
        keys: (1, -1, 1),
        acl: Categories::FAST.with(Categories::TRANSACTION),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: -1, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "transactions", since: "2.2.0",
        summary: "Watch the given keys to determine execution of the MULTI/EXEC block",
        complexity: "O(1) for every key.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xack, name: "xack", arity: -4,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Marks a pending message as correctly processed, effectively removing it from the pending entries list of the consumer group. Return value of the command is the number of messages successfully acknowledged, that is, the IDs we were actually able to resolve in the PEL.",
        complexity: "O(1) for each message ID processed.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "group", kind: "string", ..Argument::NONE },
                Argument { name: "id", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xadd, name: "xadd", arity: -5,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "UPDATE instead of INSERT because of the optional trimming feature" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Appends a new entry to a stream",
        complexity: "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `NOMKSTREAM` option, `MINID` trimming strategy and the `LIMIT` option."),
                ("7.0.0", "Added support for the `<ms>-*` explicit ID form."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "nomkstream", kind: "pure-token", token: Some("NOMKSTREAM"), since: "6.2.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "trim", kind: "block", flags: &["optional"], arguments: &[Argument { name: "strategy", kind: "oneof", arguments: &[Argument { name: "maxlen", kind: "pure-token", token: Some("MAXLEN"), ..Argument::NONE }, Argument { name: "minid", kind: "pure-token", token: Some("MINID"), since: "6.2.0", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "operator", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "equal", kind: "pure-token", token: Some("="), ..Argument::NONE }, Argument { name: "approximately", kind: "pure-token", token: Some("~"), ..Argument::NONE }], ..Argument::NONE }, Argument { name: "threshold", kind: "string", ..Argument::NONE }, Argument { name: "count", kind: "integer", token: Some("LIMIT"), since: "6.2.0", flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "id_or_auto", kind: "oneof", arguments: &[Argument { name: "auto_id", kind: "pure-token", token: Some("*"), ..Argument::NONE }, Argument { name: "id", kind: "string", ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "field_value", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "field", kind: "string", ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xautoclaim, name: "xautoclaim", arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "6.2.0",
        summary: "Changes (or acquires) ownership of messages in a consumer group, as if the messages were delivered to the specified consumer.",
        complexity: "O(1) if COUNT is small.",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added an element to the reply array, containing deleted entries the command cleared from the PEL"),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "group", kind: "string", ..Argument::NONE },
                Argument { name: "consumer", kind: "string", ..Argument::NONE },
                Argument { name: "min-idle-time", kind: "string", ..Argument::NONE },
                Argument { name: "start", kind: "string", ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "justid", kind: "pure-token", token: Some("JUSTID"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xclaim, name: "xclaim", arity: -6,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::FAST),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Changes (or acquires) ownership of a message in a consumer group, as if the message was delivered to the specified consumer.",
        complexity: "O(log N) with N being the number of messages in the PEL of the consumer group.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "group", kind: "string", ..Argument::NONE },
                Argument { name: "consumer", kind: "string", ..Argument::NONE },
                Argument { name: "min-idle-time", kind: "string", ..Argument::NONE },
                Argument { name: "id", kind: "string", flags: &["multiple"], ..Argument::NONE },
                Argument { name: "ms", kind: "integer", token: Some("IDLE"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "unix-time-milliseconds", kind: "unix-time", token: Some("TIME"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("RETRYCOUNT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "force", kind: "pure-token", token: Some("FORCE"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "justid", kind: "pure-token", token: Some("JUSTID"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "id", kind: "string", token: Some("LASTID"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xdel, name: "xdel", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Removes the specified entries from the stream. Returns the number of items actually deleted, that may be different from the number of IDs passed in case certain IDs do not exist.",
        complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "id", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xgroup, name: "xgroup", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "stream", since: "5.0.0",
        summary: "A container for consumer groups commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CREATE <key> <groupname> <id|$> [option]",
                "    Create a new consumer group. Options are:",
                "    * MKSTREAM",
                "      Create the empty stream if it does not exist.",
                "    * ENTRIESREAD entries_read",
                "      Set the group's entries_read counter (internal use).",
                "CREATECONSUMER <key> <groupname> <consumer>",
                "    Create a new consumer in the specified group.",
                "DELCONSUMER <key> <groupname> <consumer>",
                "    Remove the specified consumer.",
                "DESTROY <key> <groupname>",
                "    Remove the specified group.",
                "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
                "    Set the current group ID and entries_read counter.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &XGROUP_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Xinfo, name: "xinfo", arity: -2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "stream", since: "5.0.0",
        summary: "A container for stream introspection commands",
        complexity: "Depends on subcommand.",
        docs: &Docs {
            help: &[
                "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CONSUMERS <key> <groupname>",
                "    Show consumers of <groupname>.",
                "GROUPS <key>",
                "    Show the stream consumer groups.",
                "STREAM <key> [FULL [COUNT <count>]",
                "    Show information about the stream.",
                "HELP",
                "    Prints this help.",
            ],
            ..Docs::NONE
        },
        subcommands: &XINFO_SUBCOMMANDS,
    }.command(),
    Entry {
        verb: Verb::Xlen, name: "xlen", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Return the number of entries in a stream",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xpending, name: "xpending", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Return information and entries from a stream consumer group pending entries list, that are messages fetched but never acknowledged.",
        complexity: "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `IDLE` option and exclusive range intervals."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "group", kind: "string", ..Argument::NONE },
                Argument { name: "filters", kind: "block", flags: &["optional"], arguments: &[Argument { name: "min-idle-time", kind: "integer", token: Some("IDLE"), since: "6.2.0", flags: &["optional"], ..Argument::NONE }, Argument { name: "start", kind: "string", ..Argument::NONE }, Argument { name: "end", kind: "string", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }, Argument { name: "consumer", kind: "string", flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xrange, name: "xrange", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Return a range of elements in a stream, with IDs matching the specified IDs interval",
        complexity: "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added exclusive ranges."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "string", ..Argument::NONE },
                Argument { name: "end", kind: "string", ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xread, name: "xread", arity: -4,
        flags: Flags::READONLY.with(Flags::BLOCKING).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Keyword { keyword: "STREAMS", start_from: 1 }, find: FindKeys::Range { last_key: -1, key_step: 1, limit: 2 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Return never seen elements in multiple streams, with IDs greater than the ones reported by the caller for each stream. Can block.",
        complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.",
        docs: &Docs {
            arguments: &[
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "milliseconds", kind: "integer", token: Some("BLOCK"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "streams", kind: "block", token: Some("STREAMS"), arguments: &[Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE }, Argument { name: "id", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xreadgroup, name: "xreadgroup", arity: -7,
        flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW).with(Categories::BLOCKING),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Keyword { keyword: "STREAMS", start_from: 4 }, find: FindKeys::Range { last_key: -1, key_step: 1, limit: 2 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Return new entries from a stream using a consumer group, or access the history of the pending entries for a given consumer. Can block.",
        complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
        docs: &Docs {
            arguments: &[
                Argument { name: "group_consumer", kind: "block", token: Some("GROUP"), arguments: &[Argument { name: "group", kind: "string", ..Argument::NONE }, Argument { name: "consumer", kind: "string", ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "milliseconds", kind: "integer", token: Some("BLOCK"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "noack", kind: "pure-token", token: Some("NOACK"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "streams", kind: "block", token: Some("STREAMS"), arguments: &[Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE }, Argument { name: "id", kind: "string", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xrevrange, name: "xrevrange", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Return a range of elements in a stream, with IDs matching the specified IDs interval, in reverse order (from greater to smaller IDs) compared to XRANGE",
        complexity: "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added exclusive ranges."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "end", kind: "string", ..Argument::NONE },
                Argument { name: "start", kind: "string", ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xsetid, name: "xsetid", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "An internal command for replicating stream values",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the `entries_added` and `max_deleted_entry_id` arguments."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "last-id", kind: "string", ..Argument::NONE },
                Argument { name: "entries_added", kind: "integer", token: Some("ENTRIESADDED"), since: "7.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "max_deleted_entry_id", kind: "string", token: Some("MAXDELETEDID"), since: "7.0.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Xtrim, name: "xtrim", arity: -4,
        flags: Flags::WRITE,
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Trims the stream to (approximately if '~' is passed) a certain size",
        complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `MINID` trimming strategy and the `LIMIT` option."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "trim", kind: "block", arguments: &[Argument { name: "strategy", kind: "oneof", arguments: &[Argument { name: "maxlen", kind: "pure-token", token: Some("MAXLEN"), ..Argument::NONE }, Argument { name: "minid", kind: "pure-token", token: Some("MINID"), since: "6.2.0", ..Argument::NONE }], ..Argument::NONE }, Argument { name: "operator", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "equal", kind: "pure-token", token: Some("="), ..Argument::NONE }, Argument { name: "approximately", kind: "pure-token", token: Some("~"), ..Argument::NONE }], ..Argument::NONE }, Argument { name: "threshold", kind: "string", ..Argument::NONE }, Argument { name: "count", kind: "integer", token: Some("LIMIT"), since: "6.2.0", flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zadd, name: "zadd", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Add one or more members to a sorted set, or update its score if it already exists",
        complexity: "O(log(N)) for each item added, where N is the number of elements in the sorted set.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple elements."),
                ("3.0.2", "Added the `XX`, `NX`, `CH` and `INCR` options."),
                ("6.2.0", "Added the `GT` and `LT` options."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "condition", kind: "oneof", since: "3.0.2", flags: &["optional"], arguments: &[Argument { name: "nx", kind: "pure-token", token: Some("NX"), ..Argument::NONE }, Argument { name: "xx", kind: "pure-token", token: Some("XX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "comparison", kind: "oneof", since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "gt", kind: "pure-token", token: Some("GT"), ..Argument::NONE }, Argument { name: "lt", kind: "pure-token", token: Some("LT"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "change", kind: "pure-token", token: Some("CH"), since: "3.0.2", flags: &["optional"], ..Argument::NONE },
                Argument { name: "increment", kind: "pure-token", token: Some("INCR"), since: "3.0.2", flags: &["optional"], ..Argument::NONE },
                Argument { name: "score_member", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "score", kind: "double", ..Argument::NONE }, Argument { name: "member", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zcard, name: "zcard", arity: 2,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Get the number of members in a sorted set",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zcount, name: "zcount", arity: 4,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.0.0",
        summary: "Count the members in a sorted set with scores within the given values",
        complexity: "O(log(N)) with N being the number of elements in the sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "min", kind: "double", ..Argument::NONE },
                Argument { name: "max", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zdiff, name: "zdiff", arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Subtract multiple sorted sets",
        complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zdiffstore, name: "zdiffstore", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Subtract multiple sorted sets and store the resulting sorted set in a new key",
        complexity: "O(L + (N-K)log(N)) worst case where L is the total number of elements in all the sets, N is the size of the first set, and K is the size of the result set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zincrby, name: "zincrby", arity: 4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Increment the score of a member in a sorted set",
        complexity: "O(log(N)) where N is the number of elements in the sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "increment", kind: "integer", ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zinter, name: "zinter", arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Intersect multiple sorted sets",
        complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "weight", kind: "integer", token: Some("WEIGHTS"), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "aggregate", kind: "oneof", token: Some("AGGREGATE"), flags: &["optional"], arguments: &[Argument { name: "sum", kind: "pure-token", token: Some("SUM"), ..Argument::NONE }, Argument { name: "min", kind: "pure-token", token: Some("MIN"), ..Argument::NONE }, Argument { name: "max", kind: "pure-token", token: Some("MAX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zintercard, name: "zintercard", arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "7.0.0",
        summary: "Intersect multiple sorted sets and return the cardinality of the result",
        complexity: "O(N*K) worst case with N being the smallest input sorted set, K being the number of input sorted sets.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "limit", kind: "integer", token: Some("LIMIT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zinterstore, name: "zinterstore", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "2.0.0",
        summary: "Intersect multiple sorted sets and store the resulting sorted set in a new key",
        complexity: "O(N*K)+O(M*log(M)) worst case with N being the smallest input sorted set, K being the number of input sorted sets and M being the number of elements in the resulting sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "weight", kind: "integer", token: Some("WEIGHTS"), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "aggregate", kind: "oneof", token: Some("AGGREGATE"), flags: &["optional"], arguments: &[Argument { name: "sum", kind: "pure-token", token: Some("SUM"), ..Argument::NONE }, Argument { name: "min", kind: "pure-token", token: Some("MIN"), ..Argument::NONE }, Argument { name: "max", kind: "pure-token", token: Some("MAX"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zlexcount, name: "zlexcount", arity: 4,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.8.9",
        summary: "Count the number of members in a sorted set between a given lexicographical range",
        complexity: "O(log(N)) with N being the number of elements in the sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "min", kind: "string", ..Argument::NONE },
                Argument { name: "max", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zmpop, name: "zmpop", arity: -4,
        flags: Flags::WRITE.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "7.0.0",
        summary: "Remove and return members with scores in a sorted set",
        complexity: "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "where", kind: "oneof", arguments: &[Argument { name: "min", kind: "pure-token", token: Some("MIN"), ..Argument::NONE }, Argument { name: "max", kind: "pure-token", token: Some("MAX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zmscore, name: "zmscore", arity: -3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Get the score associated with the given members in a sorted set",
        complexity: "O(N) where N is the number of members being requested.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zpopmax, name: "zpopmax", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "5.0.0",
        summary: "Remove and return members with the highest scores in a sorted set",
        complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zpopmin, name: "zpopmin", arity: -2,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "5.0.0",
        summary: "Remove and return members with the lowest scores in a sorted set",
        complexity: "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrandmember, name: "zrandmember", arity: -2,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Get one or multiple random elements from a sorted set",
        complexity: "O(N) where N is the number of elements returned",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "options", kind: "block", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", ..Argument::NONE }, Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrange, name: "zrange", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Return a range of members in a sorted set",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `REV`, `BYSCORE`, `BYLEX` and `LIMIT` options."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "string", ..Argument::NONE },
                Argument { name: "stop", kind: "string", ..Argument::NONE },
                Argument { name: "sortby", kind: "oneof", since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "byscore", kind: "pure-token", token: Some("BYSCORE"), ..Argument::NONE }, Argument { name: "bylex", kind: "pure-token", token: Some("BYLEX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "rev", kind: "pure-token", token: Some("REV"), since: "6.2.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrangebylex, name: "zrangebylex", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.8.9",
        summary: "Return a range of members in a sorted set, by lexicographical range",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`ZRANGE` with the `BYLEX` argument",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "min", kind: "string", ..Argument::NONE },
                Argument { name: "max", kind: "string", ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrangebyscore, name: "zrangebyscore", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.0.5",
        summary: "Return a range of members in a sorted set, by score",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`ZRANGE` with the `BYSCORE` argument",
            history: &[
                ("2.0.0", "Added the `WITHSCORES` modifier."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "min", kind: "double", ..Argument::NONE },
                Argument { name: "max", kind: "double", ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), since: "2.0.0", flags: &["optional"], ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrangestore, name: "zrangestore", arity: -5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (1, 2, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Store a range of members from sorted set into another key",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements stored into the destination key.",
        docs: &Docs {
            arguments: &[
                Argument { name: "dst", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "src", kind: "key", key_spec_index: Some(1), ..Argument::NONE },
                Argument { name: "min", kind: "string", ..Argument::NONE },
                Argument { name: "max", kind: "string", ..Argument::NONE },
                Argument { name: "sortby", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "byscore", kind: "pure-token", token: Some("BYSCORE"), ..Argument::NONE }, Argument { name: "bylex", kind: "pure-token", token: Some("BYLEX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "rev", kind: "pure-token", token: Some("REV"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrank, name: "zrank", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.0.0",
        summary: "Determine the index of a member in a sorted set",
        complexity: "O(log(N))",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrem, name: "zrem", arity: -3,
        flags: Flags::WRITE.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Remove one or more members from a sorted set",
        complexity: "O(M*log(N)) with N being the number of elements in the sorted set and M the number of elements to be removed.",
        docs: &Docs {
            history: &[
                ("2.4.0", "Accepts multiple elements."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zremrangebylex, name: "zremrangebylex", arity: 4,
        flags: Flags::WRITE,
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.8.9",
        summary: "Remove all members in a sorted set between the given lexicographical range",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "min", kind: "string", ..Argument::NONE },
                Argument { name: "max", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zremrangebyrank, name: "zremrangebyrank", arity: 4,
        flags: Flags::WRITE,
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.0.0",
        summary: "Remove all members in a sorted set within the given indexes",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "integer", ..Argument::NONE },
                Argument { name: "stop", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zremrangebyscore, name: "zremrangebyscore", arity: 4,
        flags: Flags::WRITE,
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Remove all members in a sorted set within the given scores",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements removed by the operation.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "min", kind: "double", ..Argument::NONE },
                Argument { name: "max", kind: "double", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrevrange, name: "zrevrange", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Return a range of members in a sorted set, by index, with scores ordered from high to low",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements returned.",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`ZRANGE` with the `REV` argument",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "start", kind: "integer", ..Argument::NONE },
                Argument { name: "stop", kind: "integer", ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrevrangebylex, name: "zrevrangebylex", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.8.9",
        summary: "Return a range of members in a sorted set, by lexicographical range, ordered from higher to lower strings.",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`ZRANGE` with the `REV` and `BYLEX` arguments",
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "max", kind: "string", ..Argument::NONE },
                Argument { name: "min", kind: "string", ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrevrangebyscore, name: "zrevrangebyscore", arity: -4,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.2.0",
        summary: "Return a range of members in a sorted set, by score, with scores ordered from high to low",
        complexity: "O(log(N)+M) with N being the number of elements in the sorted set and M the number of elements being returned. If M is constant (e.g. always asking for the first 10 elements with LIMIT), you can consider it O(log(N)).",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "6.2.0",
            replaced_by: "`ZRANGE` with the `REV` and `BYSCORE` arguments",
            history: &[
                ("2.1.6", "`min` and `max` can be exclusive."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "max", kind: "double", ..Argument::NONE },
                Argument { name: "min", kind: "double", ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "offset_count", kind: "block", token: Some("LIMIT"), flags: &["optional"], arguments: &[Argument { name: "offset", kind: "integer", ..Argument::NONE }, Argument { name: "count", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zrevrank, name: "zrevrank", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.0.0",
        summary: "Determine the index of a member in a sorted set, with scores ordered from high to low",
        complexity: "O(log(N))",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zscan, name: "zscan", arity: -3,
        flags: Flags::READONLY,
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "2.8.0",
        summary: "Incrementally iterate sorted sets elements and associated scores",
        complexity: "O(1) for every call. O(N) for a complete iteration, including enough command calls for the cursor to return back to 0. N is the number of elements inside the collection..",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "cursor", kind: "integer", ..Argument::NONE },
                Argument { name: "pattern", kind: "pattern", token: Some("MATCH"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zscore, name: "zscore", arity: 3,
        flags: Flags::READONLY.with(Flags::FAST),
        keys: (1, 1, 1),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::FAST),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "sorted-set", since: "1.2.0",
        summary: "Get the score associated with the given member in a sorted set",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "member", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zunion, name: "zunion", arity: -3,
        flags: Flags::READONLY.with(Flags::MOVABLEKEYS),
        keys: (0, 0, 0),
        acl: Categories::READ.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(1), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "6.2.0",
        summary: "Add multiple sorted sets",
        complexity: "O(N)+O(M*log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(0), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "weight", kind: "integer", token: Some("WEIGHTS"), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "aggregate", kind: "oneof", token: Some("AGGREGATE"), flags: &["optional"], arguments: &[Argument { name: "sum", kind: "pure-token", token: Some("SUM"), ..Argument::NONE }, Argument { name: "min", kind: "pure-token", token: Some("MIN"), ..Argument::NONE }, Argument { name: "max", kind: "pure-token", token: Some("MAX"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "withscores", kind: "pure-token", token: Some("WITHSCORES"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::Zunionstore, name: "zunionstore", arity: -4,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLEKEYS),
        keys: (1, 1, 1),
        acl: Categories::WRITE.with(Categories::SORTEDSET).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::OW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(1), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::KeyNum { key_num_index: 0, first_key: 1, key_step: 1 }, notes: "" },
        ],
        group: "sorted-set", since: "2.0.0",
        summary: "Add multiple sorted sets and store the resulting sorted set in a new key",
        complexity: "O(N)+O(M log(M)) with N being the sum of the sizes of the input sorted sets, and M being the number of elements in the resulting sorted set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "destination", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "numkeys", kind: "integer", ..Argument::NONE },
                Argument { name: "key", kind: "key", key_spec_index: Some(1), flags: &["multiple"], ..Argument::NONE },
                Argument { name: "weight", kind: "integer", token: Some("WEIGHTS"), flags: &["optional", "multiple"], ..Argument::NONE },
                Argument { name: "aggregate", kind: "oneof", token: Some("AGGREGATE"), flags: &["optional"], arguments: &[Argument { name: "sum", kind: "pure-token", token: Some("SUM"), ..Argument::NONE }, Argument { name: "min", kind: "pure-token", token: Some("MIN"), ..Argument::NONE }, Argument { name: "max", kind: "pure-token", token: Some("MAX"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static ACL_SUBCOMMANDS: [Command; 13] = [
    Entry {
        verb: Verb::AclCat, name: "acl|cat", arity: -2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "List the ACL categories or the commands inside a category",
        complexity: "O(1) since the categories and commands are a fixed set.",
        docs: &Docs {
            arguments: &[
                Argument { name: "categoryname", kind: "string", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclDeluser, name: "acl|deluser", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Remove the specified ACL users and the associated rules",
        complexity: "O(1) amortized time considering the typical user.",
        docs: &Docs {
            arguments: &[
                Argument { name: "username", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclDryrun, name: "acl|dryrun", arity: -4,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "7.0.0",
        summary: "Returns whether the user can execute the given command without executing the command.",
        complexity: "O(1).",
        docs: &Docs {
            arguments: &[
                Argument { name: "username", kind: "string", ..Argument::NONE },
                Argument { name: "command", kind: "string", ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclGenpass, name: "acl|genpass", arity: -2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Generate a pseudorandom secure password to use for ACL users",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "bits", kind: "integer", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclGetuser, name: "acl|getuser", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Get the rules for a specific ACL user",
        complexity: "O(N). Where N is the number of password, command and pattern rules that the user has.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added Pub/Sub channel patterns."),
                ("7.0.0", "Added selectors and changed the format of key and channel patterns from a list to their rule representation."),
            ],
            arguments: &[
                Argument { name: "username", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclHelp, name: "acl|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclList, name: "acl|list", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "List the current ACL rules in ACL config file format",
        complexity: "O(N). Where N is the number of configured users.",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclLoad, name: "acl|load", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Reload the ACLs from the configured ACL file",
        complexity: "O(N). Where N is the number of configured users.",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclLog, name: "acl|log", arity: -2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "List latest events denied because of ACLs in place",
        complexity: "O(N) with N being the number of entries shown.",
        docs: &Docs {
            arguments: &[
                Argument { name: "operation", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", ..Argument::NONE }, Argument { name: "reset", kind: "pure-token", token: Some("RESET"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclSave, name: "acl|save", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Save the current ACL rules in the configured ACL file",
        complexity: "O(N). Where N is the number of configured users.",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclSetuser, name: "acl|setuser", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Modify or create the rules for a specific ACL user",
        complexity: "O(N). Where N is the number of rules provided.",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added Pub/Sub channel patterns."),
                ("7.0.0", "Added selectors and key based permissions."),
            ],
            arguments: &[
                Argument { name: "username", kind: "string", ..Argument::NONE },
                Argument { name: "rule", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclUsers, name: "acl|users", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "List the username of all the configured ACL rules",
        complexity: "O(N). Where N is the number of configured users.",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::AclWhoami, name: "acl|whoami", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.0.0",
        summary: "Return the name of the user associated to the current connection",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
];

static CLIENT_SUBCOMMANDS: [Command; 18] = [
    Entry {
        verb: Verb::ClientCaching, name: "client|caching", arity: 3,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.0.0",
        summary: "Instruct the server about tracking or not keys in the next request",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "mode", kind: "oneof", arguments: &[Argument { name: "yes", kind: "pure-token", token: Some("YES"), ..Argument::NONE }, Argument { name: "no", kind: "pure-token", token: Some("NO"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientGetname, name: "client|getname", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "2.6.9",
        summary: "Get the current connection name",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientGetredir, name: "client|getredir", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.0.0",
        summary: "Get tracking notifications redirection client ID if any",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientHelp, name: "client|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientId, name: "client|id", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "5.0.0",
        summary: "Returns the client ID for the current connection",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientInfo, name: "client|info", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "connection", since: "6.2.0",
        summary: "Returns information about the current client connection.",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientKill, name: "client|kill", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS).with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "2.4.0",
        summary: "Kill the connection of a client",
        complexity: "O(N) where N is the number of client connections",
        docs: &Docs {
            history: &[
                ("2.8.12", "Added new filter format."),
                ("2.8.12", "`ID` option."),
                ("3.2.0", "Added `master` type in for `TYPE` option."),
                ("5.0.0", "Replaced `slave` `TYPE` with `replica`. `slave` still supported for backward compatibility."),
                ("6.2.0", "`LADDR` option."),
            ],
            arguments: &[
                Argument { name: "filter", kind: "oneof", arguments: &[Argument { name: "ip:port", kind: "string", deprecated_since: "2.8.12", ..Argument::NONE }, Argument { name: "new-format", kind: "oneof", flags: &["multiple"], arguments: &[Argument { name: "client-id", kind: "integer", token: Some("ID"), since: "2.8.12", flags: &["optional"], ..Argument::NONE }, Argument { name: "normal_master_slave_pubsub", kind: "oneof", token: Some("TYPE"), since: "2.8.12", flags: &["optional"], arguments: &[Argument { name: "normal", kind: "pure-token", token: Some("NORMAL"), ..Argument::NONE }, Argument { name: "master", kind: "pure-token", token: Some("MASTER"), since: "3.2.0", ..Argument::NONE }, Argument { name: "slave", kind: "pure-token", token: Some("SLAVE"), ..Argument::NONE }, Argument { name: "replica", kind: "pure-token", token: Some("REPLICA"), since: "5.0.0", ..Argument::NONE }, Argument { name: "pubsub", kind: "pure-token", token: Some("PUBSUB"), ..Argument::NONE }], ..Argument::NONE }, Argument { name: "username", kind: "string", token: Some("USER"), flags: &["optional"], ..Argument::NONE }, Argument { name: "ip:port", kind: "string", token: Some("ADDR"), flags: &["optional"], ..Argument::NONE }, Argument { name: "ip:port", kind: "string", token: Some("LADDR"), since: "6.2.0", flags: &["optional"], ..Argument::NONE }, Argument { name: "yes/no", kind: "string", token: Some("SKIPME"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientList, name: "client|list", arity: -2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS).with(Categories::CONNECTION),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "connection", since: "2.4.0",
        summary: "Get the list of client connections",
        complexity: "O(N) where N is the number of client connections",
        docs: &Docs {
            history: &[
                ("2.8.12", "Added unique client `id` field."),
                ("5.0.0", "Added optional `TYPE` filter."),
                ("6.0.0", "Added `user` field."),
                ("6.2.0", "Added `argv-mem`, `tot-mem`, `laddr` and `redir` fields and the optional `ID` filter."),
                ("7.0.0", "Added `resp`, `multi-mem`, `rbs` and `rbp` fields."),
                ("7.0.3", "Added `ssub` field."),
            ],
            arguments: &[
                Argument { name: "normal_master_replica_pubsub", kind: "oneof", token: Some("TYPE"), since: "5.0.0", flags: &["optional"], arguments: &[Argument { name: "normal", kind: "pure-token", token: Some("NORMAL"), ..Argument::NONE }, Argument { name: "master", kind: "pure-token", token: Some("MASTER"), ..Argument::NONE }, Argument { name: "replica", kind: "pure-token", token: Some("REPLICA"), ..Argument::NONE }, Argument { name: "pubsub", kind: "pure-token", token: Some("PUBSUB"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "id", kind: "block", token: Some("ID"), since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "client-id", kind: "integer", flags: &["multiple"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientNoEvict, name: "client|no-evict", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS).with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "7.0.0",
        summary: "Set client eviction mode for the current connection",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "enabled", kind: "oneof", arguments: &[Argument { name: "on", kind: "pure-token", token: Some("ON"), ..Argument::NONE }, Argument { name: "off", kind: "pure-token", token: Some("OFF"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientNoTouch, name: "client|no-touch", arity: 3,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "7.2.0",
        summary: "Choose whether the connection's commands count as uses of the keys",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "enabled", kind: "oneof", arguments: &[Argument { name: "on", kind: "pure-token", token: Some("ON"), ..Argument::NONE }, Argument { name: "off", kind: "pure-token", token: Some("OFF"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientPause, name: "client|pause", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS).with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "2.9.50",
        summary: "Stop processing commands from clients for some time",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("6.2.0", "`CLIENT PAUSE WRITE` mode added along with the `mode` option."),
            ],
            arguments: &[
                Argument { name: "timeout", kind: "integer", ..Argument::NONE },
                Argument { name: "mode", kind: "oneof", since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "write", kind: "pure-token", token: Some("WRITE"), ..Argument::NONE }, Argument { name: "all", kind: "pure-token", token: Some("ALL"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientReply, name: "client|reply", arity: 3,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "3.2.0",
        summary: "Instruct the server whether to reply to commands",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "on_off_skip", kind: "oneof", arguments: &[Argument { name: "on", kind: "pure-token", token: Some("ON"), ..Argument::NONE }, Argument { name: "off", kind: "pure-token", token: Some("OFF"), ..Argument::NONE }, Argument { name: "skip", kind: "pure-token", token: Some("SKIP"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientSetinfo, name: "client|setinfo", arity: 4,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "7.2.0",
        summary: "Tell which client library the connection uses",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "attr", kind: "oneof", arguments: &[Argument { name: "lib-name", kind: "pure-token", token: Some("LIB-NAME"), ..Argument::NONE }, Argument { name: "lib-ver", kind: "pure-token", token: Some("LIB-VER"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientSetname, name: "client|setname", arity: 3,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "2.6.9",
        summary: "Set the current connection name",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "connection-name", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientTracking, name: "client|tracking", arity: -3,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.0.0",
        summary: "Enable or disable server assisted client side caching support",
        complexity: "O(1). Some options may introduce additional complexity.",
        docs: &Docs {
            arguments: &[
                Argument { name: "status", kind: "oneof", arguments: &[Argument { name: "on", kind: "pure-token", token: Some("ON"), ..Argument::NONE }, Argument { name: "off", kind: "pure-token", token: Some("OFF"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "client-id", kind: "integer", token: Some("REDIRECT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "prefix", kind: "string", token: Some("PREFIX"), flags: &["optional", "multiple", "multiple_token"], ..Argument::NONE },
                Argument { name: "bcast", kind: "pure-token", token: Some("BCAST"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "optin", kind: "pure-token", token: Some("OPTIN"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "optout", kind: "pure-token", token: Some("OPTOUT"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "noloop", kind: "pure-token", token: Some("NOLOOP"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientTrackinginfo, name: "client|trackinginfo", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.2.0",
        summary: "Return information about server assisted client side caching for the current connection",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientUnblock, name: "client|unblock", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS).with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "5.0.0",
        summary: "Unblock a client blocked in a blocking command from a different connection",
        complexity: "O(log N) where N is the number of client connections",
        docs: &Docs {
            arguments: &[
                Argument { name: "client-id", kind: "integer", ..Argument::NONE },
                Argument { name: "timeout_error", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "timeout", kind: "pure-token", token: Some("TIMEOUT"), ..Argument::NONE }, Argument { name: "error", kind: "pure-token", token: Some("ERROR"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClientUnpause, name: "client|unpause", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS).with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "connection", since: "6.2.0",
        summary: "Resume processing of clients that were paused",
        complexity: "O(N) Where N is the number of paused clients",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
];

static CLUSTER_SUBCOMMANDS: [Command; 28] = [
    Entry {
        verb: Verb::ClusterAddslots, name: "cluster|addslots", arity: -3,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Assign new hash slots to receiving node",
        complexity: "O(N) where N is the total number of hash slot arguments",
        docs: &Docs {
            arguments: &[
                Argument { name: "slot", kind: "integer", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterAddslotsrange, name: "cluster|addslotsrange", arity: -4,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "7.0.0",
        summary: "Assign new hash slots to receiving node",
        complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        docs: &Docs {
            arguments: &[
                Argument { name: "start-slot_end-slot", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "start-slot", kind: "integer", ..Argument::NONE }, Argument { name: "end-slot", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterBumpepoch, name: "cluster|bumpepoch", arity: 2,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Advance the cluster config epoch",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterCountFailureReports, name: "cluster|count-failure-reports", arity: 3,
        flags: Flags::ADMIN.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Return the number of failure reports active for a given node",
        complexity: "O(N) where N is the number of failure reports",
        docs: &Docs {
            arguments: &[
                Argument { name: "node-id", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterCountkeysinslot, name: "cluster|countkeysinslot", arity: 3,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Return the number of local keys in the specified hash slot",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "slot", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterDelslots, name: "cluster|delslots", arity: -3,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Set hash slots as unbound in receiving node",
        complexity: "O(N) where N is the total number of hash slot arguments",
        docs: &Docs {
            arguments: &[
                Argument { name: "slot", kind: "integer", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterDelslotsrange, name: "cluster|delslotsrange", arity: -4,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "7.0.0",
        summary: "Set hash slots as unbound in receiving node",
        complexity: "O(N) where N is the total number of the slots between the start slot and end slot arguments.",
        docs: &Docs {
            arguments: &[
                Argument { name: "start-slot_end-slot", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "start-slot", kind: "integer", ..Argument::NONE }, Argument { name: "end-slot", kind: "integer", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterFailover, name: "cluster|failover", arity: -2,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Forces a replica to perform a manual failover of its master.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "options", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "force", kind: "pure-token", token: Some("FORCE"), ..Argument::NONE }, Argument { name: "takeover", kind: "pure-token", token: Some("TAKEOVER"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterFlushslots, name: "cluster|flushslots", arity: 2,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Delete a node's own slots information",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterForget, name: "cluster|forget", arity: 3,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Remove a node from the nodes table",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "node-id", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterGetkeysinslot, name: "cluster|getkeysinslot", arity: 4,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Return local key names in the specified hash slot",
        complexity: "O(log(N)) where N is the number of requested keys",
        docs: &Docs {
            arguments: &[
                Argument { name: "slot", kind: "integer", ..Argument::NONE },
                Argument { name: "count", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterHelp, name: "cluster|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterInfo, name: "cluster|info", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Provides info about Redis Cluster node state",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterKeyslot, name: "cluster|keyslot", arity: 3,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Returns the hash slot of the specified key",
        complexity: "O(N) where N is the number of bytes in the key",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterLinks, name: "cluster|links", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "7.0.0",
        summary: "Returns a list of all TCP links to and from peer nodes in cluster",
        complexity: "O(N) where N is the total number of Cluster nodes",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterMeet, name: "cluster|meet", arity: -4,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Force a node cluster to handshake with another node",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("4.0.0", "Added the optional `cluster_bus_port` argument."),
            ],
            arguments: &[
                Argument { name: "ip", kind: "string", ..Argument::NONE },
                Argument { name: "port", kind: "integer", ..Argument::NONE },
                Argument { name: "cluster_bus_port", kind: "integer", since: "4.0.0", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterMyid, name: "cluster|myid", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Return the node id",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterMyshardid, name: "cluster|myshardid", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "7.2.0",
        summary: "Return the node's shard id",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterNodes, name: "cluster|nodes", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Get Cluster config for the node",
        complexity: "O(N) where N is the total number of Cluster nodes",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterReplicas, name: "cluster|replicas", arity: 3,
        flags: Flags::ADMIN.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "5.0.0",
        summary: "List replica nodes of the specified master node",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "node-id", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterReplicate, name: "cluster|replicate", arity: 3,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Reconfigure a node as a replica of the specified master node",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "node-id", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterReset, name: "cluster|reset", arity: -2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Reset a Redis Cluster node",
        complexity: "O(N) where N is the number of known nodes. The command may execute a FLUSHALL as a side effect.",
        docs: &Docs {
            arguments: &[
                Argument { name: "hard_soft", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "hard", kind: "pure-token", token: Some("HARD"), ..Argument::NONE }, Argument { name: "soft", kind: "pure-token", token: Some("SOFT"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterSaveconfig, name: "cluster|saveconfig", arity: 2,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Forces the node to save cluster state on disk",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterSetConfigEpoch, name: "cluster|set-config-epoch", arity: 3,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Set the configuration epoch in a new node",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "config-epoch", kind: "integer", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterSetslot, name: "cluster|setslot", arity: -4,
        flags: Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Bind a hash slot to a specific node",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "slot", kind: "integer", ..Argument::NONE },
                Argument { name: "subcommand", kind: "oneof", arguments: &[Argument { name: "node-id", kind: "string", token: Some("IMPORTING"), ..Argument::NONE }, Argument { name: "node-id", kind: "string", token: Some("MIGRATING"), ..Argument::NONE }, Argument { name: "node-id", kind: "string", token: Some("NODE"), ..Argument::NONE }, Argument { name: "stable", kind: "pure-token", token: Some("STABLE"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterShards, name: "cluster|shards", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "7.0.0",
        summary: "Get array of cluster slots to node mappings",
        complexity: "O(N) where N is the total number of cluster nodes",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterSlaves, name: "cluster|slaves", arity: 3,
        flags: Flags::ADMIN.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "List replica nodes of the specified master node",
        complexity: "O(1)",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "5.0.0",
            replaced_by: "`CLUSTER REPLICAS`",
            arguments: &[
                Argument { name: "node-id", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ClusterSlots, name: "cluster|slots", arity: 2,
        flags: Flags::STALE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output"],
        key_specs: &[],
        group: "cluster", since: "3.0.0",
        summary: "Get array of Cluster slot to node mappings",
        complexity: "O(N) where N is the total number of Cluster nodes",
        docs: &Docs {
            doc_flags: &["deprecated"],
            deprecated_since: "7.0.0",
            replaced_by: "`CLUSTER SHARDS`",
            history: &[
                ("4.0.0", "Added node IDs."),
                ("7.0.0", "Added additional networking metadata field."),
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static COMMAND_SUBCOMMANDS: [Command; 7] = [
    Entry {
        verb: Verb::CommandCount, name: "command|count", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Get total number of Redis commands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::CommandDocs, name: "command|docs", arity: -2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &["nondeterministic_output_order"],
        key_specs: &[],
        group: "server", since: "7.0.0",
        summary: "Get array of specific Redis command documentation",
        complexity: "O(N) where N is the number of commands to look up",
        docs: &Docs {
            arguments: &[
                Argument { name: "command-name", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::CommandGetkeys, name: "command|getkeys", arity: -4,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Extract keys given a full Redis command",
        complexity: "O(N) where N is the number of arguments to the command",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::CommandGetkeysandflags, name: "command|getkeysandflags", arity: -4,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "server", since: "7.0.0",
        summary: "Extract keys and access flags given a full Redis command",
        complexity: "O(N) where N is the number of arguments to the command",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::CommandHelp, name: "command|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &[],
        key_specs: &[],
        group: "server", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::CommandInfo, name: "command|info", arity: -2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &["nondeterministic_output_order"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Get array of specific Redis command details, or all when no argument is given.",
        complexity: "O(N) where N is the number of commands to look up",
        docs: &Docs {
            history: &[
                ("7.0.0", "Allowed to be called with no argument to get info on all commands."),
            ],
            arguments: &[
                Argument { name: "command-name", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::CommandList, name: "command|list", arity: -2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::CONNECTION),
        tips: &["nondeterministic_output_order"],
        key_specs: &[],
        group: "server", since: "7.0.0",
        summary: "Get an array of Redis command names",
        complexity: "O(N) where N is the total number of Redis commands",
        docs: &Docs {
            arguments: &[
                Argument { name: "filterby", kind: "oneof", token: Some("FILTERBY"), flags: &["optional"], arguments: &[Argument { name: "module-name", kind: "string", token: Some("MODULE"), ..Argument::NONE }, Argument { name: "category", kind: "string", token: Some("ACLCAT"), ..Argument::NONE }, Argument { name: "pattern", kind: "pattern", token: Some("PATTERN"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static CONFIG_SUBCOMMANDS: [Command; 5] = [
    Entry {
        verb: Verb::ConfigGet, name: "config|get", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.0.0",
        summary: "Get the values of configuration parameters",
        complexity: "O(N) when N is the number of configuration parameters provided",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the ability to pass multiple pattern parameters in one call"),
            ],
            arguments: &[
                Argument { name: "parameter", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "parameter", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ConfigHelp, name: "config|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ConfigResetstat, name: "config|resetstat", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.0.0",
        summary: "Reset the stats returned by INFO",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ConfigRewrite, name: "config|rewrite", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.0",
        summary: "Rewrite the configuration file with the in memory configuration",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ConfigSet, name: "config|set", arity: -4,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "server", since: "2.0.0",
        summary: "Set configuration parameters to the given values",
        complexity: "O(N) when N is the number of configuration parameters provided",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the ability to set multiple parameters in one call."),
            ],
            arguments: &[
                Argument { name: "parameter_value", kind: "block", flags: &["multiple"], arguments: &[Argument { name: "parameter", kind: "string", ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static FUNCTION_SUBCOMMANDS: [Command; 9] = [
    Entry {
        verb: Verb::FunctionDelete, name: "function|delete", arity: 3,
        flags: Flags::WRITE.with(Flags::NOSCRIPT),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::SLOW).with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Delete a function by name",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "library-name", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionDump, name: "function|dump", arity: 2,
        flags: Flags::NOSCRIPT,
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Dump all functions into a serialized binary payload",
        complexity: "O(N) where N is the number of functions",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionFlush, name: "function|flush", arity: -2,
        flags: Flags::WRITE.with(Flags::NOSCRIPT),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::SLOW).with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Deleting all functions",
        complexity: "O(N) where N is the number of functions deleted",
        docs: &Docs {
            arguments: &[
                Argument { name: "async", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "async", kind: "pure-token", token: Some("ASYNC"), ..Argument::NONE }, Argument { name: "sync", kind: "pure-token", token: Some("SYNC"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionHelp, name: "function|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionKill, name: "function|kill", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Kill the function currently in execution.",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionList, name: "function|list", arity: -2,
        flags: Flags::NOSCRIPT,
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["nondeterministic_output_order"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "List information about all the functions",
        complexity: "O(N) where N is the number of functions",
        docs: &Docs {
            arguments: &[
                Argument { name: "library-name-pattern", kind: "string", token: Some("LIBRARYNAME"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "withcode", kind: "pure-token", token: Some("WITHCODE"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionLoad, name: "function|load", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::SLOW).with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Create a function with the given arguments (name, code, description)",
        complexity: "O(1) (considering compilation time is redundant)",
        docs: &Docs {
            arguments: &[
                Argument { name: "replace", kind: "pure-token", token: Some("REPLACE"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "function-code", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionRestore, name: "function|restore", arity: -3,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT),
        keys: (0, 0, 0),
        acl: Categories::WRITE.with(Categories::SLOW).with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Restore all the functions on the given payload",
        complexity: "O(N) where N is the number of functions on the payload",
        docs: &Docs {
            arguments: &[
                Argument { name: "serialized-value", kind: "string", ..Argument::NONE },
                Argument { name: "policy", kind: "oneof", flags: &["optional"], arguments: &[Argument { name: "flush", kind: "pure-token", token: Some("FLUSH"), ..Argument::NONE }, Argument { name: "append", kind: "pure-token", token: Some("APPEND"), ..Argument::NONE }, Argument { name: "replace", kind: "pure-token", token: Some("REPLACE"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::FunctionStats, name: "function|stats", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        key_specs: &[],
        group: "scripting", since: "7.0.0",
        summary: "Return information about the function currently running (name, description, duration)",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
];

static LATENCY_SUBCOMMANDS: [Command; 7] = [
    Entry {
        verb: Verb::LatencyDoctor, name: "latency|doctor", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Return a human readable latency analysis report.",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::LatencyGraph, name: "latency|graph", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Return a latency graph for the event.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "event", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::LatencyHelp, name: "latency|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Show helpful text about the different subcommands.",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::LatencyHistogram, name: "latency|histogram", arity: -2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "7.0.0",
        summary: "Return the cumulative distribution of latencies of a subset of commands or all.",
        complexity: "O(N) where N is the number of commands with latency information being retrieved.",
        docs: &Docs {
            arguments: &[
                Argument { name: "command", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::LatencyHistory, name: "latency|history", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Return timestamp-latency samples for the event.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "event", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::LatencyLatest, name: "latency|latest", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Return the latest latency samples for all events.",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::LatencyReset, name: "latency|reset", arity: -2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "server", since: "2.8.13",
        summary: "Reset latency data for one or more events.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "event", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static MEMORY_SUBCOMMANDS: [Command; 6] = [
    Entry {
        verb: Verb::MemoryDoctor, name: "memory|doctor", arity: 2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Outputs memory problems report",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::MemoryHelp, name: "memory|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::MemoryMallocStats, name: "memory|malloc-stats", arity: 2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Show allocator internal stats",
        complexity: "Depends on how much memory is allocated, could be slow",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::MemoryPurge, name: "memory|purge", arity: 2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Ask the allocator to release memory",
        complexity: "Depends on how much memory is allocated, could be slow",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::MemoryStats, name: "memory|stats", arity: 2,
        flags: Flags::NONE,
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Show memory usage details",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::MemoryUsage, name: "memory|usage", arity: -3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::READ.with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "server", since: "4.0.0",
        summary: "Estimate the memory usage of a key",
        complexity: "O(N) where N is the number of samples.",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "count", kind: "integer", token: Some("SAMPLES"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static MODULE_SUBCOMMANDS: [Command; 5] = [
    Entry {
        verb: Verb::ModuleHelp, name: "module|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ModuleList, name: "module|list", arity: 2,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["nondeterministic_output_order"],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "List all modules loaded by the server",
        complexity: "O(N) where N is the number of loaded modules.",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ModuleLoad, name: "module|load", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Load a module",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "path", kind: "string", ..Argument::NONE },
                Argument { name: "arg", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ModuleLoadex, name: "module|loadex", arity: -3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "7.0.0",
        summary: "Load a module with extended parameters",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "path", kind: "string", ..Argument::NONE },
                Argument { name: "configs", kind: "block", token: Some("CONFIG"), flags: &["optional", "multiple", "multiple_token"], arguments: &[Argument { name: "name", kind: "string", ..Argument::NONE }, Argument { name: "value", kind: "string", ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "args", kind: "block", token: Some("ARGS"), flags: &["optional", "multiple"], arguments: &[Argument { name: "arg", kind: "string", ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ModuleUnload, name: "module|unload", arity: 3,
        flags: Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &[],
        key_specs: &[],
        group: "server", since: "4.0.0",
        summary: "Unload a module",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "name", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static OBJECT_SUBCOMMANDS: [Command; 5] = [
    Entry {
        verb: Verb::ObjectEncoding, name: "object|encoding", arity: 3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.2.3",
        summary: "Inspect the internal encoding of a Redis object",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ObjectFreq, name: "object|freq", arity: 3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "4.0.0",
        summary: "Get the logarithmic access frequency counter of a Redis object",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ObjectHelp, name: "object|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::KEYSPACE.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "generic", since: "6.2.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ObjectIdletime, name: "object|idletime", arity: 3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.2.3",
        summary: "Get the time since a Redis object was last accessed",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ObjectRefcount, name: "object|refcount", arity: 3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::KEYSPACE.with(Categories::READ).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO, begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "generic", since: "2.2.3",
        summary: "Get the number of references to the value of the key",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static PUBSUB_SUBCOMMANDS: [Command; 6] = [
    Entry {
        verb: Verb::PubsubChannels, name: "pubsub|channels", arity: -2,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.8.0",
        summary: "List active channels",
        complexity: "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)",
        docs: &Docs {
            arguments: &[
                Argument { name: "pattern", kind: "pattern", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::PubsubHelp, name: "pubsub|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "6.2.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::PubsubNumpat, name: "pubsub|numpat", arity: 2,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.8.0",
        summary: "Get the count of unique patterns pattern subscriptions",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::PubsubNumsub, name: "pubsub|numsub", arity: -2,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "2.8.0",
        summary: "Get the count of subscribers for channels",
        complexity: "O(N) for the NUMSUB subcommand, where N is the number of requested channels",
        docs: &Docs {
            arguments: &[
                Argument { name: "channel", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::PubsubShardchannels, name: "pubsub|shardchannels", arity: -2,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "7.0.0",
        summary: "List active shard channels",
        complexity: "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).",
        docs: &Docs {
            arguments: &[
                Argument { name: "pattern", kind: "pattern", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::PubsubShardnumsub, name: "pubsub|shardnumsub", arity: -2,
        flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::PUBSUB.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "pubsub", since: "7.0.0",
        summary: "Get the count of subscribers for shard channels",
        complexity: "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels",
        docs: &Docs {
            arguments: &[
                Argument { name: "shardchannel", kind: "string", flags: &["optional", "multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static SCRIPT_SUBCOMMANDS: [Command; 6] = [
    Entry {
        verb: Verb::ScriptDebug, name: "script|debug", arity: 3,
        flags: Flags::NOSCRIPT,
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[],
        group: "scripting", since: "3.2.0",
        summary: "Set the debug mode for executed scripts.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "mode", kind: "oneof", arguments: &[Argument { name: "yes", kind: "pure-token", token: Some("YES"), ..Argument::NONE }, Argument { name: "sync", kind: "pure-token", token: Some("SYNC"), ..Argument::NONE }, Argument { name: "no", kind: "pure-token", token: Some("NO"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ScriptExists, name: "script|exists", arity: -3,
        flags: Flags::NOSCRIPT,
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        key_specs: &[],
        group: "scripting", since: "2.6.0",
        summary: "Check existence of scripts in the script cache.",
        complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
        docs: &Docs {
            arguments: &[
                Argument { name: "sha1", kind: "string", flags: &["multiple"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ScriptFlush, name: "script|flush", arity: -2,
        flags: Flags::NOSCRIPT,
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "scripting", since: "2.6.0",
        summary: "Remove all the scripts from the script cache.",
        complexity: "O(N) with N being the number of scripts in cache",
        docs: &Docs {
            history: &[
                ("6.2.0", "Added the `ASYNC` and `SYNC` flushing mode modifiers."),
            ],
            arguments: &[
                Argument { name: "async", kind: "oneof", since: "6.2.0", flags: &["optional"], arguments: &[Argument { name: "async", kind: "pure-token", token: Some("ASYNC"), ..Argument::NONE }, Argument { name: "sync", kind: "pure-token", token: Some("SYNC"), ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ScriptHelp, name: "script|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &[],
        key_specs: &[],
        group: "scripting", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ScriptKill, name: "script|kill", arity: 2,
        flags: Flags::NOSCRIPT.with(Flags::ALLOW_BUSY),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        key_specs: &[],
        group: "scripting", since: "2.6.0",
        summary: "Kill the script currently in execution.",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::ScriptLoad, name: "script|load", arity: 3,
        flags: Flags::NOSCRIPT.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW.with(Categories::SCRIPTING),
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "scripting", since: "2.6.0",
        summary: "Load the specified Lua script into the script cache.",
        complexity: "O(N) with N being the length in bytes of the script body.",
        docs: &Docs {
            arguments: &[
                Argument { name: "script", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static SLOWLOG_SUBCOMMANDS: [Command; 4] = [
    Entry {
        verb: Verb::SlowlogGet, name: "slowlog|get", arity: -2,
        flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        key_specs: &[],
        group: "server", since: "2.2.12",
        summary: "Get the slow log's entries",
        complexity: "O(N) where N is the number of entries returned",
        docs: &Docs {
            history: &[
                ("4.0.0", "Added client IP address, port and name to the reply."),
            ],
            arguments: &[
                Argument { name: "count", kind: "integer", flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::SlowlogHelp, name: "slowlog|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::SLOW,
        tips: &[],
        key_specs: &[],
        group: "server", since: "6.2.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::SlowlogLen, name: "slowlog|len", arity: 2,
        flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
        key_specs: &[],
        group: "server", since: "2.2.12",
        summary: "Get the slow log's length",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::SlowlogReset, name: "slowlog|reset", arity: 2,
        flags: Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::ADMIN.with(Categories::SLOW).with(Categories::DANGEROUS),
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        key_specs: &[],
        group: "server", since: "2.2.12",
        summary: "Clear all entries from the slow log",
        complexity: "O(N) where N is the number of entries in the slowlog",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
];

static XGROUP_SUBCOMMANDS: [Command; 6] = [
    Entry {
        verb: Verb::XgroupCreate, name: "xgroup|create", arity: -5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (2, 2, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Create a consumer group.",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the `entries_read` named argument."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "groupname", kind: "string", ..Argument::NONE },
                Argument { name: "id", kind: "oneof", arguments: &[Argument { name: "id", kind: "string", ..Argument::NONE }, Argument { name: "new_id", kind: "pure-token", token: Some("$"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "mkstream", kind: "pure-token", token: Some("MKSTREAM"), flags: &["optional"], ..Argument::NONE },
                Argument { name: "entries_read", kind: "integer", token: Some("ENTRIESREAD"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XgroupCreateconsumer, name: "xgroup|createconsumer", arity: 5,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: (2, 2, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::INSERT), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "6.2.0",
        summary: "Create a consumer in a consumer group.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "groupname", kind: "string", ..Argument::NONE },
                Argument { name: "consumername", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XgroupDelconsumer, name: "xgroup|delconsumer", arity: 5,
        flags: Flags::WRITE,
        keys: (2, 2, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Delete a consumer from a consumer group.",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "groupname", kind: "string", ..Argument::NONE },
                Argument { name: "consumername", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XgroupDestroy, name: "xgroup|destroy", arity: 4,
        flags: Flags::WRITE,
        keys: (2, 2, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::DELETE), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Destroy a consumer group.",
        complexity: "O(N) where N is the number of entries in the group's pending entries list (PEL).",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "groupname", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XgroupHelp, name: "xgroup|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::STREAM.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "stream", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XgroupSetid, name: "xgroup|setid", arity: -5,
        flags: Flags::WRITE,
        keys: (2, 2, 1),
        acl: Categories::WRITE.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RW.with(KeyFlags::UPDATE), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Set a consumer group to an arbitrary last delivered ID value.",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the optional `entries_read` argument."),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "groupname", kind: "string", ..Argument::NONE },
                Argument { name: "id", kind: "oneof", arguments: &[Argument { name: "id", kind: "string", ..Argument::NONE }, Argument { name: "new_id", kind: "pure-token", token: Some("$"), ..Argument::NONE }], ..Argument::NONE },
                Argument { name: "entries_read", kind: "integer", token: Some("ENTRIESREAD"), flags: &["optional"], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];

static XINFO_SUBCOMMANDS: [Command; 4] = [
    Entry {
        verb: Verb::XinfoConsumers, name: "xinfo|consumers", arity: 4,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW),
        tips: &["nondeterministic_output"],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "List the consumers in a consumer group",
        complexity: "O(1)",
        docs: &Docs {
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "groupname", kind: "string", ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XinfoGroups, name: "xinfo|groups", arity: 3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "List the consumer groups of a stream",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("7.0.0", "Added the `entries-read` and `lag` fields"),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XinfoHelp, name: "xinfo|help", arity: 2,
        flags: Flags::LOADING.with(Flags::STALE),
        keys: (0, 0, 0),
        acl: Categories::STREAM.with(Categories::SLOW),
        tips: &[],
        key_specs: &[],
        group: "stream", since: "5.0.0",
        summary: "Show helpful text about the different subcommands",
        complexity: "O(1)",
        docs: &Docs::NONE,
        subcommands: &[],
    }.command(),
    Entry {
        verb: Verb::XinfoStream, name: "xinfo|stream", arity: -3,
        flags: Flags::READONLY,
        keys: (2, 2, 1),
        acl: Categories::READ.with(Categories::STREAM).with(Categories::SLOW),
        tips: &[],
        key_specs: &[
            KeySpec { flags: KeyFlags::RO.with(KeyFlags::ACCESS), begin: BeginSearch::Index(2), find: FindKeys::Range { last_key: 0, key_step: 1, limit: 0 }, notes: "" },
        ],
        group: "stream", since: "5.0.0",
        summary: "Get information about a stream",
        complexity: "O(1)",
        docs: &Docs {
            history: &[
                ("6.0.0", "Added the `FULL` modifier."),
                ("7.0.0", "Added the `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read` and `lag` fields"),
            ],
            arguments: &[
                Argument { name: "key", kind: "key", key_spec_index: Some(0), ..Argument::NONE },
                Argument { name: "full", kind: "block", token: Some("FULL"), flags: &["optional"], arguments: &[Argument { name: "count", kind: "integer", token: Some("COUNT"), flags: &["optional"], ..Argument::NONE }], ..Argument::NONE },
            ],
            ..Docs::NONE
        },
        subcommands: &[],
    }.command(),
];
