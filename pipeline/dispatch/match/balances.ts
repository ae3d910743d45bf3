import type { LogMessage, Publisher } from '../../../infra/kafka/client.ts';
import { pollUntil } from '../../../infra/retry.ts';
import { pairKey } from '../../../projections/balances/queries.ts';
import type { Pair } from '../../../projections/balances/queries.ts';
import { pricesAtTimes } from '../../../projections/prices/queries.ts';
import { tokensByAddress } from '../../../projections/tokens/queries.ts';
import { lowestFromBlock, subscribersTo } from '../../../projections/webhooks/queries.ts';
import { addDelta, hasDeltas } from '../../../schemas/balance.ts';
import type { PairFacts } from '../../../schemas/balance.ts';
import { decodeBlock, eventIndex } from '../../../schemas/decode/index.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import type { BlockAccepted, ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { decimalsOf, valueText } from '../../../schemas/money.ts';
import { topics } from '../../../schemas/topics.ts';
import { createBalanceReader } from './block-balances.ts';
import { bodyText } from './body.ts';
import type { MatchDeps } from '../deps.ts';
import { pairSubject, transferSubject } from './identity.ts';
import { lockMatcher } from './inclusions.ts';
import type { Matcher, MatchPlan } from './matcher.ts';
import { notifyBalances, revertBalances } from './notified-balances.ts';
import type { BalanceChange } from './notified-balances.ts';
import type { Blocked } from './paused-partitions.ts';
import { chainLogEnds, isSkipped, progressAtHeight, projectionProgress } from './projection-progress.ts';
import { readBuilt } from './read-built.ts';
import { distinctSubjects, indexSubscribers } from './subjects.ts';
import type { EventSubject } from './subjects.ts';

const NAME = 'balances';
const EVENT = 'balance.changed';
const POLL_MS = 25;
/** Longest wait in a batch for the projections; after that the partition is paused. */
const PROJECTED_WITHIN_MS = 10_000;
/** The balances of a block are computed from these. */
const PROJECTIONS = ['account-ledger', 'indexed-blocks'];
/** Blocks matched concurrently: each waits for several stores in turn. */
const CONCURRENCY = 8;

/** One side of a transfer, in the order of the chain. */
interface Leg {
  readonly pair: Pair;
  readonly delta: bigint;
  readonly transfer: Transfer;
}

/** Balances around one leg; null: unknown. */
interface Around {
  readonly before: bigint | null;
  readonly after: bigint | null;
}

/**
 * `balance.changed`: the balance right after each transfer, as the balance history shows it, sent once the ledger and the
 * index of blocks have projected the block.
 *
 * - A balance that the ledger does not know is requested from the chain first. It is null where that takes more than 8 s, or
 *   1 s while the node answers no request, and where the chain has no such balance, or its answer does not determine it.
 * - A block that is not projected within 10 s, or that is behind a halted projection, pauses its partition: an alarm names
 *   the halt, other partitions and events continue, and matching resumes at that block once it is projected. No event is
 *   dropped. Only a block whose message an operator makes the projections skip is never notified: its balances are unknown.
 * - A block below a gap in the index waits in the same way for the blocks that the log has there, but not for a halted
 *   projection. Its balances are null where the gap stays.
 * - A stop during a wait abandons the batch: nothing is committed, and the next dispatcher begins with that block.
 */
export function balanceMatcher(
  deps: MatchDeps & { readonly publisher: Pick<Publisher, 'publish'> },
): Matcher<ChainBlocksMessage> {
  const { pool, webhooks, since } = deps;
  const match = createBlockMatch(deps);
  return {
    name: NAME,
    topic: topics.chainBlocks,
    concurrency: CONCURRENCY,
    since,
    async open() {
      const schema = await webhooks();
      const fromBlock = schema === null ? null : await lowestFromBlock(pool, schema, [EVENT]);
      if (schema === null || fromBlock === null) return null;
      return {
        isRelevant: ({ key }) => key === null || Number(key) > fromBlock,
        async match(message, logged) {
          // A repair changes what is known of a contract, not the chain.
          if (message.cause === 'repair') return null;
          if (message.type === 'block.accepted') return await match(message, logged, schema);
          const { seq } = message;
          const { hash, height } = message.block;
          return async (tx) => {
            await lockMatcher(tx, NAME);
            await revertBalances(tx, { height, hash, seq });
          };
        },
      };
    },
  };
}

