import { startCheckpointedConsumer } from '../../infra/kafka/checkpointed-consumer.ts';
import type { CheckpointedConsumerOptions } from '../../infra/kafka/checkpointed-consumer.ts';
import type { LogBatch } from '../../infra/kafka/client.ts';
import type { ObserverContext } from './loops.ts';

type Shared = 'kafka' | 'pool' | 'log' | 'groupId' | 'topics' | 'fetchBytes' | 'retryWhileUnavailable';

export interface ObserverConsumerOptions extends Pick<CheckpointedConsumerOptions, Shared> {
  readonly observer: string;
  /** Handles a batch; idempotent, because the checkpoint moves afterwards. */
  readonly handle: (batch: LogBatch) => Promise<void>;
}

/** Starts a consumer that ends with the observer. Without a valid checkpoint it begins with the first offset. */
export async function consumeTopics(
  { observer, handle, ...options }: ObserverConsumerOptions,
  { signal, releasers, fail }: ObserverContext,
): Promise<void> {
  const consumer = await startCheckpointedConsumer({
    ...options,
    name: `observe-${observer}`,
    outsideLog: 'restart',
    signal,
    onError: fail,
    async handle(batch) {
      await handle(batch);
      return 'done';
    },
  });
  releasers.push('consumer', () => consumer.stop());
}
