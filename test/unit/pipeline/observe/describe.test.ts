import { hash } from 'starknet';
import { describe, expect, it } from 'vitest';

import { RpcError } from '../../../../pipeline/node/errors.ts';
import type { Node } from '../../../../pipeline/node/types.ts';
import { describeToken } from '../../../../pipeline/observe/describe.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import { tokensMessage } from '../../../../schemas/messages/tokens.ts';
import type { TokenStandard } from '../../../../schemas/messages/common.ts';

const TOKEN = toFelt(0x70ce4n);
const text = (value: string): bigint[] => [BigInt(`0x${Buffer.from(value).toString('hex')}`)];

function contract(answers: Record<string, bigint[] | Error>): Pick<Node, 'call'> & { asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    async call({ contract: address, selector }, at) {
      const name = ['name', 'symbol', 'decimals'].find(
        (candidate) => BigInt(hash.getSelectorFromName(candidate)) === BigInt(selector),
      );
      expect([address, at]).toEqual([TOKEN, 'latest']);
      asked.push(name ?? 'something else');
      const answer = answers[name ?? ''] ?? new RpcError('starknet_call', 21, 'no such entry point', null);
      if (answer instanceof Error) throw answer;
      return answer.map(toFelt);
    },
  };
}

const run = (node: Pick<Node, 'call'>, standard: TokenStandard = 'erc20') =>
  describeToken(node, TOKEN, { standard, class_hash: null, block: 7 }, () => 1234);

describe('describeToken', () => {
  it('says what the contract says', async () => {
    const node = contract({ name: text('Ether'), symbol: [0n, ...text('ETH'), 3n], decimals: [18n] });
    const described = await run(node);
    expect(described).toEqual({
      type: 'token.described',
      v: 1,
      token: TOKEN,
      standard: 'erc20',
      class_hash: null,
      name: 'Ether',
      symbol: 'ETH',
      decimals: 18,
      block: 7,
      observed_at: 1234,
    });
    expect(tokensMessage.parse(described)).toEqual(described);
  });

  it.each(['erc721', 'erc1155'] as const)('does not ask an %s for decimals', async (standard) => {
    const node = contract({ name: text('Foxes'), symbol: text('FOX'), decimals: [0n] });
    expect(await run(node, standard)).toMatchObject({ name: 'Foxes', symbol: 'FOX', decimals: null });
    expect(node.asked.toSorted()).toEqual(['name', 'symbol']);
  });

  it.each([20, 21, 22, 40, 41])('takes code %i for a no, field by field', async (code) => {
    const node = contract({ symbol: text('S'), name: new RpcError('starknet_call', code, 'no', null) });
    expect(await run(node)).toMatchObject({ name: null, symbol: 'S', decimals: null });
  });

  it('makes null of what is no text and no number', async () => {
    const node = contract({ name: [5n, 5n], symbol: [], decimals: [256n] });
    expect(await run(node)).toMatchObject({ name: null, symbol: null, decimals: null });
  });

  it.each([
    new AppError('NODE_UNREACHABLE', 'away', { retryable: true }),
    new RpcError('starknet_call', -32603, 'internal', null),
    new RpcError('starknet_call', 24, 'block not found', null),
  ])('throws what is not an answer of the chain (%s)', async (error) => {
    const node = contract({ name: text('N'), symbol: error, decimals: [18n] });
    await expect(run(node)).rejects.toBe(error);
  });
});
