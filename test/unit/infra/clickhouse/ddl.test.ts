import { describe, expect, test } from 'vitest';

import { tableStatement } from '../../../../infra/clickhouse/ddl.ts';

const SETTINGS =
  'fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10';
const create = `-- CREATE TABLE of a comment.
CREATE TABLE IF NOT EXISTS transfers_v3_b7 (
  token FixedString(32),  -- felt
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY token
SETTINGS index_granularity = 512`;

describe('on one server', () => {
  test('a new table gets the settings of every table, after its own', () => {
    expect(tableStatement(create, null)).toBe(`${create}, ${SETTINGS}`);
  });

  test('a new table without settings of its own gets those', () => {
    const plain = 'CREATE TABLE a (x UInt8) ENGINE = MergeTree ORDER BY x';
    expect(tableStatement(plain, null)).toBe(`${plain}\nSETTINGS ${SETTINGS}`);
  });

  test.each(['DROP TABLE IF EXISTS a_v1_b2 SYNC', 'ALTER TABLE a MODIFY SETTING x = 1'])(
    '%s stays as it is',
    (sql) => {
      expect(tableStatement(sql, null)).toBe(sql);
    },
  );
});

describe('on a cluster', () => {
  test('a new table is replicated, under a path in Keeper that contains its name', () => {
    expect(tableStatement(create, 'main')).toBe(`-- CREATE TABLE of a comment.
CREATE TABLE IF NOT EXISTS transfers_v3_b7 ON CLUSTER 'main' (
  token FixedString(32),  -- felt
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplicatedReplacingMergeTree('/clickhouse/main/{database}/transfers_v3_b7', '{replica}', seq, is_deleted)
ORDER BY token
SETTINGS index_granularity = 512, ${SETTINGS}`);
  });

  test.each([
    [
      'CREATE TABLE verify_1 (x UInt8) ENGINE = MergeTree ORDER BY tuple()',
      `CREATE TABLE verify_1 ON CLUSTER 'c' (x UInt8) ENGINE = ReplicatedMergeTree('/clickhouse/c/{database}/verify_1', '{replica}') ORDER BY tuple()\nSETTINGS ${SETTINGS}`,
    ],
    ['DROP TABLE IF EXISTS a_v1_b2 SYNC', "DROP TABLE IF EXISTS a_v1_b2 ON CLUSTER 'c' SYNC"],
    ['ALTER TABLE a MODIFY SETTING x = 1', "ALTER TABLE a ON CLUSTER 'c' MODIFY SETTING x = 1"],
  ])('%s is sent to every replica', (sql, expected) => {
    expect(tableStatement(sql, 'c')).toBe(expected);
  });

  test.each(['CREATE VIEW v AS SELECT 1', 'OPTIMIZE TABLE a FINAL', 'SELECT 1'])('%s is refused', (sql) => {
    expect(() => tableStatement(sql, 'c')).toThrow('Not a statement about one table');
  });
});
