/** How each operation is called with curl, the TypeScript client and Python. */

interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly example?: unknown;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly pattern?: string;
}

interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

export interface Operation {
  readonly operationId: string;
  readonly security?: readonly Readonly<Record<string, unknown>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> };
}

export interface Sample {
  readonly lang: string;
  readonly label: string;
  readonly source: string;
}

const ADDRESS = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const UUID = '5f0f7f3e-3c36-4b59-9f0e-6f9a3c1d2e4b';

/** Values where the type alone would say too little. */
const BY_NAME: Readonly<Record<string, unknown>> = {
  username: 'demo',
  password: '…',
  txhash: '0x5b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90',
  nft_token_id: '1',
  account: ADDRESS,
  block: '100',
  from_block: 0,
  to_block: 1000,
  slug: 'wallets',
  q: 'swap',
  placement: 'home',
  domain: 'example.org',
  url: 'https://example.org/hook',
  lookup_hash: '00'.repeat(32),
  blob: '…',
  network: 'mainnet',
  category: 'phishing',
  name: 'example',
  token_addresses: [ADDRESS],
  token_address: ADDRESS,
  account_address: ADDRESS,
  end_time: '2026-02-01T00:00:00Z',
};

/** A value that the schema accepts. */
function valueOf(name: string, schema: Schema): unknown {
  const known = schema.example ?? schema.enum?.[0];
  if (known !== undefined) return known;
  if (schema.pattern?.startsWith('^transfers-') === true) return 'transfers-0-99999.parquet';
  if (schema.format === 'date-time') return BY_NAME[name] ?? '2026-01-01T00:00:00Z';
  if (schema.format === 'uuid') return UUID;
  if (BY_NAME[name] !== undefined) return BY_NAME[name];
  if (schema.default !== undefined) return schema.default;
  if (schema.type === 'integer' || schema.type === 'number') return 1;
  if (schema.type === 'boolean') return true;
  if (schema.type === 'array') return schema.items === undefined ? [] : [valueOf(name, schema.items)];
  if (schema.type === 'object') return objectOf(schema);
  return schema.anyOf?.[0] === undefined ? 'example' : valueOf(name, schema.anyOf[0]);
}

/** The properties that are required. */
function objectOf({ properties = {}, required = [] }: Schema): Record<string, unknown> {
  return Object.fromEntries(required.map((name) => [name, valueOf(name, properties[name] ?? {})]));
}

interface Call {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Readonly<Record<string, unknown>> | null;
  readonly operationId: string;
  readonly path: Readonly<Record<string, unknown>>;
  readonly query: Readonly<Record<string, unknown>>;
  readonly origin: string;
}

/** Parameters of which an operation needs one, though none by itself. */
const ALSO: Readonly<Record<string, readonly string[]>> = {
  listTransfers: ['account'],
  listEvents: ['block'],
  exportTransfers: ['from_block', 'to_block'],
};

/** Names of environment variables with the credentials. */
const CREDENTIALS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  ApiKey: { 'api-key': '$TDS_KEY' },
  Bearer: { Authorization: 'Bearer $TDS_SESSION' },
  Signature: { 'X-Vendor-Timestamp': '$TIMESTAMP', 'X-Vendor-Signature': '$SIGNATURE' },
};

function samplesOf(origin: string, path: string, method: string, operation: Operation): Sample[] {
  const { operationId, parameters = [], security = [], requestBody } = operation;
  const required = (place: string): Record<string, unknown> =>
    Object.fromEntries(
      parameters
        .filter(
          ({ in: at, name, required: isRequired }) =>
            at === place && (isRequired === true || ALSO[operationId]?.includes(name) === true),
        )
        .map(({ name, schema }) => [name, valueOf(name, schema)]),
    );
  const [inPath, query] = [required('path'), required('query')];
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(inPath[name])));
  const kind = Object.keys(CREDENTIALS).find((name) => security.some((one) => name in one));
  const schema = requestBody?.content['application/json']?.schema;
  const call: Call = {
    method: method.toUpperCase(),
    url: origin + filled,
    headers: kind === undefined ? {} : (CREDENTIALS[kind] ?? {}),
    body: schema === undefined ? null : objectOf(schema),
    operationId,
    path: inPath,
    query,
    origin,
  };
  return [
    { lang: 'bash', label: 'curl', source: curl(call) },
    { lang: 'typescript', label: 'TypeScript', source: typeScript(call) },
    { lang: 'python', label: 'Python', source: python(call) },
  ];
}

