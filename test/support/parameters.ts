import { z } from 'zod';

import { toFelt } from '../../schemas/felt.ts';
import { documentOf } from './document.ts';
import { BOB, COIN, MAX, NFT, TX1 } from './small-chain.ts';

/** Values of URL parameters by kind, and the expected answers (decision 14). */

const schema = z.object({
  type: z.string().optional(),
  format: z.string().optional(),
  pattern: z.string().optional(),
  enum: z.array(z.string()).optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  minLength: z.number().optional(),
  maxLength: z.number().optional(),
});
type Schema = z.infer<typeof schema>;
const parameter = z.object({
  name: z.string(),
  in: z.enum(['query', 'path', 'header']),
  required: z.boolean().default(false),
  schema,
});
export type Parameter = z.infer<typeof parameter>;
const described = z.object({
  parameters: z.array(parameter).default([]),
  requestBody: z
    .object({ content: z.object({ 'application/json': z.object({ schema: z.looseObject({}) }) }) })
    .optional(),
  security: z.array(z.looseObject({})).default([]),
});

/** One method of a path in the API's OpenAPI document. */
export interface Operation {
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: Readonly<Record<string, unknown>> | null;
  readonly takesKey: boolean;
}

/** All except signed ones, which are checked in another order (sync.test.ts). */
export function operationsOf(document: unknown): Operation[] {
  const isSigned = ({ security }: z.infer<typeof described>): boolean =>
    security.some((one) => 'Signature' in one);
  return Object.entries(documentOf(described).parse(document).paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, operation]) => !isSigned(operation))
      .map(([method, { parameters, requestBody, security }]) => ({
        method: method.toUpperCase(),
        path,
        parameters,
        body: requestBody?.content['application/json'].schema ?? null,
        takesKey: security.length === 0 || security.some((one) => 'ApiKey' in one),
      })),
  );
}

/** A value in a URL: encoded, or `raw`. */
export type Sent = string | { readonly raw: string };
export const urlOf = (sent: Sent): string => (typeof sent === 'string' ? encodeURIComponent(sent) : sent.raw);

/** Expected answers for one kind of parameter. */
interface Kind {
  /** Other spellings of the same value. */
  readonly same: (value: string) => readonly Sent[];
  /** Rejected with 400 and the name of the parameter. */
  readonly bad: (of: Schema) => readonly Sent[];
  /** Accepted with any meaning. */
  readonly lenient?: readonly Sent[];
  /** Answered 404 "Invalid page." */
  readonly noPage?: readonly Sent[];
}

const DELIVERY = '5f0f7f3e-3c36-4b59-9f0e-6f9a3c1d2e4b';
const LONG = 'a'.repeat(6000);
const raws = (...texts: readonly string[]): Sent[] => texts.map((raw) => ({ raw }));
/** NUL, invalid UTF-8, half a surrogate pair, an invalid escape, an incomplete character. */
const NO_TEXT = raws('%00', '%FF%FE', '%C0%80', '%ED%A0%80', '%', '%zz', '%E2%82');
const PRIME = '0x800000000000011000000000000000000000000000000000000000000000001';
const NO_ADDRESS: readonly Sent[] = [
  ..."0x;0xg;abc;1;-1;-0x1;null;0x1,0x2;0x1.5;0x 1;0x1';{};[];0x１".split(';'),
  `0x${'1'.repeat(65)}`,
  PRIME,
  `0x${'f'.repeat(64)}`,
  LONG,
  `0x${LONG}`,
  ...NO_TEXT,
  ...raws('0x1%00', '%000x1', '0x1%FF'),
];
const NO_INTEGER = 'x;1.0;1.5;1e3;0x10;NaN;Infinity;٣;1_000;1,000;--1;null;true'.split(';');
const NO_TIME = [
  'yesterday;now;1700000000;1700000000000;2026;2026-01;20260101;01/02/2026;null',
  '2026-13-01;2026-02-30;2025-02-29T00:00:00Z;0000-01-01;-2026-01-01;12026-01-01',
  '2026-01-01T24:00:01Z;2026-01-01T00:60:00Z;2026-01-01T00:00:00+25:00;2026-01-01T00:00:00Zjunk',
].flatMap((line) => line.split(';'));
const mixed = (hex: string): string =>
  `0x${hex.slice(2).replaceAll(/(.)(.)/g, (_, one: string, two: string) => one.toUpperCase() + two)}`;

