//! The servers of keys with each distribution that is not twemproxy's, in figures written down
//! once: no release may move a key.

use keyway_topology::{Distribution, Hash, Server, ServerSet};

fn pool(distribution: Distribution, hash: Hash, lines: &[&str]) -> ServerSet {
    let servers = lines.iter().map(|line| Server::parse(line).unwrap()).collect();
    let mut pool = ServerSet::new(servers);
    pool.hash = hash;
    pool.distribution = distribution;
    pool
}

/// Returns the index of each key's server, one digit each.
fn digits(pool: &ServerSet, keys: impl Iterator<Item = String>) -> String {
    let ring = pool.ring(|_| true);
    keys.map(|key| ring.pick(pool.hash_key(key.as_bytes()), 0).unwrap().to_string()).collect()
}

const EQUAL: [&str; 3] = ["127.50.0.1:11211", "127.50.0.2:11212", "127.50.0.3:11311"];
const WEIGHTED: [&str; 3] = ["127.50.0.1:11211:3", "127.50.0.2:11212:1", "127.50.0.3:11311:2"];

fn keys() -> impl Iterator<Item = String> {
    let ascii = (0..36).map(|nth| format!("user:{nth}"));
    ascii.chain((0..12).map(|nth| format!("ключ:{nth}")))
}

/// Results of pylibmc 1.6.3 with libmemcached 1.0.16.
#[test]
fn keys_go_where_libmemcached_sends_them() {
    use Distribution::{KetamaLibmemcached, KetamaWeightedLibmemcached, ModulaLibmemcached};
    for (distribution, hash, lines, expected) in [
        (
            ModulaLibmemcached,
            Hash::OneAtATime,
            EQUAL,
            "222202222212222222222000010000212222200001111122",
        ),
        (ModulaLibmemcached, Hash::Md5, EQUAL, "200021000000020010202100001022010212111000121110"),
        (
            KetamaLibmemcached,
            Hash::OneAtATime,
            EQUAL,
            "222201100110211122221020001012012010200002221101",
        ),
        (KetamaLibmemcached, Hash::Md5, EQUAL, "212000120010102221202001112202122002220010220002"),
        (
            KetamaLibmemcached,
            Hash::OneAtATime,
            WEIGHTED,
            "000012122100020010220000000201010200202100202121",
        ),
        (
            KetamaWeightedLibmemcached,
            Hash::Md5,
            EQUAL,
            "201002100022120112012011201012212111212100111120",
        ),
        (
            KetamaWeightedLibmemcached,
            Hash::Md5,
            WEIGHTED,
            "200002200022120102022002002012202011212000110100",
        ),
    ] {
        let pool = pool(distribution, hash, &lines);
        assert_eq!(digits(&pool, keys()), expected, "{distribution:?} {hash:?} {lines:?}");
    }
}

/// Results read from the servers after PHP 8.2 with memcache 8.0 had set the keys.
#[test]
fn keys_go_where_the_extension_memcache_of_php_sends_them() {
    use Distribution::{PhpMemcacheConsistent, PhpMemcacheStandard};
    for (distribution, hash, equal, weighted) in [
        (
            PhpMemcacheStandard,
            Hash::Crc32a,
            "000020000002101200201112020201222121001011022122",
            "010120101002210010200200020200020022012102102202",
        ),
        (
            PhpMemcacheStandard,
            Hash::Fnv1a32,
            "201201200102101021022001122001211002100221100212",
            "002002000200202002120002200002022000200002200002",
        ),
        (
            PhpMemcacheConsistent,
            Hash::Crc32a,
            "220100000010011022211000220012022210221021112110",
            "220000222220001020220020020012020010221001220200",
        ),
        (
            PhpMemcacheConsistent,
            Hash::Fnv1a32,
            "011020101200210021110122110012102102110210221012",
            "011020101200010021110102122010100102110210220012",
        ),
    ] {
        assert_eq!(digits(&pool(distribution, hash, &EQUAL), keys()), equal);
        assert_eq!(digits(&pool(distribution, hash, &WEIGHTED), keys()), weighted);
    }
}

/// Results computed from the text of `ring/rendezvous.rs` and `ring/maglev.rs` by another program.
#[test]
fn keys_go_where_the_description_says() {
    let equal = ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:11211", "x:1:1 alpha"];
    let weighted = ["10.0.0.1:6379:3", "10.0.0.2:6379:1", "10.0.0.3:11211:10", "x:1:7 alpha"];
    for (distribution, lines, expected) in [
        (Distribution::Rendezvous, equal, "3010023021230301122001233103210003100022"),
        (Distribution::Maglev, equal, "1220331123203120101013212321211021022301"),
        (Distribution::Rendezvous, weighted, "3000223322230331322302233103233003103322"),
        (Distribution::Maglev, weighted, "2222330222233220202023222322222023022303"),
    ] {
        let pool = pool(distribution, Hash::Fnv1a64, &lines);
        let keys = (0..40).map(|nth| format!("user:{nth}"));
        assert_eq!(digits(&pool, keys), expected, "{distribution:?} {lines:?}");
    }
}

/// A server that moved to another address keeps its keys if its old address is its name.
#[test]
fn name_stands_for_the_address_that_clients_hashed() {
    for distribution in [
        Distribution::KetamaLibmemcached,
        Distribution::KetamaWeightedLibmemcached,
        Distribution::PhpMemcacheConsistent,
    ] {
        let php = distribution == Distribution::PhpMemcacheConsistent;
        let first = if php { "x:1:1 127.50.0.1:11211" } else { "x:1:1 127.50.0.1" };
        let moved = [first, "y:2:1 127.50.0.2:11212", "127.50.0.3:11311"];
        let hash = distribution.default_hash();
        let before = digits(&pool(distribution, hash, &EQUAL), keys());
        assert_eq!(digits(&pool(distribution, hash, &moved), keys()), before);
    }
}

/// For distributions of the clients, the order of the list decides, with or without weights.
#[test]
fn order_of_the_list_is_the_clients_where_servers_are_numbered() {
    for distribution in [Distribution::ModulaLibmemcached, Distribution::PhpMemcacheStandard] {
        let turned = [EQUAL[2], EQUAL[0], EQUAL[1]];
        let hash = distribution.default_hash();
        let before = digits(&pool(distribution, hash, &EQUAL), keys());
        assert_eq!(digits(&pool(distribution, hash, &turned), keys()), before);
    }
}
