import type { z } from 'zod';

import { fieldsOf, fileKeys, fileRecord } from './formats.ts';
import type { FileKind, FileRecord } from './formats.ts';
import { unknownField } from './read-file.ts';
import type { Found } from './read-file.ts';

/** What is wrong at a line of a file. */
export interface Fault {
  readonly line: number;
  readonly text: string;
}

/** So many are told; the others are counted. */
const MOST_FAULTS = 100;

export class Faults {
  readonly told: Fault[] = [];
  count = 0;

  add(line: number, text: string): void {
    this.count += 1;
    if (this.told.length < MOST_FAULTS) this.told.push({ line, text });
  }
}

/** A record of a file that is good by itself. */
export type Checked = {
  [K in FileKind]: { readonly kind: K; readonly line: number; readonly record: FileRecord<K> };
}[FileKind];

/**
 * Passes on what is good of a file, and tells `faults` of all that is not: of two records of one entry, too.
 *
 * @param onRecord is shown every record as it stands in the file, good or not
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
      faults.add(line, `${kind}: ${key.join(', ')} is there before, in line ${before}.`);
      continue;
    }
    lines.set(name, line);
    yield checked;
  }
}

function checkRecord(kind: FileKind, line: number, value: unknown, faults: Faults): Checked | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    faults.add(line, `${kind}: use an object for a record.`);
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
  // The schema is that of the kind.
  return { kind, line, record: parsed.data } as Checked;
}

/** What a file leaves out is told as that; for the rest the schemas and zod have words of their own. */
const describe: z.core.$ZodErrorMap = ({ input }) =>
  input === undefined ? 'This field is required.' : undefined;
