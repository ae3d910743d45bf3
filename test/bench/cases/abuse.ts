import { setTimeout as sleep } from 'node:timers/promises';

import { z } from 'zod';

import { STRK_TOKEN, toFelt } from '../../../schemas/felt.ts';
import { abusers, startAbuser } from '../../support/abusers.ts';
import type { Outcomes, Target } from '../../support/abusers.ts';
import type { BenchCase, Figure } from '../case.ts';
import { wanted } from '../case.ts';
import type { Client } from '../client.ts';
import { fill, untilMerged } from '../fill.ts';
import { percentile, randomNumbers } from '../measure.ts';
import { startHangingWebhook } from '../hanging-webhook.ts';
import { watchProcesses } from '../processes.ts';
import type { Stores } from '../stores.ts';
import { SEQUENCER, createSynthetic, hashOf, madeBlock } from '../synthetic.ts';
import type { Synthetic } from '../synthetic.ts';

const BLOCKS = 1500;
const PER_BLOCK = 80;
/** Above the simulated node's heights, to avoid collisions. */
const FIRST_HEIGHT = 102_400;
const HOARDED_TOKENS = 6000;
const HOARDER = toFelt(0x40a4d34n);
const POLITE_PER_SECOND = 20;
/** Polite requests beside each abuser. */
const SAMPLES = 400;
/** From the start of an abuser to the first polite request that counts. */
const WARM_UP_MS = 3000;
const IDLE_WITHIN_MS = 30_000;

const session = z.object({ token: z.string() });
const created = z.object({ key: z.string() });

export const abuse: BenchCase = {
  name: 'abuse',
  summary: 'polite callers, 20 requests a second, beside one abuser of each kind',
  async run(world, { samples }) {
    const chain = await world.chain({ head: 3, perBlock: 40 });
    const settings = { STARKNET_RPC_URL: chain.url, INDEX_FROM: '0' };
    const { service, dataDir } = await world.service('abuse', settings);
    const stores = await world.stores(dataDir);
    const synthetic = createSynthetic({ perBlock: PER_BLOCK, blocks: BLOCKS, probes: 100 });
    world.say(`filling the tables with ${BLOCKS * PER_BLOCK} transfers, and an account with many tokens`);
    await fill(stores, hoard(), { first: FIRST_HEIGHT, count: HOARDED_TOKENS / PER_BLOCK }, world.say);
    await fill(stores, synthetic, { first: FIRST_HEIGHT + BLOCKS, count: BLOCKS }, world.say);
    await untilMerged(stores);

    const user = await logIn(world.client(service.baseUrl), service.demo, (headers) =>
      world.client(service.baseUrl, headers),
    );
    const target: Target = {
      baseUrl: service.baseUrl,
      apiKey: await makeKey(user, 'abuser'),
      hotAccount: SEQUENCER,
      hotToken: STRK_TOKEN,
      hoarder: HOARDER,
    };
    const polite = world.client(service.baseUrl, { 'api-key': await makeKey(user, 'polite') });
    const paths = politePaths(synthetic);
    const count = samples ?? SAMPLES;
    await callPolitely(polite, paths, 100);
    const watched = watchProcesses(service.pids());
    const alone = await callPolitely(polite, paths, count);
    world.say(`alone: p99 ${percentile(alone.times, 0.99).toFixed(0)} ms`);

    const rows: (string | number)[][] = [];
    const figures: Figure[] = [...tails('alone', alone)];
    const starts = [
      ...abusers.map((abuser) => ({ name: abuser.name, start: async () => startAbuser(abuser, target) })),
      { name: 'webhook to a host that hangs', start: async () => await startHangingWebhook(user, chain) },
    ];
    for (const { name, start } of starts) {
      const beside = await besideAbuser(start, { polite, paths, count, stores });
      world.say(`${name}: p99 ${percentile(beside.times, 0.99).toFixed(0)} ms`);
      figures.push(...tails(name, beside));
      rows.push([name, beside.failures, Math.round(beside.idleAfterMs), beside.outcomes]);
    }
    return {
      figures,
      completeness: [],
      tables: [
        {
          title: 'beside each abuser',
          columns: ['abuser', 'polite 5xx', 'ClickHouse idle after, ms', 'what the abuser got'],
          rows,
        },
        {
          title: 'memory of the roles, peak since their start',
          columns: ['role', 'MiB'],
          rows: watched.end().map(({ name, peakMiB }) => [name, Math.round(peakMiB)]),
        },
      ],
      notes: [
        `${count} polite requests in each row, ${POLITE_PER_SECOND} a second, timed from when each was due`,
      ],
    };
  },
};

