//! Commands on collections, family by family: the store and a real
//! redis-server 7, fed the same random command lines, must give the same
//! replies and publish the same keyspace events.
//!
//! Left out of the comparison: the order of elements that have none, and which
//! elements a random pick takes.

mod common;

use common::redis::{Redis, unix_millis};
use common::{Random, Reply, clock_at, execute_in};
use keyway_base::{KeyspaceEvents, rdb};
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};

const COMMANDS: usize = 120_000;
const BATCH: usize = 100;
const DATABASES: u32 = 2;

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

const NUMBERS: [&str; 26] = [
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "3",
    "5",
    "10",
    "-10",
    "100",
    "-100",
    "127",
    "128",
    "129",
    "1000",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775807",
    "4611686018427387904",
    "01",
    "+1",
    " 1",
    "1.5",
    "abc",
    "",
];

const FLOATS: [&str; 30] = [
    "0",
    "-0",
    "1",
    "-1",
    "1.5",
    "2.25",
    "0.1",
    "3.0",
    "1e3",
    "1e300",
    "-1e300",
    "1e17",
    "123456789012345678",
    "1e-7",
    "0.00001",
    "3.0000000000000004",
    "inf",
    "-inf",
    "+inf",
    "Infinity",
    "nan",
    "1e400",
    "1e-400",
    "0x1p-3",
    "abc",
    "",
    " 1",
    "1 ",
    "17179869184",
    "4.9e-324",
];

/// Commands that work on any type, in every family.
const ANY: [&str; 29] = [
    "type K",
    "object encoding K",
    "object encoding K",
    "object encoding K",
    "object refcount K",
    "exists K",
    "del K",
    "unlink K",
    "rename K K",
    "renamenx K K",
    "copy K K",
    "copy K K replace",
    "copy K K db 1 replace",
    "move K 1",
    "expire K 100000",
    "persist K",
    "set K V",
    "get K",
    "append K V",
    "mget K K",
    "strlen K",
    "incr K",
    "setrange K 3 x",
    "scan 0 type hash count 100000",
    "dump K",
    "dump K",
    "restore K 0 PAYLOAD",
    "restore K 0 PAYLOAD replace",
    "restore K 100000 PAYLOAD absttl replace",
];

/// Values as DUMP gives them, of a type each.
const PAYLOADS: [&[u8]; 9] = [
    b"\0\x03abc",
    b"\0\xc0\x05",
    b"\x02\x03\xc0\x05\x02f1\x02f2",
    b"\x0b\x0e\x02\0\0\0\x03\0\0\0\xfe\xff\x01\0\x02\0",
    b"\x12\x01\x02\x0e\x0e\0\0\0\x03\0\x05\x01\x81a\x02\x06\x01\xff",
    b"\x10\x0f\x0f\0\0\0\x02\0\x82f1\x03\x82v1\x03\xff",
    b"\x11\x0d\x0d\0\0\0\x02\0\x82f1\x03\0\x01\xff",
    b"\x0d\x10\x10\0\0\0\x0c\0\0\0\x02\0\0\xf2\x02\xf3\xff\xff",
    b"\x02\x02\x01a\x01a",
];

/// Of a type each, so that any command meets a key of another.
const STRANGERS: [&str; 6] =
    ["set K V", "hset K F V", "rpush K V", "sadd K V", "zadd K 0 V", "xadd K UP F V"];

const SKETCHES: [&str; 26] = [
    "pfadd K F",
    "pfadd K F F F",
    "pfadd K V",
    "pfadd K MEMBERS",
    "pfadd K MEMBERS",
    "pfadd K INTEGERS",
    "pfadd K NUMBERS",
    "pfadd K",
    "pfcount K",
    "pfcount K",
    "pfcount K K",
    "pfcount K K K",
    "pfmerge K",
    "pfmerge K K",
    "pfmerge K K K",
    "get K",
    "getrange K 0 15",
    "getrange K I I",
    "object encoding K",
    "strlen K",
    "set K SKETCH",
    "setrange K AT OPCODE",
    "append K 0",
    "del K",
    "del K",
    "expire K 100000",
];

const PLACES: [&str; 42] = [
    "geoadd K LON LAT F",
    "geoadd K LON LAT F LON LAT F LON LAT V",
    "geoadd K LON LAT L",
    "geoadd K GO LON LAT F LON LAT F",
    "geoadd K GO GO LON LAT F",
    "geoadd K GO GO GO",
    "geoadd K POINTS",
    "geoadd K POINTS",
    "geoadd K D D F",
    "zadd K D F",
    "zadd K I F",
    "zadd K HUGE F HUGE F",
    "zrange K 0 -1 withscores",
    "zcard K",
    "zrem K MEMBERS",
    "del K",
    "geodist K F F",
    "geodist K F F UNIT",
    "geodist K F V m m",
    "geohash K F F V",
    "geohash K",
    "geopos K F F V",
    "geopos K F",
    "geosearch K fromlonlat LON LAT byradius R UNIT OPTS",
    "geosearch K fromlonlat LON LAT byradius R UNIT OPTS",
    "geosearch K fromlonlat LON LAT bybox R R UNIT OPTS",
    "geosearch K fromlonlat LON LAT bybox R R UNIT OPTS",
    "geosearch K frommember F byradius R UNIT OPTS",
    "geosearch K frommember F bybox R R UNIT OPTS",
    "geosearch K OPTS bybox R D UNIT fromlonlat D LAT OPTS",
    "geosearch K OPTS frommember F fromlonlat LON LAT byradius D UNIT",
    "geosearchstore K K fromlonlat LON LAT byradius R UNIT OPTS",
    "geosearchstore K K frommember F bybox R R UNIT OPTS storedist",
    "geosearchstore K K frommember F byradius R UNIT storedist OPTS",
    "georadius K LON LAT R UNIT OPTS",
    "georadius K LON LAT R UNIT OPTS store K",
    "georadius K LON LAT R UNIT storedist K OPTS",
    "georadius_ro K LON LAT R UNIT OPTS",
    "georadius_ro K LON LAT D UNIT store K",
    "georadiusbymember K F R UNIT OPTS",
    "georadiusbymember K F R UNIT store K storedist K",
    "georadiusbymember_ro K F R UNIT OPTS",
];

