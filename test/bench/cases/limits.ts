import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { z } from 'zod';

import { createApp } from '../../../api/http/app.ts';
import { createLimits } from '../../../api/limits/limits.ts';
import { defineRoute } from '../../../api/http/route.ts';
import type { Route } from '../../../api/http/route.ts';
import { loadConfig, required } from '../../../infra/config.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import { openCounters } from '../../../infra/redis/client.ts';
import { keyByHash } from '../../../projections/accounts/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { wanted } from '../case.ts';
import type { BenchCase, Figure } from '../case.ts';
import type { Client } from '../client.ts';
import { latency, percentile, timed } from '../measure.ts';

const CALLS = 2000;
const WARM_UP = 300;
/** Each deletion causes a failed key check; ten would block this machine's address. */
const DELETIONS = 9;
const CALLERS = 16;

/** Answered 400 after the key check. */
const WITH_KEY = '/api/transfers/';

/** Two routes with empty handlers, which differ only in authentication. */
const OPEN = '/api/open/';
const KEYED = '/api/keyed/';

const session = z.object({ token: z.string() });
const created = z.object({ id: z.number(), key: z.string() });
const runFile = z.object({ env: z.record(z.string(), z.string()) });

export const limits: BenchCase = {
  name: 'limits',
  summary: 'cost of the key check per call, and time until another API process rejects a deleted key',
  async run(world, { samples }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { service, dataDir } = await world.service('limits', {
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
      LOG_LEVEL: 'warn',
    });
    const { username, password } = service.demo;
    const anonymous = world.client(service.baseUrl);
    const login = await anonymous.post('/api/users/auth/login/', { username, password });
    const { token } = session.parse(JSON.parse(login.body));
    const user = world.client(service.baseUrl, { authorization: `Bearer ${token}` });
    const make = async (ceiling: number | null): Promise<z.infer<typeof created>> => {
      const body = { name: 'measured', rate_limit_per_hour: ceiling };
      const answer = await user.post('/api/users/auth/create-api-key/', body);
      if (answer.status !== 201) throw new Error(`${answer.status} ${answer.body}`);
      return created.parse(JSON.parse(answer.body));
    };
    const count = samples ?? CALLS;

    const stand = await startStand(dataDir);
    const asking = async (path: string, ceiling: number | null): Promise<() => Promise<void>> => {
      const client = world.client(stand.url, { 'api-key': (await make(ceiling)).key });
      return async () => await ask(client, path, 200);
    };
    const kinds: { name: string; ask: () => Promise<void>; samples: number[] }[] = [
      { name: 'without a check', ask: await asking(OPEN, null), samples: [] },
      { name: 'key', ask: await asking(KEYED, null), samples: [] },
      { name: 'key with a ceiling', ask: await asking(KEYED, 1_000_000_000), samples: [] },
    ];
    for (const kind of kinds) await timed(WARM_UP, 1, kind.ask);
    // Alternating, so that other load on the machine affects all kinds alike.
    for (let round = 0; round < count; round += 1) {
      for (const kind of kinds) kind.samples.push(...(await timed(1, 1, kind.ask)).samples);
    }
    const together: Figure[] = [];
    for (const kind of kinds) {
      const { seconds } = await timed(count, CALLERS, kind.ask);
      together.push({ name: `${kind.name}, ${CALLERS} callers`, value: count / seconds, unit: '1/s' });
    }
    await stand.close();
    const [bare = []] = kinds.map((kind) => kind.samples);
    const over = (name: string, theirs: readonly number[]): Figure[] => [
      {
        name: `${name}: over a call without a check p50`,
        value: percentile(theirs, 0.5) - percentile(bare, 0.5),
        unit: 'ms',
        want: wanted.keyMedian,
      },
      {
        name: `${name}: over a call without a check p99`,
        value: percentile(theirs, 0.99) - percentile(bare, 0.99),
        unit: 'ms',
        want: wanted.keyTail,
      },
    ];

    const other = await startAnotherApi(dataDir);
    const refusedAfter: number[] = [];
    let refusals = 0;
    try {
      for (let i = 0; i < DELETIONS; i += 1) {
        const { id, key } = await make(null);
        const holder = world.client(other.url, { 'api-key': key });
        await ask(holder, WITH_KEY, 400);
        const began = performance.now();
        const deleted = await user.post('/api/users/auth/api-keys/delete/', { key_id: id });
        if (deleted.status !== 200) throw new Error(`${deleted.status} ${deleted.body}`);
        while ((await holder.get(WITH_KEY)).status !== 401) await sleep(1);
        refusedAfter.push(performance.now() - began);
        refusals += 1;
      }
    } finally {
      await other.stop();
    }

    return {
      figures: [
        ...kinds.flatMap((kind) => latency(kind.name, kind.samples)),
        ...kinds.slice(1).flatMap((kind) => over(kind.name, kind.samples)),
        ...together,
        {
          name: 'deleted key refused by another process, longest',
          value: Math.max(...refusedAfter),
          unit: 'ms',
          want: wanted.keyDeletion,
        },
      ],
      completeness: [{ what: 'deleted keys refused', expected: DELETIONS, found: refusals }],
      notes: [
        "The calls go, in turn, to two routes that do nothing, behind the API's own middleware in the process that measures.",
        'A deletion is measured from its request to the first 401 of another API process.',
      ],
    };
  },
};

