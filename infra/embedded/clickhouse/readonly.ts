import { ClickHouseException } from './errors.ts';
import { isSymbol, isWord, outermost, statements } from './statement.ts';
import type { Token } from './statement.ts';

/**
 * The only statement that the read-only user may run: one SELECT over tables of the service.
 *
 * The engine also runs it with `readonly=1`, which rejects INSERT, DDL and table functions, but still allows access to files
 * and the server (`file()` as a function, `INTO OUTFILE`, `SYSTEM`, and the database `default`, whose tables are the files
 * of the machine). So those are rejected here, by tokens.
 */
export interface ReadOnlySelect {
  /** Without its `SETTINGS`, which must be set before `readonly=1`. */
  readonly sql: string;
  readonly settings: ReadonlyMap<string, string>;
}

/** Functions with access to files, the network, other processes, or the server itself. */
const deniedFunctions = new Set(
  `
  file fileCluster url urlCluster remote remoteSecure cluster clusterAllReplicas python s3 s3Cluster
  gcs hdfs hdfsCluster azureBlobStorage azureBlobStorageCluster cosn oss iceberg icebergS3
  icebergLocal icebergAzure icebergHDFS deltaLake deltaLakeLocal hudi paimon mysql postgresql sqlite
  odbc jdbc mongodb redis executable input ytsaurus arrowFlight dictionary merge loop view
  generateRandom zookeeper fuzzQuery fuzzJSON sleep sleepEachRow trap catboostEvaluate showCertificate
  getServerSetting getMacro addressToLine addressToLineWithInlines addressToSymbol hostName fqdn
  filesystemAvailable filesystemCapacity filesystemUnreserved getOSKernelVersion serverUUID logTrace
  `
    .toLowerCase()
    .trim()
    .split(/\s+/),
);

/** Tables of `system` that reveal nothing about other queries, settings or files. */
const systemTables = new Set(['one', 'numbers', 'tables', 'columns', 'parts', 'databases']);

/** Settings that a read-only user may change: output formats (not `output_format_schema`, which writes a file) and limits. */
const readerSettings =
  /^(output_format_(?!schema)[a-z0-9_]+|format_csv_[a-z_]+|log_comment|final|do_not_merge_across_partitions_select_final|max_threads|max_block_size|max_execution_time|max_result_rows|max_result_bytes|max_rows_to_read|max_bytes_to_read|result_overflow_mode|read_overflow_mode|timeout_overflow_mode|join_algorithm|join_use_nulls|optimize_[a-z0-9_]+|use_[a-z0-9_]+|query_plan_[a-z0-9_]+|enable_analyzer|prefer_column_name_to_alias|date_time_output_format|session_timezone|extremes|async_insert|wait_for_async_insert)$/;

/** The statement to run; throws the exception of ClickHouse if it is not allowed. */
export function readOnlySelect(sql: string): ReadOnlySelect {
  const found = statements(sql);
  const [statement] = found;
  if (statement === undefined) throw new ClickHouseException(62, 'SYNTAX_ERROR', 'Syntax error: empty query');
  const unknown = found.flat().find(({ kind }) => kind === 'unknown');
  if (unknown !== undefined) {
    throw new ClickHouseException(
      62,
      'SYNTAX_ERROR',
      `Syntax error: failed at position ${unknown.start + 1}: not accepted from a read-only user`,
    );
  }
  if (found.length > 1) {
    throw new ClickHouseException(62, 'SYNTAX_ERROR', 'Syntax error (Multi-statements are not allowed)');
  }
  const first = statement.find((token) => !isSymbol(token, '('));
  if (!isWord(first, 'SELECT', 'WITH')) {
    throw new ClickHouseException(164, 'READONLY', 'api: Cannot execute query in readonly mode');
  }
  statement.forEach((token, index) =>
    checkToken(token, statement[index - 1], statement[index + 1], statement[index + 2]),
  );
  return withoutSettings(sql, statement);
}

