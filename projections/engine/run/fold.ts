import { inTransaction, prepared } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import type { LogMessage } from '../../../infra/kafka/client.ts';
import type { Build } from '../builds.ts';
import { moveBuildCheckpoints } from '../checkpoints.ts';
import type { BuildCheckpointMove } from '../checkpoints.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { PostgresProjection } from '../../define.ts';
import { lockServedForTransaction } from '../served-lock.ts';
import { parseMessage } from '../../streams.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { errorMessage } from '../../../schemas/errors.ts';
import type { Topic } from '../../../schemas/topics.ts';

/** Maximum messages per transaction. */
const MESSAGES_PER_TRANSACTION = 500;
/** Below the group's session timeout, so that the next member does not wait for the locks of a frozen process. */
const IDLE_MS = 10_000;

interface ParsedMessage<M> {
  readonly message: M;
  readonly from: LogMessage;
}

/** Outcomes of a transaction that are not errors of the database. */
class CheckpointConflict extends Error {}
class FoldFailed extends Error {
  readonly culprit: LogMessage;
  constructor(culprit: LogMessage, cause: unknown) {
    super(errorMessage(cause), { cause });
    this.culprit = culprit;
  }
}

/** Result of folding; `next` is the stored checkpoint. */
export type Folded =
  | { readonly next: number; readonly outcome: 'all' }
  /** This message cannot be read or folded; all before it are folded. */
  | {
      readonly next: number;
      readonly outcome: 'poison';
      readonly message: LogMessage;
      readonly reason: string;
    }
  /** Checkpoint conflict: another process has moved it. */
  | { readonly next: number; readonly outcome: 'conflict' };

/** Folds messages of one partition without a gap, from the stored checkpoint on. */
type Fold = (partition: number, messages: readonly LogMessage[]) => Promise<Folded>;

interface FoldOptions<M> {
  readonly pool: Pool;
  readonly projection: PostgresProjection<M>;
  readonly identity: LogIdentity;
  readonly build: Build;
  /** False for a shadow build; true: throws `BUILD_RETIRED` once the build is no longer served. */
  readonly isServed: boolean;
  /** Runs one transaction. */
  readonly retryWhileUnavailable: RetryWhileUnavailable;
}

/**
 * Folds messages into a build, each exactly once, in transactions that move its checkpoint. The checkpoint is moved
 * first, so that a second process waits for its row and then gets a conflict.
 */
export function createFold<M>(options: FoldOptions<M>): Fold {
  const { projection, build } = options;
  const foldTogether = createFoldTransaction(options);

  /** Folds the messages of one transaction; a poison message ends it, and those before it are folded. */
  const foldSome = async (partition: number, messages: readonly LogMessage[]): Promise<Folded> => {
    const expected = messages[0]?.offset ?? 0;
    const { batch, poison } = parseUntilPoison(projection.topic, messages);
    const next = (batch.at(-1)?.from.offset ?? expected - 1) + 1;
    try {
      await foldTogether({ build, partition, expected, next }, batch);
    } catch (error) {
      if (error instanceof CheckpointConflict) return { next: expected, outcome: 'conflict' };
      if (!(error instanceof FoldFailed)) throw error;
      const { culprit } = error;
      const before = await foldSome(partition, messages.slice(0, messages.indexOf(culprit)));
      if (before.outcome !== 'all') return before;
      const reason = `folding failed: ${error.message}`;
      return { next: culprit.offset, outcome: 'poison', message: culprit, reason };
    }
    return poison === null ? { next, outcome: 'all' } : { next, outcome: 'poison', ...poison };
  };

  return async (partition, messages) => {
    let folded: Folded = { next: messages[0]?.offset ?? 0, outcome: 'all' };
    for (let at = 0; at < messages.length && folded.outcome === 'all'; at += MESSAGES_PER_TRANSACTION) {
      folded = await foldSome(partition, messages.slice(at, at + MESSAGES_PER_TRANSACTION));
    }
    return folded;
  };
}

/** Moves a checkpoint over messages and folds them, in one transaction. */
function createFoldTransaction<M>({
  pool,
  projection,
  identity,
  build,
  isServed,
  retryWhileUnavailable,
}: FoldOptions<M>): (move: BuildCheckpointMove, batch: readonly ParsedMessage<M>[]) => Promise<void> {
  const schema = build.names['schema'] ?? '';
  const isRelevant = ({ message }: ParsedMessage<M>): boolean => projection.isRelevant?.(message) ?? true;

  const foldInTransaction = async (
    tx: PoolClient,
    move: BuildCheckpointMove,
    batch: readonly ParsedMessage<M>[],
  ): Promise<void> => {
    const { partition } = move;
    if (isServed) await lockServedForTransaction(tx, [build]);
    const conflicts = await moveBuildCheckpoints(tx, identity, [move]);
    if (conflicts.length > 0) throw new CheckpointConflict();
    for (const { message, from } of batch.filter(isRelevant)) {
      const { offset, timestamp } = from;
      try {
        await projection.fold(tx, message, { partition, offset, timestamp, schema });
      } catch (error) {
        if (isStoreUnavailable(error)) throw error;
        throw new FoldFailed(from, error);
      }
    }
    if (isServed) await notifyListeners(tx, projection, batch);
  };

  return async (move, batch) => {
    if (batch.length === 0) return;
    if (!batch.some(isRelevant)) {
      const refused = await retryWhileUnavailable(() => moveBuildCheckpoints(pool, identity, [move]));
      // Refused on a conflict, and when the build is retired: the transaction finds out which.
      if (refused.length === 0) return;
    }
    const work = (tx: PoolClient): Promise<void> => foldInTransaction(tx, move, batch);
    await retryWhileUnavailable(() => inTransaction(pool, work, { idleMs: IDLE_MS }));
  };
}

/** The messages before the first one that cannot be read. */
function parseUntilPoison<M>(
  topic: Topic<M>,
  messages: readonly LogMessage[],
): { batch: ParsedMessage<M>[]; poison: { message: LogMessage; reason: string } | null } {
  const batch: ParsedMessage<M>[] = [];
  for (const from of messages) {
    const parsed = parseMessage(topic, from);
    if ('reason' in parsed) return { batch, poison: { message: from, reason: parsed.reason } };
    batch.push({ message: parsed.message, from });
  }
  return { batch, poison: null };
}

/** Postgres delivers the notifications when the transaction commits. */
async function notifyListeners<M>(
  tx: PoolClient,
  { notify }: PostgresProjection<M>,
  batch: readonly ParsedMessage<M>[],
): Promise<void> {
  if (notify === undefined) return;
  const payloads = new Set(batch.flatMap(({ message }) => notify.payload(message) ?? []));
  if (payloads.size === 0) return;
  const sql = 'SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS p (payload)';
  await tx.query(prepared(sql, [notify.channel, [...payloads]]));
}
