// Stock Node clients: node main.mjs HOST:PORT [LIBRARY ...]
// Prints a line per case: language, library, topic, pass or fail, reason.
const MODULES = {
  ioredis: "./with_ioredis.mjs",
  "ioredis Cluster": "./with_ioredis_cluster.mjs",
  "node-redis": "./with_node_redis.mjs",
  BullMQ: "./with_bullmq.mjs",
  memjs: "./with_memjs.mjs",
};

const [address, ...libraries] = process.argv.slice(2);
const [host, port] = address.split(":");
// A client that fails in the background fails its case by its time limit.
process.on("unhandledRejection", (error) => process.env.STOCK_VERBOSE && console.error(error));
process.on("uncaughtException", (error) => process.env.STOCK_VERBOSE && console.error(error));
for (const library of libraries.length > 0 ? libraries : Object.keys(MODULES)) {
  const module = await import(MODULES[library]);
  await module.default({ address, host, port: Number(port) });
}
process.exit(0);
