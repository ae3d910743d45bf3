import { afterAll, beforeAll, expect, test } from 'vitest';

import { createHistoryRecorder } from '../../../infra/bin/operator/history.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { ChunksAnswer } from '../../../schemas/api/admin/chunks.ts';
import type { HistoryAnswer } from '../../../schemas/api/admin/history.ts';
import { TRANSACTIONS, adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import type { Call } from '../../support/api-world.ts';
import { eventually } from '../../support/service.ts';

/** The history that the service keeps, with a clock that the test moves, and the map of chunks. */

let world: AdminWorld;
let call: Call;
/** Unix milliseconds; the blocks are of 2023-11-14T22:13:20Z and later. */
const START = Date.UTC(2023, 10, 14, 23, 0, 0);
let now = START;
/** Of a machine that was suspended for two hours. */
const clock = { ...systemClock, wallTime: () => now, now: () => now - 7_200_000 };

beforeAll(async () => {
  world = await adminWorld();
  ({ call } = await world.api.anotherApi({ now: () => now }));
  await world.startProjections();
  await world.publishBlocks(0, 3);
  await world.projected();
});
afterAll(() => world?.close());

const recorder = () => createHistoryRecorder({ pool: world.api.pool, clickhouse: world.owner, clock });
const history = async (step?: string): Promise<HistoryAnswer> => {
  const query = step === undefined ? '' : `?step=${encodeURIComponent(step)}`;
  const { status, json } = await call('GET', `/api/admin/history/${query}`, { token: world.admin });
  expect(status, JSON.stringify(json)).toBe(200);
  return json as HistoryAnswer;
};
const times = ({ results }: HistoryAnswer): string[] => results.map(({ time }) => time.slice(11, 19));

test('a step is recorded once, whichever process is first, and shows heights, lag and throughput', async () => {
  const [one, another] = [recorder(), recorder()];
  now = START + 1234;
  expect(await one.record()).toBe(true);
  expect(await another.record()).toBe(false);
  await world.stopProjections();
  await world.publishBlocks(4, 6);
  now = START + 5000;
  expect(await another.record()).toBe(true);
  expect(await one.record()).toBe(false);
  await world.startProjections();
  await world.projected();
  now = START + 14_999;
  expect(await one.record()).toBe(true);

  const rates = { blocks_per_second: 0, transfers_per_second: 0 };
  const kept = await history();
  expect(kept).toMatchObject({
    step_seconds: 5,
    results: [
      {
        head_height: 3,
        log_height: 3,
        indexed_height: 3,
        lag_blocks: 0,
        lag_seconds: 0,
        blocks_per_second: null,
      },
      { head_height: 6, log_height: 6, indexed_height: 3, lag_blocks: 3, ...rates },
      // Three blocks in five seconds.
      { head_height: 6, indexed_height: 6, lag_blocks: 0, blocks_per_second: 0.6 },
    ],
  });
  expect(times(kept)).toEqual(['23:00:00', '23:00:05', '23:00:10']);
  expect(kept.results[2]?.transfers_per_second).toBeCloseTo((3 * 2 * TRANSACTIONS) / 5);
  // Block 3 is of 22:13:26.
  expect(kept.results[1]?.lag_seconds).toBe((START + 5000) / 1000 - 1_700_000_006);
});

test('minutes are made of their steps, with the most lag', async () => {
  now = START + 60_000;
  await recorder().record();
  now = START + 120_000;
  await recorder().record();
  const { step_seconds: step, results } = await history('1m');
  expect(step).toBe(60);
  expect(results).toMatchObject([
    { time: '2023-11-14T23:00:00.000Z', indexed_height: 6, lag_blocks: 3 },
    {
      time: '2023-11-14T23:01:00.000Z',
      indexed_height: 6,
      lag_blocks: 0,
      lag_seconds: 0,
      blocks_per_second: 0,
    },
  ]);
});

test('steps are kept for an hour and minutes for a day', async () => {
  const stored = async (): Promise<Record<string, number>> => {
    const { rows } = await world.api.pool.query<{ step: number; n: string }>(
      'SELECT step, count(*) AS n FROM tds.history GROUP BY step',
    );
    return Object.fromEntries(rows.map(({ step, n }) => [String(step), Number(n)]));
  };
  now = START + 3_600_000 + 5000;
  await recorder().record();
  // Those of 23:00:10, 23:01, 23:02, and the new one.
  expect(times(await history())).toEqual(['23:00:10', '23:01:00', '23:02:00', '00:00:05']);
  expect(await stored()).toEqual({ 5: 4, 60: 3 });
  now = START + 86_400_000;
  await recorder().record();
  expect(times(await history())).toEqual(['23:00:00']);
  expect(times(await history('1m'))).toEqual(['23:01:00', '23:02:00', '00:00:00']);
  expect(await stored()).toEqual({ 5: 1, 60: 3 });
});

test('a row that was not measured is left out, and an unknown step is refused', async () => {
  now += 5000;
  await world.api.pool.query('INSERT INTO tds.history (step, at) VALUES (5, $1)', [new Date(now)]);
  expect(times(await history())).toEqual(['23:00:00']);
  expect((await call('GET', '/api/admin/history/?step=1', { token: world.admin })).status).toBe(400);
});

test('the map of chunks shows indexed heights and the cursor of each chunk', async () => {
  await world.publishBlocks(2048, 2049);
  await world.api.pool.query(
    "UPDATE tds.chunks SET range_start = 2048, final_height = 2047 WHERE name = 'live'",
  );
  await world.api.pool.query(
    `INSERT INTO tds.chunks (name, range_start, range_end, cursor, final_height, lease_until)
     VALUES ('blocks-0', 0, 1999, 7, 5, now() - interval '1 minute')`,
  );
  await world.projected();
  await eventually(async () => {
    const { status, json } = await world.get('/api/admin/chunks/');
    expect(status).toBe(200);
    const { indexed, chunks, head_height: head } = json as ChunksAnswer;
    expect(head).toBe(2049);
    expect(indexed).toEqual([
      { first: 0, last: 6, blocks: 7, is_whole: true },
      { first: 2048, last: 2049, blocks: 2, is_whole: true },
    ]);
    expect(chunks).toMatchObject([
      { name: 'blocks-0', range: [0, 1999], cursor: 7, final_height: 5, writer: null, blocks_indexed: 0 },
      {
        name: 'live',
        range: [2048, null],
        cursor: 2050,
        final_height: null,
        status: 'open',
        writer: 'writer',
        // The messages of the test are all of `live`.
        blocks_indexed: 9,
        transfers_indexed: 9 * 2 * TRANSACTIONS,
        blocks_verified: 5,
      },
    ]);
  });
});
