"""redis-py."""

import threading

import redis

from cases import Keys, address, case, check, equal

LIBRARY = "redis-py"


def connect():
    host, port = address()
    return redis.Redis(host=host, port=port)


@case(LIBRARY, "strings")
def strings():
    r, keys = connect(), Keys(LIBRARY, "strings")
    a, b = keys.together("a"), keys.together("b")
    check(r.ping(), "no pong")
    check(r.set(a, "value", ex=100), "SET")
    equal(r.get(a), b"value")
    check(r.ttl(a) in (99, 100), "TTL")
    equal(r.set(a, "other", nx=True), None)
    equal(r.append(a, "!"), 6)
    equal(r.getrange(a, 0, 2), b"val")
    equal(r.incrby(keys.spread("n"), 41), 41)
    equal(r.incrbyfloat(keys.spread("n"), 0.5), 41.5)
    check(r.mset({a: "1", b: "2"}), "MSET")
    equal(r.mget(a, b, keys.together("none")), [b"1", b"2", None])
    equal(r.exists(a, b), 2)
    equal(r.delete(a, b), 2)
    equal(r.get(a), None)


@case(LIBRARY, "hashes")
def hashes():
    r, h = connect(), Keys(LIBRARY, "hashes").spread("h")
    equal(r.hset(h, mapping={"f": "1", "g": "2"}), 2)
    equal(r.hget(h, "f"), b"1")
    equal(r.hmget(h, "f", "none"), [b"1", None])
    equal(r.hincrby(h, "f", 4), 5)
    equal(r.hgetall(h), {b"f": b"5", b"g": b"2"})
    equal(dict(r.hscan_iter(h)), {b"f": b"5", b"g": b"2"})
    check(r.hexists(h, "g"), "HEXISTS")
    equal(r.hdel(h, "g"), 1)
    equal(r.hkeys(h), [b"f"])
    equal(r.hlen(h), 1)


@case(LIBRARY, "pipelines")
def pipelines():
    r, keys = connect(), Keys(LIBRARY, "pipelines")
    with r.pipeline(transaction=False) as pipe:
        for nth in range(200):
            pipe.set(keys.spread(nth), nth).get(keys.spread(nth))
        replies = pipe.execute()
    equal(replies[0::2], [True] * 200)
    equal(replies[1::2], [b"%d" % nth for nth in range(200)])
    with r.pipeline(transaction=False) as pipe:
        pipe.set(keys.spread("text"), "text").incr(keys.spread("text")).get(keys.spread("text"))
        replies = pipe.execute(raise_on_error=False)
    check(isinstance(replies[1], redis.ResponseError), "the error in its place")
    equal(replies[2], b"text")


@case(LIBRARY, "transactions")
def transactions():
    r, keys = connect(), Keys(LIBRARY, "transactions")
    a, b = keys.together("a"), keys.together("b")
    with r.pipeline() as pipe:
        equal(pipe.set(a, 1).incr(a).set(b, 5).get(b).execute(), [True, 2, True, b"5"])
    equal(r.transaction(lambda pipe: doubled(pipe, a), a), [True])
    equal(r.get(a), b"4")
    with r.pipeline() as pipe:
        pipe.watch(a)
        connect().set(a, "changed")
        pipe.multi()
        pipe.set(a, "lost")
        try:
            pipe.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("EXEC in spite of a change to a watched key")
    equal(r.get(a), b"changed")
    with r.pipeline() as pipe:
        pipe.watch(a)
        equal(pipe.get(a), b"changed")
        pipe.unwatch()
        equal(pipe.set(a, "last").execute(), [True])


def doubled(pipe, key):
    value = int(pipe.get(key))
    pipe.multi()
    pipe.set(key, value * 2)


@case(LIBRARY, "pub/sub")
def pubsub():
    r, keys = connect(), Keys(LIBRARY, "pubsub")
    channel, pattern = keys.spread("news"), keys.spread("n*")
    with r.pubsub() as p:
        p.subscribe(channel)
        p.psubscribe(pattern)
        equal(awaited(p)["type"], "subscribe")
        equal(awaited(p)["type"], "psubscribe")
        check(r.publish(channel, "hello") >= 1, "no receiver")
        got = sorted((message["type"], message["data"]) for message in (awaited(p), awaited(p)))
        equal(got, [("message", b"hello"), ("pmessage", b"hello")])
        check(channel.encode() in r.pubsub_channels(pattern), "PUBSUB CHANNELS")
        p.unsubscribe(channel)
        equal(awaited(p)["type"], "unsubscribe")
        r.publish(channel, "again")
        equal(awaited(p)["type"], "pmessage")


def awaited(p):
    message = p.get_message(timeout=5)
    check(message is not None, "no message")
    return message


@case(LIBRARY, "blocking")
def blocking():
    r, keys = connect(), Keys(LIBRARY, "blocking")
    a, b, z = keys.together("a"), keys.together("b"), keys.together("z")
    r.rpush(a, "first")
    equal(list(r.blpop([b, a], timeout=2)), [a.encode(), b"first"])
    later(lambda: connect().rpush(b, "second"))
    equal(list(r.brpop([a, b], timeout=4)), [b.encode(), b"second"])
    equal(r.blpop(keys.together("none"), timeout=1), None)
    later(lambda: connect().rpush(a, "third"))
    equal(r.blmove(a, b, 4, "LEFT", "RIGHT"), b"third")
    later(lambda: connect().zadd(z, {"member": 2}))
    equal([list(part) if isinstance(part, list) else part for part in r.bzpopmin(z, timeout=4)],
          [z.encode(), b"member", 2.0])
    later(lambda: connect().xadd(keys.together("x"), {"f": "v"}))
    check(r.xread({keys.together("x"): "$"}, block=4000), "XREAD BLOCK")


def later(function):
    threading.Timer(0.3, function).start()


@case(LIBRARY, "scripts")
def scripts():
    r, keys = connect(), Keys(LIBRARY, "scripts")
    source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
    equal(r.eval(source, 1, keys.spread("a"), "1"), b"1")
    script = r.register_script(source + " -- registered")
    for nth in range(20):
        equal(script(keys=[keys.spread("r%d" % nth)], args=[nth]), b"%d" % nth)
    digest = r.script_load(source + " -- loaded")
    equal(r.script_exists(digest, "0" * 40), [True, False])
    for nth in range(20):
        equal(r.evalsha(digest, 1, keys.spread("e%d" % nth), nth), b"%d" % nth)
    try:
        r.evalsha("0" * 40, 1, keys.spread("a"))
    except redis.exceptions.NoScriptError:
        return
    raise AssertionError("no NOSCRIPT for an unknown script")


@case(LIBRARY, "scan")
def scan():
    r, keys = connect(), Keys(LIBRARY, "scan")
    wanted = {keys.spread(nth).encode() for nth in range(500)}
    for key in wanted:
        r.set(key, "1")
    equal(set(r.scan_iter(keys.spread("*"))), wanted)
    equal(set(r.scan_iter(keys.spread("*"), count=7)), wanted)
    equal(set(r.keys(keys.spread("*"))), wanted)
    check(r.dbsize() >= 500, "DBSIZE")
    check(r.randomkey() is not None, "RANDOMKEY")
