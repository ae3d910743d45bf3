import type { ListTransfersData, ListTransfersResponses, TokenDataClient } from 'token-data-service-client';

import { useEndless } from './loading.ts';
import type { EndlessList, ListPage } from './loading.ts';

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

/** The transfers that match, page after page. */
export function useTransfers(query: TransferQuery): EndlessList<TransferRow> {
  return useEndless(async (api, at, signal) => await transferPage(api, query, at, signal), [query]);
}
