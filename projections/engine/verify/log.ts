import { createHash } from 'node:crypto';
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';

import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Row } from '../../../infra/clickhouse/row-binary.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { ContractsMap } from '../../../schemas/messages/chain-blocks.ts';
import { CHAIN_BLOCKS_PARTITIONS, HEIGHT_RANGE } from '../../../schemas/topics.ts';
import { createBatch } from '../run/batch.ts';
import type { Batch, Reading } from '../run/batch.ts';
import type { Heights } from '../compare.ts';
import type { BlockItem } from '../../define.ts';
import { NAMED } from './difference.ts';
import type { Difference } from './difference.ts';
import { chainBlocks, readItem } from '../../streams.ts';
import { NO_COUNT, factColumns } from './scratch.ts';
import type { Scratch } from './scratch.ts';

/** Offsets `from` to before `to` of one partition. */
export interface LogRange {
  readonly partition: number;
  readonly from: number;
  readonly to: number;
  /** Before this one, the projections have read all: their rows are expected. */
  readonly projected: number;
}

interface Scan {
  readonly kafka: Pick<Kafka, 'readRanges'>;
  readonly clickhouse: ClickHouse;
  readonly scratch: Scratch;
  readonly heights: Heights;
  readonly ranges: readonly LogRange[];
  /** `partition:offset` of messages that an operator has told to pass over. */
  readonly skipped: ReadonlySet<string>;
  readonly signal: AbortSignal;
  readonly onRead: (messages: number) => void;
}

const BATCH = { facts: 20_000, rows: 50_000, bytes: 32_000_000 };

/** Projects every message about these heights into the scratch tables, and writes down what it says of itself. */
export async function scanLog(scan: Scan): Promise<Difference[]> {
  const { scratch, heights, signal } = scan;
  const topic = chainBlocks;
  const readings = new Map(
    scan.ranges.map(({ partition, from }): [number, Reading] => [
      partition,
      {
        partition,
        current: true,
        next: from,
        planned: new Map(scratch.targets.map((target) => [target, from])),
        stored: new Map(),
        halt: null,
      },
    ]),
  );
  const projected = new Map(scan.ranges.map((range) => [range.partition, range.projected]));
  const unreadable: Difference[] = [];
  let batch = createBatch(scratch.targets);
  let facts: Row[] = [];
  const flush = async (): Promise<void> => {
    const [full, written] = [batch, facts];
    batch = createBatch(scratch.targets, full.sizes());
    facts = [];
    await write(scan, full, written);
  };

  let lastYield = performance.now();
  for await (const { partition, messages } of scan.kafka.readRanges(
    topic,
    scan.ranges,
    topic.fetchBytes,
    signal,
  )) {
    const reading = readings.get(partition);
    if (reading === undefined) continue;
    for (const message of messages) {
      signal.throwIfAborted();
      const item = readItem(topic, message);
      const place = `${partition}:${message.offset}`;
      if ('reason' in item) {
        if (scan.skipped.has(place)) continue;
        unreadable.push({
          kind: 'log',
          what: `${topic.name}:${place} cannot be read: ${item.reason}`,
          heights: null,
        });
        continue;
      }
      const { height } = item.message.block;
      if (height < heights.from || height > heights.to) continue;
      if (message.offset < (projected.get(partition) ?? 0)) {
        try {
          batch.add(reading, item);
        } catch (error) {
          // Passed over by the projections too: its block is in the log, its rows are nowhere.
          if (!scan.skipped.has(place)) {
            unreadable.push({
              kind: 'log',
              what: `${topic.name}:${place} cannot be projected: ${error instanceof Error ? error.message : String(error)}`,
              heights: null,
            });
          }
        }
      }
      facts.push(factOf(item));
      if (facts.length >= BATCH.facts || batch.rows() >= BATCH.rows || batch.bytes() >= BATCH.bytes)
        await flush();
      if (performance.now() - lastYield > 20) {
        await yieldToEventLoop();
        lastYield = performance.now();
      }
    }
    scan.onRead(messages.length);
  }
  await flush();
  return unreadable;
}

async function write({ clickhouse, scratch }: Scan, batch: Batch, facts: readonly Row[]): Promise<void> {
  for (const { target, tables } of batch.shares) {
    for (const [placeholder, encoder] of tables) {
      const { rows, columns } = encoder;
      const table = target.build.names[placeholder];
      if (rows === 0 || table === undefined) continue;
      await clickhouse.insertEncoded(table, columns, encoder.take());
    }
  }
  await clickhouse.insert(scratch.facts, factColumns, facts);
}

function factOf({ message, partition, offset }: BlockItem): Row {
  const { block } = message;
  return {
    height: block.height,
    seq: message.seq,
    log_partition: partition,
    log_offset: offset,
    accepted: message.type === 'block.accepted' ? 1 : 0,
    hash: block.hash,
    parent_hash: block.parent_hash,
    contracts: digest(message.contracts),
    transactions: block.transactions.length,
    events: block.transactions.reduce((sum, { events }) => sum + events.length, 0),
    header_transactions: block.transaction_count ?? NO_COUNT,
    header_events: block.event_count ?? NO_COUNT,
  };
}

