import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { readDemoFile, readRunFile, recordRun } from '../../../../infra/embedded/run-file.ts';

let dataDir: string;
beforeEach(() => (dataDir = mkdtempSync(join(tmpdir(), 'tds-run-file-'))));
afterEach(() => rmSync(dataDir, { recursive: true }));
const run = { env: {}, baseUrl: 'http://127.0.0.1:8080', processes: [], log: { warn: vi.fn<() => void>() } };

test('the run file has the settings of a start that commands need, and no others', () => {
  const shared = {
    CLICKHOUSE_URL: 'http://clickhouse:8123',
    CLICKHOUSE_CLUSTER: 'main',
    CLICKHOUSE_INSERT_QUORUM: '2',
    STALL_SECONDS: '30',
    RPC_TIMEOUT_MS: '2000',
    PRICE_JUMP_FACTOR: '3',
    COMMAND_TIMEOUT_MS: '1000',
    SECRET_KEYS_PREVIOUS: 'ab'.repeat(32),
  };
  const own = {
    DATA_DIR: dataDir,
    PORT: '8080',
    HOST: '0.0.0.0',
    METRICS_PORT: '9100',
    METRICS_HOST: '0.0.0.0',
    LOG_LEVEL: 'debug',
    ADMIN_USERNAME: 'root',
    ADMIN_PASSWORD: 'a password',
  };
  const env = { ...shared, ...own, PATH: '/bin' };
  recordRun({ ...run, dataDir, env });
  expect(readRunFile(dataDir)?.env).toEqual(shared);
});

test('a run file that cannot be written is a warning', () => {
  recordRun({ ...run, dataDir: join(dataDir, 'missing') });
  expect(run.log.warn).toHaveBeenCalledWith(expect.anything(), 'could not write run.json');
});

test.each(['', '{"pid": 1', '{}', '[]'])('a file with the content %j counts as missing', (content) => {
  for (const name of ['run.json', 'demo.json']) writeFileSync(join(dataDir, name), content);
  expect(readRunFile(dataDir)).toBeNull();
  expect(readDemoFile(dataDir)).toBeNull();
});
