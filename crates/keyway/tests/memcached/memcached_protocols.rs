//! Clients of memcached, classic, meta and binary, on the store and through pools whose servers are
//! asked in each of the protocols.

use std::sync::Arc;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, Shared, has_memcached,
    memcached_packet, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// The systems that serve clients, in the order of the listeners.
const SYSTEMS: [&str; 4] = ["store", "meta", "text", "binary"];
const MANY_SERVERS: usize = 3;

struct Setup {
    keyway: Keyway,
    bare: MemcachedServer,
    _servers: Vec<MemcachedServer>,
}

static SETUP: Shared<Setup> = Shared::new();

/// Starts the systems. Returns `None` without memcached.
fn setup() -> Option<Arc<Setup>> {
    if !has_memcached("clients of memcached through pools") {
        return None;
    }
    Some(SETUP.get(|| {
        let servers = MemcachedServer::start_many(MANY_SERVERS);
        let mut pools = vec![Pool::store("store").spoken_to_in("memcached")];
        for protocol in &SYSTEMS[1..] {
            let pool = Pool::memcached(protocol, &servers);
            pools.push(pool.with("server_protocol", &format!("{protocol:?}")));
        }
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
        Setup { keyway, bare: MemcachedServer::start(), _servers: servers }
    }))
}

/// Runs `test` with a client of each system. Keys begin with the system's name.
fn on_each(setup: &Setup, test: impl Fn(&str, &mut MemcachedClient)) {
    for (index, system) in SYSTEMS.iter().enumerate() {
        test(system, &mut setup.keyway.memcached_client(index));
    }
}

fn cas_of(client: &mut MemcachedClient, key: &str) -> u64 {
    let told = client.say(&format!("gets {key}\r\n"));
    let line = told.lines().next().unwrap_or_default();
    let cas = line.split(' ').nth(4).and_then(|cas| cas.parse().ok());
    cas.unwrap_or_else(|| panic!("no number in {told}"))
}

#[test]
fn classic_commands_do_what_they_say() {
    let _watch = watchdog(Duration::from_secs(60), "classic commands");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let k = &format!("{system}:classic");
        let mut says = |asked: &str, told: &str| {
            assert_eq!(
                client.say(&asked.replace('@', k)),
                told.replace('@', k),
                "{system}: {asked}"
            );
        };
        says("get @\r\n", "END\r\n");
        says("set @ 7 0 3\r\nabc\r\n", "STORED\r\n");
        says("get @\r\n", "VALUE @ 7 3\r\nabc\r\nEND\r\n");
        says("add @ 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
        says("replace @ 4294967295 0 2\r\nbc\r\n", "STORED\r\n");
        says("append @ 0 0 1\r\nd\r\n", "STORED\r\n");
        says("prepend @ 0 0 1\r\na\r\n", "STORED\r\n");
        says("get @\r\n", "VALUE @ 4294967295 4\r\nabcd\r\nEND\r\n");
        says("append @:none 0 0 1\r\nd\r\n", "NOT_STORED\r\n");
        says("replace @:none 0 0 1\r\nd\r\n", "NOT_STORED\r\n");
        says("incr @ 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n");
        says("set @:n 0 0 2\r\n10\r\n", "STORED\r\n");
        says("incr @:n 5\r\n", "15\r\n");
        says("decr @:n 100\r\n", "0\r\n");
        says("incr @:none 1\r\n", "NOT_FOUND\r\n");
        says("touch @ 1000\r\n", "TOUCHED\r\n");
        says("touch @:none 1000\r\n", "NOT_FOUND\r\n");
        says("gat 1000 @\r\n", "VALUE @ 4294967295 4\r\nabcd\r\nEND\r\n");
        says("delete @\r\n", "DELETED\r\n");
        says("delete @\r\n", "NOT_FOUND\r\n");
        says("set @ 0 -1 1\r\nx\r\nget @\r\n", "STORED\r\nEND\r\n");
        says("version\r\n", "VERSION 1.6.38\r\n");
        says("verbosity 1\r\n", "OK\r\n");
    });
}

