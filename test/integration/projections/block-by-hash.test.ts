import { createHash } from 'node:crypto';

import { afterAll, beforeAll, expect, test } from 'vitest';

import type { RowReader } from '../../../infra/clickhouse/client.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { indexedBlocks } from '../../../projections/indexed-blocks/projector.ts';
import { countedBlock } from '../../../projections/indexed-blocks/queries.ts';
import { MAX_UINT32 } from '../../../projections/descending.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { firstTable, projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** Blocks are found by their hash, which is in no order, without reading those of all blocks. */

const [GRANULE, GRANULES] = [1024, 40];
const table = firstTable('indexed_blocks');
/** A felt: the first byte is zero. */
const hashSql = (height: string): string =>
  `toFixedString(concat('\\0', substring(SHA256(toString(${height})), 1, 31)), 32)`;
const hashOf = (text: string): Felt =>
  toFelt(BigInt(`0x${createHash('sha256').update(text).digest('hex').slice(0, 62)}`));
let world: ProjectionWorld;

beforeAll(async () => {
  world = await projectionWorld();
  await openBuild(world.pool, world.clickhouse, indexedBlocks);
  await world.clickhouse.command(
    `INSERT INTO ${table} (block_desc, block_hash, parent_hash, timestamp, transfers, seq)
     SELECT ${MAX_UINT32} - number, ${hashSql('number')}, ${hashSql('number - 1')}, number, 1, number
     FROM numbers(${GRANULE * GRANULES})`,
  );
});
afterAll(() => world?.close());

/** Refuses to read more than four of the granules for each of the two reads. */
const frugal: RowReader = {
  rows: async (query, params, options) =>
    await world.clickhouse.rows(query, params, {
      ...options,
      settings: { ...options?.settings, max_rows_to_read: String(4 * GRANULE) },
    }),
};

test('finds a block by its hash in few of the granules', async () => {
  const tables = { table: () => table };
  for (const height of [0, 17_000, GRANULE * GRANULES - 1]) {
    const hash = hashOf(String(height));
    expect(await countedBlock(frugal, tables, { hash })).toMatchObject({ height, hash, transfers: 1 });
  }
  expect(await countedBlock(frugal, tables, { hash: hashOf('x') })).toBeNull();
});
