import { stringify } from 'csv-stringify/sync';

import type { Sql } from '../../../postgres/client.ts';
import { recordsOf } from '../../../../projections/catalogue/queries.ts';
import { listedTokens } from '../../../../projections/tokens/queries.ts';
import type { ServedBuilds } from '../../../../projections/served.ts';
import { writeCell } from './cells.ts';
import { fieldsOf, toFile } from './formats.ts';
import type { FileKind } from './formats.ts';

export interface ExportDeps {
  /** In a REPEATABLE READ transaction, for a consistent export. */
  readonly db: Sql;
  readonly served: ServedBuilds;
}

/** The file of these kinds, in pieces; importing it changes nothing. */
export async function* exportJson(deps: ExportDeps, kinds: readonly FileKind[]): AsyncIterable<string> {
  yield '{';
  for (const [at, kind] of kinds.entries()) {
    yield `${at === 0 ? '' : ','}\n  ${JSON.stringify(kind)}: [`;
    let separator = '\n';
    for await (const record of recordsToFile(deps, kind)) {
      yield `${separator}    ${JSON.stringify(record)}`;
      separator = ',\n';
    }
    yield separator === '\n' ? ']' : '\n  ]';
  }
  yield '\n}\n';
}

/** The first line is the header. */
export async function* exportCsv(deps: ExportDeps, kind: FileKind): AsyncIterable<string> {
  const fields = fieldsOf(kind);
  const line = (cells: readonly string[]): string => stringify([[...cells]], { quoted_string: true });
  yield line(fields);
  for await (const record of recordsToFile(deps, kind)) {
    yield line(fields.map((field) => writeCell(record[field])));
  }
}

async function* recordsToFile(
  { db, served }: ExportDeps,
  kind: FileKind,
): AsyncIterable<Record<string, unknown>> {
  if (kind === 'tokens') {
    for await (const token of listedTokens(db, served.schema('tokens'))) {
      const { token: address, verified, common, hidden, logo } = token;
      yield { address, verified, common, public: token.public, hidden, logo };
    }
    return;
  }
  for await (const record of recordsOf(db, served.schema('catalogue'), kind)) yield toFile(record);
}