/** Matches an accepted block. */
function createBlockMatch(
  deps: MatchDeps & { readonly publisher: Pick<Publisher, 'publish'> },
): (message: BlockAccepted, logged: LogMessage, schema: string) => Promise<MatchPlan | Blocked | null> {
  const { pool, clock, metrics, log } = deps;
  const readBalances = createGapWait(deps, createBalanceReader(deps));
  return async (message, logged, schema) => {
    const { seq } = message;
    const { hash, height, timestamp } = message.block;
    const { legs, webhooksOf } = await matchLegs(deps, message, schema);
    if (legs.length === 0) return null;
    const blocked = await untilProjected(
      deps,
      logged,
      async () => await projectionProgress(pool, PROJECTIONS, logged),
    );
    if (blocked !== null) return blocked;
    const pairs = await unlessUnknown(deps, pairsOf(legs));
    const balances = await readBalances(message.block, pairs, logged);
    if (balances !== null && 'progress' in balances) return balances;
    if (balances === null) {
      // Another block has the height, and has changes of its own; or an operator had this one skipped.
      if (await isSkipped(pool, PROJECTIONS, logged)) {
        const { partition, offset } = logged;
        log.warn({ partition, offset, height }, 'balance.changed not sent: projections skipped the block');
      }
      return null;
    }
    const facts = await readTokenFacts(deps, pairs, timestamp);
    const createdAt = clock.wallTime();
    const around = balancesAround(legs, balances);
    function* changes(): Iterable<BalanceChange> {
      for (const [i, leg] of legs.entries()) {
        const change = changeOf(message, leg, around[i] ?? UNKNOWN, { createdAt, ...facts(leg) });
        for (const webhookId of webhooksOf(leg)) yield { webhookId, ...change };
      }
    }
    return async (tx) => {
      await lockMatcher(tx, NAME);
      metrics.matched.inc({ event: EVENT }, await notifyBalances(tx, { hash, seq }, changes()));
    };
  };
}

/** The legs that some webhooks are notified of, and those webhooks. */
async function matchLegs(
  { pool }: MatchDeps,
  message: BlockAccepted,
  schema: string,
): Promise<{ legs: Leg[]; webhooksOf: (leg: Leg) => ReadonlySet<number> }> {
  const legs = decodeBlock(message.block, message.contracts).transfers.flatMap(legsOf);
  const about = ({ pair }: Leg): EventSubject => ({ token: pair.token, accounts: [pair.account] });
  const subscribers = await subscribersTo(
    pool,
    schema,
    EVENT,
    message.block.height,
    distinctSubjects(legs.map(about)),
  );
  const find = indexSubscribers(subscribers);
  const webhooksOf = (leg: Leg): ReadonlySet<number> => find(about(leg));
  return { legs: legs.filter((leg) => webhooksOf(leg).size > 0), webhooksOf };
}

/** Null once the progress is `projected`; gives up at a halt, or after `PROJECTED_WITHIN_MS`. */
async function untilProjected(
  { clock, signal }: Pick<MatchDeps, 'clock' | 'signal'>,
  { offset }: LogMessage,
  progress: Blocked['progress'],
): Promise<Blocked | null> {
  const { state } = await pollUntil(progress, (found) => found.state !== 'behind', {
    everyMs: POLL_MS,
    withinMs: PROJECTED_WITHIN_MS,
    clock,
    signal,
  });
  return state === 'projected' ? null : { offset, progress };
}

/** A wait for the blocks of a gap, up to where the log ended when it began. */
interface GapWait extends Pick<Blocked, 'progress'> {
  readonly gap: number;
  /** By partition. */
  readonly ends: ReadonlyMap<number, number>;
}

/**
 * Returns a function that reads balances after a block. If blocks between it and the newest are missing, it first waits
 * until the projections have read the partition of the missing blocks up to an end of the log that was seen after the
 * block was logged, or are halted in it. A gap that is still there leaves all balances unknown.
 */
export function createGapWait(
  deps: Pick<MatchDeps, 'kafka' | 'pool' | 'clock' | 'signal'>,
  readBalances: ReturnType<typeof createBalanceReader>,
): (
  block: BlockAccepted['block'],
  pairs: readonly (Pair & PairFacts)[],
  logged: LogMessage,
) => Promise<ReadonlyMap<string, bigint | null> | Blocked | null> {
  // Kept for blocks that were logged by then, such as one that is matched again after it was blocked: later ends of the log are
  // not waited for.
  let latest: GapWait | null = null;
  const waitFor = async (gap: number, { partition, offset }: LogMessage): Promise<GapWait> => {
    if (latest?.gap === gap && offset < (latest.ends.get(partition) ?? 0)) return latest;
    const ends = await chainLogEnds(deps);
    return (latest = { gap, ends, progress: progressUntilHalt(deps, gap, ends) });
  };
  return async (block, pairs, logged) => {
    let passed: number | null = null;
    for (;;) {
      const found = await readBalances(block, pairs);
      if (found === null || !('gap' in found)) return found;
      const { gap } = found;
      if (gap === passed) return new Map();
      const { progress } = await waitFor(gap, logged);
      const blocked = await untilProjected(deps, logged, progress);
      if (blocked !== null) return blocked;
      passed = gap;
    }
  };
}

