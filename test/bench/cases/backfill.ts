import { statSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Figure, Table } from '../case.ts';
import type { Client } from '../client.ts';
import { chainCompleteness } from '../completeness.ts';
import { folderBytes, roleCosts } from '../costs.ts';
import { watchProcesses } from '../processes.ts';
import type { ProcessUse } from '../processes.ts';
import { tableSizes } from '../stores.ts';
import type { World } from '../world.ts';

/** The service's own processes; the others are stores, the simulated node and the bench. */
const roles = ['project', 'ingest', 'observe', 'api', 'supervisor'];
const POLL_MS = 250;
/** Transfers per second below which the case gives up. */
const HOPELESS_RATE = 500;

const progress = z.object({ totals: z.object({ transfers: z.number() }) });

export const backfill: BenchCase = {
  name: 'backfill',
  summary: 'index a prepared chain, from the node through RPC and Kafka into every table of chain.blocks',
  async run(world, { transfers, perBlock, brokers }) {
    // Generated blocks have slightly more or fewer transfers than requested.
    const head = Math.ceil((1.02 * transfers) / perBlock);
    world.say(`preparing a chain of ${head} blocks`);
    const preparedDir = join(world.dir, 'chain');
    const chain = await world.chain({ head, perBlock, preparedDir });
    const truth = await chain.truth();

    const cluster = brokers === 1 ? null : await world.kafkaCluster();
    world.say(`indexing ${truth.transfers} transfers`);
    const { service, dataDir } = await world.service('backfill', {
      ...(cluster === null ? {} : { KAFKA_BROKERS: cluster.urls.join(',') }),
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
      // More than one chunk, as on a long chain.
      BACKFILL_CHUNK_BLOCKS: String(Math.ceil(head / 4)),
    });
    const watched = watchProcesses(
      {
        ...service.pids(),
        ...Object.fromEntries((cluster?.brokers ?? []).map((broker, i) => [`kafka ${i + 1}`, broker.pid()])),
        supervisor: service.pid,
        'simulated node': chain.pid,
        bench: process.pid,
      },
      roles,
    );
    // Stores are ready, roles are just being started: their start is part of the measured time.
    const began = statSync(join(dataDir, 'logs', 'project.log')).birthtimeMs;
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    const reached = await follow(world, client, truth.transfers, began);
    const uses = watched.end();
    const seconds = (reached.at(-1)?.at ?? Number.NaN) / 1000;

    world.say('comparing every table with the node');
    const stores = await world.stores(dataDir);
    const sizes = await tableSizes(stores);
    const rpcBytes = folderBytes(preparedDir, /\.blocks$/);
    const logBytes = (cluster?.logDirs ?? [join(dataDir, 'kafka')])
      .map((dir) => folderBytes(dir, /chain\.blocks-\d+\/\d+\.log$/))
      .reduce((sum, bytes) => sum + bytes, 0);
    return {
      figures: [
        { name: 'transfers', value: truth.transfers, unit: '' },
        { name: 'blocks', value: truth.blocks, unit: '' },
        { name: 'time', value: seconds, unit: 's' },
        { name: 'rate', value: truth.transfers / seconds, unit: 'transfers/s', want: wanted.backfillRate },
        { name: 'rate between 20 and 80 %', value: steadyRate(reached), unit: 'transfers/s' },
        { name: 'blocks', value: truth.blocks / seconds, unit: '1/s' },
        { name: 'JSON from the node', value: rpcBytes / 1e6 / seconds, unit: 'MB/s' },
        {
          name: 'rows written',
          value: sizes.reduce((sum, { rows }) => sum + rows, 0) / seconds,
          unit: 'rows/s',
        },
        ...memory(uses),
      ],
      tables: [
        {
          title: 'Processes during the backfill (peak memory, and CPU of the roles, since each one’s start)',
          columns: ['process', 'CPU s', 'share of two cores %', 'µs CPU a transfer', 'peak MiB'],
          rows: uses.map(({ name, cpuSeconds, peakMiB }) => [
            name,
            cpuSeconds,
            (50 * cpuSeconds) / seconds,
            (1e6 * cpuSeconds) / truth.transfers,
            peakMiB,
          ]),
        },
        {
          title: 'Bytes',
          columns: ['where', 'rows', 'parts', 'MB', 'MB before compression', 'bytes a row'],
          rows: [
            ['JSON of the node', truth.blocks, '', rpcBytes / 1e6, '', ''],
            ['chain.blocks in Kafka, all brokers', truth.blocks, '', logBytes / 1e6, '', ''],
            ...sizes.map(({ table, rows, parts, stored, plain }) => [
              table,
              rows,
              parts,
              stored / 1e6,
              plain / 1e6,
              stored / rows,
            ]),
          ],
        },
        ...(await costTables(dataDir)),
      ],
      completeness: await chainCompleteness(stores, truth),
      notes: [
        'Measured from the start of the roles (stores ready) until the API totals include every transfer; totals are written after all other tables of a batch.',
      ],
    };
  },
};

/** Number of visible transfers over time, in milliseconds since the start. */
type Reached = readonly { at: number; transfers: number }[];

/** Polls the API totals until they include every transfer. */
export async function follow(world: World, client: Client, total: number, began: number): Promise<Reached> {
  const reached: { at: number; transfers: number }[] = [];
  const givenUp = (1000 * total) / HOPELESS_RATE + 120_000;
  for (let said = 0; ;) {
    const { transfers } = (await client.read('/api/indexer/progress/', progress)).totals;
    const at = Date.now() - began;
    reached.push({ at, transfers });
    if (transfers >= total) return reached;
    if (at > givenUp) throw new Error(`${transfers} of ${total} transfers after ${at / 1000} s`);
    if (transfers - said > total / 10) {
      said = transfers;
      world.say(`${transfers} after ${(at / 1000).toFixed(1)} s`);
    }
    await sleep(POLL_MS);
  }
}

/** Excludes the start of the roles and the last, smaller batches. */
function steadyRate(reached: Reached): number {
  const total = reached.at(-1)?.transfers ?? 0;
  const middle = reached.filter(({ transfers }) => transfers >= total * 0.2 && transfers <= total * 0.8);
  const [first] = middle;
  const last = middle.at(-1);
  if (first === undefined || last === undefined || last.at === first.at) return Number.NaN;
  return (1000 * (last.transfers - first.transfers)) / (last.at - first.at);
}

function memory(uses: readonly ProcessUse[]): Figure[] {
  return uses
    .filter(({ name }) => roles.includes(name))
    .map(({ name, peakMiB }) => ({
      name: `memory of ${name}`,
      value: peakMiB,
      unit: 'MiB',
      want: wanted.roleMemory,
    }));
}

async function costTables(dataDir: string): Promise<Table[]> {
  const [project, ingest] = await Promise.all([roleCosts(dataDir, 'project'), roleCosts(dataDir, 'ingest')]);
  const rows = [...project, ...ingest].map(({ what, count, seconds }) => [
    what,
    count,
    seconds,
    (1000 * seconds) / count,
  ]);
  return [
    {
      title: 'Waits, by the roles’ own metrics (they overlap)',
      columns: ['what', 'times', 'seconds', 'ms each'],
      rows,
    },
  ];
}
