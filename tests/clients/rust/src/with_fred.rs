//! fred.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fred::prelude::*;
use fred::types::MessageKind;
use fred::types::lists::LMoveDirection;
use fred::types::scripts::Script;
use futures_util::TryStreamExt;
use tokio::time::{sleep, timeout};

use crate::{Case, Failure, Outcome, Test, check, equal};

pub const CASES: &[Case] = &[
    ("strings", |test| block_on(strings(test))),
    ("hashes", |test| block_on(hashes(test))),
    ("pipelines", |test| block_on(pipelines(test))),
    ("transactions", |test| block_on(transactions(test))),
    ("pub/sub", |test| block_on(pubsub(test))),
    ("blocking", |test| block_on(blocking(test))),
    ("scripts", |test| block_on(scripts(test))),
    ("scan", |test| block_on(scan(test))),
];

fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Runtime::new()?.block_on(work)
}

async fn connect(test: &Test) -> Result<Client, Failure> {
    let client =
        Client::new(Config::from_url(&format!("redis://{}", test.address))?, None, None, None);
    client.init().await?;
    Ok(client)
}

async fn strings(test: &Test) -> Outcome {
    let r = connect(test).await?;
    let (a, b) = (test.together("a"), test.together("b"));
    let () = r.set(&a, "value", Some(Expiration::EX(100)), None, false).await?;
    equal(r.get::<String, _>(&a).await?, "value".to_owned())?;
    let refused: Option<String> = r.set(&a, "other", None, Some(SetOptions::NX), false).await?;
    equal(refused, None)?;
    equal(r.incr_by::<i64, _>(test.spread("n"), 41).await?, 41)?;
    let () = r.mset(vec![(&a[..], "1"), (&b[..], "2")]).await?;
    let values: Vec<Option<String>> =
        r.mget(vec![&a[..], &b[..], &test.together("none")[..]]).await?;
    equal(values, vec![Some("1".to_owned()), Some("2".to_owned()), None])?;
    equal(r.del::<i64, _>(vec![&a[..], &b[..]]).await?, 2)
}

async fn hashes(test: &Test) -> Outcome {
    let r = connect(test).await?;
    let h = test.spread("h");
    equal(r.hset::<i64, _, _>(&h, vec![("f", "1"), ("g", "2")]).await?, 2)?;
    equal(r.hincrby::<i64, _, _>(&h, "f", 4).await?, 5)?;
    let all: BTreeMap<String, i64> = r.hgetall(&h).await?;
    equal(all, BTreeMap::from([("f".to_owned(), 5), ("g".to_owned(), 2)]))?;
    equal(r.hdel::<i64, _, _>(&h, "g").await?, 1)?;
    equal(r.hkeys::<Vec<String>, _>(&h).await?, vec!["f".to_owned()])
}

async fn pipelines(test: &Test) -> Outcome {
    let r = connect(test).await?;
    let pipe = r.pipeline();
    for nth in 0..200 {
        let () = pipe.set(test.spread(nth), nth, None, None, false).await?;
        let () = pipe.get(test.spread(nth)).await?;
    }
    let replies: Vec<Value> = pipe.all().await?;
    for (nth, reply) in (0..200).zip(replies.into_iter().skip(1).step_by(2)) {
        equal(reply.convert::<i64>()?, nth)?;
    }
    Ok(())
}

async fn transactions(test: &Test) -> Outcome {
    let (r, other) = (connect(test).await?, connect(test).await?);
    let (a, b) = (test.together("a"), test.together("b"));
    let transaction = r.multi();
    let () = transaction.set(&a, 1, None, None, false).await?;
    let () = transaction.incr(&a).await?;
    let () = transaction.set(&b, 5, None, None, false).await?;
    let got: (String, i64, String) = transaction.exec(true).await?;
    equal(got, ("OK".to_owned(), 2, "OK".to_owned()))?;
    let () = r.watch(&a).await?;
    let () = other.set(&a, "changed", None, None, false).await?;
    let transaction = r.multi();
    let () = transaction.set(&a, "lost", None, None, false).await?;
    let aborted: Option<Vec<String>> = transaction.exec(true).await?;
    check(
        aborted.is_none_or(|replies| replies.is_empty()),
        "EXEC in spite of a change to a watched key",
    )?;
    equal(r.get::<String, _>(&a).await?, "changed".to_owned())
}

