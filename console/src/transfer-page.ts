import type { ListTransfersData, ListTransfersResponses, TokenDataClient } from 'token-data-service-client';

import type { ListPage } from './loading.ts';

export type TransferRow = ListTransfersResponses[200]['results'][number];
export type TransferQuery = NonNullable<ListTransfersData['query']>;

const PAGE = 50;

/** A page of transfers, by cursor. */
export async function transferPage(
  api: TokenDataClient,
  query: TransferQuery,
  at: string | null,
  signal: AbortSignal,
): Promise<ListPage<TransferRow>> {
  const { results, links, count, count_is_estimate } = await api.listTransfers({
    query: { limit: PAGE, ...query, ...(at === null ? {} : { cursor: at }) },
    signal,
  });
  return { rows: results, next: links.next_cursor ?? null, count, isEstimate: count_is_estimate };
}
