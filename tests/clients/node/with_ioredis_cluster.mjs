import assert from "node:assert/strict";
import { Cluster } from "ioredis";
import { delay, heard, run } from "./harness.mjs";

export default function ioredisCluster({ address }) {
  const nodes = address.split(",").map((node) => {
    const [host, port] = node.split(":");
    return { host, port: Number(port) };
  });
  const connect = () => {
    const client = new Cluster(nodes, { shardedSubscribers: true });
    client.on("error", () => {});
    return client;
  };
  return run("ioredis Cluster", connect, (client) => client.disconnect(), cases);
}

const cases = {
  async "many keys"(open, keys) {
    const r = await open();
    for (let nth = 0; nth < 300; nth++) assert.equal(await r.set(keys.spread(nth), nth), "OK");
    for (let nth = 0; nth < 300; nth++) assert.equal(await r.get(keys.spread(nth)), String(nth));
    const [a, b] = [keys.together("a"), keys.together("b")];
    assert.equal(await r.mset(a, "1", b, "2"), "OK");
    assert.deepEqual(await r.mget(a, b, keys.together("none")), ["1", "2", null]);
    assert.equal(await r.del(a, b), 2);
  },

  async pipelines(open, keys) {
    const r = await open();
    // Here all keys of a pipeline must be of one node's slots.
    const pipeline = r.pipeline();
    for (let nth = 0; nth < 300; nth++) pipeline.set(keys.together(nth), nth).get(keys.together(nth));
    const replies = await pipeline.exec();
    for (let nth = 0; nth < 300; nth++) assert.deepEqual(replies[2 * nth + 1], [null, String(nth)]);
  },

  async transactions(open, keys) {
    const r = await open();
    const [n, other] = [keys.together("n"), keys.together("other")];
    await r.del(n);
    const done = await r.multi().incr(n).incrby(n, 4).set(other, "x").exec();
    assert.deepEqual(done, [[null, 1], [null, 5], [null, "OK"]]);
  },

  async "pub/sub"(open, keys) {
    const [subscriber, publisher] = [await open(), await open()];
    const channel = keys.spread("news");
    const message = heard((tell) => subscriber.on("message", (_, text) => tell(text)));
    await subscriber.subscribe(channel);
    await publisher.publish(channel, "hello");
    assert.equal(await message, "hello");
  },

  async "sharded pub/sub"(open, keys) {
    const [subscriber, publisher] = [await open(), await open()];
    const channels = Array.from({ length: 5 }, (_, nth) => keys.spread(`shard${nth}`));
    for (const channel of channels) {
      const message = heard((tell) => {
        subscriber.on("smessage", (from, text) => from === channel && tell(text));
      });
      await subscriber.ssubscribe(channel);
      await publisher.spublish(channel, "hello");
      assert.equal(await message, "hello");
    }
  },

  async "a node stops"(open, keys) {
    const r = await open();
    for (let nth = 0; nth < 100; nth++) await r.set(keys.spread(nth), nth);
    process.kill(Number(process.env.STOCK_VICTIM), "SIGKILL");
    const deadline = Date.now() + 15_000;
    for (let nth = 0; nth < 100; nth++) {
      for (;;) {
        try {
          const got = await r.get(keys.spread(nth));
          await r.set(keys.spread(nth), nth);
          assert.equal(got, String(nth));
          break;
        } catch (error) {
          if (error.code === "ERR_ASSERTION" || Date.now() > deadline) throw error;
          await delay(20);
        }
      }
    }
  },
};
