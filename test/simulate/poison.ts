import { accepted, makeBlock } from '../support/chain-messages.ts';
import type { Random } from '../support/random.ts';

/** Seconds above the range of UInt32. */
export const UNSTORABLE_TIMESTAMP = 2 ** 33;

/**
 * A message about a height that cannot be projected: truncated, of an unknown version, or with a value that a table cannot
 * hold.
 */
export function poisonMessage(random: Random, height: number): Buffer {
  const message = accepted(makeBlock({ height, transactions: [] }), 1);
  const text = random.pick([
    '{"type":"block.acc',
    JSON.stringify({ ...message, v: 2 }),
    // It parses: rows for the tables before the one that rejects it must be undone.
    JSON.stringify({ ...message, block: { ...message.block, timestamp: UNSTORABLE_TIMESTAMP } }),
  ]);
  return Buffer.from(text);
}
