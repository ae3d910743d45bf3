import { hash } from 'node:crypto';

import type { ChainBlocksMessage } from '../../schemas/messages/chain-blocks.ts';

/**
 * The final state of the log, by the rule of the tables: of every (height, body, contracts) the message with the highest
 * seq wins; whether the events were compared is no part of the body. Returns the accepted hashes by height, and every
 * violation of the log's invariants.
 */
export function foldLog(messages: readonly ChainBlocksMessage[]): {
  accepted: Map<number, string>;
  breaches: string[];
} {
  const breaches: string[] = [];
  const newest = new Map<string, ChainBlocksMessage>();
  const bySeq = new Map<string, string>();
  for (const message of messages) {
    const { seq, block, type } = message;
    // PostgreSQL does not keep the order of JSON keys.
    const contracts = JSON.stringify(
      Object.entries(message.contracts).toSorted(([a], [b]) => (a < b ? -1 : 1)),
    );
    const content = JSON.stringify([type, block.hash, contracts]);
    const heightAndSeq = `${block.height}@${seq}`;
    if ((bySeq.get(heightAndSeq) ?? content) !== content) breaches.push(`two messages share ${heightAndSeq}`);
    bySeq.set(heightAndSeq, content);
    const { event_check: _, ...body } = block;
    const rows = hash('sha256', JSON.stringify(body) + contracts);
    const known = newest.get(rows);
    if (known === undefined || known.seq <= seq) newest.set(rows, message);
  }
  const accepted = new Map<number, string>();
  const parents = new Map<number, string>();
  for (const { type, block } of newest.values()) {
    if (type !== 'block.accepted') continue;
    if (accepted.has(block.height)) breaches.push(`two blocks are accepted at ${block.height}`);
    accepted.set(block.height, block.hash);
    parents.set(block.height, block.parent_hash);
  }
  for (const [height, parent] of parents) {
    const below = accepted.get(height - 1) ?? parent;
    if (below !== parent)
      breaches.push(`${height} names ${parent} as its parent, but ${below} is accepted below it`);
  }
  return { accepted, breaches };
}
