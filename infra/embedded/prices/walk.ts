import { mix, seedWord } from '../starknet/hash.ts';

/**
 * Prices of the simulated feed: a pure function of seed, token and time, so that the history never changes and nothing is
 * stored. The logarithm of a price is a sum of smooth noises; each has half the period of the previous one and, as in a
 * random walk, an amplitude smaller by the square root of two.
 */
export interface Walk {
  /** Mean price in US dollars. */
  readonly level: number;
  /** Typical relative change in a day; 0.03 is 3 %. */
  readonly daily: number;
  /** How closely it follows the market: 0 for a stable coin, 1 for ether. */
  readonly market: number;
}

/** Periods from a third of a year down to ten minutes. */
const SLOWEST_S = 112 * 86_400;
const OCTAVES = 15;

/** Noise stream that all but stable coins share. */
const MARKET = 0xfeed;

/** US dollars for one token at a time (unix seconds), to 12 significant digits. */
export function priceAt(seed: string, token: number, walk: Walk, time: number): number {
  const word = seedWord(seed);
  const own = noise(word, token, time);
  const common = noise(word, MARKET, time);
  const move = walk.daily * (walk.market * common + (1 - walk.market / 2) * own);
  return Number((walk.level * Math.exp(move)).toPrecision(12));
}

/** About −12 to 12, changing by about 1 a day. */
function noise(seed: number, stream: number, time: number): number {
  let sum = 0;
  for (let octave = 0; octave < OCTAVES; octave++) {
    const period = SLOWEST_S / 2 ** octave;
    const at = time / period;
    const step = Math.floor(at);
    const left = unit(seed, stream, octave, step);
    const right = unit(seed, stream, octave, step + 1);
    const part = at - step;
    const smooth = part * part * (3 - 2 * part);
    sum += (left + (right - left) * smooth) * Math.sqrt(period / 86_400);
  }
  return sum;
}

/** From −1 to 1. */
function unit(seed: number, stream: number, octave: number, step: number): number {
  return mix(seed, stream, octave, step >>> 0) / 2 ** 31 - 1;
}
