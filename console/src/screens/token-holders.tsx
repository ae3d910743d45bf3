import type { JSX } from 'preact';
import type { ListTokenHoldersResponses, TokenDataClient } from 'token-data-service-client';

import { countText } from '../format.ts';
import type { EndlessList, ListPage } from '../loading.ts';
import { Loading, Panel, Table } from '../ui/parts.tsx';
import type { TokenRow } from '../ui/tokens.tsx';
import { Amount, Hex } from '../ui/values.tsx';

export type HolderRow = ListTokenHoldersResponses[200]['results'][number];

const HOLDERS = 20;

/** A page of the holders of a token, the largest first. */
export async function holderPage(
  api: TokenDataClient,
  address: string,
  at: string | null,
  signal: AbortSignal,
): Promise<ListPage<HolderRow>> {
  const query = { limit: HOLDERS, ...(at === null ? {} : { cursor: at }) };
  const { results, links, count, complete } = await api.listTokenHolders({
    path: { address },
    query,
    signal,
  });
  return { rows: results, next: links.next_cursor, count, isPartial: complete === false };
}

export function Holders({
  list,
  token,
}: {
  readonly list: EndlessList<HolderRow>;
  readonly token: TokenRow;
}): JSX.Element {
  return (
    <Panel title="Holders">
      {list.data?.isPartial === true && (
        <p class="note">Not all blocks are indexed: balances count the transfers of those that are.</p>
      )}
      <Loading of={list}>
        {({ rows }) => (
          <Table
            caption="Holders"
            rows={rows}
            keyOf={({ account_address }) => account_address}
            empty="Nobody holds this token."
            columns={[
              { title: 'Rank', isNumber: true, cell: ({ rank }) => countText(rank) },
              {
                title: 'Account',
                cell: ({ account_address: account }) => <Hex value={account} to="account" />,
              },
              {
                title: 'Balance',
                isNumber: true,
                cell: ({ balance }) => <Amount value={balance} decimals={decimalsOf(token)} />,
              },
              { title: 'Share', isNumber: true, cell: ({ share }) => shareText(share) },
            ]}
          />
        )}
      </Loading>
      {list.data !== undefined && list.data.next !== null && (
        <p class="actions">
          <button type="button" disabled={list.isLoading} onClick={list.more}>
            More holders
          </button>
        </p>
      )}
    </Panel>
  );
}

/** Balances and volumes of NFT contracts count NFTs. */
export const decimalsOf = ({ is_erc20, decimals }: TokenRow): number => (is_erc20 ? decimals : 0);

const shareText = (share: number): string => `${(100 * share).toFixed(2)} %`;
