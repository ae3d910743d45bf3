import { execFile } from 'node:child_process';

import { expect, test } from 'vitest';

/*
 * CPU times of the most important parts, relative to reference work in the same run. If this fails after a change that is
 * meant to cost more: `npm run bench -- --quick --record`.
 */
test('no part of the service takes far more CPU than recorded', async () => {
  const { code, output } = await new Promise<{ code: number; output: string }>((resolve) => {
    const child = execFile(
      process.execPath,
      ['test/bench/main.ts', '--quick'],
      { maxBuffer: 16_000_000 },
      (_, stdout, stderr) => resolve({ code: child.exitCode ?? -1, output: `${stdout}\n${stderr}` }),
    );
  });
  expect(code, output).toBe(0);
});
