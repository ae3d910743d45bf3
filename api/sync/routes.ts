import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import type { Sealing } from '../../infra/sealing.ts';
import { syncBlob } from '../../projections/sync/queries.ts';
import { syncBlobAnswer, syncStoredAnswer } from '../../schemas/api/sync.ts';
import type { CommandBus } from '../../infra/commands/bus.ts';
import { HttpError, invalidInput, notFound, unavailable } from '../http/errors.ts';
import { integerField, textField } from '../http/fields.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { parseInput } from '../http/validation.ts';
import { iso } from '../http/times.ts';
import { checkSignature } from './signature.ts';

export interface SyncRouteDeps {
  /** May only SELECT. */
  readonly pool: Sql;
  readonly commands: CommandBus;
  readonly sealing: Sealing;
  readonly syncCallsPerMinute: number;
}

const BLOB_BYTES = 1_048_576;
/** The blob and what is around it, in JSON. */
const BODY_BYTES = 1_572_864;
const KEY_DIGITS = 512;
const HASH_DIGITS = 256;
const LOOKUP_HASH = /^[0-9a-f]+$/;
const KEY = /^([0-9a-fA-F]{2})+$/;
/** Writers that race for the first PUT: who loses looks again. */
const ATTEMPTS = 3;

const keyOf = (lookupHash: string): string => `sync auth_key of ${lookupHash}`;
const sentWithFirst = z.object({
  auth_key: z.string().max(KEY_DIGITS).regex(KEY, 'Use hex digits, two a byte.'),
});
function firstKey(sent: unknown): string {
  if (sent === undefined) throw invalidInput({ auth_key: ['This field is required at the first PUT.'] });
  return parseInput(sentWithFirst, { auth_key: sent }).auth_key;
}
const conflict = (serverVersion: number): HttpError =>
  new HttpError(409, 'conflict', 'Version conflict', { extra: { server_version: serverVersion } });

export function syncRoutes({ pool, commands, sealing, syncCallsPerMinute }: SyncRouteDeps): Route[] {
  const path = '/api/vendor/sync/{lookup_hash}/';
  const signed = {
    path,
    tag: 'Encrypted sync',
    auth: 'signature',
    addressCallsPerMinute: syncCallsPerMinute,
  } as const;
  const errorsOfAll = { hasErrorText: true } as const;

  const read = defineRoute({
    ...signed,
    ...errorsOfAll,
    method: 'GET',
    summary: 'An encrypted blob',
    description:
      'Signed: `GET:<lookup_hash>:<timestamp>`. That none is stored is told before the signature is looked at.',
    params: z.object({ lookup_hash: z.string() }),
    response: { 200: syncBlobAnswer },
    errors: [403],
    async handler({ input: { params }, served, signedCall }) {
      const { lookup_hash: lookupHash } = params;
      // Nothing is stored under any other text, and some no table can be asked for.
      const stored = LOOKUP_HASH.test(lookupHash)
        ? await syncBlob(pool, served.schema('sync'), lookupHash)
        : null;
      if (stored === null) throw notFound();
      const key = sealing.open(stored.auth_key, keyOf(lookupHash));
      checkSignature(signedCall, { method: 'GET', lookupHash }, key);
      const { version, blob, last_modified: at } = stored;
      return { status: 200, body: { version, blob, last_modified: iso(at) } };
    },
  });

  const write = defineRoute({
    ...signed,
    ...errorsOfAll,
    method: 'PUT',
    summary: 'Store an encrypted blob',
    description: [
      'Signed: `PUT:<lookup_hash>:<timestamp>:<SHA-256 of the blob, hex>`, under the key that the first PUT brings as',
      '`auth_key`; later ones are ignored. The version must be above the stored one.',
    ].join(' '),
    params: z.object({
      lookup_hash: z.string().max(HASH_DIGITS).regex(LOOKUP_HASH, 'Use lowercase hex digits.'),
    }),
    refusesPath: true,
    body: z.object({
      blob: textField({ max: BODY_BYTES, isTrimmed: false }),
      version: integerField({ min: 1 }),
      // Of any type: after the first PUT it is ignored, whatever it is.
      auth_key: z
        .unknown()
        .optional()
        .meta({
          description: 'Hex digits, two a byte; required at the first PUT, ignored later',
          override: { type: 'string', maxLength: KEY_DIGITS, pattern: KEY.source },
        }),
    }),
    bodyBytes: BODY_BYTES,
    response: { 200: syncStoredAnswer },
    errors: [403],
    async handler({ input: { params, body }, served, signedCall }) {
      const { lookup_hash: lookupHash } = params;
      const { blob, version, auth_key: sentKey } = body;
      if (Buffer.byteLength(blob) > BLOB_BYTES) {
        throw new HttpError(413, 'too_large', `The blob exceeds ${BLOB_BYTES} bytes.`);
      }
      for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
        const stored = await syncBlob(pool, served.schema('sync'), lookupHash);
        const key = stored === null ? firstKey(sentKey) : sealing.open(stored.auth_key, keyOf(lookupHash));
        checkSignature(signedCall, { method: 'PUT', lookupHash, blob }, key);
        if (stored !== null && version <= stored.version) throw conflict(stored.version);
        const { accepted, result } = await commands.submit({
          type: 'sync.put',
          id: randomUUID(),
          actor: 'signature',
          body: {
            lookup_hash: lookupHash,
            version,
            blob,
            verified_with: stored?.key_command ?? null,
            // One that an earlier SECRET_KEY sealed is sealed anew.
            auth_key:
              stored !== null && sealing.isCurrent(stored.auth_key)
                ? null
                : sealing.seal(key, keyOf(lookupHash)),
          },
        });
        if (accepted) return { status: 200, body: { version, status: 'ok' as const } };
        if (typeof result['server_version'] === 'number') throw conflict(result['server_version']);
        // Another first PUT was decided meanwhile: the signature is checked with its key.
      }
      throw unavailable('busy', 'Too many writers at once.', 1);
    },
  });

  return [read, write];
}
