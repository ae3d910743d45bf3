import type { IncomingMessage } from 'node:http';
import { PassThrough, pipeline } from 'node:stream';
import type { Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';

import { ClickHouseException } from './errors.ts';
import type { Credentials } from './users.ts';

/** The parsed parameters of a request. */
export interface HttpQuery {
  readonly credentials: Credentials;
  readonly database: string;
  /** Query text in the URL; the body follows it after a line break. */
  readonly urlQuery: string;
  readonly queryId: string | null;
  readonly defaultFormat: string | null;
  readonly params: ReadonlyMap<string, string>;
  readonly settings: ReadonlyMap<string, string>;
  readonly session: { readonly id: string; readonly timeoutMs: number; readonly mustExist: boolean } | null;
  /** Send the result when it is complete, so that errors have an HTTP status. */
  readonly waitEnd: boolean;
  readonly encoding: 'gzip' | 'zstd' | 'br' | 'deflate' | null;
}

/** URL parameters that are not settings. */
const protocolNames = new Set([
  'query',
  'database',
  'user',
  'password',
  'quota_key',
  'query_id',
  'default_format',
  'role',
  'stacktrace',
  'session_id',
  'session_timeout',
  'session_check',
  'close_session',
  'compress',
  'decompress',
  'buffer_size',
  'wait_end_of_query',
  'enable_http_compression',
  'http_zlib_compression_level',
  'client_protocol_version',
  'send_progress_in_http_headers',
  'http_headers_progress_interval_ms',
  'http_native_compression_disable_checksumming_on_decompress',
  'http_write_exception_in_output_format',
  'http_response_buffer_size',
  'cancel_http_readonly_queries_on_client_close',
  'add_http_cors_header',
  'http_wait_end_of_query',
]);

export function parseRequest(request: IncomingMessage, defaultDatabase: string): HttpQuery {
  const url = new URL(request.url ?? '/', 'http://localhost');
  const get = (name: string): string | null => url.searchParams.get(name);
  const flag = (name: string): boolean => ['1', 'true'].includes(get(name) ?? '');
  const header = (name: string): string | null => {
    const value = request.headers[name];
    return typeof value === 'string' ? value : null;
  };

  const params = new Map<string, string>();
  const settings = new Map<string, string>();
  for (const [name, value] of url.searchParams) {
    if (name.startsWith('param_')) params.set(checkedName(name.slice('param_'.length)), value);
    else if (!protocolNames.has(name)) settings.set(checkedName(name), value);
  }
  if (flag('compress') || flag('decompress')) {
    throw new ClickHouseException(
      48,
      'NOT_IMPLEMENTED',
      "ClickHouse's own compression is not spoken here: use Content-Encoding",
    );
  }
  const session = get('session_id');
  return {
    credentials: credentialsOf(request, get),
    database: get('database') ?? header('x-clickhouse-database') ?? defaultDatabase,
    urlQuery: get('query') ?? '',
    queryId: get('query_id'),
    defaultFormat: get('default_format') ?? header('x-clickhouse-format'),
    params,
    settings,
    session:
      session === null || session === ''
        ? null
        : {
            id: session,
            timeoutMs: Number(get('session_timeout') ?? 60) * 1000,
            mustExist: flag('session_check'),
          },
    waitEnd: flag('wait_end_of_query') || flag('http_wait_end_of_query'),
    encoding: flag('enable_http_compression') ? encodingOf(header('accept-encoding') ?? '') : null,
  };
}

export function checkedName(name: string): string {
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name;
  throw new ClickHouseException(115, 'UNKNOWN_SETTING', `Unknown setting '${name}'`);
}

function credentialsOf(request: IncomingMessage, get: (name: string) => string | null): Credentials {
  const { authorization } = request.headers;
  const user = request.headers['x-clickhouse-user'];
  const key = request.headers['x-clickhouse-key'];
  if (typeof user === 'string') return { name: user, password: typeof key === 'string' ? key : '' };
  if (authorization?.startsWith('Basic ') === true) {
    const pair = Buffer.from(authorization.slice('Basic '.length), 'base64').toString('utf8');
    const colon = pair.indexOf(':');
    if (colon !== -1) return { name: pair.slice(0, colon), password: pair.slice(colon + 1) };
  }
  return { name: get('user') ?? 'default', password: get('password') ?? '' };
}

function encodingOf(accepted: string): HttpQuery['encoding'] {
  const names = accepted.split(',').map((entry) => entry.split(';')[0]?.trim());
  return (['zstd', 'gzip', 'br', 'deflate'] as const).find((name) => names.includes(name)) ?? null;
}

const decoders: ReadonlyMap<string, () => Transform> = new Map([
  ['identity', () => new PassThrough()],
  ['gzip', () => createGunzip()],
  ['deflate', () => createInflate()],
  ['br', () => createBrotliDecompress()],
  ['zstd', () => createZstdDecompress()],
]);

/** The decompressed body; fails if the upload is interrupted. */
export function bodyOf(request: IncomingMessage): Readable {
  const encoding = request.headers['content-encoding'] ?? 'identity';
  const inflate = decoders.get(encoding);
  if (inflate === undefined) {
    throw new ClickHouseException(89, 'UNKNOWN_COMPRESSION_METHOD', `Unknown compression method ${encoding}`);
  }
  const out = inflate();
  pipeline(request, out, () => {});
  return out;
}

/** The fields of a `multipart/form-data` body: the query and its parameters. Null for another content type. */
export async function multipartFields(
  request: IncomingMessage,
  body: Buffer,
): Promise<Map<string, string> | null> {
  const type = request.headers['content-type'] ?? '';
  if (!type.startsWith('multipart/form-data')) return null;
  const form = await new Response(new Uint8Array(body), { headers: { 'content-type': type } }).formData();
  const fields = new Map<string, string>();
  for (const [name, value] of form) {
    if (typeof value !== 'string') {
      throw new ClickHouseException(48, 'NOT_IMPLEMENTED', 'External tables are not supported');
    }
    fields.set(name, value);
  }
  return fields;
}
