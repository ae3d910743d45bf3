import { joinU256, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { isRpcError, rpcCodes } from '../../node/errors.ts';
import type { CallOptions, Node, Outcome } from '../../node/types.ts';

/** sn_keccak of the names; test/unit/pipeline/observe/balances/read.test.ts computes them. */
const SELECTORS = {
  balance_of: toFelt(0x035a73cd311a05d46deda634c5ee045db92f811b4e74bca4437fcb5302b7af33n),
  balanceOf: toFelt(0x02e4263afad30923c891518314c3c95dbe830a16874e8abc5777a9a20b54c76en),
} as const;
export type EntryPoint = keyof typeof SELECTORS;

const other: Readonly<Record<EntryPoint, EntryPoint>> = { balance_of: 'balanceOf', balanceOf: 'balance_of' };

/** Contract or entry point not found, contract error, validation: the chain's answer is no. */
const REFUSALS = [rpcCodes.contractNotFound, rpcCodes.entrypointNotFound, 22, rpcCodes.contractError, 41];

interface Pair {
  readonly account: Felt;
  readonly token: Felt;
}

/** What the chain said of a pair; an error kept it from answering. */
export type BalanceReading =
  | { readonly kind: 'balance'; readonly balance: bigint }
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'unanswered'; readonly error: Error };

/** By which name each token answered. */
export interface EntryPoints {
  get(token: Felt): EntryPoint | undefined;
  set(token: Felt, name: EntryPoint): unknown;
}

/**
 * Reads balances at one block, named by its hash, in one request to the node; in a second one those of contracts that
 * know the other name only.
 *
 * @throws what kept the node from answering the request as a whole
 */
export async function readBalances(
  node: Pick<Node, 'callMany'>,
  pairs: readonly Pair[],
  at: { readonly hash: Felt },
  names: EntryPoints,
  options: CallOptions = {},
): Promise<BalanceReading[]> {
  const ask = async (
    asked: readonly { readonly pair: Pair; readonly name: EntryPoint }[],
  ): Promise<Outcome<Felt[]>[]> =>
    asked.length === 0
      ? []
      : await node.callMany(
          asked.map(({ pair, name }) => ({
            contract: pair.token,
            selector: SELECTORS[name],
            calldata: [pair.account],
          })),
          at,
          options,
        );

  const first = pairs.map((pair) => ({ pair, name: names.get(pair.token) ?? 'balance_of' }));
  const outcomes = await ask(first);
  const again = first.flatMap(({ pair, name }, i) =>
    isRefusal(outcomes[i]) && !isMissing(outcomes[i]) ? [{ i, pair, name: other[name] }] : [],
  );
  const second = await ask(again);
  const better = new Map(again.map(({ i, name }, nth) => [i, { name, outcome: second[nth] }]));
  return first.map(({ pair, name }, i) => {
    const retried = better.get(i);
    // Refused under both names: the first refusal is as good a reason as the second.
    const isBetter = retried !== undefined && !isRefusal(retried.outcome);
    const outcome = isBetter ? retried.outcome : outcomes[i];
    const reading = readingOf(outcome);
    if (reading.kind === 'balance') names.set(pair.token, isBetter ? retried.name : name);
    return reading;
  });
}

function isRefusal(outcome: Outcome<Felt[]> | undefined): boolean {
  return outcome?.ok === false && isRpcError(outcome.error, ...REFUSALS);
}

function isMissing(outcome: Outcome<Felt[]> | undefined): boolean {
  return outcome?.ok === false && isRpcError(outcome.error, rpcCodes.contractNotFound);
}

function readingOf(outcome: Outcome<Felt[]> | undefined): BalanceReading {
  if (outcome === undefined) return { kind: 'unanswered', error: new Error('no outcome of the call') };
  if (!outcome.ok) {
    return isRefusal(outcome)
      ? { kind: 'refused', reason: outcome.error.message }
      : { kind: 'unanswered', error: outcome.error };
  }
  const balance = decodeBalance(outcome.value);
  return balance === null
    ? { kind: 'refused', reason: `no number in its answer (${outcome.value.length} felts)` }
    : { kind: 'balance', balance };
}

/** A u256 as two halves, or one felt; null when it is neither. */
export function decodeBalance([low, high, ...more]: readonly Felt[]): bigint | null {
  if (low === undefined || more.length > 0) return null;
  return high === undefined ? BigInt(low) : joinU256(low, high);
}