const HASHES: [&str; 44] = [
    "hset K F V",
    "hset K F V",
    "hset K F V F V",
    "hset K F V F V F N",
    "hset K F N",
    "hset K F",
    "hset K PAIRS",
    "hset K L V",
    "hset K F L",
    "hmset K F V F V",
    "hmset K F V F",
    "hsetnx K F V",
    "hsetnx K F L",
    "hget K F",
    "hget K F",
    "hmget K F F F",
    "hgetall K",
    "hgetall K",
    "hkeys K",
    "hvals K",
    "hlen K",
    "hlen K",
    "hexists K F",
    "hstrlen K F",
    "hdel K F",
    "hdel K F F F F",
    "hdel K F F F F F F F F F F F F",
    "hdel K MEMBERS",
    "hincrby K F N",
    "hincrby K F I",
    "hincrby K F I",
    "hincrbyfloat K F D",
    "hincrbyfloat K F D",
    "hincrbyfloat K F I",
    "hrandfield K",
    "hrandfield K I",
    "hrandfield K I withvalues",
    "hrandfield K BIG withvalues",
    "hrandfield K 1000 withvalues",
    "hrandfield K 3 N",
    "hscan K 0 count 100000",
    "hscan K 0 match G count 100000",
    "hscan K 0 N N",
    "hscan K N",
];

const LISTS: [&str; 48] = [
    "lpush K V",
    "lpush K V V V",
    "rpush K V",
    "rpush K VALUES",
    "rpush K VALUES",
    "lpush K VALUES",
    "lpush K L",
    "rpush K L L",
    "lpushx K V",
    "rpushx K V V",
    "lpop K",
    "rpop K",
    "lpop K I",
    "rpop K I",
    "rpop K N",
    "lpop K N",
    "lpop K 200",
    "llen K",
    "llen K",
    "lrange K 0 -1",
    "lrange K 0 -1",
    "lrange K I I",
    "lrange K N N",
    "lindex K I",
    "lindex K I",
    "lindex K N",
    "lset K I V",
    "lset K I L",
    "lset K N V",
    "linsert K before I V",
    "linsert K after I V",
    "linsert K AFTER I L",
    "linsert K V I V",
    "lrem K 0 I",
    "lrem K I I",
    "lrem K N V",
    "ltrim K I I",
    "ltrim K 1 -2",
    "ltrim K N N",
    "lpos K I",
    "lpos K I rank I count I",
    "lpos K I count 0 maxlen N",
    "lpos K I rank N N N",
    "lmove K K W W",
    "rpoplpush K K",
    "lmpop 2 K K W count I",
    "lmpop 1 K W",
    "lmpop N K K W count N",
];

const SETS: [&str; 48] = [
    "sadd K V",
    "sadd K I I I",
    "sadd K I F",
    "sadd K I",
    "sadd K F F",
    "sadd K L",
    "sadd K N N",
    "sadd K INTEGERS",
    "sadd K INTEGERS",
    "sadd K MEMBERS",
    "srem K I I I F F",
    "srem K V",
    "srem K INTEGERS",
    "srem K INTEGERS",
    "srem K MEMBERS",
    "del K",
    "del K",
    "sismember K I",
    "sismember K F",
    "smismember K I F V N",
    "smembers K",
    "smembers K",
    "scard K",
    "scard K",
    "smove K K I",
    "smove K K F",
    "smove K K V",
    "spop K 100000",
    "spop K 0",
    "spop K -1",
    "srandmember K",
    "srandmember K I",
    "srandmember K 100000",
    "srandmember K BIG N",
    "sinter K K",
    "sinter K K K",
    "sunion K K K",
    "sdiff K K",
    "sdiff K K K",
    "sinterstore K K K",
    "sunionstore K K K",
    "sdiffstore K K K",
    "sdiffstore K K K K",
    "sintercard 2 K K",
    "sintercard 2 K K limit I",
    "sintercard N K K limit N",
    "sscan K 0 count 100000",
    "sscan K 0 match G count 100000",
];

const SORTED: [&str; 82] = [
    "zadd K D F",
    "zadd K I F",
    "zadd K I F I F I F",
    "zadd K D V",
    "zadd K SCORES",
    "zadd K SCORES",
    "zadd K I L",
    "zadd K O I F",
    "zadd K O O I F",
    "zadd K O O O I F",
    "zadd K O D F D F",
    "zadd K xx ch I F I F",
    "zincrby K D F",
    "zincrby K I F",
    "zincrby K O F",
    "zrem K F F F",
    "zrem K MEMBERS",
    "del K",
    "del K",
    "zcard K",
    "zscore K F",
    "zscore K V",
    "zmscore K F F V",
    "zrank K F",
    "zrevrank K F",
    "zcount K MIN MAX",
    "zcount K N D",
    "zrange K I I",
    "zrange K I I withscores",
    "zrange K 0 -1 withscores",
    "zrange K 0 -1 rev withscores",
    "zrange K MIN MAX byscore",
    "zrange K MIN MAX byscore rev withscores limit I I",
    "zrange K MAX MIN rev byscore limit I 3",
    "zrange K I I limit I -1",
    "zrange K I I limit 0 N",
    "zrange K N I rev withscores",
    "zrange K I I rev bylex withscores",
    "zrevrange K I I withscores",
    "zrangebyscore K MIN MAX withscores",
    "zrangebyscore K MIN MAX limit 1 2",
    "zrevrangebyscore K MAX MIN withscores",
    "zrangestore K K I I",
    "zrangestore K K MIN MAX byscore limit 0 5",
    "zrangestore K K 0 3 rev",
    "zrangestore K K 0 3 withscores",
    "zremrangebyrank K I I",
    "zremrangebyrank K 5 N",
    "zremrangebyscore K MIN MAX",
    "zpopmin K",
    "zpopmax K",
    "zpopmin K I",
    "zpopmax K 100",
    "zmpop 2 K K min",
    "zmpop 2 K K max count I",
    "zmpop N K K W",
    "zrandmember K",
    "zrandmember K I",
    "zrandmember K I withscores",
    "zrandmember K BIG withscores",
    "zscan K 0 count 100000",
    "zscan K 0 match G count 100000",
    "zunion 2 K K",
    "zunion 2 K K withscores",
    "zinter 2 K K withscores",
    "zinter 2 K K weights I D aggregate min withscores",
    "zunion 2 K K weights D D aggregate max withscores",
    "zunion 3 K K K aggregate sum withscores",
    "zdiff 2 K K withscores",
    "zdiff 3 K K K",
    "zdiff 2 K K weights 1 2",
    "zunion N K K",
    "zinter 2 K K K",
    "zunionstore K 2 K K",
    "zunionstore K 2 K K weights I I",
    "zinterstore K 2 K K aggregate max",
    "zdiffstore K 2 K K",
    "zinterstore K 2 K K withscores",
    "zintercard 2 K K",
    "zintercard 2 K K limit I",
    "zintercard N K K limit 1",
    "sadd K F F I",
];

