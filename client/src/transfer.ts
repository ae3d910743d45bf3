import type { ListTransfersResponses } from './generated/types.gen.ts';

export type TransferRow = ListTransfersResponses[200]['results'][number];

/** A transfer; `amount` is `value`, and `feeAmount` is `fee`, as integers. */
export type Transfer = TransferRow & { readonly amount: bigint; readonly feeAmount: bigint };

export function withAmounts<Row extends TransferRow>(row: Row): Row & Transfer {
  return { ...row, amount: BigInt(row.value), feeAmount: BigInt(row.fee) };
}
