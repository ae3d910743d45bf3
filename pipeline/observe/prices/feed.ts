import type { Felt } from '../../../schemas/felt.ts';

/** What a feed said of a token, word for word: nothing of it is believed yet (guard.ts). */
export interface FeedReading {
  /** Which token the feed says it is the price of; null where that is no address. */
  readonly token: Felt | null;
  /** As it was written; null where no number was. */
  readonly price: string | null;
  /** From 0 to 1, as it was written; null where the feed does not say. */
  readonly confidence: string | null;
  /** The feed's own time of the price, unix milliseconds; null where that is no time. */
  readonly observedAt: number | null;
}

export interface HistoryRange {
  /** Unix milliseconds; both ends belong to it. */
  readonly from: number;
  readonly to: number;
  readonly stepMs: number;
}

/** Where prices come from. A second feed is another of these. */
export interface PriceFeed {
  /** What `price.observed` calls it. */
  readonly source: string;
  /** Most tokens of one call of `current`. */
  readonly tokensPerCall: number;
  /** Most points of one call of `history`. */
  readonly pointsPerCall: number;
  /**
   * What the feed says now, in one call. A token that it does not know is missing; what it says of tokens that were not
   * asked for comes too.
   */
  current(tokens: readonly Felt[], signal?: AbortSignal): Promise<FeedReading[]>;
  /** Points of one token over a time, in the feed's order. */
  history(token: Felt, range: HistoryRange, signal?: AbortSignal): Promise<FeedReading[]>;
  close(): Promise<void>;
}
