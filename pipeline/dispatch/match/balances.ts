import type { LogMessage, Publisher } from '../../../infra/kafka/client.ts';
import { movedWithin } from '../../../projections/account-ledger/queries.ts';
import { chainReads, pairKey } from '../../../projections/balances/queries.ts';
import type { Anchor, Pair } from '../../../projections/balances/queries.ts';
import { blocksAt, newestRun } from '../../../projections/indexed-blocks/queries.ts';
import { pricesAtTimes } from '../../../projections/prices/queries.ts';
import { tokensByAddress } from '../../../projections/tokens/queries.ts';
import type { TokenRow } from '../../../projections/tokens/queries.ts';
import { subscribersTo, wantedAbove } from '../../../projections/webhooks/queries.ts';
import { addDelta, balanceAt, chooseBasis, hasDeltas, legsBetween } from '../../../schemas/balance.ts';
import type { PairFacts } from '../../../schemas/balance.ts';
import { decodeBlock, eventIndex } from '../../../schemas/decode/index.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BlockAccepted, ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { requestSubject } from '../../../schemas/messages/requests.ts';
import { decimalsOf, worth } from '../../../schemas/money.ts';
import { topics } from '../../../schemas/topics.ts';
import { bodyText } from './body.ts';
import { BLOCK_BYTES } from './deps.ts';
import type { MatchDeps, Served } from './deps.ts';
import { pairSubject, transferSubject } from './identity.ts';
import { oneAtATime } from './landings.ts';
import type { Matcher } from './matcher.ts';
import type { Blocked } from './paused-partitions.ts';
import { isSkipped, projectionProgress } from './projection-progress.ts';
import type { ProjectionProgress } from './projection-progress.ts';
import { subjectsOf, webhooksBySubject } from './subjects.ts';
import { takeBackBalances, tellBalances } from './told-balances.ts';
import type { ToldBalance } from './told-balances.ts';

const NAME = 'balances';
const POLL_MS = 25;
/** Longest wait in a batch for the projections; after that the partition is paused. */
const PROJECTED_WITHIN_MS = 10_000;
/** What the balances of a block are computed from. */
const PROJECTIONS = ['account-ledger', 'indexed-blocks'];
/** Longest wait for a balance that has to be read from the chain. */
const CHAIN_MS = 8000;
/** Blocks: each waits for several stores in turn. */
const AT_ONCE = 8;
/** After a wait in vain nothing is waited for so long: the node may be away. */
const REST_MS = 60_000;

/** One side of a transfer, in the order of the chain. */
interface Leg {
  readonly pair: Pair;
  readonly delta: bigint;
  readonly transfer: Transfer;
}

interface Change extends Leg {
  readonly webhooks: ReadonlySet<number>;
}

/** Balances around one leg; null: not known. */
interface Around {
  readonly before: bigint | null;
  readonly after: bigint | null;
}

/**
 * `balance.changed`: the balance right after each transfer, as the balance history shows it, sent once the ledger and the
 * index of blocks have projected the block.
 *
 * - A balance that the ledger does not know is requested from the chain first; it is null where that takes more than 8 s.
 * - A block that is not projected within 10 s, or stands behind a halted projection, pauses its partition: an alarm names
 *   the halt, other partitions and events go on, and matching resumes at that block once it is projected. No event is
 *   dropped. Only a block whose message an operator makes the projections skip is never notified: its balances are unknown.
 * - A stop while it waits abandons the batch: nothing is committed, and the next dispatcher begins with that block.
 */
