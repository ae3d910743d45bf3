import { v5 } from 'uuid';

import type { Transfer } from '../../../schemas/decode/index.ts';

/**
 * The id of a delivery is made of what it stands for (RFC 9562, version 5), so that a crash, a rebalance or a replay finds
 * the delivery that is there and never makes a second one of the same thing.
 */

/** Chosen at random once; another one would send everything anew. */
const NAMESPACE = '6f0b7d0e-5a7c-4d0c-9a53-0c8f2b1d7e64';

const named = (...parts: readonly (string | number)[]): string => v5(JSON.stringify(parts), NAMESPACE);

/** What a transfer is, in whatever block it lands. */
export function transferSubject(transfer: Transfer): string {
  const { txHash, eventInTx, item, token, from, to, amount, tokenId } = transfer;
  const id = tokenId === null ? '' : String(tokenId);
  return named('transfer', txHash, eventInTx, item, token, from, to, String(amount), id);
}

/** An account and a token, of which balances are told. */
export function pairSubject(account: string, token: string): string {
  return named('pair', account, token);
}

/** @param parts what of the event tells it from every other one of the same webhook */
export function deliveryId(webhookId: number, event: string, ...parts: readonly (string | number)[]): string {
  return named('delivery', webhookId, event, ...parts);
}
