import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { TokenDataClient } from 'token-data-service-client';

import { amountText, countOf, numberText, printable, usdText } from '../format.ts';
import { useLoad } from '../loading.ts';
import { DAY_MS, beginOf, sumDays } from '../periods.ts';
import type { Interval, Period } from '../periods.ts';
import type { PlotPoint } from '../plot-ranges.ts';
import { Choice, Loading, Panel } from '../ui/parts.tsx';
import { Plot } from '../ui/plot.tsx';
import type { Candle } from '../ui/plot.tsx';
import type { TokenRow } from '../ui/tokens.tsx';
import { decimalsOf } from './token-holders.tsx';

/** Days that are shown, by interval. */
const spans: Readonly<Record<Interval, number>> = {
  '1 hour': 5,
  '1 day': 180,
  '1 week': 1100,
  '1 month': 5000,
};
const intervals = [
  ['1 hour', 'Hour'],
  ['1 day', 'Day'],
  ['1 week', 'Week'],
  ['1 month', 'Month'],
] as const;

/** The price of a token, and the volume and number of its transfers, over the same time. */
export function Charts({ token }: { readonly token: TokenRow }): JSX.Element {
  const [interval, setInterval] = useState<Interval>('1 hour');
  const [kind, setKind] = useState<'candles' | 'line'>('candles');
  const charts = useLoad(
    async (api, signal) => {
      // A price is of the whole period that holds this time; transfers are counted in hours and days that begin at or after it.
      const start_time = beginOf(new Date(Date.now() - spans[interval] * DAY_MS), interval);
      const [prices, activity] = await Promise.all([
        token.is_erc20 ? pricesOf(api, token.address, interval, start_time, signal) : [],
        activityOf(api, token, interval, start_time, signal),
      ]);
      const times = [...prices, ...activity.volumes].map(({ time }) => time);
      const span = [Math.min(...times), Math.max(...times)] as const;
      return { prices, ...activity, shared: { span, period: interval } };
    },
    [token.address, interval],
  );
  return (
    <Panel
      title={token.is_erc20 ? 'Price and transfers' : 'Transfers by time'}
      aside={
        <>
          <Choice label="Interval" value={interval} options={intervals} onChange={setInterval} />
          {token.is_erc20 && (
            <Choice
              label="Price as"
              value={kind}
              options={[
                ['candles', 'Candles'],
                ['line', 'Line of closes'],
              ]}
              onChange={setKind}
            />
          )}
        </>
      }
    >
      <Loading of={charts}>
        {({ prices, volumes, transfers, shared }) => (
          <>
            {token.is_erc20 && (
              <>
                <h3>Price</h3>
                <Plot
                  label="Price in US dollars"
                  points={prices}
                  kind={kind}
                  height={240}
                  axisText={priceText}
                  {...shared}
                />
              </>
            )}
            <h3>Volume of transfers</h3>
            <Plot label="Volume" kind="bars" points={volumes} height={130} {...shared} />
            <h3>Number of transfers</h3>
            <Plot label="Transfers" kind="bars" points={transfers} height={130} {...shared} />
          </>
        )}
      </Loading>
    </Panel>
  );
}

const priceText = (value: number): string => `$${numberText(Number(value.toPrecision(5)))}`;

async function pricesOf(
  api: TokenDataClient,
  token_address: string,
  interval: Interval,
  start_time: string,
  signal: AbortSignal,
): Promise<Candle[]> {
  const { data } = await api.getPriceHistory({ query: { token_address, start_time, interval }, signal });
  return data.map(({ timestamp, open_price, close_price, max_price, min_price }) => ({
    time: Date.parse(timestamp) / 1000,
    value: Number(close_price),
    open: Number(open_price),
    high: Number(max_price),
    low: Number(min_price),
    text: `open ${usdText(open_price)}, high ${usdText(max_price)}, low ${usdText(min_price)}, close ${usdText(close_price)}`,
  }));
}

async function activityOf(
  api: TokenDataClient,
  token: TokenRow,
  interval: Interval,
  start_time: string,
  signal: AbortSignal,
): Promise<{ readonly volumes: PlotPoint[]; readonly transfers: PlotPoint[] }> {
  const isSummed = interval === '1 week' || interval === '1 month';
  const { results } = await api.getTokenStats({
    path: { address: token.address },
    query: { interval: isSummed ? '1 day' : interval, start_time },
    signal,
  });
  const periods: readonly (Period & { senders?: number; receivers?: number })[] = isSummed
    ? sumDays(results, interval)
    : results;
  const decimals = decimalsOf(token);
  const unit = token.is_erc20 ? printable(token.symbol) : 'NFTs';
  return {
    volumes: periods.map(({ time, volume }) => ({
      time: Date.parse(time) / 1000,
      value: Number(volume) / 10 ** decimals,
      text: `${amountText(BigInt(volume), decimals)} ${unit}`,
    })),
    transfers: periods.map(({ time, transfers: count, senders, receivers }) => ({
      time: Date.parse(time) / 1000,
      value: count,
      // An account that sends on two days is one sender of their week: these are no sums.
      text: [
        countOf(count, 'transfer'),
        ...(senders === undefined ? [] : [countOf(senders, 'sender')]),
        ...(receivers === undefined ? [] : [countOf(receivers, 'receiver')]),
      ].join(', '),
    })),
  };
}
