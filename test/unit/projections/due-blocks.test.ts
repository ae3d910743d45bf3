import { describe, expect, test } from 'vitest';

import { dueColumns, doneRows, dueRow } from '../../../projections/due-blocks.ts';
import type { DueBlock } from '../../../projections/define.ts';
import { periodStats } from '../../../projections/period-stats/projector.ts';
import { tokenHolders } from '../../../projections/token-holders/projector.ts';
import type { Row } from '../../../infra/clickhouse/row-binary.ts';
import { encodeRows } from '../../../infra/clickhouse/row-binary.ts';
import { accepted, makeBlock, reverted } from '../../support/chain-messages.ts';
import { blockItem } from '../../support/sample-block.ts';

const block = makeBlock({ height: 5000, transactions: [] });
const hour = Math.floor(block.timestamp / 3600);

/** The mark that the rows leave; null: none. */
function markOf(rows: readonly Row[]): DueBlock | null {
  const newest = rows.reduce((best, row) => (Number(row['seq']) >= Number(best['seq']) ? row : best));
  return newest['is_deleted'] === 1
    ? null
    : { height: 5000, hour: Number(newest['hour']), seq: Number(newest['seq']), age: 0 };
}

describe('marks of due blocks', () => {
  test('a block is due once it was accepted, and again when it was reverted', () => {
    const rows = [dueRow(blockItem(accepted(block, 100), 7))];
    const mark = markOf(rows);
    expect(mark).toMatchObject({ height: 5000, hour });
    rows.push(...doneRows(mark === null ? [] : [mark]));
    expect(markOf(rows)).toBeNull();
    rows.push(dueRow(blockItem(reverted(block, 101), 8)));
    expect(markOf(rows)).not.toBeNull();
    expect(encodeRows(dueColumns, rows).length).toBeGreaterThan(0);
  });

  test('the same message again leaves a derived block derived', () => {
    const row = dueRow(blockItem(accepted(block, 100), 7));
    const mark = markOf([row]);
    const done = doneRows(mark === null ? [] : [mark]);
    expect(markOf([...done, row].toSorted((a, b) => Number(a['seq']) - Number(b['seq'])))).toBeNull();
  });

  test('a mark that was made while a pass ran stays', () => {
    const first = dueRow(blockItem(accepted(block, 100), 7));
    const mark = markOf([first]);
    const later = dueRow(blockItem(reverted(block, 101), 8));
    expect(markOf([first, later, ...doneRows(mark === null ? [] : [mark])])).toMatchObject({ height: 5000 });
  });

  test.each([tokenHolders, periodStats])('$name marks the block of every message', (projection) => {
    for (const message of [accepted(block, 100), reverted(block, 101)]) {
      expect(projection.project(blockItem(message))).toEqual({
        [projection.deferred.due]: [dueRow(blockItem(message))],
      });
    }
  });
});
