import { mix, seedWord } from '../starknet/hash.ts';

/**
 * Prices of the simulated feed: a pure function of seed, token and time, so that history is the same whenever it is asked
 * for, and nothing is kept. The logarithm of a price is a sum of smooth noises, each half as slow and, as in a random
 * walk, smaller by the root of that.
 */
export interface Walk {
  /** US dollars around which it wanders. */
  readonly level: number;
  /** Typical relative move of one day; 0.03 is 3 %. */
  readonly daily: number;
  /** It moves with the market by so much of its own moves: 0 a stable coin, 1 ether. */
  readonly market: number;
}

/** From a third of a year down to five minutes. */
const SLOWEST_S = 112 * 86_400;
const OCTAVES = 15;

/** What all but stable coins share. */
const MARKET = 0xfeed;

/** US dollars for one token at a time (unix seconds), to 12 significant digits. */
export function priceAt(seed: string, token: number, walk: Walk, time: number): number {
  const word = seedWord(seed);
  const own = noise(word, token, time);
  const common = noise(word, MARKET, time);
  const move = walk.daily * (walk.market * common + (1 - walk.market / 2) * own);
  return Number((walk.level * Math.exp(move)).toPrecision(12));
}

/** Some −12 to 12, moving by about 1 a day. */
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
