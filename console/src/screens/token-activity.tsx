import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { ListTokenHoldersResponses, TokenDataClient } from 'token-data-service-client';

import { amountText, countOf, countText, printable } from '../format.ts';
import { useLoad } from '../loading.ts';
import type { EndlessList, ListPage } from '../loading.ts';
import { Choice, Loading, Panel, Table } from '../ui/parts.tsx';
import { Plot } from '../ui/plot.tsx';
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
  const { results, links, count } = await api.listTokenHolders({ path: { address }, query, signal });
  return { rows: results, next: links.next_cursor, count };
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
const decimalsOf = ({ is_erc20, decimals }: TokenRow): number => (is_erc20 ? decimals : 0);

const shareText = (share: number): string => `${(100 * share).toFixed(2)} %`;

const DAY_MS = 86_400_000;
const spans = { '1 hour': 3, '1 day': 90 } as const;

/** Volume and number of a token's transfers by hour or day. */
export function Activity({ token }: { readonly token: TokenRow }): JSX.Element {
  const [interval, setInterval] = useState<keyof typeof spans>('1 hour');
  const { address } = token;
  const decimals = decimalsOf(token);
  const unit = token.is_erc20 ? printable(token.symbol) : 'NFTs';
  const periods = useLoad(
    async (api, signal) => {
      const start_time = new Date(Date.now() - spans[interval] * DAY_MS).toISOString();
      const { results } = await api.getTokenStats({
        path: { address },
        query: { interval, start_time },
        signal,
      });
      const volumes = results.map(({ time, volume }) => ({
        time: Date.parse(time) / 1000,
        value: Number(volume) / 10 ** decimals,
        text: `${amountText(BigInt(volume), decimals)} ${unit}`,
      }));
      const transfers = results.map(({ time, transfers: count, senders, receivers }) => ({
        time: Date.parse(time) / 1000,
        value: count,
        text: [countOf(count, 'transfer'), countOf(senders, 'sender'), countOf(receivers, 'receiver')].join(
          ', ',
        ),
      }));
      return { volumes, transfers };
    },
    [address, interval],
  );
  return (
    <Panel
      title="Activity"
      aside={
        <Choice
          label="By"
          value={interval}
          options={[
            ['1 hour', 'Hour'],
            ['1 day', 'Day'],
          ]}
          onChange={setInterval}
        />
      }
    >
      <Loading of={periods}>
        {({ volumes, transfers }) => (
          <div class="columns">
            <section>
              <h3>Volume</h3>
              <Plot label="Volume" kind="bars" points={volumes} height={160} />
            </section>
            <section>
              <h3>Transfers</h3>
              <Plot label="Transfers" kind="bars" points={transfers} height={160} />
            </section>
          </div>
        )}
      </Loading>
    </Panel>
  );
}
