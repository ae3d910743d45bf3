import { z } from 'zod';

/**
 * Numbers stored as their distance from the largest UInt32, in columns named `…_desc`: newest first is ascending in the
 * sorting key, because ClickHouse does not read a key backwards under FINAL.
 */

export const MAX_UINT32 = 0xffff_ffff;

/** The stored form of a number, and the number of a stored form. */
export function descending(number: number): number {
  return MAX_UINT32 - number;
}

/** SQL of the number that a `…_desc` column stores. */
export function ascendingSql(column: string): string {
  return `toUInt32(${MAX_UINT32} - ${column})`;
}

export const uint32 = z.int().min(0).max(MAX_UINT32);

/** Parses a stored form into its number. */
export const ascending = uint32.transform(descending);
