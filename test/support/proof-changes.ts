import type { TransferProof } from '../../client/src/proof.ts';

/** Fields that neither the event nor the hash of the block shows. */
const UNPROVED = new Set([
  'token_symbol',
  'token_name',
  'token_decimals',
  'fee',
  'fee_unit',
  'is_fee',
  'execution_status',
]);

type Place = readonly (string | number)[];

/** Every field of a proof that a change must not go unnoticed in. */
export function provedPlaces(proof: TransferProof): Place[] {
  const places = (value: unknown, at: Place): Place[] =>
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([name, one]) => places(one, [...at, name]))
      : [at];
  return places(proof, []).filter((at) => at[0] !== 'transfer' || !UNPROVED.has(String(at[1])));
}

/** The proof with another value at a place. */
export function changedAt(
  proof: TransferProof,
  place: Place,
  pick: (below: number) => number,
): TransferProof {
  const copy = structuredClone(proof) as unknown as Record<string, unknown>;
  let holder = copy;
  for (const name of place.slice(0, -1)) holder = holder[name] as Record<string, unknown>;
  const last = String(place.at(-1));
  holder[last] = otherValue(holder[last], last, pick);
  return copy as unknown as TransferProof;
}

const WORDS: Readonly<Record<string, string>> = {
  BLOB: 'CALLDATA',
  CALLDATA: 'BLOB',
  left: 'right',
  right: 'left',
  binary: 'edge',
  edge: 'binary',
  ACCEPTED_ON_L1: 'ACCEPTED_ON_L2',
  ACCEPTED_ON_L2: 'ACCEPTED_ON_L1',
  '0.14.1': '0.13.5',
  erc20: 'erc721',
  erc721: 'erc20',
  erc1155: 'erc20',
  unknown: 'erc1155',
};

function otherValue(value: unknown, name: string, pick: (below: number) => number): unknown {
  if (typeof value === 'number') return value + 1 + pick(1000);
  const text = String(value);
  const word = WORDS[text];
  if (word !== undefined) return word;
  if (/^0x[0-9a-f]{64}$/.test(text)) {
    // Not the first digits: the value stays in the field.
    const at = 5 + pick(61);
    const digit = (Number.parseInt(text.charAt(at), 16) + 1 + pick(15)) % 16;
    return text.slice(0, at) + digit.toString(16) + text.slice(at + 1);
  }
  if (/^[0-9]*$/.test(text)) return String(BigInt(text === '' ? 0 : text) + 1n + BigInt(pick(1000)));
  if (name === 'timestamp')
    return new Date(Date.parse(text) + 1000 * (1 + pick(1000))).toISOString().replace('.000Z', 'Z');
  throw new Error(`no other value of ${name}: ${text}`);
}
