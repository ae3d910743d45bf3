import type { LogMessage } from '../../infra/kafka/client.ts';
import { decodeBlock } from '../../schemas/decode/index.ts';
import type { ChainBlocksMessage } from '../../schemas/messages/chain-blocks.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { ChainBatchItem } from '../define.ts';

/** The border: bytes of the log become a message, or the reason why they cannot. */
export function parseMessage<M>(topic: Topic<M>, { value }: LogMessage): { message: M } | { reason: string } {
  let json: unknown;
  try {
    json = JSON.parse(value.toString('utf8'));
  } catch (error) {
    return { reason: `not JSON: ${describe(error)}` };
  }
  const parsed = topic.schema.safeParse(json);
  if (parsed.success) return { message: parsed.data };
  const [issue] = parsed.error.issues;
  const more = parsed.error.issues.length - 1;
  return {
    reason: `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}${more > 0 ? ` (and ${more} more)` : ''}`,
  };
}

/** One parse and one decode for all projections of the topic. */
export function readChainMessage(
  topic: Topic<ChainBlocksMessage>,
  logMessage: LogMessage,
): ChainBatchItem | { reason: string } {
  const parsed = parseMessage(topic, logMessage);
  if ('reason' in parsed) return parsed;
  const { message } = parsed;
  try {
    const decoded = decodeBlock(message.block, message.contracts);
    return { message, decoded, partition: logMessage.partition, offset: logMessage.offset };
  } catch (error) {
    return { reason: `decoding failed: ${describe(error)}` };
  }
}

export function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
