import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';
import type { DomainRecord, DomainReport, Wallet } from './queries.ts';

/** The new row of `wallets`. */
export interface WalletSet {
  readonly type: 'wallet.set';
  readonly wallet: Wallet;
  readonly isNew: boolean;
}
export interface ReportSet {
  readonly type: 'report.set';
  readonly report: DomainReport;
}
/** A domain to blacklist because of a report. */
export interface DomainListed {
  readonly type: 'domain.listed';
  readonly report: DomainReport;
  readonly riskLevel: string;
  /** Unix milliseconds. */
  readonly at: number;
}

/** A registered wallet is not created again: `known` has the same address and network. */
export function decideRegistration(
  known: Wallet | null,
  command: CommandOf<'wallet.register'>,
  nextId: number,
): Decision<WalletSet> {
  if (known !== null) return accept({ is_new: false, wallet: known });
  const wallet: Wallet = {
    id: nextId,
    ...command.body,
    status: 'active',
    is_verified: false,
    is_active: true,
    transaction_count: 0,
    last_activity_at: null,
    created_at: command.issued_at,
    updated_at: command.issued_at,
  };
  return accept({ is_new: true, wallet }, { type: 'wallet.set', wallet, isNew: true });
}

export function decideActivity(
  known: Wallet | null,
  command: CommandOf<'wallet.update-activity'>,
): Decision<WalletSet> {
  if (known === null) return refuse('NOT_FOUND', 'Not found.');
  const { transaction_count: count, last_activity_at: lastAt } = command.body;
  const transactionCount = Math.max(known.transaction_count, count);
  const lastActivityAt = Math.max(known.last_activity_at ?? 0, lastAt);
  if (transactionCount === known.transaction_count && lastActivityAt === known.last_activity_at) {
    return accept({ wallet: known });
  }
  const wallet = {
    ...known,
    transaction_count: transactionCount,
    last_activity_at: lastActivityAt,
    updated_at: command.issued_at,
  };
  return accept({ wallet }, { type: 'wallet.set', wallet, isNew: false });
}

export function decideReport(command: CommandOf<'domain.report'>, newId: number): Decision<ReportSet> {
  const report: DomainReport = {
    id: newId,
    ...command.body,
    status: 'pending',
    created_at: command.issued_at,
    reviewed_at: null,
  };
  return accept({ report }, { type: 'report.set', report });
}

/**
 * A report is reviewed once. Unless the review overrides it, a whitelisted domain is not blacklisted, and the entry of a
 * blacklisted one stays as it is.
 *
 * @param listed the entry of the report's domain
 */
export function decideReview(
  known: DomainReport | null,
  listed: DomainRecord | null,
  { body, issued_at: at }: CommandOf<'report.review'>,
): Decision<ReportSet | DomainListed> {
  if (known === null) return refuse('NOT_FOUND', `No report has the id ${body.report_id}.`);
  if (known.status !== 'pending') return refuse('CONFLICT', `The report has already been ${known.status}.`);
  const isWhitelisted = listed?.status === 'whitelisted' && listed.active;
  if (body.decision === 'approved' && isWhitelisted && !body.overrides_whitelist) {
    return refuse('CONFLICT', `${known.domain} is whitelisted. To blacklist it anyway, use --force.`);
  }
  const report: DomainReport = { ...known, status: body.decision, reviewed_at: at };
  const reviewed: ReportSet = { type: 'report.set', report };
  if (body.decision === 'rejected') return accept({ report }, reviewed);
  const isBlacklisted = listed?.status === 'blacklisted' && listed.active;
  if (isBlacklisted && !body.overrides_whitelist) return accept({ report, stays: true }, reviewed);
  return accept<ReportSet | DomainListed>({ report }, reviewed, {
    type: 'domain.listed',
    report,
    riskLevel: body.risk_level,
    at,
  });
}
