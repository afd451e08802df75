//! Movers between real servers.

#![allow(clippy::disallowed_methods, reason = "how long a server stands still is what is tested")]

use keyway_mover::{
    Access, Mover, MoverSettings, Pace, SlotSet, Stage, Status, count_keys, position, purge,
};
use keyway_testkit::{Client, RedisServer, Replicated, Value, encode_words, watchdog};
use keyway_topology::SlotSpace;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SPACE: SlotSpace = SlotSpace::Codis;
const WITHIN: Duration = Duration::from_secs(2);

fn access(at: SocketAddr) -> Access {
    Access::new(at.to_string().parse().unwrap())
}

/// A source that makes its snapshot at once.
fn source() -> RedisServer {
    RedisServer::start_with(&["--repl-diskless-sync-delay", "0"])
}

fn half() -> SlotSet {
    SlotSet::new(SPACE, [(0, 511)])
}

fn start(source: SocketAddr, target: SocketAddr, slots: SlotSet) -> Mover {
    Mover::start(MoverSettings::new(access(source), access(target), slots)).unwrap()
}

/// Waits for a stage.
fn until(mover: &Mover, is_there: impl Fn(&Stage) -> bool) -> Status {
    let since = Instant::now();
    loop {
        let status = mover.wait(Duration::from_millis(20));
        if is_there(&status.stage) {
            return status;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{status:?}");
        assert!(!matches!(status.stage, Stage::Failed(_)), "{status:?}");
    }
}

fn finish(mover: &Mover, primary: SocketAddr) -> Status {
    until(mover, |stage| *stage == Stage::Tailing);
    let (id, offset) = position(&access(primary), WITHIN).unwrap();
    mover.finish(&id, offset);
    until(mover, |stage| *stage == Stage::Finished)
}

fn keys(client: &mut Client) -> Vec<String> {
    let mut all: Vec<String> = client.words("KEYS *").array().iter().map(Value::text).collect();
    all.sort();
    all
}

/// Checks that the target has exactly the source's keys of the slots, with equal values and times.
fn assert_same(source: &mut Client, target: &mut Client, slots: &SlotSet) {
    let moving: Vec<String> =
        keys(source).into_iter().filter(|key| slots.has_key(key.as_bytes())).collect();
    assert_eq!(keys(target), moving);
    for key in moving {
        let digest = format!("DEBUG DIGEST-VALUE {key}");
        assert_eq!(source.words(&digest), target.words(&digest), "{key}");
        let times =
            [&mut *source, &mut *target].map(|client| client.words(&format!("PEXPIRETIME {key}")));
        assert_eq!(times[0], times[1], "{key}");
    }
}

fn fill(client: &mut Client) {
    for nth in 0..200 {
        let lines = [
            format!("SET text:{nth} value{nth}"),
            format!("SET number:{nth} {nth}"),
            format!("SET expiring:{nth} v PX {}", 3_600_000 + nth),
            format!("RPUSH list:{nth} a b c {nth}"),
            format!("SADD set:{nth} a b {nth}"),
            format!("SADD numbers:{nth} 1 2 {nth}"),
            format!("ZADD sorted:{nth} 1.5 a -inf b +inf c 3e-300 d 0.1 e"),
            format!("HSET hash:{nth} a 1 b {nth}"),
            format!("XADD stream:{nth} 1-1 field value"),
            format!("XADD stream:{nth} 2-1 field value other {nth}"),
            format!("XGROUP CREATE stream:{nth} group 0"),
            format!("XREADGROUP GROUP group me COUNT 1 STREAMS stream:{nth} >"),
            format!("PFADD counter:{nth} a b {nth}"),
        ];
        for line in &lines {
            assert!(!client.words(line).is_error(), "{line}");
        }
    }
    for big in ["list", "set", "sorted", "hash"] {
        let script = format!(
            "for i=1,5000 do local v=string.rep('x',30)..i if '{big}'=='list' then \
             redis.call('rpush',KEYS[1],v) elseif '{big}'=='set' then redis.call('sadd',KEYS[1],v) \
             elseif '{big}'=='sorted' then redis.call('zadd',KEYS[1],i/7,v) else \
             redis.call('hset',KEYS[1],v,i) end end"
        );
        for nth in 0..8 {
            let reply = client.command(&["EVAL", &script, "1", &format!("big:{big}:{nth}")]);
            assert!(!reply.is_error(), "{reply:?}");
        }
    }
}

/// A writer that changes keys of all slots in every way, until it is told to stop.
fn writer(at: SocketAddr) -> (Arc<AtomicBool>, std::thread::JoinHandle<u64>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        let mut client = Client::connect(at);
        let mut nth = 0u64;
        while !over.load(Ordering::Relaxed) {
            let key = nth % 200;
            let lines = [
                format!("INCR number:{key}"),
                format!("APPEND text:{key} x"),
                format!("LPUSH list:{key} {nth}"),
                format!("RPOP list:{key}"),
                format!("ZINCRBY sorted:{key} 0.7 a"),
                format!("HINCRBYFLOAT hash:{key} a 0.1"),
                format!("SPOP numbers:{key}"),
                format!("SADD numbers:{key} {nth}"),
                format!("XADD stream:{key} * a {nth}"),
                format!("DEL text:{key} set:{key} counter:{}", (key + 1) % 200),
                format!("MSET text:{key} a number:{} 5", (key + 3) % 200),
                format!("PEXPIRE hash:{key} 3600000"),
                format!("PUBLISH text:{key} message"),
                "MULTI".to_owned(),
                format!("INCR number:{key}"),
                format!("SET text:{} t", (key + 5) % 200),
                "EXEC".to_owned(),
            ];
            let bytes: Vec<u8> = lines.iter().flat_map(|line| encode_words(line)).collect();
            client.send(&bytes);
            for _ in &lines {
                let reply = client.reply();
                assert!(!reply.is_error(), "{reply:?}");
            }
            nth += 1;
        }
        nth
    });
    (is_over, thread)
}

