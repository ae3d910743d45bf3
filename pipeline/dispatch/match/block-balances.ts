import { z } from 'zod';

import type { Publisher } from '../../../infra/kafka/client.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { pollUntil } from '../../../infra/retry.ts';
import { balancesAt } from '../../../projections/balances-at.ts';
import { chainReads, pairKey } from '../../../projections/balances/queries.ts';
import type { Pair } from '../../../projections/balances/queries.ts';
import { blocksAt, newestRun } from '../../../projections/indexed-blocks/queries.ts';
import { hasDeltas, isReadable } from '../../../schemas/balance.ts';
import type { PairFacts } from '../../../schemas/balance.ts';
import { requestSubject } from '../../../schemas/messages/requests.ts';
import { topics } from '../../../schemas/topics.ts';
import type { MatchDeps } from '../deps.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import { readBuilt } from './read-built.ts';

const POLL_MS = 100;
/** Longest wait for balances that were requested from the chain. */
const CHAIN_WITHIN_MS = 8000;
/** After a wait in which none of the requested pairs was read, waits are short for this time: the node may be unavailable. */
const CHAIN_RETRY_MS = 60_000;
const CHAIN_WITHIN_MS_OF_RETRY = 1000;
/** Longest wait for a block that is being replaced to leave the index; then it counts as no longer indexed. */
const REORG_WITHIN_MS = 10_000;

interface Block {
  readonly height: number;
  readonly hash: string;
}
type Subject = Pair & PairFacts;
interface FoundBalance {
  /** null: unknown. */
  readonly balance: bigint | null;
  /** When the newest read of the pair from the chain was requested, unix milliseconds; 0: never read. */
  readonly requestedAt: number;
}
/** Balances after a block, by `pairKey`. */
type Found = ReadonlyMap<string, FoundBalance>;
/** The index lacks a block between this one and the newest: no balance after this one is known. */
interface Gap {
  /** The highest missing height. */
  readonly gap: number;
}

/**
 * Returns a function that reads balances after a block, by `pairKey`, null for an unknown one; null where the block is no
 * longer indexed, a gap where blocks above it are missing. Unknown balances are requested from the chain, and waited for
 * until each pair has been read or refused: a balance can stay unknown after that.
 */
export function createBalanceReader(
  deps: MatchDeps & { readonly publisher: Pick<Publisher, 'publish'> },
): (block: Block, subjects: readonly Subject[]) => Promise<ReadonlyMap<string, bigint | null> | Gap | null> {
  const { clock, signal } = deps;
  let retryChainAt = 0;
  const find = async (block: Block, subjects: readonly Subject[]): Promise<Found | Gap | null> => {
    const before = await findUnlessReorg(deps, block, subjects);
    if (before === null || 'gap' in before) return before;
    const unknown = subjects.filter(
      (subject) =>
        isReadable(subject) && hasDeltas(subject) && before.get(pairKey(subject))?.balance === null,
    );
    if (unknown.length === 0) return before;
    const requestedAt = await requestFromChain(deps, unknown);
    const unanswered = (found: Found): readonly Pair[] =>
      unknown.filter((pair) => {
        const one = found.get(pairKey(pair));
        return one?.balance === null && one.requestedAt < requestedAt;
      });
    const after = await pollUntil(
      async () => await findUnlessReorg(deps, block, subjects),
      (found) => found === null || 'gap' in found || unanswered(found).length === 0,
      {
        everyMs: POLL_MS,
        withinMs: clock.now() < retryChainAt ? CHAIN_WITHIN_MS_OF_RETRY : CHAIN_WITHIN_MS,
        clock,
        signal,
      },
    );
    if (after === null || 'gap' in after) return after;
    retryChainAt = unanswered(after).length < unknown.length ? 0 : clock.now() + CHAIN_RETRY_MS;
    return after;
  };
  return async (block, subjects) => {
    const found = await find(block, subjects);
    if (found === null || 'gap' in found) return found;
    return new Map([...found].map(([pair, { balance }]) => [pair, balance]));
  };
}

/** Waits while the block is being replaced; null where it is no longer indexed. */
async function findUnlessReorg(
  deps: MatchDeps,
  block: Block,
  subjects: readonly Subject[],
): Promise<Found | Gap | null> {
  const { clock, signal } = deps;
  const find = async (): Promise<Found | Gap | null | 'reorg'> =>
    await readBuilt(deps, async (served) => await balancesAfter(deps, served, block, subjects));
  const found = await pollUntil(find, (one) => one !== 'reorg', {
    everyMs: POLL_MS,
    withinMs: REORG_WITHIN_MS,
    clock,
    signal,
  });
  return found === 'reorg' ? null : found;
}

