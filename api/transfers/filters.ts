import { z } from 'zod';

import type { FeltFilter, TransferOrder } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { AsOf } from '../http/as-of.ts';
import { address, hash, limit, page, refuse, timestamp } from '../http/params.ts';
import { invalidInput } from '../http/errors.ts';

/** Parameters of which at least one is required. Height and time bounds only narrow these. */
export const allowedFilters = [
  'account',
  'account_address',
  'from_account',
  'from_address',
  'to_account',
  'to_address',
  'token',
  'token_address',
  'block',
  'txhash',
  'search',
] as const;

/** A height; one beyond any block is valid and matches nothing. */
export function height(description: string) {
  return z
    .string()
    .transform((text, context): number => {
      if (/^\s*\+?[0-9]{1,1000}\s*$/.test(text)) return Number(text);
      const isNegative = /^\s*-[0-9]{1,1000}\s*$/.test(text);
      return refuse(
        context,
        isNegative ? 'Ensure this value is greater than or equal to 0.' : 'A valid integer is required.',
      );
    })
    .meta({ description, override: { type: 'integer', minimum: 0 } });
}

const order = z
  .string()
  .transform((text, context): TransferOrder => {
    const word = text.trim().toLowerCase();
    if (word === 'desc' || word === 'asc') return word;
    return refuse(context, `"${text.slice(0, 100)}" is not a valid choice.`);
  })
  .meta({
    description: '`desc`, newest first (the default), or `asc`',
    override: { type: 'string', enum: ['desc', 'asc'], default: 'desc' },
  });

const alias = (of: string) => address(`Alias of \`${of}\``).optional();

/** The query of `GET /api/transfers/`. */
export const transfersQuery = z.object({
  account: address('Sender or recipient of the transfer').optional(),
  account_address: alias('account'),
  from_account: address('Sender of the transfer').optional(),
  from_address: alias('from_account'),
  to_account: address('Recipient of the transfer').optional(),
  to_address: alias('to_account'),
  token: address("The token's contract").optional(),
  token_address: alias('token'),
  block: height('Height of the block').optional(),
  txhash: hash().optional(),
  search: address(
    'An address or a hash in any 0x form; matches the sender, recipient, token or transaction hash',
  ).optional(),
  from_block: height('Lowest height, inclusive').optional(),
  to_block: height('Highest height, inclusive').optional(),
  start_time: timestamp('Earliest block time, inclusive').optional(),
  end_time: timestamp('Latest block time, inclusive').optional(),
  order: order.optional(),
  page: page(),
  limit: limit(),
  cursor: z.string().optional().meta({
    description:
      '`links.next_cursor` of a response with the same filters and order; takes precedence over `page`. Reaches the end at constant cost per page, and new transfers do not shift it; `count` may be that of the first page',
  }),
});
export type TransfersQuery = z.output<typeof transfersQuery>;

/** A search with its aliases resolved. */
export interface TransferSearch {
  readonly felts: Readonly<Partial<Record<FeltFilter, Felt>>>;
  readonly block: number | null;
  readonly fromBlock: number | null;
  readonly toBlock: number | null;
  /** Unix seconds, inclusive. */
  readonly startTime: number | null;
  readonly endTime: number | null;
  readonly order: TransferOrder;
  /** The block as of which to answer; null: the newest. */
  readonly asOf: AsOf | null;
}

/** Resolves aliases; throws 400 if no filter is given, two aliases differ, or a range is reversed. */
export function searchOf(query: TransfersQuery, asOf: AsOf | null = null): TransferSearch {
  const search = resolveSearch(query, ({ felts, block }) => {
    if (Object.keys(felts).length > 0 || block !== null) return;
    throw invalidInput(
      { non_field_errors: ['At least one filter is required.'] },
      { allowed_filters: [...allowedFilters] },
    );
  });
  return { ...search, asOf };
}

/** The same for any of its parameters. `assertBounded` throws 400 where the filters that are given do not suffice. */
export function resolveSearch(
  query: Partial<TransfersQuery>,
  assertBounded: (search: TransferSearch) => void,
): TransferSearch {
  const errors: Record<string, string[]> = {};
  const either = (name: keyof TransfersQuery, first?: Felt, second?: Felt): Felt | undefined => {
    if (first !== undefined && second !== undefined && first !== second) {
      errors[name] = ['This is another name of the same filter and differs from it.'];
    }
    return first ?? second;
  };
  const named: readonly (readonly [FeltFilter, Felt | undefined])[] = [
    ['account', either('account_address', query.account, query.account_address)],
    ['from', either('from_address', query.from_account, query.from_address)],
    ['to', either('to_address', query.to_account, query.to_address)],
    ['token', either('token_address', query.token, query.token_address)],
    ['txhash', query.txhash],
    ['search', query.search],
  ];
  const given = named.filter(([, felt]) => felt !== undefined);
  const search: TransferSearch = {
    felts: Object.fromEntries(given),
    block: query.block ?? null,
    fromBlock: query.from_block ?? null,
    toBlock: query.to_block ?? null,
    // Block times are whole seconds.
    startTime: query.start_time === undefined ? null : Math.ceil(query.start_time.getTime() / 1000),
    endTime: query.end_time === undefined ? null : Math.floor(query.end_time.getTime() / 1000),
    order: query.order ?? 'desc',
    asOf: null,
  };
  assertBounded(search);
  if (query.from_block !== undefined && query.to_block !== undefined && query.from_block > query.to_block) {
    errors['to_block'] = ['Ensure this value is greater than or equal to from_block.'];
  }
  if (query.start_time !== undefined && query.end_time !== undefined && query.start_time > query.end_time) {
    errors['end_time'] = ['Ensure this value is not before start_time.'];
  }
  if (Object.keys(errors).length > 0) throw invalidInput(errors);
  return search;
}

/** Identifies filters and order; a cursor is bound to it. */
export function searchKeyOf(search: TransferSearch): string {
  const felts = Object.entries(search.felts).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return JSON.stringify([
    felts,
    search.block,
    search.fromBlock,
    search.toBlock,
    search.startTime,
    search.endTime,
    search.order,
    // Cursors of other searches stay as they are.
    ...(search.asOf === null ? [] : [search.asOf.height, search.asOf.hash]),
  ]);
}
