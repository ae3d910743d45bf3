import type { GetWebhookStatsResponses } from 'token-data-service-client';

import { countText } from './format.ts';

export type DeliveryPeriod = GetWebhookStatsResponses[200]['results'][number];

interface Point {
  /** Unix seconds. */
  readonly time: number;
  readonly value: number;
  readonly text: string;
}

/** Deliveries whose last attempt has failed. */
export const failedOf = ({ failed, dead }: DeliveryPeriod): number => failed + dead;

/** Share of successes among the deliveries that were attempted, in percent; null: none was. */
export function successRate(periods: readonly DeliveryPeriod[]): number | null {
  const good = periods.reduce((sum, { success }) => sum + success, 0);
  const attempted = periods.reduce((sum, one) => sum + failedOf(one), good);
  return attempted === 0 ? null : (100 * good) / attempted;
}

/** Cut, so that 100 % means that none has failed. */
export const percentText = (percent: number): string =>
  `${(Math.floor(percent * 10 + 1e-9) / 10).toFixed(1)} %`;

export function ratePoints(periods: readonly DeliveryPeriod[]): Point[] {
  return periods.flatMap((period) => {
    const rate = successRate([period]);
    if (rate === null) return [];
    const attempted = countText(period.success + failedOf(period));
    const text = `${percentText(rate)}: ${countText(period.success)} of ${attempted}`;
    return [{ time: Date.parse(period.time) / 1000, value: rate, text }];
  });
}

/** The 95th percentile of each period; the median in words. */
export function latencyPoints(periods: readonly DeliveryPeriod[]): Point[] {
  return periods.flatMap(({ time, median_ms: median, p95_ms: p95 }) =>
    median === null || p95 === null
      ? []
      : [
          {
            time: Date.parse(time) / 1000,
            value: p95,
            text: `${countText(p95)} ms, median ${countText(median)} ms`,
          },
        ],
  );
}
