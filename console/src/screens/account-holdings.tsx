import type { JSX } from 'preact';
import { useEffect, useId, useState } from 'preact/hooks';
import type {
  GetPortfolioHistoryData,
  GetPortfolioHistoryResponses,
  GetPortfolioResponses,
  TokenDataClient,
} from 'token-data-service-client';
import { ApiError } from 'token-data-service-client';

import { amountText, countOf, countText, localTime, printable, usdText, utcTime } from '../format.ts';
import { orNull, useLoad } from '../loading.ts';
import { DAY_MS } from '../periods.ts';
import type { Interval } from '../periods.ts';
import { Figure, Loading, Panel, Table } from '../ui/parts.tsx';
import { Plot, axisNumber } from '../ui/plot.tsx';
import type { PlotPoint } from '../plot-ranges.ts';
import { Amount, Logo, Time, TokenName, Usd } from '../ui/values.tsx';

type Holding = GetPortfolioResponses[200]['data']['holdings'][number];

/** A span below this has too few whole hours for a curve: its points are read one by one. */
const SHORT_SPAN_MS = DAY_MS / 2;
const SAMPLES = 12;
const INTERVALS = ['1 hour', '1 day', '1 week', '1 month'] as const satisfies readonly Interval[];

/** The portfolio at a time between the account's first transfer and when the screen was opened. */
export function AccountHoldings({
  address,
  begins,
  opened,
}: {
  readonly address: string;
  readonly begins: string | null;
  readonly opened: Date;
}): JSX.Element {
  const [at, setAt] = useState<Date | null>(null);
  const [token, setToken] = useState<string | null>(null);
  const portfolio = useLoad(
    async (api, signal) => {
      const time = at === null ? {} : { at_time: at.toISOString() };
      return await api.getPortfolio({ query: { account_address: address, ...time }, signal });
    },
    [address, at?.getTime()],
  );
  const all = portfolio.data?.data.holdings ?? [];
  const holdings = all.filter(({ is_hidden }) => !is_hidden);
  const hidden = all.length - holdings.length;
  const chosen =
    holdings.find(({ token_address }) => token_address === token) ??
    holdings.find(({ is_erc20, common }) => is_erc20 && common) ??
    holdings.find(({ is_erc20 }) => is_erc20);
  return (
    <>
      {begins !== null && <TimeSlider from={new Date(begins)} to={opened} onChange={setAt} />}
      <Loading of={portfolio}>
        {({ data, complete }) => (
          <>
            <dl class="figures">
              <Figure name="Value" data-figure="value">
                <Usd value={data.total_usd} />
              </Figure>
              <Figure name="Holdings">{countText(data.holdings_count)}</Figure>
              <Figure name="Without a price">{countText(data.untracked_count)}</Figure>
              <Figure name="As of">
                <Time at={data.as_of} />
              </Figure>
            </dl>
            {complete === false && <p class="note">Balances that are not known yet are left out.</p>}
          </>
        )}
      </Loading>
      {begins !== null && (
        <div class="columns">
          <ValueCurve address={address} begins={new Date(begins)} opened={opened} />
          {chosen !== undefined && (
            <BalanceCurve address={address} holding={chosen} begins={new Date(begins)} opened={opened} />
          )}
        </div>
      )}
      <Panel title="Holdings">
        <Loading of={portfolio}>
          {({ data }) => (
            <>
              <Holdings rows={holdings} total={data.total_usd} chosen={chosen} onChoose={setToken} />
              {hidden > 0 && (
                <p class="note">
                  {countOf(hidden, 'hidden token')} {hidden === 1 ? 'is' : 'are'} not listed, but counted in
                  the figures above.
                </p>
              )}
            </>
          )}
        </Loading>
      </Panel>
    </>
  );
}

const STEPS = 200;
/** The portfolio is read once the slider rests. */
const REST_MS = 300;