#[test]
fn cas_stores_once_for_each_number() {
    let _watch = watchdog(Duration::from_secs(60), "cas");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let key = format!("{system}:cas");
        assert_eq!(client.say(&format!("set {key} 0 0 1\r\na\r\n")), "STORED\r\n");
        let cas = cas_of(client, &key);
        let line = format!("cas {key} 0 0 1 {cas}\r\nb\r\n");
        assert_eq!(client.say(&line), "STORED\r\n", "{system}");
        assert_eq!(client.say(&line), "EXISTS\r\n", "{system}");
        assert_ne!(cas_of(client, &key), cas, "{system}");
        assert_eq!(client.say(&format!("cas {key}:no 0 0 1 1\r\nb\r\n")), "NOT_FOUND\r\n");
        // The same is done with packets.
        let cas = cas_of(client, &key);
        let mut binary = MemcachedClient::connect(
            setup.keyway.address(SYSTEMS.iter().position(|one| *one == system).unwrap()),
        );
        for status in [0, 2] {
            binary.send(&memcached_packet(0x01, cas, &[0; 8], key.as_bytes(), b"c"));
            assert_eq!(binary.packet()[6..8], [0, status], "{system}");
        }
    });
}

#[test]
fn meta_commands_do_what_they_say() {
    let _watch = watchdog(Duration::from_secs(60), "meta commands");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let k = &format!("{system}:meta");
        let mut says = |asked: &str, told: &str| {
            assert_eq!(
                client.say(&asked.replace('@', k)),
                told.replace('@', k),
                "{system}: {asked}"
            );
        };
        says("mg @ v\r\n", "EN\r\n");
        says("ms @ 2 F5 T0\r\nhi\r\n", "HD\r\n");
        says("mg @ v f k O9 s\r\n", "VA 2 f5 k@ O9 s2\r\nhi\r\n");
        says("ms @ 2 ME\r\nno\r\n", "NS\r\n");
        says("ms @ 2 MA\r\n!!\r\n", "HD\r\n");
        says("mg @ v\r\n", "VA 4\r\nhi!!\r\n");
        says("mg @:none v q\r\nmg @ v q\r\nmn\r\n", "VA 4\r\nhi!!\r\nMN\r\n");
        says("md @\r\n", "HD\r\n");
        says("md @\r\n", "NF\r\n");
        says("ms @ 1\r\nx\r\nmd @ q\r\n", "HD\r\n");
        says("ms @:n 1\r\n7\r\nma @:n v\r\nma @:n v MD D3\r\n", "HD\r\nVA 1\r\n8\r\nVA 1\r\n5\r\n");
        says("ma @:none\r\n", "NF\r\n");
        says("ms aGFsbG8= 1 b\r\nx\r\nmg aGFsbG8= b v k\r\n", "HD\r\nVA 1 kaGFsbG8= b\r\nx\r\n");
    });
    // Only the meta protocol has this request. It is passed on to a server that knows the protocol,
    // and refused with advice otherwise.
    on_each(&setup, |system, client| {
        let told = client.say(&format!("mg {system}:recache N30 v t c\r\n"));
        match system {
            "store" | "meta" => assert!(told.starts_with("VA 0 t30 c"), "{system}: {told}"),
            _ => assert!(
                told.starts_with("CLIENT_ERROR") && told.contains("server_protocol = \"meta\""),
                "{system}: {told}"
            ),
        }
        assert_eq!(client.say("mn\r\n"), "MN\r\n", "{system} goes on");
    });
}

