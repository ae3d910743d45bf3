import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { GetHistoryResponses } from 'token-data-service-client';

import { useLoad } from '../loading.ts';
import { Choice, Loading, Panel } from '../ui/parts.tsx';
import { Plot } from '../ui/plot.tsx';
import type { PlotPoint } from '../plot-ranges.ts';
import { usePolled } from '../use-polled.ts';

type Row = GetHistoryResponses[200]['results'][number];

const POLL_MS = 5000;

/** Lag and throughput over the last hour or day. */
export function History(): JSX.Element {
  const [step, setStep] = useState<'5s' | '1m'>('5s');
  const loaded = useLoad(async (api, signal) => await api.getHistory({ query: { step }, signal }), [step]);
  const history = usePolled(loaded, POLL_MS);
  const choice = (
    <Choice
      label="Time"
      value={step}
      options={[
        ['5s', 'Last hour'],
        ['1m', 'Last day'],
      ]}
      onChange={setStep}
    />
  );
  return (
    <div class="columns">
      <Panel title="Lag of the API behind the node" aside={choice}>
        <Loading of={history}>
          {({ results }) => (
            <Plot label="Lag in seconds" points={pointsOf(results, ({ lag_seconds }) => lag_seconds, 's')} />
          )}
        </Loading>
      </Panel>
      <Panel title="Transfers a second">
        <Loading of={history}>
          {({ results }) => (
            <Plot
              label="Transfers a second"
              points={pointsOf(results, ({ transfers_per_second }) => transfers_per_second, 'a second')}
            />
          )}
        </Loading>
      </Panel>
    </div>
  );
}

function pointsOf(rows: readonly Row[], valueOf: (row: Row) => number | null, unit: string): PlotPoint[] {
  return rows.flatMap((row) => {
    const value = valueOf(row);
    return value === null
      ? []
      : { time: Date.parse(row.time) / 1000, value, text: `${value.toFixed(2)} ${unit}` };
  });
}