function TimeSlider({
  from,
  to,
  onChange,
}: {
  readonly from: Date;
  readonly to: Date;
  readonly onChange: (at: Date | null) => void;
}): JSX.Element {
  const id = useId();
  const [step, setStep] = useState(STEPS);
  const at = new Date(from.getTime() + ((to.getTime() - from.getTime()) * step) / STEPS);
  useEffect(() => {
    const timer = setTimeout(() => onChange(step === STEPS ? null : at), REST_MS);
    return () => clearTimeout(timer);
  }, [step]);
  const text = step === STEPS ? 'now' : localTime(at);
  return (
    <div class="slider">
      <label for={id}>Portfolio at</label>
      <input
        id={id}
        type="range"
        min={0}
        max={STEPS}
        value={step}
        aria-valuetext={text}
        onInput={({ currentTarget }) => setStep(Number(currentTarget.value))}
      />
      <output for={id} title={utcTime(at)}>
        {text}
      </output>
      {step !== STEPS && (
        <button type="button" onClick={() => setStep(STEPS)}>
          Back to now
        </button>
      )}
    </div>
  );
}

interface Span {
  readonly address: string;
  readonly begins: Date;
  readonly opened: Date;
}

function ValueCurve({ address, begins, opened }: Span): JSX.Element {
  const curve = useLoad(
    async (api, signal) => await valuePoints(api, { address, begins, opened }, signal),
    [address, begins.getTime(), opened.getTime()],
  );
  return (
    <Panel title="Value">
      <Loading of={curve}>
        {(points) => <Plot label="Value in US dollars" points={points} axisText={usdAxis} />}
      </Loading>
    </Panel>
  );
}

const usdAxis = (value: number): string => `$${axisNumber(value)}`;

async function valuePoints(
  api: TokenDataClient,
  { address, begins, opened }: Span,
  signal: AbortSignal,
): Promise<PlotPoint[]> {
  const span = opened.getTime() - begins.getTime();
  const pointOf = (time: string, usd: number): PlotPoint => ({
    time: Date.parse(time) / 1000,
    value: usd,
    text: usdText(usd),
  });
  const pointAt = async (time: Date): Promise<PlotPoint> => {
    const query = { account_address: address, at_time: time.toISOString() };
    const { data } = await api.getPortfolio({ query, signal });
    return pointOf(data.as_of, data.total_usd);
  };
  if (span >= SHORT_SPAN_MS) {
    const finest = span <= 20 * DAY_MS ? 0 : span <= 800 * DAY_MS ? 1 : 2;
    const query = {
      account_address: address,
      start_time: begins.toISOString(),
      end_time: opened.toISOString(),
    };
    const data = await historyOf(api, query, INTERVALS.slice(finest), signal);
    return [...data.map(({ timestamp, total_usd }) => pointOf(timestamp, total_usd)), await pointAt(opened)];
  }
  const points = [];
  for (let i = 0; i < SAMPLES; i += 1)
    points.push(await pointAt(new Date(begins.getTime() + (span * i) / (SAMPLES - 1))));
  return points;
}

/** By the finest of these intervals with which the service answers: it rejects too many points of an account of many tokens. */
async function historyOf(
  api: TokenDataClient,
  query: Omit<GetPortfolioHistoryData['query'], 'interval'>,
  [interval = '1 month', ...coarser]: readonly Interval[],
  signal: AbortSignal,
): Promise<GetPortfolioHistoryResponses[200]['data']> {
  try {
    return (await api.getPortfolioHistory({ query: { ...query, interval }, signal })).data;
  } catch (error) {
    // It names this parameter where the points are too many.
    const isTooFine = error instanceof ApiError && 'start_time' in error.errors;
    if (coarser.length === 0 || !isTooFine) throw error;
    return await historyOf(api, query, coarser, signal);
  }
}

