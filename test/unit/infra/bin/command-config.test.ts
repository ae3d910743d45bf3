import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, expect, test } from 'vitest';

import { commandConfig } from '../../../../infra/bin/command-config.ts';
import { recordRun } from '../../../../infra/bin/start/run-file.ts';
import { lockDataDir } from '../../../../infra/embedded/data-dir.ts';
import { createLogger } from '../../../../infra/log.ts';

let dataDir: string;
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'tds-command-config-'));
  const env = { DATABASE_URL: 'postgres://embedded' };
  recordRun({ dataDir, env, baseUrl: 'http://none', processes: [], log: createLogger('test', 'silent') });
});
afterEach(() => rmSync(dataDir, { recursive: true }));

test('a command takes unset settings from the start that has locked the data folder', async () => {
  const unlock = await lockDataDir(dataDir);
  expect(commandConfig({ DATA_DIR: dataDir }).databaseUrl).toBe('postgres://embedded');
  unlock();
});

test('a command does not take another process with the same id for the start', () => {
  writeFileSync(join(dataDir, 'lock'), `${process.pid} 1\n`);
  expect(() => commandConfig({ DATA_DIR: dataDir })).toThrow(
    `Nothing runs in ${dataDir} (the last one, pid ${process.pid}, has exited)`,
  );
});
