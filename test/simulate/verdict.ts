import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { chainProjections } from '../../projections/index.ts';
import { topics } from '../../schemas/topics.ts';
import { foldLog } from '../support/fold-log.ts';
import { truthOf } from './oracle.ts';
import { UNSTORABLE_TIMESTAMP } from './poison.ts';
import type { SimTable } from './tables.ts';
import type { SimWorld } from './world.ts';

/** Columns that say where and under which version a row was made, not what it says. */
const PLACES = new Set(['seq', 'is_deleted', 'log_partition', 'log_offset']);
/** Breaches told of one kind; one cause breaks many rows. */
const TOLD = 4;

/** Placeholders of every table made from `chain.blocks`, with what is derived from others. */
export const tableNames: readonly string[] = chainProjections.flatMap(({ ddl }) =>
  [...ddl.matchAll(/CREATE TABLE IF NOT EXISTS \{\{([a-z_]+)\}\}/g)].map(([, name = '']) => name),
);

/** A row as text, without what differs from one way of building it to another. */
export function rowText(row: Row, leftOut: ReadonlySet<string> = PLACES): string {
  return Object.entries(row)
    .filter(([column]) => !leftOut.has(column))
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([column, cell]) => `${column}=${String(cell)}`)
    .join(' ');
}

/** What differs between two lists of texts. */
export function differences(what: string, found: readonly string[], wanted: readonly string[]): string[] {
  const left = new Map<string, number>();
  for (const text of wanted) left.set(text, (left.get(text) ?? 0) + 1);
  const extra = found.filter((text) => {
    const count = left.get(text) ?? 0;
    left.set(text, count - 1);
    return count <= 0;
  });
  const missing = [...left].filter(([, count]) => count > 0).map(([text]) => text);
  const told = [
    ...missing.map((text) => `${what} lacks ${text}`),
    ...extra.map((text) => `${what} has ${text}`),
  ];
  return told.length <= TOLD ? told : [...told.slice(0, TOLD), `${what}: ${told.length - TOLD} more`];
}

/** Everything that a world at rest must be, compared with the chain in force. Empty: nothing is wrong. */
export function verdict(world: SimWorld): string[] {
  const { broker, chain, store, state } = world;
  // What cannot be stored was passed over.
  const log = broker
    .messages(topics.chainBlocks)
    .filter(({ block }) => block.timestamp !== UNSTORABLE_TIMESTAMP);
  const { accepted, breaches } = foldLog(log);
  for (const { body } of chain.blocks()) {
    if (accepted.get(body.height) !== body.hash) {
      breaches.push(`the log says ${accepted.get(body.height)} at ${body.height}, not ${body.hash}`);
    }
    accepted.delete(body.height);
  }
  for (const height of accepted.keys()) breaches.push(`${height} is above the chain`);
  if (store.pendingCount() > 0) breaches.push(`${store.pendingCount()} repairs are not done`);
  if (store.alarms.size > 0) breaches.push(`alarms: ${JSON.stringify([...store.alarms])}`);

  const truth = truthOf(chain.blocks(), world.standardOf, (height) => store.chunkAt(height));
  for (const name of tableNames) {
    const found = world
      .servedTable(name)
      .final()
      .map((row) => rowText(row));
    const wanted = (truth.tables[name] ?? []).map((row) => rowText(row));
    breaches.push(...differences(name, found, wanted));
  }
  breaches.push(...bodies(world), ...conservation(world.servedTable('account_ledger')));

  for (const { name } of chainProjections) {
    for (const [partition, next] of state.checkpoints(state.served(name))) {
      const high = broker.read(topics.chainBlocks, partition).length;
      if (next !== high) breaches.push(`${name} stands at ${next} of ${high} in partition ${partition}`);
    }
  }
  breaches.push(...differences('the quarantine', openEntries(world), [...truth.malformed]));
  return [...new Set(breaches)];
}

/** Where the index says that a block's body lies, it lies. */
function bodies(world: SimWorld): string[] {
  return world
    .servedTable('indexed_blocks')
    .final()
    .flatMap((row) => {
      const said = world.broker.read(topics.chainBlocks, Number(row['log_partition']))[
        Number(row['log_offset'])
      ];
      const message =
        said === undefined ? null : topics.chainBlocks.schema.parse(JSON.parse(said.value.toString()));
      const isThere = message?.type === 'block.accepted' && message.block.hash === row['block_hash'];
      return isThere && message.seq === row['seq'] ? [] : [`no body of ${rowText(row)} where the index says`];
    });
}

/** The legs of a token sum to nothing when the zero address is counted. */
function conservation(ledger: SimTable): string[] {
  const sums = new Map<string, bigint>();
  for (const row of ledger.final()) {
    const token = String(row['token']);
    sums.set(token, (sums.get(token) ?? 0n) + BigInt(String(row['delta'])));
  }
  return [...sums]
    .filter(([, sum]) => sum !== 0n)
    .map(([token, sum]) => `the legs of ${token} sum to ${sum}`);
}

/** As projections/quarantine folds its topic. */
function openEntries({ broker }: SimWorld): string[] {
  const open = new Set<string>();
  for (const message of broker.messages(topics.quarantine)) {
    if (message.type === 'quarantine.resolved') open.delete(message.id);
    else open.add(message.id);
  }
  return [...open];
}