async function ask(client: Client, path: string, status: number): Promise<void> {
  const answer = await client.get(path);
  if (answer.status !== status) throw new Error(`${path}: ${answer.status} ${answer.body.slice(0, 300)}`);
}

/** Two routes behind the API's middleware, on the stores of a running service. */
async function startStand(dataDir: string): Promise<{ url: string; close(): Promise<void> }> {
  const config = loadConfig(environmentOf(dataDir));
  const log = createLogger('bench', 'error');
  const metrics = createMetrics('bench');
  const pool = createPool(required(config, 'apiDatabaseUrl'), { applicationName: 'bench-api', max: 12 });
  const counters = openCounters(required(config, 'redisUrl'), {
    keyPrefix: 'bench:',
    timeoutMs: config.redisTimeoutMs,
    log,
  });
  await counters.settled(5000);
  const route = (path: `/${string}/`, auth: 'none' | 'key'): Route =>
    defineRoute({
      id: 'route1',
      method: 'GET',
      path,
      summary: 'nothing',
      tag: 'bench',
      auth,
      response: { 200: z.object({}) },
      handler: async () => ({ status: 200, body: {} }),
    });
  const app = createApp({
    routes: [route(OPEN, 'none'), route(KEYED, 'key')],
    pool,
    findKey: async (schema, keyHash) => await keyByHash(pool, schema, keyHash),
    limits: createLimits({ counters, ipBlockWindowMs: 300_000, metrics, now: Date.now }),
    defaultCeiling: null,
    usage: { count: () => {} },
    now: Date.now,
    log,
    metrics,
    servedBuilds: () => servedBuilds(pool),
    indexedHeight: () => 1,
    reachesHeight: async () => true,
    poolFor: () => pool,
    clickhouseFor: () => {
      throw new Error('no reads here');
    },
    trustedProxies: [],
    readiness: async () => ({ ok: true, body: {} }),
  });
  const handle = app.callback();
  const server = createServer((request, response) => void handle(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no TCP address');
  return {
    url: `http://127.0.0.1:${address.port}`,
    async close() {
      server.closeAllConnections();
      server.close();
      counters.close();
      await pool.end();
    },
  };
}

function environmentOf(dataDir: string): Record<string, string> {
  return runFile.parse(JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8'))).env;
}

/** A second `tds api` process next to a running service. */
async function startAnotherApi(dataDir: string): Promise<{ url: string; stop(): Promise<void> }> {
  const port = String(await freePort());
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL('../../../infra/bin/tds.ts', import.meta.url)), 'api'],
    {
      env: {
        PATH: process.env['PATH'] ?? '',
        ...environmentOf(dataDir),
        DATA_DIR: dataDir,
        PORT: port,
        METRICS_PORT: '0',
        LOG_LEVEL: 'warn',
      },
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  const ended = once(child, 'exit');
  const url = `http://127.0.0.1:${port}`;
  for (;;) {
    if (child.exitCode !== null) throw new Error('the other API ended');
    const isUp = await fetch(`${url}/healthz`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isUp) break;
    await sleep(100);
  }
  return {
    url,
    async stop() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}