export const kinds: Readonly<Record<string, Kind>> = {
  address: {
    same: (value) => [
      value.replace(/^0x0+/, '0x'),
      value.replace(/^0x0/, '0x'),
      value.toUpperCase().replace('0X', '0x'),
      value.toUpperCase(),
      mixed(value),
    ],
    bad: () => NO_ADDRESS,
  },
  integer: {
    same: (value) => [`+${value}`, `00${value}`, ` ${value} `],
    bad: ({ minimum, maximum }) => [
      ...NO_INTEGER,
      LONG,
      ...(minimum === undefined ? [] : [String(BigInt(minimum) - 1n), `-${'9'.repeat(400)}`]),
      ...(maximum === undefined ? [] : [String(BigInt(maximum) + 1n), '9'.repeat(400)]),
      ...NO_TEXT,
      ...raws('1%00'),
    ],
    // Without an upper bound it exceeds every height.
    lenient: ['4294967295', '9007199254740993', '9'.repeat(400)],
  },
  boolean: {
    same: (value) =>
      value === 'false' ? ['f', 'n', 'No', 'FALSE', 'off', '0'] : ['t', 'Y', 'YES', 'True', 'on', '1'],
    bad: () => ['maybe', '2', '-1', '00', 'tru', 'null', '[]', LONG, ...NO_TEXT, ...raws('true%00')],
  },
  time: {
    same: (value) => [
      value.replace('Z', '+00:00'),
      ...raws(value.replace('Z', '+00:00')),
      value.replace('Z', ''),
      value.replace('T', ' '),
      value.replace('Z', '.000000Z'),
      value.toLowerCase(),
    ],
    bad: () => [...NO_TIME, LONG, ...NO_TEXT, ...raws('2026-01-01%00')],
  },
  choice: { same: () => [], bad: () => ['x', '-1', '1 minute', 'null', '[]', LONG, ...NO_TEXT] },
  limit: {
    same: () => [],
    bad: () => [],
    lenient: ['0', '-1', 'x', '1.5', '101', '9'.repeat(400), ' 5 ', LONG, ...NO_TEXT],
  },
  page: {
    same: () => ['+1', '01', ' 1 '],
    bad: () => [],
    lenient: ['last'],
    noPage: ['0', '-1', 'x', '1.5', '1e3', 'LAST', 'null', '9'.repeat(15), '9'.repeat(400), LONG, ...NO_TEXT],
  },
  cursor: {
    same: () => [],
    bad: () => ['x', 'AQ', 'AQAAATwAAAAjAAAAALPch-iXhaEfAAAAAAAAAA', '=', LONG, ...NO_TEXT],
  },
  tokenId: {
    same: (value) => [`0x${BigInt(value).toString(16)}`, `0X${BigInt(value).toString(16).toUpperCase()}`],
    bad: () => [
      ...'x;-1;+1;1.0;1e3;0x;0xg;1_000;٣;null;true; 1;1,2'.split(';'),
      (1n << 256n).toString(),
      `0x1${'0'.repeat(64)}`,
      LONG,
      ...NO_TEXT,
    ],
  },
  host: {
    same: (value) => [
      value.toUpperCase(),
      `${value}.`,
      `${value}:8443`,
      `www.${value}`,
      `https://${value}/claim?x=1`,
      ` ${value} `,
    ],
    bad: () => [
      ...'a b;a..b;.a;*.a;a/b;a@b;0x7f.1;1.2.3.256;http://;[::1'.split(';'),
      `${'a'.repeat(64)}.example`,
      LONG,
      ...NO_TEXT,
      ...raws('a%00', '%FFa.example'),
    ],
  },
  position: {
    same: () => [],
    bad: () => ['x', '--', '1', '1-1', '1-1-', '1--1', '1-1-1-1', '1.1.1', LONG, ...NO_TEXT],
  },
  uuid: {
    same: (value) => [value.toUpperCase()],
    bad: () => ['x', '0', `{${DELIVERY}}`, `${DELIVERY}0`, DELIVERY.replaceAll('-', ''), LONG, ...NO_TEXT],
  },
  text: {
    same: () => [],
    bad: ({ minLength = 0, maxLength = 1000 }) => [
      'a'.repeat(maxLength + 1),
      ...(minLength > 1 ? ['a'.repeat(minLength - 1)] : []),
      ...raws('%00', 'a%00b'),
      LONG,
    ],
    lenient: ['%', '_', '\\', "'", '"', '🦀', '0x', ' ', '%_%', ...raws('%FF', '%ED%A0%80', '%')],
  },
};

