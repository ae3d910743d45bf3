import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { chainCompleteness } from '../completeness.ts';
import { latency, percentile, randomNumbers } from '../measure.ts';

const BLOCKS = 100;
const FIRST_HEAD = 300;
/** Poll interval of the API; polling itself uses CPU of the measured machine. */
const LOOK_MS = 20;
const GIVEN_UP_MS = 60_000;

const page = z.object({ count: z.number(), results: z.array(z.object({ block: z.number() })) });
const progress = z.object({ totals: z.object({ transfers: z.number() }) });

export const headLag: BenchCase = {
  name: 'head-lag',
  summary: 'time from the node serving a block until /api/transfers/ shows it',
  async run(world, { samples, perBlock }) {
    const chain = await world.chain({ head: FIRST_HEAD, perBlock });
    const { service, dataDir } = await world.service('head-lag', {
      STARKNET_RPC_URL: chain.url,
      STARKNET_WS_URL: chain.url.replace('http', 'ws'),
      INDEX_FROM: '0',
    });
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    const indexed = async (): Promise<number> =>
      (await client.read('/api/indexer/progress/', progress)).totals.transfers;
    const first = (await chain.truth()).transfers;
    await until('the first blocks', async () => (await indexed()) === first);

    const random = randomNumbers(17);
    const lags: number[] = [];
    const looks: number[] = [];
    for (let round = 0; round < (samples ?? BLOCKS); round += 1) {
      // Blocks appear at random times within the ingester's poll interval, about every two seconds.
      await sleep(700 + 800 * random());
      const began = performance.now();
      const { head } = await chain.advance(1);
      await until(`block ${head}`, async () => {
        const from = performance.now();
        const { results } = await client.read(`/api/transfers/?block=${head}&limit=1`, page);
        looks.push(performance.now() - from);
        return results.length > 0;
      });
      lags.push(performance.now() - began);
    }

    const truth = await chain.truth();
    const shown = await indexed();
    const stores = await world.stores(dataDir);
    return {
      figures: [
        { name: 'blocks', value: lags.length, unit: '' },
        ...latency('lag', lags, { median: wanted.headMedian, tail: wanted.headTail }),
        { name: 'longest', value: Math.max(...lags), unit: 'ms' },
        { name: 'one look at the API, p50', value: percentile(looks, 0.5), unit: 'ms' },
      ],
      completeness: [
        { what: 'totals of the API', expected: truth.transfers, found: shown },
        ...(await chainCompleteness(stores, truth)),
      ],
      notes: [
        `The time runs from before the node is told to make the block until the first answer that shows it is read whole; the API is asked every ${LOOK_MS} ms. The node announces its blocks over its WebSocket; with \`--set=STARKNET_WS_URL=\` the ingester polls its head every HEAD_POLL_MS (250 by default).`,
      ],
    };
  },
};

async function until(what: string, look: () => Promise<boolean>): Promise<void> {
  const began = performance.now();
  while (!(await look())) {
    if (performance.now() - began > GIVEN_UP_MS) throw new Error(`${what}: not shown after a minute`);
    await sleep(LOOK_MS);
  }
}
