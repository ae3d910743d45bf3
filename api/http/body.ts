import { bodyParser } from '@koa/bodyparser';
import type { Context } from 'koa';
import PQueue from 'p-queue';

import { createLruCache } from '../../infra/lru.ts';
import { HttpError } from './errors.ts';

/** Limit of a request body in bytes after decompression, unless the route declares another. */
const DEFAULT_BODY_BYTES = 1_048_576;

/** Larger bodies, and those of unknown size, are read in turn. */
const SMALL_BODY_BYTES = 65_536;
/** Large bodies of one client address: reading and parsing them keeps this process from answering others. */
const LARGE_BODIES_PER_SECOND = 8;
/** Addresses of which that is remembered. */
const MAX_ADDRESSES = 10_000;

/** Reads a body in its turn; until then the client waits to send it. */
export type ReadInTurn = <T>(context: Context, address: string, read: () => Promise<T>) => Promise<T>;

/** Lets the large bodies of each client address be read one after the other, a few in a second. */
export function createBodyTurns(): ReadInTurn {
  const queues = createLruCache<string, PQueue>(MAX_ADDRESSES);
  return async (context, address, read) => {
    if (isSmall(context)) return await read();
    const queue =
      queues.get(address) ??
      new PQueue({ concurrency: 1, interval: 1000, intervalCap: LARGE_BODIES_PER_SECOND });
    queues.set(address, queue);
    const left = new AbortController();
    context.res.once('close', () => left.abort());
    return await queue.add(read, { signal: left.signal });
  };
}

/** A compressed body may be of any size once it is decompressed. */
function isSmall(context: Context): boolean {
  const isPlain = context.get('Transfer-Encoding') === '' && context.get('Content-Encoding') === '';
  return isPlain && (context.request.length ?? 0) <= SMALL_BODY_BYTES;
}

const statusOf = (error: unknown): number =>
  error instanceof Error && 'status' in error && typeof error.status === 'number' ? error.status : 400;

/**
 * Reads the JSON body of a request; an absent body is `{}`. Throws 400, 413 or 415.
 *
 * @param limit bytes after decompression
 */
export function bodyReader(limit: number = DEFAULT_BODY_BYTES): (context: Context) => Promise<unknown> {
  const read = bodyParser({
    enableTypes: ['json'],
    detectJSON: () => true,
    parsedMethods: ['POST', 'PUT', 'PATCH', 'DELETE'],
    jsonLimit: limit,
    jsonStrict: false,
  });

  /**
   * Reads and drops the rest of the body: closing while the client still sends would reset the connection before it reads
   * the answer.
   */
  const tooLarge = ({ req }: Context): HttpError => {
    req.unpipe();
    req.resume();
    return new HttpError(413, 'too_large', `Request body exceeds ${limit} bytes.`);
  };

  return async (context) => {
    const type = context.get('Content-Type');
    const isEmpty = context.get('Transfer-Encoding') === '' && (context.request.length ?? 0) === 0;
    if (isEmpty) return {};
    if (typeof context.is('json', '+json') !== 'string') {
      throw new HttpError(
        415,
        'unsupported_media_type',
        `Unsupported media type "${type.slice(0, 100)}" in request.`,
      );
    }
    if ((context.request.length ?? 0) > limit) throw tooLarge(context);
    try {
      await read(context, async () => {});
    } catch (cause) {
      if (statusOf(cause) === 413) throw tooLarge(context);
      if (statusOf(cause) === 415)
        throw new HttpError(415, 'unsupported_media_type', 'Unsupported content encoding or character set.');
      // The parser's message quotes the body, which may hold a password.
      throw new HttpError(400, 'parse_error', 'JSON parse error - the request body is not valid JSON.');
    }
    return context.request.body;
  };
}
