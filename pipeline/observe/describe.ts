import { z } from 'zod';

import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt, height, tokenStandard } from '../../schemas/messages/common.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { decodeDecimals, decodeText } from '../../schemas/text.ts';
import { isRpcError } from '../node/errors.ts';
import type { CallOptions, Node } from '../node/types.ts';

export type TokenDescribed = Extract<TokensMessage, { type: 'token.described' }>;

/** What is known of a token before it is asked for its name. */
export const tokenTask = z.object({ standard: tokenStandard, class_hash: felt.nullable(), block: height });
export type TokenTask = z.infer<typeof tokenTask>;

function constant(hex: string): Felt {
  const selector = parseFelt(hex);
  if (selector === null) throw new RangeError(`not a felt: ${hex}`);
  return selector;
}

/** sn_keccak of the names; test/unit/pipeline/observe/describe.test.ts computes them. */
const SELECTORS = {
  name: constant('0x0361458367e696363fbcc70777d07ebbd2394e89fd0adcaf147faccd1d294d60'),
  symbol: constant('0x0216b05c387bab9ac31918a3e61672f4618601f3c598a2f3f2710f37053e1ea4'),
  decimals: constant('0x004c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9'),
} as const;

/**
 * Asks a token for its name, symbol and decimals, in the newest state: what was first set in a later block counts, and
 * a node without the old state can answer. What the contract refuses, or answers in no form of text or number, is null.
 *
 * @throws what kept the chain from answering
 */
export async function describeToken(
  node: Pick<Node, 'call'>,
  token: Felt,
  task: TokenTask,
  now: () => number,
  options?: CallOptions,
): Promise<TokenDescribed> {
  const ask = async (selector: Felt): Promise<readonly Felt[]> => {
    try {
      return await node.call({ contract: token, selector, calldata: [] }, 'latest', options);
    } catch (error) {
      // As in the look-up of standards: contract or entry point not found, contract error. The chain's answer is no.
      if (isRpcError(error, 20, 21, 22, 40, 41)) return [];
      throw error;
    }
  };
  const isNft = task.standard === 'erc721' || task.standard === 'erc1155';
  const [name, symbol, decimals] = await Promise.all([
    ask(SELECTORS.name),
    ask(SELECTORS.symbol),
    isNft ? [] : ask(SELECTORS.decimals),
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
    observed_at: now(),
  };
}
