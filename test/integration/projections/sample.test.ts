import { afterAll, beforeAll, expect, test } from 'vitest';

import { blockAtOrBelow, differenceInBlock } from '../../../projections/engine/verify/sample.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { COIN, accepted, makeBlock, transferEvent } from '../../support/chain-messages.ts';
import { projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** What sampling compares of one block; it reads the legs of at most 16 transfers. */

const LARGEST = 2n ** 256n - 1n;
const [ALICE, BOB] = [toFelt(0xa11cen), toFelt(0xb0bn)];
let world: ProjectionWorld;

beforeAll(async () => {
  world = await projectionWorld();
  const events = Array.from({ length: 17 }, (_, i) => transferEvent(COIN, ALICE, BOB, LARGEST - BigInt(i)));
  await world.publish([accepted(makeBlock({ height: 7, transactions: [{ events }] }), 1)]);
  await world.catchUp();
});
afterAll(async () => await world.close());

const differenceWith = async (random: number): Promise<string | null> => {
  const deps = { ...world, served: await servedBuilds(world.pool), clock: { random: () => random } };
  const block = await blockAtOrBelow(deps, 7);
  return await differenceInBlock(deps, block!, null);
};

test('amounts of 2^255 and more agree with their legs, which are signed', async () => {
  expect(await differenceWith(0)).toBeNull();
  expect(await differenceWith(0.999)).toBeNull();
});

test('the first and the last transfer of a block are compared, at different times', async () => {
  const table = (await servedBuilds(world.pool)).table('account_ledger');
  for (const [position, random, other] of [
    // The table has the last transfer first.
    [16, 0, 0.999],
    [0, 0.999, 0],
  ] as const) {
    const row = `position_desc = 0xffffffff - ${position}`;
    await world.clickhouse
      .command(`INSERT INTO ${table} SELECT * REPLACE (delta + 1 AS delta, seq + 1 AS seq) FROM ${table} FINAL
      WHERE ${row} AND leg = 2`);
    expect(await differenceWith(random), `${position}`).toMatch(/^16 transfers of .* 32 legs/);
    expect(await differenceWith(other), `${position}`).toBeNull();
    await world.clickhouse
      .command(`INSERT INTO ${table} SELECT * REPLACE (delta - 1 AS delta, seq + 1 AS seq) FROM ${table} FINAL
      WHERE ${row} AND leg = 2`);
  }
});
