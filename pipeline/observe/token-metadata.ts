import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt, height, isNft, tokenStandard } from '../../schemas/messages/common.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { decodeDecimals, decodeText } from '../../schemas/text.ts';
import type { CallOptions, Node } from '../node/types.ts';
import { isContractError, isRpcError, rpcCodes } from '../node/errors.ts';

export type TokenDescribed = Extract<TokensMessage, { type: 'token.described' }>;

/** The facts from the block message that `token.described` repeats. */
export const tokenTask = z.object({
  standard: tokenStandard,
  class_hash: felt.nullable(),
  block: height,
  cause: z.literal('repair').optional(),
});
export type TokenTask = z.infer<typeof tokenTask>;

/** About two minutes. */
const LACKING_ATTEMPTS = 8;

/** sn_keccak of the names; test/unit/pipeline/observe/token-metadata.test.ts computes them. */
const SELECTORS = {
  name: toFelt(0x0361458367e696363fbcc70777d07ebbd2394e89fd0adcaf147faccd1d294d60n),
  symbol: toFelt(0x0216b05c387bab9ac31918a3e61672f4618601f3c598a2f3f2710f37053e1ea4n),
  decimals: toFelt(0x004c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9n),
} as const;

/**
 * Reads name, symbol and decimals of a token in the latest state: a name may be set after the token was deployed, and nodes
 * need not keep old states. What the contract refuses, or answers in an unknown encoding, is null.
 *
 * @param failures failed attempts before this one
 * @throws the error of a node that did not answer, and, in the first attempts, of one that lacks a contract whose class is known:
 * its newest block may be older, or its block was reverted and will come again
 */
export async function readTokenMetadata(
  node: Pick<Node, 'call'>,
  token: Felt,
  {
    task,
    failures,
    now,
  }: { readonly task: TokenTask; readonly failures: number; readonly now: () => number },
  options?: CallOptions,
): Promise<TokenDescribed> {
  const call = async (selector: Felt): Promise<readonly Felt[]> => {
    try {
      return await node.call({ contract: token, selector, calldata: [] }, 'latest', options);
    } catch (error) {
      if (
        isRpcError(error, rpcCodes.contractNotFound) &&
        task.class_hash !== null &&
        failures < LACKING_ATTEMPTS
      )
        throw new AppError(error.code, error.message, { retryable: true, cause: error });
      if (isContractError(error)) return [];
      throw error;
    }
  };
  const [name, symbol, decimals] = await Promise.all([
    call(SELECTORS.name),
    call(SELECTORS.symbol),
    isNft(task.standard) ? [] : call(SELECTORS.decimals),
  ]);
  return {
    type: 'token.described',
    v: 1,
    token,
    standard: task.standard,
    class_hash: task.class_hash,
    name: decodeText(name),
    symbol: decodeText(symbol),
    decimals: decodeDecimals(decimals),
    block: task.block,
    cause: task.cause,
    observed_at: now(),
  };
}
