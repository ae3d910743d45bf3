import type { StoredTransfer, TracedTransfer } from '../../projections/transfers/queries.ts';
import type { TraceAnswer, TransferAnswer } from '../../schemas/api/transfers.ts';
import { eventIndex } from '../../schemas/decode/index.ts';
import type { Felt } from '../../schemas/felt.ts';
import { isNft } from '../../schemas/messages/common.ts';
import { decimalsOf } from '../../schemas/money.ts';
import { isoSeconds } from '../http/times.ts';

/** A token's name, symbol and decimals; null where its contract has none. */
export interface TokenTexts {
  readonly symbol: string | null;
  readonly name: string | null;
  readonly decimals: number | null;
}

export function statusOf(block: number, l1Height: number | null): 'ACCEPTED_ON_L1' | 'ACCEPTED_ON_L2' {
  return l1Height !== null && block <= l1Height ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2';
}

export function presentTraced(transfer: TracedTransfer, l1Height: number | null): TraceAnswer[number] {
  const { from, to, amount, txhash, timestamp, block, fee } = transfer;
  return {
    from,
    to,
    value: amount,
    txhash,
    timestamp: isoSeconds(timestamp),
    block,
    status: statusOf(block, l1Height),
    fee,
  };
}

/** @param l1Height highest height accepted on L1; null: none */
export function presentTransfer(
  transfer: StoredTransfer,
  token: TokenTexts | undefined,
  l1Height: number | null,
): TransferAnswer {
  const { kind, block } = transfer;
  return {
    from_address: transfer.from,
    to_address: transfer.to,
    token_address: transfer.token,
    token_symbol: token?.symbol ?? '',
    token_name: token?.name ?? '',
    token_decimals: decimalsOf(token?.decimals ?? null, kind),
    value: transfer.amount,
    nft_token_id: isNft(kind) ? transfer.token_id : '',
    txhash: transfer.txhash,
    timestamp: isoSeconds(transfer.timestamp),
    block,
    status: statusOf(block, l1Height),
    fee: transfer.fee,
    fee_unit: transfer.fee_unit,
    event_index: eventIndex(transfer.position, transfer.item),
    is_fee: transfer.is_fee === 1,
    execution_status: transfer.execution_status,
    kind,
  };
}

/**
 * The JSON of `presentTransfer` and `block_hash`, put together by hand: the history of a stream is nothing but these texts.
 * Only the texts of a token have anything to escape, so these are given as JSON.
 */
export function transferJson(
  transfer: StoredTransfer,
  {
    symbol,
    name,
    decimals,
  }: { readonly symbol: string; readonly name: string; readonly decimals: number | null },
  { l1Height, blockHash }: { readonly l1Height: number | null; readonly blockHash: Felt },
): string {
  const { kind, block } = transfer;
  return `{"from_address":"${transfer.from}","to_address":"${transfer.to}","token_address":"${transfer.token}","token_symbol":${symbol},"token_name":${name},"token_decimals":${decimalsOf(decimals, kind)},"value":"${transfer.amount}","nft_token_id":"${isNft(kind) ? transfer.token_id : ''}","txhash":"${transfer.txhash}","timestamp":"${isoSeconds(transfer.timestamp)}","block":${block},"status":"${statusOf(block, l1Height)}","fee":"${transfer.fee}","fee_unit":"${transfer.fee_unit}","event_index":${eventIndex(transfer.position, transfer.item)},"is_fee":${transfer.is_fee === 1},"execution_status":"${transfer.execution_status}","kind":"${kind}","block_hash":"${blockHash}"}`;
}
