import { z } from 'zod';

import { STRK_TOKEN, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { fill, untilMerged } from '../fill.ts';
import { latency, randomNumbers, timed } from '../measure.ts';
import { createSynthetic, hashOf, madeBlock } from '../synthetic.ts';

const TRANSFERS = 50_000;
const ACCOUNTS = 20_000;
/** Transfers of other tokens, which the trace must skip. */
const OTHERS = 100_000;
const ROWS_PER_BLOCK = 500;
/** Above the simulated node's heights, to avoid collisions. */
const FIRST_HEIGHT = 102_400;
const SAMPLES = 10;

const TOKEN = toFelt(0x7_4ace_0000n);
const traced = z.array(z.object({ from: z.string(), to: z.string(), value: z.string(), block: z.number() }));

export const trace: BenchCase = {
  name: 'trace',
  summary:
    'every transfer that is reached from one account in a token of 50,000 transfers among 20,000 accounts',
  async run(world, { samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const settings = { STARKNET_RPC_URL: chain.url, INDEX_FROM: '0' };
    const { service, dataDir } = await world.service('trace', settings);
    const stores = await world.stores(dataDir);
    const others = createSynthetic({ perBlock: ROWS_PER_BLOCK, blocks: OTHERS / ROWS_PER_BLOCK, probes: 10 });
    world.say(`filling the tables with ${OTHERS} other transfers`);
    await fill(stores, others, { first: FIRST_HEIGHT, count: OTHERS / ROWS_PER_BLOCK }, world.say);
    world.say(`filling the tables with ${TRANSFERS} transfers`);
    const first = FIRST_HEIGHT + 2 * (OTHERS / ROWS_PER_BLOCK);
    await fill(stores, graph(), { first, count: TRANSFERS / ROWS_PER_BLOCK }, world.say);
    await untilMerged(stores);

    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    // From the root, from the farthest leaf, and from an inner account.
    const starts = [0, ACCOUNTS - 1, 4711].map(accountAt);
    const path = (account: Felt): string => `/api/track-transfers/?account=${account}&token=${TOKEN}`;
    const completeness = [];
    for (const [index, account] of starts.entries()) {
      const rows = await client.read(path(account), traced);
      completeness.push({
        what: `transfers reached from account ${index}`,
        expected: TRANSFERS,
        found: rows.length,
      });
    }
    let asked = 0;
    const { samples: times } = await timed(samples ?? SAMPLES, 1, async () => {
      const { status } = await client.get(path(starts[(asked += 1) % starts.length] ?? TOKEN));
      if (status !== 200) throw new Error(`a trace was answered ${status}`);
    });
    return {
      figures: [
        { name: 'transfers', value: TRANSFERS, unit: '' },
        ...latency('trace', times, { tail: wanted.traceTail }),
      ],
      completeness,
    };
  },
};

const accountAt = (index: number): Felt => toFelt(0x74ace_0000_0000n + BigInt(index) * 0x1_0001n);

/** A tree that reaches every account, plus the same number of other transfers. */
function graph(): { block: Parameters<typeof fill>[1]['block'] } {
  const random = randomNumbers(11);
  let made = 0;
  const transfer = (position: number): Transfer => {
    made += 1;
    const isTree = made < ACCOUNTS;
    const to = isTree ? made : Math.floor(random() * ACCOUNTS);
    const from = isTree ? Math.floor(made / 100) : Math.floor(random() * ACCOUNTS);
    return {
      token: TOKEN,
      kind: 'erc20',
      from: accountAt(from),
      to: accountAt(to),
      amount: BigInt(made),
      tokenId: null,
      position,
      item: 0,
      txIndex: position,
      eventInTx: 0,
      txHash: hashOf(`traced ${made}`),
      isFee: false,
      executionStatus: 'SUCCEEDED',
      fee: 1n,
      feeToken: STRK_TOKEN,
    };
  };
  return {
    block: (height, seq) =>
      madeBlock(
        height,
        seq,
        Array.from({ length: ROWS_PER_BLOCK }, (_, position) => transfer(position)),
      ),
  };
}
