import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import type { LogMessage } from '../../../infra/kafka/client.ts';
import type { Build } from '../builds.ts';
import { moveCheckpoints } from '../checkpoints.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { PostgresProjection } from '../../define.ts';
import { lockServedForTransaction } from '../served-lock.ts';
import { describe, parseMessage } from '../../streams.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';

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
  readonly index: number;
  constructor(index: number, cause: unknown) {
    super(describe(cause), { cause });
    this.index = index;
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

export interface Folder {
  /** Folds messages of one partition without a gap, from the stored checkpoint on. */
  fold(partition: number, messages: readonly LogMessage[]): Promise<Folded>;
}

/**
 * Folds messages into a build, each exactly once, in transactions that move its checkpoint. The checkpoint is moved
 * first, so that a second process waits for its row and then gets a conflict.
 *
 * @param isServed false for a shadow build; true: throws `BUILD_RETIRED` once the build is no longer served
 * @param retryWhileUnavailable runs one transaction
 */
export function createFolder<M>({
  pool,
  projection,
  identity,
  build,
  isServed,
  retryWhileUnavailable,
}: {
  readonly pool: Pool;
  readonly projection: PostgresProjection<M>;
  readonly identity: LogIdentity;
  readonly build: Build;
  readonly isServed: boolean;
  readonly retryWhileUnavailable: <T>(work: () => Promise<T>) => Promise<T>;
}): Folder {
  const { topic, notify } = projection;
  const schema = build.names['schema'] ?? '';

  /** Folds all messages in one transaction. */
  const foldTogether = async (
    partition: number,
    expected: number,
    batch: readonly ParsedMessage<M>[],
  ): Promise<void> => {
    if (batch.length === 0) return;
    const relevant = batch.filter(({ message }) => projection.isRelevant?.(message) ?? true);
    if (relevant.length === 0 && (await skipIrrelevant(partition, expected, batch.length))) return;
    const work = async (tx: PoolClient): Promise<void> => {
      if (isServed) await lockServedForTransaction(tx, [build]);
      const next = expected + batch.length;
      const conflicts = await moveCheckpoints(tx, identity, [{ build, partition, expected, next }]);
      if (conflicts.length > 0) throw new CheckpointConflict();
      for (const { message, from } of relevant) {
        try {
          const { offset, timestamp } = from;
          await projection.fold(tx, message, { partition, offset, timestamp, schema });
        } catch (error) {
          if (isStoreUnavailable(error)) throw error;
          throw new FoldFailed(from.offset - expected, error);
        }
      }
      if (isServed) await notifyListeners(tx, batch);
    };
    await retryWhileUnavailable(() => inTransaction(pool, work, { idleMs: IDLE_MS }));
  };

  /** Moves the checkpoint past messages that change nothing; false on a conflict, or when the build is retired. */
  const skipIrrelevant = async (partition: number, expected: number, messages: number): Promise<boolean> => {
    const move = { build, partition, expected, next: expected + messages };
    return (await retryWhileUnavailable(() => moveCheckpoints(pool, identity, [move]))).length === 0;
  };

  /** Postgres delivers the notifications when the transaction commits. */
  const notifyListeners = async (
    tx: Pick<Pool, 'query'>,
    batch: readonly ParsedMessage<M>[],
  ): Promise<void> => {
    if (notify === undefined) return;
    const payloads = new Set(batch.flatMap(({ message }) => notify.payload(message) ?? []));
    if (payloads.size === 0) return;
    await tx.query('SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS p (payload)', [
      notify.channel,
      [...payloads],
    ]);
  };

  /** Folds the messages of one transaction; a poison message ends it, and those before it are folded. */
  const foldSome = async (partition: number, messages: readonly LogMessage[]): Promise<Folded> => {
    const first = messages[0]?.offset ?? 0;
    const batch: ParsedMessage<M>[] = [];
    let poison: { message: LogMessage; reason: string } | null = null;
    for (const from of messages) {
      const parsed = parseMessage(topic, from);
      if ('reason' in parsed) {
        poison = { message: from, reason: parsed.reason };
        break;
      }
      batch.push({ message: parsed.message, from });
    }
    try {
      await foldTogether(partition, first, batch);
    } catch (error) {
      if (error instanceof CheckpointConflict) return { next: first, outcome: 'conflict' };
      const culprit = error instanceof FoldFailed ? batch[error.index] : undefined;
      if (!(error instanceof FoldFailed) || culprit === undefined) throw error;
      const before = await foldSome(partition, messages.slice(0, error.index));
      if (before.outcome !== 'all') return before;
      poison = { message: culprit.from, reason: `folding failed: ${error.message}` };
      return { next: culprit.from.offset, outcome: 'poison', ...poison };
    }
    const next = first + batch.length;
    return poison === null ? { next, outcome: 'all' } : { next, outcome: 'poison', ...poison };
  };

  return {
    async fold(partition, messages) {
      let folded: Folded = { next: messages[0]?.offset ?? 0, outcome: 'all' };
      for (let at = 0; at < messages.length && folded.outcome === 'all'; at += MESSAGES_PER_TRANSACTION) {
        folded = await foldSome(partition, messages.slice(at, at + MESSAGES_PER_TRANSACTION));
      }
      return folded;
    },
  };
}
