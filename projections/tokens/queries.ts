import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt, tokenStandard } from '../../schemas/messages/common.ts';

/** Read side of the tokens. `schema` is the served build's: `served.schema('tokens')`. */

export const tokenRow = z.object({
  token: felt,
  standard: tokenStandard.nullable(),
  class_hash: felt.nullable(),
  name: z.string().nullable(),
  symbol: z.string().nullable(),
  decimals: z.number().nullable(),
  first_block: z.number().nullable(),
  /** Unix milliseconds; null while the chain has not been asked. */
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
export const TOKEN_COLUMNS = Object.keys(tokenRow.shape).join(', ');

/** The tokens that are known among these, by address. */
export async function tokensByAddress(
  db: Sql,
  schema: string,
  addresses: readonly Felt[],
): Promise<Map<Felt, TokenRow>> {
  if (addresses.length === 0) return new Map();
  const rows = await sqlRows(
    db,
    tokenRow,
    `SELECT ${TOKEN_COLUMNS} FROM ${schema}.tokens WHERE token = ANY($1)`,
    [[...new Set(addresses)]],
  );
  return new Map(rows.map((row) => [row.token, row]));
}
