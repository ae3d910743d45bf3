import type { SimulatedNode } from './starknet/node.ts';
import type { Held, StreamMessage } from './stream-client.ts';
import { keyOf } from './stream-client.ts';
import { hex } from './truth.ts';

/** What clients of the stream must hold, from what the simulated node intended. */

/** Which transfers a stream has. */
export interface StreamKind {
  readonly name: string;
  readonly query: string;
  readonly isLines?: true;
  readonly isFinal?: true;
  has(row: { token: bigint; from: bigint; to: bigint }): boolean;
}

interface TrueBlock {
  /** As `blockLine`. */
  readonly line: string;
  readonly transfers: readonly { key: string; token: bigint; from: bigint; to: bigint }[];
}

const blockLine = (height: number, { hash, timestamp }: { hash: string; timestamp: string }): string =>
  `${height} ${hash} ${timestamp}`;

export interface StreamOracle {
  /** The transfers and blocks of the canonical chain, each a line, as `heldLines`. */
  lines(kind: StreamKind, top: number): HeldLines;
  /** The lines that a stream sends of the blocks from one height to another: each block's transfers, then the block. */
  sent(kind: StreamKind, from: number, to: number): string[];
}

export interface HeldLines {
  readonly transfers: readonly string[];
  readonly blocks: readonly string[];
}

/** Makes each block of the canonical chain once. */
export function createStreamOracle({ ledger }: SimulatedNode): StreamOracle {
  let made: { readonly tip: string; readonly blocks: TrueBlock[] } = { tip: '', blocks: [] };
  const blockAt = (height: number): TrueBlock => {
    const block = ledger.at(height);
    if (block === null) throw new Error(`no block ${height}`);
    const timestamp = new Date(Number(block.header['timestamp']) * 1000).toISOString().replace('.000Z', 'Z');
    return {
      line: blockLine(height, { hash: hex(BigInt(block.hash)), timestamp }),
      transfers: block.transfers.map(({ item, position, token, from, to }) => ({
        key: `${height}:${item * 1_048_576 + position}:${token}`,
        token,
        from,
        to,
      })),
    };
  };
  const blocksTo = (top: number): readonly TrueBlock[] => {
    const tip = ledger.at(ledger.head())?.hash ?? '';
    if (made.tip !== tip) made = { tip, blocks: [] };
    while (made.blocks.length <= top) made.blocks.push(blockAt(made.blocks.length));
    return made.blocks.slice(0, top + 1);
  };
  const keysOf = (kind: StreamKind, block: TrueBlock): string[] =>
    block.transfers.filter((row) => kind.has(row)).map(({ key }) => key);
  return {
    lines: (kind, top) => ({
      transfers: blocksTo(top).flatMap((block) => keysOf(kind, block)),
      blocks: blocksTo(top).map(({ line }) => line),
    }),
    sent: (kind, from, to) =>
      blocksTo(to)
        .slice(from)
        .flatMap((block) => [...keysOf(kind, block), block.line]),
  };
}

/** What a client holds up to a height. */
export const heldLines = ({ transfers, blocks }: Held, top: number): HeldLines => ({
  transfers: [...transfers].filter(([, block]) => block <= top).map(([key]) => key),
  blocks: [...blocks].filter(([height]) => height <= top).map(([height, block]) => blockLine(height, block)),
});

/** Messages, each a line; a final height may be sent at any time. */
export const sentLines = (messages: readonly StreamMessage[]): string[] =>
  messages.flatMap((message) => {
    if (message.type === 'transfer') return [keyOf(message.data)];
    if (message.type === 'block') return [blockLine(message.data.height, message.data)];
    return message.type === 'final' ? [] : [message.type];
  });