/** Progress at a height; a halted projection counts as done. */
function progressUntilHalt(
  deps: Pick<MatchDeps, 'pool'>,
  height: number,
  ends: ReadonlyMap<number, number>,
): Blocked['progress'] {
  const progress = progressAtHeight(deps, PROJECTIONS, height, ends);
  return async () => {
    const found = await progress();
    return found.state === 'halted' ? { state: 'projected' } : found;
  };
}

/**
 * A new block may know the standard of a contract that was unknown before: until the earlier blocks are repaired, the ledger
 * lacks their legs.
 */
async function unlessUnknown(
  deps: MatchDeps,
  pairs: readonly (Pair & PairFacts)[],
): Promise<readonly (Pair & PairFacts)[]> {
  const addresses = pairs.map(({ token }) => token);
  const tokens = await readBuilt(
    deps,
    async (served) => await tokensByAddress(deps.pool, served.schema('tokens'), addresses),
  );
  return pairs.map((pair) =>
    tokens.get(pair.token)?.standard === 'unknown' ? { ...pair, standard: 'unknown' } : pair,
  );
}

/** Decimals of tokens, and their prices at the time of the block. */
async function readTokenFacts(
  deps: MatchDeps,
  pairs: readonly Pair[],
  timestamp: number,
): Promise<(leg: Leg) => { readonly price: string | null; readonly decimals: number }> {
  const addresses = pairs.map(({ token }) => token);
  const [[prices], tokens] = await readBuilt(
    deps,
    async (served) =>
      await Promise.all([
        pricesAtTimes(deps.clickhouse, served, addresses, [timestamp * 1000]),
        tokensByAddress(deps.pool, served.schema('tokens'), addresses),
      ]),
  );
  return ({ pair: { token }, transfer }) => ({
    price: prices?.get(token) ?? null,
    decimals: decimalsOf(tokens.get(token)?.decimals ?? null, transfer.kind),
  });
}

const UNKNOWN: Around = { before: null, after: null };

/** None where no balance changes: a transfer to oneself or of nothing, and one whose token has no computable balance. */
function legsOf(transfer: Transfer): Leg[] {
  const { token, from, to, kind, amount } = transfer;
  if (from === to || amount === 0n) return [];
  const sides = [
    { account: from, delta: -amount },
    { account: to, delta: amount },
  ];
  return sides
    .filter(({ account }) => hasDeltas({ account, standard: kind }))
    .map(({ account, delta }) => ({ pair: { account, token }, delta, transfer }));
}

function pairsOf(legs: readonly Leg[]): (Pair & PairFacts)[] {
  return [
    ...new Map(
      legs.map(({ pair, transfer }) => [pairKey(pair), { ...pair, standard: transfer.kind }]),
    ).values(),
  ];
}

/** Backwards from the balances after the block. Either all legs of a pair are matched, or none is. */
function balancesAround(
  legs: readonly Leg[],
  balances: ReadonlyMap<string, bigint | null>,
): readonly Around[] {
  const balanceAfter = new Map(balances);
  return legs
    .toReversed()
    .map(({ pair, delta }): Around => {
      const key = pairKey(pair);
      const after = balanceAfter.get(key) ?? null;
      const before = after === null ? null : addDelta(after, -delta);
      balanceAfter.set(key, before);
      return { before, after };
    })
    .toReversed();
}

function changeOf(
  { block }: BlockAccepted,
  { pair, delta, transfer }: Leg,
  { before, after }: Around,
  {
    createdAt,
    price,
    decimals,
  }: { readonly createdAt: number; readonly price: string | null; readonly decimals: number },
): Omit<BalanceChange, 'webhookId'> {
  const text = (balance: bigint | null): string | null => (balance === null ? null : String(balance));
  const body = bodyText(EVENT, createdAt, {
    account_address: pair.account,
    token_address: pair.token,
    balance: text(after),
    previous_balance: text(before),
    change: String(delta),
    balance_usd: price === null || after === null ? null : valueText(after, decimals, price),
    token_price_usd: price,
    block: block.height,
    event_index: eventIndex(transfer.position, transfer.item),
    txhash: transfer.txHash,
    timestamp: block.timestamp,
  });
  // In another fork the same transfer may lead to another balance, which is another event.
  const parts = [transferSubject(transfer), pair.account, text(before) ?? '', text(after) ?? ''];
  return { pair: pairSubject(pair.account, pair.token), parts, body, createdAt };
}
