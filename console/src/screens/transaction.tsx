import type { JSX } from 'preact';
import type { GetBlockResponses } from 'token-data-service-client';

import { countText, shortHex } from '../format.ts';
import { orNull, useLoad } from '../loading.ts';
import { useTransfers } from '../transfer-page.ts';
import { EVENT_CHECKS } from '../ui/event-check.ts';
import { RawEvents } from '../ui/events.tsx';
import { Figure, Loading, More, Panel } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { TokenAmount } from '../ui/tokens.tsx';
import { CsvButton, TransferTable } from '../ui/transfers.tsx';
import type { TransferRow } from '../transfer-page.ts';
import { CopyMark, Count, Finality, Time } from '../ui/values.tsx';

export function Transaction({ hash }: { readonly hash: string }): JSX.Element {
  useTitle(`Transaction ${shortHex(hash)}`);
  const list = useTransfers({ txhash: hash, order: 'asc' });
  const [first] = list.data?.rows ?? [];
  const block = useLoad(
    async (api, signal) => {
      // A transaction is known by its transfers.
      return first === undefined
        ? null
        : await orNull(api.getBlock({ path: { block: String(first.block) }, signal }));
    },
    [hash, first?.block],
  );
  return (
    <>
      <h1>
        Transaction <span class="address">{hash}</span> <CopyMark text={hash} />
      </h1>
      {block.data && list.data !== undefined && <Facts block={block.data} of={first} list={list.data} />}
      <Panel
        title="Transfers"
        aside={
          <CsvButton name={`transfers-${shortHex(hash).replace('…', '-')}`} rows={list.data?.rows ?? []} />
        }
      >
        <Loading of={list}>
          {({ rows }) => (
            <TransferTable
              caption="Transfers of the transaction"
              rows={rows}
              without={['time', 'block', 'tx']}
              empty="No transfer of this transaction is indexed."
            />
          )}
        </Loading>
        <More list={list} />
      </Panel>
      <RawEvents of={{ txhash: hash }} />
    </>
  );
}

function Facts({
  block,
  of,
  list: { count, isEstimate },
}: {
  readonly block: GetBlockResponses[200];
  /** One of its transfers, which say what it cost. */
  readonly of: TransferRow | undefined;
  readonly list: { readonly count: number; readonly isEstimate?: boolean | undefined };
}): JSX.Element {
  return (
    <dl class="figures">
      <Figure name="Block">
        <a href={`/block/${block.height}`}>{countText(block.height)}</a>
      </Figure>
      <Figure name="Time">
        <Time at={block.timestamp} />
      </Figure>
      {of !== undefined && (
        <Figure name="Execution">
          <span class={of.execution_status === 'REVERTED' ? 'tag bad' : 'tag good'}>
            {of.execution_status.toLowerCase()}
          </span>
        </Figure>
      )}
      <Figure name="Finality">
        <Finality status={block.status} isLong />
      </Figure>
      {of !== undefined && (
        <Figure name="Fee" data-figure="fee">
          <TokenAmount amount={of.fee} token={of.fee_unit} />
        </Figure>
      )}
      <Figure name="Event commitment of the block" data-figure="event-check">
        {EVENT_CHECKS[block.event_check]}
      </Figure>
      <Figure name="Transfers" data-figure="count">
        <Count value={count} isEstimate={isEstimate} />
      </Figure>
    </dl>
  );
}
