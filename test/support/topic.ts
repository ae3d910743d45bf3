import type { Kafka, LogMessage } from '../../infra/kafka/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { Topic } from '../../schemas/topics.ts';

type Log = Pick<Kafka, 'offsets' | 'readRange'>;

/** The messages of a topic, partition by partition; `lows`: where to begin, by partition (default: the first message). */
export async function* logOf(
  kafka: Log,
  topic: Topic<unknown>,
  lows: ReadonlyMap<number, number> = new Map(),
): AsyncGenerator<LogMessage> {
  for (const { partition, low, high } of await kafka.offsets(topic))
    yield* kafka.readRange(topic, partition, lows.get(partition) ?? low, high);
}

/** The parsed messages of a topic. */
export async function messagesOf<M>(
  kafka: Log,
  topic: Topic<M>,
  lows?: ReadonlyMap<number, number>,
): Promise<M[]> {
  const messages: M[] = [];
  for await (const { value } of logOf(kafka, topic, lows))
    messages.push(topic.schema.parse(JSON.parse(value.toString())));
  return messages;
}

/** Whether the checkpoints of a consumer are at the end of the log of a topic. */
export async function isConsumed(
  { kafka, pool }: { readonly kafka: Pick<Kafka, 'offsets'>; readonly pool: Pick<Pool, 'query'> },
  consumer: string,
  topic: Topic<unknown>,
): Promise<boolean> {
  const { rows } = await pool.query<{ partition: number; next_offset: number }>(
    'SELECT partition, next_offset FROM tds.checkpoints WHERE consumer = $1 AND topic = $2',
    [consumer, topic.name],
  );
  const checkpoints = new Map(rows.map((row) => [row.partition, row.next_offset]));
  const ends = await kafka.offsets(topic);
  return ends.every(({ partition, high }) => high === 0 || checkpoints.get(partition) === high);
}