function checkToken(
  token: Token,
  before: Token | undefined,
  after: Token | undefined,
  second: Token | undefined,
): void {
  const name = token.text.toLowerCase();
  if (isWord(token, 'OUTFILE', 'INFILE', 'APPLY')) throw denied(token.text.toUpperCase());
  // `WITH … INSERT INTO …` and `SELECT … PARALLEL WITH …` contain a second statement without a semicolon.
  if (isWord(token, 'INSERT', 'PARALLEL') && isWord(after, 'INTO', 'WITH')) throw denied(name);
  if (token.kind !== 'word' && token.kind !== 'quoted') return;
  if (isSymbol(after, '(') && deniedFunctions.has(name)) throw denied(`function ${token.text}`);
  if (isSymbol(after, '(') && isWord(before, 'FROM', 'JOIN')) throw denied(`table function ${token.text}`);
  if (isSymbol(after, '.') && !isSymbol(before, '.')) checkDatabase(name, second);
  if (token.kind === 'quoted' && name === 'default') throw denied('database default');
}

function checkDatabase(name: string, table: Token | undefined): void {
  if (name === 'default') throw denied('database default');
  if (name === 'information_schema') throw denied('database information_schema');
  if (name === 'system' && !systemTables.has((table?.text ?? '').toLowerCase())) {
    throw denied(`system.${table?.text ?? ''}`);
  }
}

/** Checks the database of a URL or of an `Identifier` parameter. */
export function checkReadOnlyName(name: string): void {
  const [database] = name.toLowerCase().split('.');
  if (!/^[A-Za-z_][A-Za-z0-9_.]*$/.test(name) || database === undefined) throw denied(`identifier ${name}`);
  if (['default', 'system', 'information_schema'].includes(database)) throw denied(`database ${database}`);
}

export function checkReadOnlySetting(name: string): void {
  if (readerSettings.test(name)) return;
  throw new ClickHouseException(
    452,
    'SETTING_CONSTRAINT_VIOLATION',
    `Setting ${name} should not be changed by a read-only user`,
  );
}

/** Removes the outermost `SETTINGS a = 1, b = 'x'` from a statement; those of subqueries stay, if they are allowed. */
function withoutSettings(sql: string, statement: readonly Token[]): ReadOnlySelect {
  const settings = new Map<string, string>();
  const outer = new Set(outermost(statement).map(({ index }) => index));
  const end = statement.at(-1)?.end ?? 0;
  let kept = '';
  let from = statement[0]?.start ?? 0;
  statement.forEach((token, index) => {
    if (!isWord(token, 'SETTINGS') || !isAssignment(statement, index + 1)) return;
    const { entries, next } = settingsFrom(sql, statement, index + 1);
    if (!outer.has(index)) return;
    for (const [name, value] of entries) settings.set(name, value);
    kept += sql.slice(from, token.start);
    from = statement[next]?.start ?? end;
  });
  return { sql: kept + sql.slice(from, end), settings };
}

function isAssignment(statement: readonly Token[], at: number): boolean {
  const name = statement[at];
  return (name?.kind === 'word' || name?.kind === 'quoted') && isSymbol(statement[at + 1], '=');
}

/** Parses `a = 1, b = 'x'` and checks each name; `next` is the index of the token after it. */
function settingsFrom(
  sql: string,
  statement: readonly Token[],
  first: number,
): { entries: [string, string][]; next: number } {
  const entries: [string, string][] = [];
  for (let at = first; ; at++) {
    const name = statement[at];
    const value = statement[at + 2];
    if (name === undefined || value === undefined || !isAssignment(statement, at) || !isLiteral(value)) {
      throw new ClickHouseException(62, 'SYNTAX_ERROR', 'Syntax error: a setting must be a literal here');
    }
    checkReadOnlySetting(name.text);
    at += 3;
    // 0.5 is three tokens: number, dot, number.
    const fraction = isSymbol(statement[at], '.') ? statement[at + 1] : undefined;
    if (fraction?.kind === 'number') at += 2;
    entries.push([name.text, literalText(sql.slice(value.start, fraction?.end ?? value.end))]);
    if (!isSymbol(statement[at], ',')) return { entries, next: at };
  }
}

function isLiteral(token: Token): boolean {
  return token.kind === 'word' || token.kind === 'number' || token.kind === 'string';
}

function literalText(literal: string): string {
  if (!literal.startsWith("'")) return literal;
  return literal.slice(1, -1).replaceAll("''", "'").replaceAll(/\\(.)/gs, '$1');
}

function denied(what: string): ClickHouseException {
  return new ClickHouseException(
    497,
    'ACCESS_DENIED',
    `api: Not enough privileges. A read-only user has no access to ${what}`,
  );
}
