import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { readFelt } from './parse.ts';
import type { Rpc } from './rpc.ts';

/** Throws `CHAIN_MISMATCH` where an installation holds another chain than this. */
export type ChainCheck = (served: Felt) => Promise<void>;

/** @throws `CHAIN_MISMATCH` */
export function assertSameChain(served: Felt, held: Felt): void {
  if (served === held) return;
  throw new AppError(
    'CHAIN_MISMATCH',
    `The node serves chain ${chainName(served)}, this installation holds ${chainName(held)}`,
    { details: { found: served, kept: held } },
  );
}

/** A chain id is a short text in a felt: SN_MAIN, SN_SEPOLIA. */
export function chainName(chainId: Felt): string {
  const text = Buffer.from(chainId.slice(2), 'hex').toString('latin1').replaceAll('\0', '');
  return /^[\x20-\x7e]+$/.test(text) ? text : chainId;
}

/** Lets no call through before the node was seen to serve the chain that is held. */
export function withChainCheck(rpc: Rpc, hold: ChainCheck): Rpc {
  let held: Promise<void> | null = null;
  const ask = async (): Promise<void> => {
    try {
      await hold(await rpc.call({ method: 'starknet_chainId', params: {}, parse: readFelt }));
    } catch (error) {
      held = null;
      throw error;
    }
  };
  return {
    async call(call, options) {
      await (held ??= ask());
      return await rpc.call(call, options);
    },
    async batch(calls, options) {
      await (held ??= ask());
      return await rpc.batch(calls, options);
    },
    close: () => rpc.close(),
  };
}
