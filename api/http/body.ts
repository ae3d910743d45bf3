import { Readable } from 'node:stream';

import { bodyParser } from '@koa/bodyparser';
import type { Context } from 'koa';

import { tooLarge } from './body-intake.ts';
import type { BodyIntake } from './body-intake.ts';
import { HttpError } from './errors.ts';

/** Limit of a request body in bytes after decompression, unless the route declares another. */
export const DEFAULT_BODY_BYTES = 1_048_576;

const statusOf = (error: unknown): number =>
  error instanceof Error && 'status' in error && typeof error.status === 'number' ? error.status : 400;

/**
 * Reads the JSON body of a request; an absent body is `{}`. Throws 400, 408, 413, 415 or 503.
 *
 * @param limit bytes, before and after decompression
 */
export function bodyReader(
  intake: BodyIntake,
  limit: number = DEFAULT_BODY_BYTES,
): (context: Context, address: string) => Promise<unknown> {
  const read = bodyParser({
    enableTypes: ['json'],
    detectJSON: () => true,
    parsedMethods: ['POST', 'PUT', 'PATCH', 'DELETE'],
    jsonLimit: limit,
    jsonStrict: false,
  });

  const parse = async (context: Context, bytes: Buffer): Promise<unknown> => {
    const arrived = Object.assign(Readable.from([bytes]), { headers: context.req.headers });
    try {
      await read(Object.create(context, { req: { value: arrived } }), async () => {});
    } catch (cause) {
      if (statusOf(cause) === 413) throw tooLarge(limit);
      if (statusOf(cause) === 415)
        throw new HttpError(415, 'unsupported_media_type', 'Unsupported content encoding or character set.');
      // The parser's message quotes the body, which may hold a password.
      throw new HttpError(400, 'parse_error', 'JSON parse error - the request body is not valid JSON.');
    }
    return context.request.body;
  };

  return async (context, address) => {
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
    if ((context.request.length ?? 0) > limit) {
      // Drops the body: closing while the client still sends would reset the connection before it reads the answer.
      context.req.resume();
      throw tooLarge(limit);
    }
    return await intake.take(context, { address, limit }, (bytes) => parse(context, bytes));
  };
}
