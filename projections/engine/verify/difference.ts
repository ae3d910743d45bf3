import type { Heights } from '../compare.ts';

/** A difference that verification found, with a description for operators. */
export interface Difference {
  /**
   * log: the log is inconsistent; rows: a table differs from the log; derived: a total differs from its base table;
   * conservation: the legs of a token do not sum to zero; checkpoint: outside the log; halt: a halted partition; node:
   * the node has another block.
   */
  readonly kind: 'log' | 'rows' | 'derived' | 'conservation' | 'checkpoint' | 'halt' | 'node';
  readonly what: string;
  /** The heights to verify again, for a row those of its range; null: the difference has no height. */
  readonly heights: Heights | null;
  /** The table's placeholder, and the range of 1024 heights. */
  readonly table?: string;
  readonly range?: number;
  /** The height of a single row, if it has one. */
  readonly height?: number | null;
  /** True when the ingester must read the block from the node again. */
  readonly reread?: boolean;
}

/** Differences of one kind and table that are listed one by one; of more, only their number. */
export const NAMED = 1000;
