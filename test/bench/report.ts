import { cpus, loadavg, release, totalmem } from 'node:os';

import type { CaseReport, Completeness, Figure, Table } from './case.ts';

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_gib: number;
  readonly kernel: string;
  readonly node: string;
  /** Load averages at the start, over 1, 5 and 15 minutes. */
  readonly load: readonly number[];
  readonly at: string;
}

export function describeMachine(): Machine {
  const [first] = cpus();
  return {
    cpu: first?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memory_gib: rounded(totalmem() / 2 ** 30),
    kernel: release(),
    node: process.version,
    load: loadavg().map(rounded),
    at: new Date().toISOString(),
  };
}

export function difference({ expected, found }: Completeness): number {
  return found - expected;
}

export function isComplete({ completeness }: CaseReport): boolean {
  return completeness.every((one) => difference(one) === 0);
}

/** Whether a figure reaches its target. */
export function verdict({ value, want }: Figure): 'aim' | 'reached' | 'missed' | null {
  if (want === undefined) return null;
  const reaches = (bound: number): boolean => (want.better === 'higher' ? value >= bound : value <= bound);
  if (want.aim !== undefined && reaches(want.aim)) return 'aim';
  return reaches(want.least) ? 'reached' : 'missed';
}

export function renderMachine({ cpu, cores, memory_gib, kernel, node, load, at }: Machine): string {
  return `${cpu}, ${cores} cores, ${memory_gib} GiB, Linux ${kernel}, Node ${node}, load ${load.join(' ')} at ${at}`;
}

export function renderReport(report: CaseReport): string {
  const { figures, completeness, tables = [], notes = [] } = report;
  const shown: Table = {
    title: '',
    columns: ['figure', 'value', 'unit', 'at least', 'aim', ''],
    rows: figures.map((figure) => [
      figure.name,
      figure.value,
      figure.unit,
      figure.want?.least ?? '',
      figure.want?.aim ?? '',
      verdict(figure) ?? '',
    ]),
  };
  const complete: Table = {
    title: 'Completeness (independent count against what can be queried)',
    columns: ['what', 'expected', 'found', 'difference'],
    rows: completeness.map((one) => [one.what, one.expected, one.found, difference(one)]),
  };
  return [shown, ...tables, complete]
    .filter(({ rows }) => rows.length > 0)
    .map(renderTable)
    .concat(notes.map((note) => `  ${note}`))
    .join('\n\n');
}

function renderTable({ title, columns, rows }: Table): string {
  const cells = rows.map((row) => row.map(cellText));
  const widths = columns.map((column, index) =>
    Math.max(column.length, ...cells.map((row) => row[index]?.length ?? 0)),
  );
  const isNumeric = columns.map((_, index) => rows.some((row) => typeof row[index] === 'number'));
  const line = (row: readonly string[]): string =>
    `  ${row
      .map((cell, index) =>
        isNumeric[index] === true ? cell.padStart(widths[index] ?? 0) : cell.padEnd(widths[index] ?? 0),
      )
      .join('  ')
      .trimEnd()}`;
  return [...(title === '' ? [] : [title]), line(columns), ...cells.map(line)].join('\n');
}

function cellText(cell: string | number): string {
  return typeof cell === 'number' ? numberText(cell) : cell;
}

function numberText(value: number): string {
  if (!Number.isFinite(value)) return '-';
  return rounded(value).toLocaleString('en-US', { maximumFractionDigits: 3 });
}

/** Measurements are rounded to three digits; whole numbers stay whole. */
function rounded(value: number): number {
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return Math.round(value);
  return Number(value.toPrecision(3));
}
