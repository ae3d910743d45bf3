import type { JSX } from 'preact';

import { countText, shortHex } from '../format.ts';
import { useEndless } from '../loading.ts';
import { transferPage } from '../transfer-page.ts';
import { RawEvents } from '../ui/events.tsx';
import { Figure, Loading, More, Panel } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { TokenAmount } from '../ui/tokens.tsx';
import { CsvButton, TransferTable } from '../ui/transfers.tsx';
import type { TransferRow } from '../transfer-page.ts';
import { CopyMark, Count, Finality, Time } from '../ui/values.tsx';

export function Transaction({ hash }: { readonly hash: string }): JSX.Element {
  useTitle(`Transaction ${shortHex(hash)}`);
  const list = useEndless(
    async (api, at, signal) => await transferPage(api, { txhash: hash, order: 'asc' }, at, signal),
    [hash],
  );
  const [first] = list.data?.rows ?? [];
  return (
    <>
      <h1>
        Transaction <span class="address">{hash}</span> <CopyMark text={hash} />
      </h1>
      {first !== undefined && list.data !== undefined && <Facts of={first} list={list.data} />}
      <Panel
        title="Transfers"
        aside={
          <CsvButton name={`transfers-${shortHex(hash).replace('…', '-')}`} rows={list.data?.rows ?? []} />
        }
      >
        <Loading of={list}>
          {({ rows }) =>
            rows.length === 0 ? (
              <p class="quiet empty">No transfer of this transaction is indexed.</p>
            ) : (
              <TransferTable
                caption="Transfers of the transaction"
                rows={rows}
                without={['time', 'block', 'tx']}
              />
            )
          }
        </Loading>
        <More list={list} />
      </Panel>
      <RawEvents of={{ txhash: hash }} />
    </>
  );
}

function Facts({
  of,
  list: { count, isEstimate },
}: {
  readonly of: TransferRow;
  readonly list: { readonly count: number; readonly isEstimate?: boolean | undefined };
}): JSX.Element {
  return (
    <dl class="figures">
      <Figure name="Block">
        <a href={`/block/${of.block}`}>{countText(of.block)}</a>
      </Figure>
      <Figure name="Time">
        <Time at={of.timestamp} />
      </Figure>
      <Figure name="Execution">
        <span class={of.execution_status === 'REVERTED' ? 'tag bad' : 'tag good'}>
          {of.execution_status.toLowerCase()}
        </span>
      </Figure>
      <Figure name="Finality">
        <Finality status={of.status} isLong />
      </Figure>
      <Figure name="Fee" data-figure="fee">
        <TokenAmount amount={of.fee} token={of.fee_unit} />
      </Figure>
      <Figure name="Transfers" data-figure="count">
        <Count value={count} isEstimate={isEstimate} />
      </Figure>
    </dl>
  );
}
