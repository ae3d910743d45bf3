import type { Heights } from '../compare.ts';

/** A difference that verification found, with a description for operators. */
export interface Difference {
  /**
   * log: the topic breaks a promise of its own; rows: a table is not what the topic says; derived: totals are not what
   * their base table says; conservation: legs of a token do not sum to zero; checkpoint: outside the log; halt: a
   * partition stands still; node: the node has another block.
   */
  readonly kind: 'log' | 'rows' | 'derived' | 'conservation' | 'checkpoint' | 'halt' | 'node';
  readonly what: string;
  /** Where to look again; null: at no height. Of a row that is named: of its range. */
  readonly heights: Heights | null;
  /** The table, by its placeholder, and the range of 1024 heights that differ. */
  readonly table?: string;
  readonly range?: number;
  /** The height of the one row that differs, where it has one. */
  readonly height?: number | null;
  /** The block must be read from the node again. */
  readonly reread?: boolean;
}

/** Differences named one by one, of one kind and table; of more, only how many there are. */
export const NAMED = 1000;
