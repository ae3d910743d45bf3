import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { chainProjections } from '../../../projections/index.ts';
import { verify } from '../../../projections/engine/verify/verify.ts';
import type { VerifyReport } from '../../../projections/engine/verify/verify.ts';
import { accepted, busyBlock } from '../../support/chain-messages.ts';
import { projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** Verifications and repairs of a range that gets a block whenever they look at it. */

let world: ProjectionWorld;
let seq = 0;
let height = 0;

const projections = chainProjections.filter(({ name }) =>
  ['transfers', 'account-ledger', 'indexed-blocks'].includes(name),
);
const names = projections.map(({ name }) => name);

beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world?.close());
afterEach(async () => await world.stopRuns());

const publish = async (count: number): Promise<void> => {
  const blocks = Array.from({ length: count }, (_, index) => busyBlock(height + index, 4));
  height += count;
  await world.publish(blocks.map((block) => accepted(block, (seq += 1))));
};
const start = async (): Promise<void> => {
  await world.run({ projections });
  await publish(5);
  await world.settled(names);
  await world.pool.query(
    `INSERT INTO tds.chunks (name, range_start, cursor, final_height) VALUES ('live', 0, $1, 0)
     ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor`,
    [height],
  );
};

const look = async (afterDerive: () => Promise<void>): Promise<VerifyReport> => {
  let isDerived = false;
  const clickhouse: ProjectionWorld['clickhouse'] = {
    ...world.clickhouse,
    async rows(query, params, options) {
      if (query.name === 'verify.hint') isDerived = false;
      return await world.clickhouse.rows(query, params, options);
    },
    async command(sql, options) {
      await world.clickhouse.command(sql, options);
      if (isDerived || !/INSERT INTO verify_\w+_account_ledger_ranges /.test(sql)) return;
      isDerived = true;
      await afterDerive();
    },
  };
  return await verify(
    { ...world, clickhouse, projections, deferred: [], signal: new AbortController().signal },
    { from: null, to: null, repair: false, waitMs: 5000, betweenComparisonsMs: 10 },
  );
};
/** A block that is indexed between the calculation of sums and their comparison. */
const moveHead = async (): Promise<void> => {
  await publish(1);
  await world.settled(names);
};

test('finds no difference in correct sums that new blocks change whenever they are compared', async () => {
  await start();
  expect((await look(moveHead)).differences).toEqual([]);
});
