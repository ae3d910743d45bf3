import type { Transfer } from '../../../schemas/decode/index.ts';
import { eventIndex } from '../../../schemas/decode/index.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import type { WebhookBody, WebhookBodyOf } from '../../../schemas/webhooks/events.ts';

/** The bodies of deliveries, as stored and sent. */

/** @param createdAt unix milliseconds */
export function bodyText<E extends WebhookBody['event']>(
  event: E,
  createdAt: number,
  data: WebhookBodyOf<E>['data'],
): string {
  return JSON.stringify({ event, created_at: new Date(createdAt).toISOString(), data });
}

export function transferData(
  { height, timestamp }: Pick<BlockBody, 'height' | 'timestamp'>,
  transfer: Transfer,
): WebhookBodyOf<'transfer.created'>['data'] {
  const { tokenId } = transfer;
  return {
    token_address: transfer.token,
    from_address: transfer.from,
    to_address: transfer.to,
    value: String(transfer.amount),
    txhash: transfer.txHash,
    block: height,
    timestamp,
    fee: String(transfer.fee),
    fee_unit: transfer.feeToken,
    event_type: transfer.kind,
    event_index: eventIndex(transfer.position, transfer.item),
    nft_token_id: tokenId === null ? '' : String(tokenId),
  };
}
