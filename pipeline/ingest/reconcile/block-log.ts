import { jsonOf } from '../../../infra/json.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { chainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { topics } from '../../../schemas/topics.ts';
import type { BlockLog } from '../ports.ts';

/** Reads `chain.blocks`, for a comparison of the ingester's state with what is in the log. */
export function createBlockLog(kafka: Pick<Kafka, 'offsets' | 'offsetsAt' | 'readRanges'>): BlockLog {
  const topic = topics.chainBlocks;
  return {
    async *messagesSince(since, { start, end }, signal) {
      const from = new Map(
        (await kafka.offsetsAt(topic, since)).map(({ partition, offset }) => [partition, offset]),
      );
      const ranges = (await kafka.offsets(topic)).map(({ partition, low, high }) => ({
        partition,
        from: Math.max(low, from.get(partition) ?? high),
        to: high,
      }));
      for await (const { partition, messages } of kafka.readRanges(topic, ranges, signal)) {
        for (const { offset, key, value } of messages) {
          // The key is the height: most messages are of other chunks, and need no parsing.
          const height = Number(key);
          if (height < start || height > (end ?? height)) continue;
          const message = parse(value);
          if (message !== null) yield { partition, offset, message };
        }
      }
    },
    async ends() {
      return (await kafka.offsets(topic)).map(({ high }) => high);
    },
    async blocksAt(places, signal) {
      const ranges = [...Map.groupBy(places, ({ partition }) => partition)].map(([partition, own]) => {
        const offsets = own.map(({ offset }) => offset);
        return { partition, from: Math.min(...offsets), to: Math.max(...offsets) + 1 };
      });
      const found = new Map<string, Buffer>();
      const wanted = new Set(places.map(placeId));
      for await (const { partition, messages } of kafka.readRanges(topic, ranges, signal)) {
        for (const { offset, value } of messages) {
          const id = placeId({ partition, offset });
          if (wanted.has(id)) found.set(id, value);
        }
      }
      return places.map((place) => {
        const message = parse(found.get(placeId(place)) ?? Buffer.alloc(0));
        if (message === null)
          throw new AppError('MESSAGE_INVALID', `${topic.name}:${placeId(place)} does not hold a block`);
        return { block: message.block, contracts: message.contracts };
      });
    },
  };
}

const placeId = ({ partition, offset }: { partition: number; offset: number }): string =>
  `${partition}:${offset}`;

/** null for a message that no projection can parse either: it halts them, and made no rows. */
function parse(value: Buffer): ReturnType<typeof chainBlocksMessage.parse> | null {
  return chainBlocksMessage.safeParse(jsonOf(value)).data ?? null;
}
