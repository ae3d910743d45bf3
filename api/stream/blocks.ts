import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { linkedBlocks } from '../../projections/indexed-blocks/queries.ts';
import type { LinkedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import { versionedTransfers, versionsOfAll } from '../../projections/transfers/queries.ts';
import type { StoredTransfer, VersionedTransfer } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { transferJson } from '../transfers/present.ts';
import type { TokenTexts } from '../transfers/present.ts';
import type { VersionedSourceIn } from '../transfers/versioned-source.ts';

/** Which transfers a stream has: those that have all of these. `account` is the sender or the recipient. */
export type StreamFilter = Readonly<Partial<Record<'token' | 'account' | 'from' | 'to', Felt>>>;

/** A transfer of a block, with the JSON that a message of it has as its data. */
export interface StreamedTransfer {
  readonly row: StoredTransfer;
  json(isOnL1: boolean): string;
}

/** An indexed block with those of its transfers that were asked for, in their order. */
export interface StreamedBlock {
  readonly block: LinkedBlock;
  readonly transfers: readonly StreamedTransfer[];
}

export interface BlockReading {
  readonly clickhouse: RowReader;
  readonly pool: Sql;
  readonly served: ServedBuilds;
}

export type Heights = { readonly from: number; readonly to: number };

/** The transfers to read. */
export interface Wanted {
  readonly filter: StreamFilter;
  readonly source: VersionedSourceIn;
}

/** Rows of a read of several blocks. */
const MAX_ROWS = 20_000;
const NO_LIMIT = 0xffff_ffff;

/**
 * The blocks of consecutive heights from the first of `heights`, each the parent of the next, with their transfers. It ends
 * before the first height that is not indexed or is just being reverted or indexed again, so that it may be empty: a block
 * that is returned has all its transfers, and none of another block. It also ends where there are many rows.
 */
export async function readBlocks(
  reading: BlockReading,
  wanted: Wanted,
  heights: Heights,
): Promise<StreamedBlock[]> {
  const blocks = linkedPrefix(await linkedBlocks(reading.clickhouse, reading.served, heights), heights.from);
  const rows = await readRows(reading, wanted, blocks, MAX_ROWS + 1);
  const last = rows[MAX_ROWS];
  if (last === undefined) return await settle(reading, wanted, blocks, rows);
  // The last block may have more rows than were read.
  const whole = blocks.filter(({ height }) => height < last.transfer.block);
  if (whole.length === 0) return await withTransfers(reading, wanted, blocks.slice(0, 1));
  return await settle(reading, wanted, whole, rows);
}

/** The same for blocks that were read, each the parent of the next. Their rows were inserted before they could be read. */
async function withTransfers(
  reading: BlockReading,
  wanted: Wanted,
  blocks: readonly LinkedBlock[],
): Promise<StreamedBlock[]> {
  return await settle(reading, wanted, blocks, await readRows(reading, wanted, blocks, NO_LIMIT));
}

/** All transfers at some heights, read beside the blocks there. */
export interface RowsAhead {
  readonly heights: Heights;
  readonly rows: readonly VersionedTransfer[];
}

const everything: Wanted = { filter: {}, source: versionsOfAll };

/** null: there are more than `most`. */
export async function readAhead(
  reading: Pick<BlockReading, 'clickhouse' | 'served'>,
  heights: Heights,
  most: number,
): Promise<RowsAhead | null> {
  // Without filters no version is compared.
  const rows = await rowsAt(reading, everything, heights, { seqs: [], limit: most + 1 });
  return rows.length > most ? null : { heights, rows };
}

/** `withTransfers` of blocks whose transfers may have been read ahead. Rows that were read too early are read again. */
export async function withAllTransfers(
  reading: BlockReading,
  blocks: readonly LinkedBlock[],
  ahead: RowsAhead | null,
): Promise<StreamedBlock[]> {
  if (ahead !== null && blocks.every(({ height }) => isWithin(ahead.heights, height))) {
    // Those of another version are missing then, which the number of a block's transfers shows.
    const seqs = new Map(blocks.map(({ height, seq }) => [height, seq]));
    const rows = ahead.rows.filter(({ transfer, seq }) => seqs.get(transfer.block) === seq);
    const whole = await settle(reading, everything, blocks, rows);
    if (whole.length === blocks.length) return whole;
  }
  return await withTransfers(reading, everything, blocks);
}

const isWithin = ({ from, to }: Heights, height: number): boolean => height >= from && height <= to;

async function readRows(
  reading: BlockReading,
  wanted: Wanted,
  blocks: readonly LinkedBlock[],
  limit: number,
): Promise<VersionedTransfer[]> {
  const [first, last] = [blocks[0], blocks.at(-1)];
  if (first === undefined || last === undefined) return [];
  const seqs = blocks.map(({ seq }) => seq);
  return await rowsAt(reading, wanted, { from: first.height, to: last.height }, { seqs, limit });
}

async function rowsAt(
  { clickhouse, served }: Pick<BlockReading, 'clickhouse' | 'served'>,
  { filter, source }: Wanted,
  { from, to }: Heights,
  options: Parameters<typeof versionedTransfers>[2],
): Promise<VersionedTransfer[]> {
  const { query, params } = versionedTransfers(source(served), { felts: filter, lo: from, hi: to }, options);
  return await clickhouse.rows(query, params, {
    settings: { max_result_rows: 0, max_threads: 1, select_sequential_consistency: 1 },
  });
}

/** The blocks before the first one that is being reverted or indexed again, each with its rows. */
async function settle(
  { pool, served }: BlockReading,
  { filter }: Wanted,
  blocks: readonly LinkedBlock[],
  rows: readonly VersionedTransfer[],
): Promise<StreamedBlock[]> {
  const byHeight = Map.groupBy(rows, ({ transfer }) => transfer.block);
  const isAll = Object.keys(filter).length === 0;
  const whole = blocks.map((block) => ({
    block,
    rows: currentRows(block, byHeight.get(block.height) ?? [], isAll),
  }));
  const end = whole.findIndex(({ rows: found }) => found === null);
  const settled = end < 0 ? whole : whole.slice(0, end);
  const tokens = await tokensByAddress(
    pool,
    served.schema('tokens'),
    settled.flatMap(({ rows: found }) => (found ?? []).map(({ transfer }) => transfer.token)),
  );
  const texts = new Map([...tokens].map(([token, row]) => [token, jsonTexts(row)]));
  return settled.map(({ block, rows: found }) => ({
    block,
    transfers: (found ?? []).map(({ transfer }) =>
      createStreamedTransfer(transfer, texts.get(transfer.token) ?? NO_TEXTS, block.hash),
    ),
  }));
}

/** Consecutive heights from the first one, each the parent of the next. */
function linkedPrefix(blocks: readonly LinkedBlock[], first: number): readonly LinkedBlock[] {
  const end = blocks.findIndex(
    ({ height, parent }, i) => height !== first + i || (i > 0 && parent !== blocks[i - 1]?.hash),
  );
  return end < 0 ? blocks : blocks.slice(0, end);
}

/**
 * The rows that belong to a block; null: some are of a newer version, so the block is being reverted. Without a filter
 * the count shows that rows are missing; with one, a missing row has a newer version in the same place.
 */
function currentRows(
  { hash, seq, transfers }: LinkedBlock,
  rows: readonly VersionedTransfer[],
  isAll: boolean,
): readonly VersionedTransfer[] | null {
  if (rows.some((row) => row.seq > seq)) return null;
  const current = rows.filter((row) => !row.isDeleted && row.block_hash === hash);
  return isAll && current.length !== transfers ? null : current;
}

/** The texts of a token as JSON. */
const jsonTexts = ({ symbol, name, decimals }: TokenTexts) => ({
  symbol: JSON.stringify(symbol ?? ''),
  name: JSON.stringify(name ?? ''),
  decimals,
});
const NO_TEXTS = jsonTexts({ symbol: null, name: null, decimals: null });

const createStreamedTransfer = (
  row: StoredTransfer,
  token: ReturnType<typeof jsonTexts>,
  blockHash: Felt,
): StreamedTransfer => ({
  row,
  json: (isOnL1) => transferJson(row, token, { l1Height: isOnL1 ? row.block : null, blockHash }),
});

/** Whether a stream with this filter has a transfer. */
export function isMatch({ token, account, from, to }: StreamFilter, row: StoredTransfer): boolean {
  return (
    (token === undefined || row.token === token) &&
    (from === undefined || row.from === from) &&
    (to === undefined || row.to === to) &&
    (account === undefined || row.from === account || row.to === account)
  );
}
