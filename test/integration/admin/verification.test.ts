import { afterAll, beforeAll, expect, test } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { startSampling } from '../../../projections/engine/verify/sampling.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import type { VerificationAnswer } from '../../../schemas/api/admin/verification.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { eventually } from '../../support/service.ts';
import { tds } from '../../support/tds.ts';

/** What admins see of `tds verify` and of sampling, before and after a row is lost. */

let world: AdminWorld;
const TOP = 2;

beforeAll(async () => {
  world = await adminWorld();
  await world.startProjections();
  await world.publishBlocks(0, TOP);
  await world.projected();
});
afterAll(() => world?.close());

const verification = async (): Promise<VerificationAnswer> => {
  const { status, json } = await world.get('/api/admin/verification/');
  expect(status).toBe(200);
  return json as VerificationAnswer;
};

test('nothing is shown before the first verification and the first sample', async () => {
  expect(await verification()).toEqual({
    last_verify: null,
    runs: [],
    sampling: null,
    inconsistent_blocks: [],
  });
});

test('a run of `tds verify` is shown with its heights and without differences', async () => {
  const { code, stderr } = await tds(world.api.env, 'verify');
  expect(code, stderr).toBe(0);
  expect((await verification()).last_verify).toEqual({
    started_at: expect.any(String),
    finished_at: expect.any(String),
    outcome: 'no differences',
    error: null,
    differences: 0,
    first_differences: [],
    found: 0,
    repaired_rows: 0,
    from: 0,
    to: TOP,
    messages: TOP + 1,
  });
});

test('a sample counts, and a block that lost a row is named with the command that repairs it', async () => {
  const sampling = startSampling({
    pool: world.api.pool,
    clickhouse: world.owner,
    kafka: world.api.kafka,
    clock: systemClock,
    log: createLogger('test', 'silent'),
    metrics: createMetrics('project'),
    everyMs: 50,
  });
  try {
    await eventually(async () =>
      expect((await verification()).sampling).toMatchObject({
        blocks: expect.any(Number),
        differences: 0,
        // Every other block is so near the newest that it may still be written.
        last_height: 0,
        last_difference: null,
      }),
    );
    await world.owner.command(
      `DELETE FROM transfers_v${transfers.version}_b1 WHERE block_desc = 0xffffffff AND position_desc = 0xffffffff - 1`,
    );
    await eventually(async () => {
      const { sampling: seen, inconsistent_blocks: wrong } = await verification();
      expect(seen?.differences).toBeGreaterThanOrEqual(1);
      expect(seen?.last_difference).toMatchObject({ height: 0 });
      expect(wrong).toEqual([
        {
          height: 0,
          detail: expect.stringContaining('`tds verify --from 0 --to 0 --repair`'),
          since: expect.any(String),
        },
      ]);
    });
  } finally {
    await sampling.stop();
  }
});

test('a run that finds a difference names it, and the newest run is the last', async () => {
  const { code } = await tds(world.api.env, 'verify');
  expect(code).toBe(1);
  const { last_verify: last, runs } = await verification();
  expect(last).toMatchObject({ outcome: 'differences', repaired_rows: 0, error: null });
  expect(last?.differences).toBeGreaterThanOrEqual(1);
  expect(last?.first_differences.some((one) => one.startsWith('rows: '))).toBe(true);
  expect(runs.map(({ outcome }) => outcome)).toEqual(['differences', 'no differences']);
});
