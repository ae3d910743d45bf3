import { ZERO_FELT, toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { Random } from './random.ts';
import { aTransfer, hashAt } from './transfer-world.ts';
import type { WorldBlock } from './transfer-world.ts';
import { matching } from './transfer-oracle.ts';
import type { IndexedTransfer, Query } from './transfer-oracle.ts';

/** A chain of small amounts, and what the routes of chain data answer as of one of its blocks, computed from the blocks alone. */

export type Chain = ReadonlyMap<number, WorldBlock>;

/** Two coins, an ERC-721, an ERC-1155, and a contract of unknown standard. */
const contracts = [
  ['erc20', toFelt(0xc01n)],
  ['erc20', toFelt(0xc02n)],
  ['erc721', toFelt(0xaf7n)],
  ['erc1155', toFelt(0x1155n)],
  ['unknown', toFelt(0x0ddn)],
] as const;
export const tokens: readonly Felt[] = contracts.map(([, token]) => token);
export const accounts: readonly Felt[] = [1n, 2n, 3n, 4n].map((n) => toFelt(0xacc0n + n));
const IDS = [0n, 1n, 7n, 1n << 200n];

/** Two blocks have one time. Blocks of another fork have other hashes, transactions and transfers. */
export function smallBlock(random: Random, height: number, most: number, fork = 0): WorldBlock {
  const transfers = Array.from({ length: most === 0 ? 0 : random.below(most) }, (_, position) => {
    const [kind, token] = random.pick(contracts);
    const isNft = kind === 'erc721' || kind === 'erc1155';
    return aTransfer({
      token,
      kind,
      // Mostly mints, so that few balances are negative.
      from: random.below(2) === 0 ? ZERO_FELT : random.pick(accounts),
      to: random.pick(accounts),
      position: 2 * position,
      txHash: toFelt(0x7a_0000_0000n + BigInt(fork * 1_000_000 + height * 10 + (position >> 1))),
      tokenId: isNft ? random.pick(IDS) : null,
      amount: kind === 'erc721' ? 1n : BigInt(1 + random.below(50)),
    });
  });
  return {
    height,
    hash: toFelt(BigInt(hashAt(height)) + (BigInt(fork) << 64n)),
    timestamp: 1_700_000_000 + 3600 * (height >> 1),
    chunk: 'live',
    transfers,
  };
}

/** The chain when the block at `height` was its newest. */
export const upTo = (chain: Chain, height: number): Chain =>
  new Map([...chain].filter(([at]) => at <= height));

/** The fields of a listed transfer that tell it from others. */
export const listed = (chain: Chain, query: Query) =>
  matching(chain, query).map((row) => ({
    block: row.block,
    event_index: row.position,
    txhash: row.txHash,
    from_address: row.from,
    to_address: row.to,
    token_address: row.token,
    value: row.amount.toString(),
    status: 'ACCEPTED_ON_L2',
  }));

interface Leg {
  readonly row: IndexedTransfer;
  readonly delta: bigint;
}

function legsOf(chain: Chain, account: Felt, token: Felt): Leg[] {
  return matching(chain, { account, token, order: 'asc' })
    .filter(({ kind }) => kind !== 'unknown')
    .map((row) => ({
      row,
      delta: (row.to === account ? row.amount : 0n) - (row.from === account ? row.amount : 0n),
    }));
}

/** The balance after each transfer of a pair, oldest first; those before a negative sum are unknown. */
export function balanceRows(chain: Chain, account: Felt, token: Felt) {
  let balance = 0n;
  const rows = legsOf(chain, account, token).map(({ row, delta }) => {
    balance += delta;
    return {
      time: new Date(row.timestamp * 1000).toISOString().replace('.000Z', 'Z'),
      block_number: row.block,
      event_index: row.position,
      balance,
    };
  });
  return rows.slice(rows.findLastIndex((row) => row.balance < 0n) + 1);
}

/** By token; null: the sum of the transfers is negative. Tokens without a transfer of known standard are missing. */
export function balancesOf(chain: Chain, account: Felt): Map<Felt, bigint | null> {
  const byAddress = tokens.toSorted((a, b) => (a < b ? -1 : 1));
  const sums = byAddress.flatMap((token): [Felt, bigint | null][] => {
    const legs = legsOf(chain, account, token);
    const sum = legs.reduce((total, { delta }) => total + delta, 0n);
    return legs.length === 0 ? [] : [[token, sum < 0n ? null : sum]];
  });
  return new Map(sums);
}

/** The last transfer of each NFT, by contract and id. */
export function nftsOf(chain: Chain): IndexedTransfer[] {
  const last = new Map<string, IndexedTransfer>();
  for (const row of matching(chain, { order: 'asc' }))
    if (row.tokenId !== null) last.set(`${row.token} ${row.tokenId}`, row);
  const idOf = ({ tokenId }: IndexedTransfer): bigint => tokenId ?? 0n;
  return [...last.values()].toSorted((a, b) =>
    a.token === b.token ? (idOf(a) < idOf(b) ? -1 : 1) : a.token < b.token ? -1 : 1,
  );
}
