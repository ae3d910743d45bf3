import { createHash } from 'node:crypto';

import type { BlockItem } from '../../projections/define.ts';
import { STRK_TOKEN, toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { Transfer } from '../../schemas/decode/index.ts';
import { partitionOfHeight } from '../../schemas/topics.ts';
import { randomNumbers } from './measure.ts';

/**
 * Decoded blocks, generated without a chain. Every transaction transfers one token and pays its fee, so STRK has half of all
 * transfers, and the sequencer is in half of them.
 */

const TOKENS = 2000;
const ACCOUNTS = 300_000;
const FIRST_TIME = 1_700_000_000;
/** Newest rows kept per probed subject: a page and one more. */
const REMEMBERED = 51;

const pool = (base: bigint, size: number): readonly Felt[] =>
  Array.from({ length: size }, (_, index) => toFelt(base + BigInt(index) * 0x1_0000_0001_0001n));

export const SEQUENCER = toFelt(0x5e90e4ce4n);

/** The independent count of a subject, kept while blocks are generated. */
export interface Probe {
  readonly felt: Felt;
  transfers: number;
  /** `block:position` of its newest transfers, newest first. */
  newest: string[];
}

export interface Synthetic {
  block(height: number, seq: number): BlockItem;
  readonly made: { transfers: number; blocks: number };
  /** Counts so far, by subject of a page. */
  readonly tokens: readonly Probe[];
  readonly accounts: readonly Probe[];
  readonly half: Probe;
  readonly busiest: Probe;
  /** Some transaction hashes with their two positions. */
  readonly hashes: readonly { hash: Felt; keys: string[] }[];
}

/** `perBlock` transfers per block; probes are tokens and accounts of all sizes. */
export function createSynthetic(options: { perBlock: number; blocks: number; probes: number }): Synthetic {
  const { perBlock, blocks, probes } = options;
  const random = randomNumbers(5);
  const tokens = pool(0x7_0000_0000_0000_0000_0000n, TOKENS);
  const accounts = pool(0xa_0000_0000_0000_0000_0000n, ACCOUNTS);
  const pick = <T>(from: readonly T[], share: number): T => {
    const found = from[Math.min(from.length - 1, Math.floor(share * from.length))];
    if (found === undefined) throw new RangeError('nothing to pick from');
    return found;
  };
  // The cube gives few tokens and accounts most of the transfers, as on a real chain.
  const skewed = (): number => random() ** 3;

  const known = new Map<Felt, Probe>();
  const probe = (felt: Felt): Probe => {
    const made = known.get(felt) ?? { felt, transfers: 0, newest: [] };
    known.set(felt, made);
    return made;
  };
  const half = probe(STRK_TOKEN);
  const busiest = probe(SEQUENCER);
  const spread = (from: readonly Felt[]): Probe[] =>
    Array.from({ length: probes }, (_, index) => probe(pick(from, (index + 0.5) / probes)));
  const tokenProbes = spread(tokens);
  const accountProbes = Array.from({ length: probes }, () => probe(pick(accounts, skewed())));
  const hashes: { hash: Felt; keys: string[] }[] = [];
  const hashEvery = Math.max(1, Math.floor((blocks * perBlock) / 2 / (2 * probes)));

  const made = { transfers: 0, blocks: 0 };
  let transactions = 0;

  const note = (felt: Felt, key: string): void => {
    const found = known.get(felt);
    if (found === undefined) return;
    found.transfers += 1;
    found.newest.unshift(key);
    if (found.newest.length > REMEMBERED) found.newest.pop();
  };
  const record = (height: number, { token, from, to, position }: Transfer): void => {
    const key = `${height}:${position}`;
    for (const felt of new Set([token, from, to])) note(felt, key);
    made.transfers += 1;
  };

  function transaction(height: number, txIndex: number): Transfer[] {
    const txHash = hashOf(`transaction ${transactions}`);
    const tokenIndex = Math.floor(skewed() * TOKENS);
    const isNft = tokenIndex % 10 === 9;
    const from = pick(accounts, skewed());
    const fee = 1_000_000_000_000_000n + BigInt(Math.floor(random() * 1e15));
    const common = {
      txIndex,
      item: 0,
      txHash,
      executionStatus: 'SUCCEEDED' as const,
      fee,
      feeToken: STRK_TOKEN,
    };
    const moved: Transfer = {
      ...common,
      token: pick(tokens, (tokenIndex + 0.5) / TOKENS),
      kind: isNft ? 'erc721' : 'erc20',
      from,
      to: pick(accounts, skewed()),
      amount: isNft ? 1n : BigInt(Math.floor(random() * 1e15)) * 1_000_003n,
      tokenId: isNft ? BigInt(Math.floor(random() * 10_000)) : null,
      position: 2 * txIndex,
      eventInTx: 0,
      isFee: false,
    };
    const paid: Transfer = {
      ...common,
      token: STRK_TOKEN,
      kind: 'erc20',
      from,
      to: SEQUENCER,
      amount: fee,
      tokenId: null,
      position: 2 * txIndex + 1,
      eventInTx: 1,
      isFee: true,
    };
    if (transactions % hashEvery === 0)
      hashes.push({ hash: txHash, keys: [`${height}:${paid.position}`, `${height}:${moved.position}`] });
    transactions += 1;
    return [moved, paid];
  }

  return {
    made,
    tokens: tokenProbes,
    accounts: accountProbes,
    half,
    busiest,
    hashes,
    block(height, seq) {
      const transfers = Array.from({ length: perBlock / 2 }, (_, index) => transaction(height, index)).flat();
      for (const transfer of transfers) record(height, transfer);
      made.blocks += 1;
      return madeBlock(height, seq, transfers);
    },
  };
}

/** A unique felt, hashed from a text. */
export function hashOf(text: string): Felt {
  return toFelt(BigInt(`0x${createHash('sha256').update(text).digest('hex').slice(2)}`));
}

/** A decoded block with these transfers. */
export function madeBlock(height: number, seq: number, transfers: Transfer[]): BlockItem {
  return {
    message: {
      type: 'block.accepted',
      v: 1,
      seq,
      cause: 'new',
      chunk: 'bench',
      block: {
        height,
        hash: hashOf(`block ${height}`),
        parent_hash: hashOf(`block ${height - 1}`),
        timestamp: FIRST_TIME + 2 * height,
        sequencer_address: SEQUENCER,
        starknet_version: '0.14.0',
        transaction_count: null,
        event_count: null,
        // Projectors read only the transfers; raw events stay in the log.
        transactions: [],
      },
      contracts: {},
    },
    decoded: { transfers, malformed: [] },
    partition: partitionOfHeight(height),
    offset: height,
  };
}
