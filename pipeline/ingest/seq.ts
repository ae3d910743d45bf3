/** Seqs reserved at once: one statement of Postgres for as many reverts and repairs. */
export const SEQ_RESERVE = 1000;

export interface Seq {
  /** What blocks are accepted with: above every revert so far. It stands still between reverts. */
  forAccept(): Promise<number>;
  /** What a revert carries: above everything so far. */
  forRevert(): Promise<number>;
}

/**
 * Orders everything said about a height. Reverts take the next seq (n), what is accepted after them the one after (n + 1),
 * also when it was not heard what became of a revert. So no two messages about one height share a seq, though messages
 * about different heights do. `reserve` writes a ceiling down before anything up to it is used.
 */
export function createSeq(
  grant: { readonly seq: number; readonly seqCeiling: number },
  reserve: (ceiling: number) => Promise<void>,
): Seq {
  let current = grant.seq;
  let ceiling = grant.seqCeiling;
  let reverted = false;

  const next = async (): Promise<number> => {
    if (current + 1 > ceiling) {
      const wanted = current + SEQ_RESERVE;
      await reserve(wanted);
      ceiling = Math.max(ceiling, wanted);
    }
    current += 1;
    return current;
  };

  return {
    async forAccept() {
      if (reverted) await next();
      reverted = false;
      return current;
    },
    async forRevert() {
      const seq = await next();
      reverted = true;
      return seq;
    },
  };
}
