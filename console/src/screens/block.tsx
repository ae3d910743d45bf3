import type { JSX } from 'preact';

import { countText } from '../format.ts';
import { useEndless } from '../loading.ts';
import { transferPage } from '../transfer-page.ts';
import { Figure, Loading, More, Panel } from '../ui/parts.tsx';
import { useTitle } from '../ui/title.ts';
import { CsvButton, TransferTable } from '../ui/transfers.tsx';
import { Count, Finality, Time } from '../ui/values.tsx';

export function Block({ height }: { readonly height: number }): JSX.Element {
  useTitle(`Block ${height}`);
  const list = useEndless(
    async (api, at, signal) => await transferPage(api, { block: height }, at, signal),
    [height],
  );
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
      <Loading of={list}>
        {({ rows: [first], count, isEstimate }) => (
          <dl class="figures">
            <Figure name="Transfers" data-figure="count">
              <Count value={count} isEstimate={isEstimate} />
            </Figure>
            <Figure name="Time">{first === undefined ? '–' : <Time at={first.timestamp} />}</Figure>
            <Figure name="Finality">{first === undefined ? '–' : <Finality status={first.status} />}</Figure>
          </dl>
        )}
      </Loading>
      <Panel
        title="Transfers"
        aside={<CsvButton name={`transfers-block-${height}`} rows={list.data?.rows ?? []} />}
      >
        <Loading of={list}>
          {({ rows }) =>
            rows.length === 0 ? (
              <p class="quiet empty">No transfer of this block is indexed.</p>
            ) : (
              <TransferTable caption="Transfers of the block" rows={rows} without={['time', 'block']} />
            )
          }
        </Loading>
        <More list={list} />
      </Panel>
    </>
  );
}