export function kindOf({ name, schema: of }: Parameter): string {
  if (name === 'nft_token_id') return 'tokenId';
  if (of.pattern?.startsWith('^0[xX]') === true) return 'address';
  if (of.format === 'date-time') return 'time';
  if (of.format === 'uuid') return 'uuid';
  if (of.enum !== undefined) return 'choice';
  if (name === 'page' || name === 'limit' || name === 'cursor') return name;
  if (name === 'from') return 'cursor';
  if (name === 'page_size') return 'limit';
  if (name === 'domain') return 'host';
  if (name === 'since') return 'position';
  return of.type === 'string' ? 'text' : (of.type ?? 'unknown');
}

const END = '2023-11-15T00:00:00Z';

/** A valid value of every parameter on the small chain, by name. */
const good: Readonly<Record<string, string>> = {
  account: BOB,
  account_address: BOB,
  from_account: BOB,
  from_address: BOB,
  to_account: BOB,
  to_address: BOB,
  token: COIN,
  token_address: COIN,
  address: COIN,
  txhash: TX1,
  // Of no transfer: the small chain has no raw events.
  event_index: '9',
  search: BOB,
  block: '10',
  from_block: '10',
  to_block: '40',
  start_time: '2023-11-14T00:00:00Z',
  end_time: END,
  at_time: END,
  as_of_block: '40',
  // The hash of that block.
  as_of_hash: toFelt(0xb10c_0000n + 40n),
  order: 'asc',
  interval: '1 day',
  type: 'erc20',
  page: '1',
  limit: '10',
  max_age: '4000000000',
  // No observer runs: a forced read would wait for one.
  force_refresh: 'false',
  skip_zero: 'true',
  common: 'true',
  verified: 'true',
  public: 'true',
  hidden: 'true',
  cursor: '',
  page_size: '10',
  include_metadata: 'true',
  nft_token_id: '77',
  // Without an owner.
  id: '0',
  delivery_id: DELIVERY,
  ad_id: '0',
  status: 'dead',
  event: 'ping',
  // From the catalogue that the test has created.
  slug: 'one',
  category: 'one',
  placement: 'one',
  network: 'mainnet',
  tag: 'one',
  featured: 'true',
  q: 'one',
  account_type: 'one',
  domain: 'evil.example',
  since: '1-1-1',
  from: '0',
  finality: 'l1',
  wait: '0',
  format: 'csv',
  name: 'transfers-0-1.parquet',
  risk_level: 'high',
  active: 'true',
  wallet_address: BOB,
  wallet_type: 'braavos',
  is_verified: 'true',
  is_active: 'true',
  all: 'true',
  kind: 'event',
  contract: COIN,
  step: '1m',
};

/** Ids of what the test has created, by route. */
export const made = new Map<string, Readonly<Record<string, string>>>();

