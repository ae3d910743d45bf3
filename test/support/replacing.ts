import type { Cell, Row } from '../../infra/clickhouse/row-binary.ts';

/** The sorting key of a `{{table}}`, parsed from its table.sql. */
export function sortingKey(ddl: string, table: string): string[] {
  const create = ddl.split('CREATE TABLE').find((text) => text.includes(`{{${table}}}`)) ?? '';
  const [, key = ''] = /ORDER BY \(?([a-z_, ]+)\)?/.exec(create) ?? [];
  return key.split(',').map((column) => column.trim());
}

/**
 * The rows that ClickHouse returns with FINAL from a `ReplacingMergeTree(seq, is_deleted)`: per key the row with the
 * highest seq, unless it is deleted. As text, ordered by key.
 */
export function reduceRows(rows: readonly Row[], key: readonly string[]): string[] {
  const newest = new Map<string, Row>();
  for (const row of rows) {
    const id = key.map((column) => text(row[column])).join('|');
    const held = newest.get(id);
    if (held === undefined || Number(row['seq']) >= Number(held['seq'])) newest.set(id, row);
  }
  return [...newest]
    .filter(([, row]) => row['is_deleted'] === 0)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([, row]) =>
      Object.entries(row)
        .map(([column, cell]) => `${column}=${text(cell)}`)
        .join(' '),
    );
}

function text(cell: Cell | undefined): string {
  return Array.isArray(cell) ? `[${cell.join(',')}]` : String(cell);
}
