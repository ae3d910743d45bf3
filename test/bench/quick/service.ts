import { sleep } from '../../../infra/lifecycle.ts';
import type { RunningService } from '../../support/service.ts';
import { totals } from '../cases/start.ts';
import type { ChainProcess } from '../chain.ts';
import type { Client } from '../client.ts';
import type { Completeness } from '../case.ts';
import { chainCompleteness } from '../completeness.ts';
import { untilMerged } from '../fill.ts';
import { median, timed } from '../measure.ts';
import { cpuOfTree, watchProcesses } from '../processes.ts';
import type { Stores } from '../stores.ts';
import type { World } from '../world.ts';
import { cpuOf } from './reference.ts';

/** The service starts with these blocks, so that its start is not part of what is measured. */
const FIRST_HEAD = 3;
const SETTLE_MS = 3000;
const LOOK_MS = 200;
const GIVEN_UP_MS = 180_000;

const ROUNDS = 5;
const PAGES = 150;
const CONNECTIONS = 4;
/** A fixed query of some 0.3 s on one thread: hash and sort. */
const ENGINE_REFERENCE = `SELECT max(h) AS n FROM (
  SELECT sipHash64(number) AS h FROM numbers(2000000) ORDER BY h LIMIT 1000000) SETTINGS max_threads = 1`;

/** CPU of a work relative to the reference of its kind, by part. */
export type Ratios = Record<string, number>;

/** Indexes a chain with a new service and reads pages from it. */
export async function measureService(
  world: World,
  name: string,
  {
    chain,
    settings,
    reference,
  }: { chain: ChainProcess; settings: Record<string, string>; reference: () => void },
): Promise<{ ratios: Ratios; completeness: Completeness[] }> {
  const truth = await chain.truth();
  await chain.serveUpTo(FIRST_HEAD);
  const { service, dataDir } = await world.service(name, settings);
  const stores = await world.stores(dataDir);
  const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
  const { transfers: first } = await chain.truth({ from: 0, to: FIRST_HEAD });
  await until(service, first);
  await sleep(SETTLE_MS);

  world.say(`indexing ${truth.transfers - first} transfers`);
  const references: number[] = [];
  const before = cpuOfTree(service.pid);
  await chain.serveUpTo(null);
  await until(service, truth.transfers, async () => void references.push(await cpuOf(reference)));
  const cpuMs = 1000 * (cpuOfTree(service.pid) - before);
  const indexing = (1000 * cpuMs) / (truth.transfers - first) / median(references);

  await untilMerged(stores);
  world.say('reading pages');
  const subjects = {
    token: Object.keys(truth.byToken),
    account: Object.keys(truth.byAccount),
  };
  const pages = await readPages(service, { client, stores, subjects, reference });
  const completeness = await chainCompleteness(stores, truth);
  await service.stop();
  return { ratios: { 'indexing, all processes of the service': indexing, ...pages }, completeness };
}

/** Waits for the totals of the API, with some work before each look. */
async function until(
  service: RunningService,
  transfers: number,
  meanwhile: () => Promise<void> = async () => {},
): Promise<void> {
  const began = performance.now();
  for (;;) {
    await meanwhile();
    const shown = await totals(service);
    if (shown === transfers) return;
    if (performance.now() - began > GIVEN_UP_MS)
      throw new Error(`${shown} of ${transfers} transfers are shown`);
    await sleep(LOOK_MS);
  }
}

async function readPages(
  service: RunningService,
  {
    client,
    stores,
    subjects,
    reference,
  }: {
    client: Client;
    stores: Stores;
    subjects: Record<'token' | 'account', readonly string[]>;
    reference: () => void;
  },
): Promise<Ratios> {
  const { api = 0, clickhouse = 0 } = service.pids();
  let question = 0;
  const read = async (index: number): Promise<void> => {
    const kind = index % 2 === 0 ? 'token' : 'account';
    const of = subjects[kind];
    // An unknown parameter gives another cache key, so that no answer is cached.
    const path = `/api/transfers/?limit=50&${kind}=${of[(7 * index) % of.length]}&question=${(question += 1)}`;
    const { status, body } = await client.get(path);
    if (status !== 200) throw new Error(`${path}: ${status} ${body}`);
  };
  const cpu = async (work: () => Promise<unknown>): Promise<Record<string, number>> => {
    const watched = watchProcesses({ api, clickhouse });
    await work();
    return Object.fromEntries(watched.end().map(({ name, cpuSeconds }) => [name, 1000 * cpuSeconds]));
  };
  const rounds: { api: number; clickhouse: number }[] = [];
  await timed(PAGES, CONNECTIONS, read);
  for (let round = 0; round < ROUNDS; round += 1) {
    const script = await cpuOf(reference);
    const engine = await cpu(() => stores.number(ENGINE_REFERENCE));
    const used = await cpu(() => timed(PAGES, CONNECTIONS, read));
    rounds.push({
      api: (used['api'] ?? Number.NaN) / PAGES / script,
      clickhouse: (used['clickhouse'] ?? Number.NaN) / PAGES / (engine['clickhouse'] ?? Number.NaN),
    });
  }
  return {
    'a page, the api': median(rounds.map((round) => round.api)),
    'a page, ClickHouse': median(rounds.map((round) => round.clickhouse)),
  };
}
