import { NATURAL_KEYS, catalogueRecord } from '../../schemas/catalogue.ts';
import type { CatalogueKind } from '../../schemas/catalogue.ts';

/** SQL by which a record that is `sent` meets the entry that is `known`; an import and its preview spell it once. */
export interface Merge {
  /** By which the entry is found. */
  readonly keys: readonly string[];
  /** Of the record, in the order in which it is declared. */
  readonly fields: readonly string[];
  /** Fields that are no keys. */
  readonly rest: readonly string[];
  /** What one of the rest becomes. */
  readonly become: (field: string) => string;
  readonly isSame: string;
  readonly isChanged: string;
}

/** What an entry's field becomes, where that is not simply what was sent. */
const MERGED: Partial<Record<CatalogueKind, Readonly<Record<string, string>>>> = {
  wallets: {
    transaction_count: 'greatest(known.transaction_count, sent.transaction_count)',
    last_activity_at: 'greatest(known.last_activity_at, sent.last_activity_at)',
  },
};

export function mergeOf(kind: CatalogueKind): Merge {
  const keys: readonly string[] = NATURAL_KEYS[kind];
  const fields = Object.keys(catalogueRecord[kind].shape);
  const rest = fields.filter((field) => !keys.includes(field));
  const become = (field: string): string => MERGED[kind]?.[field] ?? `sent.${field}`;
  return {
    keys,
    fields,
    rest,
    become,
    isSame: keys.map((key) => `known.${key} = sent.${key}`).join(' AND '),
    isChanged: `(${rest.map((field) => `known.${field}`).join(', ')}) IS DISTINCT FROM (${rest.map(become).join(', ')})`,
  };
}