/// Every kind of value and every write arrive, from a replica or from the primary itself.
#[test]
fn a_copy_is_exact_while_everything_changes() {
    let _watchdog = watchdog(Duration::from_secs(120), "an exact copy");
    for of_replica in [true, false] {
        let source = Replicated::start_with(1, &["--repl-diskless-sync-delay", "0"], None);
        let target = RedisServer::start();
        let mut client = source.client(0);
        fill(&mut client);
        let (is_over, writer) = writer(source.address(0));
        let from = source.address(usize::from(of_replica));
        let mover = start(from, target.address(), half());
        until(&mover, |stage| *stage == Stage::Tailing);
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        let rounds = writer.join().expect("its writes are fine");
        let status = finish(&mover, source.address(0));
        println!("{rounds} rounds of writes, {status:?}");
        // The copy has ended, so this does not arrive.
        client.words("SET text:late 1");
        mover.stop();
        client.words("DEL text:late");
        assert_same(&mut client, &mut target.client(), &half());
    }
}

/// A mover at a primary is no replica for WAIT.
#[test]
fn wait_does_not_count_a_mover() {
    let _watchdog = watchdog(Duration::from_secs(60), "WAIT and a mover");
    let (source, target) = (source(), RedisServer::start());
    let mover = start(source.address(), target.address(), half());
    until(&mover, |stage| *stage == Stage::Tailing);
    let mut client = source.client();
    client.words("SET a 1");
    assert_eq!(client.words("WAIT 1 700"), Value::Integer(0));
    mover.stop();
}

/// Commands whose keys cannot be divided end the copy with a sentence; so does a flush.
#[test]
fn what_cannot_be_copied_is_told() {
    let _watchdog = watchdog(Duration::from_secs(60), "what cannot be copied");
    // The slot of `foo` is 289, and that of `a` is 579.
    for (line, is_final, words) in [
        ("SUNIONSTORE foo a foo", true, "keys that move and keys that stay"),
        ("FLUSHALL", false, "the copy begins anew"),
    ] {
        let (source, target) = (source(), RedisServer::start());
        let mut client = source.client();
        client.words("SADD foo x");
        let mover = start(source.address(), target.address(), half());
        until(&mover, |stage| *stage == Stage::Tailing);
        client.words(line);
        let status = until_failed(&mover);
        assert_eq!(status.0, is_final, "{line}");
        assert!(status.1.to_lowercase().contains(words), "{line}: {}", status.1);
    }
}

fn until_failed(mover: &Mover) -> (bool, String) {
    let since = Instant::now();
    loop {
        if let Stage::Failed(failure) = mover.wait(Duration::from_millis(20)).stage {
            return (failure.is_final, failure.why);
        }
        assert!(since.elapsed() < Duration::from_secs(40), "{:?}", mover.status());
    }
}

