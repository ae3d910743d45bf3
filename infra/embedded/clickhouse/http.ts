import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import { createAnswer } from './answer.ts';
import type { Answer } from './answer.ts';
import { readText } from './body.ts';
import type { Spool, Text } from './body.ts';
import { setReadonly } from './engine.ts';
import type { Connection, Engine, Stats } from './engine.ts';
import { ClickHouseException, fromEngine } from './errors.ts';
import { checkReadOnlyName, checkReadOnlySetting, readOnlySelect } from './readonly.ts';
import { checkedName, parseRequest } from './request.ts';
import type { HttpQuery } from './request.ts';
import { createSessions } from './sessions.ts';
import { formatOf, isSymbol, isWord, statements } from './statement.ts';
import type { Token } from './statement.ts';
import type { Authenticate, User } from './users.ts';

/** Used by requests without a database; the engine's own `default` database exposes the files of the machine. */
const defaultDatabase = 'tds';

/** Formats whose blocks can be concatenated; all others have a header or footer. */
const streamedFormats = new Set([
  'JSONEachRow',
  'JSONStringsEachRow',
  'JSONCompactEachRow',
  'JSONCompactStringsEachRow',
  'JSONLines',
  'NDJSON',
  'CSV',
  'TSV',
  'TabSeparated',
  'TSVRaw',
  'TabSeparatedRaw',
  'RowBinary',
  'Native',
  'LineAsString',
  'RawBLOB',
]);

/** Results limited to this many rows count as small. */
const smallRows = 10_000;

/** The HTTP interface of ClickHouse for the engine in this process. */
export function createHttpServer(engine: Engine, spool: Spool, authenticate: Authenticate): Server {
  const sessions = createSessions(engine);

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const queryId = randomUUID();
    let answer = createAnswer(response, { encoding: null, waitEnd: true, queryId, version: engine.version });
    const abort = new AbortController();
    response.on('close', () => {
      if (!response.writableFinished) abort.abort();
    });
    try {
      const query = parseRequest(request, defaultDatabase);
      const user = authenticate(query.credentials);
      const { encoding, waitEnd } = query;
      answer = createAnswer(response, {
        encoding,
        waitEnd,
        queryId: query.queryId ?? queryId,
        version: engine.version,
      });
      const text = await readText(request, query.urlQuery);
      if (text.kind === 'insert') await runInsert(query, user, text, answer, abort.signal);
      else await runStatement(query, user, text, answer, abort.signal, request.method === 'GET');
    } catch (error) {
      if (abort.signal.aborted) return;
      answer.fail(fromEngine(error));
      // Discards the rest of an upload, because some clients read the response only after sending everything.
      request.resume();
    }
  }

  async function runInsert(
    query: HttpQuery,
    user: User,
    { head, data }: Extract<Text, { kind: 'insert' }>,
    answer: Answer,
    signal: AbortSignal,
  ): Promise<void> {
    if (user.readonly) throw readonlyRefusal(user);
    const file = await spool.write(data);
    try {
      const stats = await inSession(query, (session) =>
        engine.run(
          'insert',
          {
            sql: `${head.target} FROM INFILE '${file.path}' COMPRESSION 'none' ${head.settings} FORMAT ${head.format}`,
            prelude: preludeOf(query, query.params, query.settings),
            format: 'Null',
            streamed: false,
            signal,
            comment: query.settings.get('log_comment') ?? '',
          },
          () => {},
          session,
        ),
      );
      await answer.end(stats, true);
    } finally {
      await file.remove();
    }
  }

  async function runStatement(
    query: HttpQuery,
    user: User,
    text: Extract<Text, { kind: 'statement' }>,
    answer: Answer,
    signal: AbortSignal,
    readsOnly: boolean,
  ): Promise<void> {
    const params = new Map(query.params);
    for (const [name, value] of text.fields) {
      if (name.startsWith('param_')) params.set(checkedName(name.slice('param_'.length)), value);
    }
    const [statement, ...others] = statements(text.sql);
    if (statement === undefined)
      throw new ClickHouseException(62, 'SYNTAX_ERROR', 'Syntax error: empty query');
    if (others.length > 0) {
      throw new ClickHouseException(62, 'SYNTAX_ERROR', 'Syntax error (Multi-statements are not allowed)');
    }
    const reads = isWord(
      statement.find((token) => !isSymbol(token, '(')),
      'SELECT',
      'WITH',
    );
    if (readsOnly && !reads && !isWord(statement[0], 'SHOW', 'DESCRIBE', 'DESC', 'EXISTS', 'EXPLAIN')) {
      throw readonlyRefusal(user);
    }
    let { sql } = text;
    const settings = new Map(query.settings);
    if (user.readonly) {
      checkReader(query, statement, params);
      const select = readOnlySelect(sql);
      sql = select.sql;
      for (const [name, value] of select.settings) settings.set(name, value);
    }
    const format = formatOf(statement) ?? query.defaultFormat ?? 'TabSeparated';
    answer.format(format);
    const stats = await inSession(user.readonly ? { ...query, session: null } : query, (session) =>
      engine.run(
        isWord(statement[0], 'INSERT') ? 'insert' : 'read',
        {
          sql,
          prelude: [...preludeOf(query, params, settings), ...(user.readonly ? [setReadonly] : [])],
          format,
          streamed: reads && streamable(format, statement, settings),
          signal,
          comment: settings.get('log_comment') ?? '',
        },
        (chunk) => answer.write(chunk),
        session,
      ),
    );
    await answer.end(stats, isWord(statement[0], 'INSERT'));
  }

  async function inSession(
    query: HttpQuery,
    work: (session: Connection | undefined) => Promise<Stats>,
  ): Promise<Stats> {
    if (query.session === null) return await work(undefined);
    return await sessions.use(query.session, query.settings.keys(), work);
  }

  const server = createServer({ maxHeaderSize: 1 << 20, requestTimeout: 0, keepAliveTimeout: 30_000 });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    const [path = '/', search = ''] = (request.url ?? '/').split('?', 2);
    const asks = request.method === 'POST' || (request.method === 'GET' && search !== '');
    if (path === '/ping' || path === '/replicas_status' || (path === '/' && !asks)) {
      response.writeHead(200, { 'Content-Type': 'text/html; charset=UTF-8' }).end('Ok.\n');
    } else if (path === '/') {
      handle(request, response).catch((error: unknown) => {
        // An unexpected error must not stop the server.
        process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
        response.destroy();
      });
    } else {
      response.writeHead(404, { 'Content-Type': 'text/plain' }).end(`There is no handle ${path}\n`);
    }
  });
  return server;
}

