import { spawnSync } from 'node:child_process';

import { expect, test } from 'vitest';

test('reference pages match the declarations they are generated from', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['docs/generate.mjs', '--check'], {
    encoding: 'utf8',
  });
  expect(stdout + stderr).toBe('');
  expect(status).toBe(0);
});
