import { z } from 'zod';

import { countOf, prepared, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt, tokenStandard } from '../../schemas/messages/common.ts';

/** Read side of the tokens. `schema` is the served build's: `served.schema('tokens')`. */

const tokenRow = z.object({
  token: felt,
  standard: tokenStandard.nullable(),
  class_hash: felt.nullable(),
  name: z.string().nullable(),
  symbol: z.string().nullable(),
  decimals: z.number().nullable(),
  first_block: z.number().nullable(),
  /** Unix milliseconds; null until read from the chain. */
  described_at: z.number().nullable(),
  verified: z.boolean(),
  common: z.boolean(),
  public: z.boolean(),
  hidden: z.boolean(),
  logo: z.string().nullable(),
  listed_at: z.number().nullable(),
});
export type TokenRow = z.infer<typeof tokenRow>;

/** The columns of `tokenRow`, in its order. */
const TOKEN_COLUMNS = Object.keys(tokenRow.shape).join(', ');

/** The stored ones of these tokens, keyed by address. */
export async function tokensByAddress(
  db: Sql,
  schema: string,
  addresses: readonly Felt[],
): Promise<Map<Felt, TokenRow>> {
  if (addresses.length === 0) return new Map();
  const rows = await sqlRows(
    db,
    tokenRow,
    prepared(`SELECT ${TOKEN_COLUMNS} FROM ${schema}.tokens WHERE token = ANY($1)`, [
      [...new Set(addresses)],
    ]),
  );
  return new Map(rows.map((row) => [row.token, row]));
}

export interface TokenFilters {
  readonly common?: boolean | undefined;
  readonly verified?: boolean | undefined;
  readonly public?: boolean | undefined;
  readonly hidden?: boolean | undefined;
  readonly standard?: TokenRow['standard'] | undefined;
  readonly address?: Felt | undefined;
  /** Part of a name or symbol, case-insensitive. */
  readonly text?: string | undefined;
  /** `text` parsed as an address, which also matches. */
  readonly textAsAddress?: Felt | undefined;
}

/** Conditions and their values; absent fields do not filter. */
function tokenConditions(filters: TokenFilters): { where: string; values: unknown[] } {
  const values: unknown[] = [];
  const bind = (value: unknown): string => `$${values.push(value)}`;
  const conditions: string[] = [];
  for (const flag of ['common', 'verified', 'public', 'hidden'] as const) {
    if (filters[flag] !== undefined) conditions.push(`${flag} = ${bind(filters[flag])}`);
  }
  if (filters.standard !== undefined) conditions.push(`standard = ${bind(filters.standard)}`);
  if (filters.address !== undefined) conditions.push(`token = ${bind(filters.address)}`);
  if (filters.text !== undefined) {
    const part = bind(`%${filters.text.replaceAll(/[\\%_]/g, (special) => `\\${special}`)}%`);
    const address = filters.textAsAddress === undefined ? '' : ` OR token = ${bind(filters.textAsAddress)}`;
    conditions.push(`(name ILIKE ${part} OR symbol ILIKE ${part}${address})`);
  }
  return { where: conditions.length === 0 ? 'true' : conditions.join(' AND '), values };
}

export async function countTokens(db: Sql, schema: string, filters: TokenFilters): Promise<number> {
  const { where, values } = tokenConditions(filters);
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.tokens WHERE ${where}`, values);
}

/** Curated tokens first, then by address: new tokens do not change the order of the others. */
export async function listTokens(
  db: Sql,
  schema: string,
  filters: TokenFilters,
  page: { offset: number; limit: number },
): Promise<TokenRow[]> {
  const { where, values } = tokenConditions(filters);
  return await sqlRows(
    db,
    tokenRow,
    `SELECT ${TOKEN_COLUMNS} FROM ${schema}.tokens WHERE ${where}
     ORDER BY common DESC, verified DESC, token LIMIT $${values.length + 1} OFFSET $${values.length + 2}`,
    [...values, page.limit, page.offset],
  );
}

const LISTED_AT_ONCE = 1000;

/** Tokens that a curated list or an operator has ever listed, by address. */
export async function* listedTokens(db: Sql, schema: string): AsyncIterable<TokenRow> {
  for (let after = ''; ;) {
    const rows = await sqlRows(
      db,
      tokenRow,
      `SELECT ${TOKEN_COLUMNS} FROM ${schema}.tokens WHERE listed_at IS NOT NULL AND token > $1
       ORDER BY token LIMIT ${LISTED_AT_ONCE}`,
      [after],
    );
    yield* rows;
    after = rows.at(-1)?.token ?? '';
    if (rows.length < LISTED_AT_ONCE) return;
  }
}
