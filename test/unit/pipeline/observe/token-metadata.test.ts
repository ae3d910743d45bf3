import { hash } from 'starknet';
import { describe, expect, it } from 'vitest';

import { RpcError } from '../../../../pipeline/node/errors.ts';
import type { Node } from '../../../../pipeline/node/types.ts';
import { readTokenMetadata } from '../../../../pipeline/observe/token-metadata.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import { tokensMessage } from '../../../../schemas/messages/tokens.ts';
import type { TokenStandard } from '../../../../schemas/messages/common.ts';

const TOKEN = toFelt(0x70ce4n);
const text = (value: string): bigint[] => [BigInt(`0x${Buffer.from(value).toString('hex')}`)];

function createContract(answers: Record<string, bigint[] | Error>): Pick<Node, 'call'> & { calls: string[] } {
  const calls: string[] = [];
  return {
    calls,
    async call({ contract: address, selector }, at) {
      const name = ['name', 'symbol', 'decimals'].find(
        (candidate) => BigInt(hash.getSelectorFromName(candidate)) === BigInt(selector),
      );
      expect([address, at]).toEqual([TOKEN, 'latest']);
      calls.push(name ?? 'unknown selector');
      const answer = answers[name ?? ''] ?? new RpcError('starknet_call', 21, 'no such entry point', null);
      if (answer instanceof Error) throw answer;
      return answer.map(toFelt);
    },
  };
}

const run = (node: Pick<Node, 'call'>, standard: TokenStandard = 'erc20') =>
  readTokenMetadata(node, TOKEN, {
    task: { standard, class_hash: null, block: 7 },
    failures: 0,
    now: () => 1234,
  });

describe('readTokenMetadata', () => {
  it('reads name, symbol and decimals of a contract', async () => {
    const node = createContract({ name: text('Ether'), symbol: [0n, ...text('ETH'), 3n], decimals: [18n] });
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

  it.each(['erc721', 'erc1155'] as const)('does not read decimals of an %s', async (standard) => {
    const node = createContract({ name: text('Foxes'), symbol: text('FOX'), decimals: [0n] });
    expect(await run(node, standard)).toMatchObject({ name: 'Foxes', symbol: 'FOX', decimals: null });
    expect(node.calls.toSorted()).toEqual(['name', 'symbol']);
  });

  it.each([20, 21, 22, 40, 41])('returns null for a field that is refused with code %i', async (code) => {
    const node = createContract({ symbol: text('S'), name: new RpcError('starknet_call', code, 'no', null) });
    expect(await run(node)).toMatchObject({ name: null, symbol: 'S', decimals: null });
  });

  it('waits for a contract whose class is known, and not for ever', async () => {
    const lacking = new RpcError('starknet_call', 20, 'no contract', null);
    const attempt = async (failures: number) =>
      await readTokenMetadata(createContract({ name: lacking, symbol: lacking, decimals: lacking }), TOKEN, {
        task: { standard: 'erc20', class_hash: TOKEN, block: 7 },
        failures,
        now: () => 1234,
      });
    for (let failures = 0; failures < 8; failures += 1) {
      await expect(attempt(failures)).rejects.toMatchObject({ retryable: true });
    }
    expect(await attempt(8)).toMatchObject({ name: null, symbol: null, decimals: null });
  });

  it('returns null for answers that are neither text nor number', async () => {
    const node = createContract({ name: [5n, 5n], symbol: [], decimals: [256n] });
    expect(await run(node)).toMatchObject({ name: null, symbol: null, decimals: null });
  });

  it.each([
    new AppError('NODE_UNREACHABLE', 'unavailable', { retryable: true }),
    new RpcError('starknet_call', -32603, 'internal', null),
    new RpcError('starknet_call', 24, 'block not found', null),
  ])('throws errors of the node (%s)', async (error) => {
    const node = createContract({ name: text('N'), symbol: error, decimals: [18n] });
    await expect(run(node)).rejects.toBe(error);
  });
});
