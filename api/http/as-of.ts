import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import { newestBlock, settledBlockAt } from '../../projections/indexed-blocks/queries.ts';
import type { VersionedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { MAX_HEIGHT } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { HttpError, invalidInput, notFound, refuseParameters, unavailable } from './errors.ts';
import { hash, integer } from './params.ts';

/** The block as of which a request is answered. */
export type AsOf = VersionedBlock;

/** Parameters of every route that answers as of a block. */
export const asOfParameters = z.object({
  as_of_block: integer({
    min: 0,
    description:
      'Height of an indexed block: the answer as it was when that block was the newest; every `status` is ACCEPTED_ON_L2, and names, symbols, decimals and flags of tokens are those known now',
  }).optional(),
  as_of_hash: hash(
    'Hash of the block at `as_of_block`; 409 with code `reverted_block` and `canonical_hash` if another block is there',
  ).optional(),
});

/** Why a route of prices, or of what is learned about tokens, cannot answer as of a block. */
export const BY_TIME = 'The data of this route is stored by time, not by block.';

/** A block that the client asks for; the hash is optional. */
interface AskedBlock {
  readonly height: number;
  readonly hash: Felt | undefined;
}

/** The block of a query that `asOfParameters` accepts; null without one. */
export function askedBlock(query: unknown): AskedBlock | null {
  const { as_of_block: height, as_of_hash: sent } = asOfParameters.parse(query);
  if (height !== undefined) return { height, hash: sent };
  if (sent === undefined) return null;
  throw invalidInput({ as_of_hash: ['as_of_block is required with it.'] });
}

/** The query as sent for the links of a list, with the hash of the block: they answer 409 once it is reverted. */
export function linkQuery(
  query: Readonly<Record<string, string>>,
  asOf: AsOf | null,
): Readonly<Record<string, string>> {
  return asOf === null ? query : { ...query, as_of_hash: asOf.hash };
}

/** Throws 400 where a query or a body asks a route for an answer that it cannot give. */
export function refuseAsOf(query: Readonly<Record<string, unknown>>, reason: string): void {
  refuseParameters(query, Object.keys(asOfParameters.shape), reason);
}

/**
 * The indexed block that a client asks for.
 *
 * @throws 400 above the newest block, 404 where none is indexed, 409 where the chain has another block at its height, 503 while
 *   the blocks up to it are not of one chain
 */
export async function findAsOf(
  clickhouse: RowReader,
  served: ServedBuilds,
  asked: AskedBlock,
): Promise<AsOf> {
  const block = await indexedBlock(clickhouse, served, asked.height);
  if (asked.hash !== undefined && asked.hash !== block.hash) throw reverted(asked.height, block.hash);
  return block;
}

async function indexedBlock(clickhouse: RowReader, served: ServedBuilds, height: number): Promise<AsOf> {
  const find = async (): Promise<AsOf | null> => {
    if (height > MAX_HEIGHT) return null;
    const { block, isSettled } = await settledBlockAt(clickhouse, served, height);
    if (block !== null && !isSettled) throw unsettled(height);
    return block;
  };
  const found = await find();
  if (found !== null) return found;
  const newest = await newestBlock(clickhouse, served);
  if (newest !== null && height > newest.height)
    throw invalidInput({ as_of_block: [`The newest indexed block is ${newest.height}.`] });
  // It may have been indexed since.
  const late = newest === null ? null : await find();
  if (late === null) throw notFound(`Block ${height} is not indexed.`);
  return late;
}

/**
 * Throws if the block was reverted while the answer was read, even if it has come back since: the answer may be of two
 * chains.
 */
export async function confirmAsOf(
  clickhouse: RowReader,
  served: ServedBuilds,
  block: AsOf,
  asked: AskedBlock,
): Promise<void> {
  const { block: now, isSettled } = await settledBlockAt(clickhouse, served, block.height);
  if (isSettled && now?.hash === block.hash && now.seq === block.seq) return;
  if (asked.hash !== undefined && now !== null && now.hash !== asked.hash)
    throw reverted(block.height, now.hash);
  throw unsettled(block.height);
}

function unsettled(height: number): HttpError {
  return unavailable('unsettled', `The chain up to block ${height} is being reorganised.`, 1);
}

function reverted(height: number, canonical: Felt): HttpError {
  return new HttpError(409, 'reverted_block', `The chain has another block at height ${height}.`, {
    extra: { canonical_hash: canonical },
  });
}
