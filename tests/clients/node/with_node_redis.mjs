import assert from "node:assert/strict";
import { createClient, defineScript, WatchError } from "redis";
import { delay, heard, run } from "./harness.mjs";

const scripts = {
  stockEcho: defineScript({
    SCRIPT: "return {KEYS[1], ARGV[1]} -- node-redis",
    NUMBER_OF_KEYS: 1,
    parseCommand(parser, key, value) {
      parser.pushKey(key);
      parser.push(String(value));
    },
    transformReply: undefined,
  }),
};

export default function nodeRedis({ host, port }) {
  const connect = async () => {
    const client = createClient({ url: `redis://${host}:${port}`, scripts });
    client.on("error", () => {});
    // It tries for ever; a case should not.
    await Promise.race([client.connect(), unreachable(client)]);
    return client;
  };
  return run("node-redis", connect, (client) => client.destroy(), cases);
}

async function unreachable(client) {
  const error = await new Promise((resolve) => {
    client.once("error", resolve);
  });
  await delay(3000, undefined, { ref: false });
  throw error;
}

const cases = {
  async strings(open, keys) {
    const r = await open();
    const [a, b] = [keys.together("a"), keys.together("b")];
    assert.equal(await r.ping(), "PONG");
    assert.equal(await r.set(a, "value", { EX: 100 }), "OK");
    assert.equal(await r.get(a), "value");
    assert.equal(await r.set(a, "other", { NX: true }), null);
    assert.equal(await r.append(a, "!"), 6);
    assert.equal(await r.incrBy(keys.spread("n"), 41), 41);
    assert.equal(await r.mSet({ [a]: "1", [b]: "2" }), "OK");
    assert.deepEqual(await r.mGet([a, b, keys.together("none")]), ["1", "2", null]);
    assert.equal(await r.exists([a, b]), 2);
    assert.equal(await r.del([a, b]), 2);
  },

  async hashes(open, keys) {
    const r = await open();
    const h = keys.spread("h");
    assert.equal(await r.hSet(h, { f: "1", g: "2" }), 2);
    assert.equal(await r.hGet(h, "f"), "1");
    assert.deepEqual(await r.hmGet(h, ["f", "none"]), ["1", null]);
    assert.equal(await r.hIncrBy(h, "f", 4), 5);
    assert.deepEqual({ ...(await r.hGetAll(h)) }, { f: "5", g: "2" });
    assert.equal((await r.hScan(h, "0")).entries.length, 2);
    assert.equal(await r.hDel(h, "g"), 1);
    assert.deepEqual(await r.hKeys(h), ["f"]);
  },

  async pipelines(open, keys) {
    const r = await open();
    const replies = [];
    for (let nth = 0; nth < 200; nth++) {
      replies.push(r.set(keys.spread(nth), String(nth)), r.get(keys.spread(nth)));
    }
    const values = await Promise.all(replies);
    for (let nth = 0; nth < 200; nth++) assert.equal(values[2 * nth + 1], String(nth));
    const batch = await r.multi().set(keys.spread("x"), "1").get(keys.spread("x")).execAsPipeline();
    assert.deepEqual(batch, ["OK", "1"]);
  },

  async transactions(open, keys) {
    const r = await open();
    const [a, b] = [keys.together("a"), keys.together("b")];
    const done = await r.multi().set(a, "1").incr(a).set(b, "5").get(b).exec();
    assert.deepEqual(done, ["OK", 2, "OK", "5"]);
    const other = await open();
    await r.watch(a);
    await other.set(a, "changed");
    await assert.rejects(r.multi().set(a, "lost").exec(), WatchError);
    assert.equal(await r.get(a), "changed");
    await r.watch(a);
    await r.unwatch();
    assert.deepEqual(await r.multi().set(a, "last").exec(), ["OK"]);
  },

  async "pub/sub"(open, keys) {
    const [subscriber, publisher] = [await open(), await open()];
    const [channel, pattern] = [keys.spread("news"), keys.spread("n*")];
    let message, matched;
    const first = heard((then) => (message = (text, on) => then([on, text])));
    const second = heard((then) => (matched = (text, on) => then([on, text])));
    await subscriber.subscribe(channel, message);
    await subscriber.pSubscribe(pattern, matched);
    assert.ok((await publisher.publish(channel, "hello")) >= 1);
    assert.deepEqual(await first, [channel, "hello"]);
    assert.deepEqual(await second, [channel, "hello"]);
    assert.deepEqual(await publisher.pubSubChannels(pattern), [channel]);
    await subscriber.unsubscribe(channel);
    await subscriber.pUnsubscribe(pattern);
    assert.equal(await subscriber.set(keys.spread("after"), "1"), "OK");
  },

  async blocking(open, keys) {
    const [r, other] = [await open(), await open()];
    const [a, b, z] = [keys.together("a"), keys.together("b"), keys.together("z")];
    const popped = r.blPop([a, b], 4);
    await delay(300);
    await other.rPush(b, "value");
    assert.deepEqual({ ...(await popped) }, { key: b, element: "value" });
    assert.equal(await r.blPop(a, 1), null);
    const moved = r.blMove(a, b, "LEFT", "RIGHT", 4);
    await delay(300);
    await other.rPush(a, "moved");
    assert.equal(await moved, "moved");
    await other.zAdd(z, { score: 2, value: "member" });
    assert.deepEqual({ ...(await r.bzPopMin(z, 4)) }, { key: z, value: "member", score: 2 });
  },

  async scripts(open, keys) {
    const r = await open();
    const source = "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
    assert.equal(await r.eval(source, { keys: [keys.spread("a")], arguments: ["1"] }), "1");
    for (let nth = 0; nth < 20; nth++) {
      const key = keys.spread(nth);
      assert.deepEqual(await r.stockEcho(key, nth), [key, String(nth)]);
    }
    const digest = await r.scriptLoad("return ARGV[1] -- node-redis loaded");
    for (let nth = 0; nth < 20; nth++) {
      const given = { keys: [keys.spread(nth)], arguments: [String(nth)] };
      assert.equal(await r.evalSha(digest, given), String(nth));
    }
  },

  async scan(open, keys) {
    const r = await open();
    const wanted = new Set();
    for (let nth = 0; nth < 300; nth++) wanted.add(keys.spread(nth));
    for (const key of wanted) await r.set(key, "1");
    const found = new Set();
    for await (const some of r.scanIterator({ MATCH: keys.spread("*"), COUNT: 50 })) {
      for (const key of [some].flat()) found.add(key);
    }
    assert.deepEqual(found, wanted);
    assert.ok((await r.dbSize()) >= 300);
  },
};
