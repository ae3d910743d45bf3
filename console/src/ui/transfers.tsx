import type { JSX } from 'preact';
import { formatAmount } from 'token-data-service-client';

import { toCsv } from '../csv.ts';
import { download } from '../download.ts';
import { countText } from '../format.ts';
import type { TransferRow } from '../transfer-page.ts';
import { Table } from './parts.tsx';
import type { Column } from './parts.tsx';
import { Amount, Finality, Hex, Time, TokenName } from './values.tsx';

const keyOfTransfer = ({ block, event_index }: TransferRow): string => `${block}/${event_index}`;

/** Decimals of the value: those of NFTs are counts. */
export const decimalsOf = ({ kind, token_decimals }: TransferRow): number =>
  kind === 'erc721' || kind === 'erc1155' ? 0 : token_decimals;

const columns: Record<
  'time' | 'token' | 'amount' | 'from' | 'to' | 'block' | 'tx' | 'state',
  Column<TransferRow>
> = {
  time: { title: 'Time', cell: (row) => <Time at={row.timestamp} /> },
  token: { title: 'Token', cell: (row) => <TokenOf row={row} /> },
  amount: {
    title: 'Amount',
    isNumber: true,
    cell: (row) => <Amount value={row.value} decimals={decimalsOf(row)} />,
  },
  from: { title: 'From', cell: (row) => <Hex value={row.from_address} to="account" /> },
  to: { title: 'To', cell: (row) => <Hex value={row.to_address} to="account" /> },
  block: {
    title: 'Block',
    isNumber: true,
    cell: (row) => <a href={`/block/${row.block}`}>{countText(row.block)}</a>,
  },
  tx: { title: 'Transaction', cell: (row) => <Hex value={row.txhash} to="tx" /> },
  state: { title: 'State', cell: (row) => <State row={row} /> },
};

function TokenOf({ row }: { readonly row: TransferRow }): JSX.Element {
  return (
    <>
      <TokenName address={row.token_address} symbol={row.token_symbol} />
      {row.nft_token_id !== '' && (
        <>
          {' '}
          <span class="quiet nft-id" title={row.nft_token_id}>
            #{row.nft_token_id}
          </span>
        </>
      )}
    </>
  );
}

function State({ row }: { readonly row: TransferRow }): JSX.Element {
  return (
    <>
      <Finality status={row.status} />
      {row.is_fee && <span class="tag">fee</span>}
      {row.execution_status === 'REVERTED' && <span class="tag bad">reverted</span>}
    </>
  );
}

/** Transfers as a table; `without` names columns that the screen says already. */
export function TransferTable({
  caption,
  rows,
  without = [],
  empty = 'No transfers.',
}: {
  readonly caption: string;
  readonly rows: readonly TransferRow[];
  readonly without?: readonly (keyof typeof columns)[];
  readonly empty?: string;
}): JSX.Element {
  const shown = (Object.keys(columns) as (keyof typeof columns)[]).filter((name) => !without.includes(name));
  return (
    <Table
      caption={caption}
      look="transfers"
      isWide
      columns={shown.map((name) => columns[name])}
      rows={rows}
      keyOf={keyOfTransfer}
      empty={empty}
    />
  );
}

const CSV_COLUMNS = [
  'time',
  'block',
  'event_index',
  'transaction',
  'token',
  'symbol',
  'nft_token_id',
  'from',
  'to',
  'amount',
  'value',
  'is_fee',
  'execution_status',
  'status',
];

/** Saves the transfers that are shown; `amount` has the decimals of the token, `value` is the raw integer. */
export function CsvButton({
  name,
  rows,
}: {
  readonly name: string;
  readonly rows: readonly TransferRow[];
}): JSX.Element {
  const save = (): void => {
    const cells = rows.map((row) => [
      row.timestamp,
      row.block,
      row.event_index,
      row.txhash,
      row.token_address,
      row.token_symbol,
      row.nft_token_id,
      row.from_address,
      row.to_address,
      formatAmount(BigInt(row.value), decimalsOf(row)),
      row.value,
      String(row.is_fee),
      row.execution_status,
      row.status,
    ]);
    download(`${name}.csv`, toCsv(CSV_COLUMNS, cells));
  };
  return (
    <button type="button" disabled={rows.length === 0} onClick={save}>
      CSV of the {countText(rows.length)} shown
    </button>
  );
}