/// On sets with one score alone: the order of others by bytes is undefined.
const LEXICAL: [&str; 20] = [
    "zadd K 0 F",
    "zadd K 0 F 0 F 0 V",
    "zadd K 0 L",
    "zadd K ZEROS",
    "zadd K ZEROS",
    "zrem K F F",
    "zrem K MEMBERS",
    "del K",
    "zlexcount K LEX LEX",
    "zrange K LEX LEX bylex",
    "zrange K LEX LEX bylex rev",
    "zrange K LEX LEX bylex limit I I",
    "zrange K LEX LEX bylex rev limit I 5",
    "zrangebylex K LEX LEX",
    "zrangebylex K LEX LEX limit 1 3",
    "zrevrangebylex K LEX LEX",
    "zremrangebylex K LEX LEX",
    "zrangestore K K LEX LEX bylex limit 0 100",
    "zrange K 0 -1 withscores",
    "zcard K",
];

/// SORT, and what its patterns refer to. No number is out of range here: the
/// server does not forget that it met one.
const SORTING: [&str; 44] = [
    "rpush K V V V",
    "rpush K VALUES",
    "rpush K I I I",
    "sadd K I I I F",
    "sadd K INTEGERS",
    "sadd K MEMBERS",
    "zadd K I F I F I F",
    "zadd K I I I I",
    "del K",
    "del K",
    "ltrim K 0 5",
    "mset WK V WK V WK V",
    "mset WK I WK I WK I WK I",
    "mset WK I WK I WK I WK I",
    "hset HK x V",
    "hset HK x I f1 V",
    "hset HK x I",
    "rpush WK V",
    "del WK HK",
    "sort K",
    "sort K desc",
    "sort K alpha",
    "sort K ALPHA desc",
    "sort K alpha limit I I",
    "sort K limit N I",
    "sort K limit I 3 asc get # get T",
    "sort K by T",
    "sort K by T desc",
    "sort K by T get T get T",
    "sort K by T limit 0 I get #",
    "sort K by T limit I -1 desc get T",
    "sort K by T alpha",
    "sort K by T alpha desc limit 1 3 get #",
    "sort K by nosort",
    "sort K by nosort desc limit I I",
    "sort K by nosort by T get #",
    "sort K get T",
    "sort K store K",
    "sort K alpha store K",
    "sort K by T get T get # store K",
    "sort K by nosort limit 1 I get T desc store K",
    "sort_ro K by T limit 0 I",
    "sort_ro K alpha get T",
    "sort_ro K store K",
];

/// Ids that are hardly any.
const IDS: [&str; 26] = [
    "-",
    "+",
    "*-1",
    "0",
    "0-0",
    "0-1",
    "0-*",
    "-1",
    "1-",
    "-5-1",
    "1--1",
    "1--01",
    "01-1",
    " 1-1",
    "+1",
    "1-1 ",
    "abc",
    "",
    "18446744073709551615",
    "18446744073709551615-18446744073709551615",
    "18446744073709551615-18446744073709551614",
    "18446744073709551616-0",
    "18446744073709551615-*",
    "5\0-7",
    "(5",
    "1-1-1",
];

