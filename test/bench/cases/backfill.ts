import { statSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Figure, Table } from '../case.ts';
import type { ChainProcess, Truth } from '../chain.ts';
import type { Client } from '../client.ts';
import { chainCompleteness } from '../completeness.ts';
import { folderBytes, roleCosts } from '../costs.ts';
import { cpuOfTree, watchProcesses } from '../processes.ts';
import type { ProcessUse } from '../processes.ts';
import { tableSizes } from '../stores.ts';
import type { Stores } from '../stores.ts';
import type { World } from '../world.ts';

const roles = ['project', 'ingest', 'observe', 'dispatch', 'api', 'supervisor'];
const POLL_MS = 250;
/** Transfers per second below which the case gives up. */
const HOPELESS_RATE = 500;

const progress = z.object({ totals: z.object({ transfers: z.number() }) });

export const backfill: BenchCase = {
  name: 'backfill',
  summary: 'index a prepared chain, from the node through RPC and Kafka into every table of chain.blocks',
  async run(world, { transfers, perBlock, brokers }) {
    const { chain, truth, settings, preparedDir } = await mixedChain(world, transfers, perBlock);
    const cluster = brokers === 1 ? null : await world.kafkaCluster();
    world.say(`indexing ${truth.transfers} transfers`);
    const others = watchProcesses({ 'simulated node': chain.pid, bench: process.pid });
    const { service, dataDir } = await world.service('backfill', {
      ...(cluster === null ? {} : { KAFKA_BROKERS: cluster.urls.join(',') }),
      ...settings,
      // More than one chunk, as on a long chain.
      BACKFILL_CHUNK_BLOCKS: String(Math.ceil(truth.blocks / 4)),
    });
    const watched = watchProcesses(
      {
        ...service.pids(),
        supervisor: service.pid,
        ...Object.fromEntries((cluster?.brokers ?? []).map((broker, i) => [`kafka ${i + 1}`, broker.pid()])),
      },
      [...Object.keys(service.pids()), 'supervisor'],
    );
    // Stores are ready, roles are just being started: their start is part of the measured time.
    const began = statSync(join(dataDir, 'logs', 'project.log')).birthtimeMs;
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    const reached = await follow(world, client, truth.transfers, { began, root: service.pid });
    const uses = [...watched.end(), ...others.end()];
    const cpuSeconds = totalCpu(uses, reached);
    const seconds = (reached.at(-1)?.at ?? Number.NaN) / 1000;

    world.say('comparing every table with the node');
    const stores = await world.stores(dataDir);
    const facts = await observed(stores);
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
        ...steady(reached),
        {
          name: 'CPU of all processes a transfer, their start included',
          value: (1e6 * cpuSeconds) / truth.transfers,
          unit: 'µs',
          want: wanted.backfillCpu,
        },
        { name: 'first transfer can be queried', value: firstShown(reached), unit: 's' },
        ...facts,
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
          title:
            'Processes (peak memory and CPU since each one’s start; of the node and the bench: since the service’s)',
          columns: ['process', 'CPU s', 'share of two cores %', 'µs CPU a transfer', 'peak MiB'],
          rows: uses.map((use) => [
            use.name,
            use.cpuSeconds,
            (50 * use.cpuSeconds) / seconds,
            (1e6 * use.cpuSeconds) / truth.transfers,
            use.peakMiB,
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
        'CPU of all processes: the supervisor with all its descendants since their start, set-up of the stores included, and the simulated node while it serves; not the bench.',
      ],
    };
  },
};

