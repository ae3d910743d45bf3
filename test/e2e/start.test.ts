import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../infra/embedded/ports.ts';
import { eventually, startService } from '../support/service.ts';
import type { RunningService } from '../support/service.ts';

const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const page = z.object({
  count: z.number(),
  results: z.array(z.object({ timestamp: z.string(), block: z.number() })),
});
const totals = z.object({ totals: z.object({ transfers: z.number(), latest_block_overall: z.number() }) });

/** Processes that name this folder in their arguments. */
function processesOf(folder: string): string[] {
  return execFileSync('ps', ['-eo', 'pid,args'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(folder));
}

describe('one command, everything embedded', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tds-start-'));
  chmodSync(folder, 0o755);
  const first = join(folder, 'first');
  const second = join(folder, 'second');
  const running: RunningService[] = [];

  afterAll(async () => {
    await Promise.all(running.map((service) => service.stop()));
    rmSync(folder, { recursive: true, force: true });
  });

  const freshest = async (
    service: RunningService,
  ): Promise<{ age: number; count: number; block: number }> => {
    const { results, count } = page.parse((await service.get(`/api/transfers/?token=${STRK}&limit=1`)).json);
    const [row] = results;
    expect(row).toBeDefined();
    return { age: Date.now() - Date.parse(row!.timestamp), count, block: row!.block };
  };

  test('two starts live side by side and answer with fresh transfers; a stop leaves no process; a start resumes', async () => {
    const port = String(await freePort());
    const a = await startService(first, { PORT: port });
    running.push(a);
    const b = await startService(second, { PORT: String(await freePort()) });
    running.push(b);

    // Fresh: within some blocks of the head, and moving.
    for (const service of [a, b]) {
      await eventually(async () => expect((await freshest(service)).age).toBeLessThan(15_000), 60_000);
    }
    const before = totals.parse((await a.get('/api/indexer/progress/')).json).totals;
    await eventually(async () => {
      const now = totals.parse((await a.get('/api/indexer/progress/')).json).totals;
      expect(now.latest_block_overall).toBeGreaterThan(before.latest_block_overall);
    });

    // The printed password logs in, and the kept files are for the owner alone.
    const login = await fetch(`${a.baseUrl}/api/users/auth/login/`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ username: a.demo.username, password: a.demo.password }),
    });
    expect(login.status).toBe(200);
    expect(a.printed()).toContain(a.demo.api_key);
    for (const name of ['demo.json', 'run.json', 'secret.key', 'kafka', 'clickhouse', 'logs']) {
      expect(statSync(join(first, name)).mode & 0o077, name).toBe(0);
    }

    // A second start in the same folder is refused, and harms nothing.
    await expect(startService(first, { PORT: String(await freePort()) })).rejects.toThrow(
      /in use|runs|already/i,
    );
    expect((await a.get('/readyz')).status).toBe(200);

    const pids = [...Object.values(a.pids()), a.pid];
    const stopped = totals.parse((await a.get('/api/indexer/progress/')).json).totals;
    expect(await a.stop('SIGINT')).toBeLessThan(10_000);
    expect(a.printed()).toMatch(/\nStopping…\n$/);
    running.splice(running.indexOf(a), 1);
    expect(processesOf(first)).toEqual([]);
    for (const pid of pids) expect(() => process.kill(pid, 0), String(pid)).toThrow();
    expect((await b.get('/readyz')).status).toBe(200);

    const again = await startService(first, { PORT: port });
    running.push(again);
    expect(again.demo).toEqual(a.demo);
    const resumed = totals.parse((await again.get('/api/indexer/progress/')).json).totals;
    expect(resumed.transfers).toBeGreaterThanOrEqual(stopped.transfers);
    await eventually(async () => expect((await freshest(again)).age).toBeLessThan(15_000), 60_000);
  }, 300_000);
});
