import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test, vi } from 'vitest';

import { startService } from '../../../../infra/embedded/service.ts';

vi.mock('../../../../infra/embedded/processes.ts', async (original) => ({
  ...(await original<object>()),
  writeMarks() {
    throw new Error('ENOSPC: no space left on device');
  },
}));

test('a server whose process ids cannot be stored runs until it is stopped', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tds-service-'));
  const warnings: unknown[] = [];
  const log = {
    debug() {},
    info() {},
    error() {},
    warn: (...args: unknown[]) => void warnings.push(args[1]),
  };
  const service = await startService({
    name: 'sleeper',
    url: 'store://here',
    program: {
      command: process.execPath,
      args: ['-e', 'setInterval(() => {}, 1000)'],
      stopSignal: 'SIGTERM',
      graceMs: 5000,
    },
    watch: 'guard',
    pidFile: join(folder, 'sleeper.pids'),
    probe: async () => void (await vi.waitUntil(() => warnings.length === 2, { timeout: 10_000 })),
    readyMs: 20_000,
    log,
  });
  expect(warnings).toEqual(['could not write process ids', 'could not write process ids']);
  await service.stop();
  await expect(service.exited).resolves.toMatchObject({ code: expect.any(Number) });
  rmSync(folder, { recursive: true });
});
