import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

import { localTime, utcTime } from '../format.ts';
import { periodText } from '../periods.ts';
import type { Interval } from '../periods.ts';
import { timeRange, valueRange } from '../plot-ranges.ts';
import type { Kind, PlotPoint } from '../plot-ranges.ts';

/** Of a price in one interval. */
export interface Candle extends PlotPoint {
  readonly open: number;
  readonly high: number;
  readonly low: number;
}

interface PlotProps {
  readonly label: string;
  readonly points: readonly (PlotPoint | Candle)[];
  readonly kind?: Kind;
  readonly height?: number;
  /** Of the vertical axis, where values have one; absent: the highest value. */
  readonly top?: number;
  /** First and last time of the horizontal axis; absent: those of the points. */
  readonly span?: readonly [from: number, to: number];
  /** Text of a mark of the vertical axis. */
  readonly axisText?: (value: number) => string;
  /** Each point is the start of such an interval; absent: points are instants. */
  readonly period?: Interval;
}

const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 4 });

/** Text of a mark of an axis; a rounded one, in few characters. */
export const axisNumber = (value: number): string =>
  Math.abs(value) >= 1e15 ? value.toExponential(1).replace('e+', 'e') : compact.format(value);

/** Values over local time, or over the days of UTC. The newest, lowest and highest are also in words, for those who do not see it. */
export function Plot(props: PlotProps): JSX.Element {
  const { label, points, kind = 'line', height = 200, period } = props;
  const holder = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null);
  const scheme = useScheme();
  useEffect(() => {
    const { current } = holder;
    if (current === null || points.length === 0) return;
    const plot = new UPlot(optionsOf(props, current, setAt), dataOf(points, kind), current);
    const observer = new ResizeObserver(() => plot.setSize({ width: current.clientWidth, height }));
    observer.observe(current);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [points, kind, height, label, period, scheme]);
  const last = points.at(-1);
  if (last === undefined) return <p class="quiet empty">No points in this time.</p>;
  const shown = (at === null ? undefined : points[at]) ?? last;
  return (
    <figure class="plot" aria-label={inWords(label, points)} role="img">
      <div class="plot-at" aria-hidden="true">
        {periodText(new Date(shown.time * 1000), period)} <b>{shown.text}</b>
      </div>
      <div ref={holder} />
    </figure>
  );
}

function inWords(label: string, points: readonly PlotPoint[]): string {
  const sorted = points.toSorted((a, b) => a.value - b.value);
  return `${label}: ${points.length} points, newest ${points.at(-1)?.text}, lowest ${sorted[0]?.text}, highest ${sorted.at(-1)?.text}`;
}

/** Changes with the scheme of the system, which the colours of a drawing follow. */
function useScheme(): boolean {
  const [isDark, setDark] = useState(() => matchMedia('(prefers-color-scheme: dark)').matches);
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)');
    const update = (): void => setDark(query.matches);
    query.addEventListener('change', update);
    return () => query.removeEventListener('change', update);
  }, []);
  return isDark;
}

function dataOf(points: readonly (PlotPoint | Candle)[], kind: Kind): UPlot.AlignedData {
  const times = points.map(({ time }) => time);
  const values = points.map(({ value }) => value);
  // A bar of zero would be drawn as a dash.
  if (kind === 'bars') return [times, values.map((value) => (value === 0 ? null : value))];
  if (kind !== 'candles') return [times, values];
  const candles = candlesOf(points);
  // Highs and lows take part so that the axis has room for them.
  return [times, values, candles.map(({ high }) => high), candles.map(({ low }) => low)];
}

