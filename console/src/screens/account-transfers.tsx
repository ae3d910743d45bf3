import type { JSX } from 'preact';
import { useState } from 'preact/hooks';

import { isoOfInput, shortHex } from '../format.ts';
import { asFelt } from '../search.ts';
import { useTransfers } from '../transfer-page.ts';
import type { TransferQuery } from '../transfer-page.ts';
import { Choice, Field, Loading, More, Panel } from '../ui/parts.tsx';
import { CsvButton, TransferTable } from '../ui/transfers.tsx';
import { Count } from '../ui/values.tsx';

type Direction = 'any' | 'in' | 'out';

interface Filters {
  readonly direction: Direction;
  readonly fees: 'all' | 'without';
  readonly token: string;
  /** Local times as their inputs have them; empty: no bound. */
  readonly from: string;
  readonly to: string;
}

const NONE: Filters = { direction: 'any', fees: 'all', token: '', from: '', to: '' };
function queryOf(address: string, { direction, token, from, to }: Filters): TransferQuery {
  const felt = asFelt(token);
  const [start_time, end_time] = [isoOfInput(from), isoOfInput(to)];
  return {
    ...(direction === 'any'
      ? { account: address }
      : direction === 'in'
        ? { to_account: address }
        : { from_account: address }),
    ...(felt === null ? {} : { token: felt }),
    ...(start_time === null ? {} : { start_time }),
    ...(end_time === null ? {} : { end_time }),
  };
}

export function AccountTransfers({ address }: { readonly address: string }): JSX.Element {
  const [filters, setFilters] = useState(NONE);
  const list = useTransfers(queryOf(address, filters));
  const rows = (list.data?.rows ?? []).filter(({ is_fee }) => filters.fees === 'all' || !is_fee);
  return (
    <>
      <FilterForm filters={filters} onChange={(change) => setFilters({ ...filters, ...change })} />
      <Panel
        title="Transfers"
        aside={
          <>
            {list.data !== undefined && (
              <span class="quiet" data-figure="count">
                <Count value={list.data.count} isEstimate={list.data.isEstimate} /> in all
                {filters.fees === 'all' ? '' : ', fees included'}
              </span>
            )}
            <CsvButton name={`transfers-${shortHex(address).replace('…', '-')}`} rows={rows} />
          </>
        }
      >
        <Loading of={list}>{() => <TransferTable caption="Transfers of the account" rows={rows} />}</Loading>
        <More list={list} />
      </Panel>
    </>
  );
}

const timeOf = (value: string) =>
  ({
    type: 'datetime-local',
    value,
    errors: value === '' || isoOfInput(value) !== null ? [] : ['Not a time.'],
  }) as const;

function FilterForm({
  filters,
  onChange,
}: {
  readonly filters: Filters;
  readonly onChange: (change: Partial<Filters>) => void;
}): JSX.Element {
  const [token, setToken] = useState(filters.token);
  const isWrong = token !== '' && asFelt(token) === null;
  return (
    <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <Choice
        label="Direction"
        value={filters.direction}
        options={[
          ['any', 'In and out'],
          ['in', 'In'],
          ['out', 'Out'],
        ]}
        onChange={(direction) => onChange({ direction })}
      />
      <Choice
        label="Fees"
        value={filters.fees}
        options={[
          ['all', 'With fees'],
          ['without', 'Without fees'],
        ]}
        onChange={(fees) => onChange({ fees })}
      />
      <Field
        label="Token address"
        value={token}
        placeholder="0x…"
        errors={isWrong ? ['Not an address.'] : []}
        onInput={(value) => {
          setToken(value.trim());
          if (value.trim() === '' || asFelt(value) !== null) onChange({ token: value.trim() });
        }}
      />
      <Field label="From" {...timeOf(filters.from)} onInput={(from) => onChange({ from })} />
      <Field label="To" {...timeOf(filters.to)} onInput={(to) => onChange({ to })} />
    </form>
  );
}
