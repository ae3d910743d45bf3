import { readFileSync } from 'node:fs';

import { z } from 'zod';

import { isNft } from '../../../schemas/messages/common.ts';
import { feltOfText, hexOf, item, mix } from './hash.ts';
import { layoutNames, type Layout } from './layouts.ts';

/** How a contract answers `name` and `symbol`: a felt, a ByteArray, or a revert. */
export type TextAnswer =
  | { as: 'felt'; bytes: Buffer }
  | { as: 'byte-array'; bytes: Buffer }
  | { as: 'revert'; reason: string };

const textAnswer = z.union([
  z
    .strictObject({ felt: z.string() })
    .transform(({ felt }): TextAnswer => ({ as: 'felt', bytes: Buffer.from(felt) })),
  z
    .strictObject({ feltHex: z.hex() })
    .transform(({ feltHex }): TextAnswer => ({ as: 'felt', bytes: Buffer.from(feltHex, 'hex') })),
  z
    .strictObject({ bytes: z.string() })
    .transform(({ bytes }): TextAnswer => ({ as: 'byte-array', bytes: Buffer.from(bytes) })),
  z
    .strictObject({ revert: z.string() })
    .transform(({ revert }): TextAnswer => ({ as: 'revert', reason: revert })),
]);
const layout = z.enum(layoutNames);

const tokenSchema = z
  .strictObject({
    key: z.string(),
    standard: z.enum(['erc20', 'erc721', 'erc1155', 'unknown']),
    /** Default: derived from the key. */
    address: z.string().transform(BigInt).optional(),
    name: textAnswer,
    symbol: textAnswer,
    /** Default: 18, 0 of an NFT. */
    decimals: z.int().optional(),
    /** One is drawn for each event; ERC-1155: for each single event. */
    layouts: z.array(layout).min(1),
    batchLayout: layout.optional(),
    /** Below this height the token has an older class, with the layouts `before`. */
    upgrade: z.strictObject({ height: z.int(), before: z.array(layout) }).optional(),
    /** What the class declares: a Sierra ABI (nested in interfaces or flat), a Cairo 0 ABI, or a proxy's, without a standard. */
    form: z.enum(['sierra', 'sierra-flat', 'cairo0', 'proxy']).default('sierra'),
    naming: z.enum(['snake', 'camel', 'both']).default('both'),
    /** Entry points that answer: those of the standard, or only these. */
    answers: z.union([z.literal('standard'), z.array(z.string())]).default('standard'),
    /** Amounts and ids; default: `units`, `sequence` for an NFT. */
    numbers: z.enum(['units', 'beyond-128-bits', 'zero', 'sequence', 'felt-ids', 'wide-ids']).optional(),
    uri: z.enum(['ipfs', 'data', 'doubled', 'placeholder', 'revert', 'felts']).optional(),
    /** Default: none, `src5` of an NFT. */
    interfaces: z.array(z.enum(['src5', 'legacy'])).optional(),
    /** Number of notes (schedule.ts), which determines its share of the transfers. */
    notes: z.int(),
  })
  .transform((row) => ({
    ...row,
    address: row.address ?? feltOfText(`token:${row.key}`),
    decimals: row.decimals ?? (isNft(row.standard) ? 0 : 18),
    numbers: row.numbers ?? (isNft(row.standard) ? 'sequence' : 'units'),
    interfaces: row.interfaces ?? (isNft(row.standard) ? ['src5'] : []),
  }));
type TokenSpec = z.infer<typeof tokenSchema>;

export type Standard = TokenSpec['standard'];
export type Naming = TokenSpec['naming'];
export type ClassForm = TokenSpec['form'];
export type Token = TokenSpec & { index: number; hex: string };

/** The tokens of the simulated chain; the first six have their mainnet addresses, all the same for every seed. */
export const tokens: readonly Token[] = z
  .array(tokenSchema)
  .parse(JSON.parse(readFileSync(new URL('tokens.json', import.meta.url), 'utf8')))
  .map((token, index) => ({ ...token, index, hex: hexOf(token.address) }));

/** Fees of v3 transactions are paid in token 0, those of older ones in token 1. */
export const STRK = 0;
export const ETH = 1;

/** The tokens of one chain, by index and by address. */
export type TokenTable = { list: readonly Token[]; at: (address: bigint) => Token | null };

const FIRST_COPIED = 6;
const NOTES_OF_COPY = { nft: 80, other: 30 };

/**
 * The tokens of tokens.json and `copies` more contracts, which behave like those without a mainnet address under other
 * names; every third one is an NFT contract.
 */
export function tokenTable(copies = 0): TokenTable {
  const originals = tokens.slice(FIRST_COPIED);
  const [nfts, others] = [true, false].map((nft) => originals.filter((one) => isNft(one.standard) === nft));
  const copyOf = (n: number): Token => {
    const nft = n % 3 === 0;
    const from = (nft ? nfts : others) ?? [];
    const original = item(from, Math.floor(n / 3) % from.length);
    const key = `${original.key}-${n}`;
    const address = feltOfText(`token:${key}`);
    return {
      ...original,
      key,
      index: tokens.length + n,
      address,
      hex: hexOf(address),
      name: numbered(original.name, n),
      symbol: numbered(original.symbol, n),
      notes: nft ? NOTES_OF_COPY.nft : NOTES_OF_COPY.other,
    };
  };
  const list = [...tokens, ...Array.from({ length: copies }, (_, n) => copyOf(n))];
  const byAddress = new Map(list.map((token) => [token.address, token]));
  return { list, at: (address) => byAddress.get(address) ?? null };
}

function numbered(text: TextAnswer, n: number): TextAnswer {
  return text.as === 'revert' ? text : { ...text, bytes: Buffer.concat([text.bytes, Buffer.from(` ${n}`)]) };
}

/** The layout of one event of a token, drawn from `chance`. */
export function layoutOf(token: Token, height: number, chance: number, batch: boolean): Layout {
  if (batch && token.batchLayout !== undefined) return token.batchLayout;
  const layouts =
    token.upgrade !== undefined && height < token.upgrade.height ? token.upgrade.before : token.layouts;
  return item(layouts, chance % layouts.length);
}

/** A pseudo-random number of up to 256 bits. */
export function wideNumber(seed: number, a: number, b: number): bigint {
  let value = 0n;
  for (let i = 0; i < 8; i++) value = (value << 32n) | BigInt(mix(seed + i, a, b, 0x1d5));
  return value;
}
