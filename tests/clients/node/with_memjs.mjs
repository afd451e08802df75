import assert from "node:assert/strict";
import memjs from "memjs";
import { run } from "./harness.mjs";

// It speaks the binary protocol.
export default function memjsCases({ host, port }) {
  const options = { retries: 0, timeout: 10 };
  const connect = () => memjs.Client.create(`${host}:${port}`, options);
  return run("memjs", connect, (client) => client.close(), cases);
}

const text = async (reading) => (await reading).value?.toString() ?? null;

const cases = {
  async values(open, keys) {
    const c = await open();
    const key = keys.spread("v");
    for (const value of ["text", "", "ü".repeat(1000), "x".repeat(900_000)]) {
      assert.equal(await c.set(key, value, {}), true);
      assert.equal(await text(c.get(key)), value);
    }
    assert.equal(await c.set(key, Buffer.from([0, 13, 10, 255]), {}), true);
    assert.deepEqual((await c.get(key)).value, Buffer.from([0, 13, 10, 255]));
    assert.equal(await c.append(key, "!"), true);
    assert.equal(await c.prepend(key, "!"), true);
    assert.equal((await c.get(key)).value.length, 6);
    assert.equal(await text(c.get(keys.spread("none"))), null);
  },

  async conditions(open, keys) {
    const c = await open();
    const key = keys.spread("c");
    assert.equal(await c.replace(key, "1", {}), false);
    assert.equal(await c.add(key, "1", {}), true);
    assert.equal(await c.add(key, "2", {}), false);
    assert.equal(await c.replace(key, "2", {}), true);
    assert.equal(await c.delete(key), true);
    assert.equal(await c.delete(key), false);
  },

  async many(open, keys) {
    const c = await open();
    const names = Array.from({ length: 200 }, (_, nth) => keys.spread(nth));
    await Promise.all(names.map((name, nth) => c.set(name, String(nth), {})));
    const values = await Promise.all(names.map((name) => text(c.get(name))));
    assert.deepEqual(values, names.map((_, nth) => String(nth)));
  },

  async counters(open, keys) {
    const c = await open();
    const key = keys.spread("n");
    await c.delete(key);
    assert.equal((await c.increment(key, 5, { initial: 10 })).value, 10);
    assert.equal((await c.increment(key, 5, {})).value, 15);
    assert.equal((await c.decrement(key, 20, {})).value, 0);
  },

  async expiry(open, keys) {
    const c = await open();
    const key = keys.spread("e");
    assert.equal(await c.set(key, "a", { expires: 1000 }), true);
    assert.equal(await c.touch(key, 2000), true);
    assert.equal(await text(c.get(key)), "a");
  },
};
