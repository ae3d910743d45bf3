import type { PoolClient } from '../../../infra/postgres/client.ts';
import { lowestFromBlock, revertSubscribers, subscribersTo } from '../../../projections/webhooks/queries.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import type { ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { topics } from '../../../schemas/topics.ts';
import { webhookBody } from '../../../schemas/webhooks/events.ts';
import type { WebhookBodyOf } from '../../../schemas/webhooks/events.ts';
import { insertDeliveries } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { bodyText, transferData } from './body.ts';
import type { MatchDeps } from '../deps.ts';
import { deliveryId, transferSubject } from './identity.ts';
import {
  MAX_REORG_DEPTH,
  lockMatcher,
  lowestRemovalHeight,
  previousDeliveries,
  recordAccepted,
  recordInclusions,
  recordRemovals,
  takeRevertedTransfers,
} from './inclusions.ts';
import type { PreviousDeliveries, RevertedTransfer } from './inclusions.ts';
import type { Matcher, MatchPlan } from './matcher.ts';
import { distinctSubjects, indexSubscribers } from './subjects.ts';

const NAME = 'transfers';

/** `transfer.created`, and `transfer.reverted` of transfers that were sent and no block includes any more. */
export function transferMatcher(deps: MatchDeps): Matcher<ChainBlocksMessage> {
  const { pool, webhooks, since } = deps;
  return {
    name: NAME,
    topic: topics.chainBlocks,
    concurrency: 1,
    since,
    async open() {
      const schema = await webhooks();
      if (schema === null) return null;
      // A removal is followed to its end, even when no webhook is left that would be notified of it.
      const fromBlock =
        (await lowestFromBlock(pool, schema, ['transfer.created', 'transfer.reverted'])) ??
        (await lowestRemovalHeight(pool));
      if (fromBlock === null) return null;
      return {
        // A transfer that was sent above `fromBlock` may be included again below it.
        isRelevant: ({ key }) => key === null || Number(key) > fromBlock - MAX_REORG_DEPTH,
        async match(message) {
          // A repair changes what is known of a contract, not the chain.
          if (message.cause === 'repair') return null;
          return message.type === 'block.accepted'
            ? await matchAccepted(deps, message, schema)
            : matchReverted(message);
        },
      };
    },
  };
}

async function matchAccepted(
  deps: MatchDeps,
  { block, contracts, seq }: ChainBlocksMessage,
  schema: string,
): Promise<MatchPlan> {
  const { pool, clock, metrics } = deps;
  const transfers = decodeBlock(block, contracts).transfers.map((transfer) => ({
    transfer,
    subject: transferSubject(transfer),
    about: { token: transfer.token, accounts: [transfer.from, transfer.to] },
  }));
  const { height, hash } = block;
  const subjects = transfers.map(({ subject }) => subject);
  const about = distinctSubjects(transfers.map((transfer) => transfer.about));
  const webhooksOf = indexSubscribers(await subscribersTo(pool, schema, 'transfer.created', height, about));
  const event = 'transfer.created';
  function* deliveries(previous: PreviousDeliveries): Iterable<NewDelivery> {
    // Under the lock: of the events of a transfer, whatever their partitions, the last one has the latest time.
    const createdAt = clock.wallTime();
    for (const { transfer, subject, about: of } of transfers) {
      const ids = webhooksOf(of);
      if (ids.size === 0) continue;
      const body = bodyText(event, createdAt, transferData(block, transfer));
      for (const webhookId of ids) {
        // A block of a partition that is read later: the chain has removed the transfer again since.
        if (previous.revertedSeq(webhookId, subject) > seq) continue;
        const id = deliveryId(webhookId, event, subject, previous.reverts(webhookId, subject));
        yield { id, webhookId, event, body, createdAt, inclusion: { subject, hash, seq } };
      }
    }
  }
  return async (tx) => {
    await lockMatcher(tx, NAME);
    if (!(await recordAccepted(tx, { height, hash, seq, parentHash: block.parent_hash }))) return;
    const previous = await previousDeliveries(tx, subjects);
    await recordInclusions(tx, { hash, seq }, previous.subjects);
    metrics.matched.inc({ event }, await insertDeliveries(tx, deliveries(previous)));
    await notifyReverted(deps, tx, await takeRevertedTransfers(tx));
  };
}

/** To webhooks that were sent the transfer and are notified of `transfer.reverted`. */
async function notifyReverted(
  { webhooks, clock, metrics }: MatchDeps,
  tx: PoolClient,
  reverted: readonly RevertedTransfer[],
): Promise<void> {
  const schema = reverted.length === 0 ? null : await webhooks();
  if (schema === null) return;
  const ids = await revertSubscribers(tx, schema, [...new Set(reverted.map(({ webhook_id: id }) => id))]);
  const subjects = reverted.map(({ subject }) => subject);
  const previous = await previousDeliveries(tx, subjects);
  const createdAt = clock.wallTime();
  const event = 'transfer.reverted';
  function* deliveries(): Iterable<NewDelivery> {
    for (const { webhook_id: webhookId, subject, body, seq } of reverted)
      if (ids.has(webhookId))
        yield {
          id: deliveryId(webhookId, event, subject, previous.reverts(webhookId, subject)),
          webhookId,
          event,
          body: bodyText(event, createdAt, sentData(body)),
          createdAt,
          inclusion: { subject, hash: '', seq },
        };
  }
  metrics.matched.inc({ event }, await insertDeliveries(tx, deliveries()));
}

function matchReverted({ block, contracts, seq }: ChainBlocksMessage): MatchPlan {
  const subjects = decodeBlock(block, contracts).transfers.map(transferSubject);
  return async (tx) => {
    await lockMatcher(tx, NAME);
    await recordRemovals(tx, { height: block.height, hash: block.hash, seq }, subjects);
  };
}

/** The data of a `transfer.created` that was sent. */
function sentData(text: string): WebhookBodyOf<'transfer.created'>['data'] {
  const body = webhookBody.parse(JSON.parse(text));
  if (body.event !== 'transfer.created')
    throw new TypeError(`Expected a transfer.created body, found ${body.event}`);
  return body.data;
}
