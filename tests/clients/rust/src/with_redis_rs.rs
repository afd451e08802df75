//! redis-rs, its synchronous half.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use redis::{Client, Commands, Connection, Direction, Script};

use crate::{Case, Failure, Outcome, Test, check, equal};

pub const CASES: &[Case] = &[
    ("strings", strings),
    ("hashes", hashes),
    ("pipelines", pipelines),
    ("transactions", transactions),
    ("pub/sub", pubsub),
    ("blocking", blocking),
    ("scripts", scripts),
    ("scan", scan),
];

fn connect(test: &Test) -> Result<Connection, Failure> {
    Ok(Client::open(format!("redis://{}/", test.address))?.get_connection()?)
}

fn strings(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let (a, b) = (test.together("a"), test.together("b"));
    let () = r.set_ex(&a, "value", 100)?;
    equal(r.get::<_, String>(&a)?, "value".to_owned())?;
    equal(r.set_nx::<_, _, bool>(&a, "other")?, false)?;
    equal(r.append::<_, _, i64>(&a, "!")?, 6)?;
    equal(r.incr::<_, _, i64>(test.spread("n"), 41)?, 41)?;
    let () = r.mset(&[(&a, "1"), (&b, "2")])?;
    let values: Vec<Option<String>> = r.mget(&[&a, &b, &test.together("none")])?;
    equal(values, vec![Some("1".to_owned()), Some("2".to_owned()), None])?;
    equal(r.exists::<_, i64>(&[&a, &b])?, 2)?;
    equal(r.del::<_, i64>(&[&a, &b])?, 2)?;
    equal(r.get::<_, Option<String>>(&a)?, None)
}

fn hashes(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let h = test.spread("h");
    let () = r.hset_multiple(&h, &[("f", "1"), ("g", "2")])?;
    equal(r.hget::<_, _, String>(&h, "f")?, "1".to_owned())?;
    equal(r.hincr::<_, _, _, i64>(&h, "f", 4)?, 5)?;
    let all: BTreeMap<String, i64> = r.hgetall(&h)?;
    equal(all, BTreeMap::from([("f".to_owned(), 5), ("g".to_owned(), 2)]))?;
    let scanned = r.hscan::<_, (String, i64)>(&h)?.collect::<Result<BTreeMap<_, _>, _>>()?;
    equal(scanned.len(), 2)?;
    equal(r.hdel::<_, _, i64>(&h, "g")?, 1)?;
    equal(r.hkeys::<_, Vec<String>>(&h)?, vec!["f".to_owned()])
}

fn pipelines(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let mut pipe = redis::pipe();
    for nth in 0..200 {
        pipe.set(test.spread(nth), nth).ignore().get(test.spread(nth));
    }
    equal(pipe.query::<Vec<i32>>(&mut r)?, (0..200).collect())
}

fn transactions(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let (a, b) = (test.together("a"), test.together("b"));
    let mut pipe = redis::pipe();
    pipe.atomic().set(&a, 1).ignore().incr(&a, 1).set(&b, 5).ignore().get(&b);
    equal(pipe.query::<(i64, i64)>(&mut r)?, (2, 5))?;
    let mut other = connect(test)?;
    let mut tries = 0;
    // Another client changes the key during the first try.
    let (value,): (i64,) = redis::transaction(&mut r, &[&a], |r, pipe| {
        tries += 1;
        let old: i64 = r.get(&a)?;
        if tries == 1 {
            let () = other.set(&a, 10)?;
        }
        pipe.set(&a, old + 1).ignore().get(&a).query(r)
    })?;
    equal((tries, value), (2, 11))
}

fn pubsub(test: &Test) -> Outcome {
    let (mut subscriber, mut publisher) = (connect(test)?, connect(test)?);
    let (channel, pattern) = (test.spread("news"), test.spread("n*"));
    let mut p = subscriber.as_pubsub();
    p.set_read_timeout(Some(Duration::from_secs(5)))?;
    p.subscribe(&channel)?;
    p.psubscribe(&pattern)?;
    check(publisher.publish::<_, _, i64>(&channel, "hello")? >= 1, "no receiver")?;
    let mut by_pattern = 0;
    for _ in 0..2 {
        let message = p.get_message()?;
        equal(message.get_channel_name(), channel.as_str())?;
        equal(message.get_payload::<String>()?, "hello".to_owned())?;
        by_pattern += usize::from(message.from_pattern());
    }
    equal(by_pattern, 1)?;
    p.unsubscribe(&channel)?;
    p.punsubscribe(&pattern)?;
    Ok(())
}

fn later(
    test: &Test,
    work: impl FnOnce(&mut Connection) -> redis::RedisResult<()> + Send + 'static,
) -> Outcome {
    let mut other = connect(test)?;
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        // The one who waits for it finds out.
        let _ = work(&mut other);
    });
    Ok(())
}

fn blocking(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let (a, b) = (test.together("a"), test.together("b"));
    let target = b.clone();
    later(test, move |r| r.rpush(target, "value"))?;
    let popped: (String, String) = r.blpop(&[&a, &b], 4.0)?;
    equal(popped, (b.clone(), "value".to_owned()))?;
    equal(r.blpop::<_, Option<(String, String)>>(&a, 1.0)?, None)?;
    let target = a.clone();
    later(test, move |r| r.rpush(target, "moved"))?;
    let moved: String = r.blmove(&a, &b, Direction::Left, Direction::Right, 4.0)?;
    equal(moved, "moved".to_owned())?;
    let z = test.together("z");
    let () = r.zadd(&z, "member", 2)?;
    let least: (String, String, f64) = r.bzpopmin(&z, 4.0)?;
    equal(least, (z, "member".to_owned(), 2.0))
}

fn scripts(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let script = Script::new("return {KEYS[1], ARGV[1]} -- redis-rs");
    for nth in 0..20 {
        let key = test.spread(nth);
        let got: (String, i32) = script.key(&key).arg(nth).invoke(&mut r)?;
        equal(got, (key, nth))?;
    }
    let digest: String =
        redis::cmd("SCRIPT").arg("LOAD").arg("return ARGV[1] -- redis-rs").query(&mut r)?;
    for nth in 0..20 {
        let got: i32 = redis::cmd("EVALSHA")
            .arg(&digest)
            .arg(1)
            .arg(test.spread(nth))
            .arg(nth)
            .query(&mut r)?;
        equal(got, nth)?;
    }
    Ok(())
}

fn scan(test: &Test) -> Outcome {
    let mut r = connect(test)?;
    let wanted: BTreeSet<String> = (0..300).map(|nth| test.spread(nth)).collect();
    for key in &wanted {
        let () = r.set(key, 1)?;
    }
    let found = r.scan_match::<_, String>(test.spread("*"))?.collect::<Result<BTreeSet<_>, _>>()?;
    equal(found, wanted)?;
    check(redis::cmd("DBSIZE").query::<i64>(&mut r)? >= 300, "DBSIZE")
}