function optionsOf(
  { points, kind = 'line', height = 200, top, span, axisText = axisNumber, period = '1 hour' }: PlotProps,
  holder: HTMLElement,
  setAt: (index: number | null) => void,
): UPlot.Options {
  const color = colorsOf(holder);
  const axis: UPlot.Axis = {
    stroke: color('--quiet'),
    grid: { stroke: color('--line'), width: 1 },
    ticks: { stroke: color('--line'), width: 1 },
    font: '11px system-ui, sans-serif',
  };
  const isCandles = kind === 'candles';
  const isLocal = period === '1 hour';
  const paths = pathsOf(kind);
  const series: UPlot.Series = {
    stroke: color('--accent'),
    width: isCandles ? 0 : 1.5,
    points: { show: !isCandles && points.length === 1 },
    ...(kind === 'bars' ? { fill: color('--accent') } : {}),
    ...(paths === undefined ? {} : { paths }),
  };
  const hidden: UPlot.Series = { paths: () => null, points: { show: false } };
  return {
    width: holder.clientWidth,
    height,
    legend: { show: false },
    ...(isLocal ? {} : { tzDate: (time) => UPlot.tzDate(new Date(time * 1000), 'UTC') }),
    cursor: { y: false, points: { show: !isCandles }, drag: { x: true, y: false } },
    scales: {
      x: { range: (_plot, from, to) => timeRange(points, [from, to], kind, span) },
      y: { range: (_plot, low, high) => valueRange(low, top ?? high, kind) },
    },
    axes: [
      { ...axis, space: 70, values: (_plot, marks, _axis, _space, step) => timeTexts(marks, step, isLocal) },
      { ...axis, size: 62, incrs: STEPS, values: (_plot, marks) => marks.map(axisText) },
    ],
    series: isCandles ? [{}, series, hidden, hidden] : [{}, series],
    hooks: {
      setCursor: [(plot) => setAt(plot.cursor.idx ?? null)],
      ...(isCandles ? { draw: [(plot) => drawCandles(plot, candlesOf(points), color)] } : {}),
    },
  };
}

const candlesOf = (points: readonly (PlotPoint | Candle)[]): Candle[] =>
  points.filter((point): point is Candle => 'open' in point);

/** Of lines: those of the library. */
function pathsOf(kind: Kind): UPlot.Series.PathBuilder | undefined {
  if (kind === 'bars') return UPlot.paths.bars?.({ size: [0.7, 40] });
  if (kind === 'steps') return UPlot.paths.stepped?.({ align: 1 });
  return kind === 'candles' ? () => null : undefined;
}

const colorsOf =
  (holder: HTMLElement) =>
  (name: string): string =>
    getComputedStyle(holder).getPropertyValue(name).trim();

/** Between the marks of the vertical axis; those of the library end at 1e16. */
const STEPS = Array.from({ length: 120 }, (_, i) => [1, 2, 5].map((digit) => digit * 10 ** (i - 30))).flat();

const DAY_SECONDS = 86_400;

/** Times of the marks of an axis: the day where a mark begins one, and at the first. */
function timeTexts(marks: readonly number[], step: number, isLocal: boolean): string[] {
  let day = '';
  return marks.map((mark) => {
    const at = new Date(mark * 1000);
    const [date = '', time = ''] = (isLocal ? localTime(at) : utcTime(at)).split(' ');
    if (step >= DAY_SECONDS) return date;
    const text = step < 60 ? time : time.slice(0, 5);
    const line = date === day ? text : `${text}\n${date}`;
    day = date;
    return line;
  });
}

function drawCandles(plot: UPlot, candles: readonly Candle[], color: (name: string) => string): void {
  const { ctx } = plot;
  const x = (time: number): number => Math.round(plot.valToPos(time, 'x', true));
  const y = (value: number): number => Math.round(plot.valToPos(value, 'y', true));
  const [first, second] = candles;
  const step = first === undefined || second === undefined ? 20 : x(second.time) - x(first.time);
  const width = Math.max(1, Math.min(14 * devicePixelRatio, Math.floor(step * 0.7)));
  ctx.save();
  ctx.beginPath();
  ctx.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
  ctx.clip();
  for (const { time, open, high, low, value: close } of candles) {
    ctx.fillStyle = color(close >= open ? '--up' : '--down');
    ctx.fillRect(x(time), y(high), Math.max(1, devicePixelRatio), y(low) - y(high));
    const top = y(Math.max(open, close));
    ctx.fillRect(x(time) - Math.floor(width / 2), top, width, Math.max(1, y(Math.min(open, close)) - top));
  }
  ctx.restore();
}
