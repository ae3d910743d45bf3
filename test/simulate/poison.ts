import { accepted, makeBlock } from '../support/chain-messages.ts';
import type { Random } from '../support/random.ts';

/** More seconds than a UInt32 holds. */
export const UNSTORABLE_TIMESTAMP = 2 ** 33;

/**
 * A message about a height, for the partition of that height, that nobody can project: cut off, of an unknown version, or
 * with something that a table cannot hold.
 */
export function poisonMessage(random: Random, height: number): Buffer {
  const message = accepted(makeBlock({ height, transactions: [] }), 1);
  const text = random.pick([
    '{"type":"block.acc',
    JSON.stringify({ ...message, v: 2 }),
    // It can be read: rows of the tables before the one that refuses it are taken back.
    JSON.stringify({ ...message, block: { ...message.block, timestamp: UNSTORABLE_TIMESTAMP } }),
  ]);
  return Buffer.from(text);
}