function checkReader(
  query: HttpQuery,
  statement: readonly Token[],
  params: ReadonlyMap<string, string>,
): void {
  checkReadOnlyName(query.database);
  for (const name of query.settings.keys()) checkReadOnlySetting(name);
  // Identifier parameters need the same checks as identifiers.
  statement.forEach((token, index) => {
    const value = params.get(token.text);
    const named = isSymbol(statement[index - 1], '{') && isWord(statement[index + 2], 'IDENTIFIER');
    if (named && value !== undefined) checkReadOnlyName(value);
  });
}

/** The statements that select the database and set settings and parameters of a request. */
function preludeOf(
  query: HttpQuery,
  params: ReadonlyMap<string, string>,
  settings: ReadonlyMap<string, string>,
): string[] {
  const set = [...settings].filter(([name]) => name !== 'log_comment');
  const entries = [...set, ...[...params].map(([name, value]) => [`param_${name}`, value] as const)];
  return [
    `USE \`${query.database.replaceAll('\\', '\\\\').replaceAll('`', '\\`')}\``,
    ...entries.map(([name, value]) => `SET ${name} = ${literal(value)}`),
  ];
}

function literal(value: string): string {
  return `'${value.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

/**
 * Large results are streamed, so that they are never held in memory. Small ones are not: the engine plans a stream on the
 * main thread of this process (6 ms for a page), and other queries on its own threads.
 */
function streamable(
  format: string,
  statement: readonly Token[],
  settings: ReadonlyMap<string, string>,
): boolean {
  const whole = statement.some((token) => isWord(token, 'TOTALS', 'OUTFILE'));
  const mostRows = Number(settings.get('max_result_rows') ?? 0);
  const isSmall = mostRows > 0 && mostRows <= smallRows;
  return (
    streamedFormats.has(format) &&
    !whole &&
    !isSmall &&
    !settings.has('extremes') &&
    !settings.has('output_format_json_array_of_rows')
  );
}

function readonlyRefusal(user: User): ClickHouseException {
  return new ClickHouseException(164, 'READONLY', `${user.name}: Cannot execute query in readonly mode`);
}
