/** A point; `text` is its exact value, which is shown under the cursor. */
export interface PlotPoint {
  /** Unix seconds. */
  readonly time: number;
  readonly value: number;
  readonly text: string;
}

export type Kind = 'line' | 'steps' | 'bars' | 'candles';

const HALF_HOUR_SECONDS = 1800;

/** Range of the horizontal axis: bars and candles need half a step at both ends; a single point some time around it. */
export function timeRange(
  points: readonly PlotPoint[],
  [from, to]: [number, number],
  kind: Kind,
  span?: readonly [from: number, to: number],
): [number, number] {
  if (span !== undefined && span[0] < span[1]) {
    // A twentieth is room for a bar at each end.
    const room = (span[1] - span[0]) / 20;
    // uPlot asks for the first to the last point when it is not zoomed, and for years around a single one.
    const isWhole = points.length < 2 || (from === points[0]?.time && to === points.at(-1)?.time);
    return isWhole ? [span[0] - room, span[1] + room] : [from, to];
  }
  const [first, second] = points;
  if (first === undefined) return [from, to];
  if (second === undefined) return [first.time - HALF_HOUR_SECONDS, first.time + HALF_HOUR_SECONDS];
  const room = kind === 'bars' || kind === 'candles' ? (second.time - first.time) / 2 : 0;
  return [from - room, to + room];
}

/** Range of the vertical axis: bars and steps stand on zero; other plots fill the height, with some room. */
export function valueRange(low: number, high: number, kind: Kind): [number, number] {
  const from = kind === 'bars' || kind === 'steps' ? Math.min(0, low) : low;
  // Of zeros alone, up to one.
  if (from === 0 && high === 0) return [0, 1];
  const room = (high - from || Math.abs(high)) * 0.06;
  return [from === 0 ? 0 : from - room, high + room];
}
