import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { heldNfts } from '../../../projections/nft-holdings/queries.ts';
import { MAX_HEIGHT } from '../../../projections/transfers/queries.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { aTransfer, createWorldTables, worldTables, writeBlocks } from '../../support/transfer-world.ts';

/** Pages of the NFTs of an account, of which the contract took one away without a transfer from that account. */

const TOKEN = toFelt(0xa47n);
const [MINTER, ALICE, BOB] = [toFelt(0x1n), toFelt(0xa11cen), toFelt(0xb0bn)];
const COUNT = 8;
const TAKEN = 3;

let own: Isolated;
let clickhouse: ClickHouse;

beforeAll(async () => {
  own = await isolated();
  clickhouse = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
  await createWorldTables(clickhouse);
  const moved = (height: number, ids: readonly number[], from = MINTER, to = ALICE) => ({
    height,
    timestamp: 1_700_000_000 + height,
    chunk: 'live',
    transfers: ids.map((id, position) => {
      const nft = { kind: 'erc721' as const, token: TOKEN, tokenId: BigInt(id) };
      return aTransfer({ ...nft, from, to, position, txHash: toFelt(BigInt(height)) });
    }),
  });
  const blocks = [moved(0, [...Array(COUNT).keys()]), moved(1, [TAKEN], MINTER, BOB)];
  await writeBlocks(clickhouse, blocks, { seq: 1, offset: 0 });
});
afterAll(async () => {
  await clickhouse.close();
  await own.drop();
});

test.each([
  ['few', COUNT, COUNT - 1],
  ['too many to check all', COUNT - 1, COUNT],
])('pages list each NFT once where the account has %s', async (_title, maxChecked, count) => {
  const held: string[] = [];
  for (let offset = 0; offset < COUNT - 1; offset += 2) {
    const of = { account: ALICE, token: null, upTo: MAX_HEIGHT };
    const page = await heldNfts(clickhouse, worldTables, of, { offset, limit: 2 }, maxChecked);
    expect(page.count).toBe(count);
    held.push(...page.held.map(({ tokenId }) => tokenId));
  }
  expect(held).toEqual([...Array(COUNT).keys()].filter((id) => id !== TAKEN).map(String));
});
