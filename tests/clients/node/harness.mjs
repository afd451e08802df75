// What all Node cases share: address, key names, running a case under a limit.
import { setTimeout as delay } from "node:timers/promises";

const LIMIT_MS = 20_000;

// Names of one case's keys. `spread` goes to any shard; `together` shares one,
// as keys of one operation must.
export class Keys {
  constructor(library, topic) {
    this.base = `node:${library}:${topic}`;
  }

  spread(name) {
    return `${this.base}:${name}`;
  }

  together(name) {
    return `{${this.base}}:${name}`;
  }
}

// Runs each case of a library and prints its line. `connect` gives a client,
// `close` ends it, however it is; `cases` maps topics to functions.
export async function run(library, connect, close, cases) {
  for (const [topic, work] of Object.entries(cases)) {
    const clients = [];
    const open = async () => {
      const client = await connect();
      clients.push(client);
      return client;
    };
    let verdict = "pass\t";
    try {
      const result = work(open, new Keys(library, topic));
      await Promise.race([result, tooLate()]);
      // A late failure of a case that is over must not end the process.
      result.catch(() => {});
    } catch (error) {
      if (process.env.STOCK_VERBOSE) console.error(error);
      verdict = `fail\t${describe(error)}`;
    }
    console.log(`node\t${library}\t${topic}\t${verdict}`);
    for (const client of clients) {
      try {
        await Promise.race([close(client), delay(500)]);
      } catch {
        // The case is over; how its client ends is no part of it.
      }
    }
  }
}

async function tooLate() {
  await delay(LIMIT_MS, undefined, { ref: false });
  throw new Error(`no end within ${LIMIT_MS / 1000} s`);
}

function describe(error) {
  const first = error?.errors?.[0] ?? error;
  const name = first?.name ?? "Error";
  return `${name}: ${first?.message ?? first}`.replace(/\s+/g, " ").slice(0, 300);
}

// Resolves with what `listen` hands to its argument, or fails after 5 s.
export function heard(listen) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("no message within 5 s")), 5000);
    listen((value) => {
      clearTimeout(timer);
      resolve(value);
    });
  });
}

export { delay };
