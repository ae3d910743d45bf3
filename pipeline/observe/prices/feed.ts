import type { Felt } from '../../../schemas/felt.ts';

/** A price as the feed wrote it, not validated (guard.ts). */
export interface FeedReading {
  /** Null where the feed's address is invalid. */
  readonly token: Felt | null;
  /** JSON number as written; null where there is none. */
  readonly price: string | null;
  /** From 0 to 1, as written; null where the feed gives none. */
  readonly confidence: string | null;
  /** The feed's own time of the price, unix milliseconds; null where it is invalid. */
  readonly observedAt: number | null;
}

export interface HistoryRange {
  /** Unix milliseconds, both inclusive. */
  readonly from: number;
  readonly to: number;
  readonly stepMs: number;
}

/** A source of prices. */
export interface PriceFeed {
  /** The `source` of `price.observed`. */
  readonly source: string;
  /** Upper bound of tokens in one call of `current`. */
  readonly tokensPerCall: number;
  /** Upper bound of points in one call of `history`. */
  readonly pointsPerCall: number;
  /** Reads current prices in one call. Unknown tokens are missing; tokens that were not requested are included. */
  current(tokens: readonly Felt[], signal?: AbortSignal): Promise<FeedReading[]>;
  /** Reads past prices of one token, in the feed's order. */
  history(token: Felt, range: HistoryRange, signal?: AbortSignal): Promise<FeedReading[]>;
  close(): Promise<void>;
}
