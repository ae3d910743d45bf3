import { hash } from 'starknet';
import { describe, expect, it } from 'vitest';

import { RpcError } from '../../../../../pipeline/node/errors.ts';
import type { FunctionCall, Node } from '../../../../../pipeline/node/types.ts';
import { decodeBalance, readBalances } from '../../../../../pipeline/observe/balances/read.ts';
import type { EntryPoint } from '../../../../../pipeline/observe/balances/read.ts';
import { AppError } from '../../../../../schemas/errors.ts';
import { U256, toFelt } from '../../../../../schemas/felt.ts';
import type { Felt } from '../../../../../schemas/felt.ts';

const AT = { hash: toFelt(0xb10cn) };
const [ANNA, BERT] = [toFelt(0xa11an), toFelt(0xbe47n)];
const [SNAKE, CAMEL, MISSING, BROKEN, BUSY] = [1n, 2n, 3n, 4n, 5n].map(toFelt) as [
  Felt,
  Felt,
  Felt,
  Felt,
  Felt,
];
const selectorOf = (name: string): bigint => BigInt(hash.getSelectorFromName(name));

/** Contracts with one of the two entry points, with none, or failing; `requests` records every request. */
function createNode() {
  const requests: FunctionCall[][] = [];
  const failure = (code: number) => ({
    ok: false as const,
    error: new RpcError('starknet_call', code, 'no', null),
  });
  const node: Pick<Node, 'callMany'> = {
    async callMany(calls, at) {
      expect(at).toEqual(AT);
      requests.push([...calls]);
      return calls.map(({ contract, selector, calldata }) => {
        const isSnake = BigInt(selector) === selectorOf('balance_of');
        expect(isSnake || BigInt(selector) === selectorOf('balanceOf')).toBe(true);
        const amount = BigInt(calldata[0] ?? 0n);
        if (contract === MISSING) return failure(20);
        if (contract === BROKEN) return failure(40);
        if (contract === BUSY) return { ok: false, error: new AppError('NODE_UNREACHABLE', 'busy') };
        if (contract === SNAKE)
          return isSnake ? { ok: true, value: [toFelt(amount), toFelt(0n)] } : failure(21);
        return isSnake ? failure(21) : { ok: true, value: [toFelt(amount)] };
      });
    },
  };
  return { node, requests };
}

describe('readBalances', () => {
  it('calls all pairs in one request, and refusing contracts under the other name in a second', async () => {
    const { node, requests } = createNode();
    const names = new Map<Felt, EntryPoint>();
    const pairs = [SNAKE, CAMEL, MISSING, BROKEN, BUSY].flatMap((token) => [
      { account: ANNA, token },
      { account: BERT, token },
    ]);
    const readings = await readBalances(node, pairs, AT, names);
    expect(readings.map((reading) => (reading.kind === 'balance' ? reading.balance : reading.kind))).toEqual([
      BigInt(ANNA),
      BigInt(BERT),
      BigInt(ANNA),
      BigInt(BERT),
      'refused',
      'refused',
      'refused',
      'refused',
      'unanswered',
      'unanswered',
    ]);
    expect(requests.map((calls) => calls.length)).toEqual([10, 4]);
    // A missing contract is not called twice; the entry point that answered is remembered.
    expect([...names]).toEqual([
      [SNAKE, 'balance_of'],
      [CAMEL, 'balanceOf'],
    ]);
    await readBalances(node, pairs.slice(0, 4), AT, names);
    expect(requests.map((calls) => calls.length)).toEqual([10, 4, 4]);
  });

  it('falls back to the other name when a contract was upgraded', async () => {
    const { node } = createNode();
    const names = new Map<Felt, EntryPoint>([[SNAKE, 'balanceOf']]);
    expect(await readBalances(node, [{ account: ANNA, token: SNAKE }], AT, names)).toEqual([
      { kind: 'balance', balance: BigInt(ANNA) },
    ]);
    expect(names.get(SNAKE)).toBe('balance_of');
  });
});

describe('decodeBalance', () => {
  it.each([
    [[7n], 7n],
    [[0n, 1n], 1n << 128n],
    [[(1n << 128n) - 1n, (1n << 128n) - 1n], U256 - 1n],
    [[], null],
    [[1n, 2n, 3n], null],
    [[1n << 128n, 0n], null],
    [[0n, 1n << 128n], null],
  ])('decodes %s as %s', (felts, expected) => {
    expect(decodeBalance(felts.map(toFelt))).toBe(expected);
  });
});