/// Ids are mostly fixed; entries that the clock names are added to keys of their
/// own, as each side has its own clock.
const STREAMS: [&str; 125] = [
    "xadd K UP F V",
    "xadd K UP F V",
    "xadd K UP F V F I",
    "xadd K UP f1 I f2 V",
    "xadd K UP f1 I f2 V",
    "xadd K UP f1 V f2 L",
    "xadd K UP F L",
    "xadd K UP PAIRS",
    "xadd K ID F V",
    "xadd K ID F",
    "xadd K nomkstream UP F V",
    "xadd K maxlen I UP F V",
    "xadd K maxlen ~ COUNT UP F V",
    "xadd K maxlen = COUNT UP F V",
    "xadd K minid ID UP F V",
    "xadd K minid ~ ID UP F V",
    "xadd K maxlen ~ COUNT limit COUNT UP F V",
    "xadd K nomkstream maxlen N limit N UP F V",
    "xadd K UPSTAR F V",
    "xadd K UPSTAR F V F V",
    "xadd clock * F V",
    "xadd clock maxlen 5 * F V",
    "xlen clock",
    "MANY",
    "del K",
    "del K",
    "del K",
    "del K",
    "del K",
    "xgroup create K g 0 mkstream",
    "xgroup create K g 0 mkstream",
    "xgroup create K g 0",
    "xreadgroup group g CONSUMER count I streams K >",
    "xreadgroup group g CONSUMER count I streams K >",
    "xreadgroup group g CONSUMER count 2 streams K >",
    "xreadgroup group g CONSUMER count I streams K 0",
    "xclaim K g CONSUMER 0 CLAIM",
    "xclaim K g CONSUMER 0 CLAIM",
    "xclaim K g CONSUMER 0 IDS FORCED",
    "xautoclaim K g CONSUMER 0 0 AUTO",
    "xack K g IDS",
    "xpending K g - + 1000",
    "xpending K g",
    "xinfo groups K",
    "xinfo consumers K g",
    "xinfo stream K full",
    "xlen K",
    "xlen K",
    "xrange K - +",
    "xrange K - +",
    "xrange K END END",
    "xrange K END END count I",
    "xrevrange K + -",
    "xrevrange K END END",
    "xrevrange K END END count I",
    "xrange K - + count N",
    "xread streams K ID",
    "xread count I streams K K ID ID",
    "xread streams K K 0 $",
    "xread count N streams K ID",
    "xread streams K ID ID",
    "xread block 1.5 streams K 0",
    "xreadgroup group g CONSUMER block -1 streams K >",
    "xread N streams K ID",
    "xdel K ID",
    "xdel K ID ID ID ID",
    "xdel K IDS",
    "xdel K IDS",
    "del K",
    "xtrim K maxlen COUNT",
    "xtrim K maxlen ~ COUNT",
    "xtrim K maxlen ~ COUNT limit COUNT",
    "xtrim K minid ID",
    "xtrim K minid ID",
    "xtrim K minid ~ ID",
    "xtrim K minid = ID limit N",
    "xtrim K maxlen N limit I",
    "xsetid K ID",
    "xsetid K ID entriesadded COUNT maxdeletedid ID",
    "xsetid K UP entriesadded N",
    "xinfo stream K",
    "xinfo stream K",
    "xinfo stream K full",
    "xinfo stream K full count N",
    "xinfo stream K full count 0",
    "xinfo stream K N",
    "xinfo groups K",
    "xinfo groups K",
    "xinfo consumers K GROUP",
    "xinfo consumers K GROUP",
    "xinfo help",
    "xgroup help",
    "xgroup create K GROUP ID",
    "xgroup create K GROUP 0",
    "xgroup create K GROUP $ mkstream",
    "xgroup create K GROUP ID entriesread N",
    "xgroup create K GROUP $ mkstream entriesread COUNT",
    "xgroup setid K GROUP ID",
    "xgroup setid K GROUP $",
    "xgroup setid K GROUP 0",
    "xgroup setid K GROUP END entriesread N",
    "xgroup destroy K GROUP",
    "xgroup createconsumer K GROUP CONSUMER",
    "xgroup delconsumer K GROUP CONSUMER",
    "xreadgroup group GROUP CONSUMER streams K >",
    "xreadgroup group GROUP CONSUMER streams K >",
    "xreadgroup group GROUP CONSUMER count I streams K K > >",
    "xreadgroup group GROUP CONSUMER count 3 streams K >",
    "xreadgroup group GROUP CONSUMER count 3 noack streams K >",
    "xreadgroup group GROUP CONSUMER streams K 0",
    "xreadgroup group GROUP CONSUMER count I streams K ID",
    "xreadgroup group GROUP CONSUMER streams K $",
    "xreadgroup group GROUP CONSUMER noack streams K ID",
    "xack K GROUP ID ID ID",
    "xack K GROUP IDS",
    "xpending K GROUP",
    "xpending K GROUP",
    "xpending K GROUP - + 1000",
    "xpending K GROUP END END I CONSUMER",
    "xpending K GROUP idle 0 END END I",
    "xpending K GROUP idle AGE END END N CONSUMER",
    "xclaim K GROUP CONSUMER 0 CLAIM",
    "xclaim K GROUP CONSUMER AGE CLAIM",
    "xautoclaim K GROUP CONSUMER 0 END AUTO",
    "xautoclaim K GROUP CONSUMER AGE END AUTO",
];

/// Random command lines over few keys, some of them wrong.
struct Lines {
    random: Random,
    family: &'static [&'static str],
    /// Lines that come next, the last one first.
    queue: Vec<Vec<Vec<u8>>>,
    /// The millisecond of the newest ids.
    newest: usize,
    /// How many keys there are.
    keys: usize,
}

impl Lines {
    fn next(&mut self) -> Vec<Vec<u8>> {
        if let Some(words) = self.queue.pop() {
            return words;
        }
        let shape = match self.random.below(if self.keys < KEYS.len() { 160 } else { 40 }) {
            0..3 => *self.random.pick(&ANY),
            3 => *self.random.pick(&STRANGERS),
            _ => *self.random.pick(self.family),
        };
        let mut words: Vec<Vec<u8>> = Vec::new();
        if shape == "MANY" {
            return self.queue_adds();
        }
        for word in shape.split(' ') {
            self.add_word(word, &mut words);
        }
        // A random pick of endless count would never end, there as here; short
        // times pass on one side and not on the other.
        let is_fixed = ["rand", "spop", "zadd K 0 ", "ZEROS", "block", "claim", "idle", "clock"]
            .iter()
            .any(|part| shape.contains(part));
        if !is_fixed && self.random.once_in(40) {
            let at = 1 + self.random.below(words.len());
            match self.random.below(3) {
                0 if words.len() > 1 => drop(words.remove(at.min(words.len() - 1))),
                1 if at < words.len() => words[at] = self.random.pick(&NUMBERS).as_bytes().into(),
                _ => words.insert(at, self.random.pick(&NUMBERS).as_bytes().into()),
            }
        }
        words
    }

