import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { lockDataDir } from '../../../../infra/embedded/data-dir.ts';
import { startEmbedded, startFailure } from '../../../../infra/embedded/index.ts';
import { createLogger } from '../../../../infra/log.ts';

const env = {
  KAFKA_BROKERS: 'none:1',
  CLICKHOUSE_URL: 'http://none',
  API_CLICKHOUSE_URL: 'http://none',
  DATABASE_URL: 'postgres://none',
  REDIS_URL: 'redis://none',
};
let dataDir: string;
beforeEach(() => (dataDir = mkdtempSync(join(tmpdir(), 'tds-lock-'))));
afterEach(() => rmSync(dataDir, { recursive: true }));

test('other servers of a folder start only once it is locked', async () => {
  const onLocked = vi.fn<() => void>();
  const start = () => startEmbedded({ dataDir, log: createLogger('test', 'silent'), env, onLocked });
  const unlock = await lockDataDir(dataDir);
  await expect(start()).rejects.toMatchObject({ code: 'CONFLICT' });
  expect(onLocked).not.toHaveBeenCalled();
  unlock();
  const embedded = await start();
  expect(onLocked).toHaveBeenCalledOnce();
  await embedded.stop();
});

test('the error of a start names each server that did not start', async () => {
  const settled = await Promise.allSettled([
    Promise.reject(new Error('Kafka did not start')),
    Promise.resolve(),
    Promise.reject(new Error('the price feed did not start')),
  ]);
  expect(startFailure(settled)?.message).toBe('Kafka did not start\nthe price feed did not start');
  expect(startFailure(settled.slice(1, 2))).toBeNull();
});
