import { z } from 'zod';

import type { Params, RowReader } from '../../../infra/clickhouse/client.ts';
import { eventCheck } from '../../../schemas/messages/chain-blocks.ts';
import type { EventCheck } from '../../../schemas/messages/chain-blocks.ts';
import { CHAIN_BLOCKS_PARTITIONS, HEIGHT_RANGE } from '../../../schemas/topics.ts';
import type { Heights } from '../compare.ts';
import { NAMED } from './difference.ts';
import type { Difference } from './difference.ts';
import { NO_COUNT } from './facts.ts';
import type { Scratch } from './scratch.ts';
import { feltSql } from '../../sql-terms.ts';

/**
 * Of every block, with each contracts map that it was published with, the newest message; only those that accept it.
 */
const inForce = (facts: string): string => `(
  SELECT height, hash, contracts, argMax(accepted, seq) AS alive, argMax(parent_hash, seq) AS parent,
    argMax(transactions, seq) AS in_body, argMax(events, seq) AS events_in_body,
    argMax(header_transactions, seq) AS in_header, argMax(header_events, seq) AS events_in_header,
    argMax(event_check, seq) AS outcome
  FROM ${facts} GROUP BY height, hash, contracts HAVING alive = 1)`;

const foundRow = z.object({ height: z.number(), last: z.number(), detail: z.string() });

/** SQL of rows `{ height, last, detail }`; `reread`: the ingester must read these blocks from the node again. */
type LogCheck = [name: string, reread: boolean, sql: string, params?: Params];

/** Checks that the log has one block at each height, linked, complete, and in its partition. */
function logChecks(facts: string, expected: readonly Heights[]): LogCheck[] {
  const log = inForce(facts);
  return [
    [
      'log.two-blocks',
      false,
      `SELECT height, height AS last, concat('two blocks are accepted: ', arrayStringConcat(groupArray(${feltSql('hash')}), ', ')) AS detail
       FROM ${log} GROUP BY height HAVING count() > 1`,
    ],
    [
      'log.seq',
      false,
      `SELECT height, height AS last, concat('two messages share seq ', toString(seq)) AS detail
       FROM ${facts} GROUP BY height, seq HAVING uniqExact(accepted, hash, contracts) > 1`,
    ],
    [
      'log.partition',
      false,
      `SELECT height, height AS last, concat('a message lies in partition ', toString(any(log_partition))) AS detail
       FROM ${facts} WHERE log_partition != intDiv(height, ${HEIGHT_RANGE}) % ${CHAIN_BLOCKS_PARTITIONS} GROUP BY height`,
    ],
    [
      'log.counts',
      true,
      `SELECT height, height AS last, concat('the header counts ', toString(in_header), ' transactions and ',
         toString(events_in_header), ' events, the body holds ', toString(in_body), ' and ', toString(events_in_body)) AS detail
       FROM ${log} WHERE (in_header != ${NO_COUNT} AND in_header != in_body)
         OR (events_in_header != ${NO_COUNT} AND events_in_header != events_in_body)`,
    ],
    [
      'log.commitments',
      true,
      `SELECT height, height AS last, 'its events do not match the event commitment in its header' AS detail
       FROM ${log} WHERE outcome = 'mismatched'`,
    ],
    [
      'log.links',
      false,
      `SELECT height, height AS last, concat('names a parent that is not accepted below it: ', ${feltSql('parent')}) AS detail
       FROM ${log} WHERE height > 0 AND height - 1 IN (SELECT height FROM ${log})
         AND (toUInt32(height - 1), parent) NOT IN (SELECT height, hash FROM ${log})`,
    ],
    ...expected
      .filter(({ from, to }) => from <= to)
      .map(({ from, to }): LogCheck => [
        'log.gaps',
        true,
        // Runs of missing heights: consecutive ones have the same difference of height and rank.
        `SELECT min(missing) AS height, max(missing) AS last, 'no block is accepted' AS detail
         FROM (SELECT missing, missing - row_number() OVER (ORDER BY missing) AS run FROM (
           SELECT toInt64(number) AS missing FROM numbers({from:UInt32}, {count:UInt32})
           WHERE number NOT IN (SELECT height FROM ${log})))
         GROUP BY run`,
        { from, count: to - from + 1 },
      ]),
  ];
}

export async function logDifferences(
  clickhouse: RowReader,
  scratch: Scratch,
  expected: readonly Heights[],
): Promise<Difference[]> {
  const differences: Difference[] = [];
  for (const [name, reread, sql, params] of logChecks(scratch.facts.table, expected)) {
    const query = {
      name,
      sql: `SELECT toUInt32(height) AS height, toUInt32(last) AS last, detail FROM (${sql}) ORDER BY height LIMIT ${NAMED}`,
      row: foundRow,
    };
    for (const { height, last, detail } of await clickhouse.rows(query, params)) {
      const at = height === last ? `block ${height}` : `blocks ${height} to ${last}`;
      differences.push({
        kind: 'log',
        what: `${at} of the log: ${detail}`,
        heights: { from: height, to: last },
        reread,
      });
    }
  }
  return differences;
}

const outcomeRow = z.object({ outcome: eventCheck, blocks: z.coerce.number() });

/** How many blocks have each outcome of the comparison with their event commitment. */
export async function commitmentOutcomes(
  clickhouse: RowReader,
  scratch: Scratch,
): Promise<Readonly<Record<EventCheck, number>>> {
  const sql = `SELECT outcome, count() AS blocks FROM ${inForce(scratch.facts.table)} GROUP BY outcome`;
  const rows = await clickhouse.rows({ name: 'verify.commitments', sql, row: outcomeRow });
  const found = new Map(rows.map(({ outcome, blocks }) => [outcome, blocks]));
  return {
    verified: found.get('verified') ?? 0,
    old_version: found.get('old_version') ?? 0,
    no_commitment: found.get('no_commitment') ?? 0,
    mismatched: found.get('mismatched') ?? 0,
  };
}

const blockRow = z.object({
  height: z.number(),
  hash: z.string(),
  transactions: z.number(),
  events: z.number(),
  is_counted: z.number(),
});
export type LogBlock = z.infer<typeof blockRow>;

const PAGE = 1000;

/** The accepted blocks, lowest first. */
export async function* logBlocks(
  clickhouse: RowReader,
  scratch: Scratch,
  onlyUncounted: boolean,
): AsyncGenerator<LogBlock> {
  for (let above = -1; ;) {
    const query = {
      name: 'verify.blocks',
      sql: `SELECT height, ${feltSql('hash')} AS hash, in_body AS transactions, events_in_body AS events,
          in_header != ${NO_COUNT} AND events_in_header != ${NO_COUNT} AS is_counted
        FROM ${inForce(scratch.facts.table)} WHERE height > {above:Int64} ${onlyUncounted ? 'AND NOT is_counted' : ''}
        ORDER BY height LIMIT ${PAGE}`,
      row: blockRow,
    };
    const page = await clickhouse.rows(query, { above });
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    above = last.height;
  }
}