async fn pubsub(test: &Test) -> Outcome {
    let (subscriber, publisher) = (connect(test).await?, connect(test).await?);
    let (channel, pattern) = (test.spread("news"), test.spread("n*"));
    let mut messages = subscriber.message_rx();
    subscriber.subscribe(&channel).await?;
    subscriber.psubscribe(&pattern).await?;
    // A subscription may stand a little later than its call returns.
    let heard = timeout(Duration::from_secs(5), async {
        let (mut direct, mut matched) = (false, false);
        while !(direct && matched) {
            let _: i64 = publisher.publish(&channel, "hello").await?;
            while let Ok(message) = timeout(Duration::from_millis(100), messages.recv()).await {
                let message = message?;
                equal(message.value.convert::<String>()?, "hello".to_owned())?;
                match message.kind {
                    MessageKind::PMessage => matched = true,
                    _ => direct = true,
                }
            }
        }
        Ok::<(), Failure>(())
    });
    heard.await??;
    subscriber.unsubscribe(&channel).await?;
    subscriber.punsubscribe(&pattern).await?;
    Ok(())
}

async fn later(test: &Test, key: String, value: &'static str) -> Outcome {
    let other = connect(test).await?;
    tokio::spawn(async move {
        sleep(Duration::from_millis(300)).await;
        // The one who waits for it finds out.
        let _: Result<(), _> = other.rpush(key, value).await;
    });
    Ok(())
}

async fn blocking(test: &Test) -> Outcome {
    let r = connect(test).await?;
    let (a, b) = (test.together("a"), test.together("b"));
    later(test, b.clone(), "value").await?;
    let popped: (String, String) = r.blpop(vec![&a[..], &b[..]], 4.0).await?;
    equal(popped, (b.clone(), "value".to_owned()))?;
    // What the server words as nil is an error of this library.
    let none: Result<(String, String), Error> = r.blpop(&a, 1.0).await;
    check(none.is_err_and(|error| *error.kind() == ErrorKind::Timeout), "BLPOP out of time")?;
    later(test, a.clone(), "moved").await?;
    let moved: String = r.blmove(&a, &b, LMoveDirection::Left, LMoveDirection::Right, 4.0).await?;
    equal(moved, "moved".to_owned())
}

async fn scripts(test: &Test) -> Outcome {
    let r = connect(test).await?;
    let script = Script::from_lua("return {KEYS[1], ARGV[1]} -- fred");
    for nth in 0..20 {
        let key = test.spread(nth);
        let got: (String, i32) = script.evalsha_with_reload(&r, &key, nth).await?;
        equal(got, (key, nth))?;
    }
    let digest: String = r.script_load("return ARGV[1] -- fred loaded").await?;
    for nth in 0..20 {
        equal(r.evalsha::<i32, _, _, _>(&digest, test.spread(nth), nth).await?, nth)?;
    }
    Ok(())
}

async fn scan(test: &Test) -> Outcome {
    let r = connect(test).await?;
    let wanted: BTreeSet<String> = (0..300).map(|nth| test.spread(nth)).collect();
    for key in &wanted {
        let () = r.set(key, 1, None, None, false).await?;
    }
    let keys: Vec<Key> = r.scan_buffered(test.spread("*"), Some(50), None).try_collect().await?;
    let found = keys.iter().map(|key| key.as_str_lossy().into_owned()).collect();
    equal(found, wanted)
}
