import { describe, expect, test } from 'vitest';

import { ClickHouseException } from '../../../../../infra/embedded/clickhouse/errors.ts';
import { checkReadOnlyName, readOnlySelect } from '../../../../../infra/embedded/clickhouse/readonly.ts';

function refusalOf(work: () => unknown): number | null {
  try {
    work();
    return null;
  } catch (error) {
    if (error instanceof ClickHouseException) return error.code;
    throw error;
  }
}

describe('a statement of the read-only user', () => {
  test.each([
    ['SELECT 1', 'SELECT 1', {}],
    ['SELECT 1 ; ', 'SELECT 1', {}],
    ['SELECT 1 SETTINGS max_threads = 1', 'SELECT 1 ', { max_threads: '1' }],
    [
      "SELECT a FROM t SETTINGS max_execution_time = 0.5, log_comment = 'it''s' FORMAT CSV",
      'SELECT a FROM t FORMAT CSV',
      { max_execution_time: '0.5', log_comment: "it's" },
    ],
    ['SELECT settings FROM t WHERE settings = 1', 'SELECT settings FROM t WHERE settings = 1', {}],
    [
      'SELECT * FROM (SELECT 1 SETTINGS max_threads = 1)',
      'SELECT * FROM (SELECT 1 SETTINGS max_threads = 1)',
      {},
    ],
  ])('%s', (sql, expected, settings) => {
    const select = readOnlySelect(sql);
    expect(select.sql).toBe(expected);
    expect(Object.fromEntries(select.settings)).toEqual(settings);
  });

  // The whole table of refusals is in test/integration/embedded/clickhouse-reader.test.ts, with the engine behind it.
  test.each([
    ['DROP TABLE t', 164],
    ['SELECT 1; SELECT 2', 62],
    ["SELECT 'open", 62],
    ["SELECT file('/etc/passwd')", 497],
    ['SELECT 1 SETTINGS readonly = 0', 452],
    ['SELECT 1 SETTINGS max_threads = {p:UInt8}', 62],
    ['SELECT (SELECT 1 SETTINGS `readonly` = 0)', 452],
  ])('%s is refused with %d', (sql, code) => {
    expect(refusalOf(() => readOnlySelect(sql))).toBe(code);
  });
});

test.each([
  ['t_0123', null],
  ['tds.transfers_v1', null],
  ['default', 497],
  ['DEFAULT.x', 497],
  ['system.processes', 497],
  ['/etc/passwd', 497],
  ['a b', 497],
  ['', 497],
])('the name %j', (name, code) => {
  expect(refusalOf(() => checkReadOnlyName(name))).toBe(code);
});
