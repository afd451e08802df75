//! Many seeds, each a whole life of one or two workers.

use keyway_sim::{Driver, Options, RingFigures, run_many, run_many_of, run_seed};

/// Options for seeds that broke a law before anything of what these leave out was drawn.
fn as_once() -> Options {
    let no = Some(false);
    Options { bounds: no, holds: no, wide_mutes: no, ..Options::default() }
}

/// Seeds of an ordinary test run; `make sim` runs more, of these and of the kinds below.
const SEEDS: u64 = 300;

#[test]
fn no_seed_breaks_a_law() {
    let summary = run_many(0, SEEDS);
    println!("{summary}");
    for violation in &summary.violations {
        println!("{violation}");
    }
    assert_eq!(summary.violation_count, 0);
    // A simulator in which nothing goes wrong proves nothing.
    assert!(summary.total.excused > 10 * summary.seeds);
    assert!(summary.total.commits > 5 * summary.seeds);
    assert!(summary.total.deliveries > summary.seeds);
    assert!(summary.total.entries > summary.seeds);
    assert!(summary.total.messages > 5 * summary.seeds);
    assert!(summary.total.invalidations > 3 * summary.seeds);
    assert!(summary.total.reloads > summary.seeds);
    let RingFigures { withdrawn, short, held, carried } = summary.total.ring;
    println!(
        "by ring: {withdrawn} orders withdrawn, {short} times no buffer, {held} times held, {carried} carried"
    );
    assert!(withdrawn > 0 && short > 0 && held > 0);
}

#[test]
fn a_seed_decides_how_sockets_are_driven() {
    let drawn = |seed| Driver::of(seed, &Options::default());
    let rings = (0..SEEDS).filter(|&seed| drawn(seed) == Driver::Ring).count() as u64;
    assert!((SEEDS / 3..SEEDS * 2 / 3).contains(&rings), "{rings} of {SEEDS}");
    for io in [Driver::Epoll, Driver::Ring] {
        let forced = Options { io: Some(io), ..Options::default() };
        assert!((0..SEEDS).all(|seed| Driver::of(seed, &forced) == io));
    }
}

#[test]
fn a_seed_is_the_same_run_every_time() {
    for (seed, io) in (0..20).flat_map(|seed| [(seed, Driver::Epoll), (seed, Driver::Ring)]) {
        // Of stores with a bound it holds in a process of their own.
        let options = Options { io: Some(io), bounds: Some(false), ..Options::default() };
        let once = run_seed(seed, &options).map_err(|violation| violation.text);
        let told = Options { story: true, ..options };
        let again = run_seed(seed, &told).map_err(|violation| violation.text);
        assert_eq!(once, again, "seed {seed} by {io}");
        let figures = once.map(|report| report.ring);
        assert!(io == Driver::Ring || figures == Ok(RingFigures::default()));
    }
}

/// Seeds with a bound on the memory of a store, where they have a store.
const BOUNDED_SEEDS: u64 = 60;

/// A store takes no more memory than its bound, one item and two percent, whatever is half sent or
/// lent. A write that is refused for that was not done, and a read misses only what may have gone.
#[test]
fn no_store_with_a_bound_on_its_memory_breaks_a_law() {
    let options = Options { bounds: Some(true), ..Options::default() };
    let summary = run_many_of(0, BOUNDED_SEEDS, &options);
    println!("{summary}");
    for violation in &summary.violations {
        println!("{violation} --bounds yes");
    }
    assert_eq!(summary.violation_count, 0);
    let total = &summary.total;
    assert!(total.filled > BOUNDED_SEEDS / 8, "{} stores were full", total.filled);
    assert!(total.refused_for_room > BOUNDED_SEEDS && total.gone > 0);
    // Without being asked for, some seeds have a bound.
    let drawn = run_many(400, 100);
    assert!((1..20).contains(&drawn.total.bounded), "{drawn}");
}

/// Seeds of clusters.
const CLUSTER_SEEDS: u64 = 150;

