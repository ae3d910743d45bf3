import type { JSX } from 'preact';
import type { ListTokensResponses } from 'token-data-service-client';

import { printable } from '../format.ts';
import { useLoad } from '../loading.ts';
import { currentSession } from '../session.ts';
import { Table } from './parts.tsx';
import { Amount, Hex, Logo, TokenName, Usd } from './values.tsx';

export type TokenRow = ListTokensResponses[200]['results'][number];

export function standardOf({ is_erc20, is_erc721, is_erc1155 }: TokenRow): string {
  if (is_erc20) return 'ERC-20';
  if (is_erc721) return 'ERC-721';
  return is_erc1155 ? 'ERC-1155' : 'unknown';
}

export function Flags({ token }: { readonly token: TokenRow }): JSX.Element {
  return (
    <>
      {token.verified && <span class="tag good">verified</span>}
      {token.common && <span class="tag">common</span>}
      {token.public && <span class="tag">public</span>}
      {token.hidden && <span class="tag bad">hidden</span>}
    </>
  );
}

export function TokenTable({
  caption,
  rows,
  empty,
}: {
  readonly caption: string;
  readonly rows: readonly TokenRow[];
  readonly empty: string;
}): JSX.Element {
  return (
    <Table
      caption={caption}
      rows={rows}
      keyOf={({ address }) => address}
      empty={empty}
      columns={[
        {
          title: 'Symbol',
          cell: ({ address, symbol, logo }) => (
            <>
              <Logo url={logo} address={address} symbol={symbol} />{' '}
              <TokenName address={address} symbol={symbol} />
            </>
          ),
        },
        { title: 'Name', cell: ({ name }) => <bdi>{printable(name)}</bdi> },
        { title: 'Standard', cell: standardOf },
        {
          title: 'Price',
          isNumber: true,
          cell: ({ current_price_usd }) => <Usd value={current_price_usd} />,
        },
        { title: 'Flags', cell: (token) => <Flags token={token} /> },
        { title: 'Address', cell: ({ address }) => <Hex value={address} to="token" /> },
      ]}
    />
  );
}

/** An amount in a token whose decimals are read first; without a log-in they are not shown. */
export function TokenAmount({
  amount,
  token,
}: {
  readonly amount: string;
  readonly token: string;
}): JSX.Element {
  const unit = useLoad(
    async (api, signal) =>
      currentSession() === null ? undefined : await api.getToken({ path: { address: token }, signal }),
    [token],
  );
  return (
    <>
      {unit.data === undefined ? (
        `${amount} units of`
      ) : (
        <Amount value={amount} decimals={unit.data.decimals} />
      )}{' '}
      <TokenName address={token} symbol={unit.data?.symbol} />
    </>
  );
}
