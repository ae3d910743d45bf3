import { z } from 'zod';

import { felt, uint, unixMillis } from './common.ts';

/** The observation repeats `requested_at`, so that the requester compares only times of its own clock. */
const request = {
  v: z.literal(1),
  requested_at: unixMillis,
  /** Hash of the user; requests of one user are queued together. Absent in messages of earlier versions. */
  caller: z.string().max(64).optional(),
};

/** Refreshes that the API requests of the observers. Losing one is harmless: clients ask again. */
export const requestsMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('balance.requested'),
    ...request,
    account: felt,
    token: felt,
  }),
  z.object({ type: z.literal('price.requested'), ...request, token: felt }),
  z.object({ type: z.literal('nft.metadata_requested'), ...request, token: felt, token_id: uint }),
]);
export type RequestsMessage = z.infer<typeof requestsMessage>;

/** `pg_notify` channel that carries the subject of an observation once it is stored. */
export const OBSERVED_CHANNEL = 'tds_observed';

/** The subject of a request; also the message key of the observation that answers it. */
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
