import { Registry } from 'prom-client';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import { nftHoldings } from '../../../projections/nft-holdings/projector.ts';
import { heldNfts } from '../../../projections/nft-holdings/queries.ts';
import { nftTransfers } from '../../../projections/nft-transfers/projector.ts';
import { lastTransferOf } from '../../../projections/nft-transfers/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { MAX_HEIGHT } from '../../../projections/transfers/queries.ts';
import { ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import {
  ART,
  ITEMS,
  accepted,
  batchEvent,
  makeBlock,
  reverted,
  transferEvent,
} from '../../support/chain-messages.ts';
import { projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { createRandom } from '../../support/random.ts';
import type { Random } from '../../support/random.ts';

/** Who owns which NFT, out of the stores, beside a list of what was meant to happen, through forks and a rebuild. */

interface Move {
  readonly token: Felt;
  readonly id: bigint;
  readonly from: Felt;
  readonly to: Felt;
}
interface Planned {
  readonly body: BlockBody;
  /** In the order of the chain. */
  readonly moves: readonly Move[];
}

let world: ProjectionWorld;
let seq = 0;
/** What is indexed now, by height. */
const chain = new Map<number, Planned>();
const random = createRandom(721);
const accounts = [ZERO_FELT, ...Array.from({ length: 7 }, (_, i) => toFelt(0xacc0n + BigInt(i)))];
/** Around the edges of 127, 128 and 256 bits; two that differ above 127 bits alone. */
const ids = [
  0n,
  1n,
  2n,
  10n,
  (1n << 127n) - 1n,
  1n << 127n,
  (1n << 127n) + 1n,
  1n << 128n,
  (1n << 128n) + 1n,
  (1n << 256n) - 1n,
];

beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world.close());

/**
 * Mints, sales, burns, transfers to oneself, single and batch; in one of them every id twice, or a transfer from somebody
 * who never had it, as contracts that break the rules have it.
 */
function plan(height: number, fork: number, chance: Random): Planned {
  const moves: Move[] = [];
  const events = Array.from({ length: chance.below(6) }, () => {
    const from = chance.pick(accounts);
    const to = chance.below(5) === 0 ? from : chance.pick(accounts);
    if (chance.below(2) === 0) {
      const id = chance.pick(ids);
      moves.push({ token: ART, id, from, to });
      return transferEvent(ART, from, to, id);
    }
    const batch = Array.from({ length: 1 + chance.below(3) }, () => chance.pick(ids));
    moves.push(...batch.map((id) => ({ token: ITEMS, id, from, to })));
    return batchEvent(
      ITEMS,
      from,
      to,
      batch.map((id) => [id, 3n]),
    );
  });
  return { body: makeBlock({ height, fork, transactions: [{ events }] }), moves };
}

async function accept(blocks: readonly Planned[]): Promise<void> {
  await world.publish(blocks.map(({ body }) => accepted(body, (seq += 1))));
  for (const block of blocks) chain.set(block.body.height, block);
}

async function revert(blocks: readonly Planned[]): Promise<void> {
  await world.publish(blocks.toReversed().map(({ body }) => reverted(body, (seq += 1))));
  for (const { body } of blocks) chain.delete(body.height);
}

/** The last that was moved of each NFT. */
function truth(): Map<string, Move & { block: number; txHash: Felt | undefined }> {
  const last = new Map<string, Move & { block: number; txHash: Felt | undefined }>();
  const inOrder = [...chain.values()].toSorted((a, b) => a.body.height - b.body.height);
  for (const { body, moves } of inOrder) {
    for (const move of moves) {
      last.set(`${move.token}:${move.id}`, {
        ...move,
        block: body.height,
        txHash: body.transactions[0]?.hash,
      });
    }
  }
  return last;
}

async function expectOwners(): Promise<void> {
  const served = await servedBuilds(world.pool);
  const last = [...truth().values()];
  for (const token of [ART, ITEMS]) {
    for (const id of ids) {
      const expected = last.find((move) => move.token === token && move.id === id);
      const found = await lastTransferOf(world.clickhouse, served, { token, tokenId: id, upTo: MAX_HEIGHT });
      expect(found === null ? null : { to: found.to, block: found.block, txHash: found.txHash }).toEqual(
        expected === undefined ? null : { to: expected.to, block: expected.block, txHash: expected.txHash },
      );
    }
  }
  for (const account of accounts) {
    for (const token of [null, ART, ITEMS]) {
      const expected = last
        .filter(
          (move) => move.to === account && account !== ZERO_FELT && (token ?? move.token) === move.token,
        )
        .toSorted((a, b) =>
          a.token === b.token ? Number(a.id > b.id) - 0.5 : Number(a.token > b.token) - 0.5,
        )
        .map(({ token: of, id, block }) => ({
          token: of,
          tokenId: id.toString(),
          kind: of === ART ? 'erc721' : 'erc1155',
          block,
        }));
      const of = { account, token, upTo: MAX_HEIGHT };
      // As of an account with few, and as of one with too many to look for them all: what is on the page is right.
      for (const most of token === null ? [undefined, 0] : [undefined]) {
        const all = { offset: 0, limit: 100 };
        const whole = await heldNfts(world.clickhouse, served, of, all, most);
        expect(whole.held).toEqual(expected);
        if (most === undefined) expect(whole.count).toBe(expected.length === 0 ? null : expected.length);
      }
      // A page tells of all that the account holds, also where nothing on the page itself is wrong. Of many, ERC-721 may lie.
      const most = token === ART ? undefined : token === ITEMS ? 0 : 1000;
      for (const page of [
        { offset: 0, limit: 1 },
        { offset: 2, limit: 3 },
      ]) {
        const { held, count } = await heldNfts(world.clickhouse, served, of, page, most);
        expect(held).toEqual(expected.slice(page.offset, page.offset + page.limit));
        expect(count).toBe(expected.length > page.offset ? expected.length : null);
      }
    }
  }
}

test('owners and holdings follow the last transfer, through forks and a rebuild', async () => {
  const run = await world.run();
  // Two stretches in two partitions, and the later one first, as chunks side by side come.
  const later = Array.from({ length: 60 }, (_, i) => plan(2040 + i, 0, random));
  const earlier = Array.from({ length: 40 }, (_, i) => plan(100 + i, 0, random));
  await accept(later);
  await accept(earlier);
  await world.settled();
  expect(truth().size).toBe(2 * ids.length);
  await expectOwners();

  for (let fork = 1; fork <= 4; fork += 1) {
    const depth = 1 + random.below(30);
    const first = 2100 - depth;
    const lost = [...chain.values()].filter(({ body }) => body.height >= first);
    await revert(lost.toSorted((a, b) => a.body.height - b.body.height));
    await world.settled();
    await expectOwners();
    await accept(Array.from({ length: depth }, (_, i) => plan(first + i, fork, random)));
    await world.settled();
    await expectOwners();
  }

  const report = await rebuild(
    {
      kafka: world.kafka,
      clickhouse: world.clickhouse,
      pool: world.pool,
      clock: systemClock,
      log: world.log,
      metrics: createProjectionMetrics(new Registry()),
      signal: new AbortController().signal,
    },
    [nftTransfers, nftHoldings],
    { swap: true, onProgress: () => {} },
  );
  expect(report.tables.filter(({ differing }) => differing.length > 0)).toEqual([]);
  expect(report.isSwapped).toBe(true);
  await expectOwners();
  // What was merged is told alike.
  const served = await servedBuilds(world.pool);
  for (const table of ['nft_moves', 'nft_places', 'nft_transfers'])
    await world.clickhouse.command(`OPTIMIZE TABLE ${served.table(table)} FINAL`);
  await expectOwners();
  await run.stop();
});