interface Polite {
  readonly times: readonly number[];
  readonly failures: number;
}

function tails(name: string, { times }: Polite): Figure[] {
  return [
    { name: `${name}: p50`, value: percentile(times, 0.5), unit: 'ms' },
    { name: `${name}: p99`, value: percentile(times, 0.99), unit: 'ms', want: wanted.politeTail },
  ];
}

/** Sends requests at a fixed rate, however slowly they are answered. */
async function callPolitely(client: Client, paths: (turn: number) => string, count: number): Promise<Polite> {
  const startedAt = performance.now();
  const times: number[] = [];
  let failures = 0;
  await Promise.all(
    Array.from({ length: count }, async (_, turn) => {
      const dueMs = (turn * 1000) / POLITE_PER_SECOND;
      await sleep(dueMs);
      const { status } = await client.get(paths(turn));
      times.push(performance.now() - startedAt - dueMs);
      if (status >= 500) failures += 1;
    }),
  );
  return { times, failures };
}

async function besideAbuser(
  start: () => Promise<{ leave(): Promise<Outcomes> }>,
  deps: {
    readonly polite: Client;
    readonly paths: (turn: number) => string;
    readonly count: number;
    readonly stores: Stores;
  },
): Promise<Polite & { readonly idleAfterMs: number; readonly outcomes: string }> {
  const running = await start();
  await sleep(WARM_UP_MS);
  const polite = await callPolitely(deps.polite, deps.paths, deps.count);
  const outcomes = JSON.stringify(await running.leave());
  const leftAt = performance.now();
  await untilIdle(deps.stores);
  return { ...polite, idleAfterMs: performance.now() - leftAt, outcomes };
}

/** Waits until no query of the API runs that took longer than its own short reads do. */
async function untilIdle({ number }: Stores): Promise<void> {
  const sql = "SELECT count() AS n FROM system.processes WHERE elapsed > 0.3 AND http_user_agent != ''";
  const startedAt = performance.now();
  while ((await number(sql)) > 0 && performance.now() - startedAt < IDLE_WITHIN_MS) await sleep(50);
}

function politePaths(synthetic: Synthetic): (turn: number) => string {
  const random = randomNumbers(31);
  const one = <T>(from: readonly T[]): T => {
    const found = from[Math.floor(random() * from.length)];
    if (found === undefined) throw new RangeError('nothing to ask for');
    return found;
  };
  const account = (): string => one(synthetic.accounts).felt;
  const token = (): string => one(synthetic.tokens).felt;
  const mix: readonly (() => string)[] = [
    () => `/api/transfers/?account=${account()}`,
    () => `/api/transfers/?token=${token()}`,
    () => `/api/transfers/?txhash=${one(synthetic.hashes).hash}`,
    () => `/api/balance-history/?account_address=${account()}&token_address=${token()}`,
    () => `/api/portfolio/?account_address=${account()}`,
    () => `/api/tokens/?limit=20`,
  ];
  // An unknown parameter makes each request another one, so that none is answered from the cache.
  return (turn) => `${(mix[turn % mix.length] ?? account)()}&turn=${turn}-${random()}`;
}

async function logIn(
  anonymous: Client,
  { username, password }: { readonly username: string; readonly password: string },
  clientOf: (headers: Readonly<Record<string, string>>) => Client,
): Promise<Client> {
  const { body } = await anonymous.post('/api/users/auth/login/', { username, password });
  return clientOf({ authorization: `Bearer ${session.parse(JSON.parse(body)).token}` });
}

async function makeKey(user: Client, name: string): Promise<string> {
  const { body } = await user.post('/api/users/auth/create-api-key/', { name });
  return created.parse(JSON.parse(body)).key;
}

/** One transfer of each of many tokens to one account. */
function hoard(): Pick<Synthetic, 'block'> {
  let made = 0;
  return {
    block: (height, seq) =>
      madeBlock(
        height,
        seq,
        Array.from({ length: PER_BLOCK }, (_, position) => {
          made += 1;
          return {
            token: toFelt(0x70_0000_0000n + BigInt(made)),
            kind: 'erc20' as const,
            from: SEQUENCER,
            to: HOARDER,
            amount: BigInt(made),
            tokenId: null,
            position,
            item: 0,
            txIndex: position,
            eventInTx: 0,
            txHash: hashOf(`hoarded ${made}`),
            isFee: false,
            executionStatus: 'SUCCEEDED' as const,
            fee: 1n,
            feeToken: STRK_TOKEN,
          };
        }),
      ),
  };
}
