import { readFileSync } from 'node:fs';

import type { RowReader } from '../infra/clickhouse/client.ts';
import type { ColumnSpec, Row } from '../infra/clickhouse/row-binary.ts';
import type { PoolClient } from '../infra/postgres/client.ts';
import { AppError } from '../schemas/errors.ts';
import type { DecodedBlock } from '../schemas/decode/index.ts';
import type { Felt } from '../schemas/felt.ts';
import type { ChainBlocksMessage } from '../schemas/messages/chain-blocks.ts';
import type { PricesMessage } from '../schemas/messages/prices.ts';
import type { UsageMessage } from '../schemas/messages/usage.ts';
import type { Topic } from '../schemas/topics.ts';

/**
 * A projection turns a topic into tables. It has a version, which is part of its tables' names; one set of its tables
 * is a *build*; several builds can stand side by side while one of them is served.
 *
 * A projection's folder holds `table.sql` (shape), `projector.ts` (write) and `queries.ts` (read). Its name is the
 * folder's. SQL names tables by placeholders: `{{transfers}}` is `transfers_v1_b1` in build 1 of version 1,
 * `{{schema}}` is the Postgres schema of the build.
 */
export type Projection = ClickHouseProjection | PostgresProjection<unknown>;

/** One message of a stream, parsed and decoded once for all projections of it. */
export interface StreamItem {
  readonly partition: number;
  readonly offset: number;
}

/** A topic that ClickHouse tables are made from, and how its messages are read. */
export interface Stream<M = unknown, I extends StreamItem = StreamItem, T = unknown> extends Topic<M> {
  /** An error makes the message unreadable, and halts its partition. */
  item(message: M, place: StreamItem): I;
  /** The part of an item that `derive` needs; kept until the batch is written, so keep it small. */
  touched(item: I): T;
  /** Whether a later message soon puts back what the item removes: readers must not see the one without the other. */
  isReplaced?(item: I): boolean;
  /** The bucket (compare.ts) of every row of an item. A rebuild compares it again after the item. */
  bucket(item: I): number;
}

/** A message of `chain.blocks`. */
export interface BlockItem extends StreamItem {
  readonly message: ChainBlocksMessage;
  readonly decoded: DecodedBlock;
}

export interface TouchedBlock {
  readonly height: number;
  readonly chunk: string;
  readonly offset: number;
  /** It was accepted as the new head of the chain. */
  readonly isNew: boolean;
}

/** A message of `prices`. */
export interface PriceItem extends StreamItem {
  readonly message: PricesMessage;
  /** Hours since 1970, of the price's own time. */
  readonly hour: number;
}

export interface TouchedHour {
  readonly token: Felt;
  readonly hour: number;
}

/** A message of `usage`. */
export interface UsageItem extends StreamItem {
  readonly message: UsageMessage;
  /** Hours since 1970, of the calls. */
  readonly hour: number;
}

export interface UsedKey {
  readonly keyId: number;
  readonly hour: number;
}

export interface ClickHouseProjection<I extends StreamItem = StreamItem, T = unknown> {
  readonly kind: 'clickhouse';
  /** The folder's name. */
  readonly name: string;
  readonly version: number;
  readonly topic: Stream<unknown, I, T>;
  /** The text of table.sql: CREATE TABLE statements of `{{table}}`s, each ended by a semicolon at the end of a line. */
  readonly ddl: string;
  /** The tables that `project` fills, by placeholder. Derived tables are only in the DDL. */
  readonly tables: Readonly<Record<string, { readonly columns: readonly ColumnSpec[] }>>;
  /** Inserted after every other projection's tables and derived tables of the batch, so that totals never lead. */
  readonly insertLast?: boolean;
  /**
   * Whether an item removes a block. Its rows are inserted before every other row of the batch, those of `insertLast`
   * after the rest of them, so that nothing says that a block is indexed while the rows of another one stand in its
   * place.
   */
  isRemoval?(item: I): boolean;
  /**
   * Its rows are of blocks that no longer count. A verification reads only the messages about those that do, and leaves it out;
   * a rebuild compares it.
   */
  readonly isHistory?: true;
  /** Pure and idempotent: the rows depend on the message alone. */
  project(item: I): Readonly<Record<string, readonly Row[]>>;
  /**
   * Pure: the statements that recompute the buckets which these messages touched, each from the projection's own base
   * table, versioned by the highest offset among the messages that touched the bucket. Run after the rows of these
   * and of all earlier messages are acknowledged.
   */
  derive?(touched: readonly T[]): readonly DeriveStatement[];
  /**
   * Pure: whether readers of what these messages index use nothing that is derived from them, so that it is derived after the
   * rows that say what is indexed. Default: false.
   */
  isDerivedLast?(touched: readonly T[]): boolean;
  /**
   * Required on a topic with finite retention. Returns the statements that copy the rows of messages before
   * `firstOffset`, which the log has deleted, from the previous build: its tables are `{{previous_table}}`. Idempotent.
   */
  carryOver?(firstOffset: number): readonly DeriveStatement[];
  /**
   * Its tables are derived by passes beside the batches (engine/deferred), because deriving them within each batch would slow
   * down the backfill. A batch only marks blocks as due.
   */
  readonly deferred?: Deferred;
}

