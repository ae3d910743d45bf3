import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { readFelt } from './parse.ts';
import type { Rpc } from './rpc.ts';

/** Throws `CHAIN_MISMATCH` unless the chain is the one that this installation indexes. */
export type ChainCheck = (served: Felt) => Promise<void>;

/** @throws `CHAIN_MISMATCH` */
export function assertSameChain(served: Felt, stored: Felt): void {
  if (served === stored) return;
  throw new AppError(
    'CHAIN_MISMATCH',
    `Starknet node serves chain ${chainName(served)}, this installation indexes ${chainName(stored)}`,
    { details: { served, stored } },
  );
}

/** Decodes a chain id, which is a short ASCII string in a felt: SN_MAIN, SN_SEPOLIA. */
export function chainName(chainId: Felt): string {
  const text = Buffer.from(chainId.slice(2), 'hex').toString('latin1').replaceAll('\0', '');
  return /^[\x20-\x7e]+$/.test(text) ? text : chainId;
}

/** Delays all calls until the node's chain id has passed the check; a failed check is repeated by the next call. */
export function withChainCheck(rpc: Rpc, checkChain: ChainCheck): Rpc {
  let checked: Promise<void> | null = null;
  const check = async (): Promise<void> => {
    try {
      await checkChain(await rpc.call({ method: 'starknet_chainId', params: {}, parse: readFelt }));
    } catch (error) {
      checked = null;
      throw error;
    }
  };
  return {
    async call(call, options) {
      await (checked ??= check());
      return await rpc.call(call, options);
    },
    async batch(calls, options) {
      await (checked ??= check());
      return await rpc.batch(calls, options);
    },
    close: () => rpc.close(),
  };
}
