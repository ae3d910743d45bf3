import { finished } from 'node:stream';

import type { Context } from 'koa';
import PQueue from 'p-queue';

import { createLruCache } from '../../infra/lru.ts';
import { createRate } from '../../infra/rate.ts';
import { HttpError, unavailable } from './errors.ts';

export interface BodyLimits {
  /** Bytes of all bodies that have arrived and are not parsed yet. */
  readonly bytes: number;
  /** Those of one client address. */
  readonly bytesPerAddress: number;
  /** Bodies of one address that have been arriving for more than a second. */
  readonly slowBodiesPerAddress: number;
  /** Average rate below which a body is rejected, once it has been arriving for `graceSeconds`. */
  readonly minBytesPerSecond: number;
  readonly graceSeconds: number;
}

const DEFAULT_LIMITS: BodyLimits = {
  bytes: 64 * 1_048_576,
  bytesPerAddress: 24 * 1_048_576,
  slowBodiesPerAddress: 20,
  minBytesPerSecond: 4096,
  graceSeconds: 5,
};

/** Larger bodies, and compressed ones, are parsed in turn. The JSON of a blob of 64 KiB is smaller. */
const SMALL_BODY_BYTES = 69_632;
/** Large bodies of one client address: parsing them keeps this process from answering others. */
const LARGE_BODIES_PER_SECOND = 8;
/** Addresses of which that is remembered. */
const MAX_ADDRESSES = 10_000;
/** Memory of a chunk besides its bytes; a client may send chunks of a byte. */
const CHUNK_BYTES = 200;

export interface BodyIntake {
  /**
   * Receives the body of a request, then parses it: a large one in the turn of its address. Throws 408, 413 or 503.
   *
   * @param limit bytes as sent
   */
  take<T>(
    context: Context,
    from: { readonly address: string; readonly limit: number },
    parse: (bytes: Buffer) => Promise<T>,
  ): Promise<T>;
}

/** The large bodies of an address. */
interface Line {
  /** One at a time. */
  readonly queue: PQueue;
  readonly turn: ReturnType<typeof createRate>;
}

interface Body {
  readonly address: string;
  readonly dropped: AbortController;
  state: 'arriving' | 'slow' | 'waiting' | 'parsing';
  /** Memory that it takes. */
  bytes: number;
}

/**
 * Bodies arrive concurrently: a slow sender delays nobody. Only complete large bodies wait for each other, one of an
 * address at a time and a few in a second. When too much has arrived, the bodies that have been arriving for longest are
 * dropped, since those of senders that are not slow arrive in a moment.
 */
export function createBodyIntake(limits: BodyLimits = DEFAULT_LIMITS): BodyIntake {
  const lines = createLruCache<string, Line>(MAX_ADDRESSES);
  const bodies = createBodySet(limits);
  const lineOf = (address: string): Line => {
    const line = lines.get(address) ?? {
      queue: new PQueue({ concurrency: 1 }),
      turn: createRate(LARGE_BODIES_PER_SECOND),
    };
    lines.set(address, line);
    return line;
  };
  return {
    async take(context, { address, limit }, parse) {
      const body = bodies.add(address);
      const { signal } = body.dropped;
      context.res.once('close', () => body.dropped.abort(clientLeft()));
      try {
        const bytes = await receive(context, body, limit, bodies, limits);
        const isSmall = context.get('Content-Encoding') === '' && bytes.length <= SMALL_BODY_BYTES;
        body.state = 'waiting';
        const start = async () => {
          body.state = 'parsing';
          return await parse(bytes);
        };
        if (isSmall) return await start();
        const { queue, turn } = lineOf(address);
        return await queue.add(async () => await turn(signal).then(start), { signal });
      } finally {
        bodies.remove(body);
      }
    },
  };
}

