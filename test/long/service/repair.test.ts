import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { allTransfers, eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { hex, servedRow, trueRow } from '../../support/truth.ts';
import type { Truth } from '../../support/truth.ts';

const HEAD = 50;
const run = promisify(execFile);

/**
 * A misclassified contract, on a node of JSON-RPC 0.8 (headers without counts, no `l1_accepted`). Its blocks are below the
 * height accepted on L1 (their bodies are read back from the log) and above it.
 */
let own: Isolated;
let node: SimulatedNode;
let service: RunningService;
let dataDir: string;
let env: Record<string, string>;
let mistaken: Truth['token'];
let truth: Truth[];

const tds = async (...args: string[]): Promise<string> => {
  const { stdout } = await run(process.execPath, ['infra/bin/tds.ts', ...args], {
    env: { PATH: process.env['PATH'] ?? '', ...env },
  });
  return stdout;
};

beforeAll(async () => {
  own = await isolated();
  dataDir = mkdtempSync(join(tmpdir(), 'tds-e2e-'));
  node = await createSimulatedNode({
    seed: 'repair',
    manual: true,
    initialHead: HEAD,
    l1: { lag: 20, step: 5 },
    specVersion: '0.8',
  });
  env = {
    ...own.env,
    DATA_DIR: dataDir,
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    SECRET_KEY: '5c'.repeat(32),
    PORT: String(await freePort()),
  };
  const all = Array.from({ length: HEAD + 1 }, (_, height) => node.transfersAt(height)).flat();
  // A token whose events are ambiguous without its standard, with events below and above the height accepted on L1.
  const ambiguous = all.filter(
    ({ standard, layout, block }) => standard === 'erc20' && layout === 'erc20:1/4' && block > 0,
  );
  mistaken = ambiguous.at(-1)!.token;
  truth = all.filter(({ token }) => token === mistaken);

  await tds('migrate');
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
  await pool.query(
    `INSERT INTO tds.contract_standards (contract, standard, class_hash, basis, block) VALUES ($1, 'unknown', null, 'nothing', 0)`,
    [hex(mistaken)],
  );
  await pool.end();
  service = await startService(dataDir, env);
});

afterAll(async () => {
  await service?.stop();
  await node?.close();
  await own?.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

const itsRows = async () => await allTransfers(service, `token=${hex(mistaken)}&order=asc`);

test('transfers of an unclassified contract are served as unknown with the raw number', async () => {
  await eventually(async () => {
    const { rows, count } = await itsRows();
    expect(count).toBe(truth.length);
    expect(new Set(rows.map(({ kind }) => kind))).toEqual(new Set(['unknown']));
    expect(rows.map(({ value, nft_token_id }) => [value, nft_token_id])).toEqual(
      truth.map(({ amount }) => [String(amount), '']),
    );
  });
});

test('finality is served with a JSON-RPC 0.8 node, and status lists its missing capabilities', async () => {
  expect(await tds('status')).toMatch(/headers without counts, no l1_accepted tag/);
  const finality = z.object({ results: z.array(z.object({ status: z.string() })) });
  const statusAt = async (height: number): Promise<Set<string>> => {
    const { json } = await service.get(`/api/transfers/?block=${height}`);
    return new Set(finality.parse(json).results.map(({ status }) => status));
  };
  await eventually(async () => expect(await statusAt(10)).toEqual(new Set(['ACCEPTED_ON_L1'])));
  expect(await statusAt(HEAD)).toEqual(new Set(['ACCEPTED_ON_L2']));
});

test('reclassify repairs every block of the contract, each row once', async () => {
  expect(await tds('reclassify', hex(mistaken))).toMatch(/is erc20 \(was unknown\)/);
  await eventually(async () => {
    const { rows, count } = await itsRows();
    expect(rows.map(servedRow)).toEqual(truth.map(trueRow));
    expect(count).toBe(truth.length);
  });
  // Rows of other contracts in the repaired blocks are unchanged.
  for (const height of new Set(truth.map(({ block }) => block))) {
    const { rows } = await allTransfers(service, `block=${height}&order=asc`);
    expect(rows.map(servedRow)).toEqual(node.transfersAt(height).map(trueRow));
  }
});
