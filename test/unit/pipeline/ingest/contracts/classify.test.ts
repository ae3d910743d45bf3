import { hash } from 'starknet';
import { describe, expect, it } from 'vitest';

import { classify } from '../../../../../pipeline/ingest/contracts/classify.ts';
import type { AbiVerdict, ClassifyingNode } from '../../../../../pipeline/ingest/contracts/classify.ts';
import { RpcError } from '../../../../../pipeline/node/errors.ts';
import type { BlockId } from '../../../../../pipeline/node/types.ts';
import { AppError, isRetryable } from '../../../../../schemas/errors.ts';
import { toFelt } from '../../../../../schemas/felt.ts';
import type { Felt } from '../../../../../schemas/felt.ts';
import { cairo0Proxy, sierraToken } from './abis.ts';

const selector = (name: string): Felt => toFelt(BigInt(hash.getSelectorFromName(name)));
const TOKEN = toFelt(0x1234n);
const CLASS = toFelt(0xc1a55n);
const AT = { height: 7, hash: toFelt(0xb10cn) };

/** SRC-5: the id of an interface is the XOR of the selectors of its functions' extended signatures. */
const src5 = (...signatures: string[]): bigint =>
  signatures.reduce((id, signature) => id ^ BigInt(hash.getSelectorFromName(signature)), 0n);
const A = 'ContractAddress';
const U = '(u128,u128)';
const FELTS = '(@Array<felt252>)';
const BOOL = 'E((),())';
const IDS = {
  erc721: src5(
    `balance_of(${A})->${U}`,
    `owner_of(${U})->${A}`,
    `safe_transfer_from(${A},${A},${U},${FELTS})`,
    `transfer_from(${A},${A},${U})`,
    `approve(${A},${U})`,
    `set_approval_for_all(${A},${BOOL})`,
    `get_approved(${U})->${A}`,
    `is_approved_for_all(${A},${A})->${BOOL}`,
  ),
  erc1155: src5(
    `balance_of(${A},${U})->${U}`,
    `balance_of_batch((@Array<${A}>),(@Array<${U}>))->(@Array<${U}>)`,
    `safe_transfer_from(${A},${A},${U},${U},${FELTS})`,
    `safe_batch_transfer_from(${A},${A},(@Array<${U}>),(@Array<${U}>),${FELTS})`,
    `set_approval_for_all(${A},${BOOL})`,
    `is_approved_for_all(${A},${A})->${BOOL}`,
  ),
  // EIP-165 ids of EIP-721 and EIP-1155, used by Cairo 0 contracts.
  oldErc721: 0x80ac58cdn,
  oldErc1155: 0xd9b67a26n,
};

const fail = (code: number): never => {
  throw new RpcError('starknet_call', code, 'no', null);
};

interface Script {
  abi?: readonly unknown[];
  /** By name of the entry point; calls to others fail with the code `missing`. */
  entryPoints?: Record<string, (argument: bigint | undefined) => bigint[]>;
  missing?: number;
  /** Runs before every answer. */
  before?: (block: BlockId, method: string) => void;
}

function scripted({ abi = cairo0Proxy, entryPoints = {}, missing = 21, before }: Script) {
  const requested: { block: BlockId; method: string }[] = [];
  const note = (block: BlockId, method: string): void => {
    requested.push({ block, method });
    before?.(block, method);
  };
  const names = new Map(Object.keys(entryPoints).map((name) => [selector(name), name]));
  const node: ClassifyingNode = {
    async getClassHashAt(_, block) {
      note(block, 'getClassHashAt');
      return CLASS;
    },
    async getClassAt(_, block) {
      note(block, 'getClassAt');
      return { abi };
    },
    async call(request, block) {
      const name = names.get(request.selector);
      note(block, name ?? 'missing');
      const [argument] = request.calldata;
      const entryPoint = name === undefined ? undefined : entryPoints[name];
      if (entryPoint === undefined) return fail(missing);
      return entryPoint(argument === undefined ? undefined : BigInt(argument)).map(toFelt);
    },
  };
  return { node, requested };
}

const fetchAlways = (_: Felt, fetch: () => Promise<AbiVerdict>): Promise<AbiVerdict> => fetch();
const run = (node: ClassifyingNode) => classify(node, TOKEN, AT, fetchAlways);
const supporting =
  (...ids: bigint[]) =>
  (id: bigint | undefined): bigint[] => [ids.includes(id ?? -1n) ? 1n : 0n];

