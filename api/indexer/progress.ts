import type { ChunkRow } from '../../projections/chain-status/queries.ts';
import type { ChunkTotals } from '../../projections/indexed-blocks/queries.ts';
import type { ProgressAnswer } from '../../schemas/api/progress.ts';
import type { Felt } from '../../schemas/felt.ts';
import { decodeShortString } from '../../schemas/text.ts';

const networks: Readonly<Record<string, string>> = { SN_MAIN: 'mainnet', SN_SEPOLIA: 'sepolia' };

/** The contract's name of a network, else the chain id as text, else as hex. */
export function networkName(chainId: Felt | null): string {
  if (chainId === null) return '';
  const text = decodeShortString(chainId) ?? chainId;
  return networks[text] ?? text;
}

/**
 * Every open chunk. One without a transfer yet has the start of its range as `latest_block`, so its percent is 0.
 */
export function presentProgress(
  chainId: Felt | null,
  chunks: readonly Pick<ChunkRow, 'name' | 'start' | 'end'>[],
  totals: readonly ChunkTotals[],
): ProgressAnswer {
  const shown = chunks.map(({ name, start, end }) => {
    const indexed = totals.find(({ chunk }) => chunk === name);
    const latest = indexed?.latest_transfer_block ?? start;
    const range: [number, number | null] = [start, end];
    return {
      name,
      range,
      latest_block: latest,
      transfers: indexed?.transfers ?? 0,
      percent:
        end === null || end === start ? null : Math.min(1, Math.max(0, (latest - start) / (end - start))),
    };
  });
  const verified = totals.filter(({ chunk }) => chunks.some(({ name }) => name === chunk));
  return {
    network: networkName(chainId),
    chunks: shown,
    totals: {
      transfers: shown.reduce((sum, { transfers }) => sum + transfers, 0),
      latest_block_overall: shown.reduce((highest, chunk) => Math.max(highest, chunk.latest_block), 0),
    },
    verified_blocks: verified.reduce((sum, chunk) => sum + chunk.verified, 0),
  };
}
