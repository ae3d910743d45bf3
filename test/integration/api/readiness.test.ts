import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { addUser, setPassword } from '../../../infra/bin/operator/accounts.ts';
import { startCreatingAdmin } from '../../../infra/bin/operator/create-admin.ts';
import { loadConfig } from '../../../infra/config.ts';
import { Releasers } from '../../../infra/lifecycle.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { eventually } from '../../support/service.ts';
import { startRole } from '../../support/faults/role.ts';

const admin = { username: 'root', password: 'correct horse battery' };

let world: ApiWorld;
beforeAll(async () => {
  world = await apiWorld({ ADMIN_USERNAME: admin.username, ADMIN_PASSWORD: admin.password });
});
afterAll(() => world.close());

const login = () => world.call('POST', '/api/users/auth/login/', { json: admin });

test('/readyz is 503 until the configured admin exists, then a log-in succeeds', async () => {
  const early = await world.call('GET', '/readyz');
  expect(early.status).toBe(503);
  expect(early.json).toMatchObject({ status: 'not ready', read_models: 'ok', admin_user: 'not created yet' });

  await addUser(
    { commands: world.commands, pool: world.apiPool, servedBuilds: () => servedBuilds(world.apiPool) },
    { username: 'somebody', password: 'another password' },
  );
  expect((await world.call('GET', '/readyz')).status).toBe(503);

  // In production the role that decides commands creates the admin.
  await world.stopProjector();
  const role = await startRole(
    'project',
    { ...world.env, PORT: '', STARKNET_RPC_URL: 'http://127.0.0.1:9' },
    ['accounts'],
  );
  try {
    await eventually(async () => expect((await world.call('GET', '/readyz')).status).toBe(200));
  } finally {
    await role.stop();
  }
  expect((await world.call('GET', '/readyz')).json).not.toHaveProperty('admin_user');
  await world.startProjector();
  expect((await login()).status).toBe(200);
});

test('a start leaves the password of an existing admin, and names a user who is no admin', async () => {
  const deps = {
    commands: world.commands,
    pool: world.apiPool,
    servedBuilds: () => servedBuilds(world.apiPool),
  };
  await setPassword(deps, admin.username, 'set by an operator');
  const linesOf = async (username: string, awaited: string): Promise<void> => {
    const lines: string[] = [];
    const log = createLogger('test', 'info', { write: (line) => void lines.push(line) });
    const env = { ...world.env, ADMIN_USERNAME: username };
    const failed = vi.fn<(error: unknown) => void>();
    startCreatingAdmin({
      config: loadConfig(env),
      log,
      metrics: createMetrics('test'),
      releasers: new Releasers(() => {}),
      signal: new AbortController().signal,
      fail: failed,
    });
    await eventually(async () => expect(lines.join('')).toContain(awaited));
    expect(failed).not.toHaveBeenCalled();
  };
  await linesOf(admin.username, 'admin user exists');
  expect((await login()).status).toBe(401);
  await linesOf('somebody', 'ADMIN_USERNAME names a user who is not an admin');
});
