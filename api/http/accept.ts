/**
 * The weights of an `Accept` or `Accept-Encoding` header, by name in lower case; null: the header does not name it. `*` names
 * all others.
 */
export function acceptedWeights(header: string): (name: string) => number | null {
  const weights = new Map(
    header.split(',').map((part) => {
      const [name = '', ...params] = part.toLowerCase().split(';');
      const q = params.map((param) => /^\s*q=([0-9.]+)\s*$/.exec(param)?.[1]).find((text) => text);
      return [name.trim(), q === undefined ? 1 : Number(q)];
    }),
  );
  return (name) => weights.get(name) ?? weights.get('*') ?? null;
}
