import type { PoolClient } from '../../../infra/postgres/client.ts';
import { hearOfReverts, subscribersTo, wantedAbove } from '../../../projections/webhooks/queries.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import type { ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { topics } from '../../../schemas/topics.ts';
import { webhookBody } from '../../../schemas/webhooks/events.ts';
import type { WebhookBodyOf } from '../../../schemas/webhooks/events.ts';
import { insertDeliveries } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { bodyText, transferData } from './body.ts';
import { BLOCK_BYTES } from './deps.ts';
import type { MatchDeps } from './deps.ts';
import { deliveryId, transferSubject } from './identity.ts';
import { DEEPEST, landed, lowestReverted, oneAtATime, reverted, sentBefore, takeGone } from './landings.ts';
import type { Gone } from './landings.ts';
import type { Matcher, Plan } from './matcher.ts';
import { subjectsOf, webhooksBySubject } from './subjects.ts';

const NAME = 'transfers';

/** `transfer.created`, and `transfer.reverted` for those that came and went. */
export function transferMatcher({
  pool,
  webhooks,
  since,
  clock,
  metrics,
}: MatchDeps): Matcher<ChainBlocksMessage> {
  async function accepted({ block, contracts, seq }: ChainBlocksMessage, schema: string): Promise<Plan> {
    const transfers = decodeBlock(block, contracts).transfers.map((transfer) => ({
      transfer,
      subject: transferSubject(transfer),
      happening: { token: transfer.token, accounts: [transfer.from, transfer.to] },
    }));
    const { height, hash } = block;
    const subjects = transfers.map(({ subject }) => subject);
    const asked = subjectsOf(transfers.map(({ happening }) => happening));
    const subscribers = await subscribersTo(pool, schema, 'transfer.created', height, asked);
    const concerned = webhooksBySubject(subscribers);
    const createdAt = clock.now();
    const made = transfers.flatMap(({ transfer, subject, happening }) => {
      const ids = concerned(happening);
      if (ids.size === 0) return [];
      const body = bodyText('transfer.created', createdAt, transferData(block, transfer));
      const landing = { subject, hash, seq };
      return [...ids].map((webhookId) => ({
        webhookId,
        event: 'transfer.created',
        body,
        createdAt,
        landing,
      }));
    });
    return async (tx) => {
      await oneAtATime(tx, NAME);
      const sent = await sentBefore(tx, subjects);
      const deliveries = made.map(({ webhookId, event, landing, ...rest }): NewDelivery => {
        const id = deliveryId(webhookId, event, landing.subject, sent.toldGone(webhookId, landing.subject));
        return { id, webhookId, event, landing, ...rest };
      });
      await landed(tx, { height, hash, seq, parentHash: block.parent_hash }, sent.subjects);
      await insertDeliveries(tx, deliveries);
      metrics.matched.inc({ event: 'transfer.created' }, deliveries.length);
      await tellGone(tx, await takeGone(tx));
    };
  }

  /** To those that were told of the transfer, and want to hear of this. */
  async function tellGone(tx: PoolClient, gone: readonly Gone[]): Promise<void> {
    const schema = gone.length === 0 ? null : await webhooks();
    if (schema === null) return;
    const ids = await hearOfReverts(tx, schema, [...new Set(gone.map(({ webhook_id: id }) => id))]);
    const subjects = gone.map(({ subject }) => subject);
    const sent = await sentBefore(tx, subjects);
    const createdAt = clock.now();
    const deliveries = gone
      .filter(({ webhook_id: id }) => ids.has(id))
      .map(({ webhook_id: webhookId, subject, body }): NewDelivery => ({
        id: deliveryId(webhookId, 'transfer.reverted', subject, sent.toldGone(webhookId, subject)),
        webhookId,
        event: 'transfer.reverted',
        body: bodyText('transfer.reverted', createdAt, sentData(body)),
        createdAt,
        landing: { subject, hash: '', seq: 0 },
      }));
    await insertDeliveries(tx, deliveries);
    metrics.matched.inc({ event: 'transfer.reverted' }, deliveries.length);
  }

  function takenBack({ block, contracts, seq }: ChainBlocksMessage): Plan {
    const subjects = decodeBlock(block, contracts).transfers.map(transferSubject);
    return async (tx) => {
      await oneAtATime(tx, NAME);
      await reverted(tx, { height: block.height, hash: block.hash, seq }, subjects);
    };
  }

  return {
    name: NAME,
    topic: topics.chainBlocks,
    fetchBytes: BLOCK_BYTES,
    atOnce: 1,
    since,
    async open() {
      const schema = await webhooks();
      if (schema === null) return null;
      // What was taken back while someone listened is followed to its end, whoever listens by then.
      const above =
        (await wantedAbove(pool, schema, ['transfer.created', 'transfer.reverted'])) ??
        (await lowestReverted(pool));
      if (above === null) return null;
      return {
        // What was sent of above may land again below.
        wants: ({ key }) => key === null || Number(key) > above - DEEPEST,
        async match(message) {
          // The chain has not changed: only what is known of a contract.
          if (message.cause === 'repair') return null;
          return message.type === 'block.accepted' ? await accepted(message, schema) : takenBack(message);
        },
      };
    },
  };
}

/** What was sent of a transfer. */
function sentData(text: string): WebhookBodyOf<'transfer.created'>['data'] {
  const body = webhookBody.parse(JSON.parse(text));
  if (body.event !== 'transfer.created') throw new TypeError(`the body of a transfer says ${body.event}`);
  return body.data;
}
