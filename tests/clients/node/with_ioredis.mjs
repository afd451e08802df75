import assert from "node:assert/strict";
import { Redis } from "ioredis";
import { delay, heard, run } from "./harness.mjs";

export default function ioredis({ host, port }) {
  const connect = () => {
    const client = new Redis(port, host);
    client.on("error", () => {});
    return client;
  };
  return run("ioredis", connect, (client) => client.disconnect(), cases);
}

const cases = {
  async strings(open, keys) {
    const r = await open();
    const [a, b] = [keys.together("a"), keys.together("b")];
    assert.equal(await r.ping(), "PONG");
    assert.equal(await r.set(a, "value", "EX", 100), "OK");
    assert.equal(await r.get(a), "value");
    assert.equal(await r.set(a, "other", "NX"), null);
    assert.ok((await r.ttl(a)) >= 99);
    assert.equal(await r.append(a, "!"), 6);
    assert.equal(await r.incrby(keys.spread("n"), 41), 41);
    assert.equal(await r.mset(a, "1", b, "2"), "OK");
    assert.deepEqual(await r.mget(a, b, keys.together("none")), ["1", "2", null]);
    assert.deepEqual(await r.getBuffer(a), Buffer.from("1"));
    assert.equal(await r.exists(a, b), 2);
    assert.equal(await r.del(a, b), 2);
  },

  async hashes(open, keys) {
    const r = await open();
    const h = keys.spread("h");
    assert.equal(await r.hset(h, { f: "1", g: "2" }), 2);
    assert.equal(await r.hget(h, "f"), "1");
    assert.deepEqual(await r.hmget(h, "f", "none"), ["1", null]);
    assert.equal(await r.hincrby(h, "f", 4), 5);
    assert.deepEqual({ ...(await r.hgetall(h)) }, { f: "5", g: "2" });
    const [cursor, fields] = await r.hscan(h, 0);
    assert.equal(cursor, "0");
    assert.equal(fields.length, 4);
    assert.equal(await r.hdel(h, "g"), 1);
    assert.deepEqual(await r.hkeys(h), ["f"]);
  },

  async pipelines(open, keys) {
    const r = await open();
    const pipeline = r.pipeline();
    for (let nth = 0; nth < 200; nth++) pipeline.set(keys.spread(nth), nth).get(keys.spread(nth));
    const replies = await pipeline.exec();
    assert.equal(replies.length, 400);
    for (let nth = 0; nth < 200; nth++) {
      assert.deepEqual(replies[2 * nth + 1], [null, String(nth)]);
    }
    const text = keys.spread("text");
    const mixed = await r.pipeline().set(text, "text").incr(text).get(text).exec();
    assert.ok(mixed[1][0] instanceof Error);
    assert.deepEqual(mixed[2], [null, "text"]);
  },

  async transactions(open, keys) {
    const r = await open();
    const [a, b] = [keys.together("a"), keys.together("b")];
    const done = await r.multi().set(a, 1).incr(a).set(b, 5).get(b).exec();
    assert.deepEqual(done, [[null, "OK"], [null, 2], [null, "OK"], [null, "5"]]);
    const other = await open();
    assert.equal(await r.watch(a), "OK");
    await other.set(a, "changed");
    assert.equal(await r.multi().set(a, "lost").exec(), null);
    assert.equal(await r.get(a), "changed");
    await r.multi({ pipeline: false });
    assert.equal(await r.set(a, "queued"), "QUEUED");
    assert.equal(await r.discard(), "OK");
    assert.equal(await r.get(a), "changed");
  },

  async "pub/sub"(open, keys) {
    const [subscriber, publisher] = [await open(), await open()];
    const [channel, pattern] = [keys.spread("news"), keys.spread("n*")];
    assert.equal(await subscriber.subscribe(channel), 1);
    assert.equal(await subscriber.psubscribe(pattern), 2);
    const message = heard((then) => subscriber.on("message", (on, text) => then([on, text])));
    const matched = heard((then) => subscriber.on("pmessage", (by, on, text) => then([by, on, text])));
    assert.ok((await publisher.publish(channel, "hello")) >= 1);
    assert.deepEqual(await message, [channel, "hello"]);
    assert.deepEqual(await matched, [pattern, channel, "hello"]);
    assert.equal(await subscriber.unsubscribe(channel), 1);
    assert.equal(await subscriber.punsubscribe(pattern), 0);
    assert.equal(await subscriber.set(keys.spread("after"), "1"), "OK");
  },

  async blocking(open, keys) {
    const [r, other] = [await open(), await open()];
    const [a, b, z] = [keys.together("a"), keys.together("b"), keys.together("z")];
    const popped = r.blpop(a, b, 4);
    await delay(300);
    await other.rpush(b, "value");
    assert.deepEqual(await popped, [b, "value"]);
    assert.equal(await r.blpop(a, 1), null);
    const moved = r.blmove(a, b, "LEFT", "RIGHT", 4);
    await delay(300);
    await other.rpush(a, "moved");
    assert.equal(await moved, "moved");
    await other.zadd(z, 2, "member");
    const least = await r.bzpopmin(z, 4);
    assert.deepEqual(least.slice(0, 2), [z, "member"]);
    assert.equal(Number(least[2]), 2);
  },

  async scripts(open, keys) {
    const r = await open();
    const source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
    assert.equal(await r.eval(source, 1, keys.spread("a"), "1"), "1");
    r.defineCommand("stockEcho", { numberOfKeys: 1, lua: "return {KEYS[1], ARGV[1]} -- ioredis" });
    for (let nth = 0; nth < 20; nth++) {
      const key = keys.spread(nth);
      assert.deepEqual(await r.stockEcho(key, nth), [key, String(nth)]);
    }
    const digest = await r.script("LOAD", "return ARGV[1] -- ioredis loaded");
    assert.deepEqual(await r.script("EXISTS", digest), [1]);
    for (let nth = 0; nth < 20; nth++) {
      assert.equal(await r.evalsha(digest, 1, keys.spread(nth), nth), String(nth));
    }
  },

  async scan(open, keys) {
    const r = await open();
    const wanted = new Set();
    for (let nth = 0; nth < 300; nth++) wanted.add(keys.spread(nth));
    for (const key of wanted) await r.set(key, "1");
    const found = new Set();
    for await (const some of r.scanStream({ match: keys.spread("*"), count: 50 })) {
      for (const key of some) found.add(key);
    }
    assert.deepEqual(found, wanted);
    assert.ok((await r.dbsize()) >= 300);
  },
};