/// An item that was not stored has no number: `c` is answered with 0, as by memcached itself.
#[test]
fn a_meta_set_that_is_refused_tells_zero_for_the_number() {
    let _watch = watchdog(Duration::from_secs(60), "numbers of refused items");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let mut bare = setup.bare.client();
        let key = format!("{system}:refused");
        for client in [&mut *client, &mut bare] {
            assert_eq!(client.say(&format!("ms {key} 1\r\nx\r\n")), "HD\r\n", "{system}");
        }
        for (asked, told) in [
            ("ms @ 1 C987654321 c\r\ny\r\n", "EX c0\r\n"),
            ("ms @ 1 C987654321 c k O7\r\ny\r\n", "EX c0 k@ O7\r\n"),
            ("ms @ 1 C987654321 c q\r\ny\r\n", "EX c0\r\n"),
            ("ms @ 1 C987654321\r\ny\r\n", "EX\r\n"),
            ("ms @:none 1 C987654321 c\r\ny\r\n", "NF c0\r\n"),
            ("ms @ 1 ME c\r\ny\r\n", "NS c0\r\n"),
            ("mg @ v\r\n", "VA 1\r\nx\r\n"),
        ] {
            let (asked, told) = (asked.replace('@', &key), told.replace('@', &key));
            assert_eq!(bare.say(&asked), told, "memcached: {asked}");
            let said = client.say(&asked);
            match (system, asked.contains(" c")) {
                // Classic commands return no number.
                ("text", true) => assert!(said.contains("server_protocol = \"meta\""), "{said}"),
                _ => assert_eq!(said, told, "{system}: {asked}"),
            }
        }
    });
}

#[test]
fn packets_do_what_they_say() {
    let _watch = watchdog(Duration::from_secs(60), "packets");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let key = format!("{system}:packet").into_bytes();
        let mut status = |opcode, extras: &[u8], value: &[u8]| {
            client.send(&memcached_packet(opcode, 0, extras, &key, value));
            let packet = client.packet();
            assert_eq!((packet[0], packet[1]), (0x81, opcode), "{system}");
            assert_eq!(packet[12..16], 0xdead_beef_u32.to_be_bytes(), "{system}");
            let extras = usize::from(packet[4]);
            let names = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            (u16::from_be_bytes([packet[6], packet[7]]), packet[24 + extras + names..].to_vec())
        };
        let flags = [0, 0, 0, 9, 0, 0, 0, 0];
        assert_eq!(status(0x00, &[], b"").0, 1, "{system}: get of none");
        assert_eq!(status(0x01, &flags, b"ab"), (0, vec![]), "{system}: set");
        assert_eq!(status(0x00, &[], b""), (0, b"ab".to_vec()), "{system}: get");
        assert_eq!(status(0x0c, &[], b""), (0, b"ab".to_vec()), "{system}: getk");
        assert_eq!(status(0x02, &flags, b"x").0, 2, "{system}: add");
        assert_eq!(status(0x0e, &[], b"c"), (0, vec![]), "{system}: append");
        assert_eq!(status(0x0f, &[], b"_"), (0, vec![]), "{system}: prepend");
        assert_eq!(status(0x1d, &[0, 0, 3, 232], b""), (0, b"_abc".to_vec()), "{system}: gat");
        assert_eq!(status(0x1c, &[0, 0, 3, 232], b"").0, 0, "{system}: touch");
        let never_made = [&[0; 16][..], &[255; 4]].concat();
        assert_eq!(status(0x05, &never_made, b"").0, 6, "{system}: incr of words");
        assert_eq!(status(0x04, &[], b""), (0, vec![]), "{system}: delete");
        assert_eq!(status(0x04, &[], b"").0, 1, "{system}: delete of none");
        let from_seven = [&1u64.to_be_bytes()[..], &7u64.to_be_bytes(), &[0; 4]].concat();
        let told = status(0x05, &from_seven, b"");
        // Only a packet can create a number that is missing. The protocol of the servers decides
        // whether that can be passed on.
        if system != "text" {
            assert_eq!(told, (0, 7u64.to_be_bytes().to_vec()), "{system}: incr makes it");
            assert_eq!(status(0x05, &from_seven, b"").1, 8u64.to_be_bytes(), "{system}: incr");
            assert_eq!(status(0x06, &from_seven, b"").1, 7u64.to_be_bytes(), "{system}: decr");
        }
    });
}

