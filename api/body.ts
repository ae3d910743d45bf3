import { bodyParser } from '@koa/bodyparser';
import type { Context } from 'koa';

import { HttpError } from './errors.ts';

/** Bytes of a request body, after decompression. */
const BODY_LIMIT = 1_048_576;

const statusOf = (error: unknown): number =>
  error instanceof Error && 'status' in error && typeof error.status === 'number' ? error.status : 400;

const read = bodyParser({
  enableTypes: ['json'],
  detectJSON: () => true,
  parsedMethods: ['POST', 'PUT', 'PATCH', 'DELETE'],
  jsonLimit: BODY_LIMIT,
  jsonStrict: false,
});

/** The JSON body of a request; one without any body reads as `{}`. Throws 400, 413 or 415. */
export async function readBody(context: Context): Promise<unknown> {
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
  if ((context.request.length ?? 0) > BODY_LIMIT) throw tooLarge(context);
  try {
    await read(context, async () => {});
  } catch (cause) {
    if (statusOf(cause) === 413) throw tooLarge(context);
    if (statusOf(cause) === 415)
      throw new HttpError(415, 'unsupported_media_type', 'Unsupported content encoding or character set.');
    // The parser's own message repeats the body, which may hold a password.
    throw new HttpError(400, 'parse_error', 'JSON parse error - the request body is not valid JSON.');
  }
  return context.request.body;
}

/**
 * The rest of the body is taken and dropped, for as long as a request may take: closing on a client that still sends
 * would reset the connection, and the client would never see the answer.
 */
function tooLarge({ req }: Context): HttpError {
  req.unpipe();
  req.resume();
  return new HttpError(413, 'too_large', `Request body exceeds ${BODY_LIMIT} bytes.`);
}
