import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

import { useAction } from '../action.ts';
import { failedOf, latencyPoints, percentText, ratePoints, successRate } from '../delivery-stats.ts';
import { countText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { DAY_MS, SPANS } from '../periods.ts';
import type { Interval, SpanDays } from '../periods.ts';
import { Choice, ErrorNote, Figure, Loading, Panel } from '../ui/parts.tsx';
import { Plot } from '../ui/plot.tsx';
import type { PlotPoint } from '../plot-ranges.ts';
import { usePolled } from '../use-polled.ts';

const POLL_MS = 5000;

interface Period {
  readonly start_time: string;
  readonly end_time: string;
}

/** How the deliveries of a period went; those that failed are retried from here. */
export function WebhookStats({
  id,
  round,
  onRetried,
}: {
  readonly id: number;
  /** Read again when it changes. */
  readonly round: number;
  readonly onRetried: () => void;
}): JSX.Element {
  const [span, setSpan] = useState<SpanDays>('1');
  const stats = useLoad(
    async (api, signal) => {
      const now = Date.now();
      const period: Period = {
        start_time: new Date(now - Number(span) * DAY_MS).toISOString(),
        end_time: new Date(now).toISOString(),
      };
      const interval: '1 hour' | '1 day' = span === '30' ? '1 day' : '1 hour';
      const { results } = await api.getWebhookStats({ path: { id }, query: { interval, ...period }, signal });
      return { period, interval, results, rates: ratePoints(results), latencies: latencyPoints(results) };
    },
    [id, span],
  );
  useEffect(() => {
    if (round > 0) stats.reload();
  }, [round]);
  usePolled(stats, POLL_MS);
  return (
    <Panel
      title="Success and latency"
      aside={<Choice label="Time" value={span} options={SPANS} onChange={setSpan} />}
    >
      <Loading of={stats}>
        {({ period, interval, results, rates, latencies }) => {
          const failed = results.reduce((sum, one) => sum + failedOf(one), 0);
          const rate = successRate(results);
          return (
            <>
              <dl class="figures">
                <Figure name="Success rate" data-figure="success-rate">
                  {rate === null ? '–' : percentText(rate)}
                </Figure>
                <Figure name="Failed or dead" data-figure="failed">
                  {countText(failed)}
                </Figure>
              </dl>
              {rates.length === 0 ? (
                <p class="quiet empty">No attempt in this time.</p>
              ) : (
                <Plots rates={rates} latencies={latencies} period={interval} />
              )}
              <RetryFailed id={id} period={period} failed={failed} onRetried={onRetried} />
            </>
          );
        }}
      </Loading>
    </Panel>
  );
}

function Plots({
  rates,
  latencies,
  period,
}: {
  readonly rates: readonly PlotPoint[];
  readonly latencies: readonly PlotPoint[];
  readonly period: Interval;
}): JSX.Element {
  return (
    <div class="columns">
      <section>
        <h3>Success rate</h3>
        <Plot
          label="Success rate"
          kind="steps"
          points={rates}
          period={period}
          height={160}
          top={100}
          axisText={(value) => `${value} %`}
        />
      </section>
      <section>
        <h3>Latency, 95th percentile</h3>
        <Plot
          label="Latency"
          points={latencies}
          period={period}
          height={160}
          axisText={(value) => `${countText(value)} ms`}
        />
      </section>
    </div>
  );
}

function RetryFailed({
  id,
  period,
  failed,
  onRetried,
}: {
  readonly id: number;
  readonly period: Period;
  readonly failed: number;
  readonly onRetried: () => void;
}): JSX.Element {
  const [requested, setRequested] = useState<number | null>(null);
  const retry = useAction(async (api, withKey) => {
    let count = 0;
    let after: string | undefined;
    do {
      const body = { ...period, ...(after === undefined ? {} : { after }) };
      const { retried, remaining } = await api.retryDeliveries(withKey({ path: { id }, body }));
      setRequested((count += retried.length));
      after = remaining > 0 ? retried.at(-1) : undefined;
    } while (after !== undefined);
    onRetried();
  });
  return (
    <>
      <p class="actions">
        <button
          type="button"
          disabled={retry.isBusy || failed === 0}
          onClick={() => {
            const question = `Send the ${countText(failed)} failed and dead deliveries of this time once more?`;
            if (window.confirm(question)) void retry.run();
          }}
        >
          Retry all failed
        </button>
        {requested !== null && (
          <span role="status">
            {countText(requested)} {requested === 1 ? 'attempt' : 'attempts'} requested
          </span>
        )}
      </p>
      {retry.error !== null && <ErrorNote error={retry.error} />}
    </>
  );
}
