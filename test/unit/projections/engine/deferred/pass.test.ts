import { expect, test } from 'vitest';

import { createLogger } from '../../../../../infra/log.ts';
import { runPass } from '../../../../../projections/engine/deferred/pass.ts';
import { restMs } from '../../../../../projections/engine/deferred/run.ts';
import { tokenHolders } from '../../../../../projections/token-holders/projector.ts';

test('a pass that leaves blocks is followed by the next one without the pause of the head', async () => {
  const marks = [7, 6, 5].map((height) => ({ height, hour: 1, seq: 1024 * height, age: 1 }));
  const pass = async (taken: number) =>
    await runPass(
      {
        ...tokenHolders,
        deferred: {
          ...tokenHolders.deferred,
          plan: async (due) => ({ blocks: due.slice(0, taken), statements: () => [] }),
        },
      },
      {
        // The only query is that of the marks.
        clickhouse: { rows: async () => marks as never, command: async () => {}, insert: async () => {} },
        log: createLogger('test', 'silent'),
        names: { token_holders_due: 'due' },
        readUpTo: () => 100,
        number: async () => 1,
        isNewest: async () => true,
      },
    );
  const [some, all] = [await pass(1), await pass(3)];
  expect([some.left, all.left]).toEqual([2, 0]);
  expect(restMs(1000, some)).toBe(1000);
  expect(restMs(1000, all)).toBe(5000);
  expect(restMs(1000, { ...all, isBusy: true })).toBe(9000);
});
