import { afterAll, beforeAll, expect, it } from 'vitest';

import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';

let world: ApiWorld;
beforeAll(async () => {
  world = await apiWorld({ COMMAND_TIMEOUT_MS: '8000' });
});
afterAll(async () => {
  await world.close();
});

it('a request in flight is answered during shutdown, and no further one is accepted', async () => {
  const { token } = await world.makeUser('alice');
  await world.stopProjector();
  const create = (name: string) =>
    world.call('POST', '/api/users/auth/create-api-key/', { token, json: { name } });
  const inFlight = create('in flight');
  await new Promise((resolve) => setTimeout(resolve, 300));
  const began = performance.now();
  const closing = world.closeApi();
  await new Promise((resolve) => setTimeout(resolve, 200));
  await expect(create('too late')).rejects.toThrow();
  await world.startProjector();
  expect((await inFlight).status).toBe(201);
  await closing;
  // Idle connections are not waited for.
  expect(performance.now() - began).toBeLessThan(9000);
});
