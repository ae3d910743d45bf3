import { z } from 'zod';

/** A client of the stream of transfers, written from its description alone. */

const cursor = z.string();
const height = z.int();
export const streamMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('transfer'),
    cursor,
    data: z.looseObject({
      block: height,
      event_index: z.int(),
      token_address: z.string(),
      block_hash: z.string(),
    }),
  }),
  z.object({
    type: z.literal('block'),
    cursor,
    data: z.strictObject({ height, hash: z.string(), timestamp: z.iso.datetime(), finality: z.string() }),
  }),
  z.object({
    type: z.literal('undo'),
    cursor,
    data: z.strictObject({
      last_valid: z.strictObject({ height, hash: z.string() }).nullable(),
      last_valid_cursor: cursor,
      from: height,
      to: height,
      hashes: z.array(z.string()),
    }),
  }),
  z.object({ type: z.literal('final'), cursor, data: z.strictObject({ height }) }),
  z.object({
    type: z.literal('end'),
    cursor,
    data: z.strictObject({ reason: z.enum(['shutdown', 'slow', 'limit']) }),
  }),
]);
export type StreamMessage = z.infer<typeof streamMessage>;

/** What a client holds: every transfer with its place, and the hash of each block. */
export interface Held {
  readonly transfers: Map<string, number>;
  readonly hashes: Map<number, string>;
  /** The newest transfer or block, to check the order. */
  newest: { block: number; event: number };
}

export const createHeld = (): Held => ({
  transfers: new Map(),
  hashes: new Map(),
  newest: { block: -1, event: -1 },
});

const WHOLE = Infinity;

/** What identifies a transfer. */
export function keyOf(data: { block: number; event_index: number; token_address: string }): string {
  return `${data.block}:${data.event_index}:${BigInt(data.token_address)}`;
}

/** Applies a message; throws where the stream breaks its promises. */
export function apply(held: Held, message: StreamMessage): void {
  const { hashes, transfers, newest } = held;
  const fail = (what: string): never => {
    throw new Error(`${what}: ${JSON.stringify(message)} after ${JSON.stringify(newest)}`);
  };
  switch (message.type) {
    case 'transfer': {
      const { block, event_index: event } = message.data;
      const order = (event % 1_048_576) * 1_048_576 + Math.floor(event / 1_048_576);
      if (block < newest.block || (block === newest.block && order <= newest.event)) fail('out of order');
      transfers.set(keyOf(message.data), block);
      held.newest = { block, event: order };
      return;
    }
    case 'block': {
      const { height: at, hash } = message.data;
      if (newest.event === WHOLE && newest.block >= 0 && at !== newest.block + 1) fail('not the next block');
      hashes.set(at, hash);
      held.newest = { block: at, event: WHOLE };
      return;
    }
    case 'undo': {
      const { last_valid: last, from, to, hashes: gone } = message.data;
      if (from !== (last?.height ?? from - 1) + 1 || gone.length !== to - from + 1) fail('bad range');
      for (const [i, hash] of gone.entries()) {
        if ((hashes.get(from + i) ?? hash) !== hash) fail(`not the block held at ${from + i}`);
      }
      const lowest = last?.height ?? -1;
      if (last !== null && (hashes.get(last.height) ?? last.hash) !== last.hash) fail('not the block held');
      for (const [key, block] of transfers) if (block > lowest) transfers.delete(key);
      for (const at of hashes.keys()) if (at > lowest) hashes.delete(at);
      held.newest = last === null ? { block: -1, event: -1 } : { block: lowest, event: WHOLE };
      return;
    }
    case 'final':
    case 'end':
  }
}

/** An answer whose body is being received. */
interface Answer {
  readonly body: AsyncIterable<Uint8Array> | null;
}

/** Reads an answer of Server-Sent Events. */
export async function* readEvents(response: Answer): AsyncGenerator<StreamMessage> {
  let fields: Record<string, string> = {};
  for await (const line of linesOf(response)) {
    if (line === '') {
      const { id, event, data } = fields;
      if (data !== undefined) yield streamMessage.parse({ type: event, cursor: id, data: JSON.parse(data) });
      fields = {};
      continue;
    }
    const at = line.indexOf(':');
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
  }
}

/** Reads an answer in NDJSON. */
export async function* readLines(response: Answer): AsyncGenerator<StreamMessage> {
  for await (const line of linesOf(response)) yield streamMessage.parse(JSON.parse(line));
}

async function* linesOf({ body }: Answer): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of body ?? []) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}
