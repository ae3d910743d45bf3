import { get } from 'node:http';
import type { IncomingMessage } from 'node:http';

import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { COIN, accepted, busyBlock } from '../../support/chain-messages.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { latency } from '../measure.ts';
import { cpuOfTree, memoryOf } from '../processes.ts';
import { totals } from './start.ts';

const BLOCKS = 40;
const HISTORY_BLOCKS = 1000;
/** Far above the ingester's heights, to avoid collisions. */
const FIRST_HEIGHT = 1_000_000;
/** Transactions per block, each with a transfer and its fee. */
const TRANSACTIONS = 50;
const STREAMS = 1000;
const IDLE_STREAMS = 2000;
/** Streams with transfers in every block; the others follow accounts that have none. */
const BUSY_STREAMS = 100;
const BLOCK_TIME_MS = 1500;
const GIVEN_UP_MS = 60_000;

const heightOf = z.object({ height: z.int() });

export const streams: BenchCase = {
  name: 'streams',
  summary: 'the stream of transfers: history, latency at 1,000 streams, memory of 2,000',
  async run(world, { samples, perBlock }) {
    const chain = await world.chain({ head: HISTORY_BLOCKS, perBlock });
    const { service, dataDir } = await world.service('streams', {
      STARKNET_RPC_URL: chain.url,
      STARKNET_WS_URL: chain.url.replace('http', 'ws'),
      INDEX_FROM: '0',
    });
    const truth = await chain.truth();
    await until('the first blocks', async () => (await totals(service)) === truth.transfers);
    const stream = (query: string, onMessage: OnMessage): Promise<IncomingMessage> =>
      openStream(`${service.baseUrl}/api/stream/transfers/?${query}`, service.demo.api_key, onMessage);

    world.say('reading the history');
    const history = await readHistory(stream, HISTORY_BLOCKS);

    const seenAt = new Map<number, number[]>();
    let transfers = 0;
    const openAll = async (count: number): Promise<IncomingMessage[]> => {
      const opened: IncomingMessage[] = [];
      for (let index = 0; index < count; index += 1) {
        const query =
          index < BUSY_STREAMS ? `token=${COIN}` : `account=0x${(0xdead_0000 + index).toString(16)}`;
        const response = await stream(query, (type, data) => {
          if (type === 'transfer') transfers += 1;
          if (type === 'block') seenAt.get(heightOf.parse(JSON.parse(data)).height)?.push(performance.now());
        });
        opened.push(response);
      }
      return opened;
    };
    const api = service.pids()['api'] ?? 0;
    const before = memoryOf(api, 'VmRSS');
    world.say(`opening ${IDLE_STREAMS} streams`);
    const waiting = await openAll(IDLE_STREAMS);
    await sleep(5000);
    const memory = memoryOf(api, 'VmRSS') - before;
    for (const response of waiting) response.destroy();

    const stores = await world.stores(dataDir);
    const publisher = stores.kafka.publisher();
    const publish = async (height: number): Promise<void> => {
      const value = accepted(busyBlock(height, TRANSACTIONS), 1, 'live');
      await publisher.publish(topics.chainBlocks, [{ value, partition: partitionOfHeight(height) }]);
    };
    // Not a child of the ingester's newest block, so it must be there when the streams begin.
    await publish(FIRST_HEIGHT);
    await sleep(3000);
    const live = await openAll(STREAMS);
    const lags: number[] = [];
    const cpuBefore = cpuOfTree(api);
    for (let index = 1; index <= (samples ?? BLOCKS); index += 1) {
      await sleep(BLOCK_TIME_MS);
      const height = FIRST_HEIGHT + index;
      seenAt.set(height, []);
      const began = performance.now();
      await publish(height);
      await until(`block ${height}`, async () => seenAt.get(height)?.length === STREAMS);
      lags.push(...(seenAt.get(height) ?? []).map((at) => at - began));
    }
    const cpu = cpuOfTree(api) - cpuBefore;
    for (const response of live) response.destroy();
    await publisher.close();
    const coins = await stores.number(
      `SELECT count() AS n FROM {{transfers}} FINAL WHERE token = unhex('${COIN.slice(2)}') AND block_desc < ${0xffff_ffff - FIRST_HEIGHT}`,
    );
    return {
      figures: [
        {
          name: 'transfers of the history',
          value: history.transfers / history.seconds,
          unit: '/s',
          want: wanted.streamRate,
        },
        ...latency(`published until at the client, ${STREAMS} streams`, lags, {
          median: wanted.streamMedian,
          tail: wanted.streamTail,
        }),
        {
          name: `CPU of the API a block, ${STREAMS} streams`,
          value: (1000 * cpu) / (samples ?? BLOCKS),
          unit: 'ms',
        },
        { name: `memory of ${IDLE_STREAMS} streams`, value: memory, unit: 'MiB', want: wanted.streamMemory },
      ],
      completeness: [
        { what: 'transfers of the history', expected: truth.transfers, found: history.transfers },
        { what: 'blocks of the history', expected: HISTORY_BLOCKS + 1, found: history.blocks },
        { what: 'transfers of the live streams', expected: BUSY_STREAMS * coins, found: transfers },
      ],
      notes: [
        `The clients run in one process on the same machine. ${BUSY_STREAMS} of the ${STREAMS} streams have transfers in every block, of ${TRANSACTIONS} transactions; every stream has the block. The time runs from the publish call.`,
      ],
    };
  },
};

type OnMessage = (type: string, data: string) => void;

async function readHistory(
  stream: (query: string, onMessage: OnMessage) => Promise<IncomingMessage>,
  head: number,
): Promise<{ transfers: number; blocks: number; seconds: number }> {
  const began = performance.now();
  const counts = { transfer: 0, block: 0 };
  const response = await stream('from=0', (type) => {
    if (type === 'transfer' || type === 'block') counts[type] += 1;
  });
  await until('the history', async () => counts.block > head);
  const seconds = (performance.now() - began) / 1000;
  response.destroy();
  return { transfers: counts.transfer, blocks: counts.block, seconds };
}

function openStream(url: string, key: string, onMessage: OnMessage): Promise<IncomingMessage> {
  const headers = { 'api-key': key, accept: 'text/event-stream' };
  let [rest, type] = ['', ''];
  const take = (text: string): void => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('event: ')) type = line.slice(7);
      else if (line.startsWith('data: ')) onMessage(type, line.slice(6));
    }
  };
  return new Promise((resolve, reject) => {
    const request = get(url, { headers, agent: false }, (response) => {
      if (response.statusCode !== 200) reject(new Error(`${url}: ${response.statusCode}`));
      response.setEncoding('utf8').on('data', take);
      // It is destroyed at the end.
      response.on('error', () => {});
      resolve(response);
    });
    request.on('error', reject);
  });
}

async function until(what: string, look: () => Promise<boolean>): Promise<void> {
  const began = performance.now();
  while (!(await look())) {
    if (performance.now() - began > GIVEN_UP_MS) throw new Error(`${what}: not there after a minute`);
    await sleep(20);
  }
}