#[test]
fn values_of_many_keys_come_in_the_order_of_the_keys() {
    const KEYS: usize = 300;
    let _watch = watchdog(Duration::from_secs(60), "many keys");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let key = |nth: usize| format!("{system}:many:{nth}");
        // Every third key is missing.
        let sets = (0..KEYS).filter(|nth| nth % 3 != 0);
        let sets = sets.map(|nth| format!("set {} {nth} 0 0 noreply\r\n\r\n", key(nth)));
        assert_eq!(client.say(&sets.collect::<String>()), "", "{system}: noreply is silent");
        // The keys are mixed up, and each is asked for twice.
        let asked: Vec<usize> = (0..2 * KEYS).map(|nth| nth * 7 % KEYS).collect();
        let names: String = asked.iter().map(|&nth| format!(" {}", key(nth))).collect();
        let there = || asked.iter().filter(|&&nth| nth % 3 != 0);
        let values: String =
            there().map(|&nth| format!("VALUE {} {nth} 0\r\n\r\n", key(nth))).collect();
        let told = format!("{values}END\r\n");
        assert_eq!(client.say(&format!("get{names}\r\n")), told, "{system}: get");
        let told = client.say(&format!("gets{names}\r\n"));
        let with_cas = told.lines().filter(|line| line.split(' ').count() == 5).count();
        assert_eq!(with_cas, there().count(), "{system}: gets");
        let meta: String = asked.iter().map(|&nth| format!("mg {} k f q\r\n", key(nth))).collect();
        let values: String = there().map(|&nth| format!("HD k{} f{nth}\r\n", key(nth))).collect();
        assert_eq!(client.say(&meta), values, "{system}: mg");
        let index = SYSTEMS.iter().position(|one| *one == system).unwrap();
        let mut binary = setup.keyway.memcached_client(index);
        let packets =
            asked.iter().flat_map(|&nth| memcached_packet(0x0d, 0, &[], key(nth).as_bytes(), &[]));
        let mut rest = &binary.ask(&packets.collect::<Vec<u8>>())[..];
        for &nth in there() {
            let name = key(nth);
            let len = 24 + 4 + name.len();
            assert_eq!(rest[24..28], (nth as u32).to_be_bytes(), "{system}: flags of {name}");
            assert_eq!(&rest[28..len], name.as_bytes(), "{system}: getkq");
            rest = &rest[len..];
        }
        assert!(rest.is_empty(), "{system}: misses are silent");
    });
}

#[test]
fn quiet_requests_say_only_what_went_wrong() {
    let _watch = watchdog(Duration::from_secs(60), "quiet requests");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let k = &format!("{system}:quiet");
        let classic = "set @ 0 0 1 noreply\r\n1\r\nadd @ 0 0 1 noreply\r\nx\r\nincr @ 4 noreply\r\n\
                       append @ 0 0 1 noreply\r\n0\r\ntouch @ 100 noreply\r\ndelete @:no noreply\r\n\
                       cas @ 0 0 1 1 noreply\r\nx\r\nget @\r\ndelete @ noreply\r\nget @\r\n";
        let told = format!("VALUE {k} 0 2\r\n50\r\nEND\r\nEND\r\n");
        assert_eq!(client.say(&classic.replace('@', k)), told, "{system}: noreply");
        let meta = "ms @ 1 q\r\n5\r\nma @ q\r\nms @ 1 ME q O3\r\nx\r\nmd @ q\r\nmn\r\n";
        assert_eq!(client.say(&meta.replace('@', k)), "NS O3\r\nMN\r\n", "{system}: q");
        let index = SYSTEMS.iter().position(|one| *one == system).unwrap();
        let mut binary = setup.keyway.memcached_client(index);
        let packet = |opcode, extras: &[u8], value: &[u8]| {
            memcached_packet(opcode, 0, extras, k.as_bytes(), value)
        };
        let stream = [
            packet(0x11, &[0; 8], b"a"),
            packet(0x12, &[0; 8], b"b"),
            packet(0x19, &[], b"c"),
            packet(0x09, &[], b""),
            packet(0x14, &[], b""),
            packet(0x09, &[], b""),
        ];
        let told = binary.ask(&stream.concat());
        let opcodes: Vec<(u8, u8)> = heads(&told);
        assert_eq!(opcodes, [(0x12, 2), (0x09, 0)], "{system}: the add that fails, and the value");
    });
}