/// A target that is full, one that wants a password, and one that dies.
#[test]
fn a_target_that_refuses_or_dies_ends_the_copy() {
    let _watchdog = watchdog(Duration::from_secs(120), "a target that refuses");
    let source = source();
    let mut client = source.client();
    fill(&mut client);
    let full = RedisServer::start_with(&["--maxmemory", "1mb"]);
    let (is_final, why) = until_failed(&start(source.address(), full.address(), half()));
    assert!(is_final && why.contains("raise its maxmemory"), "{why}");
    let locked = RedisServer::start();
    locked.client().words("CONFIG SET requirepass secret");
    let (is_final, why) = until_failed(&start(source.address(), locked.address(), half()));
    assert!(is_final && why.contains("password"), "{why}");
    let mut dying = RedisServer::start();
    let mover = start(source.address(), dying.address(), half());
    until(&mover, |stage| *stage == Stage::Tailing);
    dying.kill();
    client.words("SET foo 1");
    let (is_final, why) = until_failed(&mover);
    assert!(!is_final, "{why}");
}

/// Keys of slots are counted and deleted, and others stay.
#[test]
fn keys_of_slots_are_counted_and_deleted() {
    let _watchdog = watchdog(Duration::from_secs(60), "keys of slots");
    let server = RedisServer::start();
    let mut client = server.client();
    let keys: Vec<String> = (0..5000).map(|nth| format!("key:{nth}")).collect();
    for key in &keys {
        client.words(&format!("SET {key} v"));
    }
    let moving = keys.iter().filter(|key| half().has_key(key.as_bytes())).count() as u64;
    let at = access(server.address());
    let counted = count_keys(&at, &half(), Pace::default(), &|_| true).unwrap();
    assert_eq!((counted.keys, counted.scanned), (moving, 5000));
    assert_eq!(purge(&at, &half(), Pace::default(), "purge", &|_| true), Ok(moving));
    assert_eq!(client.words("DBSIZE"), Value::Integer(5000 - moving as i64));
    assert!(
        purge(&at, &SlotSet::new(SPACE, [(0, 1023)]), Pace::default(), "purge", &|_| false)
            .is_err()
    );
}

/// The longest wait for a reply of the target while long values arrive.
#[test]
fn long_values_do_not_hold_up_the_target() {
    let _watchdog = watchdog(Duration::from_secs(120), "long values");
    let (source, target) = (source(), RedisServer::start());
    let mut client = source.client();
    let script = "for i=1,500000 do redis.call('hset',KEYS[1],'field:'..i,'value') end";
    client.set_reply_within(Duration::from_secs(60));
    assert!(!client.command(&["EVAL", script, "1", "foo"]).is_error());
    let len = 64 << 20;
    assert!(!client.words(&format!("SETRANGE {{foo}}long {len} x")).is_error());
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, at) = (Arc::clone(&is_over), target.address());
    let pinger = std::thread::spawn(move || {
        let mut client = Client::connect(at);
        let mut longest = Duration::ZERO;
        while !over.load(Ordering::Relaxed) {
            let since = Instant::now();
            client.words("PING");
            longest = longest.max(since.elapsed());
            std::thread::sleep(Duration::from_millis(1));
        }
        longest
    });
    let mover = start(source.address(), target.address(), half());
    finish(&mover, source.address());
    is_over.store(true, Ordering::Relaxed);
    let longest = pinger.join().expect("it pings");
    println!("the longest PING took {longest:?}");
    assert_eq!(target.client().words("HLEN foo"), Value::Integer(500_000));
    assert_eq!(target.client().words("STRLEN {foo}long"), Value::Integer(len + 1));
    assert!(longest < Duration::from_millis(500), "{longest:?}");
}

/// How fast keys and writes are copied. It tells, and compares nothing: the machine may be busy.
#[test]
#[ignore = "a measurement"]
fn pace_of_a_copy() {
    let (source, target) = (source(), RedisServer::start());
    let mut client = source.client();
    client.words("DEBUG POPULATE 1000000 key 100");
    let since = Instant::now();
    let mover = start(source.address(), target.address(), SlotSet::new(SPACE, [(0, 1023)]));
    let status = until(&mover, |stage| *stage == Stage::Tailing);
    let took = since.elapsed();
    finish(&mover, source.address());
    println!("{} keys, tailing after {took:?}, whole after {:?}", status.keys, since.elapsed());
}
