import { afterAll, beforeAll, expect, test } from 'vitest';

import { addUser } from '../../../infra/bin/operator/accounts.ts';
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
    await eventually(async () => expect((await world.call('GET', '/readyz')).status).toBe(200), 60_000);
  } finally {
    await role.stop();
  }
  expect((await world.call('GET', '/readyz')).json).not.toHaveProperty('admin_user');
  await world.startProjector();
  expect((await login()).status).toBe(200);
});