/** A block whose rows a pass has to derive. */
export interface DueBlock {
  readonly height: number;
  /** Hours since 1970, of the block's time. */
  readonly hour: number;
  /** Version of the mark (due-blocks.ts). */
  readonly seq: number;
  /** Seconds since it was marked. */
  readonly age: number;
}

/** How passes derive the tables of a projection from the served tables of others. */
export interface Deferred {
  /** Placeholder of the table of due blocks, with the columns of due-blocks.ts; the only one that `project` fills. */
  readonly due: string;
  /** Projections whose served tables are read. A block is derived once all of them have read its message. */
  readonly sources: readonly string[];
  /**
   * Chooses blocks, newest first, that one pass derives; null: none of these can be derived yet. A statement must be
   * idempotent, and its rows are versioned by the number of the pass.
   */
  plan(due: readonly DueBlock[], read: DeferredReads): Promise<DeferredPlan | null>;
  /** `SELECT`s of what two builds must have in common when neither has a block to derive. */
  readonly compared: Readonly<Record<string, string>>;
}

export interface DeferredReads {
  readonly clickhouse: RowReader;
  /** Real name of a table of the build, or of a source's served build. */
  readonly table: (placeholder: string) => string;
  /** Time of the newest indexed block in unix seconds; null before the first. Its source must be among the sources. */
  readonly newestTime: () => Promise<number | null>;
}

export interface DeferredPlan {
  readonly blocks: readonly DueBlock[];
  /** @param pass number of the pass; a later one has a higher number */
  statements(pass: number): readonly DeriveStatement[];
}

/** A projection of `chain.blocks` with deferred tables. */
export type DeferredProjection = BlockProjection & { readonly deferred: Deferred };

export function isDeferred(projection: Projection): projection is DeferredProjection {
  return projection.kind === 'clickhouse' && projection.deferred !== undefined;
}

export function isInsertedLast(projection: Projection): boolean {
  return projection.kind === 'clickhouse' && projection.insertLast === true;
}

export type BlockProjection = ClickHouseProjection<BlockItem, TouchedBlock>;
export type PriceProjection = ClickHouseProjection<PriceItem, TouchedHour | null>;
export type UsageProjection = ClickHouseProjection<UsageItem, UsedKey>;

/** `INSERT INTO {{derived}} SELECT … FROM {{base}}`, with ClickHouse's `{name:Type}` parameters. */
export interface DeriveStatement {
  readonly sql: string;
  readonly params: Readonly<Record<string, unknown>>;
}

export interface PostgresProjection<M> {
  readonly kind: 'postgres';
  readonly name: string;
  readonly version: number;
  /** With `minBytes` a fetch waits for so many, at most a second: then rows are late, and many messages share a transaction. */
  readonly topic: Topic<M> & { readonly minBytes?: number };
  /** The text of table.sql: its tables are created as `{{schema}}.table`. */
  readonly ddl: string;
  /**
   * `tds snapshot` keeps its tables in the log and deletes the messages before: a build begins with the newest snapshot.
   * Foreign keys among the tables are deferrable.
   */
  readonly isSnapshotted?: true;
  /** By earlier version: how a build is filled from a snapshot of it. A snapshot of any other version is refused. */
  readonly fromSnapshot?: Readonly<Record<number, SnapshotConversion>>;
  /**
   * Its rows expire as soon as their messages: a run skips messages that retention has deleted before it read them. A run of any
   * other projection ends with CHECKPOINT_OUTSIDE_LOG, and the projection must be rebuilt.
   */
  readonly isExpiring?: true;
  /**
   * Channel notified after commit. Equal payloads of one batch are sent once, null ones are not sent.
   */
  readonly notify?: { readonly channel: string; payload(message: M): string | null };
  /** False for messages that change nothing; they are not folded. Default: every message is folded. */
  isRelevant?(message: M): boolean;
  /**
   * Folds one message in the transaction that moves the checkpoint. It decides from the tables and the message alone;
   * an error other than an unavailable database halts the partition at this message.
   */
  fold(tx: PoolClient, message: M, meta: FoldMeta): Promise<void>;
  /**
   * Required on a topic with finite retention. The statement that copies rows of messages which the log has deleted from
   * the previous build, `{{previous_schema}}`. Folding a later message again over a copied row must not change it.
   */
  readonly carryOver?: string;
}

export interface SnapshotConversion {
  /** Present names of renamed tables, by their names in the snapshot. */
  readonly renamed?: Readonly<Record<string, string>>;
  /** A statement run after all rows are inserted, e.g. to compute a column again. */
  readonly afterwards?: string;
}

export interface FoldMeta {
  readonly partition: number;
  readonly offset: number;
  /** Unix milliseconds at which the log took the message. */
  readonly timestamp: number;
  /** The Postgres schema of the build that is being written. */
  readonly schema: string;
}

/** Reads the `table.sql` beside a projector: `tableSql(import.meta.url)`. */
export function tableSql(projectorUrl: string): string {
  return readFileSync(new URL('table.sql', projectorUrl), 'utf8');
}

/** Puts names in the place of `{{placeholders}}`; an unknown one is a bug and throws. */
export function withNames(sql: string, names: Readonly<Record<string, string>>): string {
  return sql.replaceAll(/\{\{([a-z_]+)\}\}/g, (_, placeholder: string) => {
    const name = names[placeholder];
    if (name === undefined) throw new AppError('NOT_FOUND', `Unknown placeholder {{${placeholder}}}`);
    return name;
  });
}
