import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { takePorts } from '../../../../infra/embedded/ports.ts';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tds-ports-'))));
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true });
});

test('ports that are taken side by side are all stored', async () => {
  const [stores, simulated] = await Promise.all([
    takePorts(folder, ['kafka', 'redis']),
    takePorts(folder, ['starknet']),
  ]);
  expect(JSON.parse(readFileSync(join(folder, 'ports.json'), 'utf8'))).toEqual({ ...stores, ...simulated });
});

test('a name gets no port of another name, even while nothing listens there', async () => {
  writeFileSync(join(folder, 'ports.json'), JSON.stringify({ kafka: 26_000 }));
  // The first port that is tried is 26,000.
  vi.spyOn(Math, 'random').mockReturnValueOnce(0.5);
  const { redis } = await takePorts(folder, ['redis']);
  expect(redis).not.toBe(26_000);
});
