import { chunksOf } from '../infra/chunks.ts';

/**
 * Removes duplicates and splits the rest into lists of at most `size`: parameters of a statement travel in its URL.
 *
 * @param nameOf identity of an element
 */
export function distinctChunks<T>(touched: readonly T[], nameOf: (one: T) => string, size: number): T[][] {
  return [...chunksOf([...new Map(touched.map((one) => [nameOf(one), one])).values()], size)];
}
