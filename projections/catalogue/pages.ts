import type { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';

/** Rows of a page. */
export interface Page {
  readonly offset: number;
  readonly limit: number;
}

export const columnsOf = (row: z.ZodObject): string => Object.keys(row.shape).join(', ');

/** Equality with each value; undefined does not filter. Parameters begin at $1. */
export const conditionsOf = (
  columns: Readonly<Record<string, unknown>>,
): { where: string; values: unknown[] } => {
  const given = Object.entries(columns).filter(([, value]) => value !== undefined);
  const conditions = given.map(([column], index) => `${column} = $${index + 1}`);
  return {
    where: conditions.length === 0 ? 'true' : conditions.join(' AND '),
    values: given.map(([, value]) => value),
  };
};

export async function pageOf<T>(
  db: Sql,
  row: z.ZodType<T>,
  text: string,
  values: readonly unknown[],
  { offset, limit }: Page,
): Promise<T[]> {
  const at = values.length;
  return await sqlRows(db, row, `${text} LIMIT $${at + 1} OFFSET $${at + 2}`, [...values, limit, offset]);
}