/// Slots move under load, primaries fail, servers come and go: requests of a client on one
/// key are executed once and in their order, what was acknowledged is there unless a copy
/// was behind, no error is told that no server gave and no fault explains, and in the end
/// the map is that of the cluster and nothing is left of servers that have gone.
#[test]
fn no_seed_of_clusters_breaks_a_law() {
    let options = Options { clusters: true, ..Options::default() };
    let summary = run_many_of(0, CLUSTER_SEEDS, &options);
    println!("{summary}");
    for violation in &summary.violations {
        println!("{violation} --clusters");
    }
    assert_eq!(summary.violation_count, 0);
    let total = &summary.total;
    assert!(total.redirected > 10 * CLUSTER_SEEDS && total.refused > 5 * CLUSTER_SEEDS);
    assert!(total.hedged > 0 && total.retried > CLUSTER_SEEDS);
    assert!(total.commits > 10 * CLUSTER_SEEDS && total.replies > 500 * CLUSTER_SEEDS);
}

/// Each broke a law once, and is too far off to be among the others.
#[test]
fn seeds_of_clusters_that_broke_a_law_once_do_so_no_more() {
    let options = Options {
        clusters: true,
        io: Some(Driver::Epoll),
        reloads: Some(false),
        ..Options::default()
    };
    // The first command of a transaction is refused, as nobody has its slot; a
    // server sleeps with a write that is given up, and has the slot again when it wakes; a wait
    // that goes on elsewhere is shorter than it was asked to be.
    for seed in [71220, 70419, 101370] {
        let violation = run_seed(seed, &options).err();
        assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
    }
}

/// Seeds of primaries with replicas.
const REPLICATED_SEEDS: u64 = 200;

/// Replicas take over, orderly, after a death or against a primary that works, and primaries
/// flap; sentinels hear of it late, say what was so long ago or are all gone: the laws are those
/// of clusters, nobody goes back to a primary that the sentinels have replaced, and in the end
/// the map has the primaries that there are.
#[test]
fn no_seed_of_primaries_with_replicas_breaks_a_law() {
    let options = Options { replicated: true, ..Options::default() };
    let summary = run_many_of(0, REPLICATED_SEEDS, &options);
    println!("{summary}");
    for violation in &summary.violations {
        println!("{violation} --replicated");
    }
    assert_eq!(summary.violation_count, 0);
    let total = &summary.total;
    assert!(total.refused > 10 * REPLICATED_SEEDS && total.excused > 10 * REPLICATED_SEEDS);
    // Who has large replies has a connection of its own, and is not hedged; nor is what a replica
    // would be asked that has just said that it cannot answer yet.
    assert!(total.hedged > REPLICATED_SEEDS / 5);
    assert!(total.commits > 10 * REPLICATED_SEEDS && total.replies > 500 * REPLICATED_SEEDS);
}

/// Sentinels are asked while they hear of a fail-over (70159). A key was watched at a replica that
/// became the primary later (25856). Clients waited for room on a connection that was lost (24008).
#[test]
fn seeds_of_primaries_with_replicas_that_broke_a_law_once_do_so_no_more() {
    let options = Options {
        replicated: true,
        io: Some(Driver::Epoll),
        reloads: Some(false),
        ..Options::default()
    };
    for seed in [70159, 25856, 24008] {
        let violation = run_seed(seed, &options).err();
        assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
    }
}

/// Seeds of pools that lead to others.
const ROUTED_SEEDS: u64 = 120;

/// Seeds of pools of memcached.
const MEMCACHED_SEEDS: u64 = 180;

/// Order, loss and doubling as for Redis; and a server that comes back where the policy is to
/// empty it has been empty since it was ejected.
#[test]
fn no_seed_of_memcached_breaks_a_law() {
    let options = Options { memcached: true, ..Options::default() };
    let (mut replies, mut excused) = (0, 0);
    for seed in 0..MEMCACHED_SEEDS {
        match run_seed(seed, &options) {
            Ok(report) => (replies, excused) = (replies + report.replies, excused + report.excused),
            Err(violation) => panic!("{violation} --memcached"),
        }
    }
    println!("{MEMCACHED_SEEDS} seeds, {replies} replies checked, {excused} excused errors");
    assert!(excused > 5 * MEMCACHED_SEEDS && replies > 100 * MEMCACHED_SEEDS);
}

