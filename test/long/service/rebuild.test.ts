import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { projections } from '../../../projections/index.ts';
import { STRK_TOKEN } from '../../../schemas/felt.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { allTransfers, eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { hex, servedRow, trueRow } from '../../support/truth.ts';

/** An operator rebuilds every read model while clients send requests. */

const HEAD = 120;
let own: Isolated;
let node: SimulatedNode;
let service: RunningService;
let dataDir: string;

/** Runs `tds …` as an operator does, optionally killed with SIGKILL after some time. */
const tds = (
  args: readonly string[],
  killAfterMs?: number,
): Promise<{ code: number | null; output: string }> =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, ['infra/bin/tds.ts', ...args], {
      env: { ...process.env, DATA_DIR: dataDir },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const killer =
      killAfterMs === undefined ? undefined : setTimeout(() => child.kill('SIGKILL'), killAfterMs);
    child.once('exit', (code) => {
      clearTimeout(killer);
      resolve({ code, output });
    });
  });

/** Sends requests until stopped; every answer must be complete and consistent. */
function hammer(): { stop(): Promise<{ answers: number; complaints: string[] }> } {
  const complaints: string[] = [];
  let answers = 0;
  let isStopping = false;
  const page = z.object({ count: z.number(), results: z.array(z.object({ block: z.number() })) });
  const truth = Array.from({ length: HEAD + 1 }, (_, height) => node.transfersAt(height).length);
  const chain = truth.flatMap((_, height) => node.transfersAt(height));
  const all = chain.filter(({ token }) => hex(token) === STRK_TOKEN).length;
  const work = async (): Promise<void> => {
    for (let height = 0; !isStopping; height = (height + 7) % (HEAD + 1)) {
      const paths = [
        `/api/transfers/?block=${height}&limit=100`,
        `/api/transfers/?token=${STRK_TOKEN}&limit=50`,
        '/api/tokens/?limit=100',
      ];
      for (const path of paths) {
        const { status, json } = await service.get(path);
        answers += 1;
        if (status !== 200) complaints.push(`${path}: ${status} ${JSON.stringify(json)}`);
        else if (path.includes('block=')) {
          const { count, results } = page.parse(json);
          const expected = truth[height] ?? 0;
          if (count !== expected || results.length !== Math.min(100, expected)) {
            complaints.push(`${path}: count ${count}, ${results.length} rows, there are ${expected}`);
          }
        } else if (path.includes('/transfers/')) {
          const { count, results } = page.parse(json);
          if (count !== all || results.length !== 50) complaints.push(`${path}: count ${count}, not ${all}`);
        } else if (z.object({ count: z.number() }).parse(json).count === 0)
          complaints.push(`${path}: no token`);
      }
    }
  };
  const working = Promise.all([work(), work(), work()]);
  return {
    async stop() {
      isStopping = true;
      await working;
      return { answers, complaints };
    },
  };
}

const expectEqualToChain = async (): Promise<void> => {
  for (let height = 0; height <= HEAD; height += 1) {
    await eventually(async () => {
      const { rows } = await allTransfers(service, `block=${height}`);
      expect(rows.map(servedRow).toReversed()).toEqual(node.transfersAt(height).map(trueRow));
    });
  }
};

beforeAll(async () => {
  own = await isolated();
  dataDir = mkdtempSync(join(tmpdir(), 'tds-e2e-'));
  node = await createSimulatedNode({ seed: 'rebuild', manual: true, initialHead: HEAD, malformed: 0.02 });
  service = await startService(dataDir, {
    ...own.env,
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    PORT: String(await freePort()),
  });
  await expectEqualToChain();
});
afterAll(async () => {
  await service?.stop();
  await node?.close();
  await own?.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

test('rebuild --all restores every read model without the node, and no request fails meanwhile', async () => {
  await node.close();
  const clients = hammer();
  const { code, output } = await tds(['rebuild', '--all']);
  const { answers, complaints } = await clients.stop();
  expect(output).not.toContain('DIFFERENT');
  expect(code, output).toBe(0);
  expect([...new Set(complaints)]).toEqual([]);
  expect(answers).toBeGreaterThan(20);
  const { output: builds } = await tds(['builds']);
  for (const { name } of projections) {
    expect(builds).toMatch(new RegExp(`^${name} .*build 1 .*retired`, 'm'));
    expect(builds).toMatch(new RegExp(`^${name} .*build 2 .*serving`, 'm'));
  }
  await expectEqualToChain();
});

test('rebuild gives the same result after kills at any moment, and no request fails meanwhile', async () => {
  const clients = hammer();
  const names = ['transfers', 'account-feed', 'transfer-counts', 'indexed-blocks'];
  for (const after of [900, 1300, 1700, 2100, 2600]) await tds(['rebuild', ...names], after);
  const { code, output } = await tds(['rebuild', ...names, '--drop']);
  const { complaints } = await clients.stop();
  expect(code, output).toBe(0);
  expect(output).not.toContain('DIFFERENT');
  expect([...new Set(complaints)]).toEqual([]);
  await expectEqualToChain();
});

test('keys and users work after a rebuild', async () => {
  expect((await service.get(`/api/transfers/?token=${STRK_TOKEN}&limit=1`)).status).toBe(200);
  const login = await fetch(`${service.baseUrl}/api/users/auth/login/`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ username: service.demo.username, password: service.demo.password }),
  });
  expect(login.status).toBe(200);
});