    fn add_word(&mut self, kind: &str, words: &mut Vec<Vec<u8>>) {
        match kind {
            "NUMBERS" => {
                let (from, count) = (self.random.below(100_000), 1 + self.random.below(3000));
                words.extend((from..from + count).map(|number| number.to_string().into_bytes()));
            }
            "POINTS" => {
                let (from, count) = (self.random.below(300), 1 + self.random.below(140));
                for number in from..from + count {
                    words.extend([self.degrees(180), self.degrees(85)]);
                    words.push(format!("f{number}").into_bytes());
                }
            }
            "OPTS" => {
                for _ in 0..self.random.below(4) {
                    let options = [
                        "asc",
                        "desc",
                        "withdist",
                        "withhash",
                        "withcoord",
                        "count N",
                        "count FEW",
                        "count FEW",
                        "count FEW any",
                        "WITHDIST",
                        "ANY",
                        "count FEW desc",
                    ];
                    for word in self.random.pick(&options).split(' ') {
                        words.push(self.word(word));
                    }
                }
            }
            "PAIRS" => {
                let (from, count) = (self.random.below(300), self.random.below(140));
                for number in from..from + count {
                    words.push(format!("f{number}").into_bytes());
                    words.push(self.value());
                }
            }
            "IDS" => {
                let from = self.newest.saturating_sub(self.random.below(400));
                for ms in from..=from + self.random.below(100) {
                    words.push(format!("{ms}-{}", self.random.below(2)).into_bytes());
                }
            }
            "CLAIM" => {
                for _ in 0..1 + self.random.below(4) {
                    words.push(self.id());
                }
                self.add_word("FORCED", words);
            }
            "FORCED" => {
                for _ in 0..self.random.below(3) {
                    let option = *self.random.pick(&[
                        "force",
                        "force",
                        "justid",
                        "idle I",
                        "time 1000",
                        "retrycount I",
                        "lastid ID",
                        "idle N",
                        "time N",
                        "retrycount N",
                    ]);
                    option.split(' ').for_each(|word| words.push(self.word(word)));
                }
            }
            "AUTO" => {
                for _ in 0..self.random.below(3) {
                    let option = *self.random.pick(&["justid", "count I", "count 2", "count N"]);
                    option.split(' ').for_each(|word| words.push(self.word(word)));
                }
            }
            "MEMBERS" => {
                let (from, count) = (self.random.below(400), 1 + self.random.below(300));
                words.extend((from..from + count).map(|number| format!("f{number}").into_bytes()));
            }
            "INTEGERS" => {
                let (from, count) = (self.random.below(900), 1 + self.random.below(300));
                words.extend((from..from + count).map(|number| number.to_string().into_bytes()));
            }
            "VALUES" => {
                let count = 1 + self.random.below(60);
                words.extend((0..count).map(|_| self.value()));
            }
            "ZEROS" => {
                let (from, count) = (self.random.below(300), 1 + self.random.below(140));
                for number in from..from + count {
                    words.extend([b"0".to_vec(), format!("f{number}").into_bytes()]);
                }
            }
            "SCORES" => {
                let (from, count) = (self.random.below(300), 1 + self.random.below(140));
                for number in from..from + count {
                    words.push(self.number(12));
                    words.push(format!("f{number}").into_bytes());
                }
            }
            kind => {
                let word = self.word(kind);
                words.push(word);
            }
        }
    }

    /// Entries for one stream, until its blocks are full; the first of them.
    fn queue_adds(&mut self) -> Vec<Vec<u8>> {
        let key = KEYS[self.random.below(self.keys)];
        let long = self.random.once_in(3);
        for _ in 0..20 + self.random.below(130) {
            let id = self.word("UP");
            let mut words = [b"xadd", key.as_bytes(), &id, b"f1"].map(<[u8]>::to_vec).to_vec();
            words.push(if long { self.long() } else { self.value() });
            words.push(if self.random.once_in(10) { b"x".to_vec() } else { b"f2".to_vec() });
            words.push(self.value());
            self.queue.insert(0, words);
        }
        self.queue.pop().expect("a line")
    }

    fn id(&mut self) -> Vec<u8> {
        let back = [20, 100, 400, self.newest][self.random.below(4)];
        let ms = (self.newest + 3).saturating_sub(self.random.below(back));
        match self.random.below(60) {
            0 => self.random.pick(&IDS).as_bytes().to_vec(),
            1..20 => format!("{ms}").into_bytes(),
            _ => format!("{ms}-{}", self.random.below(2)).into_bytes(),
        }
    }

    /// An id that mostly is greater than all before.
    fn greater_id(&mut self) -> String {
        self.newest += [0, 1, 1, 1, 1, 20][self.random.below(6)];
        let seq = self.random.below(2);
        format!("{}-{seq}", self.newest)
    }

    fn number(&mut self, reach: usize) -> Vec<u8> {
        (self.random.below(2 * reach) as i64 - reach as i64).to_string().into_bytes()
    }

