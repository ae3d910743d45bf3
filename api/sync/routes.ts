import { z } from 'zod';

import type { Sealing } from '../../infra/sealing.ts';
import { syncBlob } from '../../projections/sync/queries.ts';
import { syncBlobAnswer, syncConflictBody, syncStoredAnswer } from '../../schemas/api/sync.ts';
import type { CommandsFor } from '../commands/command-queue.ts';
import { addressBlock } from '../http/client-address.ts';
import { HttpError, invalidInput, notFound, throttled, unavailable } from '../http/errors.ts';
import { integerField, textField } from '../http/fields.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { figure } from '../http/stated-limits.ts';
import { parseInput } from '../http/validation.ts';
import { iso } from '../http/times.ts';
import type { ByteBudgets } from '../limits/byte-budgets.ts';
import { checkSignature } from './signature.ts';

export interface SyncRouteDeps {
  readonly commandsFor: CommandsFor;
  readonly sealing: Sealing;
  readonly syncCallsPerMinute: number;
  /** Of blobs of a client address: what is stored stays in the log. */
  readonly syncBytesPerHour: number;
  readonly byteBudgets: ByteBudgets;
}

const BLOB_BYTES = 1_048_576;
/** The blob in its JSON body. */
const BODY_BYTES = 1_572_864;
const KEY_DIGITS = 512;
const HASH_DIGITS = 256;
const LOOKUP_HASH = /^[0-9a-f]+$/;
const KEY = /^([0-9a-fA-F]{2})+$/;
/** Attempts of a writer that loses the race for the first PUT. */
const ATTEMPTS = 3;

const keyOf = (lookupHash: string): string => `sync auth_key of ${lookupHash}`;
const firstPut = z.object({
  auth_key: z.string().max(KEY_DIGITS).regex(KEY, 'Use hex digits, two per byte.'),
});
/** Of any type, as it is ignored after the first PUT. */
const sentKey = z
  .unknown()
  .optional()
  .meta({
    description: 'Hex digits, two per byte; required at the first PUT, ignored later',
    override: { type: 'string', maxLength: KEY_DIGITS, pattern: KEY.source },
  });
function firstKey(sent: unknown): string {
  if (sent === undefined) throw invalidInput({ auth_key: ['This field is required at the first PUT.'] });
  return parseInput(firstPut, { auth_key: sent }).auth_key;
}
const conflict = (serverVersion: number): HttpError =>
  new HttpError(409, 'conflict', 'Version conflict', { extra: { server_version: serverVersion } });

const common = {
  path: '/api/vendor/sync/{lookup_hash}/',
  tag: 'Encrypted sync',
  auth: 'signature',
  hasErrorText: true,
} as const;

export function syncRoutes(deps: SyncRouteDeps): Route[] {
  return [readRoute(deps), writeRoute(deps)];
}

function readRoute({ sealing, syncCallsPerMinute }: SyncRouteDeps): Route {
  return defineRoute({
    id: 'readSync',
    ...common,
    addressCallsPerMinute: syncCallsPerMinute,
    method: 'GET',
    summary: 'Read an encrypted blob',
    description:
      'Signed text: `GET:<lookup_hash>:<timestamp>`. A blob that does not exist returns 404 before the signature is verified.',
    params: z.object({ lookup_hash: z.string() }),
    response: { 200: syncBlobAnswer },
    errors: [403],
    async handler({ input: { params }, served, signedCall, pool }) {
      const { lookup_hash: lookupHash } = params;
      // Other texts are never stored, and some are invalid in SQL.
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
}

function writeRoute(deps: SyncRouteDeps): Route {
  const { commandsFor, sealing, syncCallsPerMinute, syncBytesPerHour, byteBudgets } = deps;
  return defineRoute({
    id: 'writeSync',
    ...common,
    addressCallsPerMinute: syncCallsPerMinute,
    method: 'PUT',
    summary: 'Store an encrypted blob',
    description: [
      'Signed text: `PUT:<lookup_hash>:<timestamp>:<SHA-256 of the blob, hex>`, signed with the `auth_key` of the first PUT;',
      'the `auth_key` of later PUTs is ignored. The version must be greater than the stored one.',
    ].join(' '),
    params: z.object({
      lookup_hash: z.string().max(HASH_DIGITS).regex(LOOKUP_HASH, 'Use lowercase hex digits.'),
    }),
    reportsInvalidPath: true,
    body: z.object({
      blob: textField({ max: BODY_BYTES, isTrimmed: false }),
      version: integerField({ min: 1 }),
      auth_key: sentKey,
    }),
    bodyBytes: BODY_BYTES,
    limits: [
      `Bytes of the blob: ${figure(BLOB_BYTES)} (413)`,
      'Bytes of the blobs of an address in an hour: `SYNC_BYTES_PER_HOUR` of the operator, by default 67,108,864 (429)',
    ],
    response: { 200: syncStoredAnswer },
    errors: [403],
    errorBodies: { 409: syncConflictBody },
    async handler({ input: { params, body }, served, signedCall, request, pool }) {
      const { lookup_hash: lookupHash } = params;
      const { blob, version } = body;
      const bytes = Buffer.byteLength(blob);
      if (bytes > BLOB_BYTES) {
        throw new HttpError(413, 'too_large', `The blob exceeds ${BLOB_BYTES} bytes.`);
      }
      for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
        const stored = await syncBlob(pool, served.schema('sync'), lookupHash);
        const key =
          stored === null ? firstKey(body.auth_key) : sealing.open(stored.auth_key, keyOf(lookupHash));
        checkSignature(signedCall, { method: 'PUT', lookupHash, blob }, key);
        if (stored !== null && version <= stored.version) throw conflict(stored.version);
        const address = addressBlock(request.ip);
        const waitMs = await byteBudgets.take(`sync ${address}`, bytes, syncBytesPerHour);
        if (waitMs > 0) throw throttled(waitMs / 1000);
        const { accepted, result } = await commandsFor(request).submit({
          type: 'sync.put',
          actor: 'signature',
          body: {
            lookup_hash: lookupHash,
            version,
            blob,
            verified_with: stored?.key_command ?? null,
            // A key sealed with a previous SECRET_KEY is sealed again with the current one.
            auth_key:
              stored !== null && sealing.isCurrent(stored.auth_key)
                ? null
                : sealing.seal(key, keyOf(lookupHash)),
          },
        });
        if (accepted) return { status: 200, body: { version, status: 'ok' as const } };
        if (typeof result['server_version'] === 'number') throw conflict(result['server_version']);
        // A concurrent first PUT won: verify the signature with its key.
      }
      throw unavailable('busy', 'Too many writers at once.', 1);
    },
  });
}
