import { hash } from 'node:crypto';

import type { Felt } from '../../../schemas/felt.ts';
import { contractsKey } from '../../../schemas/messages/chain-blocks.ts';
import type { LogPlace, LoggedMessage, PublishedBlock } from '../ports.ts';

/** A block in the log with one body and one contracts map, on which its rows depend. */
export interface LoggedVersion extends LogPlace {
  readonly height: number;
  readonly hash: Felt;
  readonly parentHash: Felt;
  /** Identifies the version. */
  readonly key: string;
  readonly seq: number;
  /** The message with its highest seq accepts it. */
  readonly isAccepted: boolean;
}

export function versionKey({ block, contracts }: PublishedBlock): string {
  // Whether its events are compared depends on the head that the process knows then. It changes no key of a row.
  const { event_check: _, ...rest } = block;
  return hash('sha256', `${JSON.stringify(rest)} ${contractsKey(contracts)}`);
}

/** The state of every version that the messages are about, lowest first, and the highest seq (0: no message). */
export async function foldVersions(
  messages: AsyncIterable<LoggedMessage>,
): Promise<{ versions: LoggedVersion[]; maxSeq: number }> {
  const newest = new Map<string, LoggedVersion>();
  let maxSeq = 0;
  for await (const { message, partition, offset } of messages) {
    const { seq, block, type } = message;
    maxSeq = Math.max(maxSeq, seq);
    const key = versionKey(message);
    if ((newest.get(key)?.seq ?? 0) > seq) continue;
    const { height, hash: blockHash, parent_hash: parentHash } = block;
    const isAccepted = type === 'block.accepted';
    newest.set(key, { height, hash: blockHash, parentHash, key, seq, isAccepted, partition, offset });
  }
  return { versions: [...newest.values()].toSorted((a, b) => a.height - b.height), maxSeq };
}