    fn word(&mut self, kind: &str) -> Vec<u8> {
        let chosen = match kind {
            "K" => KEYS[self.random.below(self.keys)],
            "N" => *self.random.pick(&NUMBERS),
            "BIG" => {
                *self.random.pick(&["0", "-3", "9223372036854775807", "-9223372036854775808", "x"])
            }
            "D" => *self.random.pick(&FLOATS),
            "T" => *self.random.pick(&[
                "w*", "w*", "w*", "h*->x", "h*->x", "#", "h*->", "*", "w", "nosort", "w*->x", "",
            ]),
            "WK" | "HK" => {
                let number = self.random.below(20);
                return format!("{}{number}", kind[..1].to_ascii_lowercase()).into_bytes();
            }
            "PAYLOAD" => {
                let mut payload = self.random.pick(&PAYLOADS).to_vec();
                rdb::seal(&mut payload);
                return payload;
            }
            "G" => *self.random.pick(&["*", "f*", "?1*", "[a-c]*", "nothing"]),
            "ID" => return self.id(),
            "UP" => return self.greater_id().into_bytes(),
            "UPSTAR" => return format!("{}-*", self.newest + self.random.below(3)).into_bytes(),
            "AGE" => {
                *self.random.pick(&["0", "-1", "500000000", "9223372036854775807", "x", "1.5"])
            }
            "COUNT" => return self.random.below(400).to_string().into_bytes(),
            "GROUP" => {
                *self.random.pick(&["g", "g", "g", "g", "g", "h", "none", "no\0ne", "no\r\nne"])
            }
            "CONSUMER" => *self.random.pick(&["alice", "bob", "c"]),
            "END" => {
                let open = if self.random.once_in(4) { "(" } else { "" };
                let id = match self.random.below(10) {
                    0 => b"-".to_vec(),
                    1 => b"+".to_vec(),
                    _ => self.id(),
                };
                return [open.as_bytes(), &id].concat();
            }
            "I" => return self.number(20),
            "F" => return format!("f{}", self.random.below(30)).into_bytes(),
            "V" => return self.value(),
            "L" => return self.long(),
            "W" => *self.random.pick(&["left", "RIGHT", "left", "right", "up"]),
            "GO" => *self.random.pick(&["nx", "XX", "ch", "NX", "CH", "gt"]),
            "UNIT" => *self.random.pick(&["m", "km", "KM", "mi", "ft", "km", "km", "miles"]),
            "LON" => return self.degrees(180),
            "LAT" => return self.degrees(85),
            "R" => return self.radius(),
            "FEW" => return (1 + self.random.below(60)).to_string().into_bytes(),
            "HUGE" => *self.random.pick(&[
                "4503599627370495",
                "4503599627370496",
                "9223372036854775807",
                "9223372036854775808",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775809",
                "3e15",
            ]),
            // In the header: Redis reads and writes beyond the end of a string that
            // ends within an opcode.
            "AT" => return self.random.below(16).to_string().into_bytes(),
            "OPCODE" => return self.opcodes(1),
            "SKETCH" => return self.sketch(),
            "MIN" | "MAX" => return self.bound(),
            "LEX" => *self
                .random
                .pick(&["-", "+", "[f1", "(f1", "[f2", "(f25", "[f9", "(", "[", "f", ""]),
            "O" => *self.random.pick(&["nx", "xx", "gt", "LT", "ch", "incr", "NX", "CH"]),
            literal => return literal.as_bytes().to_vec(),
        };
        chosen.as_bytes().to_vec()
    }

    /// Degrees, often such that many places are equally far away.
    fn degrees(&mut self, bound: usize) -> Vec<u8> {
        let whole = self.random.below(2 * bound + 1) as i64 - bound as i64;
        let text = match self.random.below(12) {
            0 => format!("{whole}"),
            1 => format!("{}", whole / 45 * 45),
            2 => ["180", "-180", "85.05112878", "-85.05112878", "90", "-0"][self.random.below(6)]
                .to_string(),
            3 => format!("{whole}.{}", self.random.next()),
            4..8 => format!("{}", self.random.below(5) as i64 - 2),
            _ => format!("0.{}", self.random.below(5)),
        };
        text.into_bytes()
    }

    fn radius(&mut self) -> Vec<u8> {
        let whole = self.random.below(1000);
        let text = match self.random.below(8) {
            0 => "0".to_owned(),
            1 => format!("{}", whole * 20),
            2 => format!("{}", whole * 20_000),
            3 => format!("{whole}.{}", self.random.below(1000)),
            4 => format!("0.{whole}"),
            _ => format!("{whole}"),
        };
        text.into_bytes()
    }

    /// Opcodes of a sparse HyperLogLog, none of which takes two bytes.
    fn opcodes(&mut self, count: usize) -> Vec<u8> {
        let mut opcode = || self.random.next() as u8;
        (0..count).map(|_| opcode()).map(|byte| byte & !(0x40 & !byte >> 1)).collect()
    }

    /// What looks like a HyperLogLog, and sometimes is one.
    fn sketch(&mut self) -> Vec<u8> {
        let mut bytes = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        bytes[15] = [0, 0x80][self.random.below(2)];
        match self.random.below(5) {
            0 => bytes[self.random.below(16)] = self.random.next() as u8,
            1 => {
                bytes[4] = 0;
                bytes.extend((0..12_288).map(|_| self.random.next() as u8));
                return bytes;
            }
            2 => bytes.truncate(self.random.below(16)),
            _ => {}
        }
        let count = self.random.below(60);
        bytes.extend(self.opcodes(count));
        if self.random.once_in(2) && bytes.len() > 16 {
            // Filled up with zeros to the right number of registers.
            let covered: usize = bytes[16..]
                .iter()
                .map(|byte| usize::from(if byte >> 7 == 0 { byte & 0x3f } else { byte & 3 }) + 1)
                .sum();
            let rest = 16_384 - covered - 1;
            bytes.extend([0x40 | (rest >> 8) as u8, rest as u8]);
        }
        bytes
    }

    fn bound(&mut self) -> Vec<u8> {
        let mut text = if self.random.once_in(3) { b"(".to_vec() } else { Vec::new() };
        match self.random.below(4) {
            0 => text.extend_from_slice(self.random.pick(&FLOATS).as_bytes()),
            _ => text.extend(self.number(12)),
        }
        text
    }

    fn long(&mut self) -> Vec<u8> {
        let len = [63, 64, 65, 100, 300, 3000, 9000][self.random.below(7)];
        vec![b'l'; len]
    }

    fn value(&mut self) -> Vec<u8> {
        if self.family == &SORTING[..] {
            const NUMBERS: [&str; 12] =
                ["", " 5", "1.5", "0x10", "abc", "inf", "-inf", "nan", "1e3", "5\0x", "1 ", "b\0c"];
            return match self.random.below(30) {
                0 => self.random.pick(&NUMBERS).as_bytes().to_vec(),
                1 => format!("f{}", self.random.below(30)).into_bytes(),
                2 => self.number(1000),
                _ => self.number(20),
            };
        }
        match self.random.below(12) {
            0 => Vec::new(),
            1 => self.random.next().to_string().into_bytes(),
            2 => vec![b'v'; [63, 64, 65, 20, 30][self.random.below(5)]],
            3 => self.random.pick(&FLOATS).as_bytes().to_vec(),
            4 => self.number(1000),
            _ => self.number(12),
        }
    }
}

fn lower(word: &[u8]) -> String {
    String::from_utf8_lossy(word).to_ascii_lowercase()
}

fn show(words: &[Vec<u8>]) -> String {
    words.iter().map(|word| format!("{:?} ", String::from_utf8_lossy(word))).collect()
}

