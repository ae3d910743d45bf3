import { MOVE_CHECKPOINTS } from '../../../infra/kafka/checkpoints.ts';
import { prepared } from '../../../infra/postgres/client.ts';

/** Points in a role's work, identified by the request it sends there. For `FaultProxy.trap`. */

/** ClickHouse: an insert into a table, or the recomputation of a derived one. The statement is in the URL or the body. */
export const insertInto = (table: string): RegExp =>
  new RegExp(`INSERT(\\+|%20|\\s)INTO(\\+|%20|\\s)${table}_v`);

/** Postgres: an update of the checkpoints of a topic's projections, by its name: only the first of a connection has the text. */
export const checkpointOf = (topic: string): RegExp =>
  new RegExp(`${prepared(MOVE_CHECKPOINTS).name}[^]*${topic.replace('.', '\\.')}`);

/** Postgres: a fold writes rows, in the transaction that moves its checkpoint. */
export const foldInto = (projection: string): RegExp => new RegExp(`${projection.replace('-', '_')}_v\\d`);

/** Postgres: the swap of the served build. */
export const swapBuilds = /UPDATE tds\.served/;

/** Postgres: the end of an explicit transaction. */
export const commit = /Q[^]{4}COMMIT/;

/** Postgres: statements of the ingester, by their beginning. */
export const record = /INSERT INTO tds\.recorded_blocks/;
export const moveCursor = /UPDATE tds\.chunks\s+SET cursor = \$\d,/;
export const dropReverted =
  /DELETE FROM tds\.recorded_blocks\s+WHERE chunk = \$1 AND height >= \$\d AND intent/;

/** Kafka: a Produce request (key 0, version below 16) that names a topic. */
export const produceTo = (topic: string): RegExp =>
  new RegExp(`^[^]{4}\\0\\0\\0[\\0-\\x0f][^]*${topic.replace('.', '\\.')}`);
