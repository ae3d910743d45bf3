import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { HttpError } from '../../../api/http/errors.ts';
import { traceTransfers } from '../../../api/transfers/trace.ts';
import type { Trace } from '../../../api/transfers/trace.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { MAX_HEIGHT } from '../../../projections/transfers/queries.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import { ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { createRandom } from '../../support/random.ts';
import { aTransfer, createWorldTables, worldTables, writeBlocks } from '../../support/transfer-world.ts';
import type { WorldBlock } from '../../support/transfer-world.ts';

/** Traces over a random graph beside a plain walk over the same transfers, and over an account that has too many. */

const [COIN, OTHER, ODD, HUBBED] = [0xc01n, 0xc02n, 0xc03n, 0xc04n].map(toFelt) as [Felt, Felt, Felt, Felt];
const HUB = toFelt(0x4bn);
const MANY = 10_050;
const leaf = (index: number): Felt => toFelt(0x1ea_0000n + BigInt(index));

let own: Isolated;
let clickhouse: ClickHouse;
let blocks: WorldBlock[];

beforeAll(async () => {
  own = await isolated();
  const writer = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
  clickhouse = createClickHouse(own.env.API_CLICKHOUSE_URL, { application: 'test-api' });
  await createWorldTables(writer);
  blocks = [...randomBlocks(), ...hubBlocks()];
  await writeBlocks(writer, blocks, { seq: 1, offset: 1 });
  // A fork that was taken back leaves nothing to follow.
  const orphan: WorldBlock = {
    ...blockAt(5000),
    transfers: [transferAt(0, COIN, accountAt(0), leaf(1))],
  };
  await writeBlocks(writer, [orphan], { seq: 2, offset: 9000 });
  await writeBlocks(writer, [orphan], { seq: 3, offset: 9001, type: 'block.reverted' });
  await writer.close();
});
afterAll(async () => {
  await clickhouse.close();
  await own.drop();
});

const accountAt = (index: number): Felt =>
  index % 10 === 7 ? ZERO_FELT : toFelt(0xacc_0000n + BigInt(index));
const blockAt = (height: number) => ({ height, timestamp: 1_700_000_000 + height, chunk: 'live' });
const transferAt = (position: number, token: Felt, from: Felt, to: Felt): Transfer =>
  aTransfer({
    token,
    from,
    to,
    position,
    txHash: toFelt(BigInt(position) + 1n),
    kind: token === ODD ? 'unknown' : 'erc20',
  });

/** Small groups of accounts that have nothing to do with each other, but for the zero address. */
function randomBlocks(): WorldBlock[] {
  const random = createRandom(4711);
  return Array.from({ length: 60 }, (_, height) => ({
    ...blockAt(height),
    transfers: Array.from({ length: 6 }, (__, position) => {
      const group = 10 * random.below(8);
      const member = (): Felt => accountAt(group + random.below(10));
      return transferAt(position, random.pick([COIN, OTHER, ODD]), member(), member());
    }),
  }));
}

/** One account that pays each of very many others once, a block of 150 after the other. */
function hubBlocks(): WorldBlock[] {
  return Array.from({ length: MANY / 150 }, (_, block) => ({
    ...blockAt(1000 + block),
    transfers: Array.from({ length: 150 }, (__, at) => transferAt(at, HUBBED, HUB, leaf(150 * block + at))),
  }));
}

async function trace(account: Felt, token: Felt, more: Partial<Trace> = {}, now = () => 0) {
  const transfers = blocks.flatMap((block) => block.transfers).filter((one) => one.token === token).length;
  const upTo = MAX_HEIGHT;
  const whole = {
    account,
    token,
    upTo,
    transfers,
    hasLegs: token !== ODD,
    skipped: [],
    budgetMs: 1000,
    ...more,
  };
  const found = await traceTransfers({ clickhouse, tables: worldTables, now }, whole);
  return Array.from(found.inOrder(), ({ block, position }) => `${block}:${position}`);
}

/** Again and again over all transfers, until none is new. */
function walk(account: Felt, token: Felt, skipped: readonly Felt[] = []): string[] {
  const all = blocks.flatMap(({ height, transfers }) =>
    transfers.filter((one) => one.token === token).map((one) => ({ ...one, height })),
  );
  const reached = new Set([account]);
  for (let size = 0; size < reached.size;) {
    size = reached.size;
    for (const { from, to } of all) {
      if ((reached.has(from) && !skipped.includes(from)) || (reached.has(to) && !skipped.includes(to))) {
        reached.add(from).add(to);
      }
    }
  }
  const followed = (felt: Felt): boolean => reached.has(felt) && !skipped.includes(felt);
  return all
    .filter(({ from, to }) => followed(from) || followed(to))
    .map(({ height, position }) => `${height}:${position}`);
}

describe('a trace', () => {
  test.each([
    ['of the token alone', COIN],
    ['of another', OTHER],
    ['of one whose standard nobody can tell', ODD],
  ])('equals a plain walk, %s', async (_, token) => {
    for (let index = 0; index < 80; index += 9) {
      const account = accountAt(index);
      expect(await trace(account, token), account).toEqual(walk(account, token));
      // Read account by account instead of whole.
      expect(await trace(account, token, { transfers: 1e9 }), account).toEqual(walk(account, token));
    }
  });

  test('does not follow the zero address with skip_zero', async () => {
    const account = accountAt(1);
    const without = walk(account, COIN, [ZERO_FELT]);
    expect(without.length).toBeLessThan(walk(account, COIN).length);
    expect(await trace(account, COIN, { skipped: [ZERO_FELT] })).toEqual(without);
  });

  test('follows the newest 10,000 transfers of an account', async () => {
    const all = blocks.flatMap(({ height, transfers }) =>
      transfers.filter(({ token }) => token === HUBBED).map(({ position }) => `${height}:${position}`),
    );
    expect(all).toHaveLength(MANY);
    for (const transfers of [MANY, 1e9]) {
      expect(await trace(HUB, HUBBED, { transfers })).toEqual(all.slice(-10_000));
      // From the first that was paid: its own transfer, and what is followed of the other.
      expect(await trace(leaf(0), HUBBED, { transfers })).toEqual([all[0], ...all.slice(-10_000)]);
    }
  });

  test('that takes too long is rejected, not truncated', async () => {
    let clock = 0;
    const attempt = trace(accountAt(0), COIN, {}, () => (clock += 700));
    await expect(attempt).rejects.toSatisfy(
      (error) => error instanceof HttpError && error.status === 503 && error.headers['Retry-After'] === '60',
    );
  });
});
