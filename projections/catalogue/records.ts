import { NATURAL_KEYS, catalogueRecord } from '../../schemas/catalogue.ts';
import type { CatalogueKind } from '../../schemas/catalogue.ts';

/** SQL that matches a record (`sent`) with its entry (`known`), shared by an import and its preview. */
export interface Merge {
  /** Fields that identify the entry. */
  readonly keys: readonly string[];
  /** All fields of the record, in the order of their declaration. */
  readonly fields: readonly string[];
  /** Fields that do not identify it. */
  readonly rest: readonly string[];
  /** SQL of the new value of one of `rest`. */
  readonly become: (field: string) => string;
  readonly isSame: string;
  readonly isChanged: string;
}

/** SQL of a field's new value, where that is not the sent one. */
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
