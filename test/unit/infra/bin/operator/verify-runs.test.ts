import { expect, test } from 'vitest';

import { recordedVerify } from '../../../../../infra/bin/operator/verify-runs.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { unavailable } from '../../../../../infra/postgres/client.ts';
import type { Sql } from '../../../../../infra/postgres/client.ts';
import type { VerifyReport } from '../../../../../projections/engine/verify/verify.ts';

const report: VerifyReport = {
  heights: { from: 0, to: 9 },
  messages: 10,
  commitments: null,
  differences: [],
  found: [],
  repairedRows: 0,
  repairedTables: {},
};

/** A PostgreSQL whose first `failures` statements fail, as during a fail-over. */
function failingOver(failures: number): Sql & { readonly recorded: string[] } {
  const recorded: string[] = [];
  let left = failures;
  const pool: Sql = {
    async query(statement) {
      left -= 1;
      if (left >= 0) throw unavailable('PostgreSQL did not answer', null);
      recorded.push((typeof statement === 'string' ? statement : statement.text).slice(0, 6));
      return { rows: [], rowCount: 0, command: '', oid: 0, fields: [] };
    },
  };
  return { ...pool, recorded };
}

const log = createLogger('test', 'silent');

test('a verification that ends during a fail-over of PostgreSQL is recorded after it', async () => {
  const pool = failingOver(2);
  const { signal } = new AbortController();
  expect(await recordedVerify({ pool, log, signal }, () => Promise.resolve(report))).toBe(report);
  expect(pool.recorded).toEqual(['INSERT', 'DELETE']);
});

test('a verification whose operator stops it does not wait for PostgreSQL', async () => {
  const pool = failingOver(Infinity);
  const signal = AbortSignal.abort();
  expect(await recordedVerify({ pool, log, signal }, () => Promise.resolve(report))).toBe(report);
  const failure = new Error('Stopped');
  await expect(recordedVerify({ pool, log, signal }, () => Promise.reject(failure))).rejects.toBe(failure);
});
