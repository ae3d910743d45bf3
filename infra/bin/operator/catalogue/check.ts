import type { z } from 'zod';

import { fieldsOf, fileKeys, fileRecord } from './formats.ts';
import type { FileKind, FileRecord } from './formats.ts';
import { unknownField } from './read-file.ts';
import type { Found } from './read-file.ts';

/** An error at a line of a file. */
export interface Fault {
  readonly line: number;
  readonly text: string;
}

/** Errors listed; further ones are only counted. */
const MAX_LISTED_FAULTS = 100;

export class Faults {
  readonly listed: Fault[] = [];
  count = 0;

  add(line: number, text: string): void {
    this.count += 1;
    if (this.listed.length < MAX_LISTED_FAULTS) this.listed.push({ line, text });
  }
}

/** A record that is valid by itself. */
export type Checked = {
  [K in FileKind]: { readonly kind: K; readonly line: number; readonly record: FileRecord<K> };
}[FileKind];

/**
 * Yields the valid records of a file and collects errors in `faults`, including duplicate records of one entry.
 *
 * @param onRecord called with every record as it is in the file, valid or not
 */
export async function* checkRecords(
  found: AsyncIterable<Found>,
  faults: Faults,
  onRecord: (record: Extract<Found, { kind: FileKind }>) => void = () => {},
): AsyncIterable<Checked> {
  const lines = new Map<string, number>();
  for await (const one of found) {
    if ('fault' in one) {
      faults.add(one.line, one.fault);
      continue;
    }
    const { kind, line } = one;
    onRecord(one);
    const checked = checkRecord(kind, line, one.record, faults);
    if (checked === null) continue;
    const name = JSON.stringify([kind, ...fileKeys(kind).map((key) => Object(checked.record)[key])]);
    const before = lines.get(name);
    if (before !== undefined) {
      const key = fileKeys(kind).map((field) => `${field} ${String(Object(checked.record)[field])}`);
      faults.add(line, `${kind}: ${key.join(', ')} repeats line ${before}.`);
      continue;
    }
    lines.set(name, line);
    yield checked;
  }
}

function checkRecord(kind: FileKind, line: number, value: unknown, faults: Faults): Checked | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    faults.add(line, `${kind}: each record must be an object.`);
    return null;
  }
  const known = fieldsOf(kind);
  const given = Object.entries(value).filter(([field]) => !field.startsWith('_'));
  const unknown = given.filter(([field]) => !known.includes(field));
  for (const [field] of unknown) faults.add(line, unknownField(kind, field));
  const parsed = fileRecord[kind].safeParse(Object.fromEntries(given), { error: describe });
  for (const { path, message } of parsed.error?.issues ?? []) {
    faults.add(line, `${kind}.${path.join('.')}: ${message}`);
  }
  if (!parsed.success || unknown.length > 0) return null;
  // The schema of the kind was applied.
  return { kind, line, record: parsed.data } as Checked;
}

/** The message for a missing field; others come from the schemas and zod. */
const describe: z.core.$ZodErrorMap = ({ input }) =>
  input === undefined ? 'This field is required.' : undefined;
