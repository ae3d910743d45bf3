/** Where the tables are replicated. */
export interface Cluster {
  /** As in `remote_servers` of the servers: one shard, whose replicas all have every table. */
  readonly name: string;
  /**
   * Replicas that have an insert before it is acknowledged. Never ClickHouse's `auto`: with one of two replicas left it means one,
   * and an insert then blocks its table for ever; of five, it acknowledges what two have (25.8).
   */
  readonly insertQuorum: number;
}

/**
 * Settings of every table. After a power cut, all acknowledged rows are there: a checkpoint vouches for them. No insert is
 * deduplicated: identity is in the sorting key, and a repair may insert the same rows again (see also ClickHouse issue 121174,
 * which loses acknowledged rows). What turns deduplication off in the settings of an insert differs between versions.
 * Twice as many parts are merged at a time as by default: the merges after a block then take a third of the CPU time.
 */
export const TABLE_SETTINGS =
  'fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10';

const CREATE = /^CREATE TABLE /m;
const TABLE = /^(?:CREATE|DROP|ALTER) TABLE (?:IF (?:NOT )?EXISTS )?(\w+)/m;
const ENGINE = /ENGINE = (\w*MergeTree)(?:\(([^)]*)\))?/;

/** A statement about one table as it is sent: a new table gets `TABLE_SETTINGS`; on a cluster, every replica executes it. */
export function tableStatement(sql: string, cluster: string | null): string {
  const separator = /^SETTINGS /m.test(sql) ? ', ' : '\nSETTINGS ';
  const complete = CREATE.test(sql) ? `${sql}${separator}${TABLE_SETTINGS}` : sql;
  return cluster === null ? complete : onCluster(complete, cluster);
}

/**
 * The engine of a new table becomes the replicated one. Its path in Keeper contains the table's name, which names its build:
 * a repeated CREATE joins the same table, where `{uuid}` would make a second one on a replica that had missed the first.
 */
function onCluster(sql: string, cluster: string): string {
  const where = `ON CLUSTER '${cluster}'`;
  const table = TABLE.exec(sql)?.[1];
  if (table === undefined) throw new TypeError(`Not a statement about one table: ${sql}`);
  const path = `'/clickhouse/${cluster}/{database}/${table}', '{replica}'`;
  return sql
    .replace(TABLE, `$& ${where}`)
    .replace(ENGINE, (_, engine: string, parameters: string | undefined) => {
      const all = parameters === undefined ? path : `${path}, ${parameters}`;
      return `ENGINE = Replicated${engine}(${all})`;
    });
}