/// Pools that lead to others: every request has one reply in order, none fails while a pool
/// that may answer works, and the children of a mirror hold the same at rest.
#[test]
fn no_seed_of_pools_of_pools_breaks_a_law() {
    let options = Options { memcached: true, routes: true, ..Options::default() };
    let (mut replies, mut excused, mut mirrored, mut led_on) = (0, 0, 0, 0);
    for seed in 0..ROUTED_SEEDS {
        match run_seed(seed, &options) {
            Ok(report) => {
                (replies, excused) = (replies + report.replies, excused + report.excused);
                (mirrored, led_on) = (mirrored + report.mirrored, led_on + report.led_on);
            }
            Err(violation) => panic!("{violation} --routes"),
        }
    }
    println!(
        "{ROUTED_SEEDS} seeds, {replies} replies, {excused} excused, {mirrored} items the same, \
         {led_on} requests led on"
    );
    assert!(excused > ROUTED_SEEDS && replies > 100 * ROUTED_SEEDS);
    assert!(mirrored > ROUTED_SEEDS / 4 && led_on > 10 * ROUTED_SEEDS);
}

/// What was written or deleted through the new pool is never undone by what the old one had,
/// and what the old one had is found.
#[test]
fn no_seed_of_a_pool_that_is_warmed_up_breaks_a_law() {
    let options = Options { memcached: true, warm_up: true, ..Options::default() };
    let (mut replies, mut excused, mut moves) = (0, 0, 0);
    for seed in 0..MEMCACHED_SEEDS {
        match run_seed(seed, &options) {
            Ok(report) => {
                (replies, excused) = (replies + report.replies, excused + report.excused);
                moves += report.moves;
            }
            Err(violation) => panic!("{violation} --warm-up"),
        }
    }
    println!("{MEMCACHED_SEEDS} seeds, {replies} replies, {excused} excused, {moves} moves");
    assert!(excused > 5 * MEMCACHED_SEEDS && replies > 100 * MEMCACHED_SEEDS);
    assert!(moves > 20 * MEMCACHED_SEEDS);
}

/// Found among many thousands: links that nobody read on after a pause had outlived its reply
/// (2887, 3349), questions that piled up on a link whose client takes nothing (4338), an item that
/// was missed while it was moved (2631), a blocking command that was given up too early (4240), a
/// write that overwrote a later one of its client, which had gone around a large reply (21088), a
/// server that came back unemptied (30140), and a request that was sent with 1 ms left (28071).
#[test]
fn seeds_of_slow_and_lost_connections_that_broke_a_law_once_do_so_no_more() {
    let none = as_once();
    let memcached = Options { memcached: true, ..none.clone() };
    let mutes = Options { mutes: true, ..none.clone() };
    let warm_up = Options { warm_up: true, ..memcached.clone() };
    let by_ring = Options { io: Some(Driver::Ring), ..memcached.clone() };
    let routes = Options { routes: true, io: Some(Driver::Epoll), ..memcached.clone() };
    let clusters = Options { clusters: true, ..none };
    // A pool ended while items were still brought over from it.
    let reloaded = Options { reloads: Some(true), io: Some(Driver::Epoll), ..warm_up.clone() };
    let violation = run_seed(61_244, &reloaded).err();
    assert_eq!(violation.map(|violation| violation.text), None);
    for (seed, options) in [
        (2887, &mutes),
        (3349, &mutes),
        (4338, &memcached),
        (2631, &warm_up),
        (4240, &clusters),
        (21_088, &warm_up),
        (30_140, &by_ring),
        (28_071, &routes),
    ] {
        let violation = run_seed(seed, options).err();
        assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
    }
}

/// Pools and servers come, go and move under all that goes wrong in the other seeds, and under
/// servers that flap: nobody is told an error for that, and nothing is left of what has gone. A
/// server that is ejected by hand stays so until it is restored, and is not asked meanwhile.
#[test]
fn no_seed_with_reloads_breaks_a_law() {
    let mut held = 0;
    let kinds = [
        ("", Options::default()),
        (" --memcached", Options { memcached: true, ..Options::default() }),
        (" --clusters", Options { clusters: true, ..Options::default() }),
        (" --replicated", Options { replicated: true, ..Options::default() }),
        (" --routes", Options { memcached: true, routes: true, ..Options::default() }),
        (" --warm-up", Options { memcached: true, warm_up: true, ..Options::default() }),
    ];
    for (kind, options) in kinds {
        let options = Options { reloads: Some(true), ..options };
        let summary = run_many_of(10_000, 20, &options);
        for violation in &summary.violations {
            println!("{violation} --reloads yes{kind}");
        }
        assert_eq!(summary.violation_count, 0);
        assert!(summary.total.reloads > 5 * summary.seeds, "{summary}");
        held += summary.total.holds;
    }
    assert!(held > 10, "{held} ejections by hand");
}

