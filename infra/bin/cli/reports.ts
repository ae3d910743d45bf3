import { Option } from 'commander';
import type { Command } from 'commander';

import { approveReport, rejectReport, reportsToReview } from '../operator/reports.ts';
import type { OperatorDeps } from '../operator/accounts.ts';
import type { DomainReport } from '../../../projections/catalogue/queries.ts';
import { reportStatus, riskLevel } from '../../../schemas/catalogue.ts';
import type { Logger } from '../../log.ts';
import { asOperator } from './as-operator.ts';
import { commandConfig } from '../command-config.ts';
import { nonNegativeInteger, positiveInteger } from './arguments.ts';

type RiskLevel = (typeof riskLevel.options)[number];

/** `tds reports`: what callers report of domains, and what an operator decides about it. */
export function reportsCommand(program: Command, log: Logger, say: (line: string) => void): void {
  const reports = program.command('reports').description('manage domain reports');
  const asked = <T>(work: (deps: OperatorDeps) => Promise<T>): Promise<T> =>
    asOperator(commandConfig(process.env), log, work);

  reports
    .command('list')
    .description('list reports, newest first')
    .addOption(new Option('--status <status>', 'only reports with this status').choices(reportStatus.options))
    .option('--limit <number>', 'maximum number of reports', positiveInteger, 50)
    .option('--json', 'print as JSON', false)
    .action(async (options: { status?: DomainReport['status']; limit: number; json: boolean }) => {
      const { status, limit, json } = options;
      const found = await asked((deps) => reportsToReview(deps, { status, limit: limit + 1 }));
      const shown = found.slice(0, limit);
      if (json) say(JSON.stringify(shown, null, 2));
      else if (found.length === 0) say(status === undefined ? 'No reports.' : `No report is ${status}.`);
      else {
        for (const report of shown) say(lines(report));
        if (found.length > limit) say('More reports exist; raise --limit to see them.');
      }
    });

  reports
    .command('approve')
    .description('approve a report and blacklist its domain')
    .argument('<id>', '', nonNegativeInteger)
    .addOption(
      new Option('--risk <level>', 'risk level of the domain').choices(riskLevel.options).default('high'),
    )
    .option(
      '--force',
      'approve even if the domain or a parent is whitelisted, or if the domain is a public suffix',
      false,
    )
    .action(async (id: number, { risk, force }: { risk: RiskLevel; force: boolean }) => {
      const { domain, stays } = await asked((deps) =>
        approveReport(deps, id, { riskLevel: risk, overridesWhitelist: force }),
      );
      say(stays ? `${domain} is already blacklisted; its entry is unchanged.` : `${domain} is blacklisted.`);
    });

  reports
    .command('reject')
    .description('reject a report and leave the domain list unchanged')
    .argument('<id>', '', nonNegativeInteger)
    .action(async (id: number) => {
      const { domain } = await asked((deps) => rejectReport(deps, id));
      say(`The report of ${domain} is rejected.`);
    });
}

function lines({ id, user_id: user, domain, category, reason, evidence, ...rest }: DomainReport): string {
  return [
    `${id}  ${domain}`,
    `  ${rest.status}, of ${new Date(rest.created_at).toISOString()} by user ${user}`,
    `  ${printable(`${category}: ${reason}`)}`,
    ...(evidence === '' ? [] : [`  ${printable(evidence)}`]),
  ].join('\n');
}

/** Callers wrote it: it must not move the cursor of an operator's terminal, or reverse the direction of the text. */
function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]+/gu, ' ');
}