export function balanceMatcher(
  deps: MatchDeps & { readonly publisher: Pick<Publisher, 'publish'> },
): Matcher<ChainBlocksMessage> {
  const { pool, clickhouse, webhooks, whereServed, since, clock, metrics, publisher, log, signal } = deps;
  let restUntil = 0;

  async function changes(message: BlockAccepted, schema: string): Promise<Change[]> {
    const legs = decodeBlock(message.block, message.contracts).transfers.flatMap(legsOf);
    const happenings = legs.map(({ pair }) => ({ token: pair.token, accounts: [pair.account] }));
    const asked = subjectsOf(happenings);
    const subscribers = await subscribersTo(pool, schema, 'balance.changed', message.block.height, asked);
    const concerned = webhooksBySubject(subscribers);
    return legs.flatMap((leg, i) => {
      const happening = happenings[i];
      const found = happening === undefined ? new Set<number>() : concerned(happening);
      return found.size === 0 ? [] : [{ ...leg, webhooks: found }];
    });
  }

  const progressOf = async (message: LogMessage): Promise<ProjectionProgress> =>
    await projectionProgress(pool, PROJECTIONS, message);

  /** Null once the message is projected; gives up at a halt, or after `PROJECTED_WITHIN_MS`. */
  async function untilProjected(message: LogMessage): Promise<Blocked | null> {
    const until = clock.now() + PROJECTED_WITHIN_MS;
    for (;;) {
      const { state } = await progressOf(message);
      if (state === 'projected') return null;
      if (state === 'halted' || clock.now() >= until)
        return { offset: message.offset, progress: () => progressOf(message) };
      await clock.sleep(POLL_MS, signal);
      signal.throwIfAborted();
    }
  }

  /** By pair, the balance after a block; null: not known. Nothing where the block is no longer indexed. */
  async function balancesAfter(
    served: Served,
    { height, hash }: { readonly height: number; readonly hash: string },
    pairs: readonly (Pair & PairFacts)[],
  ): Promise<ReadonlyMap<string, bigint | null> | null> {
    const readsOf = await chainReads(pool, served.schema('balances'), pairs);
    const anchors = pairs.map((pair) => readsOf(pair).anchors);
    const heights = [height, ...anchors.flat().map(({ block }) => block)];
    const [run, blocks] = await Promise.all([
      newestRun(clickhouse, served),
      blocksAt(clickhouse, served, heights),
    ]);
    if (run === null || blocks.get(height)?.hash !== hash) return null;
    const reach = { start: run.start, end: run.head.height };
    const bases = pairs.map((pair, i) =>
      height < run.start
        ? ({ from: 'nothing' } as const)
        : chooseBasis<Anchor>(pair, anchors[i] ?? [], (block) => blocks.get(block)?.hash, reach, height),
    );
    const moved = await movedWithin(
      clickhouse,
      served,
      pairs.map((pair, i) => ({ ...pair, ...legsBetween(bases[i] ?? { from: 'nothing' }, height) })),
    );
    // What was read of the ledger is of this block only if it still is the indexed one.
    if ((await blocksAt(clickhouse, served, [height])).get(height)?.hash !== hash) return null;
    return new Map(
      pairs.map((pair, i) => [
        pairKey(pair),
        balanceAt(bases[i] ?? { from: 'nothing' }, pair, height, moved[i] ?? { delta: 0n, legs: 0 }),
      ]),
    );
  }

  /** The same, with what the chain has to tell first; null where the block is gone. */
  async function knownBalances(
    block: BlockAccepted['block'],
    pairs: readonly (Pair & PairFacts)[],
  ): Promise<ReadonlyMap<string, bigint | null> | null> {
    const look = (): Promise<ReadonlyMap<string, bigint | null> | null> =>
      whereServed((served) => balancesAfter(served, block, pairs));
    let found = await look();
    const isWanting = (): boolean => found !== null && [...found.values()].includes(null);
    if (!isWanting() || clock.now() < restUntil) return found;
    const unknown = pairs.filter((pair) => found?.get(pairKey(pair)) === null && pair.standard !== 'erc1155');
    await publisher.publish(
      topics.requests,
      unknown.map(({ account, token }) => {
        const value = { type: 'balance.requested' as const, v: 1 as const, account, token };
        return { key: requestSubject(value), value: { ...value, requested_at: clock.now() } };
      }),
    );
    for (const until = clock.now() + CHAIN_MS; isWanting() && clock.now() < until;) {
      await clock.sleep(4 * POLL_MS, signal);
      signal.throwIfAborted();
      found = await look();
    }
    if (isWanting()) restUntil = clock.now() + REST_MS;
    return found;
  }

  return {
    name: NAME,
    topic: topics.chainBlocks,
    fetchBytes: BLOCK_BYTES,
    atOnce: AT_ONCE,
    since,
    async open() {
      const schema = await webhooks();
      const above = schema === null ? null : await wantedAbove(pool, schema, ['balance.changed']);
      if (schema === null || above === null) return null;
      return {
        wants: ({ key }) => key === null || Number(key) > above,
        async match(message, place) {
          // The chain has not changed: only what is known of a contract.
          if (message.cause === 'repair') return null;
          const { seq } = message;
          const { hash, height } = message.block;
          if (message.type === 'block.reverted')
            return async (tx) => {
              await oneAtATime(tx, NAME);
              await takeBackBalances(tx, { height, hash, seq });
            };
          const found = await changes(message, schema);
          if (found.length === 0) return null;
          const blocked = await untilProjected(place);
          if (blocked !== null) return blocked;
          const pairs = pairsOf(found);
          const balances = await knownBalances(message.block, pairs);
          if (balances === null) {
            // Another block has the height, and the changes in it are its own; or this one is in no read model.
            if (await isSkipped(pool, PROJECTIONS, place)) {
              const { partition, offset } = place;
              log.warn(
                { partition, offset, height },
                'balance.changed not sent: projections skipped the block',
              );
            }
            return null;
          }
          const [prices, tokens] = await pricesAndTokens(pairs, message.block.timestamp);
          const createdAt = clock.now();
          const around = balancesAround(found, balances);
          const told = found.flatMap((change, i) => {
            const { token } = change.pair;
            const row = tokens.get(token);
            const decimals = decimalsOf(row?.decimals ?? null, change.transfer.kind);
            return toldOf(message, change, around[i] ?? UNKNOWN, {
              createdAt,
              price: prices.get(token) ?? null,
              decimals,
            });
          });
          return async (tx) => {
            await oneAtATime(tx, NAME);
            metrics.matched.inc({ event: 'balance.changed' }, await tellBalances(tx, { hash, seq }, told));
          };
        },
      };
    },
  };

  /** Prices as they were when the block was made. */
  async function pricesAndTokens(
    pairs: readonly Pair[],
    timestamp: number,
  ): Promise<readonly [ReadonlyMap<Felt, string>, ReadonlyMap<Felt, TokenRow>]> {
    const addresses = pairs.map(({ token }) => token);
    const found = await whereServed(
      async (served) =>
        await Promise.all([
          pricesAtTimes(clickhouse, served, addresses, [timestamp * 1000]),
          tokensByAddress(pool, served.schema('tokens'), addresses),
        ]),
    );
    return [found?.[0][0] ?? new Map(), found?.[1] ?? new Map()];
  }
}

