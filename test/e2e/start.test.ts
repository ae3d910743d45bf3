import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';

import { afterAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { serveOnLoopback } from '../../infra/embedded/loopback.ts';
import { freePort } from '../../infra/embedded/ports.ts';
import { begin, outcomeOf } from '../support/export-client.ts';
import { eventually, startService } from '../support/service.ts';
import type { RunningService } from '../support/service.ts';

const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const page = z.object({
  count: z.number(),
  results: z.array(z.object({ timestamp: z.string(), block: z.number() })),
});
const totals = z.object({ totals: z.object({ transfers: z.number(), latest_block_overall: z.number() }) });

const listed = z.object({
  results: z.array(z.object({ id: z.number(), name: z.string(), updated_at: z.string() })),
});
const starter = z
  .object({ dapps: z.array(z.object({ name: z.string() })), class_hashes: z.array(z.unknown()) })
  .parse(JSON.parse(readFileSync(new URL('../../infra/catalogue/starter.json', import.meta.url), 'utf8')));

/** Processes that name this folder in their arguments. */
function processesOf(folder: string): string[] {
  return execFileSync('ps', ['-eo', 'pid,args'], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.includes(folder));
}

/** The client sees a broken transfer, never a short file, and the next export is whole. */
async function killClickHouseDuringExport(service: RunningService): Promise<void> {
  const headers = { 'api-key': service.demo.api_key };
  const url = `${service.baseUrl}/api/export/transfers.ndjson?from_block=0&to_block=4000000000`;
  for (;;) {
    const answer = await begin(url, headers);
    expect(answer.statusCode).toBe(200);
    process.kill(service.pids()['clickhouse'] ?? 0, 'SIGKILL');
    const outcome = await outcomeOf(answer);
    const record = await service.get(`/api/export/${String(answer.headers['x-export-id'])}.json`);
    await eventually(async () => {
      const again = await begin(url, headers);
      expect([again.statusCode, await outcomeOf(again)]).toEqual([200, 'whole']);
    });
    // ClickHouse had sent every row before it was killed.
    if (outcome === 'whole') continue;
    expect(outcome).toBe('Error: aborted');
    expect(record.json).toMatchObject({ complete: false, rows: null, sha256: null });
    return;
  }
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

  test('two starts run side by side and serve new transfers; a stop leaves no process; the next start resumes', async () => {
    const port = String(await freePort());
    const a = await startService(first, { PORT: port });
    running.push(a);
    const b = await startService(second, { PORT: String(await freePort()) });
    running.push(b);

    // Fresh: within some blocks of the head, and moving.
    for (const service of [a, b]) {
      await eventually(async () => expect((await freshest(service)).age).toBeLessThan(15_000));
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
    // Webhooks may reach this machine, and nothing of what was started on it.
    const { token } = z.object({ token: z.string() }).parse(await login.json());
    const ports: number[] = Object.values(JSON.parse(readFileSync(join(first, 'ports.json'), 'utf8')));
    expect(ports.length).toBeGreaterThan(12);
    for (const own of [...ports, Number(port)]) {
      const made = await fetch(`${a.baseUrl}/api/webhooks/`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
        body: JSON.stringify({ name: 'own', url: `http://127.0.0.1:${own}/`, events: ['transfer.created'] }),
      });
      expect([own, made.status]).toEqual([own, 400]);
    }
    expect(a.printed()).toContain(a.demo.api_key);
    for (const name of ['demo.json', 'run.json', 'secret.key', 'kafka', 'clickhouse', 'logs']) {
      expect(statSync(join(first, name)).mode & 0o077, name).toBe(0);
    }

    // A second start in the same folder is refused, and harms nothing.
    await expect(startService(first, { PORT: String(await freePort()) })).rejects.toThrow(
      /in use|runs|already/i,
    );
    expect((await a.get('/readyz')).status).toBe(200);

    // The directory begins with what is kept for it.
    const directory = listed.parse((await a.get('/api/dapps/apps/?limit=100')).json);
    expect(directory.results.map(({ name }) => name).toSorted()).toEqual(
      starter.dapps.map(({ name }) => name).toSorted(),
    );
    const classes = (await a.get('/api/dapps/account-class-hashes/?limit=1')).json;
    expect(classes).toMatchObject({ count: starter.class_hashes.length });

    await killClickHouseDuringExport(a);

    const pids = [...Object.values(a.pids()), a.pid];
    const stopped = totals.parse((await a.get('/api/indexer/progress/')).json).totals;
    expect(await a.stop('SIGINT')).toBeLessThan(10_000);
    // The last line may arrive after the exit.
    await eventually(async () =>
      expect(a.printed()).toMatch(/\nStopping…\nRoles stopped\. Stopping the stores…\nStopped\.\n$/),
    );
    running.splice(running.indexOf(a), 1);
    expect(processesOf(first)).toEqual([]);
    for (const pid of pids) expect(() => process.kill(pid, 0), String(pid)).toThrow();
    expect((await b.get('/readyz')).status).toBe(200);

    const again = await startService(first, { PORT: port });
    running.push(again);
    expect(again.demo).toEqual(a.demo);
    // Nothing was listed a second time, or written again.
    expect(listed.parse((await again.get('/api/dapps/apps/?limit=100')).json)).toEqual(directory);
    const resumed = totals.parse((await again.get('/api/indexer/progress/')).json).totals;
    expect(resumed.transfers).toBeGreaterThanOrEqual(stopped.transfers);
    await eventually(async () => expect((await freshest(again)).age).toBeLessThan(15_000));

    // Another chain in the same folder is refused, and its node is asked nothing else.
    await again.stop();
    running.splice(running.indexOf(again), 1);
    const asked: string[] = [];
    const other = await serveOnLoopback((request, response) => {
      void text(request).then((body) => {
        const { id, method } = z.object({ id: z.unknown(), method: z.string() }).parse(JSON.parse(body));
        asked.push(method);
        response.end(JSON.stringify({ jsonrpc: '2.0', id, result: '0x534e5f4d41494e' }));
      });
    });
    try {
      await expect(startService(first, { PORT: port, STARKNET_RPC_URL: other.url })).rejects.toThrow(
        'Starknet node serves chain SN_MAIN, this installation indexes SN_SIM',
      );
      expect(new Set(asked)).toEqual(new Set(['starknet_chainId']));
    } finally {
      await other.close();
    }
    expect(processesOf(first)).toEqual([]);
  });
});
