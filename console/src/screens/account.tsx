import type { JSX } from 'preact';

import { shortHex } from '../format.ts';
import { useLoad } from '../loading.ts';
import { usePlace } from '../router.ts';
import { asFelt } from '../search.ts';
import { Loading, Views } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { CopyMark } from '../ui/values.tsx';
import { AccountGraph } from './account-graph.tsx';
import { AccountHoldings } from './account-holdings.tsx';
import { AccountNfts } from './account-nfts.tsx';
import { AccountTransfers } from './account-transfers.tsx';

export function Account({ address }: { readonly address: string }): JSX.Element {
  useTitle(`Account ${shortHex(address)}`);
  const { query } = usePlace();
  const asked = query.get('view') ?? '';
  const view = ['transfers', 'nfts', 'graph'].includes(asked) ? asked : 'holdings';
  const first = useLoad(
    async (api, signal) => {
      const query = { account: address, order: 'asc', limit: 1 } as const;
      const { results, count, count_is_estimate } = await api.listTransfers({ query, signal });
      return {
        begins: results[0]?.timestamp ?? null,
        count,
        isEstimate: count_is_estimate === true,
        opened: new Date(),
      };
    },
    [address],
  );
  return (
    <>
      <h1>
        Account <span class="address">{address}</span> <CopyMark text={address} />
      </h1>
      <Views
        label="Views of the account"
        current={view}
        views={[
          [`/account/${address}`, 'holdings', 'Holdings'],
          [`/account/${address}?view=transfers`, 'transfers', 'Transfers'],
          [`/account/${address}?view=nfts`, 'nfts', 'NFTs'],
          [`/account/${address}?view=graph`, 'graph', 'Counterparties'],
        ]}
      />
      {view === 'transfers' && <AccountTransfers address={address} />}
      {view === 'nfts' && <AccountNfts address={address} />}
      {view === 'graph' && <AccountGraph address={address} token={asFelt(query.get('token') ?? '')} />}
      {view === 'holdings' && (
        <Loading of={first}>
          {({ begins, opened }) => <AccountHoldings address={address} begins={begins} opened={opened} />}
        </Loading>
      )}
    </>
  );
}
