import {
  CheckpointConflict,
  createCheckpoints,
  identifyLog,
  moveCheckpoints,
  replaceCheckpoint,
  storedCheckpoints,
} from '../../infra/kafka/checkpoints.ts';
import type { LogIdentity } from '../../infra/kafka/checkpoints.ts';
import { inTransaction } from '../../infra/postgres/client.ts';
import type { PoolClient, Sql } from '../../infra/postgres/client.ts';
import { webhookRequests } from '../../projections/webhooks/queries.ts';
import type { WebhookRequest } from '../../projections/webhooks/queries.ts';
import { topics } from '../../schemas/topics.ts';
import type { DispatchDeps } from './deps.ts';
import { scheduleDeletion } from './deletions.ts';
import { insertDeliveries, retryDelivery } from './deliveries.ts';
import type { NewDelivery } from './deliveries.ts';
import { startLoop } from '../../infra/loop.ts';
import type { Loop } from '../../infra/loop.ts';
import { bodyText } from './match/body.ts';

/** Finds a request whose notification was lost. */
const POLL_MS = 2000;
/** Requests read at a time. */
const PAGE = 100;
const OWNER = { consumer: 'dispatch-requests', build: 0 };
const PARTITION = 0;

export interface RequestsDeps extends Pick<
  DispatchDeps,
  'kafka' | 'pool' | 'webhooks' | 'clock' | 'retryWhileUnavailable'
> {
  /** Deliveries have become due. */
  readonly onDue: () => void;
}

/**
 * Carries out tests and retries and schedules deletions, once each: the projector decides a command and writes it to a
 * table, which is polled here from a checkpoint in the topic of the commands. Wake it when a command is decided.
 */
export async function runRequests(
  { kafka, pool, webhooks, clock, retryWhileUnavailable, onDue }: RequestsDeps,
  onFatal: (error: unknown) => void,
): Promise<Loop> {
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topics.commands));
  await retryWhileUnavailable(() => ensureCheckpoint(pool, identity));

  async function poll(): Promise<number> {
    const schema = await webhooks();
    const checkpoint = await readCheckpoint(pool, identity);
    const requests = schema === null ? [] : await webhookRequests(pool, schema, checkpoint, PAGE);
    let expected = checkpoint;
    for (const together of transactionsOf(requests)) {
      const next = Math.max(...together.map((request) => request.command_offset)) + 1;
      try {
        await inTransaction(pool, async (tx) => {
          const moves = [{ owner: OWNER, partition: PARTITION, expected, next }];
          const refused = await moveCheckpoints(tx, identity, moves);
          if (refused.length > 0) throw new CheckpointConflict(OWNER, topics.commands.name, expected);
          await carryOut(tx, together, clock.wallTime());
        });
      } catch (error) {
        // Another dispatcher has carried it out: the next poll begins at its checkpoint.
        if (!(error instanceof CheckpointConflict)) throw error;
        // Unless PostgreSQL lost the checkpoint in a fail-over.
        await ensureCheckpoint(pool, identity);
        return POLL_MS;
      }
      expected = next;
    }
    if (requests.length > 0) onDue();
    return requests.length < PAGE ? POLL_MS : 0;
  }

  return startLoop({ round: poll, retryWhileUnavailable, onFatal, clock });
}

async function readCheckpoint(db: Sql, { topic, topicId }: LogIdentity): Promise<number> {
  const [stored] = await storedCheckpoints(db, OWNER, topic);
  return stored?.topicId === topicId ? stored.nextOffset : 0;
}

/** A topic that was deleted and created again is read from its beginning. */
async function ensureCheckpoint(db: Sql, identity: LogIdentity): Promise<void> {
  const [stored] = await storedCheckpoints(db, OWNER, identity.topic);
  if (stored === undefined) await createCheckpoints(db, OWNER, identity, new Map([[PARTITION, 0]]));
  else if (stored.topicId !== identity.topicId) await replaceCheckpoint(db, OWNER, identity, stored, 0);
}

/**
 * Consecutive tests together, so that a user who requests many does not delay others by a transaction for each; other
 * requests one by one.
 */
export function transactionsOf<R extends Pick<WebhookRequest, 'kind'>>(requests: readonly R[]): R[][] {
  const transactions: R[][] = [];
  for (const request of requests) {
    const last = transactions.at(-1);
    if (request.kind === 'test' && last?.[0]?.kind === 'test') last.push(request);
    else transactions.push([request]);
  }
  return transactions;
}

async function carryOut(tx: PoolClient, requests: readonly WebhookRequest[], now: number): Promise<void> {
  const tests: NewDelivery[] = [];
  for (const { kind, webhook_id: webhookId, delivery_id: id } of requests) {
    if (kind === 'delete') await scheduleDeletion(tx, webhookId, now);
    else if (id !== null && kind === 'retry') await retryDelivery(tx, { webhookId, id, at: now });
    else if (id !== null) tests.push(testDelivery(webhookId, id, now));
  }
  await insertDeliveries(tx, tests);
}

function testDelivery(webhookId: number, id: string, now: number): NewDelivery {
  const body = bodyText('ping', now, { webhook_id: webhookId, message: 'Test delivery' });
  return { id, webhookId, event: 'ping', body, createdAt: now, isTest: true };
}