/// Returns the operation and the status of each packet.
fn heads(mut packets: &[u8]) -> Vec<(u8, u8)> {
    let mut heads = Vec::new();
    while !packets.is_empty() {
        heads.push((packets[1], packets[7]));
        let body = u32::from_be_bytes(packets[8..12].try_into().unwrap());
        packets = &packets[24 + body as usize..];
    }
    heads
}

#[test]
fn replies_are_the_same_in_one_write_and_in_single_bytes() {
    let _watch = watchdog(Duration::from_secs(120), "pipelines");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let few: String = (0..20)
            .map(|nth| {
                let key = format!("{system}:bytes:{}", nth % 5);
                format!("set {key} {nth} 0 4\r\n\r\nx\n\r\nget {key} no\r\nmg {key} v f\r\n")
            })
            .collect();
        let whole = client.say(&few);
        assert_eq!(whole.matches("STORED").count(), 20, "{system}");
        let single = client.ask_in_single_bytes(few.as_bytes());
        assert_eq!(String::from_utf8_lossy(&single), whole, "{system}");
        let many: String = (0..5000)
            .map(|nth| {
                format!(
                    "set {system}:{} {nth} 0 3\r\nabc\r\nget {system}:{}\r\n",
                    nth % 97,
                    nth % 97
                )
            })
            .collect();
        let told: String = (0..5000)
            .map(|nth| format!("STORED\r\nVALUE {system}:{} {nth} 3\r\nabc\r\nEND\r\n", nth % 97))
            .collect();
        assert!(client.say(&many) == told, "{system}: one write of 5000 pairs");
    });
    for (index, system) in SYSTEMS.iter().enumerate() {
        let key = format!("{system}:packets").into_bytes();
        let stream: Vec<u8> = (0..20)
            .flat_map(|nth: u8| {
                let set = memcached_packet(0x01, 0, &[0, 0, 0, nth, 0, 0, 0, 0], &key, b"a\r\n");
                [set, memcached_packet(0x0c, 0, &[], &key, &[])].concat()
            })
            .collect();
        let whole = setup.keyway.memcached_client(index).ask(&stream);
        let single = setup.keyway.memcached_client(index).ask_in_single_bytes(&stream);
        assert_eq!(heads(&whole).len(), 40);
        assert_eq!(heads(&whole), heads(&single), "{system}");
    }
}

