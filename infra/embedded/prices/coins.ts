import { tokens } from '../starknet/tokens.ts';
import type { Token } from '../starknet/tokens.ts';
import type { Walk } from './walk.ts';

/** A token in the simulated price feed and token list. */
export interface Coin {
  readonly token: Token;
  /** As in real lists: with or without leading zeros. */
  readonly address: string;
  /** Null: listed without a price. */
  readonly walk: Walk | null;
  readonly confidence: number;
  readonly tags: readonly string[];
}

type Entry = [walk: Walk | null, confidence: number, ...tags: string[]];

const curated = ['Verified', 'AVNU'] as const;
const entries: Readonly<Record<string, Entry>> = {
  strk: [{ level: 0.42, daily: 0.05, market: 1.2 }, 0.99, ...curated],
  eth: [{ level: 3150, daily: 0.03, market: 1 }, 0.99, ...curated],
  usdc: [{ level: 1, daily: 0.0002, market: 0 }, 0.99, ...curated],
  usdt: [{ level: 0.9998, daily: 0.0003, market: 0 }, 0.99, ...curated],
  dai: [{ level: 1, daily: 0.0004, market: 0 }, 0.98, ...curated],
  wbtc: [{ level: 68_000, daily: 0.025, market: 0.9 }, 0.99, ...curated],
  keyed: [{ level: 0.012, daily: 0.08, market: 0.7 }, 0.95, 'Verified'],
  'felt-data': [{ level: 1.9, daily: 0.06, market: 0.5 }, 0.95, 'Verified'],
  'felt-cairo0': [{ level: 12.5, daily: 0.04, market: 0.5 }, 0.9, 'Community'],
  // JSON writes such a small number with an exponent.
  component: [{ level: 0.000_000_004_2, daily: 0.12, market: 0.3 }, 0.9, 'Unruggable'],
  // As from a pool with hardly any trades: a confidence below the accepted minimum.
  hostile: [{ level: 0.0007, daily: 0.2, market: 0 }, 0.5, 'Unknown'],
  foxes: [null, 0, 'Community'],
};

export const coins: readonly Coin[] = tokens.flatMap((token) => {
  const entry = entries[token.key];
  if (entry === undefined) return [];
  const [walk, confidence, ...tags] = entry;
  const padded = `0x${token.address.toString(16).padStart(64, '0')}`;
  const address = token.index % 2 === 0 ? padded : `0x${token.address.toString(16)}`;
  return [{ token, address, walk, confidence, tags }];
});
