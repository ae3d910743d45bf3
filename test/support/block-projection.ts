import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { encodeRows } from '../../infra/clickhouse/row-binary.ts';
import type { BlockProjection } from '../../projections/define.ts';
import { ART, COIN, accepted, makeBlock, reverted, transferEvent } from './chain-messages.ts';
import { reduceRows, sortingKey } from './replacing.ts';
import { ANNA, BERT, blockItem, sampleBlock, sampleMessage } from './sample-block.ts';

/** Tests that every projection of `chain.blocks` passes. */
export function testBlockProjection(projection: BlockProjection): void {
  describe(projection.name, () => {
    const tables = Object.entries(projection.tables);

    test('fills every column of its table.sql', () => {
      for (const [table, { columns }] of tables) {
        const create =
          projection.ddl.split('CREATE TABLE').find((text) => text.includes(`{{${table}}}`)) ?? '';
        const declared = [...create.matchAll(/^ {2}([a-z_]+) ([A-Z][A-Za-z0-9()]+)/gm)].map(
          ([, name, type]) => ({ name, type }),
        );
        expect([...columns].toSorted(byName)).toEqual(declared.toSorted(byName));
      }
    });

    test('deletes on a revert every row of the block, and its rows fit the columns', () => {
      const made = projection.project(blockItem(sampleMessage));
      const taken = projection.project(blockItem(reverted(sampleBlock, 101), 8));
      for (const [table, { columns }] of tables) {
        const key = sortingKey(projection.ddl, table);
        const rows = [...(made[table] ?? []), ...(taken[table] ?? [])];
        expect(made[table]?.length).toBeGreaterThan(0);
        expect(reduceRows(rows, key)).toEqual([]);
        expect(encodeRows(columns, rows).length).toBeGreaterThan(0);
      }
    });

    test('ends in the same rows whatever is repeated, in whatever order', () => {
      const other = makeBlock({
        height: 5000,
        fork: 1,
        transactions: [
          { events: [transferEvent(COIN, BERT, ANNA, 3n), transferEvent(ART, BERT, ANNA, 77n)] },
        ],
      });
      const history = [
        blockItem(accepted(sampleBlock, 100), 1),
        blockItem(reverted(sampleBlock, 101), 2),
        blockItem(accepted(other, 102), 3),
        blockItem(reverted(other, 103), 4),
        blockItem(accepted(sampleBlock, 104), 5),
      ];
      const steps = history.map((_, index) => index);
      for (const [table] of tables) {
        const key = sortingKey(projection.ddl, table);
        const made = history.map((one) => projection.project(one)[table] ?? []);
        const expected = reduceRows(made.at(-1) ?? [], key);
        expect(expected.length).toBeGreaterThan(0);
        fc.assert(
          fc.property(
            fc.array(fc.constantFrom(...steps)),
            fc.shuffledSubarray(steps, { minLength: steps.length }),
            (repeats, all) => {
              const rows = [...repeats, ...all].flatMap((step) => made[step] ?? []);
              expect(reduceRows(rows, key)).toEqual(expected);
            },
          ),
        );
      }
    });
  });
}

function byName(a: { name?: string | undefined }, b: { name?: string | undefined }): number {
  return (a.name ?? '') < (b.name ?? '') ? -1 : 1;
}
