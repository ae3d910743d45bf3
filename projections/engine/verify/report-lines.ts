import type { VerifyReport } from './verify.ts';

/** The outcome as lines: what is so, what was found before it was repaired, and what that took. */
export function reportLines(report: VerifyReport): string[] {
  const { heights, messages, differences, found, repairedTables } = report;
  const where =
    heights === null
      ? 'Nothing is indexed yet'
      : `Blocks ${heights.from} to ${heights.to}, ${messages} messages`;
  const left = new Set(differences.map(({ what }) => what));
  const mended = found.filter(({ what }) => !left.has(what));
  return [
    ...mended.map(({ kind, what }) => `found, and so no more: ${kind}: ${what}`),
    ...differences.map(({ kind, what }) => `${kind}: ${what}`),
    ...Object.entries(repairedTables).map(
      ([table, { taken, put }]) => `${table}: ${taken} wrong rows taken away, ${put} put in`,
    ),
    differences.length === 0
      ? `${where}: no difference.`
      : `${where}: ${differences.length} difference${differences.length === 1 ? '' : 's'}.`,
  ];
}
