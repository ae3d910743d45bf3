import { repairedLines } from './repair.ts';
import type { VerifyReport } from './verify.ts';

/** Formats the report: repaired differences, remaining ones, repaired rows by table, and a summary. */
export function reportLines(report: VerifyReport): string[] {
  const { heights, messages, commitments, differences, found, repairedTables } = report;
  const where =
    heights === null
      ? 'Nothing is indexed yet'
      : `Blocks ${heights.from} to ${heights.to}, ${messages} messages`;
  const left = new Set(differences.map(({ what }) => what));
  const repaired = found.filter(({ what }) => !left.has(what));
  return [
    ...repaired.map(({ kind, what }) => `repaired: ${kind}: ${what}`),
    ...differences.map(({ kind, what }) => `${kind}: ${what}`),
    ...repairedLines(repairedTables),
    ...(commitments === null ? [] : [commitmentLine(commitments)]),
    differences.length === 0
      ? `${where}: no difference.`
      : `${where}: ${differences.length} difference${differences.length === 1 ? '' : 's'}.`,
  ];
}

function commitmentLine({
  verified,
  old_version,
  no_commitment,
  mismatched,
}: NonNullable<VerifyReport['commitments']>): string {
  return `Event commitments: ${verified} blocks match, ${mismatched} do not, ${old_version} are of an older Starknet, ${no_commitment} have none that the hash of their block binds.`;
}