const UNKNOWN: Around = { before: null, after: null };

/** A transfer to oneself changes nothing, nor does one of nothing; what an unknown contract moves cannot be told. */
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

function pairsOf(changes: readonly Change[]): (Pair & PairFacts)[] {
  return [
    ...new Map(
      changes.map(({ pair, transfer }) => [pairKey(pair), { ...pair, standard: transfer.kind }]),
    ).values(),
  ];
}

/** Going backward from the balances after the block. Every leg of a pair is among the changes, or none is. */
function balancesAround(
  changes: readonly Change[],
  balances: ReadonlyMap<string, bigint | null>,
): readonly Around[] {
  const after = new Map(balances);
  return changes
    .toReversed()
    .map(({ pair, delta }): Around => {
      const key = pairKey(pair);
      const now = after.get(key) ?? null;
      const before = now === null ? null : addDelta(now, -delta);
      after.set(key, before);
      return { before, after: now };
    })
    .toReversed();
}

function toldOf(
  { block }: BlockAccepted,
  { pair, delta, transfer, webhooks }: Change,
  { before, after }: Around,
  {
    createdAt,
    price,
    decimals,
  }: { readonly createdAt: number; readonly price: string | null; readonly decimals: number },
): ToldBalance[] {
  const text = (balance: bigint | null): string | null => (balance === null ? null : String(balance));
  const body = bodyText('balance.changed', createdAt, {
    account_address: pair.account,
    token_address: pair.token,
    balance: text(after),
    previous_balance: text(before),
    change: String(delta),
    balance_usd: price === null || after === null ? null : worth(after, decimals, price),
    token_price_usd: price,
    block: block.height,
    event_index: eventIndex(transfer.position, transfer.item),
    txhash: transfer.txHash,
    timestamp: block.timestamp,
  });
  // The same change of another balance, in another fork, is another event.
  const parts = [transferSubject(transfer), pair.account, text(before) ?? '', text(after) ?? ''];
  const subject = pairSubject(pair.account, pair.token);
  return [...webhooks].map((webhookId) => ({ webhookId, pair: subject, parts, body, createdAt }));
}
