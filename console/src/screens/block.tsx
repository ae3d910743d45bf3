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
import { CopyMark, Finality, Time } from '../ui/values.tsx';

export function Block({ height }: { readonly height: number }): JSX.Element {
  useTitle(`Block ${height}`);
  const block = useLoad(
    async (api, signal) => await orNull(api.getBlock({ path: { block: String(height) }, signal })),
    [height],
  );
  const list = useTransfers({ block: height });
  return (
    <>
      <h1>Block {countText(height)}</h1>
      <nav class="views" aria-label="Neighbouring blocks">
        {height > 0 && (
          <a href={`/block/${height - 1}`} rel="prev">
            ← {countText(height - 1)}
          </a>
        )}
        <a href={`/block/${height + 1}`} rel="next">
          {countText(height + 1)} →
        </a>
      </nav>
      <Loading of={block}>
        {(found) => (found === null ? <p class="note">This block is not indexed.</p> : <Facts of={found} />)}
      </Loading>
      <Panel
        title="Transfers"
        aside={<CsvButton name={`transfers-block-${height}`} rows={list.data?.rows ?? []} />}
      >
        <Loading of={list}>
          {({ rows }) => (
            <TransferTable
              caption="Transfers of the block"
              rows={rows}
              without={['time', 'block']}
              empty="No transfer of this block is indexed."
            />
          )}
        </Loading>
        <More list={list} />
      </Panel>
      <RawEvents of={{ block: height }} />
    </>
  );
}

function Facts({ of }: { readonly of: GetBlockResponses[200] }): JSX.Element {
  return (
    <dl class="figures">
      <Figure name="Time">
        <Time at={of.timestamp} />
      </Figure>
      <Figure name="Finality">
        <Finality status={of.status} isLong />
      </Figure>
      <Figure name="Transactions">{countText(of.transactions)}</Figure>
      <Figure name="Events" data-figure="events">
        {countText(of.events)}
      </Figure>
      <Figure name="Event commitment" data-figure="event-check">
        {EVENT_CHECKS[of.event_check]}
      </Figure>
      <Figure name="Transfers" data-figure="count">
        {countText(of.transfers)}
      </Figure>
      {of.fees.map(({ token_address, amount }) => (
        <Figure key={token_address} name="Fees" data-figure="fees">
          <TokenAmount amount={amount} token={token_address} />
        </Figure>
      ))}
      <Figure name="Hash" data-figure="hash">
        <BlockHash value={of.hash} />
      </Figure>
      <Figure name="Parent">
        <BlockHash value={of.parent_hash} />
      </Figure>
    </dl>
  );
}

function BlockHash({ value }: { readonly value: string }): JSX.Element {
  return (
    <span class="hex" title={value}>
      {shortHex(value)}
      <CopyMark text={value} />
    </span>
  );
}
