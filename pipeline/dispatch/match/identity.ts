import { v5 } from 'uuid';

import type { Transfer } from '../../../schemas/decode/index.ts';

/**
 * The id of a delivery is derived from its content (RFC 9562, version 5), so that after a crash, a rebalance or a replay the
 * stored delivery is found, and none is made twice.
 */

/** Random, and fixed: with another one every event would be sent again. */
const NAMESPACE = '6f0b7d0e-5a7c-4d0c-9a53-0c8f2b1d7e64';

const idOf = (...parts: readonly (string | number)[]): string => v5(JSON.stringify(parts), NAMESPACE);

/** Identifies a transfer, whatever block includes it. */
export function transferSubject(transfer: Transfer): string {
  const { txHash, eventInTx, item, token, from, to, amount, tokenId } = transfer;
  const id = tokenId === null ? '' : String(tokenId);
  return idOf('transfer', txHash, eventInTx, item, token, from, to, String(amount), id);
}

/** Identifies the balance of an account in a token. */
export function pairSubject(account: string, token: string): string {
  return idOf('pair', account, token);
}

/** @param parts what distinguishes the event from every other one of the same webhook */
export function deliveryId(webhookId: number, event: string, ...parts: readonly (string | number)[]): string {
  return idOf('delivery', webhookId, event, ...parts);
}