/** The newest transfers that a curve of balances shows: the service rejects a window with more than 100,000. */
const CURVE_TRANSFERS = 10_000;
const PAGE = 100;

/** The time of the oldest transfer of the pair that a curve shows; null: it shows all. */
async function curveStart(
  api: TokenDataClient,
  pair: { readonly account: string; readonly token: string },
  signal: AbortSignal,
): Promise<string | null> {
  const query = { ...pair, limit: PAGE, page: CURVE_TRANSFERS / PAGE };
  const last = await orNull(api.listTransfers({ query, signal }));
  return last === null || last.links.next === null ? null : (last.results.at(-1)?.timestamp ?? null);
}

function BalanceCurve({
  address,
  holding,
  begins,
  opened,
}: Span & { readonly holding: Holding }): JSX.Element {
  const { token_address: token, decimals } = holding;
  const symbol = printable(holding.symbol ?? '') || 'Token';
  const curve = useLoad(
    async (api, signal) => {
      const since = await curveStart(api, { account: address, token }, signal);
      const { data } = await api.getBalanceHistory({
        query: {
          account_address: address,
          token_address: token,
          start_time: since ?? begins.toISOString(),
          end_time: opened.toISOString(),
        },
        signal,
      });
      const points = data.map(({ time, balance }) => ({
        time: Date.parse(time) / 1000,
        value: Number(BigInt(balance)) / 10 ** decimals,
        text: `${amountText(BigInt(balance), decimals)} ${symbol}`,
      }));
      // The newest balance holds until now.
      const now = points.slice(-1).map((last) => ({ ...last, time: opened.getTime() / 1000 }));
      return { points: [...points, ...now], isCut: since !== null };
    },
    [address, token, begins.getTime(), opened.getTime()],
  );
  return (
    <Panel title={`Balance: ${symbol}`}>
      <Loading of={curve}>
        {({ points, isCut }) => (
          <>
            {isCut && <p class="note">Since the newest {countText(CURVE_TRANSFERS)} transfers.</p>}
            <Plot label={`Balance of ${symbol}`} points={points} kind="steps" />
          </>
        )}
      </Loading>
    </Panel>
  );
}

function Holdings({
  rows,
  total,
  chosen,
  onChoose,
}: {
  readonly rows: readonly Holding[];
  readonly total: number;
  readonly chosen: Holding | undefined;
  readonly onChoose: (token: string) => void;
}): JSX.Element {
  return (
    <Table
      caption="Holdings"
      rows={rows}
      keyOf={({ token_address }) => token_address}
      empty="No holdings at this time."
      columns={[
        {
          title: 'Token',
          cell: ({ token_address, symbol, logo }) => (
            <>
              <Logo url={logo} address={token_address} symbol={symbol} />{' '}
              <TokenName address={token_address} symbol={symbol} />
            </>
          ),
        },
        { title: 'Name', cell: ({ name }) => <bdi>{printable(name ?? '')}</bdi> },
        {
          title: 'Balance',
          isNumber: true,
          cell: ({ balance, decimals }) => <Amount value={balance} decimals={decimals} />,
        },
        { title: 'Price', isNumber: true, cell: ({ token_price_usd }) => <Usd value={token_price_usd} /> },
        { title: 'Value', isNumber: true, cell: ({ balance_usd }) => <Usd value={balance_usd} /> },
        {
          title: 'Share',
          isNumber: true,
          cell: ({ balance_usd }) =>
            balance_usd === null || total === 0 ? '' : `${((100 * balance_usd) / total).toFixed(1)} %`,
        },
        {
          title: 'Curve',
          cell: ({ token_address, symbol }) => (
            <button
              type="button"
              aria-pressed={token_address === chosen?.token_address}
              aria-label={`Show the balance of ${printable(symbol ?? '') || token_address} as a curve`}
              onClick={() => onChoose(token_address)}
            >
              Balance
            </button>
          ),
        },
      ]}
    />
  );
}