function curl({ method, url, headers, body, query }: Call): string {
  const search = new URLSearchParams(
    Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)])),
  );
  const lines = [
    `curl ${method === 'GET' ? '' : `-X ${method} `}"${url}${search.size === 0 ? '' : `?${search}`}"`,
    ...Object.entries(headers).map(([name, value]) => `-H "${name}: ${value}"`),
    ...(body === null ? [] : ['-H "Content-Type: application/json"', `-d '${JSON.stringify(body)}'`]),
  ];
  return lines.join(' \\\n  ');
}

function typeScript({ operationId, path, query, body, headers, origin }: Call): string {
  const credentials =
    'api-key' in headers
      ? ', apiKey: process.env.TDS_KEY'
      : 'Authorization' in headers
        ? ', session: process.env.TDS_SESSION'
        : '';
  const parts = Object.entries({ path, query, ...(body === null ? {} : { body }) })
    .filter(([name, value]) => name === 'body' || Object.keys(value).length > 0)
    .map(([name, value]) => `${name}: ${literal(value)}`);
  const signed = 'X-Vendor-Signature' in headers;
  const all = signed
    ? [...parts, "headers: { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': signature }"]
    : parts;
  return [
    "import { TokenDataClient } from 'token-data-service-client';",
    '',
    `const client = new TokenDataClient({ baseUrl: '${origin}'${credentials} });`,
    `const answer = await client.${operationId}(${all.length === 0 ? '' : `{ ${all.join(', ')} }`});`,
  ].join('\n');
}

/** JSON as people write it in TypeScript. */
const literal = (value: unknown): string =>
  JSON.stringify(value, null, 1)
    .replaceAll(/\n\s*/g, ' ')
    .replaceAll(/"(\w+)":/g, '$1:')
    .replaceAll(/"((?:[^"\\']|\\.)*)"/g, "'$1'");

function python({ method, url, headers, query, body }: Call): string {
  const values = Object.entries(headers).map(([name, value]) => {
    const [, before = '', variable = ''] = /^(.*)\$(\w+)$/.exec(value) ?? [];
    const read = `os.environ["${variable}"]`;
    return `"${name}": ${before === '' ? read : `"${before}" + ${read}`}`;
  });
  const lines = [
    `    "${url}",`,
    ...(values.length === 0 ? [] : [`    headers={${values.join(', ')}},`]),
    ...(Object.keys(query).length === 0 ? [] : [`    params=${pythonLiteral(query)},`]),
    ...(body === null ? [] : [`    json=${pythonLiteral(body)},`]),
    '    timeout=30,',
  ];
  return [
    'import os',
    'import requests',
    '',
    `answer = requests.${method.toLowerCase()}(`,
    ...lines,
    ')',
    'answer.raise_for_status()',
    'print(answer.text)',
  ].join('\n');
}

const pythonLiteral = (value: unknown): string =>
  JSON.stringify(value, null, 1)
    .replaceAll(/\n\s*/g, ' ')
    .replaceAll(/: (true|false|null)\b/g, (_, word: string) =>
      word === 'null' ? ': None' : `: ${word[0]?.toUpperCase()}${word.slice(1)}`,
    );

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
}

/** The document with the samples of each operation. */
export function withSamples<D extends Document>(document: D, origin: string): D {
  const paths = Object.entries(document.paths).map(([path, methods]) => [
    path,
    Object.fromEntries(
      Object.entries(methods).map(([method, operation]) => [
        method,
        { ...operation, 'x-code-samples': samplesOf(origin, path, method, operation) },
      ]),
    ),
  ]);
  return { ...document, paths: Object.fromEntries(paths) as D['paths'] };
}