/// Each broke a law once. A pool that a reload had replaced had forgotten its cluster: requests
/// failed before a server was asked (3802, 13984, 5938, 9691), or went back to a primary that the
/// sentinels had replaced (3840).
#[test]
fn seeds_in_which_a_pool_of_a_cluster_is_replaced_break_no_law_any_more() {
    let clusters = Options { clusters: true, ..Options::default() };
    let replicated = Options { replicated: true, ..Options::default() };
    for (options, seeds) in [(clusters, &[3802, 13984][..]), (replicated, &[3840, 5938, 9691])] {
        for &seed in seeds {
            let violation = run_seed(seed, &options).err();
            assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
        }
    }
}

/// Each broke a law once. A short wait for a primary ended requests earlier than none (8374, 20050).
/// A read behind READONLY had no timeout on an idle connection (9086), and a new connection ended for
/// what was left on its link long before (20399). A wait outlasted its request (12576). The others
/// were called violations and are none: a slow client that is ended for want of memory (9928, 9417),
/// many turns for long answers (6174), and redirections of what is tried again (20005).
#[test]
fn seeds_of_waits_and_connections_that_broke_a_law_once_do_so_no_more() {
    let clusters = Options { clusters: true, ..Options::default() };
    let replicated = Options { replicated: true, ..Options::default() };
    let of_clusters = &[6174, 8374, 9086, 9928, 20005, 20050, 20399][..];
    for (options, seeds) in [(clusters, of_clusters), (replicated, &[9417, 12576])] {
        for &seed in seeds {
            let violation = run_seed(seed, &options).err();
            assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
        }
    }
}

/// Each broke a law once. Requests of a client for one slot changed their order when the slot moved
/// twice (100713), or back before a request could be sent (235245, 240241, 242307). A request of a
/// pipeline had a second timeout (20330), or none at a server that had just been asked (124032,
/// 130739). A write that had timed out in a pool that a reload replaced was executed behind a later one
/// (594). A copy went to a pool that had the place of a child of a replaced pool (139692). A large
/// request was executed before a write of its client that had timed out, and that write overwrote it
/// (226905). A pipelined request was refused by a server that had just been asked (223450). A request
/// that was sent again waited until its time was up, behind a large reply that another client read
/// slowly (217888). A client that left between two tries of its BLPOP was not noticed (230874). A read
/// behind a transaction that was sent on was executed before it (730006). Six
/// were called violations and are none: a client that watches and writes nothing may read from a
/// replica (115113), as may one whose only write was refused (143483), a request that waits behind one
/// of its client may go to the next child (113745), a client is disconnected whose items, large
/// only together, end with their server (221662), a server that leaves at once may have had the place
/// of another (500571), and the connections of a tracked client are probed at rest (716514).
#[test]
fn seeds_of_pipelines_and_of_replaced_pools_that_broke_a_law_once_do_so_no_more() {
    let clusters = Options { clusters: true, ..as_once() };
    let memcached = Options { memcached: true, ..as_once() };
    let routes = Options { routes: true, ..memcached.clone() };
    let mutes = Options { mutes: true, ..clusters.clone() };
    let replaced =
        Options { clusters: true, mutes: true, reloads: Some(true), ..Options::default() };
    let kinds = [
        (clusters, &[100713, 115113][..]),
        (
            Options { clusters: true, ..Options::default() },
            &[143483, 235245, 240241, 242307, 500571, 730006],
        ),
        (memcached, &[124032, 130739]),
        (Options { memcached: true, ..Options::default() }, &[223450]),
        (Options { replicated: true, ..Options::default() }, &[217888, 230874]),
        (routes, &[113745]),
        (Options { memcached: true, routes: true, ..Options::default() }, &[139692]),
        (mutes, &[20330]),
        (replaced, &[594]),
        (Options::default(), &[226_905, 716_514]),
        (Options { memcached: true, warm_up: true, ..Options::default() }, &[221_662]),
    ];
    for (options, seeds) in kinds {
        for &seed in seeds {
            let violation = run_seed(seed, &options).err();
            assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
        }
    }
}

