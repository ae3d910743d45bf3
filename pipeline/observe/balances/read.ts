import type { Pair } from '../../../projections/balances/queries.ts';
import { joinU256, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { isContractError, isRpcError, rpcCodes } from '../../node/errors.ts';
import type { Node, CallOutcome } from '../../node/types.ts';

/** sn_keccak of the names; test/unit/pipeline/observe/balances/read.test.ts computes them. */
const SELECTORS = {
  balance_of: toFelt(0x035a73cd311a05d46deda634c5ee045db92f811b4e74bca4437fcb5302b7af33n),
  balanceOf: toFelt(0x02e4263afad30923c891518314c3c95dbe830a16874e8abc5777a9a20b54c76en),
} as const;
export type EntryPoint = keyof typeof SELECTORS;

const other: Readonly<Record<EntryPoint, EntryPoint>> = { balance_of: 'balanceOf', balanceOf: 'balance_of' };

export type BalanceReading =
  | { readonly kind: 'balance'; readonly balance: bigint }
  /** The contract refused the call. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** The node failed. */
  | { readonly kind: 'unanswered'; readonly error: Error };

/** The entry point that each token answered under. */
export interface EntryPoints {
  get(token: Felt): EntryPoint | undefined;
  set(token: Felt, name: EntryPoint): unknown;
}

/**
 * Reads balances at one block, given by its hash, in one request to the node. Contracts that refuse are called in a second
 * request under the other name of the entry point.
 *
 * @throws the error of a request that the node did not answer
 */
export async function readBalances(
  node: Pick<Node, 'callMany'>,
  pairs: readonly Pair[],
  at: { readonly hash: Felt },
  entryPoints: EntryPoints,
): Promise<BalanceReading[]> {
  const callAll = async (
    calls: readonly { readonly pair: Pair; readonly name: EntryPoint }[],
  ): Promise<CallOutcome<Felt[]>[]> =>
    calls.length === 0
      ? []
      : await node.callMany(
          calls.map(({ pair, name }) => ({
            contract: pair.token,
            selector: SELECTORS[name],
            calldata: [pair.account],
          })),
          at,
        );

  const first = pairs.map((pair) => ({ pair, name: entryPoints.get(pair.token) ?? 'balance_of' }));
  const outcomes = await callAll(first);
  const refused = first.flatMap(({ pair, name }, index) =>
    isRefused(outcomes[index]) && !isMissingContract(outcomes[index])
      ? [{ index, pair, name: other[name] }]
      : [],
  );
  const secondOutcomes = await callAll(refused);
  const second = new Map(
    refused.map(({ index, name }, nth) => [index, { name, outcome: secondOutcomes[nth] }]),
  );
  return first.map(({ pair, name }, index) => {
    const retried = second.get(index);
    // Refused under both names: the first refusal is the reason.
    const isRetryBetter = retried !== undefined && !isRefused(retried.outcome);
    const reading = readingOf(isRetryBetter ? retried.outcome : outcomes[index]);
    if (reading.kind === 'balance') entryPoints.set(pair.token, isRetryBetter ? retried.name : name);
    return reading;
  });
}

function isRefused(outcome: CallOutcome<Felt[]> | undefined): boolean {
  return outcome?.ok === false && isContractError(outcome.error);
}

function isMissingContract(outcome: CallOutcome<Felt[]> | undefined): boolean {
  return outcome?.ok === false && isRpcError(outcome.error, rpcCodes.contractNotFound);
}

function readingOf(outcome: CallOutcome<Felt[]> | undefined): BalanceReading {
  if (outcome === undefined) return { kind: 'unanswered', error: new Error('call without an outcome') };
  if (!outcome.ok) {
    return isRefused(outcome)
      ? { kind: 'refused', reason: outcome.error.message }
      : { kind: 'unanswered', error: outcome.error };
  }
  const balance = decodeBalance(outcome.value);
  return balance === null
    ? { kind: 'refused', reason: `the answer is not a number (${outcome.value.length} felts)` }
    : { kind: 'balance', balance };
}

/** Decodes a u256 in two halves, or one felt; null for anything else. */
export function decodeBalance([low, high, ...more]: readonly Felt[]): bigint | null {
  if (low === undefined || more.length > 0) return null;
  return high === undefined ? BigInt(low) : joinU256(low, high);
}