fn show_reply(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]).into_owned()
}

/// The reply with what has no order in order: elements one by one, or in
/// groups of `group`.
fn ordered(reply: Reply, group: usize) -> Reply {
    let sort = |mut elements: Vec<Reply>| {
        let mut groups: Vec<Vec<Reply>> = Vec::new();
        while !elements.is_empty() {
            let rest = elements.split_off(group.min(elements.len()));
            groups.push(std::mem::replace(&mut elements, rest));
        }
        groups.sort();
        groups.concat()
    };
    match reply {
        Reply::Array(Some(elements)) => Reply::Array(Some(sort(elements))),
        Reply::Map(elements) => Reply::Map(sort(elements)),
        Reply::Set(elements) => Reply::Set(sort(elements)),
        other => other,
    }
}

/// How many elements there are, and of what kind.
fn shape(reply: &Reply) -> (u8, usize) {
    match reply {
        Reply::Array(Some(elements)) => (1, elements.len()),
        Reply::Set(elements) => (2, elements.len()),
        Reply::Bulk(Some(_)) => (3, 0),
        _ => (0, 0),
    }
}

/// Whether two different replies to a SORT agree: equal texts, which are in the
/// order they were found in or in none, and sets that are not sorted.
fn sorts_agree(words: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let says = |word: &str| words.iter().any(|other| lower(other) == word);
    let has_ties = says("by") && says("alpha");
    let is_unsorted =
        words.windows(2).any(|pair| lower(&pair[0]) == "by" && !pair[1].contains(&b'*'));
    !says("store") && (has_ties || is_unsorted) && shape(ours) == shape(theirs)
}

/// What of a stream's reply is each side's own: times, and nodes of its tree.
fn is_own(name: &[u8]) -> bool {
    let own: [&[u8]; 3] = [b"radix-tree-nodes", b"seen-time", b"idle"];
    own.contains(&name)
}

/// Whether replies about streams differ in nothing but times, and the nodes of
/// trees: integers far apart are none.
fn alike(words: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    const CLOSE: u64 = 60_000;
    match (ours, theirs) {
        (Reply::Array(Some(ours)), Reply::Array(Some(theirs)))
        | (Reply::Map(ours), Reply::Map(theirs)) => {
            let mut last: &[u8] = b"";
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).enumerate().all(|(index, (ours, theirs))| {
                    let own = is_own(last) || (index == 2 && lower(&words[0]) == "xpending");
                    // Of a delivery: its id, for the group its consumer, its time.
                    let times = lower(&words[0]) == "xinfo" && index > 0;
                    last = match ours {
                        Reply::Bulk(Some(bytes)) => bytes,
                        _ => b"",
                    };
                    match (ours, theirs) {
                        (Reply::Integer(ours), Reply::Integer(theirs)) if own || times => {
                            ours == theirs
                                || own
                                || (*ours > 1_000_000_000_000 && ours.abs_diff(*theirs) < CLOSE)
                        }
                        _ => alike(words, ours, theirs),
                    }
                })
        }
        // What Redis says depends on an error before it.
        (Reply::Error(ours), Reply::Error(_)) => {
            lower(&words[0]) == "xadd" && ours.contains("equal or smaller")
        }
        (ours, theirs) => ours == theirs,
    }
}

/// Whether two different replies to a command agree all the same; `is_table`
/// says that its key has no order.
fn agree(words: &[Vec<u8>], is_table: bool, ours: &[u8], theirs: &[u8]) -> bool {
    let (ours, theirs) = (Reply::read(&mut &ours[..]), Reply::read(&mut &theirs[..]));
    let in_any_order = |group| ordered(ours.clone(), group) == ordered(theirs.clone(), group);
    match lower(&words[0]).as_str() {
        "hgetall" => is_table && in_any_order(2),
        "hkeys" | "hvals" | "smembers" => is_table && in_any_order(1),
        "sinter" | "sunion" | "sdiff" | "spop" => in_any_order(1),
        "hrandfield" | "srandmember" | "zrandmember" => {
            shape(&ours).0 != 0 && shape(&ours) == shape(&theirs)
        }
        name @ ("scan" | "hscan" | "sscan" | "zscan") => match (ours, theirs) {
            (Reply::Array(Some(ours)), Reply::Array(Some(theirs))) => {
                let group = if name == "hscan" || name == "zscan" { 2 } else { 1 };
                // Comparable if both have seen all.
                let end = Reply::Bulk(Some(b"0".to_vec()));
                let cursor = words.get(if name == "scan" { 1 } else { 2 });
                cursor.is_none_or(|cursor| cursor != b"0")
                    || ours[0] != end
                    || theirs[0] != end
                    || ordered(ours[1].clone(), group) == ordered(theirs[1].clone(), group)
            }
            _ => false,
        },
        "sort" | "sort_ro" => sorts_agree(words, &ours, &theirs),
        "dump" => match (ours, theirs) {
            (Reply::Bulk(Some(ours)), Reply::Bulk(Some(theirs))) => {
                // A list's blocks tell how it came about.
                (is_table || ours[0] == 0x12) && ours[0] == theirs[0]
            }
            (Reply::Error(ours), Reply::Bulk(Some(_))) => ours.starts_with("ERR DUMP of a stream"),
            _ => false,
        },
        "xadd" if words[1] == b"clock" => shape(&ours) == shape(&theirs),
        name if name.starts_with('x') => alike(words, &ours, &theirs),
        "object" => lower(&words[1]) == "refcount" && matches!(ours, Reply::Integer(_)),
        _ => false,
    }
}

struct Pair {
    redis: Redis,
    listener: Redis,
    store: Store,
    protocol: Protocol,
    history: Vec<String>,
    /// Whether there was a SORT, which has the server store small sorted sets
    /// as large ones.
    has_sorted: bool,
}