/// Each broke a law once. A command that was to end was sent again after each pause, as its servers had
/// become replicas, until its worker had to stop (1100772). A command in a transaction was refused in
/// words that did not tell why its key had no server (1107830). A write overtook a read of its client
/// when their slot moved twice after the client was at rest (1127178). A connection on which a large
/// request had timed out counted among large requests for good (1400742). A request that its server
/// had put off waited longer than its worker did that was to stop, and had no reply (1506562,
/// 1508015). The others were called violations, and so was 1107830 for its other errors: what a client
/// is told stands behind replies that it waits for (1511634), a reader may take longer for one value
/// than a worker waits that stops (1510692), a server that was sent ASKING kept to it behind
/// an EXEC (1103520), of two servers that join in a crowded cluster one has no place for as long as
/// places are kept (1107830), a server whose lock was left behind is not emptied until that expires
/// (1106703), and what waited in a worker while its server slept was executed late (1121799).
#[test]
fn seeds_of_refused_commands_and_of_servers_out_of_use_that_broke_a_law_once_do_so_no_more() {
    let kinds = [
        (Options::default(), &[1_400_742, 1_511_634][..]),
        (
            Options { clusters: true, ..Options::default() },
            &[1_103_520, 1_107_830, 1_127_178, 1_506_562],
        ),
        (Options { memcached: true, ..Options::default() }, &[1_106_703]),
        (
            Options { replicated: true, ..Options::default() },
            &[1_100_772, 1_121_799, 1_508_015, 1_510_692],
        ),
    ];
    for (options, seeds) in kinds {
        for &seed in seeds {
            let violation = run_seed(seed, &options).err();
            assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
        }
    }
}

/// Seeds of each kind with clients that do not read.
const MUTE_SEEDS: u64 = 25;

/// Up to forty clients ask for large values, messages, lists, streams, the keys or the requests of
/// others and do not read them, stop at any byte, or stop in the middle of a large request, and at
/// times a server is silent. Each request beside them has a reply
/// or an error within the timeout and a tenth of a second, behind pools that ask one child after the
/// other within that of each. What waits for such clients is bounded.
#[test]
fn beside_clients_that_do_not_read_all_others_are_answered_in_time() {
    let kinds = [
        ("", Options::default()),
        (" --clusters", Options { clusters: true, ..Options::default() }),
        (" --replicated", Options { replicated: true, ..Options::default() }),
        (" --memcached", Options { memcached: true, ..Options::default() }),
        (" --routes", Options { memcached: true, routes: true, ..Options::default() }),
    ];
    for (kind, options) in kinds {
        let summary = run_many_of(0, MUTE_SEEDS, &Options { mutes: true, ..options });
        println!("{kind}: {summary}");
        for violation in &summary.violations {
            println!("{violation} --mutes{kind}");
        }
        assert_eq!(summary.violation_count, 0);
        // Errors are for when there is no other way.
        assert!(summary.total.replies > 20 * MUTE_SEEDS);
        assert!(summary.total.excused * 10 < summary.total.replies, "{kind}");
    }
}

/// Each broke a law once: more waited for clients that took nothing than may (67, 281, 218), a
/// deadline of a command that blocks was that of another server (458), a request waited for a
/// server that nobody named (25, 308), and a request was given the time of the one before it
/// (34, 149). A request whose time was over went to another server without any (4, 24, 112).
/// Requests had a timeout of their own behind one that took as long: they were in the socket
/// (30134), or waited for their order to be kept (50231). Servers had lost their places to others
/// that joined, and waited for them (40013, 51096).
#[test]
fn seeds_of_slow_and_waiting_clients_that_broke_a_law_once_do_so_no_more() {
    let mutes = Options { mutes: true, ..as_once() };
    let clusters = Options { clusters: true, ..mutes.clone() };
    let replicated = Options { replicated: true, ..mutes.clone() };
    let memcached = Options { memcached: true, ..mutes.clone() };
    let kinds = [
        (Options { io: Some(Driver::Epoll), ..as_once() }, &[67][..]),
        (Options { memcached: true, ..as_once() }, &[34, 149]),
        (clusters, &[25, 112, 308, 30134, 40013, 50231, 51096]),
        (replicated, &[4, 24, 281, 458]),
        (memcached, &[218, 571]),
    ];
    for (options, seeds) in kinds {
        for &seed in seeds {
            let violation = run_seed(seed, &options).err();
            assert_eq!(violation.map(|violation| violation.text), None, "seed {seed}");
        }
    }
}
