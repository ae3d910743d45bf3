import { ZERO_ADDRESS, lowerHalf, upperHalf } from '../sql-terms.ts';

/**
 * SQL of the figures of periods. `queries.ts` computes a token's present period by `tokenFigures`, too, and the chain's by SQL
 * that must count the same as `chainFigures`.
 */

/** Lengths of the periods, in seconds. */
export const HOUR_SECONDS = 3600;
export const DAY_SECONDS = 86_400;

/** Start of the period of a row. */
export const startSql = (step: string): string => `toUInt32(intDiv(timestamp, ${step}) * ${step})`;

/** The number in a transfer of unknown standard may be an amount or an id, so it is in no volume. */
const counted = (number: string): string => `if(kind = 'unknown', toUInt256(0), ${number})`;

/**
 * Figures of a token's transfers in the order of the columns of token_stats, from rows of `transfers`.
 *
 * @param keyOf what stands for an address in the sets of accounts
 */
export const tokenFigures = (keyOf = (address: string): string => address): string =>
  [
    'count() AS transfers',
    `sum(${counted(upperHalf('amount'))}) AS high`,
    `sum(${counted(lowerHalf('amount'))}) AS low`,
    `uniqExactIf(${keyOf('from_address')}, from_address != ${ZERO_ADDRESS}) AS senders`,
    `uniqExactIf(${keyOf('to_address')}, to_address != ${ZERO_ADDRESS}) AS receivers`,
    `countIf(from_address = ${ZERO_ADDRESS}) AS mints`,
    `countIf(to_address = ${ZERO_ADDRESS}) AS burns`,
  ].join(', ');

/** Figures of the chain's transfers; `moved` is the pair of arrays of tokens and of their transfers. */
export const chainFigures = [
  'count() AS transfers',
  `uniqExactArray(arrayFilter(one -> one != ${ZERO_ADDRESS}, [from_address, to_address])) AS accounts`,
  'sumMap([token], [toUInt64(1)]) AS moved',
].join(', ');
