import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { ChainReads, Pair } from '../../projections/balances/queries.ts';
import { blocksAt } from '../../projections/indexed-blocks/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { hasDeltas } from '../../schemas/balance.ts';
import type { AsOf } from '../http/as-of.ts';
import type { CoverageReader } from './coverage.ts';

const NONE: ChainReads = { anchors: [], refusal: null };

/**
 * What balances may be based on. As of a block, that must be the same in every answer: where the index reaches back to
 * block 0, only transfers; elsewhere the oldest read of the chain since the index begins, which no newer one replaces.
 */
export async function boundReads<
  T extends { readonly pair: Pair; readonly token: TokenRow | undefined; readonly reads: ChainReads },
>(
  {
    asOf,
    coverage,
    clickhouse,
    served,
  }: {
    readonly asOf: AsOf | null;
    readonly coverage: CoverageReader;
    readonly clickhouse: ClickHouse;
    readonly served: ServedBuilds;
  },
  known: readonly T[],
): Promise<readonly T[]> {
  if (asOf === null) return known;
  const start = (await coverage.read(clickhouse, served))?.run.start ?? 0;
  if (start === 0) return known.map((one) => ({ ...one, reads: NONE }));
  const heights = known
    .flatMap(({ reads }) => reads.anchors.map(({ block }) => block))
    .filter((block) => block >= start && block <= asOf.height);
  const blocks = await blocksAt(clickhouse, served, heights);
  return known.map((one) => {
    const inRun = one.reads.anchors.filter(
      ({ block, hash, isKept }) =>
        isKept && block >= start && block <= asOf.height && blocks.get(block)?.hash === hash,
    );
    const facts = { account: one.pair.account, standard: one.token?.standard ?? null };
    const oldest = hasDeltas(facts) ? inRun.at(-1) : undefined;
    // The balance is that of the block, whenever the chain was read.
    const anchors = oldest === undefined ? [] : [{ ...oldest, observedAt: asOf.timestamp * 1000 }];
    return { ...one, reads: { anchors, refusal: null } };
  });
}
