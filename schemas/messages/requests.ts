import { z } from 'zod';

import { felt, uint, unixMillis } from './common.ts';

/** `requested_at` comes back in what was observed, so that who asked knows it by no other clock than its own. */
const request = { v: z.literal(1), requested_at: unixMillis };

/** Refreshes that the API asks of the observers. Not the truth: a lost one is asked again. */
export const requestsMessage = z.discriminatedUnion('type', [
  z.object({ type: z.literal('balance.requested'), ...request, account: felt, token: felt }),
  z.object({ type: z.literal('price.requested'), ...request, token: felt }),
  z.object({ type: z.literal('nft.metadata_requested'), ...request, token: felt, token_id: uint }),
]);
export type RequestsMessage = z.infer<typeof requestsMessage>;

/** PostgreSQL's channel on which a subject is told of when what an observer read of it was folded. */
export const OBSERVED_CHANNEL = 'tds_observed';

/** The key of a request: what it is about, as the observation's own key. */
export function requestSubject(
  request:
    | Pick<Extract<RequestsMessage, { type: 'balance.requested' }>, 'type' | 'account' | 'token'>
    | Pick<Extract<RequestsMessage, { type: 'price.requested' }>, 'type' | 'token'>
    | Pick<Extract<RequestsMessage, { type: 'nft.metadata_requested' }>, 'type' | 'token' | 'token_id'>,
): string {
  switch (request.type) {
    case 'balance.requested':
      return `${request.account}:${request.token}`;
    case 'price.requested':
      return request.token;
    case 'nft.metadata_requested':
      return `${request.token}:${request.token_id}`;
  }
}
