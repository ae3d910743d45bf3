import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { eventCheck } from '../../schemas/messages/chain-blocks.ts';
import type { SimTable } from './sim-table.ts';

/*
 * The `derive` statements in TypeScript, on the simulated base tables, because the simulation runs no SQL. That ClickHouse
 * computes the same is tested in test/integration/projections. Simulated is when they read and write, and with which
 * version.
 */

type Table = (name: string) => SimTable;
type Pick = (equal: number) => number;

const MAX_UINT32 = 0xffff_ffff;

/** The rows that the statement for this table inserts; throws for a table that is not implemented here. */
export function deriveRows(
  name: string,
  params: Readonly<Record<string, unknown>>,
  table: Table,
  pick: Pick,
): Row[] {
  const [, stem = '', version = ''] = /^([a-z_]+)(_v\d+_b\d+)$/.exec(name) ?? [];
  const numbers = (key: string): number => Number(params[key]);
  switch (stem) {
    case 'transfer_counts':
      return countSubjects(table(`transfer_counts_by_block${version}`).latest(pick), numbers);
    case 'account_ledger_ranges':
      return sumPairs(table(`account_ledger_by_block${version}`).latest(pick), numbers);
    case 'indexed_block_ranges':
      return countBlocks(table(`indexed_blocks${version}`).final(), table(name).final(), numbers);
    default:
      throw new TypeError(`no simulated derive statement for ${name}`);
  }
}

function countSubjects(base: readonly Row[], param: (key: string) => number): Row[] {
  const [range, first, last, offset] = [param('range'), param('first'), param('last'), param('offset')];
  const subjectOf = (row: Row): string => `${String(row['subject_kind'])}|${String(row['subject'])}`;
  const inRange = base.filter((row) => row['range'] === range);
  const touched = new Set(
    inRange.filter((row) => Number(row['block']) >= first && Number(row['block']) <= last).map(subjectOf),
  );
  const bySubject = Map.groupBy(
    inRange.filter((row) => touched.has(subjectOf(row))),
    subjectOf,
  );
  return [...bySubject.values()].map((rows) => {
    const total = rows.reduce(
      (sum, row) => sum + (row['is_deleted'] === 1 ? 0 : Number(row['transfers'])),
      0,
    );
    return {
      subject_kind: rows[0]?.['subject_kind'] ?? 0,
      subject: rows[0]?.['subject'] ?? '',
      range,
      transfers: total,
      seq: offset,
      is_deleted: total === 0 ? 1 : 0,
    };
  });
}

function sumPairs(base: readonly Row[], param: (key: string) => number): Row[] {
  const [range, first, last, offset] = [param('range'), param('first'), param('last'), param('offset')];
  const pairOf = (row: Row): string => `${String(row['account'])}|${String(row['token'])}`;
  const inRange = base.filter((row) => row['range'] === range);
  const touched = new Set(
    inRange.filter((row) => Number(row['block']) >= first && Number(row['block']) <= last).map(pairOf),
  );
  const byPair = Map.groupBy(
    inRange.filter((row) => touched.has(pairOf(row))),
    pairOf,
  );
  return [...byPair.values()].map((rows) => {
    const alive = rows.filter((row) => row['is_deleted'] === 0);
    const legs = alive.reduce((sum, row) => sum + Number(row['legs']), 0);
    const delta = alive.reduce((sum, row) => sum + BigInt(String(row['delta'])), 0n);
    return {
      account: rows[0]?.['account'] ?? '',
      token: rows[0]?.['token'] ?? '',
      range,
      delta: BigInt.asIntN(256, delta),
      legs,
      seq: offset,
      is_deleted: legs === 0 ? 1 : 0,
    };
  });
}

function countBlocks(
  blocks: readonly Row[],
  previous: readonly Row[],
  param: (key: string) => number,
): Row[] {
  const [range, newest, oldest, offset] = [
    param('range'),
    param('newest_desc'),
    param('oldest_desc'),
    param('offset'),
  ];
  const inRange = blocks.filter(
    (row) => Number(row['block_desc']) >= newest && Number(row['block_desc']) <= oldest,
  );
  const byChunk = Map.groupBy(inRange, (row) => String(row['chunk']));
  const existing = previous.filter((row) => row['range'] === range).map((row) => String(row['chunk']));
  return [...new Set([...byChunk.keys(), ...existing])].map((chunk) => {
    const rows = byChunk.get(chunk) ?? [];
    const heights = rows.map((row) => MAX_UINT32 - Number(row['block_desc']));
    const withTransfers = rows.filter((row) => Number(row['transfers']) > 0);
    return {
      chunk,
      range,
      blocks: rows.length,
      transfers: rows.reduce((sum, row) => sum + Number(row['transfers']), 0),
      ...Object.fromEntries(
        eventCheck.options.map((outcome) => [
          outcome,
          rows.filter((row) => row['event_check'] === outcome).length,
        ]),
      ),
      first_block: rows.length === 0 ? 0 : Math.min(...heights),
      last_block: rows.length === 0 ? 0 : Math.max(...heights),
      latest_transfer_block:
        withTransfers.length === 0
          ? MAX_UINT32
          : Math.max(...withTransfers.map((row) => MAX_UINT32 - Number(row['block_desc']))),
      seq: offset,
      is_deleted: rows.length === 0 ? 1 : 0,
    };
  });
}
