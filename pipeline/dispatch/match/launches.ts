import { jsonOf } from '../../../infra/json.ts';
import { pollUntil } from '../../../infra/retry.ts';
import { blocksAt, placeOfBlock } from '../../../projections/indexed-blocks/queries.ts';
import { tokensByAddress } from '../../../projections/tokens/queries.ts';
import type { TokenRow } from '../../../projections/tokens/queries.ts';
import { firstTransferIn } from '../../../projections/transfers/queries.ts';
import { launchSubscribers, lowestFromBlock } from '../../../projections/webhooks/queries.ts';
import { decodeEvent } from '../../../schemas/decode/event.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { RawEvent } from '../../../schemas/messages/chain-blocks.ts';
import type { TokensMessage } from '../../../schemas/messages/tokens.ts';
import { decimalsOf } from '../../../schemas/money.ts';
import { topics } from '../../../schemas/topics.ts';
import { insertDeliveries } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { bodyText } from './body.ts';
import type { MatchDeps } from '../deps.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import { deliveryId } from './identity.ts';
import type { Matcher } from './matcher.ts';
import { chainLogEnds, progressAtHeight } from './projection-progress.ts';
import { readBuilt } from './read-built.ts';

type Described = Extract<TokensMessage, { type: 'token.described' }>;

const EVENT = 'token.launched';
/** Longest wait in a batch for the block in which a token was first seen; after that the partition is paused. */
const INDEXED_WITHIN_MS = 10_000;
const POLL_MS = 100;

/** What the read models know of a new token; null: not indexed. */
interface Launch {
  /** Of its first transfer in the block; where all of its events are malformed, of the first of those. */
  readonly txhash: string | null;
  /** Unix seconds. */
  readonly timestamp: number | null;
  readonly token: TokenRow | undefined;
}

/**
 * `token.launched`: a token that was first seen above the webhook's `from_block`, sent once that block is indexed. A block that
 * is not indexed within 10 s pauses the partition, as for `balance.changed`. The time is null only where the index has read past
 * the block and does not have it: a reorg left none at its height, or an operator made it skip the message.
 */
export function launchMatcher(deps: MatchDeps): Matcher<TokensMessage> {
  const { pool, webhooks, since, clock, metrics, signal } = deps;
  return {
    name: 'launches',
    topic: topics.tokens,
    concurrency: 1,
    since,
    async open() {
      const schema = await webhooks();
      if (schema === null || (await lowestFromBlock(pool, schema, [EVENT])) === null) return null;
      return {
        isRelevant: () => true,
        async match(message, logged) {
          // A contract of unknown standard does not count as a token.
          if (message.type !== 'token.described' || message.standard === 'unknown') return null;
          if (message.cause === 'repair') return null;
          const { token, block } = message;
          const ids = await launchSubscribers(pool, schema, { token, height: block });
          if (ids.length === 0) return null;
          // A token is described after its block was logged.
          const ends = await chainLogEnds(deps);
          const progress = progressAtHeight(deps, ['indexed-blocks'], block, ends);
          // Read before the tables: once it is projected, they have the block.
          const { state, launch } = await pollUntil(
            async () => ({ ...(await progress()), launch: await readLaunch(deps, message) }),
            (found) => found.launch.timestamp !== null || found.state === 'projected',
            { everyMs: POLL_MS, withinMs: INDEXED_WITHIN_MS, clock, signal },
          );
          if (launch.timestamp === null && state !== 'projected') return { offset: logged.offset, progress };
          const createdAt = clock.wallTime();
          const body = launchBody(message, launch, createdAt);
          const deliveries = ids.map((webhookId): NewDelivery => ({
            id: deliveryId(webhookId, EVENT, token),
            webhookId,
            event: EVENT,
            body,
            createdAt,
          }));
          return async (tx) => {
            await insertDeliveries(tx, deliveries);
            metrics.matched.inc({ event: EVENT }, deliveries.length);
          };
        },
      };
    },
  };
}

async function readLaunch(deps: MatchDeps, message: Described): Promise<Launch> {
  const { pool, clickhouse } = deps;
  const { token, block } = message;
  return await readBuilt(deps, async (served) => {
    const [blocks, first, tokens] = await Promise.all([
      blocksAt(clickhouse, served, [block]),
      firstTransferIn(clickhouse, served, { token, block }),
      tokensByAddress(pool, served.schema('tokens'), [token]),
    ]);
    const timestamp = blocks.get(block)?.timestamp ?? null;
    const txhash = first ?? (timestamp === null ? null : await firstEventIn(deps, served, message));
    return { txhash, timestamp, token: tokens.get(token) };
  });
}

/**
 * The transaction of a token's first event in an indexed block, read from the log: a malformed event is in no table of
 * transfers.
 */
async function firstEventIn(
  { clickhouse, kafka, signal }: MatchDeps,
  served: ServedBuilds,
  { token, standard, block }: Described,
): Promise<Felt | null> {
  const at = await placeOfBlock(clickhouse, served, block);
  if (at === null) return null;
  const topic = topics.chainBlocks;
  for await (const { value } of kafka.readRange(topic, at.partition, at.offset, at.offset + 1, signal)) {
    const message = topic.schema.safeParse(jsonOf(value)).data;
    if (message?.block.height !== block) break;
    const isOfToken = (event: RawEvent): boolean =>
      event.from_address === token && decodeEvent(event, standard) !== null;
    return message.block.transactions.find(({ events }) => events.some(isOfToken))?.hash ?? null;
  }
  return null;
}

function launchBody(message: Described, launch: Launch, createdAt: number): string {
  const { token, standard, block, name, symbol, decimals } = message;
  return bodyText(EVENT, createdAt, {
    token_address: token,
    symbol: symbol ?? '',
    name: name ?? '',
    decimals: decimalsOf(decimals, standard),
    logo: launch.token?.logo ?? null,
    is_erc20: standard === 'erc20',
    is_erc721: standard === 'erc721',
    is_erc1155: standard === 'erc1155',
    verified: launch.token?.verified ?? false,
    block,
    txhash: launch.txhash,
    timestamp: launch.timestamp,
  });
}
