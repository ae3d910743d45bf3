import { z } from 'zod';

import { COMMAND_LIMITS } from '../commands/command-queue.ts';
import { MAX_FAILURES } from '../limits/address-failures.ts';
import { DEFAULT_BODY_BYTES } from './body.ts';
import { readClasses } from './clickhouse.ts';
import type { ReadClassName } from './clickhouse.ts';
import { REACHABLE_ROWS } from './envelope.ts';
import { HELD_MIB_PER_USER } from './held-answers.ts';
import { MAX_UNANSWERED } from './pipelining.ts';
import { acceptsSessionAsKey } from './route.ts';
import type { Route } from './route.ts';

/** The limits of an operation as the OpenAPI document states them: what is limited, a colon, and how far. */
export function statedLimits(route: Route): string[] {
  const { body, bodyBytes = DEFAULT_BODY_BYTES, limits = [] } = route;
  return [
    ...callLimits(route),
    ...(body === undefined ? [] : [`Bytes of the body: ${figure(bodyBytes)} (413)`]),
    ...pageLimits(route.query),
    ...limits,
  ];
}

/** In the description of the document: what applies to every operation. */
export function commonLimits(): string {
  const { placesPerCaller, placesPerUser } = readClasses.page;
  return [
    'The limits of an operation are in its description.',
    'For all of them: URL and headers have at most 16,384 bytes (431);',
    `${MAX_FAILURES} failed checks of API keys block an address (for IPv6, its /64) for \`IP_BLOCK_WINDOW_SECONDS\` of the operator, by default 300 (403);`,
    `at most ${placesPerCaller} reads of a key and ${placesPerUser} of a user run at a time (unless the operation states other numbers), and ${COMMAND_LIMITS.inFlightPerUser} writes of a user; further ones wait for some seconds, then return 503;`,
    'an answer must be read within 60 s;',
    `a user's unread answers have at most ${HELD_MIB_PER_USER} MiB together: a read whose answer does not fit returns 503;`,
    `a connection with more than ${MAX_UNANSWERED} unanswered requests is closed.`,
  ].join(' ');
}

export const figure = (number: number): string => number.toLocaleString('en');

function callLimits(route: Route): string[] {
  const { auth, sessionCallsPerMinute: bySession, addressCallsPerMinute: byAddress } = route;
  const ofKey = 'Successful calls of an API key in 60 minutes: its `rate_limit_per_hour` (403)';
  const ofSession =
    bySession === undefined
      ? 'Calls by session: no limit'
      : `Calls of a user by session in a minute: ${bySession} (429)`;
  switch (auth) {
    case 'key':
      return acceptsSessionAsKey(route)
        ? [
            ofKey,
            'Successful calls of all sessions of a user in 60 minutes: `RATE_LIMIT_PER_HOUR` of the operator (403)',
          ]
        : [ofKey];
    case 'key-or-session':
      return [ofKey, ofSession];
    case 'session':
    case 'admin':
      return [ofSession];
    case 'signature':
      return [
        'Calls of an address in a minute: `SYNC_CALLS_PER_MINUTE` of the operator, by default 60 (429)',
      ];
    case 'none':
      return byAddress === undefined ? [] : [`Calls of an address in a minute: ${byAddress} (429)`];
  }
}

const pageSize = z.object({ override: z.object({ default: z.int(), maximum: z.int() }) });

/** Of parameters that `limit()` and `page()` make. */
function pageLimits(query: z.ZodObject | undefined): string[] {
  const parameters: Readonly<Record<string, z.ZodType | undefined>> = query?.shape ?? {};
  const sizes = ['limit', 'page_size'].flatMap((name) => {
    const { success, data } = pageSize.safeParse(parameters[name]?.meta());
    if (!success) return [];
    const { maximum, default: fallback } = data.override;
    return [`\`${name}\`: ${figure(maximum)}, by default ${figure(fallback)}`];
  });
  const isPaged = parameters['page'] !== undefined;
  return isPaged ? [...sizes, `Rows that \`page\` reaches: ${figure(REACHABLE_ROWS)}`] : sizes;
}

/** Of a route whose reads are not those of pages. */
export function readLimit(name: Exclude<ReadClassName, 'page'>): string {
  const { placesPerCaller, placesPerUser, timeoutMs, ...others } = readClasses[name];
  const seconds = ('waitMs' in others ? others.waitMs : timeoutMs) / 1000;
  return `Requests that read at a time: ${placesPerCaller} of a key, ${placesPerUser} of a user; others wait up to ${seconds} s, then return 503`;
}
