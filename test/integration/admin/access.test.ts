import { afterAll, beforeAll, expect, test } from 'vitest';

import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { operationsOf } from '../../support/parameters.ts';

/** Who may call the routes of admins: read from the document, so that no route can be forgotten. */

let world: AdminWorld;

beforeAll(async () => {
  world = await adminWorld();
});
afterAll(() => world?.close());

const MINIMUM = 13;

test('every route under /api/admin/ answers 401 without a session and 403 to a user who is no admin', async () => {
  const { json: document } = await world.api.call('GET', '/api/openapi.json');
  const operations = operationsOf(document).filter(({ path }) => path.startsWith('/api/admin/'));
  expect(operations.length).toBeGreaterThanOrEqual(MINIMUM);
  const made = await world.api.call('POST', '/api/users/auth/create-api-key/', {
    token: world.admin,
    json: { name: 'k' },
  });
  for (const { method, path } of operations) {
    const url = path.replaceAll(/\{\w+\}/g, 'x');
    const name = `${method} ${path}`;
    const operation = document.paths[path][method.toLowerCase()];
    expect(operation.security, name).toEqual([{ Bearer: [] }]);
    expect(Object.keys(operation.responses), name).toEqual(expect.arrayContaining(['401', '403']));
    const answers = await Promise.all([
      world.api.call(method, url),
      world.api.call(method, url, { headers: { 'api-key': made.json.key } }),
      world.api.call(method, url, { token: 'wrong' }),
      // A browser sends cookies by itself, so they must not count.
      world.api.call(method, url, { headers: { cookie: `session=${world.admin}; token=${world.admin}` } }),
      world.api.call(method, url, { token: world.stranger }),
    ]);
    expect(
      answers.map(({ status }) => status),
      name,
    ).toEqual([401, 401, 401, 401, 403]);
    expect(answers[4]?.json, name).toMatchObject({
      code: 'permission_denied',
      detail: 'You do not have permission to perform this action.',
    });
  }
});

test('no other route lets a session in by being an admin', async () => {
  const { json: document } = await world.api.call('GET', '/api/openapi.json');
  const described = operationsOf(document).filter(({ path, method }) =>
    document.paths[path][method.toLowerCase()].description?.startsWith('For admins only'),
  );
  expect(described.filter(({ path }) => !path.startsWith('/api/admin/'))).toEqual([]);
});