/** A prepared chain with the tokens of a real one, and the settings of a service that indexes it. */
export async function mixedChain(
  world: World,
  transfers: number,
  perBlock: number,
): Promise<{ chain: ChainProcess; truth: Truth; settings: Record<string, string>; preparedDir: string }> {
  // Generated blocks have slightly more or fewer transfers than requested.
  const head = Math.ceil((1.02 * transfers) / perBlock);
  world.say(`preparing a chain of ${head} blocks`);
  const preparedDir = join(world.dir, 'chain');
  const chain = await world.chain({ head, perBlock, mixed: true, preparedDir });
  const settings = {
    STARKNET_RPC_URL: chain.url,
    IPFS_GATEWAY_URL: await world.gateway(),
    INDEX_FROM: '0',
  };
  return { chain, truth: await chain.truth(), settings, preparedDir };
}

/**
 * Number of visible transfers over time, in milliseconds since the start, and CPU seconds of the service and its stores
 * since their start.
 */
type Reached = readonly { at: number; transfers: number; cpuSeconds: number }[];

/** Polls the API totals until they include every transfer. */
export async function follow(
  world: World,
  client: Client,
  total: number,
  { began, root }: { began: number; root: number },
): Promise<Reached> {
  const reached: { at: number; transfers: number; cpuSeconds: number }[] = [];
  const givenUp = (1000 * total) / HOPELESS_RATE + 120_000;
  for (let said = 0; ;) {
    const { transfers } = (await client.read('/api/indexer/progress/', progress)).totals;
    const at = Date.now() - began;
    const last = reached.at(-1);
    // Reading all of /proc takes some milliseconds.
    const cpuSeconds = last?.transfers === transfers ? last.cpuSeconds : cpuOfTree(root);
    reached.push({ at, transfers, cpuSeconds });
    if (transfers >= total) return reached;
    if (at > givenUp) throw new Error(`${transfers} of ${total} transfers after ${at / 1000} s`);
    if (transfers - said > total / 10) {
      said = transfers;
      world.say(`${transfers} after ${(at / 1000).toFixed(1)} s`);
    }
    await sleep(POLL_MS);
  }
}

function firstShown(reached: Reached): number {
  return (reached.find(({ transfers }) => transfers > 0)?.at ?? Number.NaN) / 1000;
}

function totalCpu(uses: readonly ProcessUse[], reached: Reached): number {
  const node = uses.find(({ name }) => name === 'simulated node')?.cpuSeconds ?? Number.NaN;
  return node + (reached.at(-1)?.cpuSeconds ?? Number.NaN);
}

/** What the observers knew when the last transfer was visible; they may go on after it. */
async function observed({ pool, served }: Stores): Promise<Figure[]> {
  const count = async (projection: string, from: string): Promise<number> => {
    const sql = `SELECT count(*)::integer AS n FROM ${served.schema(projection)}.${from}`;
    return (await pool.query<{ n: number }>(sql)).rows[0]?.n ?? Number.NaN;
  };
  return [
    {
      name: 'tokens asked by then',
      value: await count('tokens', 'tokens WHERE standard IS NOT NULL'),
      unit: '',
    },
    {
      name: 'NFTs with metadata by then',
      value: await count('nft-metadata', 'nft_metadata WHERE is_fetched'),
      unit: '',
    },
  ];
}

/** Excludes the start of the roles and the last, smaller batches. */
function steady(reached: Reached): Figure[] {
  const total = reached.at(-1)?.transfers ?? 0;
  const middle = reached.filter(({ transfers }) => transfers >= total * 0.2 && transfers <= total * 0.8);
  const [first] = middle;
  const last = middle.at(-1);
  // Transfers become visible in steps of some batches: a short backfill may have none in between.
  if (first === undefined || last === undefined || last.transfers === first.transfers) return [];
  const transfers = last.transfers - first.transfers;
  return [
    {
      name: 'rate between 20 and 80 %',
      value: (1000 * transfers) / (last.at - first.at),
      unit: 'transfers/s',
    },
    {
      name: 'CPU of the service and its stores a transfer between 20 and 80 %',
      value: (1e6 * (last.cpuSeconds - first.cpuSeconds)) / transfers,
      unit: 'µs',
    },
  ];
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
