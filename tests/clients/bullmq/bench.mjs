// Runs JOBS jobs that do nothing through BullMQ on the Redis at SOCKET with so many workers of one job each, and prints
// the seconds from the first that is taken to the last that is done.
//
//   node bench.mjs SOCKET WORKERS JOBS

import { createRequire } from 'node:module';

const require = createRequire(`${process.env.MODULES}/`);
const { Queue, Worker } = require('bullmq');

const [, , path, workers, jobs] = process.argv;
const connection = () => ({ path, maxRetriesPerRequest: null });
const queue = new Queue('jobs', { connection: connection() });
const all = Array.from({ length: Number(jobs) }, (_, n) => ({
  name: 'job',
  data: { n },
  opts: { removeOnComplete: true },
}));
for (let from = 0; from < all.length; from += 1000) await queue.addBulk(all.slice(from, from + 1000));

let done = 0;
let began;
await new Promise((resolve) => {
  for (let n = 0; n < Number(workers); n += 1) {
    const worker = new Worker('jobs', async () => {}, { connection: connection(), concurrency: 1 });
    worker.on('active', () => (began ??= performance.now()));
    worker.on('completed', () => {
      done += 1;
      if (done === all.length) resolve();
    });
  }
});
console.log((performance.now() - began) / 1000);
process.exit(0);
