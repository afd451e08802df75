// BullMQ. The prefix is a hash tag: its scripts take many keys of one queue.
import assert from "node:assert/strict";
import * as bullmq from "bullmq";
import { Redis } from "ioredis";
import { run } from "./harness.mjs";

const { FlowProducer, Queue, QueueEvents, Worker } = bullmq;
const FINISH_MS = 15_000;
let at;

export default function bullMq(address) {
  at = address;
  return run("BullMQ", () => [], (opened) => Promise.all(opened.map((one) => one.close())), cases);
}

// A queue, its events and a worker that runs `work`, all on one prefix.
async function started(open, name, work) {
  const opened = await open();
  const options = { connection: at, prefix: "{bull}" };
  const queue = new Queue(name, options);
  const events = new QueueEvents(name, options);
  const worker = new Worker(name, work, options);
  opened.push(worker, events, queue);
  for (const one of opened) one.on("error", () => {});
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady(), worker.waitUntilReady()]);
  return { queue, events, worker, opened, options };
}

const cases = {
  async "job and result"(open) {
    const { queue, events } = await started(open, "results", async (job) => job.data.left * job.data.right);
    const job = await queue.add("product", { left: 6, right: 7 });
    assert.equal(await job.waitUntilFinished(events, FINISH_MS), 42);
    const jobs = await queue.addBulk([1, 2, 3].map((n) => ({ name: "product", data: { left: n, right: n } })));
    const results = await Promise.all(jobs.map((one) => one.waitUntilFinished(events, FINISH_MS)));
    assert.deepEqual(results, [1, 4, 9]);
    assert.equal((await queue.getJobCounts("completed")).completed, 4);
  },

  async "delay and retry"(open) {
    const { queue, events } = await started(open, "delays", async (job) => {
      if (job.name === "flaky" && job.attemptsMade === 0) throw new Error("as the case wants");
      return job.attemptsMade;
    });
    const delayed = await queue.add("delayed", {}, { delay: 300 });
    await delayed.waitUntilFinished(events, FINISH_MS);
    const flaky = await queue.add("flaky", {}, { attempts: 2, backoff: 100 });
    assert.equal(await flaky.waitUntilFinished(events, FINISH_MS), 1);
  },

  async flows(open) {
    const { events, opened, options } = await started(open, "flows", async (job) => {
      if (job.name === "child") return job.data.value;
      return Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0);
    });
    const flows = new FlowProducer(options);
    flows.on("error", () => {});
    opened.push(flows);
    const children = [1, 2, 3].map((value) => ({ name: "child", queueName: "flows", data: { value } }));
    const { job } = await flows.add({ name: "parent", queueName: "flows", children });
    assert.equal(await job.waitUntilFinished(events, FINISH_MS), 6);
  },
};
