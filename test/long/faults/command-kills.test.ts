import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import PQueue from 'p-queue';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';

/** Kills API and projector during writes: acknowledged commands are applied, and none twice. */

const COMMANDS = 500;
const AT_ONCE = 100;
/** Number of acknowledged commands before each kill. */
const KILLS = [60, 200];

const session = z.object({ token: z.string() });
const key = z.object({ id: z.number(), name: z.string() });
const ready = z.object({ projections: z.array(z.object({ projection: z.string(), lag: z.number() })) });

let own: Isolated;
let service: RunningService;
const dataDir = mkdtempSync(join(tmpdir(), 'tds-commands-'));
chmodSync(dataDir, 0o755);

beforeAll(async () => {
  own = await isolated();
  service = await startService(dataDir, { ...own.env, PORT: String(await freePort()) });
});
afterAll(async () => {
  await service.stop();
  await own.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

async function call(method: string, path: string, token: string | null, body?: unknown): Promise<Response> {
  return await fetch(service.baseUrl + path, {
    method,
    headers: {
      'content-type': 'application/json',
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(15_000),
  });
}

test('acknowledged commands are applied once, others at most once', async () => {
  const { username, password } = service.demo;
  const login = await call('POST', '/api/users/auth/login/', null, { username, password });
  const { token } = session.parse(await login.json());

  const acknowledged = new Map<string, number>();
  const kills = [...KILLS];
  const queue = new PQueue({ concurrency: AT_ONCE });
  const create = async (name: string): Promise<void> => {
    const answer = await call('POST', '/api/users/auth/create-api-key/', token, { name });
    if (answer.status !== 201) return;
    acknowledged.set(name, key.parse(await answer.json()).id);
    if (acknowledged.size < (kills[0] ?? Infinity)) return;
    kills.shift();
    const { api = 0, project = 0 } = service.pids();
    for (const pid of [api, project]) process.kill(pid, 'SIGKILL');
  };
  const send = async (name: string): Promise<void> => {
    try {
      await create(name);
    } catch {
      // The outcome is unknown; go on with other commands after a pause.
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  };
  await queue.addAll(Array.from({ length: COMMANDS }, (_, i) => () => send(`key ${i}`)));
  // Commands after the last kill show that the service recovered.
  for (let i = COMMANDS; kills.length > 0 || acknowledged.size < 300; i += 1) await send(`key ${i}`);

  const found = await eventually(async () => {
    const { json } = await service.get('/readyz');
    const lags = ready.parse(json).projections.filter(({ projection }) => projection === 'accounts');
    expect(lags).toEqual([expect.objectContaining({ lag: 0 })]);
    const listed = await call('GET', '/api/users/auth/api-keys/', token);
    expect(listed.status).toBe(200);
    return z.array(key).parse(await listed.json());
  });
  const byName = Map.groupBy(found, ({ name }) => name);
  expect([...byName.values()].filter(({ length }) => length > 1)).toEqual([]);
  const there = [...acknowledged].map(([name]) => [name, byName.get(name)?.[0]?.id]);
  expect(there).toEqual([...acknowledged]);
  expect(kills).toEqual([]);
});
