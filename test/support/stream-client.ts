import { z } from 'zod';

/** A client of the stream of transfers, written from its description alone. */

const cursor = z.string();
const height = z.int();
const finality = z.enum(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L1']);
export const streamMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('transfer'),
    cursor,
    data: z.looseObject({
      block: height,
      event_index: z.int(),
      token_address: z.string(),
      timestamp: z.iso.datetime(),
      status: finality,
      block_hash: z.string(),
    }),
  }),
  z.object({
    type: z.literal('block'),
    cursor,
    data: z.strictObject({ height, hash: z.string(), timestamp: z.iso.datetime(), finality }),
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

/** What the messages of a block say of it. */
export interface HeldBlock {
  readonly hash: string;
  readonly timestamp: string;
  readonly finality: z.infer<typeof finality>;
}

/** What a client holds: every transfer with its place, and each block, of which the newest may not be whole yet. */
export interface Held {
  readonly transfers: Map<string, number>;
  readonly blocks: Map<number, HeldBlock>;
  /** The newest transfer or block, to check the order. */
  newest: { block: number; event: number };
  /** The newest `final`. */
  final: number;
}

export const createHeld = (): Held => ({
  transfers: new Map(),
  blocks: new Map(),
  newest: { block: -1, event: -1 },
  final: -1,
});

/** The service knew an L1 height of at least, and at most, this when it made a message. */
export interface L1Bounds {
  readonly least: number;
  readonly most: number;
}

/** A message that breaks the promises of the stream. */
export class StreamViolation extends Error {}

const WHOLE = Infinity;

/** What identifies a transfer. */
export function keyOf(data: { block: number; event_index: number; token_address: string }): string {
  return `${data.block}:${data.event_index}:${BigInt(data.token_address)}`;
}

type Check = (isKept: boolean, violation: string) => void;

/**
 * Applies a message.
 *
 * @throws StreamViolation
 */
export function apply(
  held: Held,
  message: StreamMessage,
  l1: L1Bounds = { least: -1, most: Infinity },
): void {
  const { newest } = held;
  const check: Check = (isKept, violation) => {
    if (isKept) return;
    throw new StreamViolation(`${violation}: ${JSON.stringify(message)} after ${JSON.stringify(newest)}`);
  };
  switch (message.type) {
    case 'transfer': {
      const { block, event_index: event, block_hash: hash, timestamp, status } = message.data;
      const order = (event % 1_048_576) * 1_048_576 + Math.floor(event / 1_048_576);
      takeBlock(held, block, { hash, timestamp, finality: status }, { check, l1 });
      check(block !== newest.block || order > newest.event, 'out of order');
      held.transfers.set(keyOf(message.data), block);
      held.newest = { block, event: order };
      return;
    }
    case 'block': {
      const { height: at, ...block } = message.data;
      takeBlock(held, at, block, { check, l1 });
      held.newest = { block: at, event: WHOLE };
      return;
    }
    case 'undo':
      applyUndo(held, message.data, check);
      return;
    case 'final': {
      const { height: top } = message.data;
      check(top >= held.final && top <= l1.most, 'not the final height');
      held.final = top;
      return;
    }
    case 'end':
  }
}

/** All messages of a block say the same of it, except that L1 may have accepted it since. */
function takeBlock(
  { newest, blocks, final }: Held,
  at: number,
  block: HeldBlock,
  { check, l1 }: { readonly check: Check; readonly l1: L1Bounds },
): void {
  const isPart = newest.event !== WHOLE;
  check(newest.block < 0 || at === newest.block + (isPart ? 0 : 1), 'not the next block');
  const known = isPart ? blocks.get(at) : undefined;
  check(
    known === undefined || (known.hash === block.hash && known.timestamp === block.timestamp),
    'another block',
  );
  const isFinal = block.finality === 'ACCEPTED_ON_L1';
  const mayBeFinal = at <= l1.most;
  const mustBeFinal = at <= Math.max(l1.least, final) || known?.finality === 'ACCEPTED_ON_L1';
  check(isFinal ? mayBeFinal : !mustBeFinal, 'not the finality');
  blocks.set(at, block);
}

type UndoData = Extract<StreamMessage, { type: 'undo' }>['data'];

function applyUndo(held: Held, { last_valid: last, from, to, hashes }: UndoData, check: Check): void {
  const { blocks, transfers, newest } = held;
  const lowest = last?.height ?? -1;
  const dropped = [...blocks.keys()].filter((at) => at > lowest);
  check(last === null ? dropped.every((at) => at >= from) : from === last.height + 1, 'bad range');
  check(hashes.length === to - from + 1 && to >= newest.block, 'bad range');
  check(last === null || (blocks.get(lowest)?.hash ?? last.hash) === last.hash, 'not the block held');
  for (const at of dropped) check(blocks.get(at)?.hash === hashes[at - from], `not the block held at ${at}`);
  for (const [key, block] of transfers) if (block > lowest) transfers.delete(key);
  for (const at of dropped) blocks.delete(at);
  held.newest = last === null ? { block: -1, event: -1 } : { block: lowest, event: WHOLE };
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