/** Returns the time of the requests, unix milliseconds: a read made for one of them has at least this `requested_at`. */
async function requestFromChain(
  { publisher, clock }: { readonly publisher: Pick<Publisher, 'publish'> } & Pick<MatchDeps, 'clock'>,
  pairs: readonly Pair[],
): Promise<number> {
  const requestedAt = clock.wallTime();
  await publisher.publish(
    topics.requests,
    pairs.map(({ account, token }) => {
      const value = { type: 'balance.requested' as const, v: 1 as const, account, token };
      return { key: requestSubject(value), value: { ...value, requested_at: requestedAt } };
    }),
  );
  return requestedAt;
}

/** `reorg`: the block is being replaced. */
async function balancesAfter(
  { pool, clickhouse }: MatchDeps,
  served: ServedBuilds,
  { height, hash }: Block,
  pairs: readonly Subject[],
): Promise<Found | Gap | null | 'reorg'> {
  const readsOf = await chainReads(pool, served, pairs);
  const all = pairs.map((pair) => ({ ...pair, anchors: readsOf(pair).anchors }));
  const requestedAt = (pair: Pair): number => {
    const { anchors, refusal } = readsOf(pair);
    return Math.max(refusal?.requestedAt ?? 0, ...anchors.map((anchor) => anchor.requestedAt));
  };
  const heights = [height, ...all.flatMap(({ anchors }) => anchors.map(({ block }) => block))];
  const [run, blocks] = await Promise.all([
    newestRun(clickhouse, served),
    blocksAt(clickhouse, served, heights),
  ]);
  if (run === null || blocks.get(height)?.hash !== hash) return null;
  // Anchors of other forks are at heights of indexed blocks, too.
  let subjects = all.map((one) => ({
    ...one,
    anchors: one.anchors.filter((anchor) => blocks.get(anchor.block)?.hash === anchor.hash),
  }));
  // A reorg changes the ledger before the index of blocks, but the ingester plans it before either: so its plan is read after
  // the ledger. A block that stays may have newer anchors that do not; it is computed without them.
  for (;;) {
    const found = await balancesAt({ clickhouse, blocksAt: async () => blocks }, served, subjects, {
      points: [{ height, run: { start: run.start, end: run.head.height } }],
      // The block does not count as the head: a newer anchor must not stand for the balance right after it.
      head: Number.POSITIVE_INFINITY,
    });
    const anchors = subjects.flatMap((one) => one.anchors);
    const replaced = await replacedHeights(pool, [
      { height, hash },
      ...anchors.map((anchor) => ({ height: anchor.block, hash: anchor.hash })),
    ]);
    if (replaced.has(height)) return 'reorg';
    if (replaced.size === 0) {
      // The ledger was read of this block only if it still is the indexed one.
      if ((await blocksAt(clickhouse, served, [height])).get(height)?.hash !== hash) return null;
      if (height < run.start) return { gap: run.start - 1 };
      return new Map(
        pairs.map((pair, i) => [
          pairKey(pair),
          { balance: found[i]?.balances[0] ?? null, requestedAt: requestedAt(pair) },
        ]),
      );
    }
    subjects = subjects.map((one) => ({
      ...one,
      anchors: one.anchors.filter(({ block }) => !replaced.has(block)),
    }));
  }
}

/**
 * The heights, of these published blocks, that the ingester is replacing: it has marked the block for revert, recorded
 * another at its height, or moved its cursor back and has none there. A block that is neither recorded nor above the cursor
 * is final.
 */
async function replacedHeights(db: Sql, blocks: readonly Block[]): Promise<ReadonlySet<number>> {
  const found = await sqlRows(
    db,
    z.object({ height: z.number() }),
    `SELECT used.height
     FROM unnest($1::bigint[], $2::text[]) AS used (height, hash)
     JOIN tds.chunks c ON used.height >= c.range_start AND (c.range_end IS NULL OR used.height <= c.range_end)
     LEFT JOIN tds.recorded_blocks r ON r.chunk = c.name AND r.height = used.height
     WHERE CASE WHEN r.height IS NULL THEN used.height >= c.cursor
           ELSE r.intent = 'revert' OR r.hash <> used.hash END`,
    [blocks.map(({ height }) => height), blocks.map(({ hash }) => hash)],
  );
  return new Set(found.map(({ height }) => height));
}