/** Collects the bytes of a body until it is complete or dropped. */
async function receive(
  { req }: Context,
  body: Body,
  limit: number,
  bodies: BodySet,
  { graceSeconds, minBytesPerSecond }: BodyLimits,
): Promise<Buffer> {
  const { signal } = body.dropped;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const chunks: Buffer[] = [];
  let size = 0;
  let seconds = 0;
  const take = (chunk: Buffer): void => {
    size += chunk.length;
    if (size > limit) body.dropped.abort(tooLarge(limit));
    if (signal.aborted) return;
    chunks.push(chunk);
    bodies.grow(body, chunk.length + CHUNK_BYTES);
  };
  const checkRate = (): void => {
    seconds += 1;
    if (seconds === 1) bodies.becomeSlow(body);
    if (seconds >= graceSeconds && size < seconds * minBytesPerSecond) body.dropped.abort(tooSlow());
  };
  const checking = setInterval(checkRate, 1000);
  const stopWatching = finished(req, { writable: false }, (error) =>
    error ? reject(clientLeft()) : resolve(),
  );
  signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  req.on('data', take);
  try {
    await promise;
    return Buffer.concat(chunks, size);
  } finally {
    clearInterval(checking);
    stopWatching();
    req.off('data', take);
    // Drops the rest: closing while the client still sends would reset the connection before it reads the answer.
    req.resume();
  }
}

type BodySet = ReturnType<typeof createBodySet>;

/** The bodies that take memory. */
function createBodySet(limits: BodyLimits) {
  /** In order of their begin. */
  const byAddress = new Map<string, { readonly bodies: Set<Body>; bytes: number }>();
  let total = 0;

  const remove = (body: Body): void => {
    const held = byAddress.get(body.address);
    if (held === undefined || !held.bodies.delete(body)) return;
    held.bytes -= body.bytes;
    total -= body.bytes;
    if (held.bodies.size === 0) byAddress.delete(body.address);
  };
  const drop = (body: Body, reason: HttpError): void => {
    remove(body);
    body.dropped.abort(reason);
  };
  /** The body to drop first: one that has been arriving for longest, else one that has been waiting for longest. */
  const oldestOf = (address: string): Body | undefined => {
    const bodies = Iterator.from(byAddress.get(address)?.bodies ?? []);
    const droppable = bodies.filter(({ state }) => state !== 'parsing').toArray();
    return droppable.find(({ state }) => state !== 'waiting') ?? droppable[0];
  };
  const largestAddress = (): string => {
    let largest = { address: '', bytes: -1 };
    for (const [address, { bytes }] of byAddress) if (bytes > largest.bytes) largest = { address, bytes };
    return largest.address;
  };
  return {
    add(address: string): Body {
      const body: Body = { address, dropped: new AbortController(), state: 'arriving', bytes: 0 };
      const held = byAddress.get(address) ?? { bodies: new Set(), bytes: 0 };
      byAddress.set(address, held);
      held.bodies.add(body);
      return body;
    },
    remove,
    grow(body: Body, bytes: number): void {
      const held = byAddress.get(body.address);
      if (held === undefined || body.dropped.signal.aborted) return;
      body.bytes += bytes;
      held.bytes += bytes;
      total += bytes;
      const { signal } = body.dropped;
      while (held.bytes > limits.bytesPerAddress && !signal.aborted)
        drop(oldestOf(body.address) ?? body, overloaded());
      while (total > limits.bytes && !signal.aborted) drop(oldestOf(largestAddress()) ?? body, overloaded());
    },
    becomeSlow(body: Body): void {
      body.state = 'slow';
      const bodies = byAddress.get(body.address)?.bodies ?? [];
      const slow = Iterator.from(bodies)
        .filter(({ state }) => state === 'slow')
        .toArray();
      if (slow.length > limits.slowBodiesPerAddress && slow[0] !== undefined) drop(slow[0], tooSlow());
    },
  };
}

export function tooLarge(limit: number): HttpError {
  return new HttpError(413, 'too_large', `Request body exceeds ${limit} bytes.`);
}

/** The client does not read this answer. */
const clientLeft = (): HttpError => new HttpError(400, 'bad_request', 'The client disconnected.');

const overloaded = (): HttpError =>
  unavailable('overloaded', 'Too many request bodies are arriving. Expected available in 1 second.', 1);

const tooSlow = (): HttpError =>
  new HttpError(408, 'request_timeout', 'The request did not arrive in time.', {
    headers: { Connection: 'close' },
  });
