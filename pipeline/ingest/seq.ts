/** Seqs reserved at once: one statement of Postgres for as many reverts and repairs. */
export const SEQ_RESERVE = 1000;

export interface Seq {
  /** What blocks are accepted with now. It stands still between reverts. */
  current(): number;
  /** A seq above every one used so far: what a revert carries, then what the blocks after it carry. */
  next(): Promise<number>;
}

/**
 * Orders everything said about a height. Blocks are accepted with the current seq; a revert takes the next one (n), and
 * what is accepted after it the one after that (n + 1). So no two messages about one height share a seq, though
 * messages about different heights do. `reserve` writes a ceiling down before anything up to it is used.
 */
export function createSeq(
  grant: { readonly seq: number; readonly seqCeiling: number },
  reserve: (ceiling: number) => Promise<void>,
): Seq {
  let current = grant.seq;
  let ceiling = grant.seqCeiling;
  return {
    current: () => current,
    async next() {
      if (current + 1 > ceiling) {
        const wanted = current + SEQ_RESERVE;
        await reserve(wanted);
        ceiling = Math.max(ceiling, wanted);
      }
      current += 1;
      return current;
    },
  };
}
