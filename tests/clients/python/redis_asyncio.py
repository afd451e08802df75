"""redis-py's asyncio half."""

import asyncio
import functools

import redis
import redis.asyncio

from cases import Keys, address, case, check, equal

LIBRARY = "redis-py asyncio"


def connect():
    host, port = address()
    return redis.asyncio.Redis(host=host, port=port)


def asynchronous(topic):
    """Registers a coroutine function that takes a client and key names."""

    def register(function):
        @functools.wraps(function)
        def run():
            asyncio.run(with_client())

        async def with_client():
            async with connect() as r:
                await function(r, Keys("redis-py-asyncio", topic.replace("/", "")))

        return case(LIBRARY, topic)(run)

    return register


@asynchronous("strings")
async def strings(r, keys):
    a, b = keys.together("a"), keys.together("b")
    check(await r.set(a, "value", px=100000), "SET")
    equal(await r.get(a), b"value")
    check(await r.pttl(a) > 90000, "PTTL")
    equal(await r.set(a, "other", get=True), b"value")
    equal(await r.incr(keys.spread("n")), 1)
    equal(await r.mset({a: "1", b: "2"}), True)
    equal(await r.mget(a, b), [b"1", b"2"])
    equal(await r.getdel(a), b"1")
    equal(await r.delete(a, b), 1)
    replies = await asyncio.gather(*(r.set(keys.spread(nth), nth) for nth in range(50)))
    equal(replies, [True] * 50)


@asynchronous("hashes")
async def hashes(r, keys):
    h = keys.spread("h")
    equal(await r.hset(h, mapping={"f": "1", "g": "2"}), 2)
    equal(await r.hget(h, "f"), b"1")
    equal(await r.hincrbyfloat(h, "f", 0.5), 1.5)
    equal(await r.hgetall(h), {b"f": b"1.5", b"g": b"2"})
    equal({name async for name, _ in r.hscan_iter(h)}, {b"f", b"g"})
    equal(await r.hdel(h, "f", "g"), 2)


@asynchronous("pipelines")
async def pipelines(r, keys):
    async with r.pipeline(transaction=False) as pipe:
        for nth in range(200):
            pipe.set(keys.spread(nth), nth).get(keys.spread(nth))
        replies = await pipe.execute()
    equal(replies[1::2], [b"%d" % nth for nth in range(200)])


@asynchronous("transactions")
async def transactions(r, keys):
    a, b = keys.together("a"), keys.together("b")
    async with r.pipeline() as pipe:
        equal(await pipe.set(a, 1).incr(a).set(b, 5).execute(), [True, 2, True])
    async with r.pipeline() as pipe:
        await pipe.watch(a)
        await r.set(a, "changed")
        pipe.multi()
        pipe.set(a, "lost")
        try:
            await pipe.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("EXEC in spite of a change to a watched key")
    equal(await r.get(a), b"changed")


@asynchronous("pub/sub")
async def pubsub(r, keys):
    channel, pattern = keys.spread("news"), keys.spread("n*")
    async with r.pubsub() as p:
        await p.subscribe(channel)
        await p.psubscribe(pattern)
        equal((await awaited(p))["type"], "subscribe")
        equal((await awaited(p))["type"], "psubscribe")
        await r.publish(channel, "hello")
        got = sorted([(await awaited(p))["type"], (await awaited(p))["type"]])
        equal(got, ["message", "pmessage"])
        await p.unsubscribe(channel)
        await p.punsubscribe(pattern)


async def awaited(p):
    message = await p.get_message(timeout=5)
    check(message is not None, "no message")
    return message


@asynchronous("blocking")
async def blocking(r, keys):
    a, b = keys.together("a"), keys.together("b")
    waiting = asyncio.create_task(r.blpop([a, b], timeout=4))
    await asyncio.sleep(0.3)
    await r.rpush(b, "value")
    equal(list(await waiting), [b.encode(), b"value"])
    equal(await r.blpop(a, timeout=1), None)
    waiting = asyncio.create_task(r.blmove(a, b, 4, "LEFT", "LEFT"))
    await asyncio.sleep(0.3)
    await r.rpush(a, "moved")
    equal(await waiting, b"moved")


@asynchronous("scripts")
async def scripts(r, keys):
    script = r.register_script("return {KEYS[1], ARGV[1]} -- asyncio")
    for nth in range(20):
        key = keys.spread(nth)
        equal(await script(keys=[key], args=[nth]), [key.encode(), b"%d" % nth])
    digest = await r.script_load("return 7 -- asyncio")
    equal(await r.evalsha(digest, 1, keys.spread("a")), 7)


@asynchronous("scan")
async def scan(r, keys):
    wanted = {keys.spread(nth).encode() for nth in range(300)}
    for key in wanted:
        await r.set(key, "1")
    equal({key async for key in r.scan_iter(keys.spread("*"))}, wanted)