describe('classify', () => {
  it('uses the ABI and makes no further calls', async () => {
    const { node, requested } = scripted({ abi: sierraToken('erc1155') });
    expect(await run(node)).toEqual({ standard: 'erc1155', class_hash: CLASS, basis: 'abi' });
    expect(requested.map(({ method }) => method)).toEqual(['getClassHashAt', 'getClassAt']);
    expect(requested.every(({ block }) => typeof block === 'object' && block.hash === AT.hash)).toBe(true);
  });

  it.each([
    ['erc721', 'supports_interface', 'erc721'],
    ['erc721', 'supports_interface', 'oldErc721'],
    ['erc721', 'supportsInterface', 'oldErc721'],
    ['erc1155', 'supports_interface', 'erc1155'],
    ['erc1155', 'supportsInterface', 'oldErc1155'],
  ] as const)('recognises a proxied %s by %s(%s)', async (standard, name, id) => {
    for (const missing of [21, 40]) {
      const { node } = scripted({ entryPoints: { [name]: supporting(IDS[id]) }, missing });
      expect(await run(node)).toEqual({ standard, class_hash: CLASS, basis: 'src5' });
    }
  });

  it('falls back to decimals if SRC-5 supports neither', async () => {
    const { node } = scripted({ entryPoints: { supports_interface: supporting(), decimals: () => [18n] } });
    expect(await run(node)).toEqual({ standard: 'erc20', class_hash: CLASS, basis: 'decimals' });
  });

  it('ignores SRC-5 of a contract that supports every interface', async () => {
    const { node } = scripted({ entryPoints: { supports_interface: () => [1n] } });
    expect(await run(node)).toMatchObject({ standard: 'unknown', basis: 'nothing' });
    const one = scripted({
      entryPoints: { supports_interface: supporting(IDS.erc721, IDS.oldErc721, 0xffffffffn) },
    });
    expect(await run(one.node)).toMatchObject({ standard: 'unknown' });
  });

  it.each([20, 21, 22, 40])('returns unknown if every probe fails with code %i', async (missing) => {
    const { node } = scripted({ missing });
    expect(await run(node)).toEqual({ standard: 'unknown', class_hash: CLASS, basis: 'nothing' });
  });

  it('returns unknown without a class if neither that block nor the newest has the contract', async () => {
    const { node, requested } = scripted({ before: (_, method) => method === 'getClassHashAt' && fail(20) });
    expect(await run(node)).toEqual({ standard: 'unknown', class_hash: null, basis: 'nothing' });
    expect(requested.map(({ block }) => block)).toEqual([{ hash: AT.hash }, 'latest']);
  });

  it.each([24, 1, -32001])(
    'reads the newest state if that of the block is pruned (code %i)',
    async (code) => {
      const { node, requested } = scripted({
        entryPoints: { decimals: () => [6n] },
        before: (block) => void (block !== 'latest' && fail(code)),
      });
      expect(await run(node)).toMatchObject({ standard: 'erc20', basis: 'decimals' });
      // Only the first call reads the pruned state.
      expect(requested.filter(({ block }) => block !== 'latest')).toHaveLength(1);
    },
  );

  it.each([-32603, 429, 14, 19, 500, 503])('does not take code %i for pruned state', async (code) => {
    const { node, requested } = scripted({ before: () => fail(code) });
    await expect(run(node)).rejects.toMatchObject({ rpcCode: code });
    expect(requested.map(({ block }) => block)).toEqual([{ hash: AT.hash }]);
  });

  it('throws a retryable error while a node that lacks the block lacks the contract, too, at every call', async () => {
    const entryPoints = { decimals: () => [18n] };
    const calls = (await requestsOf(scripted({ entryPoints }))).length;
    for (let failing = 0; failing < calls; failing += 1) {
      let count = 0;
      // The block is missing at one call: from then on the newest state is read, which is older than the contract.
      const { node } = scripted({
        entryPoints,
        before: (block) => {
          count += 1;
          if (count > failing) fail(block === 'latest' ? 20 : 24);
        },
      });
      const outcome = await run(node).catch((thrown: unknown) => thrown);
      expect(isRetryable(outcome), `call ${failing}`).toBe(true);
    }
  });

  it.each([
    ['unreachable', new AppError('NODE_UNREACHABLE', 'connection failed', { retryable: true })],
    ['aborting', new AppError('NODE_UNREACHABLE', 'aborted')],
    ['answering invalidly', new AppError('NODE_ANSWER_INVALID', 'invalid', { retryable: true })],
    ['failing internally', new RpcError('starknet_call', -32603, 'internal', null)],
    ['failing with a code of its own, at any block', new RpcError('starknet_call', -32000, 'busy', null)],
    ['without the method', new RpcError('starknet_call', -32601, 'no such method', null)],
  ])('throws a retryable error while the node is %s, at every call', async (_, error) => {
    const entryPoints = { decimals: () => [18n] };
    const calls = (await requestsOf(scripted({ entryPoints }))).length;
    expect(calls).toBe(5);
    for (let failing = 0; failing < calls; failing += 1) {
      let count = 0;
      const { node } = scripted({
        entryPoints,
        before: () => {
          count += 1;
          if (count > failing) throw error;
        },
      });
      const outcome = await run(node).catch((thrown: unknown) => thrown);
      expect(isRetryable(outcome), `call ${failing}`).toBe(true);
    }
  });
});

async function requestsOf({ node, requested }: ReturnType<typeof scripted>) {
  await run(node);
  return requested;
}
