import { createHash } from 'node:crypto';

import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { SimulatedNode } from '../starknet/node.ts';
import { hex } from '../truth.ts';
import type { Truth } from '../truth.ts';

/**
 * The expected content of every table of chain.blocks, computed from the transfers that the simulated node intended: these
 * were never events and passed no decoder, projector or store. A row is a line of text.
 */
export type Tables = Readonly<Record<string, readonly string[]>>;

const line = (...cells: readonly unknown[]): string => cells.map(String).join(' ');
const amountOf = ({ standard, amount }: Truth): bigint => (standard === 'erc721' ? 1n : amount);
const range = (height: number): number => Math.floor(height / 1024);

interface Moved {
  readonly delta: bigint;
  readonly legs: number;
}

function addTo(sums: Map<string, Moved>, key: string, more: Moved): void {
  const { delta, legs } = sums.get(key) ?? { delta: 0n, legs: 0 };
  sums.set(key, { delta: delta + more.delta, legs: legs + more.legs });
}

/** `chunkOf`: name of the chunk of a height. */
export function trueTables(
  node: Pick<SimulatedNode, 'ledger' | 'transfersAt' | 'malformedAt'>,
  chunkOf: (height: number) => string,
): Tables {
  const tables = {
    transfers: [] as string[],
    nft_transfers: [] as string[],
    nft_moves: [] as string[],
    nft_places: [] as string[],
    account_feed: [] as string[],
    account_ledger: [] as string[],
    account_ledger_by_block: [] as string[],
    account_ledger_ranges: [] as string[],
    tx_index: [] as string[],
    indexed_blocks: [] as string[],
    indexed_block_ranges: [] as string[],
    transfer_counts_by_block: [] as string[],
    transfer_counts: [] as string[],
  };
  const counts = new Map<string, number>();
  const ranges = new Map<string, { blocks: number; transfers: number; first: number; last: number }>();
  const latest = new Map<string, number>();
  const ledgerRanges = new Map<string, Moved>();

  for (let height = 0; height <= node.ledger.head(); height += 1) {
    const block = node.ledger.at(height);
    if (block === null) continue;
    const time = block.header['timestamp'];
    const blockHash = hex(BigInt(block.hash));
    const inBlock = new Map<string, number>();
    const pairs = new Map<string, Moved>();
    const byTx = Map.groupBy(block.transfers, ({ txHash }) => txHash);
    for (const row of block.transfers) {
      const [token, from, to, hash] = [hex(row.token), hex(row.from), hex(row.to), hex(BigInt(row.txHash))];
      const place = line(height, row.position, row.item);
      const id = row.tokenId ?? 0n;
      const status = row.reverted ? 'REVERTED' : 'SUCCEEDED';
      const what = line(token, from, to, row.standard, amountOf(row), id, hash);
      const wide = line(
        what,
        row.eventIndex,
        time,
        row.fee,
        hex(row.feeToken),
        row.isFee ? 1 : 0,
        status,
        blockHash,
      );
      tables.transfers.push(line(place, wide));
      if (row.tokenId !== null) tables.nft_transfers.push(line(place, what, time));
      const sides =
        from === to
          ? [[from, 3]]
          : [
              [from, 1],
              [to, 2],
            ];
      if (row.tokenId !== null) {
        const nft = nftNumber(token, row.tokenId);
        tables.nft_places.push(line(nft, place));
        for (const [account, leg] of sides.filter(([one]) => one !== hex(0n)))
          tables.nft_moves.push(line(account, token, row.tokenId, place, leg, row.standard, nft));
      }
      for (const [account, leg] of sides) tables.account_feed.push(line(account, leg, place, wide));
      // The number of an unknown contract may be an amount or an id, so it is in no balance.
      const isCounted = row.standard !== 'unknown';
      const legs = isCounted
        ? [
            [from, 1, -amountOf(row)],
            [to, 2, amountOf(row)],
          ]
        : [];
      for (const [account, leg, delta] of legs) {
        addTo(pairs, `${String(account)} ${token}`, { delta: BigInt(delta ?? 0), legs: 1 });
        tables.account_ledger.push(line(account, token, place, leg, delta, row.standard, id, time, hash));
      }
      for (const subject of [`1 ${token}`, ...sides.map(([account]) => `2 ${account}`)]) {
        inBlock.set(subject, (inBlock.get(subject) ?? 0) + 1);
      }
    }
    for (const [hash, rows] of byTx) {
      const lists = [
        rows.map(({ token }) => hex(token)),
        rows.map(({ position }) => position),
        rows.map(({ item }) => item),
      ];
      tables.tx_index.push(line(hex(BigInt(hash)), height, time, ...lists));
    }
    for (const [pair, moved] of pairs) {
      const signed = BigInt.asIntN(256, moved.delta);
      tables.account_ledger_by_block.push(line(range(height), pair, height, signed, moved.legs));
      addTo(ledgerRanges, `${pair} ${range(height)}`, moved);
    }
    for (const [subject, count] of inBlock) {
      tables.transfer_counts_by_block.push(line(range(height), subject, height, count));
      const total = `${subject} ${range(height)}`;
      counts.set(total, (counts.get(total) ?? 0) + count);
    }
    const events = block.txs.reduce((sum, tx) => sum + tx.events.length, 0);
    const tokens = [...new Set(block.transfers.map(({ token }) => hex(token)))].toSorted();
    const numbers = [block.txs.length, events, block.transfers.length, block.malformed.length];
    const chunk = chunkOf(height);
    tables.indexed_blocks.push(
      line(height, blockHash, hex(BigInt(block.parentHash)), time, chunk, ...numbers, tokens),
    );
    const key = `${chunk} ${range(height)}`;
    const known = ranges.get(key) ?? { blocks: 0, transfers: 0, first: height, last: height };
    const transfers = known.transfers + block.transfers.length;
    ranges.set(key, { blocks: known.blocks + 1, transfers, first: known.first, last: height });
    if (block.transfers.length > 0) latest.set(key, height);
  }
  for (const [place, { delta, legs }] of ledgerRanges) {
    tables.account_ledger_ranges.push(line(place, BigInt.asIntN(256, delta), legs));
  }
  for (const [total, count] of counts) tables.transfer_counts.push(line(total, count));
  for (const [key, { blocks, transfers, first, last }] of ranges) {
    tables.indexed_block_ranges.push(
      line(key, blocks, transfers, first, last, latest.get(key) ?? 0xffff_ffff),
    );
  }
  return tables;
}

