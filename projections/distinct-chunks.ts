/**
 * Removes duplicates and splits the rest into lists of at most `size`: parameters of a statement travel in its URL.
 *
 * @param nameOf identity of an element
 */
export function distinctChunks<T>(touched: readonly T[], nameOf: (one: T) => string, size: number): T[][] {
  const each = [...new Map(touched.map((one) => [nameOf(one), one])).values()];
  return Array.from({ length: Math.ceil(each.length / size) }, (_, at) =>
    each.slice(at * size, (at + 1) * size),
  );
}