/** Values that a route gets besides the required ones, or instead. */
const besides: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  '/api/transfers/': { block: '10' },
  '/api/events/': { block: '10' },
  // The good times are years apart: more hours than an answer may have.
  '/api/tokens/{address}/stats/': { interval: '1 day' },
  '/api/stats/': { interval: '1 day' },
  '/api/stream/transfers/': { wait: '0' },
  '/api/export/transfers.{format}': { token: COIN, account: BOB },
  '/api/balance/': { token_address: NFT, max_age: '4000000000' },
  '/api/account-balances/': { max_age: '4000000000' },
  '/api/balance-history/': { token_address: NFT, end_time: END },
  '/api/portfolio/': { at_time: END },
  '/api/portfolio-history/': { end_time: END, interval: '1 day' },
  '/api/nft/metadata/': { token_address: NFT },
  '/api/nft/owner/': { token_address: NFT, nft_token_id: MAX.toString() },
  '/api/dapps/domains/': { status: 'blacklisted' },
  '/api/dapps/vendor-wallets/': { status: 'active' },
  '/api/price-history/': { end_time: END, interval: '1 day' },
};

/**
 * The status of routes with valid URL parameters that do not answer 200: there are no earlier prices, export files and raw
 * events, and no such key, webhook, ad, export, projection, quarantine entry or operation.
 */
export const statusOf = (path: string): number => {
  if (WANTS_BODY.has(path)) return 400;
  if (path === '/api/events/') return 409;
  if (['/api/price-at/', '/api/transfers/proof/'].includes(path) || path.includes('{name}')) return 404;
  return /\{(ad_)?id\}/.test(path) && !made.has(path) ? 404 : 200;
};

/** Routes with parameters that require a body. */
const WANTS_BODY: ReadonlySet<string> = new Set([
  '/api/balances/',
  '/api/dapps/vendor-wallets/{id}/update_activity/',
  '/api/webhooks/{id}/deliveries/retry/',
]);

/** A text that is looked up: unknown ones are answered 404. */
export const isLookedUp = ({ path }: Operation, { name, in: place }: Parameter): boolean =>
  place === 'path' || name === 'placement' || (path === '/api/events/' && ['block', 'txhash'].includes(name));

export function valueOf(path: string, name: string): string {
  const value = made.get(path)?.[name] ?? besides[path]?.[name] ?? good[name];
  if (value === undefined) throw new Error(`no good value of ${name} is known here, which ${path} takes`);
  return value;
}

/** Whether the route gets this parameter while another is tested. */
export const isGiven = ({ path }: Operation, { name, in: place, required }: Parameter): boolean =>
  place === 'query' && (required || besides[path]?.[name] !== undefined);

/** Parameters that a parameter goes with, and those that it contradicts. */
const REQUIRES: Readonly<Record<string, readonly string[]>> = { as_of_hash: ['as_of_block'] };
const CONTRADICTS: Readonly<Record<string, readonly string[]>> = {
  as_of_block: ['at_time'],
  txhash: ['block'],
  as_of_hash: ['at_time'],
};

/** The same with regard to the parameter that is tried. */
const isGivenWith = (operation: Operation, one: Parameter, tried: Parameter | null): boolean =>
  REQUIRES[tried?.name ?? '']?.includes(one.name) === true ||
  (isGiven(operation, one) && CONTRADICTS[tried?.name ?? '']?.includes(one.name) !== true);

/** The URL of a route with valid required parameters and these values of one parameter; null: without it. */
export function urlWith(
  operation: Operation,
  tried: Parameter | null,
  values: readonly Sent[] | null,
): string {
  let { path } = operation;
  const query: [string, Sent][] = [];
  for (const one of operation.parameters) {
    const isTried = one.name === tried?.name;
    if (one.in === 'path') {
      const [value] = isTried && values !== null ? values : [];
      path = path.replace(`{${one.name}}`, urlOf(value ?? valueOf(operation.path, one.name)));
    } else if (isTried) {
      for (const value of values ?? []) query.push([one.name, value]);
    } else if (isGivenWith(operation, one, tried)) {
      query.push([one.name, valueOf(operation.path, one.name)]);
    }
  }
  return `${path}?${query.map(([name, value]) => `${name}=${urlOf(value)}`).join('&')}`;
}
