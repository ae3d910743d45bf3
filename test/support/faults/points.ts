/** Points in a role's work, named by the request that goes over the wire there. For `FaultProxy.trap`. */

/** ClickHouse: rows into a table, or the recomputing of a derived one. The statement is in the URL, or in the body. */
export const insertInto = (table: string): RegExp =>
  new RegExp(`INSERT(\\+|%20|\\s)INTO(\\+|%20|\\s)${table}_v`);

/** Postgres: the checkpoints of a topic's projections move. */
export const checkpointOf = (topic: string): RegExp =>
  new RegExp(`UPDATE tds\\.checkpoints[^]*${topic.replace('.', '\\.')}`);

/** Postgres: a fold writes rows, its checkpoint being moved in the same transaction. */
export const foldInto = (projection: string): RegExp => new RegExp(`${projection.replace('-', '_')}_v\\d`);

/** Postgres: what is served changes. */
export const swapBuilds = /UPDATE tds\.served/;

/** Postgres: the end of an explicit transaction. */
export const commit = /Q[^]{4}COMMIT/;

/** Postgres: a statement of the ingester's, by its beginning. */
export const record = /INSERT INTO tds\.recorded_blocks/;
export const moveCursor = /UPDATE tds\.chunks\s+SET cursor = \$4/;
export const dropReverted =
  /DELETE FROM tds\.recorded_blocks\s+WHERE chunk = \$1 AND height >= \$3 AND intent/;

/** Kafka: a Produce request (key 0, version below 16) that names a topic. */
export const produceTo = (topic: string): RegExp =>
  new RegExp(`^[^]{4}\\0\\0\\0[\\0-\\x0f][^]*${topic.replace('.', '\\.')}`);