/** The expression of table.sql and the projector. */
export function nftNumber(token: string, id: bigint): bigint {
  const half = (text: string): bigint =>
    BigInt(`0x${createHash('sha256').update(text).digest('hex')}`) >> 128n;
  const isWide = id >= 2n ** 127n;
  return half(token) * 2n ** 128n + (isWide ? 2n ** 127n + half(id.toString(16)) / 2n : id);
}

const felt = (column: string): string => `concat('0x', lower(hex(${column})))`;
const ascending = (column: string): string => `toString(0xffffffff - ${column})`;
const place = [ascending('block_desc'), ascending('position_desc'), ascending('item_desc')];
const what = [
  felt('token'),
  felt('from_address'),
  felt('to_address'),
  'kind',
  'amount',
  'token_id',
  felt('tx_hash'),
];
const wide = [
  ...what,
  'event_in_tx',
  'timestamp',
  'fee',
  felt('fee_unit'),
  'is_fee',
  'execution_status',
  felt('block_hash'),
];
const felts = (column: string): string => `arrayStringConcat(arrayMap(x -> ${felt('x')}, ${column}), ',')`;
const list = (column: string): string => `arrayStringConcat(arrayMap(x -> toString(x), ${column}), ',')`;

/** The same lines, selected from ClickHouse. */
const columns: Readonly<Record<string, readonly string[]>> = {
  transfers: [...place, ...wide],
  nft_transfers: [...place, ...what, 'timestamp'],
  nft_moves: [felt('account'), felt('token'), 'token_id', ...place, 'leg', 'kind', 'nft'],
  nft_places: ['nft', ...place],
  account_feed: [felt('account'), 'leg', ...place, ...wide],
  account_ledger: [
    felt('account'),
    felt('token'),
    ...place,
    'leg',
    'delta',
    'kind',
    'token_id',
    'timestamp',
    felt('tx_hash'),
  ],
  account_ledger_by_block: ['range', felt('account'), felt('token'), 'block', 'delta', 'legs'],
  account_ledger_ranges: [felt('account'), felt('token'), 'range', 'delta', 'legs'],
  tx_index: [
    felt('tx_hash'),
    ascending('block_desc'),
    'timestamp',
    felts('tokens'),
    list('positions'),
    list('items'),
  ],
  indexed_blocks: [
    ascending('block_desc'),
    felt('block_hash'),
    felt('parent_hash'),
    'timestamp',
    'chunk',
    'transactions',
    'events',
    'transfers',
    'malformed',
    felts('arraySort(tokens)'),
  ],
  indexed_block_ranges: [
    'chunk',
    'range',
    'blocks',
    'transfers',
    'first_block',
    'last_block',
    'latest_transfer_block',
  ],
  transfer_counts_by_block: ['range', 'subject_kind', felt('subject'), 'block', 'transfers'],
  transfer_counts: ['subject_kind', felt('subject'), 'range', 'transfers'],
};

/** Missing rows, unexpected rows, and tokens whose deltas do not sum to zero. Empty if the tables are correct. */
export async function tableDifferences(
  clickhouse: ClickHouse,
  expected: Tables,
  realName: (table: string) => string,
): Promise<string[]> {
  const found: string[] = [];
  for (const [table, cells] of Object.entries(columns)) {
    const text = cells.map((cell) => `toString(${cell})`).join(", ' ', ");
    const rows = await clickhouse.rows({
      name: 'test.table',
      sql: `SELECT concat(${text}) AS line FROM ${realName(table)} FINAL`,
      row: z.object({ line: z.string() }),
    });
    found.push(
      ...compare(
        table,
        expected[table] ?? [],
        rows.map((row) => row.line),
      ),
    );
  }
  const unbalanced = await clickhouse.rows({
    name: 'test.conservation',
    sql: `SELECT ${felt('token')} AS token, toString(sum(delta)) AS sum FROM ${realName('account_ledger')} FINAL
          GROUP BY token HAVING sum(delta) != 0`,
    row: z.object({ token: z.string(), sum: z.string() }),
  });
  found.push(...unbalanced.map(({ token, sum }) => `account_ledger: the deltas of ${token} sum to ${sum}`));
  return found;
}

const SHOWN = 5;

export function compare(name: string, expected: readonly string[], rows: readonly string[]): string[] {
  const left = new Map<string, number>();
  for (const one of expected) left.set(one, (left.get(one) ?? 0) + 1);
  const extra = rows.filter((row) => {
    const count = left.get(row) ?? 0;
    left.set(row, count - 1);
    return count <= 0;
  });
  const missing = [...left].filter(([, count]) => count > 0).map(([row]) => row);
  if (missing.length === 0 && extra.length === 0) return [];
  return [
    `${name}: ${expected.length} rows expected, ${rows.length} found; ${missing.length} missing, ${extra.length} unexpected`,
    ...missing.slice(0, SHOWN).map((row) => `${name} misses: ${row}`),
    ...extra.slice(0, SHOWN).map((row) => `${name} unexpected: ${row}`),
  ];
}