function digest(contracts: ContractsMap): string {
  const entries = Object.entries(contracts).toSorted(([a], [b]) => (a < b ? -1 : 1));
  const text = JSON.stringify(
    entries.map(([contract, facts]) => [contract, facts.standard, facts.class_hash]),
  );
  return `0x${createHash('sha256').update(text).digest('hex')}`;
}

/** Of every block and contracts map the newest word; what is accepted by it is in force. */
export const inForce = (facts: string): string => `(
  SELECT height, hash, contracts, argMax(accepted, seq) AS alive, argMax(parent_hash, seq) AS parent,
    argMax(transactions, seq) AS in_body, argMax(events, seq) AS events_in_body,
    argMax(header_transactions, seq) AS in_header, argMax(header_events, seq) AS events_in_header
  FROM ${facts} GROUP BY height, hash, contracts HAVING alive = 1)`;

const foundRow = z.object({ height: z.number(), last: z.number(), detail: z.string() });

/** What the log promises of itself, checked on what was read: each height once, linked, whole, in its partition. */
export async function logDifferences(
  clickhouse: Pick<ClickHouse, 'rows'>,
  scratch: Scratch,
  expected: readonly Heights[],
): Promise<Difference[]> {
  const log = inForce(scratch.facts);
  const hash = (column: string): string => `concat('0x', lower(hex(${column})))`;
  const checks: [name: string, reread: boolean, sql: string][] = [
    [
      'log.two-blocks',
      false,
      `SELECT height, height AS last, concat('two blocks are accepted: ', arrayStringConcat(groupArray(${hash('hash')}), ', ')) AS detail
       FROM ${log} GROUP BY height HAVING count() > 1`,
    ],
    [
      'log.seq',
      false,
      `SELECT height, height AS last, concat('two messages share seq ', toString(seq)) AS detail
       FROM ${scratch.facts} GROUP BY height, seq HAVING uniqExact(accepted, hash, contracts) > 1`,
    ],
    [
      'log.partition',
      false,
      `SELECT height, height AS last, concat('a message lies in partition ', toString(any(log_partition))) AS detail
       FROM ${scratch.facts} WHERE log_partition != intDiv(height, ${HEIGHT_RANGE}) % ${CHAIN_BLOCKS_PARTITIONS} GROUP BY height`,
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
      'log.links',
      false,
      `SELECT height, height AS last, concat('names a parent that is not accepted below it: ', ${hash('parent')}) AS detail
       FROM ${log} WHERE height > 0 AND height - 1 IN (SELECT height FROM ${log})
         AND (toUInt32(height - 1), parent) NOT IN (SELECT height, hash FROM ${log})`,
    ],
    ...expected
      .filter(({ from, to }) => from <= to)
      .map(({ from, to }): [string, boolean, string] => [
        'log.gaps',
        true,
        // Runs of missing heights: neighbours have the same height less their rank.
        `SELECT min(missing) AS height, max(missing) AS last, 'no block is accepted' AS detail
         FROM (SELECT missing, missing - row_number() OVER (ORDER BY missing) AS run FROM (
           SELECT toInt64(number) AS missing FROM numbers(${from}, ${to - from + 1})
           WHERE number NOT IN (SELECT height FROM ${log})))
         GROUP BY run`,
      ]),
  ];
  const differences: Difference[] = [];
  for (const [name, reread, sql] of checks) {
    const query = {
      name,
      sql: `SELECT toUInt32(height) AS height, toUInt32(last) AS last, detail FROM (${sql}) ORDER BY height LIMIT ${NAMED}`,
      row: foundRow,
    };
    for (const { height, last, detail } of await clickhouse.rows(query)) {
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

const blockRow = z.object({
  height: z.number(),
  hash: z.string(),
  transactions: z.number(),
  events: z.number(),
  is_counted: z.number(),
});
export type LogBlock = z.infer<typeof blockRow>;

const PAGE = 1000;

/** The blocks in force, lowest first: to be compared with a node. */
export async function* logBlocks(
  clickhouse: Pick<ClickHouse, 'rows'>,
  scratch: Scratch,
  onlyUncounted: boolean,
): AsyncGenerator<LogBlock> {
  for (let above = -1; ;) {
    const page = await clickhouse.rows({
      name: 'verify.blocks',
      sql: `SELECT height, concat('0x', lower(hex(hash))) AS hash, in_body AS transactions, events_in_body AS events,
          in_header != ${NO_COUNT} AND events_in_header != ${NO_COUNT} AS is_counted
        FROM ${inForce(scratch.facts)} WHERE height > ${above} ${onlyUncounted ? 'AND NOT is_counted' : ''}
        ORDER BY height LIMIT ${PAGE}`,
      row: blockRow,
    });
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    above = last.height;
  }
}
