import type { LogMessage } from '../infra/kafka/client.ts';
import { decodeBlock } from '../schemas/decode/index.ts';
import { errorMessage } from '../schemas/errors.ts';
import { LIVE } from '../schemas/messages/chain-blocks.ts';
import type { ChainBlocksMessage } from '../schemas/messages/chain-blocks.ts';
import type { PricesMessage } from '../schemas/messages/prices.ts';
import type { UsageMessage } from '../schemas/messages/usage.ts';
import { rangeOf, topics } from '../schemas/topics.ts';
import type { Topic } from '../schemas/topics.ts';
import type {
  BlockItem,
  PriceItem,
  Stream,
  StreamItem,
  TouchedBlock,
  TouchedHour,
  UsageItem,
  UsedKey,
} from './define.ts';

const HOUR_MS = 3_600_000;

/** Hours in one bucket of a comparison: thirty days. */
export const HOUR_RANGE = 720;

/** `prices`: what was observed, at the feed's own time. */
export const prices: Stream<PricesMessage, PriceItem, TouchedHour | null> = {
  ...topics.prices,
  item: (message, place) => ({ ...place, message, hour: Math.floor(message.observed_at / HOUR_MS) }),
  touched: ({ message: { type, token }, hour }) => (type === 'price.observed' ? { token, hour } : null),
  bucket: ({ hour }) => Math.floor(hour / HOUR_RANGE),
};

/** `chain.blocks`: one parse and one decode for all tables made from it. */
export const chainBlocks: Stream<ChainBlocksMessage, BlockItem, TouchedBlock> = {
  ...topics.chainBlocks,
  item: (message, place) => ({ ...place, message, decoded: decodeBlock(message.block, message.contracts) }),
  touched: ({ message: { type, cause, block, chunk }, offset }) => ({
    height: block.height,
    chunk,
    offset,
    isNew: type === 'block.accepted' && cause === 'new' && chunk === LIVE,
  }),
  isReplaced: ({ message: { type, cause } }) => type === 'block.reverted' && cause === 'repair',
  bucket: ({ message: { block } }) => rangeOf(block.height),
};

/** `usage`: counted calls of API keys. */
export const usage: Stream<UsageMessage, UsageItem, UsedKey> = {
  ...topics.usage,
  item: (message, place) => ({ ...place, message, hour: Math.floor((message.hour * 1000) / HOUR_MS) }),
  touched: ({ message, hour }) => ({ keyId: message.key_id, hour }),
  bucket: ({ hour }) => Math.floor(hour / HOUR_RANGE),
};

/** Parses and decodes a message of the log, or returns the reason why it is a poison message. */
export function readItem<M, I extends StreamItem, T>(
  stream: Stream<M, I, T>,
  logMessage: LogMessage,
): I | { readonly reason: string } {
  const parsed = parseMessage(stream, logMessage);
  if ('reason' in parsed) return parsed;
  const { partition, offset } = logMessage;
  try {
    return stream.item(parsed.message, { partition, offset });
  } catch (error) {
    return { reason: `decoding failed: ${errorMessage(error)}` };
  }
}

/** Parses a message of the log, or returns the reason why it is a poison message. */
export function parseMessage<M>(topic: Topic<M>, { value }: LogMessage): { message: M } | { reason: string } {
  let json: unknown;
  try {
    json = JSON.parse(value.toString('utf8'));
  } catch (error) {
    return { reason: `not JSON: ${errorMessage(error)}` };
  }
  const parsed = topic.schema.safeParse(json);
  if (parsed.success) return { message: parsed.data };
  const [issue] = parsed.error.issues;
  const more = parsed.error.issues.length - 1;
  return {
    reason: `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}${more > 0 ? ` (and ${more} more)` : ''}`,
  };
}
