import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { sortingKey } from '../support/replacing.ts';
import type { SimClock } from './clock.ts';
import type { Count } from './coverage.ts';
import { deriveRows } from './derive.ts';
import type { SimProcess, FaultRates } from './process.ts';
import type { Random } from '../support/random.ts';
import { decodeRows } from './row-decoder.ts';

interface Version {
  readonly row: Row;
  readonly seq: number;
}

/** A ReplacingMergeTree(seq, is_deleted): all versions of each row that no merge has dropped, in order of insertion. */
export class SimTable {
  readonly name: string;
  readonly #key: readonly string[];
  readonly #versions = new Map<string, Version[]>();

  constructor(name: string, key: readonly string[]) {
    this.name = name;
    this.#key = key;
  }

  idOf(row: Row): string {
    return this.#key.map((column) => String(row[column])).join('|');
  }

  insert(rows: readonly Row[]): void {
    for (const row of rows) {
      const version = { row, seq: Number(row['seq']) };
      const id = this.idOf(row);
      const existing = this.#versions.get(id);
      if (existing === undefined) this.#versions.set(id, [version]);
      else existing.push(version);
    }
  }

  /** Drops all but the newest version of merged rows; of equal versions the last inserted stays. */
  merge(isMerged: () => boolean): void {
    for (const [id, versions] of this.#versions) {
      if (versions.length > 1 && isMerged()) this.#versions.set(id, [newest(versions)]);
    }
  }

  /** The newest version of every row, deleted or not; `pick` chooses among equal versions. */
  latest(pick: (count: number) => number): Row[] {
    return [...this.#versions.values()].map((versions) => {
      const last = newest(versions);
      const equal = versions.filter(({ seq }) => seq === last.seq);
      return (equal.length === 1 ? last : (equal[pick(equal.length)] ?? last)).row;
    });
  }

  /** The rows of a query with FINAL. */
  final(): Row[] {
    return [...this.#versions.values()]
      .map((versions) => newest(versions).row)
      .filter((row) => row['is_deleted'] === 0);
  }

  get(id: string): Row | undefined {
    const versions = this.#versions.get(id);
    return versions === undefined ? undefined : newest(versions).row;
  }
}

function newest(versions: readonly Version[]): Version {
  return versions.reduce((best, one) => (one.seq >= best.seq ? one : best));
}

/** Called on every insert, to check invariants at every moment. */
export type OnInsert = (table: string, rows: readonly Row[], process: SimProcess) => void;

interface ClickHouseWorld {
  readonly clock: SimClock;
  readonly random: Random;
  readonly faultRates: FaultRates;
  readonly count: Count;
}

export interface SimClickHouse {
  create(ddl: string, names: Readonly<Record<string, string>>): void;
  table(name: string): SimTable;
  /** Tables that a running process is writing now. */
  writesInFlight(): { readonly process: SimProcess; readonly table: string }[];
  /** The ClickHouse client of one process. */
  client(process: SimProcess): Pick<ClickHouse, 'insertEncoded' | 'command'>;
  onInsert: OnInsert;
}

export function createSimClickHouse({ clock, random, faultRates, count }: ClickHouseWorld): SimClickHouse {
  const tables = new Map<string, SimTable>();
  /** One entry per call in flight. */
  const calls = new Set<{ readonly process: SimProcess; readonly table: string }>();

  const table = (name: string): SimTable => {
    const found = tables.get(name);
    if (found === undefined) throw new RangeError(`no table ${name}`);
    return found;
  };
  const insertRows = (process: SimProcess, name: string, rows: readonly Row[]): void => {
    table(name).insert(rows);
    if (process.isExpelled && !process.isKilled()) count('zombie write');
    clickhouse.onInsert(name, rows, process);
    if (!random.chance(40)) return;
    count('clickhouse: parts merged');
    random.pick([...tables.values()]).merge(() => random.chance(700));
  };
  const delay = async (): Promise<void> => {
    const isSlow = random.chance(faultRates.slow);
    if (isSlow) count('clickhouse: slow');
    await clock.sleep(isSlow ? random.below(5000) : random.below(12));
  };
  const error = (): Error => Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });

  const during = async (process: SimProcess, name: string, work: () => Promise<void>): Promise<void> => {
    const call = { process, table: name };
    calls.add(call);
    try {
      await work();
    } finally {
      calls.delete(call);
    }
  };

  const clickhouse: SimClickHouse = {
    onInsert: () => {},
    table,
    create(ddl, names) {
      for (const [placeholder, name] of Object.entries(names)) {
        tables.set(name, new SimTable(name, sortingKey(ddl, placeholder)));
      }
    },
    writesInFlight: () => [...calls].filter(({ process }) => !process.isKilled()),
    client: (process) => ({
      insertEncoded: (name, columns, bytes) =>
        during(process, name, async () => {
          const rows = decodeRows(columns, bytes);
          const work = async (): Promise<void> => {
            await delay();
            insertRows(process, name, rows);
          };
          await process.call('clickhouse', `insert ${rows.length} into ${name}`, work, {
            mayBeLate: true,
            error,
          });
        }),
      command: (sql, options) => {
        const [, name = ''] = /INSERT INTO ([a-z0-9_]+)/.exec(sql) ?? [];
        return during(process, name, async () => {
          const work = async (lateMs = 0): Promise<void> => {
            const rows = deriveRows(name, options?.params ?? {}, table, (equal) => random.below(equal));
            // Reads now and writes later, even after the client has given up.
            await clock.sleep(lateMs);
            await delay();
            insertRows(process, name, rows);
          };
          await process.call('clickhouse', `derive ${name}`, () => work(), {
            mayBeLate: true,
            late: work,
            error,
          });
        });
      },
    }),
  };
  return clickhouse;
}
