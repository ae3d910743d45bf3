import { comparedRows } from './compare-builds.ts';
import type { RebuildReport } from './rebuild.ts';

/**
 * Formats the report: builds, tables that were not compared, the others, and whether the builds were swapped.
 *
 * @param dropsPrevious whether the caller drops the previous builds after a swap
 */
export function rebuildLines(
  { builds, messages, tables, isSwapped, heldMs }: RebuildReport,
  dropsPrevious = false,
): string[] {
  return [
    ...builds.map(
      ({ projection, version, after, isResumed }) =>
        `${projection}: build ${after} (version ${version}) from ${messages} messages${isResumed ? ', resumed' : ''}`,
    ),
    ...tables.flatMap(({ table, unsettled }) =>
      unsettled.map(({ where }) => `  ${table}: not compared at ${where}, which are being written`),
    ),
    ...tables.flatMap(comparedLines),
    ...(isSwapped && tables.some(({ differing }) => differing.length > 0)
      ? ['The previous build differed from the log in these ranges; the new one matches the log.']
      : []),
    isSwapped
      ? `Swapped; writers waited ${heldMs ?? 0} ms.${dropsPrevious ? '' : keptOf(builds)}`
      : 'Not swapped.',
  ];
}

function comparedLines(report: RebuildReport['tables'][number]): string[] {
  const { table, differing, unsettled, samples, isLost } = report;
  const rows = comparedRows(report);
  if (isLost === true) return [`  ${table}: ${rows} rows; the served table was lost`];
  if (differing.length === 0 && rows === 0 && unsettled.length > 0) return [];
  if (differing.length === 0) return [`  ${table}: ${rows} rows, equal`];
  return [
    `  ${table}: ${rows} rows; DIFFERENT in ${differing.length} range${differing.length === 1 ? '' : 's'}`,
    ...differing
      .slice(0, 20)
      .map(
        ({ where, ours, theirs }) =>
          `    ${where}: ${ours.rows} rows were served, the rebuild has ${theirs.rows}; checksums ${ours.checksum} and ${theirs.checksum}`,
      ),
    ...samples.map(({ kind, key }) => `    ${kind} in the served build: ${key}`),
  ];
}

function keptOf(builds: RebuildReport['builds']): string {
  const drops = builds.flatMap(({ projection, before }) =>
    before === null ? [] : [`\`tds builds drop ${projection} ${before}\``],
  );
  return drops.length === 0 ? '' : ` The old tables are kept: ${drops.join(', ')}.`;
}