#[test]
fn a_value_of_a_megabyte_goes_through_and_a_larger_one_is_refused() {
    let _watch = watchdog(Duration::from_secs(60), "large values");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        let key = format!("{system}:large");
        let value = "v".repeat(1_000_000);
        let set = format!("set {key} 3 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(client.say(&set), "STORED\r\n", "{system}");
        let told = format!("VALUE {key} 3 {}\r\n{value}\r\nEND\r\n", value.len());
        assert!(client.say(&format!("get {key}\r\n")) == told, "{system}");
        assert!(client.say(&format!("get {key} {key} no\r\n")).len() > 2_000_000, "{system}");
        // The earlier item is gone, so that it is not taken for the new one.
        let value = "v".repeat(2 << 20);
        let set = format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\n", value.len());
        assert_eq!(
            client.say(&set),
            "SERVER_ERROR object too large for cache\r\nEND\r\n",
            "{system}"
        );
        let index = SYSTEMS.iter().position(|one| *one == system).unwrap();
        let mut binary = setup.keyway.memcached_client(index);
        binary.send(&memcached_packet(0x01, 0, &[0; 8], key.as_bytes(), value.as_bytes()));
        assert_eq!(binary.packet()[6..8], [0, 3], "{system}: too large");
        binary.send(&memcached_packet(0x0a, 0, &[], &[], &[]));
        assert_eq!(binary.packet()[6..8], [0, 0], "{system}: it goes on");
    });
}

#[test]
fn wrong_input_is_refused_in_the_words_of_memcached() {
    let _watch = watchdog(Duration::from_secs(120), "wrong input");
    let Some(setup) = setup() else { return };
    let long = "k".repeat(251);
    let streams = [
        format!("get {long}\r\n"),
        format!("set {long} 0 0 1\r\nx\r\n"),
        format!("get a {long} b\r\n"),
        format!("delete {long}\r\n"),
        format!("mg {long} v\r\n"),
        format!("ms {long} 1\r\nx\r\n"),
        format!("get {}\r\n", "k".repeat(250)),
        "get\r\n".to_owned(),
        "get \r\n".to_owned(),
        "set k\r\n".to_owned(),
        "set k 0 0\r\n".to_owned(),
        "set k x 0 1\r\ny\r\n".to_owned(),
        "set k -1 0 1\r\ny\r\n".to_owned(),
        "set k 4294967296 0 1\r\ny\r\n".to_owned(),
        "set k 0 x 1\r\ny\r\n".to_owned(),
        "set k 0 0 -1\r\n".to_owned(),
        "set k 0 0 -2147483648\r\n".to_owned(),
        "set k 0 0 99999999999999999999\r\n".to_owned(),
        "set k 0 0 x\r\n".to_owned(),
        "set k 0 0 1\r\nxyz\r\n".to_owned(),
        "cas k 0 0 1\r\n".to_owned(),
        "cas k 0 0 1 x\r\ny\r\n".to_owned(),
        "incr k x\r\n".to_owned(),
        "incr k -1\r\n".to_owned(),
        "incr k 18446744073709551616\r\n".to_owned(),
        "touch k x\r\n".to_owned(),
        "gat x k\r\n".to_owned(),
        "delete k 5\r\n".to_owned(),
        "ms k -1\r\n".to_owned(),
        "ms k\r\n".to_owned(),
        "ms k x\r\n".to_owned(),
        "ms k 1 v v\r\nx\r\n".to_owned(),
        "mg\r\n".to_owned(),
        "mg k !\r\n".to_owned(),
        "mg k v v\r\n".to_owned(),
        "mg *** b v\r\n".to_owned(),
        "ma k Dx\r\n".to_owned(),
        "nonsense\r\n".to_owned(),
        "\r\n".to_owned(),
        "GETS k\r\n".to_owned(),
    ];
    for stream in &streams {
        let theirs = setup.bare.client().say(stream);
        on_each(&setup, |system, client| {
            assert_eq!(client.say(stream), theirs, "{system}: {}", stream.escape_debug());
        });
    }
    // Nothing is read after a packet that contradicts itself.
    let mut too_short = memcached_packet(0x00, 0, &[], b"k", &[]);
    too_short[3] = 200;
    let packets = [
        (memcached_packet(0x00, 0, &[], long.as_bytes(), &[]), Some(0x04)),
        (memcached_packet(0x01, 0, &[0; 8], long.as_bytes(), b"x"), Some(0x04)),
        (memcached_packet(0x00, 0, &[], &[], &[]), Some(0x04)),
        (memcached_packet(0x00, 0, &[0; 4], b"k", &[]), Some(0x04)),
        (memcached_packet(0x01, 0, &[0; 4], b"k", b"x"), Some(0x04)),
        (memcached_packet(0x05, 0, &[0; 8], b"k", &[]), Some(0x04)),
        (too_short, Some(0x81)),
    ];
    for (packet, status) in &packets {
        on_each(&setup, |system, client| {
            client.send(&[&packet[..], &memcached_packet(0x0a, 0, &[], &[], &[])].concat());
            let told = heads(&client.until_closed());
            let told: Vec<Option<u8>> = told.iter().map(|(_, status)| Some(*status)).collect();
            assert_eq!(told, [*status], "{system}: {}", packet.escape_ascii());
        });
    }
}