impl Pair {
    fn start(protocol: Protocol) -> Self {
        let mut redis = Redis::start(DATABASES);
        let number = protocol.number().to_string().into_bytes();
        redis.send(&[vec![b"hello".to_vec(), number]]);
        redis.read_reply(&mut Vec::new());
        let mut listener = redis.connect();
        listener.send(&[vec![b"psubscribe".to_vec(), b"*".to_vec()]]);
        listener.read_reply(&mut Vec::new());
        let store = Store::new(StoreConfig {
            databases: DATABASES,
            shards: Some(4),
            notify: KeyspaceEvents::parse("AE").expect("letters"),
            ..StoreConfig::default()
        });
        Self { redis, listener, store, protocol, history: Vec::new(), has_sorted: false }
    }

    fn ours(&self, words: &[&[u8]]) -> Vec<u8> {
        let mut reply = Vec::new();
        let clock = clock_at(unix_millis());
        let context = Context { database: 0, clock, protocol: self.protocol, worker: 0 };
        execute_in(&self.store, context, words, &mut reply);
        reply
    }

    fn batch(&mut self, lines: &mut Lines) {
        let batch: Vec<Vec<Vec<u8>>> = (0..BATCH).map(|_| lines.next()).collect();
        self.redis.send(&batch);
        for words in &batch {
            let mut theirs = Vec::new();
            self.redis.read_reply(&mut theirs);
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let ours = self.ours(&refs);
            self.history.push(show(words));
            self.has_sorted |= lower(&words[0]) == "sort" || lower(&words[0]) == "sort_ro";
            if ours == theirs {
                continue;
            }
            let key = refs.get(1).copied().unwrap_or_default();
            let encoding = self.ours(&[b"object", b"encoding", key]);
            let is_table = encoding.ends_with(b"hashtable\r\n");
            if !agree(words, is_table, &ours, &theirs) && !self.is_resized(&refs) {
                self.fail(words, &show_reply(&ours), &show_reply(&theirs));
            }
        }
        let theirs = self.their_events();
        let mut events = Vec::new();
        self.store.take_events(0, &mut events);
        let ours: Vec<String> = events
            .into_iter()
            .map(|event| {
                let key = String::from_utf8_lossy(&event.key).into_owned();
                format!("__keyevent@{}__:{} {key}", event.database, event.name)
            })
            .collect();
        if ours != theirs {
            let at = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
            let part = |events: &[String]| {
                events[at.saturating_sub(2)..].iter().take(6).cloned().collect::<Vec<_>>()
            };
            let last = batch.last().expect("a line").clone();
            self.fail(&last, &format!("{:?}", part(&ours)), &format!("{:?}", part(&theirs)));
        }
    }

    /// Whether a command shows how a sorted set is stored that may have been
    /// sorted.
    fn is_resized(&self, words: &[&[u8]]) -> bool {
        let key = match lower(words[0]).as_str() {
            "object" => words.get(2),
            "dump" => words.get(1),
            _ => None,
        };
        let is_sorted = |key| self.ours(&[b"type", key]) == b"+zset\r\n";
        self.has_sorted && key.is_some_and(|key| is_sorted(key))
    }

    /// The events of a batch, up to a marker behind it.
    fn their_events(&mut self) -> Vec<String> {
        let marker = ["publish", "marker", "x"].map(|word| word.as_bytes().to_vec());
        self.redis.send(&[marker.to_vec()]);
        self.redis.read_reply(&mut Vec::new());
        let mut events = Vec::new();
        loop {
            let mut message = Vec::new();
            self.listener.read_reply(&mut message);
            let parts = Reply::read(&mut &message[..]).strings();
            let text = |index: usize| String::from_utf8_lossy(&parts[index]).into_owned();
            if text(2) == "marker" {
                return events;
            }
            events.push(format!("{} {}", text(2), text(3)));
        }
    }

    fn fail(&self, words: &[Vec<u8>], ours: &str, theirs: &str) -> ! {
        let key = format!("{:?} ", words.get(1).map_or(String::new(), |word| lower(word)));
        let about = self.history.iter().rev().filter(|line| line.contains(&key)).take(25);
        let recent: Vec<String> =
            about.map(|line| line.chars().take(300).collect::<String>()).collect();
        let recent: Vec<&str> = recent.iter().rev().map(String::as_str).collect();
        panic!(
            "after {} commands\n{}\nours:   {ours}\ntheirs: {theirs}",
            self.history.len(),
            recent.join("\n")
        );
    }
}

fn compare(family: &'static [&'static str], seed: u64) {
    compare_some(family, seed, COMMANDS);
}

fn compare_some(family: &'static [&'static str], seed: u64, commands: usize) {
    for (protocol, commands) in [(Protocol::Resp2, commands), (Protocol::Resp3, commands / 3)] {
        let mut pair = Pair::start(protocol);
        // A stream is made by many lines, which are to meet.
        let keys = if *family == STREAMS { 3 } else { KEYS.len() };
        let (random, queue) = (Random::new(seed), Vec::new());
        let mut lines = Lines { random, family, queue, newest: 10, keys };
        (0..commands / BATCH).for_each(|_| pair.batch(&mut lines));
    }
}

#[test]
fn sketches_are_those_of_redis() {
    // Each may take Redis a millisecond.
    compare_some(&SKETCHES, 20_260_406, COMMANDS / 8);
}

#[test]
fn places_are_those_of_redis() {
    compare(&PLACES, 20_260_407);
}

#[test]
fn hashes_are_those_of_redis() {
    compare(&HASHES, 20_260_401);
}

#[test]
fn lists_are_those_of_redis() {
    compare(&LISTS, 20_260_402);
}

#[test]
fn sets_are_those_of_redis() {
    compare(&SETS, 20_260_403);
}

#[test]
fn sorted_sets_are_those_of_redis() {
    compare(&SORTED, 20_260_404);
}

#[test]
fn streams_are_those_of_redis() {
    compare(&STREAMS, 20_260_406);
}

#[test]
fn ranges_of_bytes_are_those_of_redis() {
    compare(&LEXICAL, 20_260_405);
}

#[test]
fn sorting_is_that_of_redis() {
    compare(&SORTING, 20_260_406);
}
