import { spawnSync } from 'node:child_process';

import { expect, it } from 'vitest';

it('the client is generated from the routes as they are', () => {
  const { status, stderr } = spawnSync(process.execPath, ['client/generate.mjs', '--check'], {
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
});