#[test]
fn a_client_that_changes_its_protocol_is_understood_no_more() {
    let _watch = watchdog(Duration::from_secs(60), "mixed protocols");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        // A packet where a line is expected is not a command, whatever it contains.
        let packet = memcached_packet(0x01, 0, &[0; 8], b"mixed", b"\r\n");
        client.send(&[b"mn\r\n", &packet[..], b"mn\r\n"].concat());
        let told = (client.line(), client.line(), client.line());
        let told = (told.0.as_str(), told.1.as_str(), told.2.as_str());
        assert_eq!(told, ("MN", "ERROR", "MN"), "{system}");
        let index = SYSTEMS.iter().position(|one| *one == system).unwrap();
        let mut binary = setup.keyway.memcached_client(index);
        binary.send(&memcached_packet(0x0a, 0, &[], &[], &[]));
        assert_eq!(binary.packet()[1], 0x0a);
        binary.send(b"set mixed 0 0 1\r\nx\r\nget mixed\r\n");
        assert_eq!(binary.until_closed(), b"", "{system}: text where a packet is expected");
        assert_eq!(client.say("get mixed\r\n"), "END\r\n", "{system}");
    });
}

#[test]
fn a_browser_is_sent_away_before_its_body_does_anything() {
    let _watch = watchdog(Duration::from_secs(60), "HTTP");
    let Some(setup) = setup() else { return };
    let body = "set smuggled 0 0 1\r\nx\r\n";
    for head in ["POST / HTTP/1.1", "GET / HTTP/1.1"] {
        let stream = format!("{head}\r\nHost: localhost\r\n\r\n{body}");
        on_each(&setup, |system, client| {
            client.send(stream.as_bytes());
            assert_eq!(client.until_closed(), b"", "{system}: {head}");
        });
    }
    on_each(&setup, |system, client| {
        assert_eq!(client.say("get smuggled\r\n"), "END\r\n", "{system}");
    });
}

#[test]
fn what_is_an_operators_is_refused_with_what_to_do_instead() {
    let _watch = watchdog(Duration::from_secs(60), "refused commands");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        for (asked, word) in [
            ("cache_memlimit 64\r\n", "configuration"),
            ("shutdown\r\n", "Keyway itself"),
            ("slabs automove 0\r\n", "server itself"),
            ("lru_crawler enable\r\n", "server itself"),
        ] {
            let told = client.say(asked);
            assert!(told.starts_with("CLIENT_ERROR ") && told.contains(word), "{system}: {told}");
            assert_eq!(told.matches("\r\n").count(), 1, "{system}: {told}");
        }
        if system != "store" {
            let told = client.say("flush_all\r\n");
            assert!(told.contains("allow_flush = true"), "{system}: {told}");
        }
    });
}

#[test]
fn quit_closes_behind_the_replies() {
    let _watch = watchdog(Duration::from_secs(60), "quit");
    let Some(setup) = setup() else { return };
    on_each(&setup, |system, client| {
        client.send(format!("get {system}:quit\r\nmn\r\nquit\r\nget after\r\n").as_bytes());
        assert_eq!(client.until_closed(), b"END\r\nMN\r\n", "{system}");
    });
}
