import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { planChunks } from '../../../../pipeline/ingest/start.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const at = (height: number) => ({ height, hash: toFelt(BigInt(height) + 1n) });
const ranges = (chunks: ReturnType<typeof planChunks>) =>
  chunks.map(({ name, start, end }) => [name, start, end]);

describe('planChunks without existing chunks', () => {
  test('plans backfill up to the height accepted on L1, in round chunks, and live above', () => {
    expect(ranges(planChunks({ existing: [], indexFrom: 150, l1: at(420), chunkBlocks: 100 }))).toEqual([
      ['backfill-000000150-000000199', 150, 199],
      ['backfill-000000200-000000299', 200, 299],
      ['backfill-000000300-000000399', 300, 399],
      ['backfill-000000400-000000420', 400, 420],
      ['live', 421, null],
    ]);
  });

  test.each([
    [
      'starts at the height accepted on L1 without a first height',
      null,
      420,
      [
        ['backfill-000000420-000000420', 420, 420],
        ['live', 421, null],
      ],
    ],
    ['plans live only if nothing is accepted on L1', null, null, [['live', 0, null]]],
    [
      'plans a chunk for genesis if only genesis is accepted',
      0,
      0,
      [
        ['backfill-000000000-000000000', 0, 0],
        ['live', 1, null],
      ],
    ],
    ['plans live only if the accepted height is below the first height', 500, 420, [['live', 500, null]]],
    [
      'plans live only if the accepted height is just below the first height',
      421,
      420,
      [['live', 421, null]],
    ],
  ])('%s', (_, indexFrom, l1, expected) => {
    const plan = planChunks({ existing: [], indexFrom, l1: l1 === null ? null : at(l1), chunkBlocks: 100 });
    expect(ranges(plan)).toEqual(expected);
  });

  test('gives live the hash below it if that is the accepted block', () => {
    const below = (indexFrom: number) =>
      planChunks({ existing: [], indexFrom, l1: at(420), chunkBlocks: 100 }).at(-1)?.finalHash;
    expect(below(0)).toBe(at(420).hash);
    expect(below(500)).toBeNull();
  });
});

test('planChunks covers every height from the lowest first height once, for any sequence of plans', () => {
  const firsts = fc.array(fc.integer({ min: 0, max: 2000 }), { minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(
      firsts,
      fc.integer({ min: -1, max: 2000 }),
      fc.integer({ min: 1, max: 700 }),
      (froms, l1, chunkBlocks) => {
        let chunks: ReturnType<typeof planChunks> = [];
        for (const indexFrom of froms) {
          const accepted = l1 < 0 ? null : at(l1);
          chunks = [...chunks, ...planChunks({ existing: chunks, indexFrom, l1: accepted, chunkBlocks })];
        }
        const sorted = chunks.toSorted((a, b) => a.start - b.start);
        expect(sorted[0]?.start).toBe(Math.min(...froms));
        expect(sorted.at(-1)?.name).toBe('live');
        for (const [index, { end }] of sorted.slice(0, -1).entries())
          expect(sorted[index + 1]?.start).toBe((end ?? 0) + 1);
        expect(new Set(chunks.map(({ name }) => name)).size).toBe(chunks.length);
      },
    ),
  );
});
