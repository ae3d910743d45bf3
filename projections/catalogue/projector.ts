import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { PoolClient } from '../../infra/postgres/client.ts';
import { OUTCOME_LIFETIME_MS, commandProjection, insertRow } from '../commands.ts';
import type { Decision, Outcome } from '../commands.ts';
import { tableSql } from '../define.ts';
import { countNewWallet, recountDomains } from './counts.ts';
import { decideActivity, decideRegistration, decideReport, decideReview } from './decider.ts';
import type { DomainListed, ReportSet, WalletSet } from './decider.ts';
import { keepPart, takeImport } from './imports.ts';
import { domainByName, domainReportById, walletAt, walletById } from './queries.ts';
import { wordsOf } from './words.ts';

type CatalogueChange = WalletSet | ReportSet | DomainListed;

/** Entries of operators (dApps, ads, domains, class hashes) and of callers (wallets, reports). */
export const catalogue = commandProjection({
  name: 'catalogue',
  version: 2,
  ddl: tableSql(import.meta.url),
  expired: (schema) =>
    `DELETE FROM ${schema}.import_parts WHERE issued_at <= $2::bigint - ${OUTCOME_LIFETIME_MS}`,
  fromSnapshot: { 1: { afterwards: `UPDATE {{schema}}.dapps AS d SET words = ${wordsOf('d')}` } },
  async decide(tx, schema, command, newId) {
    const make = async ({ outcome, changes }: Decision<CatalogueChange>): Promise<Outcome> => {
      for (const change of changes) await apply(tx, schema, change, newId);
      return outcome;
    };
    switch (command.type) {
      case 'catalogue.part':
        return await keepPart(tx, schema, command);
      case 'catalogue.import':
        return await takeImport(tx, schema, command, newId);
      case 'wallet.register': {
        const known = await walletAt(tx, schema, command.body.wallet_address, command.body.network);
        return await make(decideRegistration(known, command, await nextId(tx, `${schema}.wallets`)));
      }
      case 'wallet.update-activity':
        return await make(decideActivity(await walletById(tx, schema, command.body.wallet_id), command));
      case 'domain.report':
        return await make(decideReport(command, await nextId(tx, `${schema}.domain_reports`)));
      case 'report.review': {
        const known = await domainReportById(tx, schema, command.body.report_id);
        const listed = known === null ? null : await domainByName(tx, schema, known.domain);
        return await make(decideReview(known, listed, command));
      }
    }
  },
});

/** Next id of a table from which no row is ever deleted. */
async function nextId(tx: PoolClient, table: string): Promise<number> {
  const [row] = await sqlRows(
    tx,
    z.object({ id: z.number() }),
    `SELECT coalesce(max(id), 0) + 1 AS id FROM ${table}`,
  );
  return row?.id ?? 1;
}

async function apply(
  tx: PoolClient,
  schema: string,
  change: CatalogueChange,
  changed: number,
): Promise<void> {
  switch (change.type) {
    case 'wallet.set':
      await setRow(tx, `${schema}.wallets`, change.wallet);
      if (change.isNew) await countNewWallet(tx, schema, change.wallet.network);
      return;
    case 'report.set':
      return await setRow(tx, `${schema}.domain_reports`, change.report);
    case 'domain.listed': {
      const { report, riskLevel, at } = change;
      await tx.query(
        `INSERT INTO ${schema}.domains
           (id, domain, status, category, risk_level, reason, source, evidence_url, active, created_at, updated_at, changed,
            in_force_since)
         VALUES ($1, $2, 'blacklisted', $3, $4, $5, 'report', $6, true, $7, $7, $8, $8)
         ON CONFLICT (domain) DO UPDATE SET
           status = excluded.status, category = excluded.category, risk_level = excluded.risk_level,
           reason = excluded.reason, source = excluded.source, evidence_url = excluded.evidence_url,
           active = excluded.active, updated_at = excluded.updated_at, changed = excluded.changed,
           in_force_since = coalesce(domains.in_force_since, excluded.in_force_since)`,
        [
          await nextId(tx, `${schema}.domains`),
          report.domain,
          report.category.toLowerCase(),
          riskLevel,
          report.reason,
          report.evidence,
          at,
          changed,
        ],
      );
      await recountDomains(tx, schema);
      return;
    }
  }
}

/** Inserts or replaces a row. */
async function setRow(tx: PoolClient, table: string, row: { readonly id: number }): Promise<void> {
  await tx.query(`DELETE FROM ${table} WHERE id = $1`, [row.id]);
  await insertRow(tx, table, row);
}
