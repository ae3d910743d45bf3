/** Hours that a batch touched, for tables that are recomputed by the hour. */

/**
 * Each of these once, in lists of `size` at most: so many are one statement, which is told them in its address.
 *
 * @param nameOf what two of the same hour have in common
 */
export function distinctChunks<T>(touched: readonly T[], nameOf: (one: T) => string, size: number): T[][] {
  const each = [...new Map(touched.map((one) => [nameOf(one), one])).values()];
  return Array.from({ length: Math.ceil(each.length / size) }, (_, at) =>
    each.slice(at * size, (at + 1) * size),
  );
}
