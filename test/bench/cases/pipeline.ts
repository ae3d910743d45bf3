import { sleep } from '../../../infra/lifecycle.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { accepted, busyBlock } from '../../support/chain-messages.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { latency } from '../measure.ts';

const MESSAGES = 100;
/** Far above the ingester's heights, to avoid collisions. */
const FIRST_HEIGHT = 1_000_000;
/** Transactions per block, each with a transfer and its fee. */
const TRANSACTIONS = 50;
const IDLE_MS = 400;
const LOOK_MS = 3;
const GIVEN_UP_MS = 60_000;

export const pipeline: BenchCase = {
  name: 'pipeline',
  summary: 'latency of one chain.blocks message through an idle pipeline, until its rows are visible',
  async run(world, { samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { dataDir } = await world.service('pipeline', { STARKNET_RPC_URL: chain.url, INDEX_FROM: '0' });
    const stores = await world.stores(dataDir);
    const publisher = stores.kafka.publisher();
    const rowsAt = (table: string, height: number): Promise<number> =>
      stores.number(`SELECT count() AS n FROM {{${table}}} FINAL WHERE block_desc = {block:UInt32}`, {
        block: 0xffff_ffff - height,
      });
    const seen = async (table: string, height: number, rows: number): Promise<void> => {
      const began = performance.now();
      while ((await rowsAt(table, height)) < rows) {
        if (performance.now() - began > GIVEN_UP_MS) throw new Error(`no row of ${height} in ${table}`);
        await sleep(LOOK_MS);
      }
    };

    const acknowledged: number[] = [];
    const inTransfers: number[] = [];
    const inAll: number[] = [];
    const count = samples ?? MESSAGES;
    try {
      // Warm-up: the first messages open connections and are not measured.
      for (let index = -3; index < count; index += 1) {
        const height = FIRST_HEIGHT + index;
        await sleep(IDLE_MS);
        const value = accepted(busyBlock(height, TRANSACTIONS), 1, 'live');
        const began = performance.now();
        await publisher.publish(topics.chainBlocks, [{ value, partition: partitionOfHeight(height) }]);
        const sent = performance.now() - began;
        await seen('transfers', height, 2 * TRANSACTIONS);
        const rows = performance.now() - began;
        await seen('indexed_blocks', height, 1);
        if (index < 0) continue;
        acknowledged.push(sent);
        inTransfers.push(rows);
        inAll.push(performance.now() - began);
      }
    } finally {
      await publisher.close();
    }
    const own = `WHERE block_desc <= ${0xffff_ffff - FIRST_HEIGHT}`;
    const perMessage = 2 * TRANSACTIONS;
    return {
      figures: [
        { name: 'messages', value: count, unit: '' },
        ...latency('acknowledged by Kafka', acknowledged),
        ...latency('row in transfers', inTransfers, { median: wanted.pipelineMedian }),
        ...latency('all tables', inAll),
      ],
      completeness: [
        {
          what: 'transfers',
          expected: count * perMessage,
          found: await stores.number(`SELECT count() AS n FROM {{transfers}} FINAL ${own}`),
        },
        {
          what: 'account_ledger, two legs a transfer',
          expected: 2 * count * perMessage,
          found: await stores.number(`SELECT count() AS n FROM {{account_ledger}} FINAL ${own}`),
        },
        {
          what: 'indexed_blocks',
          expected: count,
          found: await stores.number(`SELECT count() AS n FROM {{indexed_blocks}} FINAL ${own}`),
        },
      ],
      notes: [
        `Each message is a block of ${TRANSACTIONS} transactions. Measured from the publish call; includes the poll interval of ClickHouse, ${LOOK_MS} ms.`,
      ],
    };
  },
};
