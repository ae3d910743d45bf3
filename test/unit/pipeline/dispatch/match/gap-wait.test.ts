import { expect, it } from 'vitest';

import type { MatchDeps } from '../../../../../pipeline/dispatch/deps.ts';
import { createGapWait } from '../../../../../pipeline/dispatch/match/balances.ts';
import { makeBlock } from '../../../../support/chain-messages.ts';

const GAP = 1023;
const BALANCES = new Map([['pair', 7n]]);
const block = makeBlock({ height: 1000, transactions: [] });
const logged = (offset: number) => ({
  topic: 'chain.blocks',
  partition: 0,
  offset,
  timestamp: 0,
  key: null,
  value: Buffer.of(),
});

/** The block of the gap is logged at an offset; null: it is not. Projections read a message at each look. */
function createWorld() {
  const log = { end: 0, projected: 0, missingAt: null as number | null, reads: 0 };
  const read = createGapWait(
    {
      kafka: {
        offsets: async () => {
          log.reads += 1;
          return [{ partition: 0, low: 0, high: log.end }];
        },
      },
      pool: {
        query: async () => {
          log.projected = Math.min(log.end, log.projected + 1);
          return {
            rows: [{ projection: 'p', next_offset: log.projected, halted_offset: null, reason: null }],
          };
        },
      },
      clock: { now: () => 0, sleep: async () => {} },
      signal: new AbortController().signal,
    } as unknown as MatchDeps,
    async () => (log.missingAt !== null && log.projected > log.missingAt ? BALANCES : { gap: GAP }),
  );
  return { log, match: (offset: number) => read(block, [], logged(offset)) };
}

it('waits for the blocks of a gap at the height of an earlier gap', async () => {
  const { log, match } = createWorld();
  log.end = 3;
  expect(await match(2)).toEqual(new Map());
  log.end = 8;
  log.missingAt = 7;
  expect(await match(4)).toBe(BALANCES);
});

it('waits once for a gap below which many blocks are in the log', async () => {
  const { log, match } = createWorld();
  log.end = 3;
  expect(await match(0)).toEqual(new Map());
  log.end = 8;
  expect([await match(1), await match(2)]).toEqual([new Map(), new Map()]);
  expect([log.reads, log.projected]).toEqual([1, 5]);
});
