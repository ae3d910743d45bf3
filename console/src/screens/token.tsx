import type { JSX } from 'preact';
import { useState } from 'preact/hooks';

import { countText, numberText, printable, shortHex, usdText } from '../format.ts';
import { useEndless, useLoad } from '../loading.ts';
import { transferPage } from '../transfer-page.ts';
import { Choice, ErrorNote, Figure, Loading, More, Panel } from '../ui/parts.tsx';
import { Plot } from '../ui/plot.tsx';
import { useLive } from '../use-live.ts';
import { useTitle } from '../ui/title.ts';
import { Flags, standardOf } from '../ui/tokens.tsx';
import type { TokenRow } from '../ui/tokens.tsx';
import { CsvButton, TransferTable, keyOfTransfer } from '../ui/transfers.tsx';
import { CopyMark, Count, Time, Usd } from '../ui/values.tsx';
import { Activity, Holders, holderPage } from './token-activity.tsx';

export function Token({ address }: { readonly address: string }): JSX.Element {
  const token = useLoad(async (api, signal) => await api.getToken({ path: { address }, signal }), [address]);
  const symbol = printable(token.data?.symbol ?? '');
  useTitle(`Token ${symbol === '' ? shortHex(address) : symbol}`);
  const list = useEndless(
    async (api, at, signal) => await transferPage(api, { token: address }, at, signal),
    [address],
  );
  const holders = useEndless(
    async (api, at, signal) => await holderPage(api, address, at, signal),
    [address],
  );
  const newest = list.data?.rows[0];
  const next = newest === undefined ? null : newest.block + 1;
  const live = useLive({ token: address }, next);
  const known = new Set(list.data?.rows.map(keyOfTransfer));
  const fresh = live.transfers.filter((row) => !known.has(keyOfTransfer(row)));
  const rows = [...fresh, ...(list.data?.rows ?? [])];
  return (
    <>
      <h1>
        Token <bdi>{symbol}</bdi> <span class="address">{address}</span> <CopyMark text={address} />
      </h1>
      <Loading of={token}>
        {(one) => (
          <>
            <Facts token={one} count={list.data} fresh={fresh.length} holders={holders.data?.count} />
            {one.is_erc20 && <Prices address={address} />}
            <Activity token={one} />
            <Holders list={holders} token={one} />
          </>
        )}
      </Loading>
      <Panel
        title="Newest transfers"
        aside={<CsvButton name={`transfers-${shortHex(address).replace('…', '-')}`} rows={rows} />}
      >
        {live.error !== null && <ErrorNote error={live.error} />}
        <Loading of={list}>
          {() => <TransferTable caption="Newest transfers of the token" rows={rows} without={['token']} />}
        </Loading>
        <More list={list} />
      </Panel>
    </>
  );
}

function Facts({
  token,
  count,
  fresh,
  holders,
}: {
  readonly token: TokenRow;
  readonly count: { readonly count: number; readonly isEstimate?: boolean | undefined } | undefined;
  readonly fresh: number;
  readonly holders: number | undefined;
}): JSX.Element {
  return (
    <dl class="figures">
      <Figure name="Name">
        <bdi>{printable(token.name) || '–'}</bdi>
      </Figure>
      <Figure name="Price" data-figure="price">
        <Usd value={token.current_price_usd} />
        {token.price_updated_at !== null && (
          <small class="quiet">
            {' '}
            <Time at={token.price_updated_at} />
          </small>
        )}
      </Figure>
      <Figure name="Transfers">
        {count === undefined ? '…' : <Count value={count.count + fresh} isEstimate={count.isEstimate} />}
      </Figure>
      <Figure name="Holders" data-figure="holders">
        {holders === undefined ? '…' : countText(holders)}
      </Figure>
      <Figure name="Standard">{standardOf(token)}</Figure>
      <Figure name="Decimals">{countText(token.decimals)}</Figure>
      <Figure name="Flags">
        {token.verified || token.common || token.public || token.hidden ? <Flags token={token} /> : 'none'}
      </Figure>
    </dl>
  );
}

const DAY_MS = 86_400_000;
const spans = { '1 hour': 5, '1 day': 180, '1 week': 1100, '1 month': 5000 } as const;
type Interval = keyof typeof spans;

function Prices({ address }: { readonly address: string }): JSX.Element {
  const [interval, setInterval] = useState<Interval>('1 hour');
  const [kind, setKind] = useState<'candles' | 'line'>('candles');
  const prices = useLoad(
    async (api, signal) => {
      const start_time = new Date(Date.now() - spans[interval] * DAY_MS).toISOString();
      const { data } = await api.getPriceHistory({
        query: { token_address: address, start_time, interval },
        signal,
      });
      return data.map(({ timestamp, open_price, close_price, max_price, min_price }) => ({
        time: Date.parse(timestamp) / 1000,
        value: Number(close_price),
        open: Number(open_price),
        high: Number(max_price),
        low: Number(min_price),
        text: `open ${usdText(open_price)}, high ${usdText(max_price)}, low ${usdText(min_price)}, close ${usdText(close_price)}`,
      }));
    },
    [address, interval],
  );
  return (
    <Panel
      title="Price"
      aside={
        <>
          <Choice
            label="Interval"
            value={interval}
            options={[
              ['1 hour', 'Hour'],
              ['1 day', 'Day'],
              ['1 week', 'Week'],
              ['1 month', 'Month'],
            ]}
            onChange={setInterval}
          />
          <Choice
            label="As"
            value={kind}
            options={[
              ['candles', 'Candles'],
              ['line', 'Line of closes'],
            ]}
            onChange={setKind}
          />
        </>
      }
    >
      <Loading of={prices}>
        {(points) => (
          <Plot label="Price in US dollars" points={points} kind={kind} height={240} axisText={priceText} />
        )}
      </Loading>
    </Panel>
  );
}

const priceText = (value: number): string => `$${numberText(Number(value.toPrecision(5)))}`;
