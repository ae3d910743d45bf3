import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { chainProjections } from '../../projections/index.ts';
import type { ChainBlocksMessage } from '../../schemas/messages/chain-blocks.ts';
import { topics } from '../../schemas/topics.ts';
import { foldLog } from '../support/fold-log.ts';
import { expectedHolders, holdersIn } from './holders.ts';
import { expectedTables } from './oracle.ts';
import { UNSTORABLE_TIMESTAMP } from './poison.ts';
import type { SimTable } from './sim-table.ts';
import type { SimWorld } from './world.ts';

/** Columns of a row's version and log offset, which are not part of its content. */
const VERSION_COLUMNS = new Set(['seq', 'is_deleted', 'log_partition', 'log_offset']);
/** Differences reported per table; one cause breaks many rows. */
const MAX_REPORTED = 4;

/** Placeholders of every table projected from `chain.blocks`, including derived tables. */
export const tableNames: readonly string[] = chainProjections.flatMap(({ ddl }) =>
  [...ddl.matchAll(/CREATE TABLE IF NOT EXISTS \{\{([a-z_]+)\}\}/g)].map(([, name = '']) => name),
);

/** A row as text, without the columns that depend on how it was built. */
export function rowText(row: Row, omitted: ReadonlySet<string> = VERSION_COLUMNS): string {
  return Object.entries(row)
    .filter(([column]) => !omitted.has(column))
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([column, cell]) => `${column}=${String(cell)}`)
    .join(' ');
}

/** Differences between two multisets of texts. */
export function differences(what: string, found: readonly string[], expected: readonly string[]): string[] {
  const left = new Map<string, number>();
  for (const text of expected) left.set(text, (left.get(text) ?? 0) + 1);
  const extra = found.filter((text) => {
    const count = left.get(text) ?? 0;
    left.set(text, count - 1);
    return count <= 0;
  });
  const missing = [...left].filter(([, count]) => count > 0).map(([text]) => text);
  const reported = [
    ...missing.map((text) => `${what} lacks ${text}`),
    ...extra.map((text) => `${what} has ${text}`),
  ];
  return reported.length <= MAX_REPORTED
    ? reported
    : [...reported.slice(0, MAX_REPORTED), `${what}: ${reported.length - MAX_REPORTED} more`];
}

/** Compares the log, tables, repairs, alarms and checkpoints of an idle world with the canonical chain. */
export function checkWorld(world: SimWorld): string[] {
  const { broker, chain, store, state } = world;
  // Messages that cannot be stored were skipped.
  const log = broker
    .messages(topics.chainBlocks)
    .filter(({ block }) => block.timestamp !== UNSTORABLE_TIMESTAMP);
  const { accepted, breaches: violations } = foldLog(log);
  for (const { body } of chain.blocks()) {
    if (accepted.get(body.height) !== body.hash) {
      violations.push(`the log has ${accepted.get(body.height)} at ${body.height}, not ${body.hash}`);
    }
    accepted.delete(body.height);
  }
  for (const height of accepted.keys()) violations.push(`${height} is above the chain`);
  if (store.pendingCount() > 0) violations.push(`${store.pendingCount()} repairs are pending`);
  if (store.alarms.size > 0) violations.push(`alarms: ${JSON.stringify([...store.alarms])}`);

  const expected = expectedTables(chain.blocks(), world.standardOf, (height) => store.chunkAt(height));
  const expectedRows: Readonly<Record<string, readonly Row[]>> = {
    ...expected.tables,
    reverted_blocks: revertedRows(log),
  };
  for (const name of tableNames) {
    const found = world
      .servedTable(name)
      .final()
      .filter((row) => !isRevertedPoison(world, name, row))
      .map((row) => rowText(row));
    const wanted = (expectedRows[name] ?? []).map((row) => rowText(row));
    violations.push(...differences(name, found, wanted));
  }
  const holders = expectedHolders(expectedRows['account_ledger'] ?? []);
  for (const [name, found] of Object.entries(holdersIn((stem) => world.servedTable(stem)))) {
    const texts = (rows: readonly Row[]): string[] => rows.map((row) => rowText(row));
    violations.push(...differences(name, texts(found), texts(holders[name] ?? [])));
  }
  violations.push(...checkOffsets(world), ...checkConservation(world.servedTable('account_ledger')));

  for (const { name } of chainProjections) {
    for (const [partition, next] of state.checkpoints(state.served(name))) {
      const high = broker.read(topics.chainBlocks, partition).length;
      if (next !== high) violations.push(`${name}: checkpoint ${next} of ${high} in partition ${partition}`);
    }
  }
  violations.push(...differences('the quarantine', openEntries(world), [...expected.malformed]));
  return [...new Set(violations)];
}

/**
 * A revert of a poison block has a time that only reverted_blocks, which stores none, can hold: a rebuild of that projection alone
 * reads the message that the others must skip.
 */
export function isRevertedPoison({ broker }: Pick<SimWorld, 'broker'>, table: string, row: Row): boolean {
  if (table !== 'reverted_blocks') return false;
  const reverts = broker
    .messages(topics.chainBlocks)
    .filter(({ type, block }) => type === 'block.reverted' && block.hash === row['block_hash']);
  return reverts.every(({ block }) => block.timestamp === UNSTORABLE_TIMESTAMP);
}

/** A row for each block that was ever reverted, whether or not the chain has it again. */
function revertedRows(log: readonly ChainBlocksMessage[]): Row[] {
  const reverted = log.filter(({ type }) => type === 'block.reverted').map(({ block }) => block);
  return [...new Map(reverted.map((block) => [block.hash, block])).values()].map(
    ({ height, hash, parent_hash }) => ({ block_desc: 0xffff_ffff - height, block_hash: hash, parent_hash }),
  );
}

/** Checks that each indexed block is at its indexed offset. */
function checkOffsets(world: SimWorld): string[] {
  return world
    .servedTable('indexed_blocks')
    .final()
    .flatMap((row) => {
      const found = world.broker.read(topics.chainBlocks, Number(row['log_partition']))[
        Number(row['log_offset'])
      ];
      const message =
        found === undefined ? null : topics.chainBlocks.schema.parse(JSON.parse(found.value.toString()));
      const isPresent = message?.type === 'block.accepted' && message.block.hash === row['block_hash'];
      return isPresent && message.seq === row['seq'] ? [] : [`not at its indexed offset: ${rowText(row)}`];
    });
}

/** Checks that the legs of each token sum to zero, including the zero address. */
function checkConservation(ledger: SimTable): string[] {
  const sums = new Map<string, bigint>();
  for (const row of ledger.final()) {
    const token = String(row['token']);
    sums.set(token, (sums.get(token) ?? 0n) + BigInt(String(row['delta'])));
  }
  return [...sums]
    .filter(([, sum]) => sum !== 0n)
    .map(([token, sum]) => `the legs of ${token} sum to ${sum}`);
}

/** The open entries, as projections/quarantine computes them. */
function openEntries({ broker }: SimWorld): string[] {
  const open = new Set<string>();
  for (const message of broker.messages(topics.quarantine)) {
    if (message.type === 'quarantine.resolved') open.delete(message.id);
    else open.add(message.id);
  }
  return [...open];
}
