import { publicVerificationAnswer } from '../../schemas/api/verification.ts';
import type { Operator } from '../admin/operator.ts';
import { readCovering } from '../http/min-block.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { shareRecent } from '../http/share-recent.ts';

export interface PublicVerificationDeps {
  readonly operator: Pick<Operator, 'publicVerification'>;
}

const MAX_AGE_SECONDS = 10;
/** For clients that have seen a newer block than the kept answer; they share this one, too. */
const NEWER_AGE_MS = 500;
const CALLS_PER_MINUTE = 60;

/** What anyone may ask: how much of the index is verified. */
export function publicVerificationRoute({ operator }: PublicVerificationDeps): Route {
  const read = (): ReturnType<Operator['publicVerification']> => operator.publicVerification();
  const recent = shareRecent(read, MAX_AGE_SECONDS * 1000);
  const newer = shareRecent(read, NEWER_AGE_MS);
  return defineRoute({
    id: 'getVerification',
    method: 'GET',
    path: '/api/verification/',
    summary: 'Get how much of the index is verified',
    description: [
      'Returns how many indexed blocks have events that match the commitment in their header, whether balance changes sum to zero,',
      `and the last verification and rebuild. The answer may be ${MAX_AGE_SECONDS} seconds old.`,
    ].join(' '),
    tag: 'Verification',
    auth: 'none',
    asOf: 'This route returns the current state.',
    addressCallsPerMinute: CALLS_PER_MINUTE,
    response: { 200: publicVerificationAnswer },
    errors: [503],
    async handler({ request }) {
      let readAgain = recent;
      const body = await readCovering(
        async () => {
          const found = await readAgain();
          readAgain = newer;
          return found;
        },
        ({ heights }) => heights.last,
        { request, everyMs: NEWER_AGE_MS },
      );
      const { last } = body.heights;
      return {
        status: 200,
        headers: {
          'Cache-Control': `public, max-age=${MAX_AGE_SECONDS}`,
          // Without it, a shared cache would answer a client that has seen a newer block.
          Vary: 'X-Min-Block',
          ...(last === null ? {} : { 'X-Indexed-Block': String(last) }),
        },
        body,
      };
    },
  });
}
