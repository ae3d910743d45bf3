import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { walletStatus } from '../../schemas/catalogue.ts';
import { felt } from '../../schemas/messages/common.ts';

export {
  adsOfPlacement,
  categoryBySlug,
  classHashById,
  countCategories,
  countClassHashes,
  countDapps,
  dappBySlug,
  isKnownAd,
  latestClassHashes,
  listCategories,
  listClassHashes,
  listDapps,
} from './directory.ts';
export type { Ad, Category, ClassHash, Dapp, DappFilters } from './directory.ts';

/** Read side of the catalogue. `schema` is the served build's: `served.schema('catalogue')`. Times are unix milliseconds. */

const walletRow = z.object({
  id: z.number(),
  wallet_address: felt,
  network: z.string(),
  wallet_type: z.string(),
  status: walletStatus,
  is_verified: z.boolean(),
  is_active: z.boolean(),
  transaction_count: z.number(),
  last_activity_at: z.number().nullable(),
  created_at: z.number(),
  updated_at: z.number(),
});
export type Wallet = z.infer<typeof walletRow>;

const domainReportRow = z.object({
  id: z.number(),
  user_id: z.number(),
  domain: z.string(),
  category: z.string(),
  reason: z.string(),
  evidence: z.string(),
  status: z.enum(['pending', 'approved', 'rejected']),
  created_at: z.number(),
  reviewed_at: z.number().nullable(),
});
export type DomainReport = z.infer<typeof domainReportRow>;

const columnsOf = (row: z.ZodObject): string => Object.keys(row.shape).join(', ');

export async function walletById(db: Sql, schema: string, id: number): Promise<Wallet | null> {
  const [wallet] = await sqlRows(
    db,
    walletRow,
    `SELECT ${columnsOf(walletRow)} FROM ${schema}.wallets WHERE id = $1`,
    [id],
  );
  return wallet ?? null;
}

/** The entry of an address on one network. */
export async function walletAt(
  db: Sql,
  schema: string,
  address: string,
  network: string,
): Promise<Wallet | null> {
  const [wallet] = await sqlRows(
    db,
    walletRow,
    `SELECT ${columnsOf(walletRow)} FROM ${schema}.wallets WHERE wallet_address = $1 AND network = $2`,
    [address, network],
  );
  return wallet ?? null;
}

export async function domainReportById(db: Sql, schema: string, id: number): Promise<DomainReport | null> {
  const [report] = await sqlRows(
    db,
    domainReportRow,
    `SELECT ${columnsOf(domainReportRow)} FROM ${schema}.domain_reports WHERE id = $1`,
    [id],
  );
  return report ?? null;
}
